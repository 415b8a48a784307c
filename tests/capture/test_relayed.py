"""Requests that are sent on: byte for byte both ways, and nothing kept that is no answer."""

import contextlib
import gzip
import hashlib
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tapes.budget import Ledger
from tapes.capture.upstream import Asker, Origin, Pool
from tapes.exchange import Exchange, Response, State
from tapes.tape.base import MemoryTape, Ready
from tapes.tape.jsonl import JsonlTape
from tests.proxies import Broken, Raw, chat, proxying, request, wait_until
from tests.servers import (
    Acknowledged,
    Received,
    Wire,
    answer,
    chunks,
    closed_port,
    serving,
    tls_files,
)

EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
LAST = b"data: [DONE]\n\n"
STREAM = {"stream": True}
MODES = ["pass", "record"]


def kept(tape: Path) -> list[Exchange]:
    return list(JsonlTape(tape).exchanges())


# --- the request ------------------------------------------------------------------------------


@pytest.mark.row("D1", "F05")
def test_the_upstream_gets_every_line_and_byte_but_for_hop_by_hop_ones() -> None:
    lines = [
        "User-Agent: agent/1.2", "X-App: cli", "anthropic-beta: a,b", "X-Tag: 1", "X-Tag: 2",
        "Connection: X-Hop", "X-Hop: 1", "Content-Encoding: zstd", "x-tapes-group: g",
        "X-Tapes-Harness-Id: claude",
    ]  # fmt: skip
    body = b"\x28\xb5\x2f\xfd not really zstd"
    with (
        serving(answer()) as upstream,
        proxying(upstream.url, mode="pass") as proxy,
        Raw(proxy) as raw,
    ):
        raw.ask(body, "/v1/messages?beta=true&x=%2F", *lines)
    (got,) = upstream.requests
    assert got.body == body
    assert got.head.decode().split("\r\n") == [
        "POST /v1/messages?beta=true&x=%2F HTTP/1.1",
        f"Host: 127.0.0.1:{upstream.port}",
        *lines[:5],
        "Content-Encoding: zstd",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "",
        "",
    ]


@pytest.mark.parametrize("mode", MODES)
def test_a_chunked_request_stays_chunked(mode: str, tmp_path: Path) -> None:
    body = b'5;ext=1\r\n{"a":\r\n2\r\n1}\r\n0\r\nX-Sum: 1\r\n\r\n'
    raw_seen = []

    def script(received: Received, wire: Wire) -> None:
        raw_seen.append(received)
        answer()(received, wire)

    with (
        serving(script) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", mode) as proxy,
        Raw(proxy) as raw,
    ):
        raw.send(
            b"POST /v1/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n" + body
        )
        assert raw.answer().status == 200
    assert raw_seen[0].body == b'{"a":1}'
    assert raw_seen[0].header("transfer-encoding") == "chunked"


def sent_until_stuck(raw: Raw, block: bytes) -> int:
    sent = 0
    while True:
        try:
            sent += raw.sock.send(block[sent % len(block) :])
        except TimeoutError:
            return sent


