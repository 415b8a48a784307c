"""Every kind of request through one proxy: answered, passed on, or told what is wrong."""

import socket
from pathlib import Path

import pytest

from tapes.capture.watching import Outcome, Seen, Watch
from tapes.exchange import Headers, State
from tests.proxies import Broken, Raw, chat, proxying, request, wait_until
from tests.servers import Received, Wire, answer, chunks, serving


@pytest.mark.row("F10")
def test_several_upstreams_are_served_at_once_by_path_and_by_header() -> None:
    with serving(answer(b"1")) as one, serving(answer(b"2")) as two:
        upstreams = {"one": one.url, "two": f"{two.url}/base"}
        with proxying(one.url, mode="pass", upstreams=upstreams) as proxy, Raw(proxy) as raw:
            assert raw.ask(chat("x"), "/one/v1/x?q=1").body == b"1"
            assert raw.ask(chat("x"), "/two/v1/x?q=2").body == b"2"
            assert raw.ask(chat("x"), "/v1/y", "x-tapes-upstream: two").body == b"2"
    assert [r.target for r in one.requests] == ["/v1/x?q=1"]
    assert [r.target for r in two.requests] == ["/base/v1/x?q=2", "/base/v1/y"]


@pytest.mark.row("F10")
def test_several_tapes_are_served_at_once(tmp_path: Path) -> None:
    named = {"a": tmp_path / "a.jsonl", "b": tmp_path / "b.db"}
    with (
        serving(answer(b'"first"'), answer(b'"second"')) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", "record", named=named) as proxy,
        Raw(proxy) as raw,
    ):
        for _ in range(2):
            assert raw.ask(chat("x"), "/@a/v1/x").body == b'"first"'
            assert raw.ask(chat("x"), "/v1/x", "x-tapes-tape: b").body == b'"second"'
        assert len(upstream.requests) == 2
    assert not (tmp_path / "t.jsonl").exists()


def test_an_unknown_path_says_what_to_do_and_the_connection_goes_on(tmp_path: Path) -> None:
    with proxying(None, tmp_path / "t.jsonl") as proxy, Raw(proxy) as raw:
        for body in (b"", chat("x"), chat("x" * 50_000)):
            got = raw.ask(body, "/nobody/knows")
            assert got.status == 400
            assert "--upstream" in got.json()["error"]["message"]


def test_a_large_body_for_nobody_is_not_waited_for(tmp_path: Path) -> None:
    with proxying(None, tmp_path / "t.jsonl") as proxy, Raw(proxy) as raw:
        raw.send(request(b"x" * (64 * 1024 * 1024), "/nobody")[:1000])
        assert raw.answer().status == 400


def test_an_unknown_upstream_is_named(tmp_path: Path) -> None:
    with proxying(None, tmp_path / "t.jsonl") as proxy, Raw(proxy) as raw:
        got = raw.ask(chat("x"), "/v1/x", "x-tapes-upstream: acme")
        assert "'acme'" in got.json()["error"]["message"]


@pytest.mark.parametrize(
    ("data", "status"),
    [
        pytest.param(b"\x00\x01\x02\x03", 400, id="bytes"),
        pytest.param(b"\x16\x03\x01\x02\x00", 400, id="TLS"),
        pytest.param(b"hello\r\n\r\n", 400, id="text"),
        pytest.param(b"GET / HTTP/2.0\r\nHost: h\r\n\r\n", 505, id="HTTP/2"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", 400, id="no host"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: h\r\n" + b"X: y\r\n" * 20_000, 431, id="many lines"),
        pytest.param(b"GET / HTTP/1.1\r\nX: " + b"y" * 100_000, 431, id="a long line"),
        pytest.param(b"GET / HTTP/1.1\nHost: h\n\n", 400, id="bare LF"),
    ],
)
def test_what_is_no_request_is_told_so(data: bytes, status: int, tmp_path: Path) -> None:
    with proxying(None, tmp_path / "t.jsonl") as proxy, Raw(proxy) as raw:
        raw.send(data)
        got = raw.answer()
        assert (got.status, got.header("connection")) == (status, "close")
        assert raw.is_closed
        with Raw(proxy) as other:
            assert other.ask(chat("x")).status == 400


