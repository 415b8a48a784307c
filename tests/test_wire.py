"""Content codings undone, and bodies cut into frames, however the bytes are cut."""

import base64
import gzip
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from tapes.errors import OversizeBody, UndecodableBody, UnsupportedCoding
from tapes.wire import Decoded, Events, Frame, Framer, Lines, decoded, framer, frames_of
from tests.strategies import cuts_of


def raw_deflate(data: bytes) -> bytes:
    writer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return writer.compress(data) + writer.flush()


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
}
RAW = {**ENCODERS, "deflate": raw_deflate}

# --- decoding


@given(st.binary(max_size=2000), st.lists(st.sampled_from(sorted(ENCODERS)), max_size=3))
def test_codings_are_undone_last_one_first(data: bytes, names: list[str]) -> None:
    coded = data
    for name in names:
        coded = ENCODERS[name](coded)
    assert decoded(coded, ", ".join(names)) == Decoded(data, True)


@pytest.mark.row("N09")
@pytest.mark.parametrize("name", sorted(ENCODERS))
def test_a_message_is_read_in_every_coding(name: str) -> None:
    assert decoded(ENCODERS[name](b'{"msg":"hello"}'), name).data == b'{"msg":"hello"}'


@pytest.mark.parametrize("size", [0, 1, 262_143, 262_144, 262_145, 262_160, 524_288, 600_000])
@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
def test_no_size_loses_its_end(name: str, size: int) -> None:
    data = (b"a" * 1000 + b"bc") * (size // 1002 + 1)
    assert decoded(RAW[name](data[:size]), name) == Decoded(data[:size], True)


@pytest.mark.parametrize("name", ["gzip", "zstd"])
def test_members_one_after_another_are_one_body(name: str) -> None:
    coded = b"".join(ENCODERS[name](bytes((n % 256,))) for n in range(500))
    assert decoded(coded, name) == Decoded(bytes(n % 256 for n in range(500)), True)


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
def test_a_cut_body_gives_what_came_and_says_so(name: str) -> None:
    data = json.dumps([{"n": n, "square": n * n} for n in range(30_000)]).encode()
    coded = ENCODERS[name](data)
    result = decoded(coded[: len(coded) * 3 // 4], name)
    assert not result.whole
    assert result.data
    assert data.startswith(result.data)


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
def test_no_decoder_produces_more_than_its_limit(name: str) -> None:
    coded = ENCODERS[name](b"\0" * 3_000_000)
    assert decoded(coded, name, limit=3_000_000).whole
    with pytest.raises(OversizeBody):
        decoded(coded, name, limit=2_999_999)


def test_the_limit_holds_without_a_coding() -> None:
    with pytest.raises(OversizeBody):
        decoded(b"12345", None, limit=4)


@pytest.mark.parametrize("name", ["gzip", "deflate", "br", "zstd"])
@pytest.mark.parametrize("body", [b"", b"not coded at all"], ids=["empty", "plain"])
def test_bytes_of_another_kind_are_undecodable(name: str, body: bytes) -> None:
    with pytest.raises(UndecodableBody):
        decoded(body, name)


def test_an_unknown_coding_is_unsupported() -> None:
    with pytest.raises(UnsupportedCoding, match="known: gzip"):
        decoded(b"x", "gzip, snappy")


def _built(build: dict[str, Any]) -> tuple[bytes, bytes]:
    """The plain and the coded body that a reference case describes."""
    kind, what = next(iter(build["plaintext"].items()))
    if kind == "utf8":
        plain = what.encode()
    elif kind == "repeat_utf8":
        plain = what["text"].encode() * what["count"]
    else:
        plain = bytes((what["byte"],)) * what["count"]
    coded = plain
    for layer in build["layers"]:
        members = build.get("members", 1)
        size = len(coded) // members
        parts = [coded[n * size : (n + 1) * size] for n in range(members - 1)]
        coded = b"".join(map(ENCODERS[layer], [*parts, coded[(members - 1) * size :]]))
    cut = build.get("truncate", {})
    if "drop_tail_bytes" in cut:
        coded = coded[: -cut["drop_tail_bytes"]]
    if "keep_head_bytes" in cut:
        coded = coded[: cut["keep_head_bytes"]]
    if "keep_head_ratio" in cut:
        above, below = cut["keep_head_ratio"]
        coded = coded[: len(coded) * above // below]
    return plain, coded


_ERRORS = {
    "unsupported": UnsupportedCoding,
    "oversize": OversizeBody,
    "undecodable": UndecodableBody,
}
# The reference knows no br; here the case is a body that is not what its coding says.
_BR = "error-unsupported-encoding"
_LARGE = ("limit-decoded-at-cap", "limit-decoded-over-cap")


def _check(case: dict[str, Any]) -> None:
    plain, body = b"", b""
    if "build" in case["body"]:
        plain, body = _built(case["body"]["build"])
    else:
        body = base64.b64decode(case["body"]["bytes_b64"])
    expected = case["expect"]
    if expected["outcome"] == "error":
        with pytest.raises(_ERRORS[expected["error"]["class"]]):
            decoded(body, case["encoding"])
        return
    result = decoded(body, case["encoding"])
    assert result.whole is (expected["outcome"] == "decoded")
    what = expected["decoded"]
    if "equals_plaintext" in what:
        assert result.data == plain
    if "bytes_b64" in what:
        assert result.data == base64.b64decode(what["bytes_b64"])
    if "nonempty_prefix_of_plaintext" in what:
        assert result.data
        assert plain.startswith(result.data)


def _reference_cases(folder: Path) -> dict[str, dict[str, Any]]:
    cases = folder / "tapes-fixtures" / "content-encoding" / "cases"
    return {file.stem: json.loads(file.read_text()) for file in sorted(cases.glob("*.json"))}


def test_the_reference_cases_hold(reference_data: Path) -> None:
    cases = _reference_cases(reference_data)
    assert len(cases) == 27
    cases[_BR]["expect"] = {"outcome": "error", "error": {"class": "undecodable"}}
    for name, case in cases.items():
        if name not in _LARGE:
            _check(case)


@pytest.mark.slow
@pytest.mark.parametrize("name", _LARGE)
def test_the_large_reference_cases_hold(reference_data: Path, name: str) -> None:
    _check(_reference_cases(reference_data)[name])


# --- frames

EVENT_BYTES = st.lists(
    st.sampled_from(
        [
            *(b"data: a", b"data:b", b"event: e", b": c", b"\n", b"\r\n", b"\r", b"\n\n", b"id: 1"),
            *("data: ä€🙂".encode(), b"data", b"\xef\xbb\xbf", b"\xff", b"data: {}\n\n", b"x: y"),
        ]
    ),
    max_size=12,
).map(b"".join)


@given(st.data())
@pytest.mark.parametrize("cutter", [Events, Lines])
def test_frames_are_the_same_however_the_bytes_are_cut(
    cutter: type[Framer], data: st.DataObject
) -> None:
    body = data.draw(EVENT_BYTES)
    whole, piecewise = cutter(), cutter()
    expected = whole.feed(body) + whole.finish()
    frames = [f for piece in data.draw(cuts_of(body)) for f in piecewise.feed(piece)]
    assert frames + piecewise.finish() == expected


@pytest.mark.row("N07")
@pytest.mark.parametrize(
    ("body", "frames"),
    [
        (b": ping\n\ndata: a\r\n\r\n", [Frame("", "a")]),
        (b"data: one\rdata: two\r\r", [Frame("", "one\ntwo")]),
        (b"data: x  \n\n\n", [Frame("", "x  ")]),
        (b"event: new_kind\ndata: {}\n\n", [Frame("new_kind", "{}")]),
        (b"\xef\xbb\xbfdata: a\n\n", [Frame("", "a")]),
        (b"data:\n\n", [Frame("", "")]),
        (b"data\n\n", [Frame("", "")]),
        (b"event: e\n\ndata: a\n\n", [Frame("", "a")]),
        (b"data: a\n\ndata: unfinished\n", [Frame("", "a")]),
        (b"data:  two spaces\n\n", [Frame("", " two spaces")]),
        (b"", []),
    ],
)
def test_events_are_told_apart_as_the_standard_says(body: bytes, frames: list[Frame]) -> None:
    assert frames_of("text/event-stream; charset=utf-8", body) == frames


def test_lines_are_told_apart_and_the_last_needs_no_end() -> None:
    body = b'{"a":1}\r\n\n  \n{"b":2}'
    assert frames_of("application/x-ndjson", body) == [Frame("", '{"a":1}\r'), Frame("", '{"b":2}')]


def test_a_body_without_frames_has_none() -> None:
    assert framer("application/json") is None
    assert frames_of(None, b'{"a":1}') is None


def test_a_stream_without_a_type_is_known_by_its_beginning() -> None:
    assert frames_of(None, b"event: a\ndata: b\n\n") == [Frame("a", "b")]
    assert frames_of("text/plain", b"data: b\n\n") is None
