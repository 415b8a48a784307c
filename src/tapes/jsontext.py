"""JSON as text that is compared, hashed and kept: one strict reader and two exact writers.

Rule 1: `canonical` is the plain definition: keys sorted by code point, no white space, numbers
        as Python writes them. Whatever is faster must give the same text or must not be used.
Rule 2: what JSON cannot say exactly (NaN, infinities, other keys than text, objects) is refused
        with the place where it stands, never coerced.
Rule 3: `read` takes only what has one meaning: UTF-8, no name twice, finite numbers, no lone
        surrogates. Anything else is not JSON here, and callers treat it as bytes.

Knows nothing of requests, keys or files.  Pure.
"""

import json
import math
from collections.abc import Callable
from typing import Any

from tapes.errors import NotCanonical

orjson: Any = None
try:
    import orjson
except ImportError:  # the standard library is enough, only slower
    pass

# A JSON value: None, bool, int, float, str, list and dict of these. Python's type language
# needs a recursive alias for it, which every use would have to unpack again.
Json = Any

_PLAIN_WORDS = (str, int, bool, type(None))


def canonical(value: Json, *, ascii_only: bool = False) -> str:
    """The one text of a value, whatever the order of its names was.

    Raises NotCanonical, naming the place, for what JSON cannot say exactly.
    """
    require_json(value)
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=ascii_only)
    except RecursionError:
        raise NotCanonical("the value is nested too deeply") from None


def fast_canonical(value: Json) -> bytes | None:
    """The UTF-8 of `canonical` by a faster writer, or None where there is none.

    The two differ in three ways, and the caller has to live with them: floats with an exponent
    are spelled otherwise, NaN becomes null, and some objects (UUID, Enum) are written as text.
    """
    if orjson is None:
        return None
    try:
        text: bytes = orjson.dumps(value, option=_SORTED)
        return text
    except TypeError:
        return None


def _fast_text(value: Json, option: int) -> bytes | None:
    if orjson is None:
        return None
    try:
        text: bytes = orjson.dumps(value, option=option)
        return text
    except TypeError:  # integers beyond 64 bits, lone surrogates, other keys than text
        return None


_AS_GIVEN = (
    0
    if orjson is None
    else orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
_SORTED = 0 if orjson is None else _AS_GIVEN | orjson.OPT_SORT_KEYS


def compact(value: Json) -> str:
    """A value as one line in the order that it has, readable: non-ASCII text stays as it is."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    # A lone surrogate has no UTF-8; its escape has.
    return text if _encodable(text) else json.dumps(value, separators=(",", ":"), allow_nan=False)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def read(data: bytes) -> Json:
    """The value that the bytes mean. Raises ValueError where they have not exactly one meaning."""
    try:
        text = data.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_members, parse_constant=_no_constant)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if "\\u" in text and not _encodable(json.dumps(value, ensure_ascii=False)):
        raise ValueError("a lone surrogate")
    if "e" in text or "E" in text:
        _no_infinity(value)
    return value


def _members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return members


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def _no_infinity(value: Json) -> None:
    if has_unwritable_float(value):
        raise ValueError("a number is too large")


def has_unwritable_float(value: Json) -> bool:
    """Whether a NaN or an infinity is anywhere in the value."""
    todo = [value]
    while todo:
        item = todo.pop()
        kind = type(item)
        if kind is dict:
            todo.extend(v for v in item.values() if type(v) not in _PLAIN_WORDS)
        elif kind is list or kind is tuple:
            todo.extend(v for v in item if type(v) not in _PLAIN_WORDS)
        elif kind is float and not math.isfinite(item):
            return True
    return False


def require_json(value: Json, error: Callable[[str], Exception] = NotCanonical) -> None:
    """Refuse, naming the place, what JSON cannot say exactly."""
    todo: list[tuple[str, Json]] = [("", value)]
    while todo:
        place, item = todo.pop()
        if isinstance(item, dict):
            for name, member in item.items():
                if not isinstance(name, str):
                    raise error(f"{place or '/'} has the key {name!r}, which is not text")
                if type(member) not in _PLAIN_WORDS:
                    todo.append((f"{place}/{name}", member))
        elif isinstance(item, list | tuple):
            todo.extend(
                (f"{place}/{n}", member)
                for n, member in enumerate(item)
                if type(member) not in _PLAIN_WORDS
            )
        elif isinstance(item, float):
            if not math.isfinite(item):
                raise error(f"{place or '/'} is {item}, which JSON cannot say")
        elif not isinstance(item, _PLAIN_WORDS):
            raise error(
                f"{place or '/'} is of type {type(item).__name__}, which JSON does not have"
            )
        if len(place) > 10_000:
            raise error(f"{place[:40]}… is nested too deeply, or contains itself")


def deeper_than(value: Json, levels: int) -> bool:
    """Whether objects and lists are nested in more than so many levels."""
    layer = [value]
    for _ in range(levels + 1):
        layer = [
            child
            for item in layer
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not layer:
            return False
    return any(isinstance(item, dict | list) for item in layer)


class Copies:
    """A value kept as text, so that everyone who asks gets an object of their own."""

    __slots__ = ("_load", "text")

    def __init__(self, value: Json) -> None:
        fast = _fast_text(value, _AS_GIVEN)
        # What the fast writer refuses is what the fast reader would change.
        self.text: bytes = compact(value).encode() if fast is None else fast
        self._load: Callable[[bytes], Json] = json.loads if fast is None else orjson.loads

    def one(self) -> Json:
        """A fresh object, equal to the value."""
        return self._load(self.text)
