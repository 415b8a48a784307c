"""Upstream connections: what comes back, however it comes, and when one is used again."""

import asyncio
import gc
import socket
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes.capture.bodies import Step
from tapes.capture.http1 import BadMessage, ResponseHead
from tapes.capture.upstream import Origin, Pool, UpstreamConnection
from tests.capture.llhttp import read_responses
from tests.capture.wires import Wire
from tests.servers import answer as answering
from tests.servers import closed_port, serving

ORIGIN = Origin("127.0.0.1", 80, tls=False)


@dataclass
class Asked:
    """Keeps all that it is told."""

    connection: UpstreamConnection | None = None
    heads: list[ResponseHead] = field(default_factory=list)
    interims: list[int] = field(default_factory=list)
    raw: bytes = b""
    pieces: list[bytes] = field(default_factory=list)
    ended: bool = False
    error: Exception | None = None
    done: asyncio.Event | None = None

    def connected(self, connection: UpstreamConnection) -> None:
        self.connection = connection
        self._tell()

    def interim(self, head: ResponseHead) -> None:
        self.interims.append(head.status)

    def head(self, head: ResponseHead) -> None:
        self.heads.append(head)

    def step(self, step: Step) -> None:
        self.raw += step.raw
        self.pieces += step.pieces
        if step.ended:
            self.ended = True
            self._tell()

    def failed(self, error: Exception) -> None:
        self.error = error
        self._tell()

    def upstream_is_slow(self, slow: bool) -> None:
        pass

    def _tell(self) -> None:
        if self.done is not None:
            self.done.set()


def asked(*, whole: bool = True, method: bytes = b"POST") -> tuple[Wire, Asked, UpstreamConnection]:
    connection = UpstreamConnection(Pool(), ORIGIN)
    wire = Wire(connection)
    asker = Asked()
    connection.ask(asker, method, b"request", whole=whole)
    return wire, asker, connection


