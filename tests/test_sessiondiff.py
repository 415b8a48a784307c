import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tapes.derive.deriver import derive
from tapes.rows import Projection, RawTurn, Session, Span
from tapes.sessiondiff import Compared, compared
from tests.derive.talks import ASK, BACK, DO, conversation
from tests.turns import assistant, call, messages


def against(left: list[RawTurn], right: list[RawTurn]) -> Compared:
    one, other = derive(left), derive(right)
    return compared(one.sessions[0], one, other.sessions[0], other)


@contextmanager
def at_most(*, processor_s: float) -> Iterator[None]:
    def spent(_number: int, _frame: object) -> None:
        raise TimeoutError("it takes too long")

    before = signal.signal(signal.SIGVTALRM, spent)
    signal.setitimer(signal.ITIMER_VIRTUAL, processor_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


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


def test_sessions_of_few_spans_that_come_again_and_again_are_compared_within_bounds() -> None:
    def made(*names: str) -> Projection:
        spans = (Span(trace_id="t", span_id=str(n), name=name) for n, name in enumerate(names))
        return replace(derive([]), spans=tuple(spans))

    one, other = made(*["poll", "wait"] * 1500), made("begin", *["poll"] * 3000)
    session = Session(id="s")
    with at_most(processor_s=60):  # it ran for many minutes
        found = compared(session, one, session, other)
    assert found.first is not None
    assert (found.first.one, found.first.other) == (None, other.spans[0])
    assert found.same + found.differing + found.only_one == 3000
