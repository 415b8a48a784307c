"""Bytes in little space: against an earlier body, against what all turns have in common, or alone.

An agent sends its whole conversation again with every call. Kept against the request before, a
request costs what it added.

Rule 1: what is unpacked is what was packed, to the byte; anything else is an error, never a guess.
Rule 2: a body that shares its beginning and its end with an earlier one keeps what lies between,
        compressed beside what was said just before. One that changed in several places is
        compressed with the whole earlier one as its dictionary.
Rule 3: a number says how bytes were packed. Ways of packing are added and never changed; each
        comes with a revision of the log (`migrations`), so that an older program refuses the log.

Knows nothing of turns or databases.
"""

import zlib
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from threading import local

import zstandard

from tapes.store.commonplaces import COMMONPLACES


class Way(IntEnum):
    """How bytes were packed."""

    WHOLE = 0  # by themselves, beside the common places of all turns
    SPLICED = 1  # between the beginning and the end of the base
    PATCHED = 2  # with the base as a dictionary
    CONTINUED = 3  # as SPLICED, with the end of the beginning as a dictionary


@dataclass(frozen=True, slots=True)
class Packed:
    """Packed bytes. `prefix` and `suffix` are what they share with the base."""

    way: Way
    data: bytes
    prefix: int = 0
    suffix: int = 0


class NotPacked(ValueError):
    """The bytes are not what was packed, or the base is not the one they were packed against."""


class NewerWay(NotPacked):
    """The bytes were packed by a newer version, in a way that this one does not know."""


# Beside the common places level 1 is as small as level 2 and a tenth less work. Beside an earlier
# body it is a quarter larger, and level 3 no smaller.
_LEVEL = 1
_LEVEL_BESIDE_A_BODY = 2
# What is changed in more than this is tried with the base as its dictionary.
_LARGE = 16 * 1024
# Shorter beginnings are not worth a base that has to be read first.
_WORTH = 512
_WINDOW_LIMIT = 2**27
# So much of the beginning is the dictionary of what continues: part of that way, never to change.
_NEAR = 64 * 1024
# To take in a dictionary costs as much as to compress ten times so much.
_WORTH_CONTINUING = 512


# --- packing ----------------------------------------------------------------------------------


def pack(data: bytes, base: bytes | None = None) -> Packed:
    """The bytes, packed against the base where that helps."""
    against = None if base is None else pack_against(data, base)
    return against or Packed(Way.WHOLE, squeezed(data))


def pack_against(data: bytes, base: bytes) -> Packed | None:
    """The bytes, packed against the base; None where that does not help."""
    prefix = common_prefix(data, base)
    suffix = common_suffix(data, base, min(len(data), len(base)) - prefix)
    between = len(data) - prefix - suffix
    if between > _LARGE and between > len(data) // 8:
        patch = _compressed(data, base)
        if len(patch) < between // 8:
            return Packed(Way.PATCHED, patch)
    if prefix + suffix < _WORTH:
        return None
    middle = data[prefix : len(data) - suffix]
    spliced = squeezed(middle)
    if len(spliced) > _WORTH_CONTINUING and prefix > _WORTH_CONTINUING:
        continued = _compressed(middle, base[max(prefix - _NEAR, 0) : prefix])
        if len(continued) < len(spliced):
            return Packed(Way.CONTINUED, continued, prefix, suffix)
    return Packed(Way.SPLICED, spliced, prefix, suffix)


def unpack(packed: Packed, base: bytes | None = None) -> bytes:
    """The bytes that were packed. Raises NotPacked."""
    if packed.way is Way.WHOLE:
        return spread(packed.data)
    if base is None:
        raise NotPacked("the body that it was packed against is missing")
    if packed.way is Way.PATCHED:
        return _decompressed(packed.data, base)
    if packed.prefix + packed.suffix > len(base):
        raise NotPacked("the body that it was packed against is shorter than what they share")
    beginning, end = base[: packed.prefix], base[len(base) - packed.suffix :]
    if packed.way is Way.CONTINUED:
        return beginning + _decompressed(packed.data, beginning[-_NEAR:]) + end
    return beginning + spread(packed.data) + end


