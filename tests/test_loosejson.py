"""JSON as most readers would understand it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes.jsontext import Json
from tapes.loosejson import as_it_was_kept, loose, packed

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a": 1, "a": 2}', {"a": 2}),
        (b'\xef\xbb\xbf{"a": 1}', {"a": 1}),
        (b'{"a": "\\ud83d"}', {"a": "\ufffd"}),
        (b'{"a": "\\u0000b"}', {"a": "\ufffdb"}),
        (b'{"a": "\x00b"}', {"a": "\ufffdb"}),
        (b'{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        (b'{"a": "caf\xe9"}', {"a": "caf\ufffd"}),
        (b'{"n": 123456789012345678901234567890}', {"n": pytest.approx(1.2345678901234568e29)}),
    ],
)
def test_what_a_strict_reader_refuses_is_read_as_it_was_meant(text: bytes, value: Json) -> None:
    assert loose(text) == value


@pytest.mark.parametrize("text", [b"", b"{", b"text", b"[1,]", b"[" * 100_000])
def test_what_nobody_understands_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        loose(text)


@given(VALUES)
def test_text_and_bytes_mean_the_same_and_can_be_kept(value: Json) -> None:
    text = json.dumps(value)
    assert loose(text) == loose(text.encode())
    shown = json.dumps(loose(text), ensure_ascii=False)
    assert "\x00" not in shown
    shown.encode()


@given(VALUES)
def test_equal_values_are_packed_alike(value: Json) -> None:
    assert packed(value) == packed(json.loads(json.dumps(value)))


@pytest.mark.parametrize("number", [float("inf"), float("-inf"), float("nan")])
def test_numbers_that_json_cannot_say_are_packed_beside_integers_of_any_size(
    number: float,
) -> None:
    assert packed([2**64 + 1, number]).startswith(b"[18446744073709551617,")


def test_a_number_that_no_json_can_say_is_read_as_its_name() -> None:
    assert loose(b'[1e999, -1e999, NaN, Infinity, -Infinity, 1.5]') == [
        "inf", "-inf", "nan", "inf", "-inf", 1.5,
    ]  # fmt: skip


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**63), -(2**63) - 1, 10**400])
def test_what_was_kept_is_read_as_the_very_number(number: int) -> None:
    text = packed({"n": number, "t": "plain"})
    for kept in (text, text.decode()):
        assert as_it_was_kept(kept) == {"n": number, "t": "plain"}
