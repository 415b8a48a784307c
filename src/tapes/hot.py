"""Answers that were given before, found by one dump and one table.

Rule 1: the table is keyed by the fast writer's text. A text stands for one JSON value, so a
        request with a text that is in the table means what a recorded request meant; only NaN,
        which the fast writer turns into null, could pass for something else, and is looked for.
Rule 2: whatever the fast writer cannot say is simply not found here.
Rule 3: an answer that was given stays the same for the run, whatever others append.

Knows nothing of tapes or modes.
"""

from collections.abc import Iterator
from itertools import count

from tapes.canonical import DictCanonicalizer
from tapes.jsontext import Copies, Json, fast_canonical, has_unwritable_float, trimmed
from tapes.report import Report

# What requests and answers may take in memory together; beyond it the tape is asked again.
LIMIT_BYTES = 32 * 1024 * 1024
# What an entry takes beside the two texts: their objects, the entry, its key, a place in the table.
_ENTRY = 512
# No answer, as opposed to one that is None.
NOT_HOT: Json = object()


class _Entry:
    __slots__ = ("copies", "counted", "key", "request_has_null", "tick")

    def __init__(self, copies: Copies, key: str, request_has_null: bool) -> None:
        self.copies = copies
        self.key = key
        self.request_has_null = request_has_null
        self.tick = count().__next__  # counts without a lock, from many threads
        self.counted = 0


class HotAnswers:
    """A bounded table of answers by the text of their request."""

    def __init__(self, canonicalizer: DictCanonicalizer, report: Report) -> None:
        self._canonicalizer = canonicalizer
        self._leaves_out = canonicalizer.leaves_out
        self._report = report
        self._entries: dict[bytes | None, _Entry] = {}  # None is never there
        self._size = 0
        report.pending = self._served

    def answer(self, request: Json) -> Json:
        """A fresh copy of the answer that this request was given before, or NOT_HOT."""
        entry = self._entries.get(self._text(request))
        if entry is None or (entry.request_has_null and has_unwritable_float(request)):
            return NOT_HOT
        entry.tick()
        return entry.copies.one()

    def _text(self, request: Json) -> bytes | None:
        if type(request) is not dict:
            return None
        if not self._leaves_out.isdisjoint(request):
            request = self._canonicalizer.identity(request)
        return fast_canonical(request)

    def add(self, request: dict[str, Json], key: str, copies: Copies) -> None:
        """Remember an answer to a request that has this key as it is."""
        text = self._text(request)
        if text is None or text in self._entries:
            return
        text, copies = trimmed(text), copies.trimmed()
        size = len(text) + len(copies.text) + _ENTRY
        if self._size + size > LIMIT_BYTES:
            self.clear()
        self._size += size
        self._entries[text] = _Entry(copies, key, b"null" in text)

    def clear(self) -> None:
        """Forget all answers."""
        self._report.take_in()
        self._entries.clear()
        self._size = 0

    def _served(self) -> Iterator[tuple[str, int]]:
        """How often each answer was given since the last time that the report asked."""
        for entry in list(self._entries.values()):
            served = entry.tick() - entry.counted
            entry.counted += served + 1  # looking counts as well
            if served:
                yield entry.key, served
