"""One writer after another, in this process and among all processes that write to one file.

SQLite lets one write at a time. Who waits for it by asking again and again may wait for ever; here
whoever waits sleeps until it is his turn, and is woken by whoever goes.

Knows nothing of databases.
"""

import fcntl
import os
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager


class Turnstile:
    """Lets one through at a time. The lock file lies beside the file that it is for."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._mutex = threading.Lock()
        self._file = -1
        self._closes = False
        _all.add(self)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """It is this thread's turn as long as this lasts. Raises OSError."""
        with self._mutex:
            if self._file < 0:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            self._closes = False
            try:
                yield
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)
                if self._closes:
                    self._let_go()

    def close(self) -> None:
        """Let go of the lock file, at the end of the turn that somebody may have. Never waits."""
        self._closes = True
        if self._mutex.acquire(blocking=False):
            try:
                self._let_go()
            finally:
                self._mutex.release()

    def _let_go(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def in_child(self) -> None:
        """After a fork: the parent's lock is the parent's, and must not live on in this process."""
        self._mutex = threading.Lock()
        self._let_go()


_all: "weakref.WeakSet[Turnstile]" = weakref.WeakSet()


def _in_child() -> None:
    for turnstile in list(_all):
        turnstile.in_child()


os.register_at_fork(after_in_child=_in_child)


@contextmanager
def first_of_all(path: str) -> Iterator[bool]:
    """Whether nobody else holds this file's lock; it is held as long as this lasts."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
            return
        yield True
    finally:
        os.close(file)
