"""One live call per key: who else asks meanwhile waits for its answer.

Within a process a table knows who is under way; between processes a lock on one byte of a lock
file does, which the system lets go when its holder dies. Whoever would have to wait for itself
does not wait. While no call is under way the file is not open: a process may see many tapes.

Knows nothing of tapes or calls.
"""

import errno
import fcntl
import os
import sys
import threading
import weakref
from dataclasses import dataclass
from pathlib import Path

# A call that takes longer than this is not waited for: a second live call is better than a hang.
PATIENCE_S = 600.0
_BYTES = 1 << 62


@dataclass(frozen=True, slots=True)
class _Caller:
    """The thread and the task that asked."""

    thread: int
    task: int | None


@dataclass(slots=True)
class Flight:
    """The right to make the live call for a key, until `land`."""

    key: str
    _flights: "Flights | None" = None
    _owner: object = None

    def land(self) -> None:
        """The call is over, whatever came of it. A second time does nothing."""
        if self._flights is not None:
            self._flights._land(self)
            self._flights = None

    @property
    def is_of_this_thread(self) -> bool:
        """Whether this thread made the call: then it cannot block until the call is over."""
        return isinstance(self._owner, _Caller) and self._owner.thread == threading.get_ident()

    def is_of(self, owner: object) -> bool:
        """Whether this very task, thread without tasks, or exchange of a server made the call."""
        return self._owner == owner


class Flights:
    """Which keys have a live call under way."""

    def __init__(self, lock_path: Path | None) -> None:
        self._lock_path = lock_path
        self._mutex = threading.Lock()
        self._under_way: dict[str, Flight] = {}
        self._fd = -1
        _all.add(self)

    def begin_in_child(self) -> None:
        """After a fork: the calls under way are the parent's, and so are the locks."""
        self._mutex = threading.Lock()
        self._under_way.clear()
        self._fd = -1

    def take(self, key: str, owner: object = None) -> Flight | None:
        """The flight for a key, or None while somebody else has it.

        `owner` is who asks, and must not wait for itself: the task or thread, if it is not said.
        """
        owner = owner or _who()
        with self._mutex:
            other = self._under_way.get(key)
            if other is not None:
                return Flight(key) if other.is_of(owner) else None
            if not self._lock(key):
                self._close()
                return None
            flight = self._under_way[key] = Flight(key, self, owner)
            return flight

    def is_of_this_thread(self, key: str) -> bool:
        """Whether the call for a key was made by a task of this very thread."""
        other = self._under_way.get(key)
        return other is not None and other.is_of_this_thread

    def _land(self, flight: Flight) -> None:
        with self._mutex:
            if self._under_way.get(flight.key) is flight:
                del self._under_way[flight.key]
                self._unlock(flight.key)
                self._close()

    def _lock(self, key: str) -> bool:
        if not self._open():
            return True  # no lock file can be had: within this process the table still holds
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte(key))
        except OSError as error:
            # Held by another process; or a file system without locks.
            return error.errno not in (errno.EACCES, errno.EAGAIN)
        return True

    def _unlock(self, key: str) -> None:
        if self._fd >= 0:
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, _byte(key))

    def _close(self) -> None:
        if self._fd >= 0 and not self._under_way:
            fd, self._fd = self._fd, -1
            os.close(fd)

    def _open(self) -> bool:
        """Open the lock file, one descriptor a process: closing any would free all its locks."""
        if self._fd < 0 and self._lock_path is not None:
            try:
                flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                self._fd = os.open(self._lock_path, flags, 0o644)
            except OSError:
                return False
        return self._fd >= 0


_all: "weakref.WeakSet[Flights]" = weakref.WeakSet()


def _begin_in_child() -> None:
    global _shared_mutex
    _shared_mutex = threading.Lock()
    for flights in list(_all):
        flights.begin_in_child()


os.register_at_fork(after_in_child=_begin_in_child)

# Whoever has a flight has its flights: those that nobody has may go.
_shared: "weakref.WeakValueDictionary[str, Flights]" = weakref.WeakValueDictionary()
_shared_mutex = threading.Lock()


def flights_of(lock_path: Path) -> Flights:
    """The flights of a lock file: one object a process, however many cassettes share the tape."""
    with _shared_mutex:
        return _shared.setdefault(os.path.realpath(lock_path), Flights(lock_path))


def _byte(key: str) -> int:
    return int(key[:16], 16) % _BYTES


def _who() -> _Caller:
    """The task or thread that asks: it must not wait for itself."""
    asyncio = sys.modules.get("asyncio")  # a program with tasks has loaded it
    try:
        task = None if asyncio is None else asyncio.current_task()
    except RuntimeError:
        task = None
    return _Caller(threading.get_ident(), id(task) if task else None)
