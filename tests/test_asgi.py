import asyncio
import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tapes import asgi
from tapes.asgi import BARE_QUERY, HEAD_LIMIT, HEADERS_LIMIT, AsgiServer
from tests.services.serving import PATIENCE_S, beside


async def says_its_target(scope: Any, _receive: Any, send: Any) -> None:
    """Answer the path, the query, and whether there is a query of nothing."""
    is_bare = BARE_QUERY in scope.get("extensions", ())
    body = repr((scope["raw_path"], scope["query_string"], is_bare)).encode()
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@contextmanager
def serving(app: Any) -> Iterator[int]:
    """Where an application is served."""
    server = AsgiServer(app, patience_s=1)
    listening = socket.create_server(("127.0.0.1", 0))
    started = threading.Event()

    async def serve() -> None:
        started.set()
        await server.serve([listening])

    with beside(serve, lambda: setattr(server, "should_exit", True)):
        started.wait(PATIENCE_S)
        yield listening.getsockname()[1]


@pytest.fixture
def port() -> Iterator[int]:
    """Where the application above is served."""
    with serving(says_its_target) as port:
        yield port


def asked(port: int, *targets: str) -> list[str]:
    """The heads and bodies of the answers to these targets, one after the other."""
    found = []
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as sock:
        for target in targets:
            sock.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            text = ""
            while not text.endswith(")"):
                text += sock.recv(65536).decode()
            found.append(text)
    return found


def test_a_query_of_nothing_is_told_from_none(port: int) -> None:
    bodies = [text.rpartition("\r\n\r\n")[2] for text in asked(port, "/a?", "/a", "/a??", "/a?b")]
    assert bodies == [
        "(b'/a', b'', True)", "(b'/a', b'', False)", "(b'/a', b'?', True)", "(b'/a', b'b', False)",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "head",
    [
        "GET /" + "a" * HEAD_LIMIT + " HTTP/1.1\r\n",
        "GET / HTTP/1.1\r\n" + "a: b\r\n" * (HEADERS_LIMIT + 2),
        "GET / HTTP/1.1\r\n" + f"a: {'b' * 9_000}\r\n" * 9,
        "GET / HTTP/1.1\r\na: " + "b" * 100 * HEAD_LIMIT,
        "GET / HTTP/1.1\r\n" + "a" * 100 * HEAD_LIMIT,
        "GET /" + "a" * 100 * HEAD_LIMIT,
    ],
)
def test_a_head_is_bounded_however_it_is_large(port: int, head: str) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as sock:
        sending = threading.Thread(target=sent_until_refused, args=(sock, head.encode()))
        sending.start()
        assert sock.recv(12) == b"HTTP/1.1 431"
        sending.join(PATIENCE_S)


def sent_until_refused(sock: socket.socket, data: bytes) -> None:
    """Send data to who may close meanwhile."""
    with contextlib.suppress(ConnectionError):
        sock.sendall(data)


@pytest.mark.parametrize(
    "begun", ["", "GET / HTTP/1.1\r\na: b", "POST /body HTTP/1.1\r\ncontent-length: 9\r\n\r\nbody"]
)
def test_who_sends_no_more_of_a_request_is_let_go(
    begun: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi, "HEAD_S", 0.05)
    monkeypatch.setattr(asgi, "BODY_S", 0.05)
    with (
        serving(says_what_came) as port,
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as sock,
    ):
        sock.sendall(begun.encode())
        while sock.recv(65536):
            pass  # what an application says to a body that ends


def test_an_answer_may_take_longer_than_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "BODY_S", 0)

    async def takes_longer(scope: Any, receive: Any, send: Any) -> None:
        await receive()
        for _ in range(10):  # turns of the loop, in which the client would be let go
            await asyncio.sleep(0)
        await says_its_target(scope, receive, send)

    with serving(takes_longer) as port:
        (text,) = asked(port, "/")
    assert text.startswith("HTTP/1.1 200")


