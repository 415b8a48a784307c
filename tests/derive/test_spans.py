"""Where calls hang, and what their spans say."""

from dataclasses import replace

import pytest

from tapes.derive.deriver import derive
from tapes.derive.spans import in_place
from tapes.exchange import State
from tapes.jsontext import Json
from tapes.rows import Fidelity, LinkKind, Projection, RawTurn, Span, SpanKind, Status
from tests.cases import case
from tests.turns import (
    SECOND,
    assistant,
    at,
    call,
    chat,
    messages,
    raw_turn,
    result,
    said,
    transcript,
    user,
)

ASK, DO = user("list the files"), assistant("I look.", call("t1", "Bash", command="ls"))
BACK, DONE = user(result("t1", "a.txt")), assistant("one file: a.txt")
MORE, OK = user("and now?"), assistant("nothing")
CONVERSATION = [ASK, DO, BACK, DONE, MORE]


def conversation() -> list[RawTurn]:
    return [
        messages(1, [ASK], DO),
        messages(2, [ASK, DO, BACK], DONE),
        messages(3, CONVERSATION, OK),
    ]


def span(made: Projection, span_id: str) -> Span:
    return next(s for s in made.spans if s.span_id == span_id)


def kinds(made: Projection) -> list[tuple[str, str]]:
    return [(s.kind.value, s.span_id) for s in made.spans]


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


def test_shells_of_other_harnesses_are_shown_as_what_people_know_and_fail_as_they_say() -> None:
    tools = [
        {"id": "c1", "function": {"name": "shell", "arguments": '{"command":["ls","x"]}'}},
        {"id": "c2", "function": {"name": "exec_command", "arguments": '{"cmd":"ls"}'}},
        {"id": "c3", "function": {"name": "shell", "arguments": "{}"}},
    ]
    ask, asks = said("user", "go"), said("assistant", None, tool_calls=tools)
    outputs = ['{"output":"x","metadata":{"exit_code":2}}', "Process exited with code 0\nok", "1"]
    back = [said("tool", out, tool_call_id=f"c{n}") for n, out in enumerate(outputs, 1)]
    made = derive([chat(1, [ask], asks), chat(2, [ask, asks, *back], "done")])
    shown = [(span(made, f"c{n}").name, span(made, f"c{n}").status) for n in (1, 2, 3)]
    assert shown == [("Bash", Status.ERROR), ("Bash", Status.OK), ("shell", Status.OK)]


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


# --- threads, compactions, side calls ---------------------------------------------------------

TASK = "find the widget"
SPAWN = assistant(call("t9", "Agent", prompt=TASK))
SUB_DO = assistant(call("t10", "Bash", command="grep widget"))
SUB_BACK = user(result("t10", "alpha.md"))


def with_thread() -> list[RawTurn]:
    return [
        messages(1, [ASK], SPAWN),
        messages(2, [user(TASK)], SUB_DO, thread="a", begins=12),
        messages(3, [user(TASK), SUB_DO, SUB_BACK], assistant("alpha"), thread="a", begins=14),
        messages(4, [ASK, SPAWN, user(result("t9", "alpha"))], DONE, begins=20),
    ]


def test_a_sub_agent_is_a_lane_under_the_call_that_spawned_it() -> None:
    made = derive(with_thread())
    parents = [(s.span_id, s.parent_span_id) for s in made.spans]
    assert parents == [
        ("agent_main_r1", ""),
        ("llm_r1", "agent_main_r1"),
        ("t9", "agent_main_r1"),
        ("agent_a", "t9"),
        ("llm_r2", "agent_a"),
        ("t10", "agent_a"),
        ("llm_r3", "agent_a"),
        ("llm_r4", "agent_main_r1"),
    ]
    assert len(made.traces) == 1
    rejoin = [k for k in made.links if k.kind is LinkKind.REJOIN]
    assert [(k.from_span_id, k.to_span_id) for k in rejoin] == [("agent_a", "t9")]


