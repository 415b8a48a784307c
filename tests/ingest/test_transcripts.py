"""Files of Claude Code and Codex: what they tell, where their sub-agents hang, what is refused."""

import json
import os
from pathlib import Path

import pytest

from tapes.errors import ForeignFile
from tapes.ingest.app import ingest_app
from tapes.ingest.posting import Sender, Sent, found_in, read
from tapes.ingest.transcripts import LogFile, origin_of, payloads_of, roots_of
from tapes.jsontext import Json
from tapes.rows import Projection, Session, Span, SpanKind, Status
from tapes.store.sql import SqlStore
from tests.doors import derived, door, serving
from tests.ingest.payloads import raw_payload

DATA = Path(__file__).parent.parent / "data" / "transcripts"
CLAUDE = "11111111-2222-4333-8444-555555555555"
CODEX = "019f0000-0000-7000-8000-000000000001"
READER = "019f0000-0000-7000-8000-000000000002"


def shown(store: SqlStore, *places: Path) -> Projection:
    """The one session that these files make."""
    with serving(ingest_app(store)) as url:
        told = list(Sender(url, None).send(found_in(map(str, places))))
    assert [type(each) for each in told] == [Sent] * len(told)
    return projection(store)


def projection(store: SqlStore) -> Projection:
    derived(store)
    (listed,) = store.project().sessions().items
    return store.project().rows_of_session(listed.session.id)


def told_of(*files: LogFile) -> list[dict[str, Json]]:
    """What is posted for files that belong together."""
    lines = [file.text.encode().splitlines() for file in files]
    roots = roots_of(filter(None, map(origin_of, lines)))
    return [payload for file in files for payload in payloads_of(file, roots)]


def by_id(rows: Projection) -> dict[str, Span]:
    return {span.span_id: span for span in rows.spans}


def llm(rows: Projection) -> list[Span]:
    return [span for span in rows.spans if span.kind is SpanKind.LLM]


# --- what they tell ---------------------------------------------------------------------------


def test_a_session_of_claude_code_is_told_by_its_transcript_alone(store: SqlStore) -> None:
    rows = shown(store, DATA / "claude" / f"{CLAUDE}.jsonl")
    session: Session = rows.sessions[0]
    assert (session.harness_id, session.harness_session_id) == ("claude", CLAUDE)
    assert (session.cwd, session.name) == ("/home/demo/shop", "The cart that adds twice")
    assert (session.llm_calls, session.turn_count) == (4, 1)
    # Cached tokens are part of the input, and each answer counts once.
    assert (session.total_input_tokens, session.total_output_tokens) == (290, 46)
    assert session.cache_read_tokens == 190
    assert rows.traces[0].user_prompt == "Find the bug"
    assert rows.traces[0].response_preview == "The cart adds twice."
    assert session.started_at == rows.spans[0].started_at


def test_a_sub_agent_hangs_under_the_tool_call_that_its_file_names(store: SqlStore) -> None:
    spans = by_id(shown(store, DATA / "claude" / f"{CLAUDE}.jsonl"))
    agent = spans["agent_ag1"]
    assert (agent.parent_span_id, agent.anchor, agent.agent) == (
        "toolu_agent_01", "transcript", "explorer",
    )  # fmt: skip
    assert spans["toolu_read_01"].parent_span_id == "agent_ag1"
    assert spans["toolu_read_01"].output[0]["tool_output"] == "total += price"