def test_a_large_upload_streams_through_and_the_slower_side_sets_the_pace() -> None:
    """The upstream reads the first half only when the client has been made to wait."""
    size, read = 100 * 1024 * 1024, hashlib.sha256()
    may_read, digest = threading.Event(), []
    listener = socket.create_server(("127.0.0.1", 0))

    def upstream() -> None:
        sock, _ = listener.accept()
        with sock, sock.makefile("rb") as file:
            while file.readline() not in (b"\r\n", b""):
                pass
            may_read.wait(10)
            left = size
            while left:
                data = file.read1(min(left, 1 << 20))
                read.update(data)
                left -= len(data)
            digest.append(read.hexdigest())
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    threading.Thread(target=upstream, daemon=True).start()
    block = bytes(range(256)) * 4096
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with listener, proxying(url, mode="pass") as proxy, Raw(proxy) as raw:
        raw.send(b"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size)
        raw.sock.settimeout(0.5)
        sent = sent_until_stuck(raw, block)
        assert sent < size // 2
        may_read.set()
        raw.sock.settimeout(10)
        while sent < size:
            sent += raw.sock.send(block[sent % len(block) :][: size - sent])
        assert raw.answer().body == b"{}"
    assert digest == [hashlib.sha256(block * (size // len(block))).hexdigest()]


# --- the answer -------------------------------------------------------------------------------


@pytest.mark.row("F05", "N09")
@pytest.mark.parametrize("mode", MODES)
def test_the_client_gets_status_lines_and_bytes_as_the_upstream_sent_them(
    mode: str, tmp_path: Path
) -> None:
    body = gzip.compress(b'{"error":"slow down"}')
    headers = [
        ("retry-after", "12"), ("anthropic-ratelimit-unified-status", "rejected"),
        ("Set-Cookie", "a=1"), ("Set-Cookie", "b=2"), ("Content-Encoding", "gzip"),
    ]  # fmt: skip
    script = answer(body, status=429, reason="Too  Many", headers=headers)
    with (
        serving(script) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", mode) as proxy,
        Raw(proxy) as raw,
    ):
        got = raw.ask(chat("x"))
    assert got.body == body
    assert got.head.decode().split("\r\n") == [
        "HTTP/1.1 429 Too  Many",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers),
    ]


@pytest.mark.row("N06", "D1")
@pytest.mark.parametrize("mode", MODES)
def test_each_event_goes_on_before_the_next_one_comes(mode: str, tmp_path: Path) -> None:
    script = Acknowledged((EVENT, EVENT, LAST))
    with (
        serving(script) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", mode) as proxy,
        Raw(proxy) as raw,
    ):
        raw.send(request(chat("x", **STREAM)))
        raw.until(b"\r\n\r\n")
        for piece in script.pieces:
            assert raw.chunk() == piece
            script.got()
        assert raw.chunk() == b""
    assert not script.was_kept_waiting


@pytest.mark.row("N07")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "body",
    [
        b": ping\n\ndata: a\r\n\r\n",
        b"data: one\rdata: two\r\r",
        b"data: x  \n\n\n",
        b"event: new_kind\ndata: {}\n\n",
        b"data: " + b"x" * (1 << 20) + b"\n\n",
        b'{"a":1}\n{"b":2}\n',
        bytes(range(256)),
    ],
    ids=["comment and CRLF", "CR", "blanks", "unknown event", "1 MiB line", "lines", "binary"],
)
def test_a_stream_is_left_alone(body: bytes, mode: str, tmp_path: Path) -> None:
    cuts = [body[:1], body[1:7], body[7:]]
    with (
        serving(chunks(*filter(None, cuts))) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", mode) as proxy,
        Raw(proxy) as raw,
    ):
        got = raw.ask(chat("x"))
    assert got.chunks == [cut for cut in cuts if cut]


def test_interim_answers_go_on_to_clients_that_know_them() -> None:
    def script(received: Received, wire: Wire) -> None:
        wire.send(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n")
        answer()(received, wire)

    with serving(script) as upstream, proxying(upstream.url, mode="pass") as proxy:
        with Raw(proxy) as raw:
            assert raw.ask(chat("x")).head == b"HTTP/1.1 103 Early Hints\r\nLink: a"
            assert raw.answer().status == 200
        with Raw(proxy) as raw:
            raw.send(request(chat("x")).replace(b"HTTP/1.1", b"HTTP/1.0"))
            assert raw.answer().status == 200


def test_an_upstream_with_tls_is_spoken_to_and_one_that_is_not_trusted_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, key = tls_files(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def serve() -> None:
        for _ in range(2):
            sock, _ = listener.accept()
            with contextlib.suppress(OSError), context.wrap_socket(sock, server_side=True) as tls:
                tls.recv(65536)
                tls.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                tls.recv(1)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    upstream = f"https://localhost:{port}"
    with listener:
        with proxying(upstream, mode="pass") as proxy, Raw(proxy) as raw:
            got = raw.ask(chat("x"))
            assert got.status == 502
            assert "certificate" in got.json()["error"]["message"]
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with proxying(upstream, mode="pass") as proxy, Raw(proxy) as raw:
            assert raw.ask(chat("x")).body == b"{}"
        thread.join(10)


@pytest.mark.parametrize("mode", MODES)
def test_a_client_of_http_1_0_gets_a_chunked_answer_without_its_chunks(
    mode: str, tmp_path: Path
) -> None:
    with (
        serving(chunks(b"one", b"two")) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", mode) as proxy,
        Raw(proxy) as raw,
    ):
        raw.send(request(chat("x")).replace(b"HTTP/1.1", b"HTTP/1.0"))
        got = raw.answer()
    assert got.body == b"onetwo"
    assert got.header("transfer-encoding") is None
    assert got.header("connection") == "close"


@pytest.mark.parametrize("mode", MODES)
def test_an_answer_that_ends_with_its_connection_does_so_for_the_client(
    mode: str, tmp_path: Path
) -> None:
    def script(_: Received, wire: Wire) -> None:
        wire.head(200, [("Content-Type", "application/json")])
        wire.send(b'{"a":1}')
        wire.close()

    with (
        serving(script) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", mode) as proxy,
        Raw(proxy) as raw,
    ):
        assert raw.ask(chat("x")).body == b'{"a":1}'


def test_head_and_204_have_no_body() -> None:
    with (
        serving(answer(b"12345"), answer(b"", status=204)) as upstream,
        proxying(upstream.url, mode="pass") as proxy,
        Raw(proxy) as raw,
    ):
        assert raw.ask(path="/v1/models", method="HEAD").header("content-length") == "5"
        assert raw.ask(chat("x")).status == 204


@pytest.mark.parametrize("mode", MODES)
def test_a_connection_serves_one_request_after_the_other_on_both_sides(
    mode: str, tmp_path: Path
) -> None:
    with (
        serving(answer()) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", mode) as proxy,
        Raw(proxy) as raw,
    ):
        for number in range(5):
            assert raw.ask(chat(str(number))).status == 200
    assert len(upstream.requests) == 5
    assert upstream.connections == 1


def test_a_client_that_reads_slowly_slows_the_upstream_and_gets_everything() -> None:
    body = bytes(range(256)) * (32 * 4096)
    sent = []

    def script(_: Received, wire: Wire) -> None:
        wire.head(200, [("Content-Length", str(len(body)))])
        for start in range(0, len(body), 65536):
            wire.send(body[start : start + 65536])
            sent.append(start)

    with (
        serving(script, answer(b'{"next":1}')) as upstream,
        proxying(upstream.url, mode="pass") as proxy,
        Raw(proxy) as raw,
    ):
        raw.send(request(chat("x")))
        head = raw.until(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        before = -1
        while before != len(sent):  # until the upstream cannot send any more
            before = len(sent)
            threading.Event().wait(0.2)
        assert len(sent) * 65536 < len(body) // 2
        assert raw.exactly(len(body)) == body
        assert raw.ask(chat("y")).body == b'{"next":1}'


# --- what goes wrong --------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_an_upstream_that_is_not_there_is_named(mode: str, tmp_path: Path) -> None:
    port = closed_port()
    with (
        proxying(f"http://127.0.0.1:{port}", tmp_path / "t.jsonl", mode) as proxy,
        Raw(proxy) as raw,
    ):
        got = raw.ask(chat("x"))
    assert got.status == 502
    message = got.json()["error"]["message"]
    assert f"the upstream 127.0.0.1:{port} cannot be reached: " in message
    assert kept(tmp_path / "t.jsonl") == []


def garbage(_: Received, wire: Wire) -> None:
    wire.send(b"\x00\x01\x02 this is no HTTP\r\n\r\n")


def two_framings(_: Received, wire: Wire) -> None:
    wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello")


def truncated(_: Received, wire: Wire) -> None:
    wire.send(b'HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"a":1')
    wire.close()


def silent(_: Received, wire: Wire) -> None:
    wire.close()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("script", [garbage, two_framings, silent])
def test_an_upstream_that_sends_no_answer_is_an_error_and_nothing_is_kept(
    script: Callable[[Received, Wire], None], mode: str, tmp_path: Path
) -> None:
    with (
        serving(script, answer(b'{"ok":1}')) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", mode) as proxy,
    ):
        with Raw(proxy) as raw:
            got = raw.ask(chat("x"))
            assert got.status == 502
            assert got.header("x-tapes-error") == "upstream-failed"
        with Raw(proxy) as raw:
            assert raw.ask(chat("x")).body == b'{"ok":1}'
    assert all(exchange.state is State.COMPLETE for exchange in kept(tmp_path / "t.jsonl"))


@pytest.mark.row("B8")
@pytest.mark.parametrize("mode", MODES)
def test_an_answer_of_known_length_that_is_cut_is_no_answer(mode: str, tmp_path: Path) -> None:
    with (
        serving(truncated) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", mode) as proxy,
        Raw(proxy) as raw,
    ):
        raw.send(request(chat("x")))
        if mode == "record":  # held back, so there is still room for an error
            assert raw.answer().status == 502
        else:
            raw.until(b"\r\n\r\n")
            with pytest.raises((Broken, ConnectionError)):
                raw.exactly(50)
    assert all(e.state is State.UPSTREAM_ERROR for e in kept(tmp_path / "t.jsonl"))


@pytest.mark.row("B8", "N08")
@pytest.mark.parametrize("mode", MODES)
def test_an_upstream_that_dies_in_mid_stream_breaks_the_clients_stream(
    mode: str, tmp_path: Path
) -> None:
    def script(_: Received, wire: Wire) -> None:
        wire.head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])
        wire.chunk(EVENT)
        wire.reset()

    with (
        serving(script) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", mode) as proxy,
        Raw(proxy) as raw,
    ):
        raw.send(request(chat("x", **STREAM)))
        with pytest.raises((Broken, ConnectionError)):
            raw.answer()
    if mode == "record":
        (evidence,) = kept(tmp_path / "t.jsonl")
        assert evidence.state is State.UPSTREAM_ERROR


@pytest.mark.row("N08")
def test_a_stream_that_closes_cleanly_without_its_last_word_is_no_answer(tmp_path: Path) -> None:
    with (
        serving(chunks(EVENT, EVENT)) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", "record") as proxy,
        Raw(proxy) as raw,
    ):
        assert raw.ask(chat("x", **STREAM)).chunks == [EVENT, EVENT]
    (evidence,) = kept(tmp_path / "t.jsonl")
    assert evidence.state is State.UPSTREAM_ERROR


@pytest.mark.row("N08")
@pytest.mark.parametrize("leave", [Raw.reset, lambda raw: raw.sock.close()], ids=["reset", "close"])
@pytest.mark.parametrize("mode", MODES)
def test_a_client_that_leaves_closes_the_upstream_within_a_second(
    mode: str, leave: Callable[[Raw], None], tmp_path: Path
) -> None:
    left = threading.Event()

    def script(_: Received, wire: Wire) -> None:
        wire.head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])
        wire.chunk(EVENT)
        wire.until_left()
        left.set()

    with (
        serving(script) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", mode) as proxy,
    ):
        raw = Raw(proxy)
        raw.send(request(chat("x", **STREAM)))
        raw.until(b"\r\n\r\n")
        assert raw.chunk() == EVENT
        leave(raw)
        assert left.wait(1.0)
    if mode == "record":
        (evidence,) = kept(tmp_path / "t.jsonl")
        assert evidence.state is State.ABORTED_BY_CLIENT


@pytest.mark.row("N17")
@pytest.mark.parametrize("mode", MODES)
def test_a_client_that_leaves_before_the_answer_begins_closes_the_upstream_too(
    mode: str, tmp_path: Path
) -> None:
    asked, left = threading.Event(), threading.Event()

    def script(_: Received, wire: Wire) -> None:
        asked.set()
        wire.until_left()
        left.set()

    with (
        serving(script) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", mode) as proxy,
    ):
        raw = Raw(proxy)
        raw.send(request(chat("x")))
        assert asked.wait(10)
        raw.sock.close()
        assert left.wait(1.0)
    assert kept(tmp_path / "t.jsonl") == []


def endless(_: Received, wire: Wire) -> None:
    wire.head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])
    while True:
        wire.chunk(EVENT * 100)