def sized(body: bytes, *lines: bytes) -> bytes:
    head = [b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(body), *lines]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def chunked(*chunks: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"


answers = st.one_of(
    st.binary(max_size=30).map(sized),
    st.lists(st.binary(min_size=1, max_size=9), max_size=4).map(lambda c: chunked(*c)),
)
interim = st.sampled_from(
    [b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 E\r\nLink: a\r\n\r\n"]
)


@given(interim, answers, st.lists(st.integers(0, 200), max_size=10))
def test_an_answer_is_the_same_however_it_is_cut(
    before: bytes, answer: bytes, cuts: list[int]
) -> None:
    data = before + answer
    wire, asker, connection = asked()
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    for low, high in zip([0, *ends], ends, strict=False):
        wire.receive(data[low:high])
    head, _, body = answer.partition(b"\r\n\r\n")
    assert asker.ended
    assert [h.head.start for h in asker.heads] == [head.split(b"\r\n")[0]]
    assert asker.raw == body
    assert b"".join(asker.pieces) == read_responses(answer).body
    assert connection.is_open


@given(st.binary(max_size=120), st.integers(0, 120))
def test_no_bytes_end_an_answer_otherwise_than_by_its_rules(data: bytes, cut: int) -> None:
    wire, asker, _ = asked()
    wire.receive(data[:cut])
    wire.receive(data[cut:])
    wire.lose()
    assert asker.ended or isinstance(asker.error, BadMessage | ConnectionError)


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(sized(b"hello")[:-1], id="within its length"),
        pytest.param(chunked(b"hello")[:-1], id="before the last line end of its chunks"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Le", id="in its head"),
        pytest.param(b"", id="before its first byte"),
    ],
)
def test_an_answer_that_is_cut_short_has_failed(data: bytes) -> None:
    wire, asker, _ = asked()
    wire.receive(data)
    wire.lose()
    assert not asker.ended
    assert isinstance(asker.error, ConnectionError)


def test_an_answer_without_framing_ends_with_its_connection() -> None:
    wire, asker, _ = asked()
    wire.receive(b"HTTP/1.1 200 OK\r\n\r\nhello")
    assert not asker.ended
    wire.lose()
    assert (asker.raw, asker.ended) == (b"hello", True)


def test_an_answer_without_framing_that_is_reset_has_failed() -> None:
    wire, asker, _ = asked()
    wire.receive(b"HTTP/1.1 200 OK\r\n\r\nhello")
    wire.lose(ConnectionResetError())
    assert not asker.ended
    assert asker.error is not None


@pytest.mark.parametrize(
    ("answer", "whole", "again"),
    [
        pytest.param(sized(b"hello"), True, True, id="usual"),
        pytest.param(sized(b"hello", b"Connection: close"), True, False, id="it says close"),
        pytest.param(sized(b"hello") + b"X", True, False, id="something lies behind it"),
        pytest.param(sized(b"hello"), False, False, id="the request was not sent whole"),
        pytest.param(sized(b"hello").replace(b"1.1", b"1.0"), True, False, id="HTTP/1.0"),
    ],
)
def test_when_a_connection_is_used_again(answer: bytes, whole: bool, again: bool) -> None:
    wire, asker, _ = asked(whole=whole)
    wire.receive(answer)
    assert asker.ended
    assert wire.closed is not again


def test_an_upstream_that_never_comes_to_its_answer_has_failed() -> None:
    wire, asker, _ = asked()
    wire.receive(b"HTTP/1.1 102 Processing\r\n\r\n" * 200)
    assert isinstance(asker.error, BadMessage)


def test_bytes_that_nobody_asked_for_close_an_idle_connection() -> None:
    wire, _, _ = asked()
    wire.receive(sized(b"hello"))
    wire.receive(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
    assert wire.closed


def test_leaving_breaks_off_and_nobody_is_told() -> None:
    wire, asker, connection = asked()
    wire.receive(chunked(b"hello")[:60])
    connection.leave()
    wire.lose()
    assert wire.aborted
    assert asker.error is None


async def _got(pool: Pool, origin: Origin) -> Asked:
    asker = Asked(done=asyncio.Event())
    pool.connect(origin, asker)
    assert asker.done is not None
    await asyncio.wait_for(asker.done.wait(), 10)
    return asker


def test_an_idle_connection_is_used_again_and_one_that_was_closed_is_not() -> None:
    async def use(port: int) -> list[UpstreamConnection]:
        pool, origin = Pool(), Origin("127.0.0.1", port, tls=False)
        used = []
        for _ in range(2):
            asker = await _got(pool, origin)
            assert asker.connection is not None
            assert asker.done is not None
            asker.done.clear()
            asker.connection.ask(asker, b"GET", b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", whole=True)
            await asyncio.wait_for(asker.done.wait(), 10)
            used.append(asker.connection)
        pool.close()
        return used

    with serving(answering()) as server:
        first, second = asyncio.run(use(server.port))
        assert first is second
        assert server.connections == 1
    with serving(answering(headers=[("Connection", "close")])) as server:
        first, second = asyncio.run(use(server.port))
        assert first is not second


def test_a_connection_that_was_closed_unseen_by_the_loop_is_not_quiet() -> None:
    async def use(listener: socket.socket) -> tuple[bool, bool]:
        asker = await _got(Pool(), Origin("127.0.0.1", listener.getsockname()[1], tls=False))
        assert asker.connection is not None
        accepted, _ = listener.accept()
        before = asker.connection.is_quiet
        accepted.close()
        return before, asker.connection.is_quiet

    with socket.create_server(("127.0.0.1", 0)) as listener:
        assert asyncio.run(use(listener)) == (True, False)


def test_a_refused_connection_has_failed_and_says_why() -> None:
    async def use() -> Asked:
        return await _got(Pool(), Origin("127.0.0.1", closed_port(), tls=False))

    asker = asyncio.run(use())
    assert isinstance(asker.error, ConnectionRefusedError)


def test_a_connection_that_was_lost_before_it_is_asked_has_failed() -> None:
    connection = UpstreamConnection(Pool(), ORIGIN)
    Wire(connection).lose()
    asker = Asked()
    connection.ask(asker, b"GET", b"GET / HTTP/1.1\r\n\r\n", whole=True)
    assert isinstance(asker.error, ConnectionResetError)


def test_a_fault_of_any_kind_while_a_connection_is_opened_reaches_whoever_waits() -> None:
    async def use() -> Asked:
        return await _got(Pool(), Origin("127.0.0.1", 99_999, tls=False))

    assert isinstance(asyncio.run(use()).error, OverflowError)


def test_a_wish_can_be_taken_back_while_the_connection_is_opened() -> None:
    async def use() -> Asked:
        pool, asker = Pool(), Asked()
        take_back = pool.connect(Origin("192.0.2.1", 9, tls=False), asker)  # answers nobody
        await asyncio.sleep(0)
        take_back()
        await asyncio.sleep(0)
        pool.close()
        return asker

    asker = asyncio.run(use())
    assert (asker.connection, asker.error) == (None, None)


@pytest.mark.parametrize(
    ("origin", "authority"),
    [
        (Origin("api.example", 443, tls=True), "api.example"),
        (Origin("api.example", 80, tls=False), "api.example"),
        (Origin("api.example", 8443, tls=True), "api.example:8443"),
        (Origin("::1", 11434, tls=False), "[::1]:11434"),
    ],
)
def test_the_port_is_named_only_where_it_is_not_the_usual_one(
    origin: Origin, authority: str
) -> None:
    assert origin.authority == authority


def test_a_connection_that_was_paused_to_the_end_is_read_again_when_it_is_asked_again() -> None:
    wire, _, connection = asked()
    wire.receive(sized(b"hello")[:-1])
    connection.pause_reading(True)
    assert not wire.reading
    connection.data_received(b"o")  # it had been read before the pause
    connection.ask(Asked(), b"GET", b"next", whole=True)
    assert wire.reading


def test_nothing_is_kept_of_upstreams_whose_connections_are_closed() -> None:
    pool = Pool()
    for number in range(50):
        connection = UpstreamConnection(pool, Origin("gone.test", 20_000 + number, tls=False))
        pool.give_back(connection)
        connection.connection_lost(None)
        del connection
    gc.collect()
    left = [
        each for each in gc.get_objects() if isinstance(each, Origin) and each.host == "gone.test"
    ]
    assert left == []


def test_an_upstream_that_speaks_tls_is_told_from_one_that_breaks_off() -> None:
    wire, asker, _ = asked()
    wire.receive(b"\x15\x03\x03\x00\x02\x02\x46")  # an alert
    assert "https:" in str(asker.error)
    assert "http: " not in f"{asker.error} "