@pytest.mark.parametrize("mode", ["pass", "record"])
@pytest.mark.parametrize(
    "lines",
    [
        "Content-Length: 5\r\nTransfer-Encoding: chunked",
        "Content-Length: 5\r\nContent-Length: 6",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
        "Transfer-Encoding: x, chunked",
        "Transfer-Encoding:\x0bchunked",
        "Content-Length : 5",
        "X: a\r\n Content-Length: 5",
    ],
)
def test_a_request_that_two_parsers_read_differently_never_reaches_the_upstream(
    lines: str, mode: str, tmp_path: Path
) -> None:
    data = (
        f"POST /v1/x HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n\r\n"
        "0\r\n\r\nPOST /v1/smuggled HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n"
    )
    with (
        serving(answer()) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", mode) as proxy,
        Raw(proxy) as raw,
    ):
        raw.send(data.encode("latin-1"))
        assert raw.answer().status in (400, 501)
        assert raw.rest() == b""
        assert upstream.requests == []


def test_pipelined_requests_are_answered_in_their_order(tmp_path: Path) -> None:
    def echo(received: Received, wire: Wire) -> None:
        answer(received.body)(received, wire)

    tape = tmp_path / "t.jsonl"
    bodies = [chat(str(number)) for number in range(10)]
    for mode in ("record", "replay"):
        with (
            serving(echo) as upstream,
            proxying(upstream.url, tape, mode) as proxy,
            Raw(proxy) as raw,
        ):
            raw.send(b"".join(map(request, bodies)))
            assert [raw.answer().body for _ in bodies] == bodies


def test_a_client_that_sends_ahead_and_does_not_read_is_held_back(tmp_path: Path) -> None:
    with (
        serving(answer(b'"' + b"x" * 100_000 + b'"')) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", "record") as proxy,
    ):
        with Raw(proxy) as raw:
            raw.ask(chat("x"))
        with Raw(proxy) as raw:
            raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 10_000)
            raw.sock.settimeout(0.5)
            before, many = proxy.desk.requests, request(chat("x")) * 1000
            with pytest.raises(TimeoutError):
                raw.send(many * 100)
            assert proxy.desk.requests - before < 1000


def test_a_slow_client_is_served_byte_by_byte(tmp_path: Path) -> None:
    with (
        serving(answer(b"{}")) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", "record") as proxy,
        Raw(proxy) as raw,
    ):
        for byte in request(chat("x")):
            raw.send(bytes((byte,)))
        assert raw.answer().body == b"{}"


def test_a_client_that_has_sent_all_it_will_still_gets_its_answer(tmp_path: Path) -> None:
    with (
        serving(answer(b"{}")) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", "record") as proxy,
        Raw(proxy) as raw,
    ):
        raw.ask(chat("x"))
        with Raw(proxy) as half:
            half.send(request(chat("x")))
            half.sock.shutdown(socket.SHUT_WR)
            assert half.answer().body == b"{}"
            assert half.is_closed


def test_a_client_that_waits_to_be_told_to_go_on_is_told(tmp_path: Path) -> None:
    with (
        serving(answer(b"{}")) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", "record") as proxy,
        Raw(proxy) as raw,
    ):
        data = request(chat("x"), "/v1/x", "Expect: 100-continue")
        head, _, body = data.partition(b"\r\n\r\n")
        raw.send(head + b"\r\n\r\n")
        assert raw.answer().status == 100
        raw.send(body)
        assert raw.answer().body == b"{}"
        assert b"Expect" not in upstream.requests[0].head