def test_a_head_may_be_as_large_as_is_said_behind_the_body_of_another(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as sock:
        lines = b"a: %s\r\n" % (b"b" * 240) * (HEADERS_LIMIT - 1)
        head = b" / HTTP/1.1\r\ncontent-length: %d\r\n" + lines + b"\r\n"
        sock.sendall(b"POST" + head % 500_000 + b"b" * 500_000 + b"GET" + head % 0)
        text = b""
        while text.count(b"False)") < 2:
            text += sock.recv(65536)
        assert text.count(b"HTTP/1.1 200") == 2


def test_an_answer_has_a_date_and_names_no_server(port: int) -> None:
    (text,) = asked(port, "/")
    assert text.count("\r\ndate: ") == 1
    assert "server:" not in text


async def says_what_came(scope: Any, receive: Any, send: Any) -> None:
    """Answer the names of the headers, and the body."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    said = repr(([name.decode() for name, _ in scope["headers"]], body)).encode()
    headers = [(b"content-length", b"%d" % len(said))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": said})


OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n"
LENGTH = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
CHUNKS = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
PLAIN = LENGTH + b"\r\nabc"


def said_to(*pieces: bytes, answers: int) -> list[str]:
    """What the application above says to these pieces on one connection."""
    text = ""
    with (
        serving(says_what_came) as port,
        socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as sock,
    ):
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for piece in pieces:
            sock.sendall(piece)
        while text.count("')") + text.count('")') < answers:
            came = sock.recv(65536).decode()
            assert came, text
            text += came
    return [part.partition("\r\n\r\n")[2] for part in text.split("HTTP/1.1 ")[1:]]


@pytest.mark.parametrize(
    "pieces",
    [
        [LENGTH + OFFER + b"\r\nabc" + PLAIN],
        [LENGTH + OFFER + b"\r\n", b"a", b"bc", PLAIN],
        [CHUNKS + OFFER + b"\r\n3\r\nabc\r\n0\r\n\r\n" + PLAIN],
        [bytes([byte]) for byte in CHUNKS + OFFER + b"\r\n3\r\nabc\r\n0\r\n\r\n" + PLAIN],
    ],
    ids=["one piece", "the body later", "chunks", "byte by byte"],
)
def test_a_request_that_offers_another_protocol_keeps_its_body(pieces: list[bytes]) -> None:
    first, second = said_to(*pieces, answers=2)
    assert "upgrade" in first
    assert first.endswith("b'abc')")
    assert second == "(['host', 'content-length'], b'abc')"


def test_a_request_without_a_body_may_offer_another_protocol_twice() -> None:
    get = b"GET / HTTP/1.1\r\nHost: x\r\n" + OFFER + b"\r\n"
    first, second, third = said_to(get + get + PLAIN, answers=3)
    assert first == second
    assert first.endswith("b'')")
    assert third.endswith("b'abc')")


def test_what_stands_behind_a_body_is_no_header() -> None:
    tail = b"3\r\nabc\r\n0\r\nAuthorization: Bearer x\r\nX-Late: 1\r\n\r\n"
    (said,) = said_to(CHUNKS + b"Trailer: X-Late\r\n\r\n" + tail, answers=1)
    assert said == "(['host', 'transfer-encoding', 'trailer'], b'abc')"


def test_without_the_extra_for_services_the_server_still_reads_http() -> None:
    code = """if True:
        import sys
        sys.modules["httptools"] = None
        from tapes.asgi import AsgiServer
        config = AsgiServer(print, patience_s=1).config
        config.load()
        print(config.http_protocol_class.__name__)
    """
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "H11Protocol\n"


def test_an_answer_that_does_not_end_with_the_server_is_broken_off_and_no_error_of_its_own(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked_for = threading.Event()

    async def waits(_scope: Any, _receive: Any, _send: Any) -> None:
        asked_for.set()
        await asyncio.Event().wait()

    with serving(waits) as port:
        waiting = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        waiting.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert asked_for.wait(PATIENCE_S)
    with waiting:
        assert waiting.recv(100) == b""
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
