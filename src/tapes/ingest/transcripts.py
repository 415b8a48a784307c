"""Files of Claude Code and Codex → transcripts as the private door takes them.

| agent | its files |
| --- | --- |
| Claude Code | `<session>.jsonl`; `<session>/subagents/agent-<id>.jsonl` and `….meta.json` |
| Codex | `rollout-<time>-<thread>.jsonl`, one for each agent |

Rule 1: a last line without an end is still being written, and is left for the next time. Any other
        line that is no JSON is an error that names it.
Rule 2: a sub-agent's file belongs to the session of the one that began it all.

Knows nothing of files on disk.  Pure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tapes.errors import ForeignFile
from tapes.jsontext import Json
from tapes.loosejson import loose
from tapes.providers.turn import word

_SUBAGENT = re.compile(r"agent-(?P<id>[^/\\]+)\.jsonl$")
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file of an agent: its path, its text, and what lies beside it of a sub-agent."""

    path: str
    text: str
    about: Json = None


def payloads_of(file: LogFile, roots: Mapping[str, str]) -> list[dict[str, Json]]:
    """What to post for a file. Raises ForeignFile, naming the place.

    `roots` are sessions that began agents, by the ids of these; see `roots_of`.
    """
    records = records_of(file)
    read = _codex(file, records, roots) if _is_codex(records) else _claude(file, records)
    return list(read)


def origin_of(lines: Iterable[bytes]) -> tuple[str, str] | None:
    """Whose file this is, and who began it; None for files that begin by themselves.

    Only Codex says so in the file itself. No more of it is read than that takes.
    """
    for line in lines:
        if b"session_meta" in line:
            with suppress(ValueError):
                record = loose(line)
                if isinstance(record, dict) and _meta([record]):
                    return _spawned([record])
    return None


def roots_of(origins: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Which session began each agent in the end, however many stand between them."""
    parents = dict(origins)
    roots: dict[str, str] = {}
    for own in parents:
        root, passed = own, set[str]()
        while root in parents and root not in passed:
            passed.add(root)
            root = parents[root]
        roots[own] = root
    return roots


def records_of(file: LogFile) -> list[dict[str, Json]]:
    """The records of a file. Raises ForeignFile."""
    lines = file.text.split("\n")
    records: list[dict[str, Json]] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            value = loose(line)
        except ValueError:
            if number == len(lines):
                break  # still being written
            raise _foreign(file, number, "the line is no JSON") from None
        if not isinstance(value, dict):
            raise _foreign(file, number, "the line is no object")
        records.append(value)
    if not records:
        raise _foreign(file, 1, "there is no record in it")
    return records


def _foreign(file: LogFile, number: int, why: str) -> ForeignFile:
    return ForeignFile(
        f"{file.path}, line {number}: {why}", "transcripts of Claude Code and of Codex are read"
    )


# --- Claude Code ------------------------------------------------------------------------------


def _claude(file: LogFile, records: Sequence[dict[str, Json]]) -> Iterator[dict[str, Json]]:
    session = _first(records, "sessionId")
    if not session:
        named = _UUID.search(file.path.replace("\\", "/").rpartition("/")[2])
        if named is None:
            raise _foreign(file, 1, "no record names its session (sessionId)")
        session = named[0]
    about: Mapping[str, Json] = file.about if isinstance(file.about, dict) else {}
    payload: dict[str, Json] = {
        "session": _envelope(
            harness_id="claude",
            harness_session_id=session,
            harness_version=_first(records, "version"),
            cwd=_first(records, "cwd"),
            name=_title(records),
        ),
        "records": list(records),
    }
    told = _SUBAGENT.search(file.path.replace("\\", "/"))
    if told is not None:
        payload["agent_id"] = _first(records, "agentId") or told["id"]
        names = (
            ("agent_type", "agentType"),
            ("description", "description"),
            ("tool_use_id", "toolUseId"),
        )
        payload |= {ours: word(about.get(its)) for ours, its in names if word(about.get(its))}
    yield payload
    for agent, tool in _begun(records):
        yield _anchor(payload["session"], agent, tool)


def _begun(records: Iterable[Mapping[str, Json]]) -> Iterator[tuple[str, str]]:
    """The sub-agents that a file of Claude Code names, each with the tool call whose result does.

    Their own files name it too (`toolUseId` in what lies beside them), but not in older versions.
    """
    told = set[str]()
    for record in records:
        result, message = record.get("toolUseResult"), record.get("message")
        agent = word(result.get("agentId")) if isinstance(result, dict) else ""
        content = message.get("content") if isinstance(message, dict) else None
        blocks = [b for b in content if isinstance(b, dict)] if isinstance(content, list) else []
        tools = [word(b.get("tool_use_id")) for b in blocks if b.get("type") == "tool_result"]
        # Of a line with several results nobody knows which one it is.
        if agent and agent not in told and len(tools) == 1 and tools[0]:
            told.add(agent)
            yield agent, tools[0]


def _envelope(**said: str) -> dict[str, Json]:
    return {name: value for name, value in said.items() if value}


def _first(records: Iterable[Mapping[str, Json]], name: str) -> str:
    return next((word(record.get(name)) for record in records if word(record.get(name))), "")


def _title(records: Sequence[Mapping[str, Json]]) -> str:
    """The last name that the session was given; what a person gave counts before the agent's."""
    for name in ("customTitle", "aiTitle"):
        given = [word(record.get(name)) for record in records if word(record.get(name))]
        if given:
            return given[-1]
    return ""


# --- Codex ------------------------------------------------------------------------------------


def _is_codex(records: Sequence[Mapping[str, Json]]) -> bool:
    return any(record.get("type") in ("session_meta", "response_item") for record in records)


def _meta(records: Iterable[Mapping[str, Json]]) -> Mapping[str, Json]:
    for record in records:
        payload = record.get("payload")
        if record.get("type") == "session_meta" and isinstance(payload, dict):
            return payload
    return {}


def _spawn(meta: Mapping[str, Json]) -> Mapping[str, Json]:
    """What a sub-agent's file says of how it began; {} for a main one."""
    place: Json = meta.get("source")
    for name in ("subagent", "thread_spawn"):
        place = place.get(name) if isinstance(place, dict) else None
    return place if isinstance(place, dict) else {}


def _kind_of(meta: Mapping[str, Json]) -> str:
    """What Codex calls an agent that no tool call began: review, compact, or a word of its own."""
    place: Json = meta.get("source")
    kind = place.get("subagent") if isinstance(place, dict) else None
    return word(kind.get("other") if isinstance(kind, dict) else kind)


def _spawned(records: Sequence[Mapping[str, Json]]) -> tuple[str, str] | None:
    meta = _meta(records)
    # Newer versions say it beside the source, and there alone for agents of other kinds.
    parent = word(_spawn(meta).get("parent_thread_id")) or word(meta.get("parent_thread_id"))
    own = word(meta.get("id"))
    return (own, parent) if own and parent and parent != own else None


def _codex(
    file: LogFile, records: Sequence[dict[str, Json]], roots: Mapping[str, str]
) -> Iterator[dict[str, Json]]:
    meta = _meta(records)
    own = word(meta.get("id"))
    if not own:
        raise _foreign(file, 1, "no record names its session (session_meta)")
    spawn = _spawn(meta)
    root = roots.get(own, own)
    envelope: dict[str, Json] = _envelope(
        harness_id="codex",
        harness_session_id=root,
        harness_version=word(meta.get("cli_version")),
        cwd=word(meta.get("cwd")),
    )
    if word(meta.get("originator")):
        envelope["harness_metadata"] = {"originator": word(meta.get("originator"))}
    payload: dict[str, Json] = {"session": envelope, "records": list(records)}
    if root != own:
        payload["agent_id"] = own
        told = (spawn.get("agent_nickname"), spawn.get("agent_role"), _kind_of(meta))
        nickname = next((word(name) for name in told if word(name)), "")
        path = word(spawn.get("agent_path"))
        payload |= {"agent_type": nickname} if nickname else {}
        payload |= {"description": path} if path else {}
    yield payload
    yield from _anchors(envelope, records)


# How Codex says that a tool call began an agent: the event, and where call and agent stand in it.
# The first two are those of its versions before items, each with the ids as they came.
_BEGAN: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "sub_agent_activity": (("call_id", "event_id"), ("agent_thread_id", "agent_id")),
    "collab_agent_spawn_end": (("call_id",), ("new_thread_id",)),
    "SubAgentActivity": (("id",), ("agent_thread_id",)),
    "CollabAgentToolCall": (("id",), ()),
}
_SPAWNS = frozenset({"spawn_agent", "spawnAgent"})


