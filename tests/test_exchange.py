"""Exchanges and their one JSON form: whatever the bytes, they come back."""

import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes.errors import DamagedTape, NewerTape
from tapes.exchange import (
    SCHEMA_VERSION,
    Exchange,
    Piece,
    Request,
    Response,
    State,
    bytes_form,
    bytes_of,
    exchange_of,
    header,
    row_of,
)
from tests.strategies import JSON, TEXT

HEADERS = st.lists(st.tuples(TEXT, TEXT), max_size=4).map(tuple)
STYLES: list[dict[str, Any]] = [
    {},
    {"separators": (",", ":")},
    {"indent": 2},
    {"ensure_ascii": False},
    {"separators": (",", ":"), "ensure_ascii": False},
    {"indent": 2, "ensure_ascii": False},
]
BODIES = st.binary(max_size=200) | st.builds(
    lambda value, style, end: (json.dumps(value, **style) + end).encode("utf-8", "surrogatepass"),
    JSON,
    st.sampled_from(STYLES),
    st.sampled_from(["", "\n", "\n\n", " "]),
)
# What parsers like to tidy up.
STUBBORN = [
    bytes(range(256)),
    b"caf\xe9",
    b"\xef\xbb\xbf{}",
    b"\x00",
    b"",
    b'{"t":"\\ud83d"}',
    b'{"n":123456789012345678901234567890,"f":1.10,"e":1e2}',
    b'{"a":1,"a":2}',
    b'{ "b" : 1 }\n',
    '{"t":"a\u2028b\u0085c"}'.encode(),
    b'{"n":NaN}',
    b"[1, 2]",
    b"[1,2]",
    b"[" * 5000,
    b"[" * 150 + b"]" * 150,
    b'{"esc":"\\/"}',
    b'"text"',
]


def stored(form: Any) -> Any:
    """A form as it comes back from a file."""
    return json.loads(json.dumps(form))


@given(BODIES)
def test_the_form_of_bytes_gives_them_back(data: bytes) -> None:
    assert bytes_of(stored(bytes_form(data))) == data


@pytest.mark.row("N10")
@pytest.mark.parametrize("data", STUBBORN, ids=lambda data: repr(data[:20]))
def test_bytes_that_a_parser_would_rewrite_come_back(data: bytes) -> None:
    assert bytes_of(stored(bytes_form(data))) == data


@pytest.mark.parametrize("style", STYLES, ids=str)
@pytest.mark.parametrize("end", ["", "\n"], ids=["", "with a line end"])
def test_json_as_programs_write_it_is_shown_as_json(style: dict[str, Any], end: str) -> None:
    value = {"model": "m", "content": "naïve\n", "n": [1, 2.5, None]}
    form = bytes_form((json.dumps(value, **style) + end).encode())
    assert form["json"] == value


def test_the_usual_style_needs_no_words() -> None:
    assert bytes_form(b'{"a":1}') == {"json": {"a": 1}}


@pytest.mark.parametrize(
    "form", [{"json": 1, "style": "gothic"}, {"hex": "00"}, {"blob": "x"}, 3, {"base64": "*"}]
)
def test_what_is_no_form_of_bytes_is_a_value_error(form: Any) -> None:
    with pytest.raises(ValueError, match=r"."):
        bytes_of(form)


def test_a_body_may_be_kept_elsewhere() -> None:
    kept = {}

    def put(data: bytes) -> str:
        kept["b1"] = data
        return "b1"

    assert bytes_of(bytes_form(b"large", put), kept.__getitem__) == b"large"


# --- rows

REQUESTS = st.builds(Request, st.just("POST"), TEXT, HEADERS, BODIES)
TIMES = st.floats(0, 1000).map(lambda seconds: round(seconds, 4))
RESPONSES = st.builds(
    Response,
    st.integers(100, 599),
    HEADERS,
    st.lists(st.builds(Piece, TIMES, BODIES), max_size=4).map(tuple),
    TEXT,
)
KEYS = st.binary(min_size=32, max_size=32).map(bytes.hex)
RULES = st.lists(st.dictionaries(TEXT, TEXT, max_size=2), max_size=2).map(tuple)
COMMON: dict[str, Any] = {
    "key": KEYS,
    "sample": st.integers(0, 5),
    "state": st.sampled_from(State),
    "recorded_at": st.none() | st.just("2026-01-01T00:00:00.000+00:00"),
    "rules": RULES,
}
OVER_HTTP = st.builds(
    Exchange, canonicalizer=st.just("http/1"), request=REQUESTS, response=RESPONSES, **COMMON
)
WITH_DICTS = st.builds(
    Exchange, canonicalizer=st.just("tape/1"), request=JSON, response=JSON, **COMMON
)


