"""Answers that were given before, by the bytes of their request.

Rule 1: the same head and the same body have the same answer, as long as their tape is the same.
Rule 2: whether it is, is looked at every LOOK_S: the files of the tape are the same to the nano
        second and the byte, or what was remembered of it is decided anew. A tape that is no file
        is believed for BELIEVED_S; so is a folder, whose answers may be edited where they lie.
"""

import os
import stat
import time
from dataclasses import dataclass

from tapes.capture.recent import Recent
from tapes.cassette import Cassette

LOOK_S = 0.05
BELIEVED_S = 1.0
_LIMIT = 24 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Given:
    """An answer that was given before."""

    data: bytes
    keeps_alive: bool
    key: str
    cassette: Cassette
    stamp: object


class _Look:
    """What was last seen of one tape's files."""

    __slots__ = ("at", "stamp")

    def __init__(self) -> None:
        self.at = 0.0
        self.stamp: object = None


class Memo:
    """The answers that one proxy remembers."""

    def __init__(self) -> None:
        self._given: Recent[bytes, Given] = Recent(_LIMIT)
        self._looks: dict[str, _Look] = {}

    def find(self, digest: bytes) -> Given | None:
        """The answer to a request with this digest, if its tape is what it was."""
        given = self._given.find(digest)
        if given is None:
            return None
        return given if given.stamp == self.stamp(given.cassette) else None

    def stamp(self, cassette: Cassette) -> object:
        """What tells the state of a tape from a later one. To be taken before it is asked."""
        path = cassette.tape.path
        look = self._looks.get(path)
        if look is None:
            look = self._looks[path] = _Look()
        now = time.monotonic()
        if now - look.at > LOOK_S:
            look.at, look.stamp = now, _stamp_of(path, now)
        return look.stamp

    def add(self, digest: bytes, given: Given) -> None:
        """Remember an answer; its stamp is the one that its tape had before it was asked."""
        self._given.add(digest, given, len(given.data) + 200)

    def forget(self) -> None:
        """Forget everything: tapes were let go."""
        self._given.clear()
        self._looks.clear()


def _stamp_of(path: str, now: float) -> object:
    parts: list[tuple[int, int, int]] = []
    is_file = False
    for name in (path, f"{path}-wal"):  # a database has its latest rows in a file beside it
        try:
            status = os.stat(name)
        except OSError:
            continue
        parts.append((status.st_mtime_ns, status.st_size, status.st_ino))
        is_file = is_file or stat.S_ISREG(status.st_mode)
    return tuple(parts) if is_file else (*parts, int(now / BELIEVED_S))