def _anchors(
    envelope: Mapping[str, Json], records: Sequence[Mapping[str, Json]]
) -> Iterator[dict[str, Json]]:
    """What a file of Codex tells of the agents that it began: which tool call did it."""
    told = set[tuple[str, str]]()
    for event in _events(records):
        if event.get("type") not in _BEGAN or word(event.get("kind")) not in ("", "started"):
            continue  # it spoke to one, or one came to its end
        calls, agents = _BEGAN[word(event.get("type"))]
        tool = next((word(event.get(n)) for n in calls if word(event.get(n))), "")
        agent = next((word(event.get(n)) for n in agents if word(event.get(n))), "")
        if event.get("type") == "CollabAgentToolCall" and event.get("tool") in _SPAWNS:
            named: Json = event.get("receiver_thread_ids")
            agent = word(named[0]) if isinstance(named, list) and len(named) == 1 else ""
        if tool and agent and (tool, agent) not in told:
            told.add((tool, agent))
            nickname = word(event.get("new_agent_nickname")) or word(event.get("new_agent_role"))
            yield _anchor(envelope, agent, tool, word(event.get("agent_path")), nickname)


def _events(records: Iterable[Mapping[str, Json]]) -> Iterator[Mapping[str, Json]]:
    """What happened, whether as an event of its own or as an item that was completed."""
    for record in records:
        event: Json = record.get("payload")
        if isinstance(event, dict) and event.get("type") == "item_completed":
            event = event.get("item")
        if isinstance(event, dict):
            yield event


def _anchor(
    envelope: Mapping[str, Json], agent: str, tool: str, description: str = "", name: str = ""
) -> dict[str, Json]:
    payload: dict[str, Json] = {
        "session": dict(envelope),
        "agent_id": agent,
        "tool_use_id": tool,
        "kind": "started",
        "description": description,
        "records": [],
    }
    return payload | ({"agent_type": name} if name else {})
