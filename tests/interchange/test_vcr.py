"""Cassettes that a real vcrpy wrote, and cassettes that a real vcrpy replays."""

import asyncio
import gzip
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import httpx
import pytest
import requests
import vcr
from hypothesis import given, settings
from hypothesis import strategies as st

from tapes.cassette import Cassette, Play
from tapes.errors import ForeignFile, NotCarried
from tapes.exchange import Exchange, Piece, Request, Response, State, header
from tapes.interchange import vcr as vcr_files
from tapes.interchange.foreign import brought, plain_response
from tapes.redact import Redactor
from tapes.tape.base import MemoryTape
from tapes.wire import decoded
from tests.interchange.made import exchanges, one_of_each_key, same, unredacted
from tests.loopback import Provider, event_answer, json_answer, provider

EVENTS = ('{"a": 1}', '{"b": "ü"}', "[DONE]")
KEY = "sk-abcdefghijklmnop0123456789"


def answer(request: Request) -> Response:
    path = request.url.partition("?")[0].rpartition("/")[2]
    if path == "gzip":
        body = gzip.compress(b'{"msg":"hello"}')
        return Response(
            200,
            (
                ("content-type", "application/json"),
                ("content-encoding", "gzip"),
                ("content-length", str(len(body))),
            ),
            (Piece(0.0, body),),
        )
    if path == "binary":
        headers = (("content-type", "image/png"), ("x-part", "1"), ("x-part", "2"))
        return Response(200, headers, (Piece(0.0, bytes(range(256))),))
    if path == "stream":
        return event_answer(*EVENTS)
    answer.count += 1  # type: ignore[attr-defined]  # the function's own count
    return json_answer(json.dumps({"n": answer.count, "got": request.body.decode("latin-1")}))  # type: ignore[attr-defined]  # as above


@pytest.fixture
def upstream() -> Iterator[Provider]:
    answer.count = 0  # type: ignore[attr-defined]  # as above
    with provider(answer) as at:
        yield at


def through_requests(url: str) -> list[bytes]:
    with requests.Session() as session:
        got = [session.get(url + path).content for path in ("/gzip", "/binary", "/stream")]
        for _ in range(2):
            got.append(session.post(url + "/echo?key=secret-in-a-query", json={"a": "ü"}).content)
    return got


def through_httpx(url: str) -> list[bytes]:
    with httpx.Client() as client:
        got = [client.get(url + path).content for path in ("/gzip", "/binary", "/stream")]
        for _ in range(2):
            got.append(client.post(url + "/echo?key=secret-in-a-query", json={"a": "ü"}).content)
    return got


CLIENTS = pytest.mark.parametrize("client", [through_requests, through_httpx])


def bring(data: bytes) -> tuple[Exchange, ...]:
    return brought(vcr_files.read(data), Redactor()).exchanges


def seen(response: Response) -> bytes:
    """The body that a client makes of a response."""
    return decoded(response.body, header(response.headers, "content-encoding")).data


def played(tape: MemoryTape, request: Request, sample: int = 0) -> bytes:
    verdict = Cassette(tape, "replay").decide(request, sample=sample)
    assert isinstance(verdict, Play), verdict
    assert isinstance(verdict.exchange.response, Response)
    return seen(verdict.exchange.response)


@pytest.mark.row("N03", "N09", "N10")
@CLIENTS
def test_what_vcrpy_recorded_replays_from_a_tape(
    client: Callable[[str], list[bytes]], upstream: Provider, tmp_path: Path
) -> None:
    with vcr.use_cassette(str(tmp_path / "c.yaml")):
        got = client(upstream.url)
    tape = MemoryTape(bring((tmp_path / "c.yaml").read_bytes()))
    for path, expected in zip(("/gzip", "/binary", "/stream"), got, strict=False):
        assert played(tape, Request("GET", upstream.url + path)) == expected
    echo = upstream.requests[-1]
    assert [played(tape, echo, n) for n in (0, 1)] == got[3:]


