"""Where calls hang: traces, lanes, seams and side calls."""

from dataclasses import replace
from functools import partial

import pytest

from tapes.derive.deriver import derive
from tapes.rows import LinkKind, RawTurn, SpanKind, Status
from tests.derive.talks import (
    ASK,
    BACK,
    DO,
    DONE,
    MORE,
    OK,
    SPAWN,
    SUB_DO,
    TASK,
    conversation,
    kinds,
    span,
    with_thread,
)
from tests.steps import steps_of
from tests.turns import (
    SECOND,
    assistant,
    at,
    call,
    chat,
    messages,
    result,
    said,
    transcript,
    user,
)


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


def test_a_thread_that_is_compacted_goes_on_in_its_lane() -> None:
    compacts = user("Write a summary of the conversation so far.")
    made = derive(
        [
            *with_thread(),
            messages(5, [user(TASK), SUB_DO, compacts], assistant("so far"), thread="a", begins=16),
        ]
    )
    assert span(made, "llm_r5").parent_span_id == "agent_a"
    assert len({s.span_id for s in made.spans}) == len(made.spans)
    assert [t.synthetic for t in made.traces] == [""]


def test_a_trace_that_a_thread_had_to_open_after_a_compaction_says_so() -> None:
    compacts = user("Write a summary of the conversation so far.")
    made = derive(
        [
            messages(1, [compacts], assistant("so far")),
            messages(2, [user(TASK)], OK, thread="a"),
        ]
    )
    assert [t.synthetic for t in made.traces] == ["shadow-opener"]


def test_a_side_call_hangs_under_the_trace_that_was_open() -> None:
    title = messages(
        9, [user("x")], assistant('{"title":"Files"}'), tools=False, begins=35, system='{"title"'
    )
    early = replace(title, id=10, request_id="r10", started_at=at(1), ended_at=at(2))
    made = derive([*conversation(), title, early])
    assert span(made, "llm_r9").trace_id == "trc_r3"
    assert span(made, "llm_r10").trace_id == "trc_r1"
    assert made.traces[0].started_at == at(10)


def test_a_side_call_of_the_moment_in_which_a_trace_begins_is_in_it() -> None:
    title = messages(9, [user("x")], assistant("{}"), tools=False, begins=30, system='{"title"')
    assert span(derive([*conversation(), title]), "llm_r9").trace_id == "trc_r3"


def test_what_a_harness_injects_is_no_prompt() -> None:
    banner = user("Plan mode is active. Edit nothing.")
    alone = derive([messages(1, [ASK], DONE), messages(2, [ASK, DONE, banner], OK)])
    assert [t.user_prompt for t in alone.traces] == ["list the files"]
    behind = derive([messages(1, [ASK], DONE), messages(2, [ASK, DONE, MORE, banner], OK)])
    assert [t.user_prompt for t in behind.traces] == ["list the files", "and now?"]


def test_a_session_of_side_calls_alone_has_a_trace_all_the_same() -> None:
    made = derive([messages(1, [user("x")], assistant("y"), tools=False, max_tokens=1)])
    assert [(t.synthetic, t.user_prompt) for t in made.traces] == [("shadow-opener", "")]


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


def agents(number: int, evidence: str) -> list[RawTurn]:
    """So many sub-agents, asked for by one answer, and what tells where they hang."""
    same = evidence == "the same words"
    asked = [call(f"t{n}", "Agent", prompt="do" if same else f"do {n}") for n in range(number)]
    words = "something else {}" if evidence in ("nothing", "other files") else "do {}"
    turns = [messages(1, [ASK], assistant(*asked))] + [
        messages(
            n + 2,
            [user("do" if same else words.format(n))],
            assistant("done"),
            thread=f"a{n}",
            begins=20 + n,
        )
        for n in range(number)
    ]
    if evidence in ("files", "other files", "files of unknown calls"):
        turns += [
            transcript(
                n + 9000,
                agent_id=f"a{n}" if evidence != "other files" else f"z{n}",
                tool_use_id=f"t{n}" if evidence != "files of unknown calls" else f"u{n}",
                records=[{"message": {"role": "user", "content": words.format(n)}}],
            )
            for n in range(number)
        ]
    return turns


@pytest.mark.parametrize(
    "evidence",
    ["words", "the same words", "files", "other files", "files of unknown calls", "nothing"],
)
def test_to_place_agents_takes_as_long_as_there_are_many(evidence: str) -> None:
    few, many = (partial(derive, agents(number, evidence)) for number in (10, 60))
    assert steps_of(many) < 6 * steps_of(few) * 1.2


BROKE_IN = "[Request interrupted by user for tool use]"


def test_words_of_a_user_who_broke_in_begin_a_trace_though_they_come_with_a_result() -> None:
    back = user(result("t1", "not run", failed=True), BROKE_IN, "only list them")
    made = derive([messages(1, [ASK], DO), messages(2, [ASK, DO, back], DONE)])
    assert [trace.user_prompt for trace in made.traces] == ["list the files", "only list them"]
    (tool,) = (span for span in made.spans if span.kind is SpanKind.TOOL)
    assert (tool.trace_id, tool.status) == ("trc_r1", Status.ERROR)


def test_the_mark_that_a_user_broke_in_is_no_word_of_his() -> None:
    said_before = user("list", "[Request interrupted by user]", "only count")
    (trace,) = derive([messages(1, [said_before], DONE)]).traces
    assert trace.user_prompt == "only count"
    back = user(result("t1", "not run", failed=True), BROKE_IN)
    made = derive([messages(1, [ASK], DO), messages(2, [ASK, DO, back], DONE)])
    assert len(made.traces) == 1


def test_words_beside_a_result_where_nobody_broke_in_are_no_prompt() -> None:
    back = user(result("t1", "a.txt"), "Remember to answer in JSON.")
    made = derive([messages(1, [ASK], DO), messages(2, [ASK, DO, back], DONE)])
    assert len(made.traces) == 1
