"""Transcripts of agents on disk, sent to a private door.

Rule 1: a file that cannot be read or is refused is named, and the others are sent all the same.
Rule 2: sending a file again changes nothing; one that has grown is a new version. Who sends the
        same files again and again remembers what arrived, and sends only what differs.

Knows nothing of what transcripts say.
"""

import gzip
import hashlib
import json
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tapes.errors import BadSetting, NotAnswered, TapesError
from tapes.ingest.transcripts import LogFile, payloads_of
from tapes.jsontext import Json, compact

_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of one transcript."""

    session: str
    agent: str
    records: int
    deduped: bool


def found_in(places: Iterable[str]) -> list[Path]:
    """The files at these places: themselves, those in a folder, those of their sub-agents.

    Raises BadSetting for what is not there.
    """
    found: dict[Path, None] = {}
    for place in map(Path, places):
        if place.is_dir():
            found |= dict.fromkeys(sorted(place.rglob("*.jsonl")))
        elif place.is_file():
            found[place] = None
            beside = place.with_suffix("") / "subagents"
            found |= dict.fromkeys(sorted(beside.glob("agent-*.jsonl")))
        else:
            raise BadSetting(
                f"{place}: there is no such file or folder",
                "for example: ~/.claude/projects/PROJECT/SESSION.jsonl",
            )
    return list(found)


def read(path: Path) -> LogFile:
    """A file, and what lies beside it of a sub-agent. Raises BadSetting."""
    try:
        text = path.read_bytes().decode("utf-8", "replace")
        about = path.with_suffix(".meta.json")
        told = json.loads(about.read_bytes()) if about.is_file() else None
    except (OSError, ValueError) as error:
        raise BadSetting(f"{path}: {error}") from error
    return LogFile(str(path), text, told)


# What arrived last of each transcript, by the place that it has in its session: a digest.
Arrived = dict[tuple[str, ...], bytes]


def sent(
    paths: Iterable[Path], url: str, token: str | None, arrived: Arrived | None = None
) -> Iterator[Sent | TapesError]:
    """Send files; gives what became of each transcript, or why a file was not sent.

    What `arrived` before is not sent again. Raises NotAnswered where nobody is there.
    """
    arrived = {} if arrived is None else arrived
    files: list[LogFile] = []
    for path in paths:
        try:
            file = read(path)
            payloads_of([file])  # so that one broken file harms no other
            files.append(file)
        except TapesError as error:
            yield error
    for payload in payloads_of(files):
        data = compact(payload).encode("utf-8", "replace")
        place, digest = _place_of(payload), hashlib.sha256(data).digest()
        if arrived.get(place) == digest:
            continue
        try:
            told = _post(payload, data, url, token)
            arrived[place] = digest
            yield told
        except NotAnswered:
            raise
        except TapesError as error:
            yield error


def _place_of(payload: dict[str, Json]) -> tuple[str, ...]:
    said = (payload["session"].get(name) for name in ("harness_id", "harness_session_id"))
    own = (payload.get(name) for name in ("agent_id", "tool_use_id", "kind"))
    return tuple(str(each or "") for each in (*said, *own))


def _post(payload: dict[str, Json], data: bytes, url: str, token: str | None) -> Sent:
    body = gzip.compress(data, 1)
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
    target = f"{url.rstrip('/')}/v1/ingest/transcript"
    session = payload["session"]["harness_session_id"]
    agent = payload.get("agent_id", "")
    try:
        # No proxy stands between us and a door on this machine.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        request = urllib.request.Request(target, body, headers)
        if token:
            # It goes to nobody else, wherever this one sends us.
            request.add_unredirected_header("x-tapes-token", token)
        with opener.open(request, timeout=_TIMEOUT_S) as answer:
            told = json.loads(answer.read())
    except urllib.error.HTTPError as error:
        raise TapesError(f"session {session}: {_said(error)} (status {error.code})") from error
    except (OSError, ValueError) as error:
        raise NotAnswered(
            f"{target}: {getattr(error, 'reason', error)}",
            "start it: tapes serve ingest, or name another with --to URL",
        ) from error
    return Sent(session, agent, int(told.get("records", 0)), told.get("deduped") is True)


def _said(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["error"])
    except (OSError, ValueError, KeyError, TypeError):
        return "refused"