def way_of(number: int) -> Way:
    """The way of packing that has a number. Raises NewerWay."""
    try:
        return Way(number)
    except ValueError:
        raise NewerWay(
            f"it was packed by a newer version, in a way ({number}) that this one does not know"
        ) from None


def check_of(data: bytes) -> int:
    """A short check of bytes: that a chain of packed bodies gave the right ones."""
    return zlib.crc32(data)


# --- what two bodies share --------------------------------------------------------------------

# Blocks of this size are compared as numbers, larger ones as bytes.
_BLOCK = 128


def common_prefix(one: bytes, other: bytes) -> int:
    """How many bytes two bodies begin with alike."""
    end = min(len(one), len(other))
    low, high = 0, min(_BLOCK, end)
    # Growing steps, so that what differs early is seen early; each is one comparison in C.
    while one[low:high] == other[low:high]:
        if high == end:
            return end
        low, high = high, min(high + 4 * (high - low), end)
    while high - low > _BLOCK:
        middle = (low + high) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle)
    differing = int.from_bytes(one[low:high]) ^ int.from_bytes(other[low:high])
    return high - (differing.bit_length() + 7) // 8


def common_suffix(one: bytes, other: bytes, limit: int) -> int:
    """How many bytes two bodies end with alike, at most so many."""
    size, other_size = len(one), len(other)
    low, high = 0, min(_BLOCK, limit)
    while one[size - high : size - low] == other[other_size - high : other_size - low]:
        if high == limit:
            return limit
        low, high = high, min(high + 4 * (high - low), limit)
    while high - low > _BLOCK:
        mid = (low + high) // 2
        same = one[size - mid : size - low] == other[other_size - mid : other_size - low]
        low, high = (mid, high) if same else (low, mid)
    differing = int.from_bytes(one[size - high : size - low]) ^ int.from_bytes(
        other[other_size - high : other_size - low]
    )
    # The lowest bit that differs is in the last byte that does.
    return low + ((differing & -differing).bit_length() - 1) // 8


# --- compression ------------------------------------------------------------------------------


class _Tools(local):
    """A compressor and a decompressor for each thread: they may not be shared."""

    def __init__(self) -> None:
        shared = _common()
        self.compressor = zstandard.ZstdCompressor(
            level=_LEVEL, dict_data=shared, write_dict_id=False, write_checksum=False
        )
        self.decompressor = zstandard.ZstdDecompressor(
            dict_data=shared, max_window_size=_WINDOW_LIMIT
        )


@lru_cache(maxsize=1)
def _common() -> zstandard.ZstdCompressionDict:
    shared = zstandard.ZstdCompressionDict(COMMONPLACES, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
    shared.precompute_compress(level=_LEVEL)
    return shared


_tools = _Tools()


def squeezed(data: bytes) -> bytes:
    """Bytes by themselves, compressed beside what all turns have in common."""
    return _tools.compressor.compress(data)


def spread(data: bytes) -> bytes:
    """The bytes that were squeezed. Raises NotPacked."""
    try:
        return _tools.decompressor.decompress(data)
    except zstandard.ZstdError as error:
        raise NotPacked(str(error)) from error


def _compressed(data: bytes, base: bytes) -> bytes:
    window = max(10, min((len(data) + len(base)).bit_length(), 27))
    parameters = zstandard.ZstdCompressionParameters.from_level(
        _LEVEL_BESIDE_A_BODY,
        source_size=len(data),
        dict_size=len(base),
        window_log=window,
        write_dict_id=False,
        write_checksum=False,
    )
    return zstandard.ZstdCompressor(
        dict_data=_dictionary(base), compression_params=parameters
    ).compress(data)


def _decompressed(data: bytes, base: bytes) -> bytes:
    decompressor = zstandard.ZstdDecompressor(
        dict_data=_dictionary(base), max_window_size=_WINDOW_LIMIT
    )
    try:
        return decompressor.decompress(data)
    except zstandard.ZstdError as error:
        raise NotPacked(str(error)) from error


def _dictionary(base: bytes) -> zstandard.ZstdCompressionDict:
    return zstandard.ZstdCompressionDict(base, dict_type=zstandard.DICT_TYPE_RAWCONTENT)
