"""What an answer says, place by place, however a stream of it was cut.

Rule 1: texts of a stream that come in parts are joined; of everything else the last word counts.

Knows nothing of tapes or providers' names.  Pure.
"""

import re
from collections.abc import Iterator

from tapes.errors import TapesError
from tapes.exchange import Response, header
from tapes.jsontext import Json, read
from tapes.places import WHOLE, below
from tapes.wire import decoded, frames_of


def said(response: Response) -> dict[str, Json]:
    """What a body says, place by place: leaves of JSON, joined ones of a stream, or its text."""
    body = plain_response(response)
    frames = frames_of(header(response.headers, "content-type"), body)
    if frames is not None:
        return _joined([frame.text for frame in frames])
    try:
        return dict(leaves_of_answer(read(body), ""))
    except ValueError:
        return {WHOLE: body.decode("utf-8", "backslashreplace")}


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
        for place, leaf in leaves_of_answer(value, _position(value)):
            name = f"{kind}{place}"
            if last_name(place) not in _PARTS or not isinstance(said.get(name), str):
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


def leaves_of_answer(value: Json, place: str = "") -> Iterator[tuple[str, Json]]:
    """Every leaf with its place, where items that number themselves have their own number."""
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from leaves_of_answer(item, below(place, name))
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            # Streams number their parts: the number in the item, not in the list, is its place.
            own = item.get("index") if isinstance(item, dict) else None
            yield from leaves_of_answer(item, f"{place}[{own if isinstance(own, int) else number}]")
    else:
        yield place or WHOLE, value


# A name in quotes is one step, however it looks.
_STEP = re.compile(r'"(?:[^"\\]|\\.)*"|[^.\[\]# ]+')


def steps_of(place: str) -> list[str]:
    """The names and numbers that a place consists of."""
    return [step.strip('"') for step in _STEP.findall(place)]


def last_name(place: str) -> str:
    """The name that a place ends with; "" where it has only numbers."""
    names = [step for step in steps_of(place) if not step.isdigit()]
    return names[-1] if names else ""


def plain_response(response: Response) -> bytes:
    """The body with its content coding undone, or as it is where nobody can undo it."""
    try:
        return decoded(response.body, header(response.headers, "content-encoding")).data
    except TapesError:
        return response.body
