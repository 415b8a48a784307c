"""HTTP archives as the format's document and the browsers have them."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapes.errors import ForeignFile
from tapes.exchange import Exchange, Piece, Request, Response, header
from tapes.interchange import har
from tapes.interchange.foreign import brought
from tapes.moving import import_into
from tapes.redact import Redactor
from tapes.tape.kinds import open_tape
from tests.interchange.made import (
    content,
    entry,
    exchanges,
    one_of_each_key,
    only,
    read,
    same,
    unredacted,
)

SCHEMA = json.loads((Path(__file__).parent.parent / "data/har-1.2.schema.json").read_text())


def test_an_entry_of_a_browser_is_an_exchange_with_its_date_and_time() -> None:
    found = only(read(entry(response=content("hi"))))
    assert found.request.url == "https://h/v1/x?a=b"
    assert found.request.headers == (("accept", "*/*"),)
    assert found.response.pieces == (Piece(0.3406, b"hi"),)
    assert found.recorded_at == "2026-03-01T10:20:30.123+00:00"


@pytest.mark.row("N10")
def test_base64_content_is_bytes() -> None:
    text = base64.b64encode(bytes(range(256))).decode()
    found = only(read(entry(response=content(text, encoding="base64", size=256))))
    assert found.response.body == bytes(range(256))


@pytest.mark.row("N09")
def test_a_body_that_the_browser_decoded_loses_its_coding_and_says_so() -> None:
    coded = [
        {"name": "content-encoding", "value": "br"},
        {"name": "content-length", "value": "12"},
    ]
    reading = read(entry(response={**content('{"a": "hello hello"}'), "headers": coded}))
    response = only(reading).response
    assert header(response.headers, "content-encoding") is None
    assert header(response.headers, "content-length") == "20"
    assert "content-encoding: br was taken off" in reading.notes[0].text


def test_the_bytes_of_a_text_are_those_of_its_charset() -> None:
    latin = content("café", mimeType='text/html; charset="ISO-8859-1"', size=4)
    assert only(read(entry(response=latin))).response.body == b"caf\xe9"
    wrong = content("café", mimeType="text/html; charset=iso-8859-1", size=5)
    assert only(read(entry(response=wrong))).response.body == "café".encode()
    unknown = read(entry(response=content("é", mimeType="text/x; charset=klingon")))
    assert only(unknown).response.body == "é".encode()
    assert "no klingon" in unknown.notes[0].text


def test_an_entry_without_an_answer_is_noted_and_is_no_exchange() -> None:
    blocked = entry(response={"status": 0, "_error": "net::ERR_FAILED"})
    reading = read(blocked, {**entry(), "response": None})
    assert not reading.found
    assert [note.text for note in reading.notes] == [
        "no response (net::ERR_FAILED)",
        "no response",
    ]
    assert not any(note.left_out for note in reading.notes)


def test_what_a_browser_has_in_itself_is_noted_and_is_no_exchange() -> None:
    inside = ["data:text/plain,hi", "blob:https://h/1", "DATA:,x", "chrome-extension://abc/a.js"]
    entries = [entry({"url": url}, content("hi")) for url in [*inside, "https://h/data:"]]
    reading = read(*entries)
    assert [found.request.url for found in reading.found] == ["https://h/data:"]
    assert [note.place for note in reading.notes] == ["entry 1", "entry 2", "entry 3", "entry 4"]
    assert reading.notes[0].text == reading.notes[2].text
    assert "chrome-extension:" in reading.notes[3].text
    assert not any(note.left_out for note in reading.notes)


def length(count: int, *more: dict[str, str]) -> dict[str, Any]:
    return {"headers": [{"name": "Content-Length", "value": str(count)}, *more]}


def unsaved(size: int = -1) -> dict[str, Any]:
    return {"content": {"size": size, "mimeType": "x-unknown"}}


CHUNKED = {"headers": [{"name": "Transfer-Encoding", "value": "chunked"}]}


@pytest.mark.parametrize(
    ("request_form", "response", "members", "reason"),
    [
        # As Chromium through Playwright writes what broke off, and uploads of bytes and files.
        ({}, {**unsaved(), "_failureText": "net::ERR_ABORTED"}, {}, "did not end (net::ERR_AB"),
        ({}, {**unsaved(0), "_error": "net::ERR_FAILED"}, {}, "did not end (net::ERR_FAILED"),
        ({}, {**unsaved(), **length(100)}, {}, "answer's body was not saved"),
        ({}, {**unsaved(), **CHUNKED}, {}, "answer's body was not saved"),
        ({"method": "POST", **length(291)}, {}, {}, "request's body was not saved"),
        (
            {"method": "POST", "postData": {"mimeType": "a/b", "text": ""}, **length(5)},
            {},
            {},
            "request's body was not saved",
        ),
        ({}, {"content": {"size": 9, "mimeType": "a/b"}}, {}, "answer's body was not saved"),
        ({}, {"content": {"size": 9, "mimeType": "a/b", "_file": "x.bin"}}, {}, "another file"),
        ({"bodySize": 9}, {}, {}, "request's body was not saved"),
        ({}, {"status": 101}, {}, "WebSocket"),
        ({}, {}, {"_webSocketMessages": []}, "WebSocket"),
        (
            {"postData": {"mimeType": "multipart/form-data", "params": [{"name": "a"}]}},
            {},
            {},
            "only the names of its parts",
        ),
    ],
)
def test_what_was_not_saved_is_left_out_with_its_reason(
    request_form: dict[str, Any], response: dict[str, Any], members: dict[str, Any], reason: str
) -> None:
    reading = read(entry(request_form, response, **members), entry())
    assert len(reading.found) == 1
    assert reason in reading.notes[0].text
    assert reading.notes[0].left_out


@pytest.mark.parametrize(
    ("request_form", "response"),
    [
        ({}, {"status": 307, **unsaved(0), **length(9)}),
        ({}, {"status": 204, **unsaved()}),
        ({"method": "HEAD"}, {**unsaved(), **length(9)}),
        ({}, {**unsaved(), **length(0)}),
    ],
)
def test_an_answer_that_has_no_body_is_whole_without_one(
    request_form: dict[str, Any], response: dict[str, Any]
) -> None:
    assert only(read(entry(request_form, response))).response.body == b""


def test_a_request_that_was_longer_than_what_was_saved_says_so() -> None:
    post = {"mimeType": "application/json", "text": "{}"}
    reading = read(entry({"method": "POST", "postData": post, **length(4)}))
    assert only(reading).request.body == b"{}"
    assert "content-length was 4, its body has 2 bytes" in reading.notes[0].text


def test_a_form_that_was_saved_by_its_fields_is_encoded_anew_and_said() -> None:
    fields = [{"name": "a b", "value": "ü&"}, {"name": "c", "value": ""}]
    kind = "application/x-www-form-urlencoded"
    reading = read(entry({"postData": {"mimeType": kind, "params": fields}}))
    assert only(reading).request.body == b"a+b=%C3%BC%26&c="
    assert header(only(reading).request.headers, "content-type") == kind
    assert "by its fields" in reading.notes[0].text


def test_several_answers_to_one_request_are_samples_in_order() -> None:
    came = brought(read(*(entry(response=content(t)) for t in "abc")), Redactor())
    assert [exchange.sample for exchange in came.exchanges] == [0, 1, 2]
    assert len({exchange.key for exchange in came.exchanges}) == 3


@pytest.mark.row("N13")
def test_credentials_of_an_archive_are_taken_out_and_counted() -> None:
    secret = "sk-abcdefghijklmnop0123456789"
    headers = [
        {"name": "Authorization", "value": f"Bearer {secret}"},
        {"name": "Cookie", "value": "id=abcdefgh"},
    ]
    answer = {**content("x"), "headers": [{"name": "Set-Cookie", "value": "id=ijklmnop"}]}
    url = "https://h/?key=query-credential"
    came = brought(read(entry({"headers": headers, "url": url}, answer)), Redactor())
    for gone in (secret, "abcdefgh", "ijklmnop", "query-credential"):
        assert gone not in repr(came.exchanges)
    assert came.secrets == {"authorization": 1, "cookie": 1, "key": 1, "set-cookie": 1}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "not JSON"),
        (b"[]", "no log"),
        (b'{"log":{"version":"2.0","entries":[]}}', "version 2.0"),
        (b'{"log":{"version":"1.2","entries":[{}]}}', None),
        (b'{"log":{"version":"1.2","entries":[{"response":{}}]}}', "entry 1 is no entry"),
    ],
)
def test_what_is_no_archive_is_an_error_that_says_why(data: bytes, message: str | None) -> None:
    if message is None:
        assert har.read(data).notes[0].text == "no response"
        return
    with pytest.raises(ForeignFile, match=message):
        har.read(data)


def test_a_body_of_many_megabytes_is_carried_whole() -> None:
    body = bytes(range(256)) * (8 * 4096)
    response = Response(200, (("content-type", "audio/wav"),), (Piece(0.5, body),))
    exchange = Exchange("0" * 64, "http/1", Request("GET", "http://h/"), response)
    assert only(har.read(har.write([exchange]).data)).response == response


@settings(deadline=None)
@given(st.lists(exchanges(), max_size=4).map(one_of_each_key))
def test_an_exported_archive_is_har_1_2_and_comes_back_whole(many: list[Exchange]) -> None:
    written = har.write(many, version="1.0")
    jsonschema.validate(json.loads(written.data), SCHEMA)
    reading = har.read(written.data)
    assert not reading.notes
    assert list(map(same, unredacted(reading))) == list(map(same, many))


def test_an_exported_archive_shows_a_coded_body_as_text_and_keeps_its_bytes() -> None:
    body = gzip.compress(b'{"msg": "hello hello hello hello"}')
    headers = (("content-type", "application/json"), ("content-encoding", "gzip"))
    response = Response(200, headers, (Piece(0.25, body[:9]), Piece(0.5, body[9:])))
    exchange = Exchange("0" * 64, "http/1", Request("GET", "http://h/"), response)
    data = har.write([exchange]).data
    (shown,) = json.loads(data)["log"]["entries"]
    assert shown["response"]["content"]["text"] == '{"msg": "hello hello hello hello"}'
    assert shown["timings"] == {"send": 0, "wait": 250.0, "receive": 250.0}
    assert only(har.read(data)).response == response


def test_an_archive_that_somebody_edited_is_read_as_it_was_edited() -> None:
    response = Response(200, (), (Piece(0.5, b"on"), Piece(0.6, b"e")))
    exchange = Exchange("0" * 64, "http/1", Request("GET", "http://h/"), response)
    reading = har.read(har.write([exchange]).data.replace(b'"one"', b'"three"'))
    assert only(reading).response.body == b"three"
    assert "was edited" in reading.notes[0].text


def headed(*pairs: tuple[str, str]) -> dict[str, Any]:
    headers = [{"name": name, "value": value} for name, value in pairs]
    return {**content("hi"), "headers": headers}


def test_a_header_that_a_browser_wrote_in_lines_is_several_headers() -> None:
    found = only(read(entry(response=headed(("link", "</a>\n</b>"), ("x", "1")))))
    assert found.response.headers == (("link", "</a>"), ("link", "</b>"), ("x", "1"))


UNSAYABLE = {
    "a header of two lines": {"response": headed(("x", "a\r\nset-cookie: b"))},
    "a name with blanks": {"response": headed(("x y", "a"))},
    "a reason of two lines": {"response": {**content("hi"), "statusText": "OK\r\nx: y"}},
    "a status of five digits": {"response": {**content("hi"), "status": 99999}},
    "a method with blanks": {"request": {"method": "GE T"}},
    "a line end in the URL": {"request": {"url": "https://h/a\r\nb"}},
}


@pytest.mark.parametrize("case", UNSAYABLE)
def test_what_http_cannot_say_is_left_out_with_its_reason(case: str) -> None:
    reading = read(entry(**UNSAYABLE[case]))
    assert reading.found == ()
    assert [note.left_out for note in reading.notes] == [True]


@pytest.mark.parametrize(
    "date", ["0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00", "2026-02-30T10:00:00Z"]
)
def test_a_date_that_is_none_is_said_and_the_exchange_kept(date: str) -> None:
    reading = read(entry(startedDateTime=date, response=content("hi")))
    assert only(reading).recorded_at is None
    assert [note.text for note in reading.notes] == [f"the date {date!r} is none: kept without one"]


@pytest.mark.parametrize("wait", [float("inf"), float("nan"), 1e308])
def test_times_that_are_none_make_no_damaged_row(wait: float, tmp_path: Path) -> None:
    reading = read(entry(timings={"wait": wait, "receive": wait}, response=content("hi")))
    tape = open_tape(tmp_path / "t.jsonl")
    import_into(tape, reading)
    (exchange,) = tape.exchanges()
    tape.close()
    assert isinstance(exchange.response, Response)
    assert exchange.response.body == b"hi"