def test_an_answer_without_end_is_passed_on_while_its_client_reads() -> None:
    with (
        serving(endless) as upstream,
        proxying(upstream.url, mode="pass", body_limit=10_000) as proxy,
        Raw(proxy) as raw,
    ):
        raw.send(request(chat("x", **STREAM)))
        raw.until(b"\r\n\r\n")
        assert all(raw.chunk() == EVENT * 100 for _ in range(100))


def test_an_answer_without_end_is_not_recorded_and_does_not_fill_the_memory(
    tmp_path: Path,
) -> None:
    with (
        serving(endless) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", "record", body_limit=100_000) as proxy,
    ):
        with Raw(proxy) as raw, pytest.raises((Broken, ConnectionError)):
            raw.ask(chat("x", **STREAM))
        with Raw(proxy) as raw:
            (miss,) = raw.ask(path="/_tapes/misses", method="GET").json()["misses"]
    assert "100000 bytes" in miss["message"]
    assert kept(tmp_path / "t.jsonl") == []


def test_an_answer_of_very_small_chunks_counts_for_what_it_takes(tmp_path: Path) -> None:
    script = chunks(*[b"x"] * 2000)
    with (
        serving(script) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", "record", body_limit=100_000) as proxy,
        Raw(proxy) as raw,
        pytest.raises((Broken, ConnectionError)),
    ):
        raw.ask(chat("x", **STREAM))
    assert kept(tmp_path / "t.jsonl") == []


