"""One live call per key: who else asks meanwhile waits for its answer.

Within a process a table knows who is under way; between processes a lock on one byte of a lock
file does, which the system lets go when its holder dies. Whoever would have to wait for itself
does not wait.

Knows nothing of tapes or calls.
"""

import asyncio
import errno
import fcntl
import os
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

# A call that takes longer than this is not waited for: a second live call is better than a hang.
PATIENCE_S = 600.0
_BYTES = 1 << 62


@dataclass(slots=True)
class Flight:
    """The right to make the live call for a key, until `land`."""

    key: str
    _flights: "Flights | None" = None
    owner: object = None
    since: float = field(default_factory=time.monotonic)

    def land(self) -> None:
        """The call is over, whatever came of it. A second time does nothing."""
        if self._flights is not None:
            self._flights._land(self)
            self._flights = None


class Flights:
    """Which keys have a live call under way."""

    def __init__(self, lock_path: Path | None) -> None:
        self._lock_path = lock_path
        self._mutex = threading.Lock()
        self._under_way: dict[str, Flight] = {}
        self._fd = -1
        self._pid = -1

    def take(self, key: str, owner: object = None) -> Flight | None:
        """The flight for a key, or None while somebody else has it.

        `owner` is who asks, and must not wait for itself: the task or thread, if it is not said.
        """
        owner = owner or _who()
        with self._mutex:
            other = self._under_way.get(key)
            if other is not None:
                late = time.monotonic() - other.since > PATIENCE_S
                return Flight(key) if late or other.owner == owner else None
            if not self._lock(key):
                return None
            flight = self._under_way[key] = Flight(key, self, owner)
            return flight

    def _land(self, flight: Flight) -> None:
        with self._mutex:
            if self._under_way.get(flight.key) is flight:
                del self._under_way[flight.key]
                self._unlock(flight.key)

    def _lock(self, key: str) -> bool:
        fd = self._file()
        if fd < 0:
            return True
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _byte(key))
        except OSError as error:
            # A file system without locks: within this process the table still holds.
            return error.errno not in (errno.EACCES, errno.EAGAIN)
        return True

    def _unlock(self, key: str) -> None:
        if self._fd >= 0 and self._pid == os.getpid():
            fcntl.lockf(self._fd, fcntl.LOCK_UN, 1, _byte(key))

    def _file(self) -> int:
        """The lock file, one descriptor a process: closing any would free all its locks."""
        if self._pid != os.getpid():
            self._pid, self._fd = os.getpid(), -1
            self._under_way.clear()
            if self._lock_path is not None:
                try:
                    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
                    self._fd = os.open(self._lock_path, flags, 0o644)
                except OSError:
                    self._fd = -1
        return self._fd


_shared: dict[str, Flights] = {}
_shared_mutex = threading.Lock()


def flights_of(lock_path: Path) -> Flights:
    """The flights of a lock file: one object a process, however many cassettes share the tape."""
    with _shared_mutex:
        return _shared.setdefault(os.path.abspath(lock_path), Flights(lock_path))


def _byte(key: str) -> int:
    return int(key[:16], 16) % _BYTES


def _who() -> object:
    """The task or thread that asks: it must not wait for itself."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return (threading.get_ident(), id(task) if task else None)
