"""Which tool call spawned which thread, and which verdict judges which action."""

import json

import pytest

from tapes.derive.anchors import action_of
from tapes.derive.deriver import derive
from tapes.jsontext import Json
from tapes.rows import Projection, RawTurn, Span, Status
from tests.derive.test_calls import calls
from tests.turns import Message, assistant, call, messages, result, transcript, user

ASK = user("look into it")
TASK = "Search all files for the word widget."


def spawn(*tools: Message) -> RawTurn:
    return messages(1, [ASK], assistant(*tools))


def thread(number: int, name: str, *words: str, **how: Json) -> RawTurn:
    return messages(number, [user(*words)], assistant("found"), thread=name, **how)


def lane(projection: Projection, name: str) -> Span:
    return next(s for s in projection.spans if s.span_id == f"agent_{name}")


def agent(tool_id: str, prompt: str = TASK, **more: Json) -> Message:
    return call(tool_id, "Agent", prompt=prompt, **more)


def test_words_that_are_handed_on_word_for_word_anchor_a_thread() -> None:
    told = f"<system-reminder>context</system-reminder>{TASK}"
    for words in ((TASK,), ("<system-reminder>x</system-reminder>", f" {TASK}\n"), (told,)):
        made = derive([spawn(agent("t1", subagent_type="Explore")), thread(2, "a", *words)])
        found = lane(made, "a")
        assert (found.parent_span_id, found.anchor, found.agent) == ("t1", "prompt", "Explore")


def test_a_tool_call_spawns_one_thread_and_equal_words_are_taken_in_order() -> None:
    made = derive([spawn(agent("t1"), agent("t2")), thread(2, "a", TASK), thread(3, "b", TASK)])
    assert [lane(made, name).parent_span_id for name in "ab"] == ["t1", "t2"]


def test_nearness_in_time_is_no_evidence() -> None:
    made = derive([spawn(agent("t1")), thread(2, "a", "something else")])
    found = lane(made, "a")
    assert (found.anchor, found.parent_span_id) == ("unanchored", "agent_main_r1")


def test_a_call_that_was_made_later_spawned_nothing_before() -> None:
    made = derive([thread(0, "a", TASK), spawn(agent("t1"))])
    assert lane(made, "a").anchor == "unanchored"


def test_the_harnesss_own_log_is_the_strongest_evidence() -> None:
    told = transcript(9, agent_id="a", tool_use_id="t2", agent_type="Plan", description="d")
    made = derive([spawn(agent("t1"), agent("t2", "other")), thread(2, "a", TASK), told])
    found = lane(made, "a")
    assert (found.parent_span_id, found.anchor, found.agent) == ("t2", "transcript", "Plan")


def test_the_newest_log_counts_and_a_visit_says_nothing() -> None:
    old = transcript(8, agent_id="a", tool_use_id="t1")
    new = transcript(9, agent_id="a", tool_use_id="t2")
    visit = transcript(7, agent_id="a", tool_use_id="t1", kind="interacted")
    made = derive([spawn(agent("t1"), agent("t2")), thread(2, "a", "x"), new, old, visit])
    assert lane(made, "a").parent_span_id == "t2"


def test_a_log_without_the_threads_name_is_found_by_the_words_that_it_shares() -> None:
    records: list[Json] = [{"message": {"role": "user", "content": "alpha"}}]
    records += [{"message": {"content": [{"type": "text", "text": "beta"}]}}]
    right = transcript(8, agent_id="x", tool_use_id="t2", records=records)
    wrong = transcript(9, agent_id="y", tool_use_id="t1", records=records[:1])
    made = derive([spawn(agent("t1"), agent("t2")), thread(2, "a", "alpha", "beta"), right, wrong])
    assert lane(made, "a").parent_span_id == "t2"


def codex(path: str, nickname: str) -> Json:
    place = {"agent_path": path, "agent_nickname": nickname}
    return {"source": {"subagent": {"thread_spawn": place}}}


def test_a_task_name_in_a_result_anchors_the_thread_of_that_path() -> None:
    tools = (call("t1", "spawn_agent", message="m"), call("t2", "spawn_agent", message="m"))
    back = user(
        result("t1", json.dumps({"task_name": "/root/one"})),
        result("t2", json.dumps({"task_name": "/root/two"})),
    )
    turns = [
        spawn(*tools),
        messages(2, [ASK, assistant(*tools), back], assistant("waiting")),
        thread(3, "a", "hello", harness_metadata=codex("/root/two", "Curie")),
    ]
    made = derive(turns)
    found = lane(made, "a")
    assert (found.parent_span_id, found.anchor, found.agent) == ("t2", "task_name", "Curie")
    tool = next(s for s in made.spans if s.span_id == "t2")
    assert tool.input[0]["tool_input"] == {
        "message": "m",
        "subagent_type": "Curie",
        "description": "/root/two",
    }