class Unreached(Pool):
    """A pool whose connections take for ever to open."""

    def connect(self, origin: Origin, asker: Asker) -> Callable[[], object]:
        taken_back.append(origin.host)
        return lambda: taken_back.append("taken back")


taken_back: list[str] = []


@pytest.mark.row("N17")
def test_a_client_that_leaves_while_the_upstream_is_reached_costs_nothing(tmp_path: Path) -> None:
    """Nothing was sent, so the unit of the budget goes back."""
    tape, environ = tmp_path / "t.jsonl", {"CASSETTE_LIVE_BUDGET": "5"}
    with proxying("http://upstream", tape, "record", environ=environ) as proxy:
        proxy.desk.pool = Unreached()
        raw = Raw(proxy)
        raw.send(request(chat("x")))
        wait_until(lambda: taken_back == ["upstream"])
        ledger = Ledger(tmp_path / ".tapes" / "state.db", "t.jsonl")
        assert ledger.spent().calls == 1
        raw.sock.close()
        wait_until(lambda: ledger.spent().calls == 0)
        ledger.close()
    assert taken_back == ["upstream", "taken back"]


# --- recording --------------------------------------------------------------------------------


class FullTape(MemoryTape):
    """A tape on a disk that is full."""

    def append(self, exchange: Exchange) -> None:
        from tapes.errors import UnwritableTape

        raise UnwritableTape("the tape memory cannot be written: no space left", "free space")


