"""JSON as most readers would understand it: for showing and counting, never for keys.

Rule 1: what a strict reader refuses (a name twice, NaN, half a surrogate) is read as its sender
        most likely meant it. What nobody would understand is refused.
Rule 2: what is read can be kept anywhere: no NUL and no half of a surrogate is left in it, and a
        number that JSON cannot say is its name.

Knows nothing of requests, keys or files.  Pure.
"""

import json
import math
import re
from collections.abc import Callable
from typing import Any

from tapes import jsontext
from tapes.errors import NotCanonical
from tapes.jsontext import Json, compact

_fast_reader: Callable[[bytes | str], Json] | None = getattr(jsontext.orjson, "loads", None)
_fast_writer: Callable[[Json], bytes] | None = getattr(jsontext.orjson, "dumps", None)


def loose(data: bytes | str) -> Json:
    """The value that the bytes most likely mean. Raises ValueError where they mean none."""
    if _fast_reader is not None and not _has_unstorable(data):
        try:
            return _fast_reader(data)
        except ValueError:
            pass
    return _exactly(data)


def _exactly(data: bytes | str) -> Json:
    """The same by the reader that knows whole numbers of any size."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    try:
        return storable(_reader.decode(text.removeprefix("\ufeff")))
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _number(text: str) -> Json:
    number = float(text)
    return number if math.isfinite(number) else str(number)


# Infinities are written out as numbers of many digits, too.
_reader = json.JSONDecoder(strict=False, parse_float=_number, parse_constant=_number)


# What may be a whole number beyond 64 bits, which the fast reader takes for a fraction.
_BEYOND = re.compile(r"[0-9]{20}|-[0-9]{19}")
_BEYOND_IN_BYTES = re.compile(_BEYOND.pattern.encode())


def as_it_was_kept(data: bytes | str) -> Json:
    """The very value of a text that a store of ours wrote."""
    beyond = _BEYOND.search(data) if isinstance(data, str) else _BEYOND_IN_BYTES.search(data)
    if _fast_reader is not None and beyond is None:
        try:
            return _fast_reader(data)
        except ValueError:
            pass
    return _exactly(data)


def packed(value: Json) -> bytes:
    """A value as compact UTF-8 in the order that it has: to remember it by, not to keep it."""
    if _fast_writer is not None:
        try:
            return _fast_writer(value)
        except TypeError:  # integers beyond 64 bits
            pass
    try:
        text = compact(value)
    except NotCanonical:  # numbers that JSON cannot say
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def _has_unstorable(data: bytes | str) -> bool:
    """Whether an escape may stand for a NUL or half a surrogate."""
    if isinstance(data, str):
        return "\\u" in data and ("\\u0000" in data or "\\ud" in data or "\\uD" in data)
    return b"\\u" in data and (b"\\u0000" in data or b"\\ud" in data or b"\\uD" in data)


_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


def storable(value: Any) -> Json:
    """The value with U+FFFD for what no database takes: NULs and halves of surrogates."""
    if isinstance(value, str):
        return _UNSTORABLE.sub("\ufffd", value)
    if isinstance(value, dict):
        return {storable(name): storable(member) for name, member in value.items()}
    if isinstance(value, list):
        return [storable(member) for member in value]
    return value
