"""Where each key's line begins: a sorted flat table, built by one pass and kept beside the tape.

Rule 1: the table is a help, never a source. It is used only for the very file it was made from
        (size, time of change, inode) and if its own checksum holds; every line it leads to is
        checked for its key before it answers.
Rule 2: an entry is 40 bytes: the key's 32, then 8 for the offset with two marks in its top bits.
        The entries are sorted, so a later line with the same key stands behind an earlier one.
Rule 3: the pass looks at the first bytes of a line and at its end, not at what lies between.

Knows nothing of exchanges.
"""

import hashlib
import mmap
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

ENTRY = 40
# Marks in the offset: this line answers nothing (a body kept once, a stream that did not end).
NO_ANSWER = 1 << 63
_OFFSET_MASK = NO_ANSWER - 1
_MAGIC = b"tapesix2"
_HEAD = struct.Struct("<8sQqQQ32s")  # magic, size, mtime_ns, inode, lines, checksum
_BLOCK = 4 * 1024 * 1024
HEAD_SIZE = 128


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What tells one state of a file from another."""

    size: int
    mtime_ns: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> "FileStamp":
        """The stamp of a file's status."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)


def entry(key: bytes, offset: int, answers: bool) -> bytes:
    """One entry of the table."""
    return key + (offset if answers else offset | NO_ANSWER).to_bytes(8, "big")


class _Buffer(Protocol):
    def __getitem__(self, part: slice, /) -> bytes: ...
    def __len__(self) -> int: ...


class FlatIndex:
    """A sorted table of entries, in memory or mapped from a file."""

    def __init__(self, table: _Buffer, start: int = 0, lines: int = 0) -> None:
        self._table = table
        self._start = start
        self._count = (len(table) - start) // ENTRY
        self.lines = lines

    @classmethod
    def of(cls, entries: list[bytes], lines: int = 0) -> "FlatIndex":
        """A table of entries in any order."""
        entries.sort()
        return cls(b"".join(entries), lines=lines)

    def __len__(self) -> int:
        return self._count

    def find(self, key: bytes) -> int | None:
        """The offset of the last line with this key, or None."""
        place = self._last_place(key)
        if place < 0:
            return None
        at = self._start + place * ENTRY
        raw = self._table[at : at + ENTRY]
        return int.from_bytes(raw[32:], "big") & _OFFSET_MASK if raw[:32] == key else None

    def _last_place(self, key: bytes) -> int:
        """The place of the last entry whose key is not beyond this one, or -1."""
        table, start = self._table, self._start
        low, high = 0, self._count
        while low < high:
            middle = (low + high) // 2
            at = start + middle * ENTRY
            if table[at : at + 32] <= key:
                low = middle + 1
            else:
                high = middle
        return low - 1

    def answers(self) -> Iterator[bytes]:
        """Every key that has an answer, once."""
        before = b""
        for at in range(self._start, self._start + self._count * ENTRY, ENTRY):
            raw = self._table[at : at + ENTRY]
            if raw[32] < 0x80 and raw[:32] != before:
                before = raw[:32]
                yield before

    def entries(self) -> list[bytes]:
        """All entries, to be merged with others."""
        ends = range(self._start, self._start + self._count * ENTRY, ENTRY)
        return [self._table[at : at + ENTRY] for at in ends]

    def save(self, path: Path, stamp: FileStamp) -> None:
        """Write the table whole or not at all. Raises OSError."""
        table = self._table[self._start : self._start + self._count * ENTRY]
        checksum = hashlib.sha256(table).digest()
        head = _HEAD.pack(_MAGIC, stamp.size, stamp.mtime_ns, stamp.inode, self.lines, checksum)
        temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
        try:
            temporary.write_bytes(head + table)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def load_index(path: Path, stamp: FileStamp) -> FlatIndex | None:
    """The saved table of the file with this stamp, or None where there is none to be trusted."""
    try:
        with path.open("rb") as file:
            table = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError):
        return None
    if len(table) < _HEAD.size or (len(table) - _HEAD.size) % ENTRY:
        return None
    magic, size, mtime_ns, inode, lines, checksum = _HEAD.unpack(table[: _HEAD.size])
    if magic != _MAGIC or FileStamp(size, mtime_ns, inode) != stamp:
        return None
    with memoryview(table) as view:
        if hashlib.sha256(view[_HEAD.size :]).digest() != checksum:
            return None
    return FlatIndex(table, _HEAD.size, lines)


def scan_lines(
    fd: int, start: int, line: Callable[[int, int, bytes | bytearray], None]
) -> tuple[int, bytes]:
    """Call `line(offset, length, first bytes)` for every line that has its end.

    Gives the offset behind the last whole line, and the first bytes of what follows it.
    """
    buffer = bytearray(_BLOCK)
    view = memoryview(buffer)
    offset = start  # of the line that begins at buffer[at]
    filled = 0
    long_head: bytes | None = None  # of a line that began before this buffer
    read_at = start
    while True:
        count = os.preadv(fd, [view[filled:]], read_at)
        read_at += count
        if not count:
            head = long_head if long_head is not None else bytes(buffer[: min(filled, HEAD_SIZE)])
            return offset, head
        filled += count
        at = 0
        find = buffer.find
        if long_head is not None:
            end = find(b"\n", 0, filled)
            if end < 0:
                filled = 0
                continue
            behind = read_at - filled + end + 1
            line(offset, behind - 1 - offset, long_head)
            offset, at, long_head = behind, end + 1, None
        while True:
            end = find(b"\n", at, filled)
            if end < 0:
                break
            line(offset, end - at, buffer[at : at + min(HEAD_SIZE, end - at)])
            offset += end + 1 - at
            at = end + 1
        rest = filled - at
        if rest > _BLOCK // 2:
            long_head = bytes(buffer[at : at + HEAD_SIZE])
            filled = 0
        else:
            buffer[:rest] = buffer[at:filled]
            filled = rest
