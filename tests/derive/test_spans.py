"""What the spans of calls, tools and events say."""

from dataclasses import replace

import pytest

from tapes.derive.deriver import derive
from tapes.exchange import State
from tapes.jsontext import Json
from tapes.rows import Fidelity, LinkKind, SpanKind, Status
from tests.cases import case
from tests.derive.talks import (
    ASK,
    CONVERSATION,
    DONE,
    MORE,
    OK,
    conversation,
    kinds,
    span,
)
from tests.turns import (
    SECOND,
    at,
    chat,
    messages,
    raw_turn,
    result,
    said,
    user,
)


@pytest.mark.row("D3")
def test_a_conversation_is_a_trace_for_each_prompt_with_its_calls_and_tools() -> None:
    made = derive(conversation())
    assert [(t.trace_id, t.user_prompt, t.response_preview) for t in made.traces] == [
        ("trc_r1", "list the files", "one file: a.txt"),
        ("trc_r3", "and now?", "nothing"),
    ]
    assert kinds(made) == [
        ("agent", "agent_main_r1"),
        ("llm", "llm_r1"),
        ("tool", "t1"),
        ("llm", "llm_r2"),
        ("agent", "agent_main_r3"),
        ("llm", "llm_r3"),
    ]


def test_a_span_shows_what_its_call_added() -> None:
    made = derive(conversation())
    assert span(made, "llm_r1").input == ({"type": "text", "text": "list the files"},)
    assert span(made, "llm_r2").input == ()
    assert span(made, "llm_r2").output == ({"type": "text", "text": "one file: a.txt"},)
    assert span(made, "llm_r3").input == ({"type": "text", "text": "and now?"},)


def test_a_tool_call_is_one_span_with_its_result() -> None:
    tool = span(derive(conversation()), "t1")
    assert (tool.name, tool.status, tool.parent_span_id) == ("Bash", Status.OK, "agent_main_r1")
    assert tool.input[0]["tool_input"] == {"command": "ls"}
    assert tool.output[0]["tool_output"] == "a.txt"


def test_a_tool_runs_from_the_end_of_its_answer_to_the_request_with_its_result() -> None:
    tool = span(derive(conversation()), "t1")
    assert (tool.started_at, tool.duration_ns) == (at(11), 9 * SECOND)


def test_data_flows_along_links() -> None:
    made = derive(conversation())
    assert [(k.kind, k.from_span_id, k.from_io, k.to_span_id, k.to_io) for k in made.links] == [
        (LinkKind.EMITS, "llm_r1", "output", "t1", "input"),
        (LinkKind.FEEDS, "t1", "output", "llm_r2", "input"),
    ]


def test_an_agent_over_chat_completions_is_seen_like_any_other() -> None:
    ask = said("user", "which file?")
    calls = {"tool_calls": [{"id": "c1", "function": {"name": "ls", "arguments": "{}"}}]}
    asks = said("assistant", None, **calls)
    back = said("tool", "a.txt", tool_call_id="c1")
    made = derive([chat(1, [ask], asks), chat(2, [ask, asks, back], "a.txt it is")])
    assert kinds(made) == [
        ("agent", "agent_main_r1"),
        ("llm", "llm_r1"),
        ("tool", "c1"),
        ("llm", "llm_r2"),
    ]
    assert span(made, "c1").status is Status.OK


def test_calls_without_ids_are_tool_spans_with_results_too() -> None:
    history: list[Json] = [{"role": "user", "content": "what time is it?"}]
    calls = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "now"}}]}
    end = {"model": "m", "done": True, "done_reason": "stop"}
    first = raw_turn(1, "/api/chat", {"messages": history}, end | {"message": calls})
    back = {"role": "tool", "tool_name": "now", "content": "noon"}
    answer = {"message": {"role": "assistant", "content": "noon"}}
    second = raw_turn(2, "/api/chat", {"messages": [*history, calls, back]}, end | answer)
    made = derive([first, second])
    (tool,) = [s for s in made.spans if s.kind is SpanKind.TOOL]
    assert (tool.name, tool.status, tool.output[0]["tool_output"]) == ("now", Status.OK, "noon")


def test_a_tool_call_without_a_result_is_running_and_its_length_unknown() -> None:
    running = span(derive(conversation()[:1]), "t1")
    assert (running.status, running.duration_ns, running.output) == (Status.RUNNING, None, ())
    done = span(derive(conversation()), "t1")
    assert (done.trace_id, done.span_id) == (running.trace_id, running.span_id)


def test_the_first_result_counts() -> None:
    later = user(result("t1", "something else"))
    made = derive([*conversation(), messages(4, [*CONVERSATION, OK, later], OK)])
    assert span(made, "t1").output[0]["tool_output"] == "a.txt"


def test_a_tool_that_the_provider_ran_is_done_in_its_own_call() -> None:
    searched = case("anthropic/server-tool")
    made = derive([raw_turn(1, searched.path, searched.request, None, stream=searched.stream)])
    tool = span(made, "srvtoolu_one")
    assert (tool.name, tool.status) == ("web_search", Status.OK)
    assert tool.output[0]["content"][0]["title"] == "Depths"
    assert [k.kind for k in made.links] == [LinkKind.EMITS]


# --- what fails -------------------------------------------------------------------------------