def test_a_result_that_names_the_thread_anchors_it() -> None:
    tools = (call("t1", "delegate", task="m"), call("t2", "delegate", task="m"))
    back = user(result("t1", '{"agent_id":"b"}'), result("t2", '{"agent_id":"a"}'))
    turns = [
        spawn(*tools),
        messages(2, [ASK, assistant(*tools), back], assistant("waiting")),
        thread(3, "a", "hello"),
    ]
    assert lane(derive(turns), "a").parent_span_id == "t2"


# --- verdicts ---------------------------------------------------------------------------------

JUDGE = "You are a security monitor for an agent."


def check(number: int, action: str, answer: str, *, stage: int = 2, **how: Json) -> RawTurn:
    asked = user("<transcript>\n", "Read: a.txt\n", f"{action}\n", "</transcript>\nShould it run?")
    limit = 64 if stage == 1 else 1000
    return messages(
        number, [asked], assistant(answer), tools=False, system=JUDGE, max_tokens=limit, **how
    )


PUSH = call("t1", "Bash", command='git push "origin" main --force-with-lease')


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("<block>no", {"disposition": "ALLOW", "stage": 2, "reasoned": False}),
        (
            "<thinking>hm</thinking><block>yes</block>",
            {"disposition": "BLOCK", "stage": 2, "reasoned": True},
        ),
    ],
)
def test_a_verdict_hangs_under_the_action_that_it_judges(answer: str, verdict: Json) -> None:
    made = derive([spawn(PUSH), check(2, "Bash: git push origin main", answer)])
    judging = next(s for s in made.spans if s.call_kind.startswith("offshoot:permission"))
    tool = next(s for s in made.spans if s.span_id == "t1")
    assert judging.parent_span_id == "t1"
    assert judging.verdict == tool.verdict == verdict
    links = [(k.from_span_id, k.to_span_id, k.to_io) for k in made.links if k.kind == "verdict"]
    assert links == [(judging.span_id, "t1", "verdict")]


def test_a_check_that_decides_nothing_is_no_verdict() -> None:
    made = derive([spawn(PUSH), check(2, "Bash: git push origin main", "I cannot tell.")])
    assert next(s for s in made.spans if s.span_id == "llm_r2").parent_span_id == "t1"
    assert [k for k in made.links if k.kind == "verdict"] == []


def test_both_stages_judge_one_action_and_each_action_is_judged_once() -> None:
    twice = (PUSH, call("t2", "Bash", command="git push origin main"))
    made = derive(
        [
            spawn(*twice),
            check(2, "Bash: git push origin main", "<block>yes", stage=1),
            check(3, "Bash: git push origin main", "<block>no"),
            check(4, "Bash: git push origin main", "<block>no", stage=1),
        ]
    )
    parents = {s.span_id: s.parent_span_id for s in made.spans}
    assert parents["llm_r2"] == parents["llm_r3"]
    assert {parents["llm_r2"], parents["llm_r4"]} == {"t1", "t2"}


def test_a_check_that_judges_nothing_known_hangs_under_the_root() -> None:
    made = derive([spawn(PUSH), check(2, "Write: b.txt", "<block>no")])
    assert next(s for s in made.spans if s.span_id == "llm_r2").parent_span_id == "agent_main_r1"
    assert next(s for s in made.spans if s.span_id == "t1").status is Status.RUNNING


def test_the_action_is_the_last_one_of_the_transcript() -> None:
    whole = user("<transcript>\nRead: a\nBash: rm -rf /tmp/x\n\n</transcript> decide")
    (one,) = calls([messages(1, [whole], assistant("<block>yes"), tools=False, system=JUDGE)])
    assert action_of(one) == "bash rm -rf /tmp/x"
    (split,) = calls([check(1, "Bash: ls", "x")])
    assert action_of(split) == "bash ls"


def test_a_tool_that_was_judged_may_be_summed_up_too() -> None:
    fetch = call("t1", "WebFetch", url="https://x.test/a/page")
    summary = messages(3, [user("Web page content:\nx")], assistant("a page"), tools=False)
    made = derive([spawn(fetch), check(2, "WebFetch: https://x.test/a/page", "<block>no"), summary])
    parents = {s.span_id: s.parent_span_id for s in made.spans}
    assert (parents["llm_r2"], parents["llm_r3"]) == ("t1", "t1")


def test_a_check_of_a_thread_that_judges_nothing_known_stays_in_its_lane() -> None:
    lost = check(3, "Write: b.txt", "<block>no", thread="a")
    made = derive([spawn(agent("t1")), thread(2, "a", TASK), lost])
    assert next(s for s in made.spans if s.span_id == "llm_r3").parent_span_id == "agent_a"
    assert len({s.span_id for s in made.spans}) == len(made.spans)


def test_summaries_and_plan_names_hang_under_the_tool_that_they_serve() -> None:
    tools = (call("t1", "WebFetch", url="https://x.test"), call("t2", "ExitPlanMode", plan="p"))
    summary = messages(2, [user("Web page content:\nx")], assistant("a page"), tools=False)
    named = messages(3, [user("<conversation>x</conversation>")], assistant("n"), tools=False)
    made = derive([spawn(*tools), summary, named])
    parents = {s.span_id: s.parent_span_id for s in made.spans}
    assert (parents["llm_r2"], parents["llm_r3"]) == ("t1", "t2")