@CLIENTS
def test_headers_that_repeat_and_the_body_length_are_right_after_import(
    client: Callable[[str], list[bytes]], upstream: Provider, tmp_path: Path
) -> None:
    with vcr.use_cassette(str(tmp_path / "c.yaml")):
        client(upstream.url)
    for exchange in bring((tmp_path / "c.yaml").read_bytes()):
        assert isinstance(exchange.response, Response)
        length = header(exchange.response.headers, "content-length")
        assert length in (None, str(len(exchange.response.body)))
    binary = bring((tmp_path / "c.yaml").read_bytes())[1].response
    assert isinstance(binary, Response)
    assert [v for n, v in binary.headers if n.lower() == "x-part"] == ["1", "2"]


def test_a_body_that_requests_left_decoded_under_its_coding_is_said(
    upstream: Provider, tmp_path: Path
) -> None:
    with vcr.use_cassette(str(tmp_path / "c.yaml")):
        requests.get(upstream.url + "/gzip")
    reading = vcr_files.read((tmp_path / "c.yaml").read_bytes())
    assert [note.place for note in reading.notes] == ["interaction 1"]
    assert "content-encoding: gzip was taken off" in reading.notes[0].text
    assert header(reading.found[0].response.headers, "content-encoding") is None


@CLIENTS
def test_the_json_serializer_is_read_too(
    client: Callable[[str], list[bytes]], upstream: Provider, tmp_path: Path
) -> None:
    path = tmp_path / "c.json"
    with vcr.use_cassette(str(path), serializer="json", decode_compressed_response=True) as tape:
        got = client(upstream.url)
        del tape.data[1]  # vcrpy cannot write bytes as JSON
    bodies = [
        seen(e.response) for e in bring(path.read_bytes()) if isinstance(e.response, Response)
    ]
    assert bodies == [got[0], *got[2:]]


@pytest.mark.row("N13")
def test_secrets_of_a_cassette_never_reach_the_tape_and_are_counted(
    upstream: Provider, tmp_path: Path
) -> None:
    with vcr.use_cassette(str(tmp_path / "c.yaml")):
        for _ in range(2):
            requests.post(
                upstream.url + "/echo?api_key=query-credential-1",
                json={"note": f"my key is {KEY}"},
                headers={"authorization": f"Bearer {KEY}", "cookie": "session=12345678"},
            )
    came = brought(vcr_files.read((tmp_path / "c.yaml").read_bytes()), Redactor())
    kept = repr(came.exchanges)
    for secret in (KEY, "query-credential-1", "12345678"):
        assert secret in (tmp_path / "c.yaml").read_text()
        assert secret not in kept
    assert came.secrets["authorization"] >= 2
    assert came.secrets["cookie"] == 2
    assert came.secrets["api_key"] == 2


def test_the_date_of_the_answer_says_when_it_was_recorded() -> None:
    headers = {"Date": ["Sun, 01 Mar 2026 10:20:30 GMT"]}
    (exchange,) = bring(cassette(response={"headers": headers}))
    assert exchange.recorded_at == "2026-03-01T10:20:30.000+00:00"


def cassette(request: Any = None, response: Any = None) -> bytes:
    """A cassette with one interaction, some of its members set."""
    interaction: dict[str, dict[str, Any]] = {
        "request": {"method": "GET", "uri": "http://h/", "body": None, "headers": {}},
        "response": {"status": {"code": 200, "message": "OK"}, "headers": {}, "body": {}},
    }
    interaction["request"].update(request or {})
    interaction["response"].update(response or {})
    return json.dumps({"version": 1, "interactions": [interaction]}).encode()


