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


def payloads_of(files: Iterable[LogFile]) -> list[dict[str, Json]]:
    """What to post for these files. Raises ForeignFile, naming the place."""
    read = [(file, records_of(file)) for file in files]
    parents = dict(filter(None, (_spawned(records) for _, records in read)))
    payloads: list[dict[str, Json]] = []
    for file, records in read:
        if _is_codex(records):
            payloads += _codex(file, records, parents)
        else:
            payloads.append(_claude(file, records))
    return payloads


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


def _claude(file: LogFile, records: Sequence[dict[str, Json]]) -> dict[str, Json]:
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
    return payload


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


def _spawned(records: Sequence[Mapping[str, Json]]) -> tuple[str, str] | None:
    meta = _meta(records)
    own, parent = word(meta.get("id")), word(_spawn(meta).get("parent_thread_id"))
    return (own, parent) if own and parent else None


def _codex(
    file: LogFile, records: Sequence[dict[str, Json]], parents: Mapping[str, str]
) -> Iterator[dict[str, Json]]:
    meta = _meta(records)
    own = word(meta.get("id"))
    if not own:
        raise _foreign(file, 1, "no record names its session (session_meta)")
    spawn = _spawn(meta)
    root, passed = own, set[str]()
    while root in parents and root not in passed:
        passed.add(root)
        root = parents[root]
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
        nickname = word(spawn.get("agent_nickname")) or word(spawn.get("agent_role"))
        path = word(spawn.get("agent_path"))
        payload |= {"agent_type": nickname} if nickname else {}
        payload |= {"description": path} if path else {}
    yield payload
    yield from _anchors(envelope, records)


def _anchors(
    envelope: Mapping[str, Json], records: Sequence[Mapping[str, Json]]
) -> Iterator[dict[str, Json]]:
    """What a file tells of the sub-agents that it began or spoke to: which tool call did it."""
    for record in records:
        payload = record.get("payload")
        if not isinstance(payload, dict) or payload.get("type") != "sub_agent_activity":
            continue
        agent = word(payload.get("agent_thread_id") or payload.get("agent_id"))
        tool = word(payload.get("call_id") or payload.get("event_id"))
        if agent and tool:
            yield {
                "session": dict(envelope),
                "agent_id": agent,
                "tool_use_id": tool,
                "kind": word(payload.get("kind")) or "started",
                "description": word(payload.get("agent_path")),
                "records": [],
            }
