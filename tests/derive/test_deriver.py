"""Raw turns → rows: the same whatever the order, again and again, alone or together."""

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapes.derive.deriver import Memory, derive
from tapes.envelope import Envelope
from tapes.prices import Price, Prices
from tapes.providers.reading import read
from tapes.providers.reduced import reduced
from tapes.providers.turn import Turn
from tapes.rows import (
    Outcome,
    Projection,
    RawTurn,
    SpanKind,
    Status,
    key_of_row,
    parent_session_id_of,
    session_id_of,
)
from tests.cases import CASES
from tests.derive.talks import conversation, with_thread
from tests.strategies import examples
from tests.turns import (
    assistant,
    chat,
    exchanged,
    messages,
    raw_turn,
    recording,
    said,
    transcript,
    user,
)

HI = said("user", "hi")


def several_sessions() -> list[RawTurn]:
    """Three sessions of an agent and two conversations that name none."""
    turns, number = list[RawTurn](), 0
    for session, made in (("a", conversation()), ("b", with_thread()), ("c", conversation())):
        for raw in made:
            number += 1
            envelope = replace(raw.envelope, harness_session_id=session)
            turns.append(
                replace(raw, id=number, request_id=f"{session}{number}", envelope=envelope)
            )
    turns.append(transcript(90, "b", agent_id="a", tool_use_id="t9"))
    history = [HI, said("assistant", "hello"), said("user", "more")]
    turns += [
        chat(91, [HI], "hello", session=""),
        chat(92, history, "so", session="", request_id=""),
        chat(93, [HI], "good day", session=""),
    ]
    return turns


@pytest.mark.row("D3")
@settings(max_examples=examples(25), deadline=None)
@given(st.randoms(use_true_random=False))
def test_the_order_of_arrival_does_not_matter(random: Random) -> None:
    turns = several_sessions()
    expected = derive(turns)
    random.shuffle(turns)
    assert derive(turns) == expected


@pytest.mark.row("D3")
def test_deriving_again_changes_nothing() -> None:
    made = derive(several_sessions())
    assert made.differences(derive(several_sessions())) == []
    assert len(made.sessions) == 5


def test_a_session_alone_gives_its_part_of_the_whole() -> None:
    whole = derive(several_sessions())
    for session in "abc":
        own = [t for t in several_sessions() if t.envelope.harness_session_id == session]
        session_id = session_id_of(own[0].envelope)
        assert derive(own) == whole.of_session(session_id)


def test_one_more_turn_moves_nothing_that_is_there() -> None:
    for turns in (conversation(), with_thread()):
        for count in range(1, len(turns)):
            before, after = derive(turns[:count]).rows(), derive(turns[: count + 1]).rows()
            assert before.keys() <= after.keys()


def test_a_memory_changes_the_speed_and_never_the_rows() -> None:
    memory, turns = Memory(), several_sessions()
    for count in range(1, len(turns) + 1):
        assert derive(turns[:count], memory=memory) == derive(turns[:count])


