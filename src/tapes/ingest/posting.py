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
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from tapes.errors import BadSetting, NotAnswered, TapesError
from tapes.ingest.transcripts import LogFile, origin_of, payloads_of, roots_of
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
        about = _beside(path)
        told = json.loads(about.read_bytes()) if about.is_file() else None
    except (OSError, ValueError) as error:
        raise BadSetting(f"{path}: {error}") from error
    return LogFile(str(path), text, told)


def _beside(path: Path) -> Path:
    return path.with_suffix(".meta.json")


_Stamp = tuple[tuple[int, int], ...]


class Sender:
    """Sends transcripts to a private door, again and again: only what changed."""

    def __init__(self, url: str, token: str | None) -> None:
        self._target = f"{url.rstrip('/')}/v1/ingest/transcript"
        self._token = token
        self._looked_at: dict[Path, tuple[_Stamp, str]] = {}
        self._origins: dict[Path, tuple[_Stamp, tuple[str, str] | None]] = {}
        # What arrived last of each transcript, by the place that it has in its session: a digest.
        self._arrived: dict[tuple[str, ...], bytes] = {}

    def send(self, paths: Iterable[Path]) -> Iterator[Sent | TapesError]:
        """Send what changed; gives what became of each transcript, or why a file was not sent.

        Raises NotAnswered where nobody is there; what was not sent is sent with the next call.
        """
        stamps = {path: stamp for path in paths if (stamp := _stamp_of(path)) is not None}
        self._look_for_origins(stamps)
        roots = roots_of(filter(None, (origin for _, origin in self._origins.values())))
        for path, stamp in stamps.items():
            origin = self._origins[path][1]
            looked_at = stamp, "" if origin is None else roots[origin[0]]
            if self._looked_at.get(path) != looked_at:
                try:
                    yield from self._send_file(path, roots)
                except NotAnswered:
                    raise
                except TapesError as error:
                    yield error
                self._looked_at[path] = looked_at

    def _look_for_origins(self, stamps: Mapping[Path, _Stamp]) -> None:
        for path in self._origins.keys() - stamps.keys():
            del self._origins[path]
            self._looked_at.pop(path, None)
        for path, stamp in stamps.items():
            if path not in self._origins or self._origins[path][0] != stamp:
                self._origins[path] = stamp, _origin_of(path)

    def _send_file(self, path: Path, roots: Mapping[str, str]) -> Iterator[Sent | TapesError]:
        for payload in payloads_of(read(path), roots):
            data = compact(payload).encode("utf-8", "replace")
            place, digest = _place_of(payload), hashlib.sha256(data).digest()
            if self._arrived.get(place) == digest:
                continue
            try:
                told = _post(payload, data, self._target, self._token)
                self._arrived[place] = digest
                yield told
            except NotAnswered:
                raise
            except TapesError as error:
                yield error


def _stamp_of(path: Path) -> _Stamp | None:
    """What changes with a file or with what lies beside it; None where it is gone by now."""
    try:
        changed = [path.stat()]
        with suppress(FileNotFoundError):
            changed.append(_beside(path).stat())
    except OSError:
        return None
    return tuple((each.st_mtime_ns, each.st_size) for each in changed)


def _origin_of(path: Path) -> tuple[str, str] | None:
    try:
        with path.open("rb") as lines:
            return origin_of(lines)
    except OSError:
        return None  # why it cannot be read is told where it is sent


def _place_of(payload: dict[str, Json]) -> tuple[str, ...]:
    said = (payload["session"].get(name) for name in ("harness_id", "harness_session_id"))
    own = (payload.get(name) for name in ("agent_id", "tool_use_id", "kind"))
    return tuple(str(each or "") for each in (*said, *own))


def _post(payload: dict[str, Json], data: bytes, target: str, token: str | None) -> Sent:
    body = gzip.compress(data, 1)
    headers = {"content-type": "application/json", "content-encoding": "gzip"}
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
            records, deduped = int(told.get("records", 0)), told.get("deduped") is True
    except urllib.error.HTTPError as error:
        raise TapesError(f"session {session}: {_said(error)} (status {error.code})") from error
    except (OSError, ValueError, TypeError, AttributeError, RecursionError, HTTPException) as error:
        raise NotAnswered(
            f"{target}: {getattr(error, 'reason', error)}",
            "start it: tapes serve ingest, or name another with --to URL",
        ) from error
    return Sent(session, agent, records, deduped)


def _said(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read())["error"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError, HTTPException):
        return "refused"