def test_java_clients_that_offer_http_2_are_answered_over_http_1(tmp_path: Path) -> None:
    lines = [
        "Connection: Upgrade, HTTP2-Settings",
        "Upgrade: h2c",
        "HTTP2-Settings: AAEAAEAAAAIAAAAB",
    ]
    with (
        serving(answer(b"{}")) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", "record") as proxy,
        Raw(proxy) as raw,
    ):
        assert raw.ask(chat("x"), "/v1/x", *lines).body == b"{}"
        assert b"Upgrade" not in upstream.requests[0].head


# --- the watcher ------------------------------------------------------------------------------


class Log:
    """Keeps what it is told of each exchange."""

    def __init__(self) -> None:
        self.seen: list[tuple[Seen, LogEntry]] = []

    def begin(self, seen: Seen) -> Watch:
        entry = LogEntry()
        self.seen.append((seen, entry))
        return entry


class LogEntry:
    def __init__(self) -> None:
        self.request = b""
        self.status = 0
        self.pieces: list[bytes] = []
        self.state: State | None = None

    def request_piece(self, data: bytes) -> None:
        self.request += data

    def head(self, status: int, reason: str, headers: Headers) -> None:
        self.status = status

    def piece(self, data: bytes) -> None:
        self.pieces.append(data)

    def end(self, state: State) -> None:
        assert self.state is None
        self.state = state


def test_a_watcher_sees_every_exchange_with_its_outcome_and_its_parts(tmp_path: Path) -> None:
    events = (b"data: 1\n\n", b"data: [DONE]\n\n")
    log = Log()
    with serving(chunks(*events)) as upstream:
        for mode in ("pass", "record", "replay"):
            with (
                proxying(upstream.url, tmp_path / "t.jsonl", mode, watcher=log) as proxy,
                Raw(proxy) as raw,
            ):
                raw.ask(chat("x"), "/v1/x?a=1", "x-tapes-harness-id: claude")
                if mode == "replay":
                    raw.ask(chat("x"), "/v1/x?a=1", "x-tapes-harness-id: claude")
                    raw.ask(chat("y"), "/v1/x?a=1")
    outcomes = [seen.outcome for seen, _ in log.seen]
    assert outcomes == [
        Outcome.PASSED, Outcome.LIVE, Outcome.REPLAYED, Outcome.REPLAYED, Outcome.REFUSED,
    ]  # fmt: skip
    for seen, entry in log.seen[:-1]:
        assert seen.url == f"{upstream.url}/v1/x?a=1"
        assert ("x-tapes-harness-id", "claude") in seen.headers
        assert (entry.request, entry.status, entry.pieces) == (chat("x"), 200, list(events))
        assert entry.state is State.COMPLETE
    assert log.seen[1][0].key == log.seen[2][0].key is not None


def test_a_watcher_sees_that_a_client_left(tmp_path: Path) -> None:
    def script(_: Received, wire: Wire) -> None:
        wire.head(200, [("Transfer-Encoding", "chunked")])
        wire.chunk(b"Hel")
        wire.until_left()

    log = Log()
    with serving(script) as upstream, proxying(upstream.url, mode="pass", watcher=log) as proxy:
        raw = Raw(proxy)
        raw.send(request(chat("x")))
        raw.until(b"Hel")
        raw.sock.close()
        wait_until(lambda: log.seen[0][1].state is State.ABORTED_BY_CLIENT)
    assert log.seen[0][1].pieces == [b"Hel"]


def test_stopping_waits_for_answers_and_breaks_off_what_does_not_end() -> None:
    def script(_: Received, wire: Wire) -> None:
        wire.head(200, [("Transfer-Encoding", "chunked")])
        wire.chunk(b"never ends")
        wire.until_left()

    with serving(script) as upstream, proxying(upstream.url, mode="pass") as proxy:
        raw = Raw(proxy)
        raw.send(request(chat("x")))
        raw.until(b"never ends")
    with pytest.raises((Broken, ConnectionError)):
        raw.until(b"0\r\n\r\n")
    raw.sock.close()
