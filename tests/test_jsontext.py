"""JSON as text: the plain definition, the faster writer beside it, and the strict reader."""

import dataclasses
import enum
import json
import math
import tracemalloc
import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes.errors import NotCanonical
from tapes.jsontext import (
    MAX_DEPTH,
    Copies,
    canonical,
    canonical_of_read,
    compact,
    deeper_than,
    fast_canonical,
    has_unwritable_float,
    read,
    require_json,
    value_of_compact,
)
from tests.strategies import JSON, TEXT, json_values


def plain(value: Any, ascii_only: bool) -> str:
    """The definition as the documents have it."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=ascii_only)


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


class Colour(enum.Enum):
    RED = "red"


class Word(enum.StrEnum):
    USER = "user"


@dataclasses.dataclass
class Point:
    x: int


# --- canonical


@given(JSON, st.booleans())
def test_canonical_text_is_the_plain_definition(value: Any, ascii_only: bool) -> None:
    assert canonical(value, ascii_only=ascii_only) == plain(value, ascii_only)


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({"a": [1, {"b": math.nan}]}, "/a/1/b is nan"),
        ({"a": math.inf}, "/a is inf"),
        ({"a": {1: 2}}, "/a has the key 1"),
        ({None: 2}, "/ has the key None"),
        ({"id": uuid.UUID(int=1)}, "/id is of type UUID"),
        ({"colour": Colour.RED}, "/colour is of type Colour"),
        ([Point(1)], "/0 is of type Point"),
        ({"data": b"x"}, "/data is of type bytes"),
        ({"items": {1, 2}}, "/items is of type set"),
    ],
)
def test_what_json_cannot_say_is_refused_with_its_place(value: Any, place: str) -> None:
    with pytest.raises(NotCanonical, match=place):
        canonical(value)


def test_a_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = [[]]
    value[0] = [value, value]
    with pytest.raises(NotCanonical, match="contains itself"):
        canonical(value)


@pytest.mark.parametrize("value", [nested(100_000), {"n": 10**5000}], ids=["deep", "long number"])
def test_what_no_writer_gets_through_is_refused(value: Any) -> None:
    with pytest.raises(NotCanonical):
        canonical(value)


def test_a_long_name_is_no_depth() -> None:
    assert canonical({"n" * 20_000: {"a": [0.5]}}) == '{"%s":{"a":[0.5]}}' % ("n" * 20_000)


def test_text_enums_and_subclasses_are_their_values() -> None:
    assert canonical({"role": Word.USER, "t": (1, 2)}) == '{"role":"user","t":[1,2]}'


def test_every_character_is_written_as_the_plain_definition_has_it() -> None:
    characters = [chr(n) for n in range(0x11000) if not 0xD800 <= n < 0xE000]
    for start in range(0, len(characters), 500):
        value = {"".join(characters[start : start + 500]): characters[start]}
        for ascii_only in (False, True):
            assert canonical(value, ascii_only=ascii_only) == plain(value, ascii_only)
        assert compact(value) == json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=50, max_size=200))
def test_every_number_is_written_as_the_plain_definition_has_it(numbers: list[float]) -> None:
    for number in numbers:
        for near in (number, number * 1e-300, math.fmod(number, 1e17), math.fmod(number, 10.0)):
            assert canonical(near) == compact(near) == repr(near)


# --- the faster writer

ANYTHING = json_values(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)  # lone surrogates too
    | st.sampled_from([uuid.UUID(int=7), Colour.RED, Word.USER, Point(1), b"x", 1e16, 1e-7, -0.0])
) | st.dictionaries(st.integers() | TEXT, JSON, max_size=3)


@given(ANYTHING)
def test_a_fast_text_that_is_canonical_text_means_the_same(value: Any) -> None:
    """What the hot path relies on: where both writers agree, it is the same request."""
    fast = fast_canonical(value)
    if fast is None or (b"null" in fast and has_unwritable_float(value)):
        return
    meaning = json.loads(fast)
    if plain(meaning, ascii_only=False).encode() != fast:
        return  # an exponent spelled otherwise: no recorded request has this text
    try:
        assert canonical(value).encode() == fast
    except NotCanonical:
        # UUID and Enum, which the plain writer refuses: the text is that of their values.
        assert canonical(meaning).encode() == fast


@given(JSON)
def test_the_fast_text_never_is_the_text_of_another_value(value: Any) -> None:
    fast = fast_canonical(value)
    assert fast is None or plain(json.loads(fast), False) == canonical(value)


@pytest.mark.parametrize("value", [{1: 2}, {"a": Point(1)}, 2**64, "\ud800", b"x"], ids=repr)
def test_the_fast_writer_declines_what_it_cannot_say(value: Any) -> None:
    assert fast_canonical(value) is None


# --- compact and copies


@given(JSON)
def test_compact_text_gives_the_value_back(value: Any) -> None:
    text = compact(value)
    assert "\n" not in text
    assert json.loads(text.encode()) == value


def test_compact_text_escapes_what_has_no_utf8() -> None:
    assert compact({"é": "\ud83d"}) == '{"\\u00e9":"\\ud83d"}'


def test_compact_text_refuses_nan() -> None:
    with pytest.raises(NotCanonical, match="/a is nan"):
        compact({"a": math.nan})


@given(ANYTHING.filter(lambda value: _is_json(value)))
def test_a_copy_equals_its_value(value: Any) -> None:
    assert repr(Copies(value).one()) == repr(json.loads(json.dumps(value)))


def _is_json(value: Any) -> bool:
    try:
        require_json(value)
    except NotCanonical:
        return False
    return True


def test_a_copy_keeps_the_nan_that_a_foreign_tape_holds() -> None:
    copied = Copies({"a": None, "b": math.nan, "c": -math.inf}).one()
    assert copied["a"] is None
    assert math.isnan(copied["b"])
    assert copied["c"] == -math.inf


@pytest.mark.row("F07")
def test_copies_are_independent() -> None:
    copies = Copies({"a": [1]})
    copies.one()["a"].append(2)
    assert copies.one() == {"a": [1]}


# --- read


@given(JSON)
def test_read_gives_back_what_has_one_meaning(value: Any) -> None:
    assert read(json.dumps(value).encode()) == value
    assert read(json.dumps(value, ensure_ascii=False, indent=2).encode()) == value


@pytest.mark.parametrize(
    "data",
    [
        b'{"a":1,"a":2}',
        b'{"x":{"a":1,"\\u0061":2}}',
        b"NaN",
        b'{"a":-Infinity}',
        b"1e999",
        b"1" * 400 + b".0",
        b"-" + b"9" * 400 + b".5",
        b'"\\ud83d"',
        b'"\\uDE00\\ud83d"',
        b'{"\\udc00":1}',
        b'"caf\xe9"',
        b"\xef\xbb\xbf{}",
        '{"a":1}'.encode("utf-16"),
        b"{} {}",
        b"",
        b"1" * 5000,
        b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1),
        b"[" * 100_000,
    ],
)
def test_read_refuses_what_has_not_one_meaning(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        read(data)
    assert not isinstance(caught.value, RecursionError)


def test_read_takes_escaped_pairs_and_deep_values() -> None:
    assert read(b'"\\ud83d\\ude42"') == "🙂"
    assert read(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH) is not None
    assert read(b"1e-999") == 0.0


@given(JSON | st.floats(allow_nan=False, allow_infinity=False))
def test_what_was_read_has_the_same_canonical_text_by_the_shorter_way(value: Any) -> None:
    assert canonical_of_read(value) == plain(value, False)


# --- depth


@given(JSON)
def test_a_compact_text_is_read_fast_only_where_it_would_be_written_so_again(value: Any) -> None:
    for text in (json.dumps(value, separators=(",", ":"), ensure_ascii=False), json.dumps(value)):
        read_fast = value_of_compact(text)
        if read_fast is not None:
            assert json.dumps(read_fast, separators=(",", ":"), ensure_ascii=False) == text
            assert repr(read_fast) == repr(json.loads(text))


@given(st.floats(allow_nan=False, allow_infinity=False) | st.integers())
def test_no_number_is_changed_by_reading_it_fast(number: float) -> None:
    for text in (f"[{number!r}]", f"[{number:f}]", f"[{number:e}]", f"[{number:g}]"):
        read_fast = value_of_compact(text)
        assert read_fast is None or json.dumps(read_fast) == text


@pytest.mark.parametrize(
    "text",
    [
        '{"a":1,"a":2}', '{"a": 1}', '{"a":1}\n', "[1.10]", "[1e2]", "[1E5]", "[0.00001]", "[-0]",
        "[123456789012345678901234567890]", "[NaN]", '["\\u00e9"]', '["\\ud83d"]', '["\\/"]', '"a"',
        "1", "null", "", "[", "[" * 200 + "]" * 200,
    ],
)  # fmt: skip
def test_what_is_spelled_otherwise_is_not_read_fast(text: str) -> None:
    assert value_of_compact(text) is None


def test_what_programs_send_is_read_fast() -> None:
    assert value_of_compact('{"model":"m","n":[1,0.5,true,null],"t":"é\\n"}') == {
        "model": "m", "n": [1, 0.5, True, None], "t": "é\n",
    }  # fmt: skip


@given(st.integers(0, 8), st.integers(0, 8))
def test_depth_is_counted_in_containers(levels: int, limit: int) -> None:
    assert deeper_than(nested(levels), limit) is (levels > limit)


def test_a_text_that_is_kept_takes_about_as_much_memory_as_it_is_long() -> None:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = [Copies({"n": number}).trimmed() for number in range(500)]
        assert tracemalloc.get_traced_memory()[0] - before < 500 * 300
    finally:
        tracemalloc.stop()
    assert kept[7].one() == {"n": 7}
