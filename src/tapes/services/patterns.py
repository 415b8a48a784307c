"""Regular expressions as the contract reads them: RE2, which never backtracks.

Rule 1: a pattern is what RE2 compiles. Python's `re` takes lookaround, backreferences and
        exponential time, all of which a hostile document would use.
Rule 2: compiling is bounded: by the length of a pattern, by the memory of one, and by the work
        for all patterns of a document together. Matching takes no more than the size of a program
        for each character; whoever matches bounds the product.

Knows nothing of schemas.  Pure.
"""

from dataclasses import dataclass
from typing import Any

import re2

MAX_LENGTH = 64 * 1024
# Each names some 700 ranges of characters, before anything bounds what the compiler takes.
MAX_UNICODE_CLASSES = 100
# Work is counted in instructions of compiled programs, each about a microsecond.
MAX_WORK = 400_000
_TOO_LARGE = "pattern too large"
_WORK_OF_ONE = 20
_WORK_OF_UNICODE_CLASS = 200
_WORK_OF_TOO_LARGE = 1_500
_READ_MEMORY = 256 * 1024
_RUN_MEMORY = 2 * 1024 * 1024
_REASON_LENGTH = 100


def _options(memory: int) -> Any:
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = memory
    return options


_READ = _options(_READ_MEMORY)
_RUN = _options(_RUN_MEMORY)


class Patterns:
    """The patterns of one document: each is judged once, all within one allowance of work."""

    def __init__(self, work: int = MAX_WORK) -> None:
        self._work = work
        self._judged: dict[tuple[str, bool], str | None] = {}

    def fault(self, pattern: str, *, runs: bool = False) -> str | None:
        """Why the pattern does not compile, or None. One that runs here must be small as well."""
        if (pattern, runs) not in self._judged:
            self._judged[pattern, runs] = self._judge(pattern, runs)
        return self._judged[pattern, runs]

    def _judge(self, pattern: str, runs: bool) -> str | None:
        classes = pattern.count("\\p") + pattern.count("\\P")
        if len(pattern) > MAX_LENGTH or classes > MAX_UNICODE_CLASSES:
            return "the pattern is too long, or names too many Unicode classes"
        if self._work <= 0:
            return "the patterns of the document take too long to compile"
        self._work -= _WORK_OF_ONE + len(pattern) + classes * _WORK_OF_UNICODE_CLASS
        try:
            compiled = re2.compile(pattern, _RUN if runs else _READ)
        except re2.error as error:
            reason = error.args[0].decode("utf-8", "replace")[:_REASON_LENGTH]
            if not reason.startswith(_TOO_LARGE):
                return f"not a pattern of RE2: {reason}"
            self._work -= _WORK_OF_TOO_LARGE
            # Otherwise its syntax is sound, and nobody here will run it.
            return f"{_TOO_LARGE} to be run here" if runs else None
        self._work -= compiled.programsize
        return None


@dataclass(frozen=True, slots=True)
class Program:
    """A pattern that was judged, made ready to run."""

    _compiled: Any

    @property
    def size(self) -> int:
        """Its instructions: what compiling it cost, and at most what one character costs."""
        found: int = self._compiled.programsize
        return found

    def is_found_in(self, text: str) -> bool:
        """Whether the pattern is found anywhere in the text."""
        return self._compiled.search(text) is not None


def program_of(pattern: str) -> Program:
    """The program of a pattern that was judged as one that runs."""
    return Program(re2.compile(pattern, _RUN))