@pytest.mark.parametrize("says_so", [False, True], ids=["by-its-times", "by-its-lines"])
def test_a_fork_of_claude_code_counts_none_of_the_calls_that_it_copied(
    store: SqlStore, tmp_path: Path, says_so: bool
) -> None:
    """`--fork-session` copies the lines as they are, `/branch` names with each where it stood."""

    def line(second: int, kind: str, text: str, **more: Json) -> Json:
        usage: Json = {"input_tokens": 7, "output_tokens": 2}
        said: dict[str, Json] = {"role": kind, "content": text}
        if kind == "assistant":
            said = {**said, "id": f"msg_{second}", "model": "claude-x", "usage": usage}
        at = f"2026-11-30T21:44:{second:02}.000Z"
        return {"type": kind, "sessionId": CLAUDE, "timestamp": at, "message": said, **more}

    stood = {"forkedFrom": {"sessionId": "s", "messageUuid": "m"}} if says_so else {}
    began: Json = {
        "type": "queue-operation",
        "sessionId": CLAUDE,
        "timestamp": "2026-11-30T21:44:30.000Z",
    }
    lines = [
        *([] if says_so else [began]),
        line(10, "user", "Before?", **stood), line(11, "assistant", "Said.", **stood),
        line(31, "user", "And now?"), line(32, "assistant", "Forked."),
        line(5, "user", "After the clock was set back?"), line(6, "assistant", "Still here."),
    ]  # fmt: skip
    file = tmp_path / f"{CLAUDE}.jsonl"
    file.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    rows = shown(store, file)
    assert "Before?" not in {trace.user_prompt for trace in rows.traces}
    assert len(llm(rows)) == 2
    assert rows.sessions[0].total_tokens == 18


def test_a_session_of_codex_is_told_by_its_rollouts_alone(store: SqlStore) -> None:
    rows = shown(store, DATA / "codex")
    session = rows.sessions[0]
    assert (session.harness_id, session.harness_session_id) == ("codex", CODEX)
    assert session.derived_model == "gpt-test-codex"
    assert (session.total_input_tokens, session.total_output_tokens) == (300, 41)
    assert (session.cache_read_tokens, session.reasoning_tokens) == (160, 8)
    spans = by_id(rows)
    assert spans["call_exec_1"].status is Status.ERROR
    agent = spans[f"agent_{READER}"]
    assert (agent.parent_span_id, agent.anchor) == ("call_spawn_1", "transcript")
    assert rows.traces[0].response_preview == "One test fails."


def test_a_fork_of_codex_tells_nothing_that_was_not_said(store: SqlStore) -> None:
    rows = shown(store, DATA.parent / "codex-0.171" / "sessions")
    (trace,) = rows.traces
    assert (trace.user_prompt, trace.response_preview) == (
        "DELEGATE this", "The sub-agent counted.",
    )  # fmt: skip
    assert [span.model for span in llm(rows)] == ["gpt-6.2-sol"] * 5
    assert all(span.output for span in llm(rows))
    (agent,) = (span for span in rows.spans if span.name == "subagent")
    assert (agent.anchor, agent.agent) == ("transcript", "Goodall")
    assert by_id(rows)[agent.parent_span_id].name == "spawn_agent"


