"""Rows as bytes: what is written reads the same, and what cannot be said is refused."""

import json
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes.errors import DamagedTape, NotAnAnswer
from tapes.jsontext import Json
from tapes.tape import rowtext
from tapes.tape.rowtext import line_of, read_row, write_file, write_row

_TEXT = st.text(st.characters(), max_size=10)  # lone surrogates included
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | _TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXT, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@given(value=_VALUES)
def test_what_is_written_reads_the_same_and_is_the_same_with_every_writer(value: Json) -> None:
    line, text = write_row(value), write_file(value)
    assert b"\n" not in line
    assert text.endswith(b"\n")
    for written in (line, text):
        assert json.dumps(read_row(written, "t", "line 1")) == json.dumps(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rowtext, "orjson", None)
        assert (write_row(value), write_file(value)) == (line, text)


@given(value=_VALUES | st.text(st.sampled_from('\u2028\u2029\x85\\\x0b\x1cé"u')))
def test_a_line_is_one_line_for_everyone_and_means_the_same(value: Json) -> None:
    line = line_of(write_row(value))
    assert line.decode().splitlines() == [line.decode()[:-1]]
    assert json.dumps(json.loads(line)) == json.dumps(value)


@pytest.mark.parametrize(
    "number", [1e-5, 1e-7, 0.00001234, -1e-300, 5e-324, 1e16, 1e22, 1.5e300, 123456789012345680.0]
)
def test_numbers_are_spelled_as_python_spells_them(number: float) -> None:
    assert write_row([number]) == f"[{number!r}]".encode()


@pytest.mark.parametrize(
    "value",
    [float("nan"), [float("-inf")], {1: 2}, b"x", {"a": {None: 1}}, uuid.uuid4(), object(), {1, 2}],
    ids=["NaN", "infinity", "number", "bytes", "null as name", "UUID", "object", "set"],
)
def test_what_json_cannot_say_is_refused_with_its_place(value: Json) -> None:
    for write in (write_row, write_file):
        with pytest.raises(NotAnAnswer, match="/here") as refused:
            write({"here": value, "null": None})
        assert refused.value.remedy


def test_what_is_nested_without_end_is_refused() -> None:
    value: list[Json] = []
    value.append(value)
    with pytest.raises(NotAnAnswer, match="nested too deeply"):
        write_row({"here": value})


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "not JSON"),
        (b'{"a": 1', "not JSON"),
        (b'"caf\xe9"', "not JSON"),
        (b'"\xed\xa0\x80"', "not JSON"),
        (b'{"a": 1}{"b": 2}', "not JSON"),
        ('{"a": 1}'.encode("utf-16"), "not JSON"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_row_is_damage_with_its_place(data: bytes, what: str) -> None:
    with pytest.raises(DamagedTape, match=what) as damage:
        read_row(data, "my.jsonl", "line 7")
    assert "my.jsonl, line 7" in damage.value.message
