"""JSON as text that is compared, hashed and kept: one strict reader and two exact writers.

Rule 1: `canonical` is the plain definition: keys sorted by code point, no white space, numbers
        as Python writes them. A faster writer is used where it gives the same text, and only
        there: for JSON's own types, and for numbers that need no exponent.
Rule 2: what JSON cannot say exactly (NaN, infinities, other keys than text, objects) is refused
        with the place where it stands, never coerced.
Rule 3: `read` takes only what has one meaning: UTF-8, no name twice, finite numbers, no lone
        surrogates, at most MAX_DEPTH levels. Anything else is not JSON here, and callers treat it
        as bytes.

Knows nothing of requests, keys or files.  Pure.
"""

import json
import math
import re
from collections.abc import Callable, Iterable
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

# Deeper bodies are bytes: whether a parser gets through them depends on how deep its caller is.
MAX_DEPTH = 100

_PLAIN_WORDS = (str, int, bool, type(None))


# --- writing ----------------------------------------------------------------------------------

_as_sorted = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
).encode
_as_sorted_ascii = json.JSONEncoder(
    sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
).encode
_as_given = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode
_as_given_ascii = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

# Both leave subclasses, dataclasses and times to the plain writer, which knows what they are.
_FAST_AS_GIVEN = (
    0
    if orjson is None
    else orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
_FAST_SORTED = 0 if orjson is None else _FAST_AS_GIVEN | orjson.OPT_SORT_KEYS


def canonical(value: Json, *, ascii_only: bool = False) -> str:
    """The one text of a value, whatever the order of its names was.

    Raises NotCanonical, naming the place, for what JSON cannot say exactly.
    """
    text = fast_canonical(value) if _is_plain(value) else None
    if text is not None and (not ascii_only or _is_plain_ascii(text)):
        return text.decode()
    if text is None:
        require_json(value)
    try:
        return _as_sorted_ascii(value) if ascii_only else _as_sorted(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotCanonical(f"the value has no canonical text: {error}") from None


def _is_plain_ascii(text: bytes) -> bool:
    return text.isascii() and b"\x7f" not in text  # which Python escapes with the non-ASCII


def fast_canonical(value: Json) -> bytes | None:
    """The UTF-8 of `canonical` by a faster writer, or None where there is none.

    The two differ in three ways, and the caller has to live with them: floats with an exponent
    are spelled otherwise, NaN becomes null, and UUID and Enum are written as their values.
    """
    try:
        text: bytes | None = _fast(value, option=_FAST_SORTED)
    except TypeError:  # integers beyond 64 bits, lone surrogates, other keys than text
        return None
    return text


def trimmed(text: bytes) -> bytes:
    """The same text in as much memory as it needs, for whoever keeps it.

    What the fast writer gives lies in the buffer that it was written to: at least 4 kB, and up to
    sixteen times as much as the text.
    """
    return bytes(memoryview(text))


def _no_fast_writer(_value: Json, *, option: int) -> None:  # noqa: ARG001  # orjson's signature
    return None


_fast: Callable[..., bytes | None] = _no_fast_writer if orjson is None else orjson.dumps


def _fast_as_given(value: Json) -> bytes | None:
    try:
        return _fast(value, option=_FAST_AS_GIVEN)
    except TypeError:
        return None


_LARGE_NUMBERS = [1e16, 1.5e300, 1e15, -0.0, 0.1, 0.0001]
_SPELLS_LARGE_ALIKE = orjson is not None and (
    orjson.dumps(_LARGE_NUMBERS) == _as_given(_LARGE_NUMBERS).encode()
)
# Each begins with text: so it is looked for faster than `in` would do it.
_EXPONENT, _ZEROS = re.compile(rb"e-[0-9]"), re.compile(rb"0\.0000")


def is_like_python(text: bytes) -> bool:
    """Whether Python spells every number as a text of the fast writer does.

    The two agree on all but small ones. False may also mean: look closer.
    """
    return (
        _SPELLS_LARGE_ALIKE
        and _ZEROS.search(text) is None
        and not any(text[at.start() - 1 : at.start()].isdigit() for at in _EXPONENT.finditer(text))
    )


def canonical_of_read(value: Json) -> str:
    """As `canonical`, for a value that was read from JSON: there is nothing in it to refuse."""
    text = fast_canonical(value)
    return text.decode() if text is not None and is_like_python(text) else canonical(value)


def compact(value: Json) -> str:
    """A value as one line in the order that it has, readable: non-ASCII text stays as it is.

    Raises NotCanonical for NaN and infinities.
    """
    fast = _fast_as_given(value) if _is_plain(value) else None
    if fast is not None:
        return fast.decode()
    try:
        text = _as_given(value)
        # A lone surrogate has no UTF-8; its escape has.
        return text if _encodable(text) else _as_given_ascii(value)
    except ValueError as error:
        require_json(value)
        raise NotCanonical(f"the value has no text: {error}") from None


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class Copies:
    """A value kept as text, so that everyone who asks gets an object of their own."""

    __slots__ = ("_load", "text")

    def __init__(self, value: Json) -> None:
        text = _fast_as_given(value)
        self._load: Callable[[bytes], Json]
        # What the fast writer refuses or turns into null, the fast reader would not give back.
        if text is None or (b"null" in text and has_unwritable_float(value)):
            self.text = json.dumps(value).encode()
            self._load = json.loads
        else:
            self.text = text
            self._load = orjson.loads

    def trimmed(self) -> "Copies":
        """The same for whoever keeps it for long, in as much memory as it needs."""
        kept = Copies.__new__(Copies)
        kept.text, kept._load = trimmed(self.text), self._load
        return kept

    def one(self) -> Json:
        """A fresh object, equal to the value."""
        return self._load(self.text)


# --- reading ----------------------------------------------------------------------------------


def read(data: bytes) -> Json:
    """The value that the bytes mean. Raises ValueError where they have not exactly one meaning."""
    try:
        text = data.decode("utf-8")
        value = None if _SPACED in text[:_LOOK] else value_of_compact(text)
        if value is not None:
            return value
        value = _strict(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if deeper_than(value, MAX_DEPTH):
        raise ValueError("nested too deeply")
    if _SURROGATE.search(text) and not _encodable(json.dumps(value, ensure_ascii=False)):
        raise ValueError("a lone surrogate")
    return value


def value_of_compact(text: str) -> Json:
    """What an object or list means that is spelled as `json.dumps` would spell it compactly.

    Such a text has one meaning: no name occurs twice in it, no number is rounded. None for any
    other text, and where a fast look cannot tell.
    """
    if orjson is None or not text.startswith(("{", "[")):
        return None
    try:
        data = text.encode()
        value = orjson.loads(data)
    except ValueError:
        return None
    if _fast_as_given(value) != data or not is_like_python(data):
        return None
    if deeper_than(value, MAX_DEPTH):
        return None
    return value


def _members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a name occurs twice in one object")
    return members


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text[:20]} is too large a number")
    return number


# What `json.dumps` writes unless it is told otherwise: with it, the fast look would be in vain.
_SPACED, _LOOK = '": ', 256
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
_strict = json.JSONDecoder(
    object_pairs_hook=_members, parse_constant=_no_constant, parse_float=_finite
).decode


# --- looking ----------------------------------------------------------------------------------


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


# A container on the way to a value: the one around it, and the name under which it lies there.
_Way = tuple["_Way", object] | None


def require_json(value: Json, error: Callable[[str], Exception] = NotCanonical) -> None:
    """Refuse, naming the place, what JSON cannot say exactly."""
    if not _is_plain(value):
        _require_json(value, error)


_PLAIN_TYPES = frozenset(_PLAIN_WORDS)
# Beyond so many containers a value may contain itself, which the slower look finds out.
_MANY = 100_000


def _is_plain(value: Json) -> bool:
    """Whether a value is made of JSON's own types, and of numbers that every writer spells alike.

    False may also mean: look closer.
    """
    containers = [value]
    for item in containers:
        kind = type(item)
        if kind is dict:
            for name, child in item.items():
                if type(name) is not str:
                    return False
                if type(child) not in _PLAIN_TYPES:
                    containers.append(child)
        elif kind is list or kind is tuple:
            containers.extend([child for child in item if type(child) not in _PLAIN_TYPES])
        elif kind is float:
            # Beyond these an exponent is written, in more than one way; NaN is in no range.
            if not 1e-4 <= abs(item) < 1e15 and item != 0.0:
                return False
        elif kind not in _PLAIN_TYPES:
            return False
        if len(containers) > _MANY:
            return False
    return True


def _require_json(value: Json, error: Callable[[str], Exception]) -> None:
    todo: list[tuple[Json, _Way, int]] = [(value, None, 0)]
    while todo:
        item, way, depth = todo.pop()
        if isinstance(item, _PLAIN_WORDS):
            continue
        if isinstance(item, dict):
            for name in item:
                if not isinstance(name, str):
                    raise error(f"{_place(way)} has the key {name!r}, which is not text")
            children: Iterable[tuple[object, Json]] = item.items()
        elif isinstance(item, list | tuple):
            children = enumerate(item)
        elif not isinstance(item, float):
            kind = type(item).__name__
            raise error(f"{_place(way)} is of type {kind}, which JSON does not have")
        elif math.isfinite(item):
            continue
        else:
            raise error(f"{_place(way)} is {item}, which JSON cannot say")
        if depth > 10 * MAX_DEPTH:
            raise error(f"{_place(way)[:40]}… is nested too deeply, or contains itself")
        todo.extend(
            (child, (way, name), depth + 1)
            for name, child in children
            if type(child) not in _PLAIN_WORDS
        )


def _place(way: _Way) -> str:
    steps: list[str] = []
    while way is not None:
        way, name = way
        steps.append(f"/{name}")
    return "".join(reversed(steps)) or "/"


_CONTAINERS = frozenset((dict, list))


def deeper_than(value: Json, levels: int) -> bool:
    """Whether objects and lists are nested in more than so many levels."""
    layer = [value] if type(value) in _CONTAINERS else []
    for _ in range(levels):
        layer = [
            child
            for item in layer
            for child in (item.values() if type(item) is dict else item)
            if type(child) in _CONTAINERS
        ]
        if not layer:
            return False
    return bool(layer)