@pytest.mark.parametrize("wire_first", [True, False], ids=["wire-first", "transcript-first"])
@pytest.mark.row("D3", "D5")
def test_a_call_that_the_proxy_saw_too_is_one_span(store: SqlStore, wire_first: bool) -> None:
    session = {"harness_id": "claude", "harness_session_id": CLAUDE}
    meta = {"request_id": "r1", "ts_request": "2026-07-01T10:00:09Z", "elapsed_seconds": 2}
    stream = raw_payload()["raw_response"]
    assert stream
    body = {
        "id": "msg_main_0002",
        "type": "message",
        "role": "assistant",
        "model": "claude-test",
        "content": [{"type": "text", "text": "The cart adds twice."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 20, "cache_read_input_tokens": 100, "output_tokens": 8},
    }
    on_wire = raw_payload(json.dumps(body).encode(), session=session)
    on_wire["meta"] = meta
    (payload,) = told_of(read(DATA / "claude" / f"{CLAUDE}.jsonl"))
    doors = [("/v1/ingest", on_wire), ("/v1/ingest/transcript", payload)]
    with door(store) as client:
        for path, told in doors if wire_first else reversed(doors):
            assert client.post(path, json=told).status_code == 202
    rows = projection(store)
    assert rows.sessions[0].llm_calls == 2
    assert sorted(span.response_id for span in llm(rows)) == ["msg_main_0001", "msg_main_0002"]
    assert "llm_r1" in by_id(rows)


@pytest.mark.parametrize(
    "name", [f"claude/{CLAUDE}.jsonl", f"codex/rollout-2026-07-02T10-00-00-{CODEX}.jsonl"]
)
def test_a_transcript_that_was_cut_hides_nothing_that_it_told(
    store: SqlStore, tmp_path: Path, name: str
) -> None:
    whole = (DATA / name).read_bytes().splitlines(keepends=True)
    file = tmp_path / Path(name).name
    file.write_bytes(b"".join(whole))
    before = {span.span_id: span.status for span in shown(store, file).spans}
    for kept in (len(whole) - 1, len(whole) // 2, 2):
        file.write_bytes(b"".join(whole[:kept]) + whole[kept][:20])
        after = {span.span_id: span.status for span in shown(store, file).spans}
        assert after == before


def test_a_transcript_that_grew_is_shown_as_it_is_now(store: SqlStore) -> None:
    text = (DATA / "claude" / f"{CLAUDE}.jsonl").read_text()
    with door(store) as client:
        for lines in (4, 8):
            part = "".join(text.splitlines(keepends=True)[:lines])
            (payload,) = told_of(LogFile("s.jsonl", part))
            assert client.post("/v1/ingest/transcript", json=payload).status_code == 202
    assert len(llm(projection(store))) == 2


@pytest.mark.parametrize(
    "name", [f"claude/{CLAUDE}.jsonl", f"codex/rollout-2026-07-02T10-00-00-{CODEX}.jsonl"]
)
def test_a_transcript_that_was_rewritten_hides_nothing_that_it_told(
    store: SqlStore, tmp_path: Path, name: str
) -> None:
    whole = (DATA / name).read_text().splitlines(keepends=True)
    file = tmp_path / Path(name).name
    file.write_text("".join(whole))
    before = {span.span_id: span.output for span in llm(shown(store, file))}
    assert len(before) > 1
    named = whole[:1]  # where its session stands
    for head in (len(whole) // 2, len(whole) - 3):
        lost = [*named, *whole[head:]]
        file.write_text("".join([*lost, *(line.replace("20", "21") for line in whole)]))
        after = {span.span_id: span.output for span in llm(shown(store, file))}
        assert {id_: after.get(id_) for id_ in before} == before


def test_a_transcript_that_lost_its_head_goes_on_where_it_was(store: SqlStore) -> None:
    lines = (DATA / "claude" / f"{CLAUDE}.jsonl").read_text().splitlines(keepends=True)
    seen: list[list[str]] = []
    with door(store) as client:
        for parts in ((lines[:6], lines[3:]), (lines,)):
            for part in parts:
                (payload, *_) = told_of(LogFile(f"{CLAUDE}.jsonl", "".join(part)))
                assert client.post("/v1/ingest/transcript", json=payload).status_code == 202
            rows = projection(store)
            seen.append([s.span_id for s in rows.spans] + [t.user_prompt for t in rows.traces])
    assert seen[0] == seen[1]


def test_sending_again_changes_nothing(store: SqlStore) -> None:
    with serving(ingest_app(store)) as url:
        files = found_in([str(DATA)])
        first, again = (list(Sender(url, None).send(files)) for _ in range(2))
    assert [told.deduped for told in first if isinstance(told, Sent)] == [False] * 5
    assert [told.deduped for told in again if isinstance(told, Sent)] == [True] * 5


# --- files ------------------------------------------------------------------------------------


def test_a_last_line_that_is_being_written_waits() -> None:
    whole = '{"sessionId":"s","type":"user"}\n'
    (payload,) = told_of(LogFile("a.jsonl", whole + '{"sessionId":"s","ty'))
    assert len(payload["records"]) == 1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"sessionId":"s"}\nbroken\n{"a":1}\n', "line 2"),
        ('{"sessionId":"s"}\n[1]\n', "line 2"),
        ("", "line 1"),
        ('{"type":"user"}\n', "line 1"),
        ('{"type":"session_meta","payload":{}}\n', "line 1"),
    ],
    ids=["no-json", "no-object", "empty", "no-session", "no-codex-session"],
)
def test_a_file_that_is_none_is_named_with_its_line(text: str, line: str) -> None:
    with pytest.raises(ForeignFile, match=rf"a\.jsonl, {line}"):
        told_of(LogFile("a.jsonl", text))


