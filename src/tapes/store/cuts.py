"""Large parts of bodies, cut out so that what many turns repeat is kept once: images, tool
definitions, system prompts, long documents.

Rule 1: joined again, the bytes are what they were.
Rule 2: what is cut out is known by the hash of its bytes. Nothing is cut out that is not whole.

Knows nothing of turns or of where parts are kept.  Pure.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass

# Shorter runs of text cost more beside the body than in it: few of them occur twice.
LEAST = 16 * 1024
# Members that hold the same thing in call after call, and how long they have to be.
_STEADY = tuple(
    f'"{name}":'.encode()
    for name in ("tools", "system", "functions", "instructions", "systemInstruction")
)
_LEAST_STEADY = 4 * 1024
# More parts of one body are left in it.
MOST = 255
_HASH = 32


@dataclass(frozen=True, slots=True)
class Cut:
    """A part, and where it stood in what is left."""

    offset: int
    hash: bytes
    data: bytes


def hash_of(data: bytes) -> bytes:
    """What a part is known by."""
    return hashlib.sha256(data).digest()


def cut(data: bytes) -> tuple[bytes, tuple[Cut, ...]]:
    """What is left of bytes, and the large parts that were cut out of them."""
    if len(data) < _LEAST_STEADY:
        return data, ()
    left, cuts, at, size = list[bytes](), list[Cut](), 0, 0
    for start, end in _places(data):
        if start < at or len(cuts) == MOST:
            continue
        left.append(data[at:start])
        size += start - at
        part = data[start:end]
        cuts.append(Cut(size, hash_of(part), part))
        at = end
    return (b"".join((*left, data[at:])) if cuts else data), tuple(cuts)


def _places(data: bytes) -> list[tuple[int, int]]:
    found = list(_steady(data))
    found += _runs(data)
    # Of parts inside each other the outer one.
    return sorted(found, key=lambda place: (place[0], -place[1]))


def _runs(data: bytes) -> Iterator[tuple[int, int]]:
    """What lies between two quotes and is long. Short runs are leapt over, many at once."""
    at = 0
    while at + LEAST <= len(data):
        last = data.rfind(b'"', at, at + LEAST)
        if last < 0:
            end = data.find(b'"', at + LEAST)
            end = len(data) if end < 0 else end
            yield at, end
            last = end
        at = last + 1


def _steady(data: bytes) -> Iterator[tuple[int, int]]:
    end = len(data) - _LEAST_STEADY  # later ones are too short
    for name in _STEADY:
        start = data.find(name, 0, end)
        if start < 0:
            continue
        start += len(name)
        start += data[start : start + 1] == b" "
        if data[start : start + 1] not in (b"[", b"{", b'"'):
            continue
        text = data[start:].decode("latin-1")  # a character is a byte
        try:
            _, length = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            continue
        if length >= _LEAST_STEADY:
            yield start, start + length


def joined(
    left: bytes, cuts: tuple[tuple[int, bytes], ...], find: Callable[[bytes], bytes]
) -> bytes:
    """The bytes again: what was left, with each part in its place."""
    out, at = list[bytes](), 0
    for offset, hash_ in cuts:
        out += (left[at:offset], find(hash_))
        at = offset
    return b"".join((*out, left[at:])) if cuts else left


# --- how cuts lie before what is left ---------------------------------------------------------


def with_cuts(packed: bytes, cuts: tuple[Cut, ...]) -> bytes:
    """Packed bytes, after a list of what was cut out before they were packed."""
    entries = (each.offset.to_bytes(4, "big") + each.hash for each in cuts)
    return b"".join((bytes((len(cuts),)), *entries, packed))


def without_cuts(data: bytes) -> tuple[bytes, tuple[tuple[int, bytes], ...]]:
    """The packed bytes, and what was cut out: offsets and hashes. Raises ValueError."""
    if not data:
        raise ValueError("nothing is kept")
    count, width = data[0], 4 + _HASH
    entries = data[1 : 1 + count * width]
    if len(entries) != count * width:
        raise ValueError("the list of parts is cut short")
    cuts = tuple(
        (int.from_bytes(entry[:4], "big"), entry[4:])
        for entry in (entries[i : i + width] for i in range(0, len(entries), width))
    )
    return data[1 + count * width :], cuts