@pytest.mark.parametrize("script", [answer(b"{}"), chunks(EVENT, LAST)], ids=["JSON", "stream"])
def test_an_answer_that_cannot_be_kept_is_not_complete_for_the_client(
    script: Callable[[Received, Wire], None],
) -> None:
    with (
        serving(script) as upstream,
        proxying(upstream.url, FullTape(), "record") as proxy,
        Raw(proxy) as raw,
    ):
        raw.send(request(chat("x")))
        try:
            got = raw.answer()
        except (Broken, ConnectionError):
            return  # the stream was broken off before its end
    assert got.status == 400
    assert "no space left" in got.json()["error"]["message"]


def test_the_end_of_a_stream_is_held_back_until_the_tape_has_it(tmp_path: Path) -> None:
    on_disk = threading.Event()

    class Slow(JsonlTape):
        def append_ready(self, items: Sequence[Ready]) -> list[Exception | None]:
            on_disk.wait(10)
            return super().append_ready(items)

    with (
        serving(chunks(EVENT, LAST)) as upstream,
        proxying(upstream.url, Slow(tmp_path / "t.jsonl"), "record") as proxy,
        Raw(proxy) as raw,
    ):
        raw.send(request(chat("x", **STREAM)))
        raw.until(b"\r\n\r\n")
        assert [raw.chunk(), raw.chunk()] == [EVENT, LAST]
        raw.sock.settimeout(0.05)
        with pytest.raises(TimeoutError):
            raw.chunk()
        on_disk.set()
        raw.sock.settimeout(10)
        assert raw.chunk() == b""
    assert len(kept(tmp_path / "t.jsonl")) == 1


