"""A few numbers a recording, by which those that are like a request are found without reading them.

A sketch is 80 bytes: the recording's key, and hashes of what it says: of some of its leaves, of
its last text, of some of that text's words. Always those with the smallest hashes are kept, so
that two requests that share most of what they say share most of their numbers. They lie in a file
beside a large tape, are appended after each recording, and are looked through all at once.

Rule 1: sketches are a help, never a source. Whoever is led to a recording reads it from the tape.
Rule 2: nothing waits for them: no lock, no sync. What is missing or broken is made again when
        somebody looks for it, and finds the tape newer than its sketches.
Rule 3: a small tape has none: reading it whole is as fast.

Knows nothing of requests beyond their leaves.
"""

import contextlib
import logging
import os
import stat
import struct
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, repeat
from pathlib import Path
from typing import TypeVar
from zlib import crc32

from tapes.jsontext import Json
from tapes.tape.base import Tape
from tapes.tape.beside import make_local

log = logging.getLogger(__name__)

Taken = TypeVar("Taken")

_LEAVES, _WORDS = 4, 6
_PARTS = _LEAVES + 1 + _WORDS
_ROW = struct.Struct(f"=32s{_PARTS}II")  # the key, the hashes, the checksum of both
_FIRST = 32 // 4  # where the hashes begin, in numbers
_ACROSS = _ROW.size // 4
# A tape of that size is read whole within the patience of whoever looks for something.
_LARGE = 1024 * 1024
# What a name in a directory tape stands for: the size of a recording, roughly.
_NAME = 8 * 1024
# So many of the latest are looked through, so that memory and time stay bounded.
MOST = 400_000
_SAMPLE = 2_000
# What is read of a long text, at its begin and at its end.
_READ = 512
_AT_ONCE = 32
_UNMADE = 512
# What a shared hash is worth, by how many of the recordings have it.
_WORTH = ((0.5, 1), (0.05, 3), (0.005, 8))
_WORTH_OF_RARE = 20


def parts_of(leaves: Mapping[str, Json]) -> tuple[int, ...]:
    """The hashes of a sketch."""
    hashes, words, whole = _hashes(leaves)
    chosen = [*sorted(hashes)[:_LEAVES], whole, *sorted(words)[:_WORDS]]
    return (*chosen, *repeat(0, _PARTS - len(chosen)))


def _hashes(leaves: Mapping[str, Json]) -> tuple[set[int], set[int], int]:
    """Hashes of all leaves, of the words of the last text, and of that text."""
    hashes = {
        crc32(_bytes(place), crc32(_bytes(value)))
        for place, value in leaves.items()
        if value is not None
    }
    data = _bytes(_last_text(leaves))
    read = data if len(data) <= 2 * _READ else data[:_READ] + data[-_READ:]
    return hashes, set(map(crc32, set(read.split()))), crc32(data)


def _bytes(value: Json) -> bytes:
    text = value if isinstance(value, str) else repr(value)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def _last_text(leaves: Mapping[str, Json]) -> str:
    """What is said last in a conversation; else the longest text."""
    longest = ""
    for place in reversed(list(leaves)):
        value = leaves[place]
        if not isinstance(value, str):
            continue
        if place.startswith(_SAID) and not place.endswith(_ABOUT):
            return value
        if len(value) > len(longest):
            longest = value
    return longest


_SAID = ("messages", "input", "contents", "prompt")
_ABOUT = (".role", ".type", "_id", ".id", ".name")


