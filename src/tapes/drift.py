"""How a provider's answer of now differs from the recorded one, place by place.

Rule 1: what changes with every answer (ids, times, usage) is told apart from what the answer says
        and from what it is made of.
Rule 2: a stream is compared by what it says in all, however it was cut: texts that come in parts
        are joined, of everything else the last word counts.
Rule 3: of the headers only those count that say what the answer is or that it will cease to be.

Knows nothing of tapes or providers' names.  Pure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tapes.errors import TapesError
from tapes.exchange import Response, header
from tapes.jsontext import Json, read
from tapes.wire import decoded, frames_of


class Kind(StrEnum):
    """What sort of difference a change is."""

    STATUS = "status"
    HEADER = "header"
    SHAPE = "shape"  # a member came, went, or is of another type
    CONTENT = "content"
    ID = "id"
    TIME = "time"
    USAGE = "usage"


# What a reader means by "it has changed"; the others change every time.
TELLING = frozenset({Kind.STATUS, Kind.HEADER, Kind.SHAPE, Kind.CONTENT})
HEADERS_THAT_MATTER = (
    "content-type", "deprecation", "link", "location", "openai-model", "openai-version", "sunset",
    "warning",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Change:
    """A place where the answer of now is not the recorded one; None for nothing there."""

    kind: Kind
    place: str
    recorded: Json
    now: Json


def changes(recorded: Response | Json, now: Response | Json) -> tuple[Change, ...]:
    """Every place where two answers differ, in the order of the recorded one."""
    if not isinstance(recorded, Response) or not isinstance(now, Response):
        return tuple(_differing(dict(_leaves(recorded, "")), dict(_leaves(now, ""))))
    found = list[Change]()
    if recorded.status != now.status:
        found.append(Change(Kind.STATUS, "status", recorded.status, now.status))
    for name in HEADERS_THAT_MATTER:
        old, new = header(recorded.headers, name), header(now.headers, name)
        if old != new:
            found.append(Change(Kind.HEADER, name, old, new))
    found += _differing(_said(recorded), _said(now))
    return tuple(found)


# --- what an answer says ----------------------------------------------------------------------


def _said(response: Response) -> dict[str, Json]:
    """What a body says, place by place: leaves of JSON, joined ones of a stream, or its text."""
    body = response.body
    try:
        body = decoded(body, header(response.headers, "content-encoding")).data
    except TapesError:
        pass  # compared as it is
    frames = frames_of(header(response.headers, "content-type"), body)
    if frames is not None:
        return _joined([frame.text for frame in frames])
    try:
        return dict(_leaves(read(body), ""))
    except ValueError:
        return {"the body": body.decode("latin-1")}


# Members whose text comes in parts, in the words of the providers that stream.
_PARTS = frozenset(
    {
        "arguments", "content", "data", "delta", "input", "output_text", "partial_json",
        "reasoning", "reasoning_content", "refusal", "response", "summary_text", "text",
        "thinking", "transcript",
    }
)  # fmt: skip
_POSITIONS = ("index", "output_index", "content_index", "summary_index")


def _joined(texts: list[str]) -> dict[str, Json]:
    """The leaves of all events together: parts joined, of the rest the last."""
    said: dict[str, Json] = {}
    for text in texts:
        try:
            value = read(text.encode())
        except ValueError:
            said["events"] = [*said.get("events", ()), text]
            continue
        kind = f"{value['type']}: " if isinstance(value, dict) and "type" in value else ""
        for place, leaf in _leaves(value, _position(value)):
            name = f"{kind}{place}"
            if _last_name(place) not in _PARTS or not isinstance(said.get(name), str):
                said[name] = leaf
            elif isinstance(leaf, str):
                said[name] += leaf
    return said


def _position(value: Json) -> str:
    """Which of several parallel parts an event belongs to, as a prefix of its places."""
    if not isinstance(value, dict):
        return ""
    numbers = [str(value[name]) for name in _POSITIONS if isinstance(value.get(name), int)]
    return f"#{'.'.join(numbers)}" if numbers else ""


def _leaves(value: Json, place: str) -> Iterator[tuple[str, Json]]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _leaves(item, f"{place}.{name}" if place else name)
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            # Streams number their parts: the number in the item, not in the list, is its place.
            own = item.get("index") if isinstance(item, dict) else None
            yield from _leaves(item, f"{place}[{own if isinstance(own, int) else number}]")
    else:
        yield place or "the body", value


# --- how it differs ---------------------------------------------------------------------------

_STEP = re.compile(r"[^.\[\]# ]+")
_IDS = re.compile(
    r"(^|_)id$|Id$|^system_fingerprint$|^obfuscation$|^signature$|^encrypted_content$"
)
_TIMES = re.compile(r"^created$|_at$|(^|_)(time|duration|seconds)$|Time$|_ms$")
_USAGES = re.compile(
    r"^usage$|^usageMetadata$|^usage_metadata$|^(prompt_)?eval_count$|^timings$|^x_groq$"
    r"|^sequence_number$|^logprobs$|^avgLogprobs$"
)


def _last_name(place: str) -> str:
    names = [step for step in _STEP.findall(place) if not step.isdigit()]
    return names[-1] if names else ""


def _kind_of(place: str) -> Kind | None:
    """What a place is about where that changes with every answer; None for what the answer says."""
    names = _STEP.findall(place)
    if any(_USAGES.search(name) for name in names):
        return Kind.USAGE
    last = _last_name(place)
    if _IDS.search(last):
        return Kind.ID
    return Kind.TIME if _TIMES.search(last) else None


def _differing(recorded: dict[str, Json], now: dict[str, Json]) -> Iterator[Change]:
    for place in dict.fromkeys((*recorded, *now)):
        is_in_both = place in recorded and place in now
        old, new = recorded.get(place), now.get(place)
        if is_in_both and type(old) is type(new) and old == new:
            continue
        own = _kind_of(place)
        if own is not None:
            yield Change(own, place, old, new)
        elif is_in_both and _sort(old) == _sort(new):
            yield Change(Kind.CONTENT, place, old, new)
        else:
            yield Change(Kind.SHAPE, place, old, new)


def _sort(value: Json) -> str:
    """Numbers are of one sort, and nothing is of every sort's own."""
    if isinstance(value, bool):
        return "bool"
    return "number" if isinstance(value, int | float) else type(value).__name__
