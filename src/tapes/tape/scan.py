"""One pass over a JSONL file: the keys of its lines and where they begin.

Rule 1: the pass looks at the first bytes of a line in this project's own form and at its end, not
        at what lies between. A line in any other form is given to whoever can read it.
Rule 2: it needs little memory, however long a line is.

Knows nothing of exchanges.
"""

import binascii
import os
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tapes.exchange import SCHEMA_VERSION
from tapes.tape.index import place_of

# How a row of this project begins: {"hash":"<key>","v":1,"canonicalizer":"tape/…
OWN = b'{"hash":"'
_OWN_NEXT = b'","v":%d,"canonicalizer":"' % SCHEMA_VERSION
_BODY = b"blob/"
_BEGIN = struct.Struct(f"{len(OWN)}s64s{len(_OWN_NEXT)}s{len(_BODY)}s")
_TOO_SHORT = (b"", b"", b"", b"")
BLOCK = 1024 * 1024

Entry = tuple[bytes, int]  # key, place


@dataclass(frozen=True, slots=True)
class Found:
    """The lines that end in one block: their keys and places, in order."""

    keys: list[bytes]
    places: list[int]
    last_line: int  # the offset where the last of them begins
    behind: int  # the offset behind it


class NoKey(ValueError):
    """The line at an offset has the form of a row, and no key where the key should be."""

    def __init__(self, offset: int) -> None:
        super().__init__(offset)
        self.offset = offset


def scan_lines(
    fd: int, start: int, read_other: Callable[[int, int], Entry | None]
) -> Iterator[Found]:
    """All lines that have their end, from an offset on, a block at a time.

    `read_other(offset, length)` is asked for the entry of a line in another form; None where it
    holds nothing. Raises NoKey.
    """
    buffer = bytearray(BLOCK)
    view = memoryview(buffer)
    find, begin_of, unhex = buffer.find, _BEGIN.unpack_from, binascii.unhexlify
    base, filled, shortest = start, 0, _BEGIN.size  # base: the offset of what buffer begins with
    while count := os.preadv(fd, [view[filled:]], base + filled):
        filled += count
        keys: list[bytes] = []
        places: list[int] = []
        at = last = 0
        while (end := find(b"\n", at, filled)) >= 0:
            own, key, after, kind = begin_of(buffer, at) if end - at >= shortest else _TOO_SHORT
            if own == OWN and after == _OWN_NEXT:
                try:
                    keys.append(unhex(key))
                except ValueError:
                    raise NoKey(base + at) from None
                places.append(base + at << 1 | (kind == _BODY))
            elif entry := read_other(base + at, end - at):
                keys.append(entry[0])
                places.append(entry[1])
            last, at = at, end + 1
        if at:
            yield Found(keys, places, base + last, base + at)
            filled -= at
            buffer[:filled] = buffer[at : at + filled]
            base += at
        elif filled == BLOCK:
            behind = _behind_line(fd, base + filled)
            if behind is None:
                return
            entry = _long_entry(bytes(buffer[: _BEGIN.size]), base, behind - 1 - base, read_other)
            long_line = [] if entry is None else [entry]
            yield Found([key for key, _ in long_line], [p for _, p in long_line], base, behind)
            base, filled = behind, 0


def _behind_line(fd: int, at: int) -> int | None:
    """The offset behind the next line end, or None where there is none."""
    while block := os.pread(fd, BLOCK, at):
        end = block.find(b"\n")
        if end >= 0:
            return at + end + 1
        at += len(block)
    return None


def _long_entry(
    begin: bytes, offset: int, length: int, read_other: Callable[[int, int], Entry | None]
) -> Entry | None:
    """The entry of a line that is longer than a block."""
    own, key, after, kind = _BEGIN.unpack(begin)
    if own != OWN or after != _OWN_NEXT:
        return read_other(offset, length)
    try:
        return binascii.unhexlify(key), place_of(offset, answers=kind != _BODY)
    except ValueError:
        raise NoKey(offset) from None