@settings(max_examples=examples(25), deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_memory_is_right_whatever_comes_late_or_goes(random: Random) -> None:
    turns = several_sessions()
    random.shuffle(turns)
    memory = Memory()
    for _ in range(6):
        some = random.sample(turns, random.randrange(len(turns) + 1))
        assert derive(some, memory=memory) == derive(some)


def test_a_memory_is_right_when_prices_change() -> None:
    memory, turns = Memory(), several_sessions()
    for cents in (1, 1, 2):
        made = derive(turns, lambda *_, c=cents: Decimal(c), memory)
        assert made == derive(turns, lambda *_, c=cents: Decimal(c))


def test_one_more_turn_makes_only_its_own_spans_anew() -> None:
    memory, turns = Memory(), conversation()
    before = {id(span): span for span in derive(turns[:2], memory=memory).spans}
    after = derive(turns, memory=memory)
    own = [span for span in after.spans if span.trace_id == after.traces[-1].trace_id]
    assert own
    assert [span for span in after.spans if id(span) not in before] == own


def test_the_reduced_form_that_the_log_keeps_gives_the_same_rows() -> None:
    turns = several_sessions()
    for number, one in enumerate(CASES, 100):
        turns.append(raw_turn(number, one.path, one.request, None, stream=one.stream))
        turns.append(raw_turn(number + 50, one.path, one.request, json.loads(one.oneshot)))
    assert derive([_with_form(raw) for raw in turns]) == derive(turns)


def _with_form(raw: RawTurn) -> RawTurn:
    if raw.exchange is None:
        return raw
    turn = read(raw.exchange)
    assert isinstance(turn, Turn)
    return replace(raw, reduced=json.loads(json.dumps(reduced(turn.answer, turn.api))))


def test_a_row_that_was_delivered_twice_counts_once() -> None:
    once = chat(1, [HI], "hello")
    again = replace(once, id=2, received_at=99)
    assert derive([once, again]) == derive([again, once]) == derive([once])
    nameless = [replace(once, request_id=""), replace(again, request_id="")]
    assert len(derive(nameless).traces) == 2


def test_what_shows_nowhere_is_counted_with_its_reason() -> None:
    counted = raw_turn(1, "/v1/messages/count_tokens", {}, {})
    broken = replace(raw_turn(2, "/v1/messages", {}, {}), exchange=None)
    made = derive([counted, broken])
    assert [(k.raw_turn_id, k.reason) for k in made.skipped] == [
        (1, "non_turn_request"),
        (2, "request_decode"),
    ]
    assert made.sessions == ()


def test_a_session_says_what_its_last_calls_said_of_it() -> None:
    first = chat(1, [HI], "a", name="old", cwd="/x", harness_metadata={"a": 1, "b": 1})
    last = chat(2, [HI], "b", name="new", harness_metadata={"b": 2})
    (session,) = derive([last, first]).sessions
    assert (session.name, session.cwd) == ("new", "/x")
    assert session.harness_metadata == {"a": 1, "b": 2}


def test_a_parent_that_was_not_received_is_a_placeholder_until_it_comes() -> None:
    child = chat(1, [HI], "a", session="c", parent_harness_session_id="p")
    before = derive([child])
    parent_id = parent_session_id_of(child.envelope)
    assert [(s.id, s.placeholder) for s in before.sessions if s.placeholder] == [(parent_id, True)]
    after = derive([child, chat(2, [HI], "b", session="p")])
    assert [s.placeholder for s in after.sessions] == [False, False]
    assert {s.id for s in before.sessions} == {s.id for s in after.sessions}


def test_organisations_stay_apart() -> None:
    one = chat(1, [HI], "a")
    org = "00000000-0000-4000-8000-000000000001"
    other = replace(one, envelope=replace(one.envelope, org_id=org))
    made = derive([one, other])
    assert len({s.org_id for s in made.sessions}) == len({s.id for s in made.sessions}) == 2


# --- what holds for every projection ----------------------------------------------------------


def check(made: Projection) -> None:
    """The invariants of the read model."""
    assert len(made.rows()) == sum(
        len(rows) for rows in (made.sessions, made.traces, made.spans, made.links)
    )
    spans = {(s.trace_id, s.span_id) for s in made.spans}
    for trace in made.traces:
        own = [s for s in made.spans if s.trace_id == trace.trace_id]
        assert [s.seq for s in own] == list(range(len(own)))
        assert own[0].kind is SpanKind.AGENT
        assert own[0].parent_span_id == ""
        assert all((s.trace_id, s.parent_span_id) in spans for s in own[1:])
        assert trace.span_count + trace.missing_count == len(own)
    for link in made.links:
        assert (link.from_trace_id, link.from_span_id) in spans
        assert (link.to_trace_id, link.to_span_id) in spans
    for session in made.sessions:
        its_own = made.of_session(session.id)
        tools = [s.span_id for s in its_own.spans if s.kind is SpanKind.TOOL]
        assert len(tools) == len(set(tools))
        counted = sum(count for _, count in session.kind_counts)
        assert counted == sum(1 for s in its_own.spans if s.call_kind)
        calls = [s for s in its_own.spans if s.kind is SpanKind.LLM]
        assert len(calls) == session.llm_calls


def test_the_invariants_hold_for_sessions_of_all_sorts() -> None:
    check(derive(several_sessions()))


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_the_invariants_hold_for_whatever_part_was_captured(data: st.DataObject) -> None:
    turns = several_sessions()
    kept = data.draw(st.lists(st.sampled_from(turns), unique_by=lambda t: t.id))
    made = derive(kept)
    check(made)
    assert sum(s.llm_calls for s in made.sessions) == sum(t.exchange is not None for t in kept)


# --- the recorded session ---------------------------------------------------------------------

SONNET = Price(
    model="claude-sonnet-4.6",
    input=Decimal(3),
    output=Decimal(15),
    cache_read=Decimal("0.30"),
    cache_write=Decimal("3.75"),
)


@pytest.mark.row("D3")
def test_the_recorded_session_derives_to_the_counted_figures(reference_data: Path) -> None:
    folder = reference_data / "tapes-fixtures/recordings/claude-20260727-019fa57e"
    expected = json.loads((folder / "expected.json").read_text())
    derived = expected["derived"]
    made = derive(recording(folder), Prices([SONNET], table=False))
    check(made)
    (session,), (trace,) = made.sessions, made.traces
    assert made.skipped == ()
    assert (trace.user_prompt, trace.synthetic) == (derived["user_prompt"], "")
    assert count([s.kind.value for s in made.spans]) == derived["span_kinds"]
    assert dict(session.kind_counts) == derived["call_kinds"]
    links = count([k.kind.value for k in made.links])
    assert {kind: links[kind] for kind in derived["links"]} == derived["links"]
    assert session.tool_result_count == derived["tool_results"]
    assert session.tool_error_count == derived["tool_errors"]
    assert session.derived_title == derived["derived_title"]
    assert session.derived_status == derived["derived_status"]
    assert session.has_git_activity is derived["has_git_activity"]
    assert session.derived_model == derived["derived_model"]
    usage = derived["usage"]
    assert session.total_cost_usd == Decimal(str(usage["cost_usd"]))
    assert {
        "input_tokens": trace.total_input_tokens,
        "output_tokens": trace.total_output_tokens,
        "cache_read_tokens": trace.cache_read_tokens,
        "cache_creation_tokens": trace.cache_creation_tokens,
        "cost_usd": float(trace.total_cost_usd or 0),
    } == usage
    assert {
        "input_tokens": trace.main_input_tokens,
        "output_tokens": trace.main_output_tokens,
    } == derived["main_usage"]
    assert [
        {name: getattr(task, name) for name in task.__slots__} for task in session.tasks
    ] == derived["tasks"]
    subagent = next(s for s in made.spans if s.name == "subagent")
    spawn = next(s for s in made.spans if s.span_id == subagent.parent_span_id)
    assert subagent.thread_id == derived["subagent"]["thread_id"]
    assert (spawn.name, subagent.anchor) == (derived["subagent"]["spawning_tool"], "prompt")


def test_every_turn_of_the_recorded_session_is_read_as_counted(reference_data: Path) -> None:
    folder = reference_data / "tapes-fixtures/recordings/claude-20260727-019fa57e"
    expected = json.loads((folder / "expected.json").read_text())
    made = derive(recording(folder))
    calls = {s.raw_turn_id: s for s in made.spans if s.kind is SpanKind.LLM}
    failed = {s.span_id for s in made.spans if s.status is Status.ERROR}
    told: set[str] = set()
    for number, turn in enumerate(expected["turns"], 1):
        span = calls[number]
        assert (span.model, span.stop_reason, span.thread_id) == (
            turn["model"],
            turn["stop_reason"],
            turn["thread_id"],
        )
        assert span.response_id == turn["message_id"]
        assert [block["type"] for block in span.output] == turn["blocks"]
        assert turn["usage"].items() <= (span.usage or {}).items()
        tools = [b for b in span.output if b["type"] == "tool_use"]
        assert [{"id": b["tool_use_id"], "name": b["tool_name"]} for b in tools] == (
            turn["tool_calls"]
        )
        told |= set(turn["failed_tool_results_in_last_message"])
    assert failed == told


def count(words: list[str]) -> dict[str, int]:
    return {word: words.count(word) for word in words}


def test_the_recorded_session_is_the_same_in_any_order_and_as_it_grows(
    reference_data: Path,
) -> None:
    turns = recording(reference_data / "tapes-fixtures/recordings/claude-20260727-019fa57e")
    whole = derive(turns)
    assert derive(turns[::-1]) == whole
    memory = Memory()
    for length in range(2, len(turns) + 1):
        grown = derive(turns[:length], memory=memory)
    assert grown == whole
    assert {key_of_row(row) for row in grown.traces} == {("trace", "trc_request-2")}


def test_a_conversation_with_a_real_model_is_one_session_of_three_traces(
    reference_data: Path,
) -> None:
    turns = [
        RawTurn(
            id=number,
            exchange=exchanged(reference_data / "real-model" / f"chat-turn-{number}.json"),
            received_at=number,
        )
        for number in (1, 2, 3)
    ]
    made = derive(turns)
    check(made)
    (session,) = made.sessions
    assert [trace.user_prompt for trace in made.traces] == [
        "What is a unit test?",
        "Why do tests become flaky?",
        "How can recorded answers help?",
    ]
    assert session.total_output_tokens == 240
    assert session.derived_status == "failed"  # each answer ran into its limit


def test_an_agent_that_calls_itself_nothing_still_has_its_conversations() -> None:
    turns = [replace(raw, envelope=Envelope()) for raw in conversation()]
    (session,) = derive(turns).sessions
    assert (session.harness_id, session.session_by) == ("unknown", "content")
    assert session.turn_count == 2


def test_unknown_replies_of_the_assistant_do_not_open_traces() -> None:
    history = [user("one"), assistant("an answer that nobody captured"), user("two")]
    (trace,) = derive([messages(1, history, assistant("ok"))]).traces
    assert trace.user_prompt == "two"


# --- one call, seen twice ---------------------------------------------------------------------


def seen_by_another_capture(raw: RawTurn, *, later: float = 0.2) -> RawTurn:
    """The same call as a capture without its bytes saw it."""
    assert raw.exchange is not None
    turn = read(raw.exchange)
    assert isinstance(turn, Turn)
    moved = round(later * 1e9)
    return replace(
        raw,
        id=raw.id + 100,
        request_id=f"{raw.request_id} again",
        exchange=replace(raw.exchange, response=None),
        reduced=reduced(turn.answer),
        started_at=(raw.started_at or 0) + moved,
        ended_at=(raw.ended_at or 0) + moved,
    )


@pytest.mark.parametrize("later", [0.2, -0.2])
def test_a_call_that_two_captures_saw_is_one_span_with_its_bytes(later: float) -> None:
    raw = chat(1, [HI], "hello")
    both = derive([seen_by_another_capture(raw, later=later), raw])
    assert replace(both, skipped=()) == derive([raw])
    assert [skip.reason for skip in both.skipped] == ["seen_twice"]


def test_an_answer_whose_id_comes_again_later_is_another_call() -> None:
    raw = chat(1, [HI], "hello")
    twice = derive([raw, seen_by_another_capture(raw, later=5)])
    assert twice.sessions[0].llm_calls == 2


def test_answers_of_a_tape_have_their_id_each_time() -> None:
    raw = replace(chat(1, [HI], "hello"), outcome=Outcome.REPLAYED)
    twice = derive([raw, replace(raw, id=2, request_id="r2")])
    assert twice.sessions[0].replayed_calls == 2
