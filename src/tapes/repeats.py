"""Several answers to one request: samples by number, and groups in which order tells.

By default a recorded answer is reused. Whoever samples one prompt three times, or polls, says so.
An error that was kept by choice is answered once a run: the next try gets what came after it.
Knows nothing of tapes.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from tapes.errors import BadSetting

Value = TypeVar("Value")

# How many contexts are open in this process: while there are none, nobody has to look for them.
in_use = 0
_lock = threading.Lock()


def _in_child() -> None:
    """After a fork: whoever held it is the parent's."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_in_child)


_ordered: ContextVar["Order | None"] = ContextVar("tapes_ordered", default=None)
_sample: ContextVar[int | None] = ContextVar("tapes_sample", default=None)


class Order:
    """How often each request was made so far in an ordered group of calls."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def next(self, key: str) -> int:
        """The sample number of this request's next call."""
        with _lock:
            number = self._counts.get(key, 0)
            self._counts[key] = number + 1
            return number

    def give_back(self, key: str, sample: int) -> None:
        """The call came to nothing; its number is free for the next try."""
        with _lock:
            if self._counts.get(key) != sample + 1:
                return
            self._counts[key] = sample
            if not sample:
                del self._counts[key]


class Errors:
    """How many kept errors each request was given so far in this run."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def before(self, key: str) -> int:
        """How many errors came before this request's next try: the number of its sample."""
        return self._counts.get(key, 0)

    def gave(self, key: str, sample: int) -> None:
        """The sample of this number is an error and was given."""
        with _lock:
            self._counts[key] = max(self._counts.get(key, 0), sample + 1)


@contextmanager
def ordered() -> Iterator[None]:
    """In this context, equal requests are different calls, answered in their recorded order."""
    with _chosen(_ordered, Order()):
        yield


@contextmanager
def sample(number: int) -> Iterator[None]:
    """In this context, every request is the sample of this number (0 is the usual one)."""
    with _chosen(_sample, required_sample(number)):
        yield


def required_sample(number: int) -> int:
    """The number of a sample, as it was given. Raises BadSetting where it is none."""
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise BadSetting(f"a sample number is 0 or more, not {number!r}", "the third one: sample=2")
    return number


@contextmanager
def _chosen(variable: ContextVar[Value | None], value: Value) -> Iterator[None]:
    global in_use
    with _lock:
        in_use += 1
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
        with _lock:
            in_use -= 1


def chosen_order() -> Order | None:
    """The ordered group that this context is in."""
    return _ordered.get()


def chosen_sample() -> int | None:
    """The sample number that this context asks for."""
    return _sample.get()
