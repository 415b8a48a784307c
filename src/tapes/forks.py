"""What is open when the process forks: both sides go on, and neither harms the other.

A lock that another thread holds at that moment is never let go in the child, and a file lock
belongs to both processes as long as one of them has the file open. So what asks for it is brought
to rest before the fork, and in the child it begins with locks and files of its own.

Knows nothing of tapes.
"""

import os
import threading
import weakref
from typing import Protocol


class Forkable(Protocol):
    """What can be brought to rest."""

    def before_fork(self) -> None:
        """Wait until nothing is half done, and let nobody begin."""
        ...

    def after_fork(self) -> None:
        """Go on, in the parent."""
        ...

    def in_child(self) -> None:
        """Begin anew, in the child: other threads are gone."""
        ...


_mutex = threading.RLock()
_open: "weakref.WeakSet[Forkable]" = weakref.WeakSet()
_resting: list[Forkable] = []


def bring_through_forks(thing: Forkable) -> None:
    """Do so as long as it exists."""
    with _mutex:
        _open.add(thing)


def _before() -> None:
    _mutex.acquire()
    _resting[:] = list(_open)
    for thing in _resting:
        thing.before_fork()


def _after() -> None:
    for thing in reversed(_resting):
        thing.after_fork()
    _resting.clear()
    _mutex.release()


def _in_child() -> None:
    global _mutex
    _mutex = threading.RLock()
    for thing in _resting:
        thing.in_child()
    _resting.clear()


os.register_at_fork(before=_before, after_in_parent=_after, after_in_child=_in_child)