def test_files_and_generators_as_request_bodies_are_read(
    upstream: Provider, tmp_path: Path
) -> None:
    with vcr.use_cassette(str(tmp_path / "c.yaml")):
        requests.post(upstream.url + "/file", data=io.BytesIO(b"\xffbytes"))
        requests.post(upstream.url + "/generator", data=iter([b"one", b"two"]))
    text = (tmp_path / "c.yaml").read_text()
    assert "!!python/object/new:_io.BytesIO" in text
    found = vcr_files.read(text.encode()).found
    assert [one.request.body for one in found] == [b"\xffbytes", b"onetwo"]


def test_an_object_that_aiohttp_was_given_is_taken_as_json_and_said(
    upstream: Provider, tmp_path: Path
) -> None:
    async def call() -> None:
        url, sent = upstream.url + "/echo", {"a": [1, "ü"]}
        async with aiohttp.ClientSession() as session, session.post(url, json=sent) as response:
            await response.read()

    with vcr.use_cassette(str(tmp_path / "c.yaml")):
        asyncio.run(call())
    reading = vcr_files.read((tmp_path / "c.yaml").read_bytes())
    assert "kept as an object" in reading.notes[0].text
    assert isinstance(
        Cassette(MemoryTape(bring((tmp_path / "c.yaml").read_bytes())), "replay").decide(
            upstream.requests[0]
        ),
        Play,
    )


@pytest.mark.parametrize(
    "body",
    [
        "!!python/object/apply:os.system ['touch hostile-ran']",
        "!!python/object/new:os.system ['touch hostile-ran']",
        "!!python/name:os.system ''",
        "!!python/module:os ''",
        "!!python/object/apply:builtins.iter {args: [!!python/object/apply:os.system [x]]}",
    ],
)
def test_a_hostile_tag_runs_nothing(body: str, in_tmp_path: Path) -> None:
    text = f"interactions:\n- request: {{body: {body}}}\n  response: {{}}\nversion: 1\n"
    with pytest.raises(ForeignFile, match="no plain value"):
        vcr_files.read(text.encode())
    assert not (in_tmp_path / "hostile-ran").exists()


def test_a_stream_without_its_end_is_kept_as_evidence_alone() -> None:
    event = '{"choices":[{"delta":{"content":"he"},"finish_reason":null}]}'
    body = {"string": f"data: {event}\n\n"}
    headers = {"content-type": ["text/event-stream"]}
    came = brought(vcr_files.read(cassette(None, {"headers": headers, "body": body})), Redactor())
    assert came.exchanges[0].state is State.UPSTREAM_ERROR
    assert "did not end" in came.notes[0].text


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"[{request: 1}]", "before 1.0"),
        (b"http_interactions: []", "another VCR"),
        (b"a: b", "no list of interactions"),
        (b"", "no list of interactions"),
        (b"{", "not YAML"),
        (b"\xff\xfe", "not UTF-8"),
        (b"version: 2\ninteractions: []", "version 2"),
        (b"interactions: [{request: {method: GET}}]", "interaction 1 is not one of vcrpy's"),
        (cassette({"body": 7}), "interaction 1: the body is a int"),
        (cassette({"headers": {"a": [{}]}}), "interaction 1, request: a header"),
        (cassette({"body": "\ud83d"}), "lone surrogate"),
    ],
)
def test_what_is_no_cassette_is_an_error_that_says_why(data: bytes, message: str) -> None:
    with pytest.raises(ForeignFile, match=message):
        vcr_files.read(data)


def test_bodies_of_older_versions_are_read() -> None:
    httpx_of_old = {"status_code": 201, "content": "ü", "headers": {"a": "b"}}
    (found,) = vcr_files.read(cassette(response=httpx_of_old)).found
    assert (found.response.status, found.response.body) == (201, "ü".encode())
    (found,) = vcr_files.read(cassette(response={"body": {"base64_string": "/w=="}})).found
    assert found.response.body == b"\xff"


# --- writing ----------------------------------------------------------------------------------