def test_a_lane_lasts_until_the_end_of_its_last_call() -> None:
    agent = span(derive(with_thread()), "agent_a")
    assert (agent.started_at, agent.duration_ns) == (at(12), 3 * SECOND)


def test_an_agent_that_sets_to_work_before_the_answer_is_all_in_begins_within_its_call() -> None:
    spawning, first, *rest = with_thread()
    early = replace(first, started_at=at(10.5), ended_at=at(13))
    tool = span(derive([spawning, early, *rest]), "t9")
    assert (tool.started_at, tool.duration_ns) == (at(10.5), round(9.5 * SECOND))


def test_a_thread_waits_for_the_thread_whose_call_its_log_names() -> None:
    told = transcript(9, agent_id="b", tool_use_id="t10")
    inner = messages(5, [user("deeper")], assistant("deep"), thread="b", begins=11.5)
    prompt = messages(6, [ASK, SPAWN, MORE], OK, begins=11.2)
    made = derive([*with_thread(), inner, prompt, told])
    assert span(made, "agent_b").parent_span_id == "t10"
    assert span(made, "agent_b").trace_id == span(made, "t10").trace_id == "trc_r1"


def test_a_thread_in_a_thread_finds_its_place() -> None:
    inner = assistant(call("t20", "Agent", prompt="deeper"))
    turns = [
        messages(1, [user("deeper")], assistant("deep"), thread="b", begins=40),
        messages(2, [ASK], SPAWN),
        messages(3, [user(TASK)], inner, thread="a"),
    ]
    made = derive(turns)
    assert span(made, "agent_b").parent_span_id == "t20"
    assert span(made, "t20").parent_span_id == "agent_a"


def test_a_thread_whose_place_is_not_known_is_a_lane_of_its_own() -> None:
    lost = messages(5, [user("who am I?")], assistant("?"), thread="x", begins=22)
    made = derive([*with_thread(), lost])
    agent = span(made, "agent_x")
    assert (agent.anchor, agent.parent_span_id) == ("unanchored", "agent_main_r1")
    assert span(made, "llm_r5").parent_span_id == "agent_x"
    assert agent.trace_id == "trc_r1"


def test_threads_of_one_name_in_two_sessions_stay_apart() -> None:
    made = derive(
        [
            messages(1, [ASK], DONE, session="one"),
            messages(2, [user("x")], DONE, session="one", thread="a"),
            messages(3, [ASK], DONE, session="two"),
            messages(4, [user("y")], DONE, session="two", thread="a"),
        ]
    )
    agents = [s for s in made.spans if s.span_id == "agent_a"]
    assert len({s.trace_id for s in agents}) == len({s.session_id for s in agents}) == 2


def test_a_session_of_a_thread_alone_has_a_trace_all_the_same() -> None:
    made = derive([messages(1, [user("x")], DONE, thread="a")])
    assert [(t.trace_id, t.synthetic) for t in made.traces] == [("trc_r1", "shadow-opener")]
    assert kinds(made) == [("agent", "agent_main_r1"), ("agent", "agent_a"), ("llm", "llm_r1")]


def test_a_compaction_is_a_seam_to_the_next_trace() -> None:
    compacts = user("Write a summary of the conversation so far.")
    on = user("This session goes on from: files were listed.")
    turns = [
        *conversation()[:2],
        messages(3, [ASK, DO, BACK, DONE, compacts], assistant("files were listed")),
        messages(4, [on], OK),
    ]
    made = derive(turns)
    assert [t.synthetic for t in made.traces] == ["", "post-compaction"]
    assert span(made, "llm_r3").trace_id == "trc_r1"
    seam = next(k for k in made.links if k.kind is LinkKind.COMPACTION_SEAM)
    assert (seam.from_span_id, seam.to_span_id) == ("llm_r3", "llm_r4")