def test_one_broken_file_harms_no_other(store: SqlStore, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("broken\n{}\n")
    (tmp_path / "b.jsonl").write_text('{"sessionId":"s","type":"user"}\n')
    with serving(ingest_app(store)) as url:
        told = list(Sender(url, None).send(found_in([str(tmp_path)])))
    assert [type(each) for each in told] == [ForeignFile, Sent]


def test_a_file_that_did_not_change_is_not_read_again(store: SqlStore, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / f"{name}.jsonl").write_text(f'{{"sessionId":"{name}","type":"user"}}\n')
    with serving(ingest_app(store)) as url:
        sender = Sender(url, None)
        assert len(list(sender.send(found_in([str(tmp_path)])))) == 2
        stamp = (tmp_path / "a.jsonl").stat()
        # What is read would be refused: but for what is in it, it is as it was.
        (tmp_path / "a.jsonl").write_bytes(b"!" * stamp.st_size)
        os.utime(tmp_path / "a.jsonl", ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        (tmp_path / "b.jsonl").write_text('{"sessionId":"b","type":"user"}\n' * 2)
        told = list(sender.send(found_in([str(tmp_path)])))
    assert [(each.session, each.records) for each in told if isinstance(each, Sent)] == [("b", 2)]


def test_an_agent_whose_root_is_told_later_moves_there(store: SqlStore, tmp_path: Path) -> None:
    (tmp_path / "c.jsonl").write_text(rollout("c", parent_thread_id="b").text)
    with serving(ingest_app(store)) as url:
        sender = Sender(url, None)
        first = list(sender.send(found_in([str(tmp_path)])))
        (tmp_path / "b.jsonl").write_text(rollout("b", parent_thread_id="a").text)
        told = list(sender.send(found_in([str(tmp_path)])))
    assert [each.session for each in first if isinstance(each, Sent)] == ["b"]
    named = [(each.session, each.agent) for each in told if isinstance(each, Sent)]
    assert named == [("a", "b"), ("a", "c")]


def test_what_lies_beside_a_file_counts_when_it_comes_later(
    store: SqlStore, tmp_path: Path
) -> None:
    agent = tmp_path / "agent-x.jsonl"
    agent.write_text('{"sessionId":"s","type":"user","agentId":"x"}\n')
    with serving(ingest_app(store)) as url:
        sender = Sender(url, None)
        assert len(list(sender.send([agent]))) == 1
        agent.with_suffix(".meta.json").write_text('{"agentType":"reader"}')
        assert len(list(sender.send([agent]))) == 1
        assert list(sender.send([agent])) == []


def test_a_codex_agent_of_an_agent_belongs_to_the_first_session() -> None:
    def rollout(own: str, parent: str) -> LogFile:
        source = {"subagent": {"thread_spawn": {"parent_thread_id": parent}}} if parent else "cli"
        meta = {"type": "session_meta", "payload": {"id": own, "source": source}}
        return LogFile(f"{own}.jsonl", json.dumps(meta) + "\n")

    payloads = told_of(rollout("c", "b"), rollout("b", "a"), rollout("a", ""))
    told = [(p["session"]["harness_session_id"], p.get("agent_id", "")) for p in payloads]
    assert told == [("a", "c"), ("a", "b"), ("a", "")]


def rollout(own: str, *events: Json, **meta: Json) -> LogFile:
    """A file of Codex with these events."""
    lines: list[Json] = [{"type": "session_meta", "payload": {"id": own, **meta}}]
    lines += [{"type": "event_msg", "payload": event} for event in events]
    return LogFile(f"rollout-{own}.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


def item(of: str, **said: Json) -> Json:
    return {"type": "item_completed", "thread_id": "a", "item": {"type": of, **said}}


@pytest.mark.parametrize(
    "event",
    [
        {"type": "sub_agent_activity", "kind": "started", "call_id": "t", "agent_thread_id": "b"},
        {"type": "sub_agent_activity", "kind": "started", "event_id": "t", "agent_thread_id": "b"},
        {"type": "collab_agent_spawn_end", "call_id": "t", "new_thread_id": "b"},
        item("SubAgentActivity", kind="started", id="t", agent_thread_id="b"),
        item("CollabAgentToolCall", tool="spawn_agent", id="t", receiver_thread_ids=["b"]),
    ],
    ids=["activity", "activity-by-event", "collab", "item-activity", "item-collab"],
)
def test_each_version_of_codex_tells_which_call_began_an_agent(event: Json) -> None:
    _, anchor = told_of(rollout("a", event))
    assert (anchor["agent_id"], anchor["tool_use_id"], anchor["kind"]) == ("b", "t", "started")


@pytest.mark.parametrize(
    "event",
    [
        item("SubAgentActivity", kind="completed", id="done-t", agent_thread_id="b"),
        item("SubAgentActivity", kind="interacted", id="t2", agent_thread_id="b"),
        item("CollabAgentToolCall", tool="wait_agent", id="t2", receiver_thread_ids=["b"]),
        item("CollabAgentToolCall", tool="spawn_agent", id="t", receiver_thread_ids=[]),
        {"type": "collab_agent_spawn_end", "call_id": "t", "new_thread_id": None},
    ],
    ids=["completed", "interacted", "waited", "spawned-nobody", "failed"],
)
def test_no_other_event_of_codex_is_taken_for_a_beginning(event: Json) -> None:
    assert len(told_of(rollout("a", event))) == 1


def test_a_beginning_that_codex_tells_twice_is_told_once() -> None:
    old = {"type": "sub_agent_activity", "kind": "started", "call_id": "t", "agent_thread_id": "b"}
    new = item("SubAgentActivity", kind="started", id="t", agent_thread_id="b")
    assert len(told_of(rollout("a", old, new))) == 2


def test_a_parent_that_stands_beside_the_source_is_found() -> None:
    review = rollout("b", source={"subagent": "review"}, parent_thread_id="a")
    own, _ = told_of(review, rollout("a"))
    assert own["session"]["harness_session_id"] == "a"
    assert (own["agent_id"], own["agent_type"]) == ("b", "review")


def test_a_sub_agent_without_a_file_beside_hangs_where_the_result_names_it(
    store: SqlStore, tmp_path: Path
) -> None:
    made = tmp_path / f"{CLAUDE}.jsonl"
    agent = tmp_path / CLAUDE / "subagents" / "agent-ag1.jsonl"
    agent.parent.mkdir(parents=True)
    own = DATA / "claude" / CLAUDE / "subagents" / "agent-ag1.jsonl"
    agent.write_text(own.read_text())
    lines = [json.loads(x) for x in (DATA / "claude" / f"{CLAUDE}.jsonl").read_text().splitlines()]
    for line in lines:
        content = line.get("message", {}).get("content")
        if isinstance(content, list) and content[0].get("tool_use_id") == "toolu_agent_01":
            line["toolUseResult"] = {"status": "completed", "agentId": "ag1"}
    made.write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = by_id(shown(store, tmp_path))["agent_ag1"]
    assert (found.parent_span_id, found.anchor) == ("toolu_agent_01", "transcript")
