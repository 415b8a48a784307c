"""JSON that keeps the spelling of its numbers: one reader with limits, three exact writers.

Rule 1: a number is an `int` where Python writes it as it was spelled and it fits 64 bits; any
        other is a `Number`, which is its spelling. There are no floats.
Rule 2: a lone surrogate and a byte that is not UTF-8 become U+FFFD, inside strings only.
Rule 3: nothing is read that is deeper, has more values, or would be published larger than the
        limits say. This is decided before the text becomes objects, or right after.
Rule 4: the writers sort names by code point (which is the order of their UTF-8 bytes).

Knows nothing of manifests or OpenAPI.  Pure.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import orjson

from tapes.jsontext import Json, trimmed

# A path from the root of a document: names of members and indexes of elements.
Path = tuple[str | int, ...]

# Far beyond what people write, near enough that no reader of the result runs out of stack:
# the common JSON writers stop at 254 levels, Python at about a thousand calls.
MAX_DEPTH = 128
# A value takes up to 200 bytes of memory, so this bounds a document to about 200 MB.
MAX_VALUES = 1_000_000
MAX_PUBLISHED = 64 * 1024 * 1024
# Longer texts are made by machines for machines, and are not worth the time of reading them again.
MAX_LINED = 2 * 1024 * 1024

_INT64 = range(-(2**63), 2**63)


class Number:
    """A number as it was spelled: a fraction, an exponent, `-0`, or more than 64 bits."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Number({self.text!r})"

    def __float__(self) -> float:
        return float(self.text)