def test_a_side_call_hangs_under_the_trace_that_was_open() -> None:
    title = messages(
        9, [user("x")], assistant('{"title":"Files"}'), tools=False, begins=35, system='{"title"'
    )
    early = replace(title, id=10, request_id="r10", started_at=at(1), ended_at=at(2))
    made = derive([*conversation(), title, early])
    assert span(made, "llm_r9").trace_id == "trc_r3"
    assert span(made, "llm_r10").trace_id == "trc_r1"
    assert made.traces[0].started_at == at(10)


def test_a_session_of_side_calls_alone_has_a_trace_all_the_same() -> None:
    made = derive([messages(1, [user("x")], assistant("y"), tools=False, max_tokens=1)])
    assert [(t.synthetic, t.user_prompt) for t in made.traces] == [("shadow-opener", "")]


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


# --- plain chats ------------------------------------------------------------------------------


def test_plain_chats_are_traces_like_any_other() -> None:
    hi, hello, more = said("user", "hi"), said("assistant", "hello"), said("user", "more")
    made = derive([chat(1, [hi], "hello"), chat(2, [hi, hello, more], "so be it")])
    assert [(t.user_prompt, t.synthetic) for t in made.traces] == [("hi", ""), ("more", "")]
    assert {s.call_kind for s in made.spans if s.kind is SpanKind.LLM} == {"main"}


def test_the_same_question_asked_again_is_a_trace_of_its_own() -> None:
    made = derive([chat(1, [said("user", "hi")], "hello"), chat(2, [said("user", "hi")], "hello")])
    assert [t.user_prompt for t in made.traces] == ["hi", "hi"]
    assert span(made, "llm_r2").input == ({"type": "text", "text": "hi"},)


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


# --- placeholders -----------------------------------------------------------------------------

A = Span(trace_id="t", span_id="a", started_at=1)
B = Span(trace_id="t", span_id="b", parent_span_id="b9", started_at=3)
C = Span(trace_id="t", span_id="c", parent_span_id="b", started_at=2)
B9 = Span(trace_id="t", span_id="b9", parent_span_id="a", started_at=2, name="step")


def test_a_missing_parent_is_a_placeholder_whose_place_it_takes_when_it_comes() -> None:
    placed = in_place([C, B, A])
    assert [(s.span_id, s.parent_span_id) for s in placed] == [
        ("a", ""),
        ("b9", "a"),
        ("b", "b9"),
        ("c", "b"),
    ]
    assert placed[1].name == "b9 (not received)"
    statuses = [s.status for s in placed]
    assert statuses.count(Status.MISSING) == 1
    assert len(statuses) - 1 == 3
    arrived = in_place([C, B, A, B9])
    assert [(s.span_id, s.parent_span_id, s.seq) for s in arrived] == [
        (s.span_id, s.parent_span_id, s.seq) for s in placed
    ]
    assert arrived[1].name == "step"


def test_children_before_or_after_their_parents_stay_where_they_are() -> None:
    early = Span(trace_id="t", span_id="e", parent_span_id="a", started_at=0, duration_ns=99)
    assert in_place([A, early])[1].started_at == 0


def test_spans_that_name_each_other_as_parents_are_shown_all_the_same() -> None:
    one = Span(trace_id="t", span_id="x", parent_span_id="y", started_at=1)
    two = Span(trace_id="t", span_id="y", parent_span_id="x", started_at=2)
    assert [s.span_id for s in in_place([two, one, A])] == ["a", "x", "y"]


def test_a_spawning_call_that_was_not_received_is_a_placeholder_until_it_comes() -> None:
    told = transcript(9, agent_id="a", tool_use_id="t9")
    late = with_thread()[0]
    rest = [messages(0, [user("begin")], DONE, begins=1), *with_thread()[1:3], told]
    before = derive(rest)
    placeholder = span(before, "t9")
    assert (placeholder.status, placeholder.name) == (Status.MISSING, "t9 (not received)")
    assert (before.traces[0].missing_count, before.traces[0].span_count) == (1, 6)
    after = derive([*rest, late])
    assert span(after, "t9").name == "Agent"
    assert span(after, "agent_a").parent_span_id == span(before, "agent_a").parent_span_id == "t9"
    assert after.traces[-1].missing_count == 0
