"""Where each key's line begins: a flat table of 40 bytes a line, which can be kept in a file.

Rule 1: the table is a help, never a source. A kept one is used only for the very file that it was
        made from (size, times of change, inode), and each part of it only if its checksum holds.
        Whoever is led to a line checks its key before it answers.
Rule 2: an entry is the key's 32 bytes, then 8 for the line's place: its offset, and in the lowest
        bit whether it answers. Sorted, a later line stands behind an earlier one with its key.
Rule 3: entries lie in 256 parts by the first byte of their key. A part is read, checked and
        sorted when it is first needed, so that opening a large tape costs nothing.

Knows nothing of lines or exchanges.
"""

import hashlib
import os
import secrets
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tapes.tape.descriptors import Descriptor

_ENTRY = struct.Struct(">32sQ")
_PARTS = 256
# So many lines taken in since the table was made are looked up beside it, then join it.
_RECENT = 32 * 1024

_MAGIC = b"tapesix3"
_DIGEST = 16
# magic, size, mtime_ns, ctime_ns, inode; where the last line begins, how far lines were checked
_STAMP = struct.Struct("<8sQqqQQQ")
_PART = struct.Struct(f"<Q{_DIGEST}s")  # number of entries, their checksum
_HEAD = _STAMP.size + _PARTS * _PART.size + _DIGEST


def place_of(offset: int, *, answers: bool) -> int:
    """The place of a line: where it begins, and whether it is an answer."""
    return offset << 1 | (not answers)


@dataclass(frozen=True, slots=True)
class FileStamp:
    """What tells one state of a file from another."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> "FileStamp":
        """The stamp of a file's status."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


class BrokenIndex(Exception):
    """A part of a kept table is not what was written: the file has to be read again."""


class KeyTable:
    """Keys and the places of their lines. Not safe to use from many threads at once."""

    def __init__(self) -> None:
        self._parts: list[bytearray | bytes | None] = [bytearray() for _ in range(_PARTS)]
        self._is_sorted = bytearray(_PARTS)
        self._recent: dict[bytes, int] = {}
        self._kept: _KeptParts | None = None

    @classmethod
    def of_kept(cls, kept: "_KeptParts") -> "KeyTable":
        """The table of a kept one, whose parts are read when they are needed."""
        table = cls()
        table._parts = [None] * _PARTS
        table._kept = kept
        return table

    # --- filling

    def put(self, keys: Iterable[bytes], places: Iterable[int]) -> None:
        """Put in many lines, before the table is asked."""
        parts, pack = self._parts, _ENTRY.pack
        for key, place in zip(keys, places, strict=True):
            parts[key[0]] += pack(key, place)  # type: ignore[operator]  # not kept, not sorted

    def add(self, keys: Iterable[bytes], places: Iterable[int]) -> None:
        """Put in lines that were appended since."""
        self._recent.update(zip(keys, places, strict=True))
        if len(self._recent) > _RECENT:
            self._join_recent()

    def _join_recent(self) -> None:
        pack = _ENTRY.pack
        fresh: dict[int, bytearray] = {}
        for key, place in self._recent.items():
            fresh.setdefault(key[0], bytearray()).extend(pack(key, place))
        for number, entries in fresh.items():
            self._is_sorted[number] = False  # first: whoever is stopped here leaves no wrong mark
            self._parts[number] = b"".join((self._part(number), entries))
        self._recent = {}

    # --- asking

    def find(self, key: bytes) -> int | None:
        """The offset of the last line with this key, or None. Raises BrokenIndex."""
        place = self._recent.get(key)
        if place is None:
            place = self._last_place(self._sorted_part(key[0]), key)
        return None if place is None else place >> 1

    @staticmethod
    def _last_place(part: bytes, key: bytes) -> int | None:
        size = _ENTRY.size
        low, high = 0, len(part) // size
        while low < high:
            middle = (low + high) // 2
            if part[middle * size : middle * size + 32] <= key:
                low = middle + 1
            else:
                high = middle
        found, place = _ENTRY.unpack_from(part, (low - 1) * size) if low else (b"", 0)
        return place if found == key else None

    def answers(self) -> Iterator[bytes]:
        """Every key whose last line is an answer. Raises BrokenIndex."""
        self._join_recent()
        for number in range(_PARTS):
            last: dict[bytes, int] = dict(_ENTRY.iter_unpack(self._sorted_part(number)))
            yield from (key for key, place in last.items() if not place & 1)

    def _sorted_part(self, number: int) -> bytes:
        part = self._part(number)
        if not self._is_sorted[number] or not isinstance(part, bytes):
            entries = [entry for (entry,) in struct.iter_unpack(f"{_ENTRY.size}s", part)]
            entries.sort()
            part = self._parts[number] = b"".join(entries)
            self._is_sorted[number] = True
        return part

    def _part(self, number: int) -> bytes | bytearray:
        part = self._parts[number]
        if part is None:
            assert self._kept is not None  # only a kept table has parts that are not here
            part = self._parts[number] = self._kept.read(number)
        return part

    # --- keeping

    def save(self, path: Path, stamp: FileStamp, last_line: int, checked: int) -> None:
        """Write the table whole or not at all, with two offsets that `load_index` gives back.

        Raises OSError, BrokenIndex.
        """
        self._join_recent()
        parts = [self._part(number) for number in range(_PARTS)]
        head = _STAMP.pack(
            _MAGIC, stamp.size, stamp.mtime_ns, stamp.ctime_ns, stamp.inode, last_line, checked
        )
        head += b"".join(_PART.pack(len(part) // _ENTRY.size, _digest(part)) for part in parts)
        temporary = path.with_name(f"{path.name}.{secrets.token_hex(4)}.tmp")
        try:
            with temporary.open("xb") as file:
                file.write(head + _digest(head))
                file.writelines(parts)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _digest(data: bytes | bytearray) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST).digest()


class _KeptParts:
    """The parts of a table in its file, each read once."""

    def __init__(self, file: Descriptor, parts: list[tuple[int, bytes]]) -> None:
        self._file = file
        self._parts = parts

    def read(self, number: int) -> bytes:
        """The entries of a part. Raises BrokenIndex."""
        before = sum(count for count, _ in self._parts[:number])
        count, checksum = self._parts[number]
        try:
            data = os.pread(self._file.number, count * _ENTRY.size, _HEAD + before * _ENTRY.size)
        except OSError as error:
            raise BrokenIndex from error
        if len(data) != count * _ENTRY.size or _digest(data) != checksum:
            raise BrokenIndex
        return data


def load_index(path: Path, stamp: FileStamp) -> tuple[KeyTable, int, int] | None:
    """The kept table of the file with this stamp, and the offsets that were kept with it.

    None where there is none that can be trusted.
    """
    try:
        file = Descriptor(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        head = os.pread(file.number, _HEAD, 0)
    except OSError:
        return None
    if len(head) != _HEAD or _digest(head[:-_DIGEST]) != head[-_DIGEST:]:
        return None
    magic, *marks, last_line, checked = _STAMP.unpack_from(head)
    if magic != _MAGIC or FileStamp(*marks) != stamp:
        return None
    parts = list(_PART.iter_unpack(head[_STAMP.size : -_DIGEST]))
    return KeyTable.of_kept(_KeptParts(file, parts)), last_line, checked