@given(OVER_HTTP | WITH_DICTS)
def test_a_row_gives_its_exchange_back(exchange: Exchange) -> None:
    assert exchange_of(stored(row_of(exchange)), "t.jsonl", "line 1") == exchange


@pytest.mark.row("A12")
def test_every_row_says_its_schema_version_and_its_canonicalizer() -> None:
    row = row_of(Exchange("0" * 64, "tape/1", {"a": 1}, {"b": 2}))
    assert list(row) == ["hash", "v", "canonicalizer", "request", "response"]
    assert row["v"] == SCHEMA_VERSION


def test_a_row_without_a_version_is_the_documents_own() -> None:
    exchange = exchange_of({"hash": "k", "request": {}, "response": {"x": 1}}, "t", "line 1")
    assert (exchange.canonicalizer, exchange.version) == ("tape/1", 0)


@pytest.mark.row("A12")
def test_a_row_of_a_later_schema_is_refused_with_advice() -> None:
    row = {"hash": "k", "v": SCHEMA_VERSION + 1, "request": {}, "response": {}}
    with pytest.raises(NewerTape, match=r"t\.jsonl, line 7: schema version 2") as caught:
        exchange_of(row, "t.jsonl", "line 7")
    assert "pip install --upgrade" in caught.value.remedy


GOOD = row_of(Exchange("0" * 64, "http/1", Request("GET", "http://h/"), Response(200)))


@pytest.mark.parametrize(
    "row",
    [
        None,
        [],
        "text",
        {},
        {"hash": "k"},
        {**GOOD, "v": "one"},
        {**GOOD, "state": "unheard of"},
        {**GOOD, "response": {"headers": []}},
        {**GOOD, "response": {"status": 200, "headers": [["only one"]]}},
        {**GOOD, "response": {"status": 200, "pieces": [[0.1, {"hex": ""}]]}},
        {**GOOD, "response": {"status": 200, "at": 0, "body": {"json": 1, "style": "gothic"}}},
        {**GOOD, "request": "GET /"},
        {k: v for k, v in GOOD.items() if k != "canonicalizer"},
    ],
    ids=repr,
)
def test_a_row_that_is_no_exchange_is_damage_with_its_place(row: Any) -> None:
    with pytest.raises(DamagedTape, match=r"t\.jsonl, line 3"):
        exchange_of(row, "t.jsonl", "line 3")


def test_an_exchange_cannot_be_changed() -> None:
    exchange = Exchange("k", "tape/1", {}, {})
    with pytest.raises(dataclasses.FrozenInstanceError):
        exchange.key = "other"  # type: ignore[misc]


def test_headers_are_found_whatever_their_case() -> None:
    headers = (("X-A", "1"), ("x-a", "2"))
    assert header(headers, "x-A") == "1"
    assert header(headers, "b") is None


def test_a_date_that_is_no_text_is_none() -> None:
    row = {"hash": "k", "v": 1, "canonicalizer": "tape/1", "request": {}, "response": {"x": 1}}
    assert exchange_of({**row, "recorded_at": 12345}, "t", "line 1").recorded_at is None
    assert exchange_of({**row, "recorded_at": "2026"}, "t", "line 1").recorded_at == "2026"


@pytest.mark.parametrize("member", ["v", "sample"])
def test_a_number_that_no_row_has_is_damage(member: str) -> None:
    row = {"hash": "a" * 64, "v": 1, "canonicalizer": "tape/1", "request": {}, "response": {}}
    with pytest.raises(DamagedTape, match="line 3"):
        exchange_of({**row, member: float("inf")}, "t.jsonl", "line 3")
