"""Sums over very many rows, given again for a while: to ask often costs a bounded share.

Knows nothing of what is summed.
"""

import threading
import time
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Sum = TypeVar("Sum")

# Sums over fewer rows are always of now.
MANY = 100_000
# A sum is given again for so many times as long as it took: a twentieth of a processor.
_TIMES = 20
_MOST = 64


class Lately(Generic[Sum]):
    """Sums by what was asked. Safe to use from many threads: who asks meanwhile waits."""

    def __init__(self, rows: Callable[[Sum], int]) -> None:
        self._rows = rows
        self._mutex = threading.Lock()
        self._known: dict[Hashable, tuple[float, Sum]] = {}

    def of(self, asked: Hashable, ask: Callable[[], Sum]) -> Sum:
        """The sum of now, or, over many rows, of lately."""
        with self._mutex:
            known = self._known.pop(asked, None)
            began = time.monotonic()
            if known is None or known[0] < began:
                answer = ask()
                known = time.monotonic() * (_TIMES + 1) - began * _TIMES, answer
            if self._rows(known[1]) > MANY:
                self._known[asked] = known
                if len(self._known) > _MOST:
                    del self._known[next(iter(self._known))]
            return known[1]

    def forget(self) -> None:
        """Something was erased."""
        with self._mutex:
            self._known.clear()
