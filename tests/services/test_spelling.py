import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes.services.spelling import (
    MAX_DEPTH,
    MAX_VALUES,
    Number,
    Unreadable,
    canonical,
    compact,
    first_repeated,
    lines_of,
    plain,
    pointer_of,
    published,
    read,
    text_of,
)

Json = Any


@pytest.mark.parametrize("spelling", ["1.50", "1E21", "-0", "1e400", "9223372036854775808", "0.0"])
def test_a_number_that_python_would_write_otherwise_keeps_its_spelling(spelling: str) -> None:
    assert read(f"[{spelling}]") == [Number(spelling)]
    assert canonical(read(f"[{spelling}]")) == f"[{spelling}]".encode()


@pytest.mark.parametrize("value", [0, -1, 2**63 - 1, -(2**63)])
def test_a_plain_integer_is_an_int(value: int) -> None:
    assert read(str(value)) == value
    assert type(read(str(value))) is int


@pytest.mark.parametrize(
    "text",
    ["", "{", "[1,]", "01", "1.", "+1", "NaN", "-Infinity", "{} {}", "\ufeff{}", '"\t"', "'a'"],
)
def test_what_is_not_one_json_value_is_refused(text: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read(text)
    assert caught.value.code == "not_json"


def test_a_name_that_stands_twice_is_refused_with_its_line() -> None:
    with pytest.raises(Unreadable, match="'b' occurs twice") as caught:
        read('{"a": 1,\n "x": {"b": 1,\n  "\\u0062": 2}}')
    assert (caught.value.code, caught.value.line) == ("repeated_name", 3)


def test_names_may_be_collected_instead_of_refused() -> None:
    repeated: list[str] = []
    assert read('{"a": 1, "a": 2}', repeated=repeated) == {"a": 2}
    assert repeated == ["a"]


@pytest.mark.parametrize(
    ("data", "meant"),
    [
        (rb'"x\ud800y"', "x\ufffdy"),
        (rb'"\udc00\ud83d\ude00"', "\ufffd\U0001f600"),
        (rb'"\ud83d\ude00"', "\U0001f600"),
        (rb'"\\ud800"', "\\ud800"),
        (rb'"\\\ud800\n"', "\\\ufffd\n"),
        (rb'"\ud800\ud83d\ude00\ude00"', "\ufffd\U0001f600\ufffd"),
        (b'"\xe2\x80"', "\ufffd\ufffd"),
        (b'"\xff\xfe"', "\ufffd\ufffd"),
    ],
    ids=[
        "escape",
        "low-then-pair",
        "pair",
        "escaped-backslash",
        "escaped-backslash-and-escape",
        "pair-between-lone",
        "cut-sequence",
        "no-utf-8",
    ],
)
def test_what_is_no_character_becomes_one_replacement_each(data: bytes, meant: str) -> None:
    assert read(text_of(data)) == meant


def test_depth_is_bounded_at_a_fixed_level() -> None:
    assert read("[" * MAX_DEPTH + "0" + "]" * MAX_DEPTH)
    for levels in (MAX_DEPTH + 1, 5_000, 1_000_000):
        with pytest.raises(Unreadable) as caught:
            read("[" * levels + "0" + "]" * levels)
        assert caught.value.code in ("too_deep", "too_many_values")


def test_values_are_bounded_but_commas_in_prose_are_not_values() -> None:
    with pytest.raises(Unreadable) as caught:
        read("[" + "0," * MAX_VALUES + "0]")
    assert caught.value.code == "too_many_values"
    prose = "a,b[c{" * (MAX_VALUES // 2)
    assert read(json.dumps([prose])) == [prose]


@pytest.mark.parametrize("tail", ['"', '"\\', '"' + '\\"' * 100_000])
def test_an_endless_string_is_refused_at_once(tail: str) -> None:
    with pytest.raises(Unreadable):
        read("[" + "," * (MAX_VALUES + 1) + tail)


def test_what_indentation_would_blow_up_is_refused() -> None:
    levels = 100
    with pytest.raises(Unreadable) as caught:
        read("[" * levels + "0," * 400_000 + "0" + "]" * levels)
    assert caught.value.code == "too_large"


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from([Number("1.50"), Number("-0"), Number("1e9999")]),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=20,
)


def _oracle(value: Json, depth: int = 0) -> str:
    """The published form by its definition, without any library."""
    if isinstance(value, Number):
        return value.text
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return "".join(f"\\u{ord(c):04x}" if c in "<>&\u2028\u2029" else c for c in text)
    if not isinstance(value, dict | list) or not value:
        return json.dumps(value)
    pad, end = "\n" + "  " * (depth + 1), "\n" + "  " * depth
    if isinstance(value, list):
        return "[" + ",".join(pad + _oracle(v, depth + 1) for v in value) + end + "]"
    members = (f"{pad}{_oracle(n)}: {_oracle(v, depth + 1)}" for n, v in sorted(value.items()))
    return "{" + ",".join(members) + end + "}"


def _spelled(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _spelled(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_spelled(item) for item in value]
    if type(value) is int and not -(2**63) <= value < 2**63:
        return Number(str(value))
    return value


@given(_VALUES)
def test_the_published_form_is_the_defined_one_and_reads_back(value: Json) -> None:
    value = _spelled(value)
    assert published(value).decode() == _oracle(value)
    assert read(text_of(published(value))) == value
    assert read(text_of(canonical(value))) == value


def test_the_hashed_form_keeps_markup_and_the_sent_form_escapes_it() -> None:
    value = {"b": "<&>\u2028", "a": 1}
    assert canonical(value) == b'{"a":1,"b":"<&>\\u2028"}'
    assert compact(value) == b'{"a":1,"b":"\\u003c\\u0026\\u003e\\u2028"}'


def test_plain_numbers_are_those_that_the_spelling_says() -> None:
    tree = {
        "a": Number("1.0"),
        "b": [Number("2.5"), Number("-0")],
        "c": Number("12345678901234567890"),
    }
    assert plain(tree) == {"a": 1, "b": [2.5, 0], "c": 12345678901234567890}
    with pytest.raises(ValueError, match="too large"):
        plain([Number("1e400")])


def test_lines_are_those_of_names_and_elements() -> None:
    text = '{\n "a": {\n  "b": [\n   1,\n   {"c": "{\\"x\\": 1}"},\n   [3]\n  ]\n },\n "d": null\n}'
    paths: dict[tuple[str | int, ...], int] = {
        (): 1,
        ("a",): 2,
        ("a", "b"): 3,
        ("a", "b", 0): 4,
        ("a", "b", 1, "c"): 5,
        ("a", "b", 2): 6,
        ("d",): 9,
        ("a", "missing"): 2,
        ("d", "deeper", 7): 9,
    }
    assert lines_of(text, paths) == paths


@given(_VALUES)
def test_every_member_is_found_on_the_line_that_names_it(value: Json) -> None:
    text = json.dumps(json.loads(published(_spelled({"root": value}))), indent=1)
    paths: list[tuple[str | int, ...]] = []

    def collect(item: Json, path: tuple[str | int, ...]) -> None:
        for key, member in item.items() if isinstance(item, dict) else enumerate(item):
            paths.append((*path, key))
            if isinstance(member, dict | list):
                collect(member, (*path, key))

    collect(json.loads(text), ())
    lines = text.split("\n")
    for path, line in lines_of(text, paths).items():
        key = path[-1]
        if isinstance(key, str):
            assert lines[line - 1].lstrip().startswith(json.dumps(key) + ":")


def test_a_text_of_one_line_has_no_lines_worth_naming() -> None:
    assert lines_of('{"a": 1}\n', [("a",)]) == {}


def test_the_first_repeated_name_is_found_with_its_path() -> None:
    assert first_repeated('{"a": [{"b": 1,\n"b": 2}], "a": 3}') == (("a", 0, "b"), 2)
    assert first_repeated('{"a": {"a": "a"}}') is None


def test_a_place_is_written_as_a_json_pointer() -> None:
    assert pointer_of(("paths", "/a~b", "get", 0)) == "#/paths/~1a~0b/get/0"