class Sketches:
    """The sketches beside one tape. Safe to use from many threads."""

    def __init__(self, tape: Tape) -> None:
        local = tape.local
        self._file = None if local is None else local / f"{tape.name}.sketches.index"
        self._tape_file = None if local is None else local.parent / tape.name
        self._began_empty = not self._size()
        self._rows: memoryview | None = None
        # Whoever makes a sketch of it, and what was made.
        self._unmade: deque[tuple[str, Callable[[], Mapping[str, Json]]]] = deque()
        self._pending: deque[bytes] = deque()
        self._is_complete = self._has_written = False

    def _size(self) -> int:
        """The size of the tape; in a folder, of the list of its names."""
        if self._tape_file is None:
            return 0
        try:
            status = os.stat(self._tape_file)
        except OSError:
            return 0
        if not stat.S_ISDIR(status.st_mode):
            return status.st_size
        with os.scandir(self._tape_file) as names:
            return sum(_NAME for _ in islice(names, _LARGE // _NAME))

    @property
    def are_kept(self) -> bool:
        """Whether the tape is so large that it has sketches."""
        return self._has_written or self._size() >= _LARGE

    # --- keeping

    def add(self, key: str, leaves: Callable[[], Mapping[str, Json]]) -> None:
        """Keep the sketch of a recording before long, if the tape is large or becomes so.

        Waits for no disk: that is for `flush_some`. `leaves` is asked for them now or later, so
        what it knows must not change.
        """
        if self._has_written:
            self._pending.append(row_of(key, leaves()))
        elif self._file is not None:
            self._unmade.append((key, leaves))

    def flush_some(self) -> None:
        """Keep what was added, once it is enough to be worth it."""
        if len(self._unmade) + len(self._pending) >= _AT_ONCE:
            self.flush()
        if len(self._unmade) >= _UNMADE:  # a small tape whose recordings replace each other
            self._make()

    def flush(self) -> None:
        """Keep what was added."""
        if (self._unmade or self._pending) and self.are_kept:
            self._make()
            self.add_rows(list(_taken(self._pending)))

    def _make(self) -> None:
        self._pending.extend(row_of(key, leaves()) for key, leaves in _taken(self._unmade))

    def settle(self) -> None:
        """Keep what was added, once the tape is closed."""
        self.flush()
        if self._has_written:
            self._touch()

    def add_rows(self, rows: Iterable[bytes]) -> None:
        """Keep sketches that were made; a folder that cannot be written has none."""
        if self._file is None:
            return
        data = b"".join(rows)
        try:
            make_local(self._file.parent)
            # Opened each time: a tape may have many writers, and this file may be deleted.
            fd = os.open(self._file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                size = os.fstat(fd).st_size
                if not size or size % _ROW.size:  # a writer was stopped in the middle
                    os.ftruncate(fd, 0)
                    is_all = self._began_empty and not self._has_written
                    data = _state_row(is_all) + data
                os.write(fd, data)
                self._has_written = True
            finally:
                os.close(fd)
        except OSError as error:
            log.debug("sketch not kept", extra={"file": str(self._file), "error": str(error)})

    def mark_complete(self) -> None:
        """Nothing on the tape is without a sketch at this moment."""
        if self._file is None:
            return
        with contextlib.suppress(OSError):
            fd = os.open(self._file, os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.pwrite(fd, _state_row(True), 0)
            finally:
                os.close(fd)
        self._touch()

    def _touch(self) -> None:
        with contextlib.suppress(OSError):
            if self._file is not None:
                os.utime(self._file)

    # --- looking

    @property
    def are_complete(self) -> bool:
        """Whether every recording has one, as far as the state and the times of the files tell."""
        if not self._is_complete or self._file is None or self._tape_file is None:
            return False
        try:
            return self._file.stat().st_mtime_ns >= self._tape_file.stat().st_mtime_ns
        except OSError:
            return False

    def load(self) -> int:
        """Read what is kept; gives how many there are."""
        data = b"" if self._file is None else _tail_of(self._file)
        if not _is_sound(data) and self._file is not None:
            data = b""
            with contextlib.suppress(OSError):
                self._file.unlink()
        self._is_complete = self._file is not None and _state_of(self._file)
        self._rows = memoryview(data).cast("I")
        return len(data) // _ROW.size

    def keys(self) -> set[str]:
        """The keys that have a sketch."""
        assert self._rows is not None
        data = self._rows.obj
        assert isinstance(data, bytes)
        text = data.hex()
        return {text[at : at + 64] for at in range(0, len(text), 2 * _ROW.size)}

    def nearest(self, leaves: Mapping[str, Json], count: int) -> list[str]:
        """The keys of recordings that share most with a request; the later of equals first."""
        rows = self._rows
        assert rows is not None
        total = len(rows) // _ACROSS
        hashes, words, whole = _hashes(leaves)
        worth = _worth(rows, {*hashes, *words, whole} - {0}, total)
        points = 0
        for column in range(_FIRST, _FIRST + _PARTS):
            found = bytes(map(worth.get, rows[column::_ACROSS], repeat(0)))
            points += int.from_bytes(found, "little")  # each recording's sum in a byte of its own
        scores = points.to_bytes(total, "little")
        return list(self._best(scores, count))

    def _best(self, scores: bytes, count: int) -> Iterator[str]:
        seen = set[str]()
        for score in sorted(set(scores) - {0}, reverse=True):
            wanted, at = bytes((score,)), len(scores)
            while (at := scores.rfind(wanted, 0, at)) >= 0:
                key = self._key_at(at)
                if key is not None and key not in seen:
                    seen.add(key)
                    yield key
                if len(seen) == count:
                    return

    def _key_at(self, number: int) -> str | None:
        assert self._rows is not None
        data = self._rows.obj
        assert isinstance(data, bytes)
        row = data[number * _ROW.size : (number + 1) * _ROW.size]
        return row[:32].hex() if _is_whole(row) else None


def _taken(some: deque[Taken]) -> Iterator[Taken]:
    """What is in it, taken out: by one thread where several look."""
    while some:
        try:
            yield some.popleft()
        except IndexError:
            return


def row_of(key: str, leaves: Mapping[str, Json]) -> bytes:
    """A recording's sketch as it lies in the file."""
    head = struct.pack(f"=32s{_PARTS}I", bytes.fromhex(key), *parts_of(leaves))
    return head + struct.pack("=I", crc32(head))


def _state_row(is_complete: bool) -> bytes:
    """The first row of a file: whether every recording of that moment had a sketch."""
    head = struct.pack(f"=32s{_PARTS}I", b"", is_complete, *repeat(0, _PARTS - 1))
    return head + struct.pack("=I", crc32(head))


def _state_of(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            return opened.read(_ROW.size) == _state_row(True)
    except OSError:
        return False


def _is_whole(row: bytes) -> bool:
    return crc32(row[:-4]) == int.from_bytes(row[-4:], sys.byteorder)


def _is_sound(data: bytes) -> bool:
    """Whether some of the rows, from all over the file, are what was written."""
    step = max(1, len(data) // _ROW.size // 64) * _ROW.size
    return all(_is_whole(data[at : at + _ROW.size]) for at in range(0, len(data), step))


def _tail_of(file: Path) -> bytes:
    """The latest of the rows in a file, whole ones only."""
    try:
        with file.open("rb") as opened:
            count = os.fstat(opened.fileno()).st_size // _ROW.size
            opened.seek(max(1, count - MOST) * _ROW.size)
            return opened.read(min(max(0, count - 1), MOST) * _ROW.size)
    except OSError:
        return b""


def _worth(rows: memoryview, wanted: set[int], total: int) -> dict[int, int]:
    """What each wanted hash is worth: the rarer it is, the more it says."""
    step = max(1, total // _SAMPLE) * _ACROSS
    looked_at = max(1, len(range(0, len(rows), step)))
    seen = Counter[int]()
    for column in range(_FIRST, _FIRST + _PARTS):
        seen.update(filter(wanted.__contains__, rows[column::step]))
    return {
        part: next((w for share, w in _WORTH if seen[part] / looked_at > share), _WORTH_OF_RARE)
        for part in wanted
    }