def test_a_call_that_failed_is_a_span_that_says_how_and_its_retry_is_no_new_trace() -> None:
    asked = {"model": "gpt-test", "messages": [said("user", "hi")]}
    error = {"error": {"type": "rate_limit", "message": "slow down"}}
    failed = raw_turn(1, "/v1/chat/completions", asked, error, status=429)
    made = derive([failed, chat(2, [said("user", "hi")], "hello")])
    assert [t.trace_id for t in made.traces] == ["trc_r1"]
    assert span(made, "llm_r1").status is Status.ERROR
    assert span(made, "llm_r1").error_type == "rate_limit"
    assert made.traces[0].status is Status.OK
    assert derive([failed]).traces[0].status is Status.ERROR


CUT = b"".join(
    b'data: {"choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":null}]}\n\n' % piece
    for piece in (b"Hel", b"lo")
)


@pytest.mark.parametrize(
    ("state", "status", "error_type"),
    [
        (State.ABORTED_BY_CLIENT, Status.ABORTED, "aborted_by_client"),
        (State.UPSTREAM_ERROR, Status.ERROR, "upstream_error"),
        (State.COMPLETE, Status.ERROR, "truncated"),
    ],
)
def test_a_stream_that_was_cut_shows_its_text_and_who_cut_it(
    state: State, status: Status, error_type: str
) -> None:
    asked = {"messages": [said("user", "hi")], "stream": True}
    made = derive([raw_turn(1, "/v1/chat/completions", asked, None, stream=CUT, state=state)])
    cut = span(made, "llm_r1")
    assert (cut.status, cut.error_type, cut.stop_reason) == (status, error_type, "")
    assert cut.output == ({"type": "text", "text": "Hello"},)
    assert cut.usage == {"total_duration_ns": SECOND}


def test_a_tool_call_that_was_cut_in_its_arguments_was_not_run() -> None:
    stream = case("anthropic/tools-and-thinking").stream
    half = stream[: stream.index(b"gen, Norway")]
    asked = {"messages": [ASK], "stream": True, "tools": [{}]}
    made = derive([raw_turn(1, "/v1/messages", asked, None, stream=half)])
    assert [s for s in made.spans if s.kind is SpanKind.TOOL] == []


# --- events ----------------------------------------------------------------------------------


def test_injected_context_is_an_event_once() -> None:
    banner = user("## Plan Mode\nis on")
    insert: Json = {"role": "system", "content": "hurry"}
    turns = [
        messages(1, [banner, ASK], DONE),
        messages(2, [banner, ASK, DONE, insert, MORE], OK),
    ]
    made = derive(turns)
    events = [s for s in made.spans if s.kind is SpanKind.EVENT]
    assert [(s.name, s.call_kind) for s in events] == [
        ("injected:mode-banner", "injected:mode-banner"),
        ("injected:system-insert", "injected:system-insert"),
    ]
    assert events[0].span_id == f"evt_{events[0].node_hash[:16]}"
    assert events[0].input == ({"type": "text", "text": "## Plan Mode\nis on"},)


def test_a_retry_inserts_nothing_again() -> None:
    history: list[Json] = [said("user", "hi"), said("system", "hurry"), said("user", "go on")]
    failed = raw_turn(1, "/v1/chat/completions", {"messages": history}, {}, status=503)
    made = derive([failed, chat(2, history, "yes")])
    assert [s.name for s in made.spans if s.kind is SpanKind.EVENT] == ["injected:system-insert"]


def test_a_system_prompt_is_no_event() -> None:
    made = derive([chat(1, [said("system", "be kind"), said("user", "hi")], "hello")])
    assert [s for s in made.spans if s.kind is SpanKind.EVENT] == []


# --- what is kept -----------------------------------------------------------------------------


def test_a_span_says_what_is_kept_of_its_bytes() -> None:
    whole = messages(1, [ASK], DONE)
    assert whole.exchange is not None
    reduced_only = replace(
        whole,
        exchange=replace(whole.exchange, response=None),
        reduced={"message": {"role": "assistant", "content": []}, "done": True},
    )
    for raw, fidelity in (
        (whole, Fidelity.RAW),
        (reduced_only, Fidelity.REDUCED),
        (replace(reduced_only, dropped=True), Fidelity.DEGRADED),
    ):
        made = derive([raw])
        assert span(made, "llm_r1").fidelity is fidelity
        assert made.traces[0].fidelity is made.sessions[0].fidelity is fidelity
        assert made.spans[0].fidelity is Fidelity.NONE


def test_every_choice_of_an_answer_is_shown_and_the_first_goes_on() -> None:
    said_by = [("A", "stop"), ("B", "length")]
    choices: list[Json] = [
        {"index": n, "message": said("assistant", text), "finish_reason": reason}
        for n, (text, reason) in enumerate(said_by)
    ]
    asked: Json = {"model": "m", "n": 2, "messages": [said("user", "hi")]}
    made = derive([raw_turn(1, "/v1/chat/completions", asked, {"id": "c", "choices": choices})])
    llm = span(made, "llm_r1")
    assert llm.output == (
        {"type": "text", "text": "A"},
        {"type": "text", "text": "B", "choice": 1, "stop_reason": "length"},
    )
    assert (llm.stop_reason, made.traces[0].response_preview) == ("stop", "A")
