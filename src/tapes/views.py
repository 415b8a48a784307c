"""Texts inside texts: the same places as a reader of the inner text sees them.

A secret may be spelled with escapes, lie in JSON inside a JSON string, or come in pieces over
several events. Whoever looks for it looks at a view, in which it stands plainly, and asks the
view where that place lies in the text as it is.

Knows nothing of secrets.  Pure.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate

# JSON in a JSON string in a JSON string: no model's tool goes deeper.
_LEVELS = 3

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class View:
    """A text, and the spans of the original that a span of it stands for, in order."""

    text: str
    spans: Callable[[int, int], list[Span]]


def views_of(text: str, *, is_stream: bool = False) -> list[View]:
    """All views of a text. Those that join what a stream had cut come first: they see most."""
    roots = [*_joined_streams(text)] if is_stream else []
    roots.append(View(text, lambda start, end: [(start, end)]))
    return [view for root in roots for view in _levels(root)]


def _levels(view: View) -> Iterator[View]:
    yield view
    for _ in range(_LEVELS):
        inner = _unescaped(view)
        if inner is None:
            return
        yield inner
        view = inner


# --- escapes ----------------------------------------------------------------------------------

_ESCAPE = re.compile(r'\\(?:u([0-9a-fA-F]{4})|(["\\/bfnrt]))')
_MEANINGS = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}


def _meaning(escape: re.Match[str]) -> str:
    return chr(int(escape[1], 16)) if escape[1] else _MEANINGS[escape[2]]


def unescaped(text: str) -> str:
    """The text with JSON's escapes undone, wherever they stand."""
    return _ESCAPE.sub(_meaning, text) if "\\" in text else text


def _unescaped(outer: View) -> View | None:
    text = unescaped(outer.text)
    if len(text) == len(outer.text):
        return None
    tables: list[tuple[list[int], list[int]]] = []  # made when somebody asks

    def origin(place: int) -> int:
        if not tables:
            tables.append(_shifts(outer.text))
        behind, shifts = tables[0]
        return place + shifts[bisect_right(behind, place) - 1]

    return View(text, lambda start, end: outer.spans(origin(start), origin(end)))


def _shifts(text: str) -> tuple[list[int], list[int]]:
    """For places behind each escape of a text: how much further on they lay before."""
    behind, shifts, shift = [0], [0], 0
    for escape in _ESCAPE.finditer(text):
        shift += len(escape[0]) - 1
        behind.append(escape.end() - shift)
        shifts.append(shift)
    return behind, shifts


# --- streams ----------------------------------------------------------------------------------

_STREAM_TYPES = ("text/event-stream", "application/x-ndjson", "application/ndjson",
                 "application/jsonl", "application/json-seq")  # fmt: skip
_STREAM_BEGINS = ("data:", "event:", "id:", "retry:", ":", "[")
_MEMBER = re.compile(r'"(?P<name>[A-Za-z_]+)"\s*:\s*"(?P<value>(?:[^"\\]|\\.)*)"')
_INDEX = re.compile(r'"(?:index|content_index|output_index|choice)"\s*:\s*(\d+)')
_SHORTEST_LINE = len("data:")
_PLAIN_DATA = re.compile(r"data:(?! ?[\[{]) ?(?P<value>[^\r]*)")


def is_stream(media_type: str, text: str) -> bool:
    """Whether a body is made of events that may spell one text together."""
    if media_type in _STREAM_TYPES:
        return True
    return "\n" in text and text.lstrip("\ufeff \r\n").startswith(_STREAM_BEGINS)


def _joined_streams(text: str) -> Iterator[View]:
    """The texts of one member, event after event: one view a member, and one a member and index."""
    fragments: dict[tuple[str, str | None], list[Span]] = {}
    position = 0
    for line in text.split("\n"):
        if len(line) < _SHORTEST_LINE:  # most of them end an event
            position += len(line) + 1
            continue
        index = ",".join(_INDEX.findall(line))
        found = [*_MEMBER.finditer(line)]
        plain = None if found else _PLAIN_DATA.match(line)
        for match in (plain,) if plain else found:
            name = "" if plain else match["name"]
            start, end = match.span("value")
            span = (position + start, position + end)
            fragments.setdefault((name, None), []).append(span)
            if index:
                fragments.setdefault((name, index), []).append(span)
        position += len(line) + 1
    for (name, of_index), spans in fragments.items():
        is_again = of_index is not None and spans == fragments[name, None]  # there is one index
        if len(spans) > 1 and not is_again:
            yield _joined(text, spans)


def _joined(text: str, fragments: list[Span]) -> View:
    starts = list(accumulate((end - start for start, end in fragments), initial=0))

    def spans(start: int, end: int) -> list[Span]:
        return [
            (max(start, at) - at + origin, min(end, until) - at + origin)
            for (origin, _), at, until in zip(fragments, starts, starts[1:], strict=False)
            if max(start, at) < min(end, until)
        ]

    return View("".join(text[start:end] for start, end in fragments), spans)


# --- edits ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Edit:
    """Put `word` in the place of [start, end)."""

    start: int
    end: int
    word: str


def in_order(edits: list[Edit]) -> list[Edit]:
    """In order of place; of two that overlap, the one that begins first reaches as far as both."""
    kept: list[Edit] = []
    for edit in sorted(edits, key=lambda e: (e.start, -e.end)):
        if not kept or edit.start >= kept[-1].end:
            kept.append(edit)
        elif edit.end > kept[-1].end:
            kept[-1] = replace(kept[-1], end=edit.end)
    return kept


def edited(text: str, edits: list[Edit]) -> str:
    """The text with the edits made; the same object where there are none."""
    parts, position = list[str](), 0
    for edit in edits:
        parts += (text[position : edit.start], edit.word)
        position = edit.end
    return "".join((*parts, text[position:])) if edits else text


def in_bytes(text: str, edits: list[Edit]) -> list[Edit]:
    """The edits of a text as edits of its UTF-8."""
    if text.isascii():
        return edits
    moved, position, at = list[Edit](), 0, 0
    for edit in edits:
        start = at + len(text[position : edit.start].encode())
        at = start + len(text[edit.start : edit.end].encode())
        position = edit.end
        moved.append(Edit(start, at, edit.word))
    return moved


def edited_bytes(data: bytes, edits: list[Edit]) -> bytes:
    """The bytes with the edits made; the same object where there are none."""
    return edited(data.decode("latin-1"), edits).encode("latin-1") if edits else data


def moved_offset(offset: int, edits: list[Edit]) -> int:
    """Where a place lies after the edits; a place inside an edit lies at its end."""
    shift = 0
    for edit in edits:
        if edit.start >= offset:
            break
        if edit.end > offset:
            return edit.start + shift + len(edit.word)
        shift += len(edit.word) - (edit.end - edit.start)
    return offset + shift
