"""Requests sent for real, over a socket, to a server on loopback."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tapes.budget import Limits
from tapes.cassette import Cassette
from tapes.errors import NotAnswered, NotSendable
from tapes.exchange import Headers, Piece, Request, Response, State
from tapes.permit import Permit
from tapes.sending import send
from tapes.tape.base import MemoryTape
from tests.loopback import event_answer, json_answer, provider
from tests.servers import closed_port


def permit_for(request: Request, cassette: Cassette | None = None) -> Permit:
    cassette = cassette or Cassette(MemoryTape(), "live")
    permit = cassette.decide(request)
    assert isinstance(permit, Permit)
    return permit


def received(connection: socket.socket) -> bytes:
    """A whole request: its head, and as much body as that says."""
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@contextmanager
def raw_server(answer: Callable[[bytes], bytes]) -> Iterator[tuple[str, list[bytes]]]:
    """A server that answers the bytes of one request with bytes, and hangs up."""
    heads = list[bytes]()
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(5)

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            heads.append(received(connection))
            connection.sendall(answer(heads[0]))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}", heads
    finally:
        thread.join(5)
        listener.close()


def test_the_request_goes_out_as_it_is() -> None:
    with raw_server(lambda _: b"HTTP/1.1 200 Fine\r\ncontent-length: 0\r\n\r\n") as (url, heads):
        headers: Headers = (("X-B", "1"), ("accept", "*/*"), ("X-B", "2"), ("caf\xe9", "\xe9"))
        permit = permit_for(Request("POST", url + "/a%20b?c=d#e", headers, b'{"a": 1}'))
        send(permit)
    host = url.removeprefix("http://")
    assert (
        heads[0]
        == (
            f"POST /a%20b?c=d HTTP/1.1\r\nHost: {host}\r\nX-B: 1\r\naccept: */*\r\nX-B: 2\r\n"
            "caf\xe9: \xe9\r\nContent-Length: 8\r\n\r\n"
        ).encode("latin-1")
        + b'{"a": 1}'
    )
    response = permit.preview().response
    assert isinstance(response, Response)
    assert (response.status, response.reason) == (200, "Fine")


def test_the_answer_comes_as_it_is_in_its_pieces() -> None:
    events = event_answer("a", "b\r\n: x", "[DONE]")
    with provider(lambda _: events) as at:
        permit = permit_for(Request("GET", at.url + "/"))
        send(permit)
        exchange = permit.finish()
    assert exchange is not None
    assert isinstance(exchange.response, Response)
    assert [p.data for p in exchange.response.pieces] == [p.data for p in events.pieces]


def test_a_coded_answer_stays_coded() -> None:
    body = b"\x1f\x8b not really"
    headers = (("content-encoding", "gzip"), ("content-length", str(len(body))))
    with provider(lambda _: Response(200, headers, (Piece(0.0, body),))) as at:
        permit = permit_for(Request("GET", at.url + "/"))
        send(permit)
    response = permit.preview().response
    assert isinstance(response, Response)
    assert response.body == body


@pytest.mark.row("B8")
@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nshort\r\n",
    ],
)
def test_an_answer_that_breaks_off_is_evidence_and_no_answer(answer: bytes) -> None:
    tape = MemoryTape()
    with raw_server(lambda _: answer) as (url, _):
        permit = permit_for(Request("GET", url + "/"), Cassette(tape, "live"))
        with pytest.raises(NotAnswered, match="broke off"):
            send(permit)
    assert [exchange.state for exchange in tape.exchanges()] == [State.UPSTREAM_ERROR]


@pytest.mark.row("B5")
def test_a_call_that_reaches_nobody_gives_its_unit_back() -> None:
    port = closed_port()
    cassette = Cassette(MemoryTape(), "live", limits=Limits(calls=1))
    for _ in range(2):
        permit = permit_for(Request("GET", f"http://127.0.0.1:{port}/"), cassette)
        with pytest.raises(NotAnswered, match="gave no answer"):
            send(permit)


def test_a_placeholder_is_never_sent() -> None:
    with provider(lambda _: json_answer("{}")) as at:
        permit = permit_for(Request("GET", at.url + "/?key=REDACTED.key"))
        with pytest.raises(NotSendable):
            send(permit)
        assert not at.requests


@pytest.mark.parametrize("url", ["ftp://h/x", "/x", "http:///x"])
def test_what_is_no_address_is_not_sent(url: str) -> None:
    with pytest.raises(NotSendable, match="no address"):
        send(permit_for(Request("GET", url)))


def test_the_proxy_that_the_environment_names_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with raw_server(lambda _: b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n") as (url, heads):
        monkeypatch.setenv("http_proxy", url)
        monkeypatch.delenv("no_proxy", raising=False)
        send(permit_for(Request("GET", "http://provider.invalid/x?y")))
    assert heads[0].startswith(b"GET http://provider.invalid/x?y HTTP/1.1\r\nHost: provider.inv")


@pytest.mark.parametrize("header", [("a", "b\r\nc: d"), ("a\nb", "c"), ("a", "\u20ac")])
def test_a_header_that_http_cannot_say_is_not_sent(header: tuple[str, str]) -> None:
    with provider(lambda _: json_answer("{}")) as at:
        with pytest.raises(NotSendable, match="not HTTP"):
            send(permit_for(Request("GET", at.url + "/", (header,))))
        assert not at.requests


@pytest.mark.row("N13")
def test_a_password_in_a_url_is_in_no_error() -> None:
    for url in ("http://me:pass-word@127.0.0.1:1/v1", "ftp://me:pass-word@127.0.0.1/v1"):
        with pytest.raises((NotAnswered, NotSendable)) as caught:
            send(permit_for(Request("POST", url, (), b"{}")))
        assert "127.0.0.1" in str(caught.value)
        assert "pass-word" not in str(caught.value)


@pytest.mark.row("N13")
def test_a_credential_that_http_cannot_say_is_in_no_error() -> None:
    with provider(lambda _: json_answer("{}")) as at:
        for url, value in (("/v1", "Bearer sk-secret\n"), ("/v1?key=sk-secret x", "x")):
            with pytest.raises(NotSendable, match="not HTTP") as caught:
                send(permit_for(Request("GET", at.url + url, (("authorization", value),))))
            assert "sk-secret" not in str(caught.value)
        assert not at.requests


def test_an_interim_answer_is_no_answer() -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n"
    with raw_server(lambda _: early + b"content-length: 2\r\n\r\nhi") as (url, _):
        permit = permit_for(Request("POST", url + "/", (), b"{}"))
        try:
            send(permit)
        except NotAnswered:
            assert permit.finish() is None
        else:
            exchange = permit.finish()
            assert exchange is not None
            assert isinstance(exchange.response, Response)
            assert (exchange.response.status, exchange.response.body) == (200, b"hi")


def test_an_address_that_no_url_can_have_is_not_sendable_and_costs_nothing() -> None:
    cassette = Cassette(MemoryTape(), "live", limits=Limits(calls=1))
    for _ in range(2):
        with pytest.raises(NotSendable, match="99999"):
            send(permit_for(Request("POST", "http://127.0.0.1:99999/v1", (), b"{}"), cassette))
