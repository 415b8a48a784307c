"""Answers that were given before, found by one dump, one hash and one table.

Rule 1: the text that is hashed is the fast writer's. If its key is in the table, it is the
        canonical text of a recorded request to the byte, so the request means the same; only
        NaN, which the fast writer turns into null, could pass for something else.
Rule 2: whatever the fast writer cannot say is simply not found here.

Knows nothing of tapes or modes.
"""

from dataclasses import dataclass
from hashlib import sha256

from tapes.canonical import DictCanonicalizer
from tapes.jsontext import Copies, Json, fast_canonical, has_unwritable_float
from tapes.report import Report

# What hot answers may take in memory together; beyond it they are read from the tape again.
LIMIT_BYTES = 32 * 1024 * 1024


@dataclass(slots=True)
class _Entry:
    copies: Copies
    key: str
    request_has_null: bool
    hits: int = 0


class HotAnswers:
    """A bounded table of answers by the key of their request."""

    def __init__(self, canonicalizer: DictCanonicalizer, report: Report) -> None:
        self._canonicalizer = canonicalizer
        self._leaves_out = canonicalizer.leaves_out
        self._report = report
        self._entries: dict[bytes, _Entry] = {}
        self._size = 0

    def find(self, request: Json) -> Copies | None:
        """The answer to a request that was answered before, or None."""
        if not isinstance(request, dict):
            return None
        if not self._leaves_out.isdisjoint(request):
            request = self._canonicalizer.identity(request)
        text = fast_canonical(request)
        entry = None if text is None else self._entries.get(sha256(text).digest())
        if entry is None or (entry.request_has_null and has_unwritable_float(request)):
            return None
        entry.hits += 1
        return entry.copies

    def add(self, request: dict[str, Json], key: str, answer: Json) -> Copies:
        """Remember an answer; not where redaction or rules changed the key of its request."""
        copies = Copies(answer)
        text = self._canonicalizer.text(request).encode("utf-8", "surrogatepass")
        raw = sha256(text).digest()
        if raw.hex() == key:
            if self._size + len(copies.text) > LIMIT_BYTES:
                self.report_hits()
                self._entries.clear()
                self._size = 0
            self._size += len(copies.text)
            self._entries[raw] = _Entry(copies, key, b"null" in text)
        return copies

    def report_hits(self) -> None:
        """Add the hits since the last time to the run's report."""
        for entry in list(self._entries.values()):
            self._report.served(entry.key, entry.hits)
            entry.hits = 0
