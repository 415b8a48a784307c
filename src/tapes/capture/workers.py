"""Threads that do what the loop must not wait for, and tell the loop what came of it.

Like an executor, without its futures: a piece of work costs two queue operations, and the loop is
woken once for all that is done.
"""

import asyncio
import contextlib
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from tapes.errors import CassetteError, TapesError

Result = TypeVar("Result")
_Work = tuple[Callable[[], Any], Callable[[Any], None]]


class Workers:
    """Some threads, started when they are first needed. To be made on the loop that they tell."""

    def __init__(self, threads: int, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._name = name
        self._most = threads
        self._threads: list[threading.Thread] = []
        self._todo: queue.SimpleQueue[_Work | None] = queue.SimpleQueue()
        self._starting = threading.Lock()
        self._is_closing = False
        self._open = 0  # how much was given and has not been told; the loop's own
        self._done: deque[Callable[[], object]] = deque()
        self._is_called = False

    def do(
        self,
        work: Callable[[], Result],
        then: Callable[[Result | CassetteError | Exception], None],
    ) -> None:
        """Do the work in a thread; `then` runs on the loop with its result or what it raised."""
        self._open += 1
        if self._open > len(self._threads) < self._most:
            self._start()
        self._todo.put((work, then))

    def _start(self) -> None:
        with self._starting:
            if not self._is_closing:
                name = f"{self._name} {len(self._threads) + 1}"
                thread = threading.Thread(target=self._run, name=name, daemon=True)
                thread.start()
                self._threads.append(thread)

    def _run(self) -> None:
        while (item := self._todo.get()) is not None:
            self._work_on(*item)

    def _work_on(self, work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self.tell(partial(self._finished, then, outcome_of(work)))

    def tell(self, what: Callable[[], object]) -> None:
        """Have this called on the loop, before what is told later. From any thread."""
        self._done.append(what)
        self._call()

    def _call(self) -> None:
        if not self._is_called:
            self._is_called = True
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody to be told
                self._loop.call_soon_threadsafe(self._tell)

    def _finished(self, then: Callable[[Any], None], result: Any) -> None:
        self._open -= 1
        then(result)

    def _tell(self) -> None:
        # First, so that whoever is done after the last look calls again.
        self._is_called = False
        try:
            while self._done:
                self._done.popleft()()
        finally:
            if self._done:  # one failed: the others are told all the same
                self._call()

    def close(self, patience_s: float) -> bool:
        """Let the threads finish what they were given, and go. Not for the loop: it waits.

        Says whether they all went in time.
        """
        until = time.monotonic() + patience_s
        with self._starting:
            self._is_closing = True
        for _ in self._threads:
            self._todo.put(None)
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            return False
        with contextlib.suppress(queue.Empty):  # what came when they were about to go
            while True:
                item = self._todo.get_nowait()
                if item is not None:
                    self._work_on(*item)
        return True


def outcome_of(work: Callable[[], Result]) -> Result | CassetteError | Exception:
    """What a piece of work gives or raises: a refusal must not travel through the loop."""
    try:
        return work()
    except (CassetteError, Exception) as error:  # noqa: BLE001  # handed on as a value
        return error


def log_failure(log: logging.Logger, what: str, error: BaseException) -> None:
    """Write down what failed: an error of ours says all there is to say, others say where."""
    is_ours = isinstance(error, CassetteError | TapesError)
    log.error("%s: %s", what, error, exc_info=None if is_ours else error)
