import json
from dataclasses import replace

from tapes.derive.deriver import derive
from tapes.rows import Projection, RawTurn, Session, Span
from tapes.sessiondiff import Compared, compared
from tests.derive.talks import ASK, BACK, DO, conversation
from tests.turns import assistant, call, messages


def against(left: list[RawTurn], right: list[RawTurn]) -> Compared:
    one, other = derive(left), derive(right)
    return compared(one.sessions[0], one, other.sessions[0], other)


def later(turns: list[RawTurn]) -> list[RawTurn]:
    """The same again on another day, under other ids."""
    return [
        replace(
            turn,
            id=turn.id + 100,
            request_id=f"again-{turn.id}",
            envelope=replace(turn.envelope, harness_session_id="again"),
            started_at=(turn.started_at or 0) + 10**15,
            ended_at=(turn.ended_at or 0) + 10**15,
        )
        for turn in turns
    ]


def test_the_same_on_another_day_is_the_same() -> None:
    found = against(conversation(), later(conversation()))
    assert not found.is_some
    assert (found.differing, found.only_one, found.only_other) == (0, 0, 0)
    assert found.same > 4


def test_the_first_place_that_differs_is_named() -> None:
    other = assistant("I look.", call("t1", "Bash", command="ls -la"))
    changed = [messages(1, [ASK], other), messages(2, [ASK, other, BACK], assistant("two files"))]
    same = [messages(1, [ASK], DO), messages(2, [ASK, DO, BACK], assistant("one file"))]
    found = against(same, later(changed))
    assert found.first is not None
    assert [d.place for d in found.first.differences] == ["output[1].tool_input.command"]
    assert "ls -la" in found.as_text()
    json.dumps(found.as_json())


def test_a_session_that_goes_on_longer_differs_by_what_it_has_more() -> None:
    found = against(conversation(), later(conversation()[:2]))
    assert found.is_some
    assert found.only_one > 0
    assert found.only_other == 0


def test_what_lies_far_behind_in_a_long_session_differs_too() -> None:
    def long(*names: str) -> Projection:
        same = [Span(trace_id="t", span_id=str(n), name=f"step {n % 7}") for n in range(6000)]
        more = [Span(trace_id="t", span_id=name, name=name) for name in names]
        return replace(derive([]), spans=(*same, *more))

    session = Session(id="s")
    assert not compared(session, long("a"), session, long("a")).is_some
    found = compared(session, long("a"), session, long("b", "c"))
    assert found.first is not None
    assert (found.first.one, found.first.other) == (long("a").spans[-1], long("b").spans[-1])
    assert (found.same, found.differing, found.only_one, found.only_other) == (6000, 1, 0, 1)
    assert compared(session, long("a"), session, long()).only_one == 1