@pytest.mark.row("N06")
def test_what_is_recorded_has_one_piece_a_chunk_however_it_came(tmp_path: Path) -> None:
    """The upstream cuts its chunks anywhere; what replays has the provider's boundaries."""
    whole = b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in (EVENT, LAST)) + b"0\r\n\r\n"

    def script(_: Received, wire: Wire) -> None:
        wire.head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])
        for byte in whole:
            wire.send(bytes((byte,)))

    with (
        serving(script) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", "record") as proxy,
        Raw(proxy) as raw,
    ):
        raw.ask(chat("x", **STREAM))
    (exchange,) = kept(tmp_path / "t.jsonl")
    assert isinstance(exchange.response, Response)
    assert [piece.data for piece in exchange.response.pieces] == [EVENT, LAST]


@pytest.mark.row("N13")
def test_no_credential_comes_to_rest(tmp_path: Path) -> None:
    secrets = ["TEST-QUERY-0123456789", "test-bearer-abcdef-123456", "test-header-0001-xyz"]
    lines = [f"Authorization: Bearer {secrets[1]}", f"x-api-key: {secrets[2]}"]
    with (
        serving(answer(headers=[("Set-Cookie", "sid=cookie-secret-1")])) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", "record") as proxy,
        Raw(proxy) as raw,
    ):
        raw.ask(chat("x"), f"/v1beta/models/m:generateContent?key={secrets[0]}", *lines)
    (got,) = upstream.requests
    assert all(secret.encode() in got.head for secret in secrets)
    for file in tmp_path.rglob("*"):
        if file.is_file():
            text = file.read_bytes()
            assert not [s for s in (*secrets, "cookie-secret-1") if s.encode() in text]


# --- tunnels ----------------------------------------------------------------------------------


def test_a_websocket_is_tunnelled_when_passing_on() -> None:
    def script(received: Received, wire: Wire) -> None:
        assert received.header("upgrade") == "websocket"
        wire.send(b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\nhi ")
        while data := wire.file.read1(100):
            wire.send(data.upper())
        wire.close()

    with (
        serving(script) as upstream,
        proxying(upstream.url, mode="pass") as proxy,
        Raw(proxy) as raw,
    ):
        lines = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x"]
        raw.send(request(b"", "/v1/realtime", *lines, method="GET"))
        head = raw.until(b"\r\n\r\n")
        assert head.startswith(
            b"HTTP/1.1 101 Switching\r\nUpgrade: websocket\r\nConnection: Upgrade"
        )
        assert raw.exactly(3) == b"hi "
        raw.send(b"\x81frame")
        assert raw.exactly(6) == b"\x81FRAME"


@pytest.mark.parametrize("mode", ["replay", "record"])
def test_a_websocket_is_refused_clearly_where_it_would_have_to_be_recorded(
    mode: str, tmp_path: Path
) -> None:
    with proxying(None, tmp_path / "t.jsonl", mode) as proxy, Raw(proxy) as raw:
        lines = ["Connection: Upgrade", "Upgrade: websocket"]
        got = raw.ask(b"", "/v1/responses", *lines, method="GET")
    assert got.status == 426
    assert "cannot be recorded" in got.json()["error"]["message"]


@pytest.mark.parametrize("mode", MODES)
def test_an_upstream_that_switches_protocols_unasked_gives_no_answer(
    mode: str, tmp_path: Path
) -> None:
    def script(_: Received, wire: Wire) -> None:
        wire.send(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n")

    with (
        serving(script) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", mode) as proxy,
        Raw(proxy) as raw,
    ):
        assert raw.ask(chat("x")).status == 502
    assert not (tmp_path / "t.jsonl").exists()