@CLIENTS
def test_an_exported_cassette_replays_in_vcrpy(
    client: Callable[[str], list[bytes]], upstream: Provider, tmp_path: Path
) -> None:
    with vcr.use_cassette(str(tmp_path / "recorded.yaml")):
        got = client(upstream.url)
    exported = vcr_files.write(bring((tmp_path / "recorded.yaml").read_bytes()))
    assert exported.count == 5
    (tmp_path / "exported.yaml").write_bytes(exported.data)
    asked = len(upstream.requests)
    with vcr.use_cassette(
        str(tmp_path / "exported.yaml"),
        record_mode="none",
        filter_query_parameters=[("key", "REDACTED.key")],
    ):
        assert client(upstream.url) == got
    assert len(upstream.requests) == asked


def test_a_coded_body_replays_in_vcrpy_through_either_client(tmp_path: Path) -> None:
    body = gzip.compress(b"hello")
    response = Response(
        200,
        (("content-encoding", "gzip"), ("content-length", str(len(body)))),
        (Piece(0.1, body[:4]), Piece(0.2, body[4:])),
    )
    exchange = Exchange("0" * 64, "http/1", Request("GET", "http://127.0.0.1:9/x"), response)
    (tmp_path / "c.yaml").write_bytes(vcr_files.write([exchange]).data)
    with vcr.use_cassette(str(tmp_path / "c.yaml"), record_mode="none"):
        assert requests.get("http://127.0.0.1:9/x").content == b"hello"
    with vcr.use_cassette(str(tmp_path / "c.yaml"), record_mode="none"):
        assert httpx.get("http://127.0.0.1:9/x").content == b"hello"


@pytest.mark.row("N10")
@settings(deadline=None)
@given(st.lists(exchanges(), max_size=4).map(one_of_each_key))
def test_every_exchange_comes_back_whole_through_yaml(many: list[Exchange]) -> None:
    reading = vcr_files.read(vcr_files.write(many).data)
    assert not reading.notes
    assert list(map(same, unredacted(reading))) == list(map(same, many))


@settings(deadline=None)
@given(exchanges())
def test_every_exchange_comes_back_whole_through_json_or_is_refused(one: Exchange) -> None:
    assert isinstance(one.request, Request)
    assert isinstance(one.response, Response)
    if not (is_utf8(one.request.body) and is_utf8(plain_response(one.response)[1])):
        with pytest.raises(NotCarried, match="not UTF-8"):
            vcr_files.write([one], as_json=True)
        return
    written = vcr_files.write([one], as_json=True)
    assert list(map(same, unredacted(vcr_files.read(written.data)))) == [same(one)]


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_an_export_that_somebody_edited_is_read_as_it_was_edited() -> None:
    response = Response(200, (), (Piece(0.5, b"on"), Piece(0.6, b"e")))
    exchange = Exchange("0" * 64, "http/1", Request("GET", "http://h/"), response)
    text = vcr_files.write([exchange]).data.replace(b"string: one", b"string: three")
    (found,), notes = vcr_files.read(text).found, vcr_files.read(text).notes
    assert found.response.body == b"three"
    assert "was edited" in notes[0].text


def test_what_is_no_http_exchange_is_noted_as_left_out() -> None:
    plain = Exchange("1" * 64, "tape/1", {"a": 1}, {"b": 2})
    written = vcr_files.write([plain])
    assert written.count == 0
    assert [note.left_out for note in written.notes] == [True]


def test_what_http_cannot_say_is_left_out_of_a_cassette_with_its_reason() -> None:
    text = """
version: 1
interactions:
- request: {method: GET, uri: 'https://h/a', headers: {}, body: null}
  response: {status: {code: 200, message: OK}, headers: {x: ["a\\r\\nb: c"]}, body: {string: hi}}
"""
    reading = vcr_files.read(text.encode())
    assert (reading.found, [note.left_out for note in reading.notes]) == ((), [True])