class Unreadable(ValueError):
    """The text is not one JSON value within the limits. `code` says why, `line` where."""

    def __init__(self, code: str, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.line = line


# --- reading ----------------------------------------------------------------------------------


def text_of(data: bytes) -> str:
    """The text of the bytes, each byte that is not UTF-8 and each lone surrogate as U+FFFD."""
    text = data.decode("utf-8", "surrogateescape")
    if _LONE.search(text):
        text = _LONE.sub("\ufffd", text)
    if _SURROGATE_ESCAPE.search(text):
        # An escaped backslash begins no escape; while it is out of the way it is a character that
        # the text no longer has.
        text = text.replace("\\\\", "\udc00")
        text = _LONE_ESCAPE.sub(r"\\ufffd", text).replace("\udc00", "\\\\")
    return text


_LONE = re.compile("[\ud800-\udfff]")
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
_HIGH = r"\\u[dD][89abAB][0-9a-fA-F]{2}"
_LOW = r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE_ESCAPE = re.compile(f"{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW}")


def read(
    text: str, *, repeated: list[str] | None = None, max_published: float = MAX_PUBLISHED
) -> Json:
    """The value that the text is. Raises Unreadable.

    A repeated name is refused, or, where a list is given, put on it and read with its last value.
    """
    if _too_many_values(text):
        raise Unreadable("too_many_values", f"the text has more than {MAX_VALUES:,} values")

    def members(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = _repeated_names(pairs)
            if repeated is None:
                raise _Repeated(next(names))
            repeated.extend(names)
        return found

    try:
        value = json.loads(
            text,
            object_pairs_hook=members,
            parse_int=integer,
            parse_float=Number,
            parse_constant=_no_constant,
        )
    except _Repeated as error:
        raise _repeated_name(text, error.args[0]) from None
    except json.JSONDecodeError as error:
        raise Unreadable("not_json", f"not JSON: {error.msg}", error.lineno) from None
    except ValueError as error:
        raise Unreadable("not_json", str(error)) from None
    except RecursionError:
        raise _too_deep() from None
    indentation = check_depth(value)
    escapes = 5 * (text.count("<") + text.count(">") + text.count("&"))
    if len(text) + indentation + escapes > max_published:
        raise Unreadable("too_large", f"it would be published as more than {MAX_PUBLISHED:,} bytes")
    return value


class _Repeated(Exception):
    """A name occurs twice in one object."""


def integer(text: str) -> int | Number:
    """The integer that a text spells, as a number of rule 1."""
    if len(text) < 19 and text != "-0":
        return int(text)
    if len(text) < 21 and text != "-0":
        value = int(text)
        if value in _INT64:
            return value
    return Number(text)


def _no_constant(name: str) -> Json:
    raise ValueError(f"not JSON: {name}")


def _repeated_names(pairs: Iterable[tuple[str, Json]]) -> Iterator[str]:
    seen = set[str]()
    for name, _ in pairs:
        if name in seen:
            yield name
        seen.add(name)


def _repeated_name(text: str, name: str) -> Unreadable:
    message = f"the name {name[:80]!r} occurs twice in one object"
    found = first_repeated(text) if len(text) <= MAX_LINED else None
    return Unreadable("repeated_name", message, None if found is None else found[1])


def _too_deep() -> Unreadable:
    return Unreadable("too_deep", f"objects and lists are nested more than {MAX_DEPTH} deep")


def _too_many_values(text: str) -> bool:
    """Commas and openings count values; those inside strings are only told apart if it matters."""
    if text.count(",") + text.count("[") + text.count("{") <= MAX_VALUES:
        return False
    bare = _STRING.sub("", text)
    return bare.count(",") + bare.count("[") + bare.count("{") > MAX_VALUES


# A string that never ends reaches to the end, so that the search never starts over.
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


def check_depth(value: Json) -> int:
    """Refuse what is nested too deeply; the bytes that indentation adds to all the rest."""
    indentation = depth = 0
    layer = [value] if type(value) is dict or type(value) is list else []
    while layer:
        depth += 1
        if depth > MAX_DEPTH:
            raise _too_deep()
        indentation += 2 * depth * sum(map(len, layer))
        layer = [
            child
            for item in layer
            for child in (item.values() if type(item) is dict else item)
            if type(child) is dict or type(child) is list
        ]
    return indentation


def number_of(value: Json) -> float | int | None:
    """A number as Python compares it, or None where the value is none."""
    if type(value) is int:
        return value
    return float(value) if type(value) is Number else None


def plain(value: Json) -> Json:
    """The value with Python's numbers: `1.0` and `1e2` are the integers that they say.

    Raises ValueError where a number is beyond what Python's floats can say.
    """
    if type(value) is dict:
        return {name: plain(member) for name, member in value.items()}
    if type(value) is list:
        return [plain(member) for member in value]
    if type(value) is not Number:
        return value
    if _INTEGER.fullmatch(value.text):
        if len(value.text) > 400:
            raise ValueError(f"the number {value.text[:12]}… is too large")
        return int(value.text)
    number = float(value.text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"the number {value.text[:40]} is too large")
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


_INTEGER = re.compile(r"-?[0-9]+")


# --- writing ----------------------------------------------------------------------------------

_OPTIONS = orjson.OPT_SORT_KEYS | orjson.OPT_PASSTHROUGH_DATACLASS


def _spelled(value: object) -> object:
    if isinstance(value, Number):
        return orjson.Fragment(value.text)
    if type(value) is int:  # own documents may hold integers beyond 64 bits
        return orjson.Fragment(str(value))
    raise TypeError(f"{type(value).__name__} is not JSON")


_LINE_ENDS = (("\u2028".encode(), b"\\u2028"), ("\u2029".encode(), b"\\u2029"))
_MARKUP = ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026"))


def _escaped(text: bytes, escapes: Iterable[tuple[bytes, bytes]]) -> bytes:
    # These characters stand nowhere in JSON but inside strings.
    for plain_form, escape in escapes:
        text = text.replace(plain_form, escape)
    return text


def canonical(value: Json) -> bytes:
    """One line without white space, the form that is hashed. Markup stays as it is."""
    return _escaped(orjson.dumps(value, default=_spelled, option=_OPTIONS), _LINE_ENDS)


def compact(value: Json) -> bytes:
    """One line without white space, with `<`, `>` and `&` escaped: the form that is sent."""
    return trimmed(_escaped(canonical(value), _MARKUP))


def ordered(value: Json) -> bytes:
    """As `compact`, with the names in the order in which they stand."""
    text = orjson.dumps(value, default=_spelled, option=orjson.OPT_PASSTHROUGH_DATACLASS)
    return trimmed(_escaped(text, (*_LINE_ENDS, *_MARKUP)))


def published(value: Json) -> bytes:
    """Indented by two, with `<`, `>` and `&` escaped: the form that is served."""
    text = orjson.dumps(value, default=_spelled, option=_OPTIONS | orjson.OPT_INDENT_2)
    return trimmed(_escaped(text, (*_LINE_ENDS, *_MARKUP)))


# --- places -----------------------------------------------------------------------------------


@dataclass(slots=True)
class _Open:
    """An object or list that the scan is inside of."""

    is_object: bool
    wanted: dict[str | int, Json] | None
    key: str | int
    names: set[str]


# The ends of an escape are consumed with it; what is no token here is white space.
_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[][{},:]|[^][{},:"\s]+', re.DOTALL)


def lines_of(text: str, paths: Iterable[Path]) -> dict[Path, int]:
    """The line of each path in a text that is JSON; of its nearest parent where it is absent.

    Nothing for a text of one line, or one too long for people.
    """
    if len(text) > MAX_LINED or "\n" not in text.rstrip():
        return {}
    wanted = list(paths)
    tree: dict[str | int, Json] = {}
    for path in wanted:
        node = tree
        for key in path:
            node = node.setdefault(key, {})
    found: dict[Path, int] = {}
    _scan(text, tree, lambda path, position: found.setdefault(path, position))
    lines = _Lines(text)
    return {path: lines.at(_nearest(path, found)) for path in wanted}


def _nearest(path: Path, found: dict[Path, int]) -> int:
    return next((found[path[:n]] for n in range(len(path), -1, -1) if path[:n] in found), 0)


class _Lines:
    """Offsets to line numbers, counted once per line asked for."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._known: dict[int, int] = {}

    def at(self, position: int) -> int:
        """The line, from one, of an offset."""
        if position not in self._known:
            self._known[position] = self._text.count("\n", 0, position) + 1
        return self._known[position]


def first_repeated(text: str) -> tuple[Path, int] | None:
    """The path and line of the first name that stands twice in one object."""
    found: list[tuple[Path, int]] = []
    _scan(text, None, lambda path, position: found.append((path, position)), repeats=True)
    return (found[0][0], _Lines(text).at(found[0][1])) if found else None


def _scan(
    text: str,
    wanted: dict[str | int, Json] | None,
    report: Callable[[Path, int], object],
    *,
    repeats: bool = False,
) -> None:
    """Walk through a text that is JSON; report wanted paths, or the first repeated name."""
    stack: list[_Open] = []
    here = wanted  # what is wanted below the value that comes next
    expect_name = False
    for match in _TOKEN.finditer(text):
        token = match[0]
        top = stack[-1] if stack else None
        if token in "{[":
            if top is None and wanted is not None:
                report((), match.start())
            elif top is not None and not top.is_object and here is not None:
                report(_path(stack), match.start())
            stack.append(_Open(token == "{", here, 0, set()))
            here = None if here is None or token == "{" else here.get(0)
            expect_name = token == "{"
        elif token in "}]":
            if stack:
                stack.pop()
            expect_name = False
        elif token == "," and top is not None:
            expect_name = top.is_object
            if not top.is_object and isinstance(top.key, int):
                top.key += 1
                here = None if top.wanted is None else top.wanted.get(top.key)
        elif token == ":":
            expect_name = False
        elif expect_name and top is not None:
            top.key = token[1:-1] if "\\" not in token else json.loads(token)
            here = None if top.wanted is None else top.wanted.get(top.key)
            if repeats:
                if top.key in top.names:
                    report(_path(stack), match.start())
                    return
                top.names.add(str(top.key))
            elif here is not None:
                report(_path(stack), match.start())
        elif top is not None and not top.is_object and here is not None:
            report(_path(stack), match.start())


def _path(stack: Iterable[_Open]) -> Path:
    return tuple(item.key for item in stack)


def pointer_of(path: Path) -> str:
    """A path as a JSON pointer in fragment form: `#/paths/~1api/get`."""
    return "#" + "".join(f"/{str(key).replace('~', '~0').replace('/', '~1')}" for key in path)
