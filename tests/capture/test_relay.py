"""Client connections: one request after the other, whatever a client does to its bytes."""

import asyncio
import select
import socket
import time
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes.capture.bodies import Step
from tapes.capture.http1 import BadMessage, RequestHead
from tapes.capture.relay import (
    BODY_S,
    HEAD_S,
    HIGH_WATER,
    IDLE_S,
    LINGER_S,
    Client,
    ClientConnection,
    Clients,
)
from tests.capture.llhttp import read_requests
from tests.capture.wires import Wire
from tests.servers import PATIENCE_S


@dataclass(frozen=True)
class Path:
    """What the handler below notes of a head."""

    target: bytes
    lasts: bool = True


@dataclass
class Echo:
    """Answers each request with its target and its body; `/later` when the test says so."""

    asked: list[tuple[bytes, bytes]] = field(default_factory=list)
    turns: list["EchoTurn"] = field(default_factory=list)
    noted: int = 0

    def note(self, request: RequestHead) -> Path:
        self.noted += 1
        return Path(request.target)

    def whole(self, client: Client, request: RequestHead, noted: Path, body: bytes) -> None:
        turn = EchoTurn(self, client, noted.target)
        client.answered_by(turn)
        self.turns.append(turn)
        turn.body(Step(body, (body,) if body else (), ended=True))

    def begin(self, client: Client, request: RequestHead, noted: Path) -> None:
        turn = EchoTurn(self, client, noted.target)
        self.turns.append(turn)
        client.answered_by(turn)
        if noted.target == b"/no":
            turn.answer()

    def bad(self, client: Client, error: BadMessage) -> None:
        client.write(b"bad %d\n" % error.status)
        client.end(keep_alive=False)


class EchoTurn:
    def __init__(self, echo: Echo, client: Client, target: bytes) -> None:
        self.echo = echo
        self.client = client
        self.target = target
        self.got = b""
        self.needs_client = target == b"/upstream"
        self.left = False
        self.slow: list[bool] = []

    def body(self, step: Step) -> None:
        self.got += b"".join(step.pieces)
        if step.ended:
            self.echo.asked.append((self.target, self.got))
            if self.target not in (b"/later", b"/upstream"):
                self.answer()

    def answer(self) -> None:
        self.client.write(b"%b %b\n" % (self.target, self.got))
        self.client.end(keep_alive=True)

    def client_left(self) -> None:
        self.left = True

    def client_is_slow(self, slow: bool) -> None:
        self.slow.append(slow)


def connected() -> tuple[Wire, Echo, ClientConnection[Path]]:
    echo = Echo()
    clients = Clients(echo)
    connection = clients.connection()
    return Wire(connection), echo, connection


def sized(body: bytes = b"", target: bytes = b"/a", *lines: bytes) -> bytes:
    head = [b"POST %b HTTP/1.1" % target, b"Host: h", b"Content-Length: %d" % len(body), *lines]
    return b"\r\n".join(head) + b"\r\n\r\n" + body


def chunked(*chunks: bytes, target: bytes = b"/a") -> bytes:
    head = b"POST %b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" % target
    return head + b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"


requests = st.one_of(
    st.builds(sized, st.binary(max_size=20)),
    st.lists(st.binary(min_size=1, max_size=9), max_size=3).map(lambda c: chunked(*c)),
    st.just(b"\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n"),
)


@given(st.lists(requests, max_size=5), st.lists(st.integers(0, 400), max_size=12))
def test_any_mixture_of_framings_is_understood_however_it_is_cut(
    sent: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(sent)
    wire, echo, _ = connected()
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    for low, high in zip([0, *ends], ends, strict=False):
        wire.receive(data[low:high])
    assert len(echo.asked) == len(sent)
    other = read_requests(data)
    assert other.error is None
    assert other.messages == len(sent)
    assert b"".join(body for _, body in echo.asked) == other.body
    assert wire.written == b"".join(b"%b %b\n" % asked for asked in echo.asked)


@given(st.binary(max_size=80), st.integers(0, 80))
def test_no_bytes_break_a_connection_otherwise_than_by_its_rules(data: bytes, cut: int) -> None:
    wire, _, _ = connected()
    wire.receive(data[:cut])
    wire.receive(data[cut:])
    assert wire.eof == wire.written.startswith(b"bad")


def test_a_head_that_came_before_is_read_once() -> None:
    wire, echo, _ = connected()
    for number in range(5):
        wire.receive(sized(b"%d" % number))
    assert echo.noted == 1
    assert len(echo.asked) == 5


def test_a_request_waits_for_the_answer_before_it() -> None:
    wire, echo, _ = connected()
    wire.receive(sized(b"1", b"/later") + sized(b"2"))
    assert wire.written == b""
    echo.turns[0].answer()
    assert wire.written == b"/later 1\n/a 2\n"


def test_bytes_that_come_while_answers_are_given_keep_their_order() -> None:
    """What waits is taken before what comes next, though both come in one turn of the loop."""
    wire, echo, _ = connected()
    wire.receive(sized(b"1", b"/later") + sized(b"2", b"/later") + sized(b"3")[:20])
    echo.turns[0].answer()
    wire.receive(sized(b"3")[20:] + sized(b"4"))
    echo.turns[1].answer()
    assert wire.written == b"/later 1\n/later 2\n/a 3\n/a 4\n"


def test_many_requests_at_once_do_not_grow_the_stack() -> None:
    wire, echo, _ = connected()
    wire.receive(sized(b"x") * 20_000)
    assert len(echo.asked) == 20_000


def test_a_client_that_sends_ahead_is_not_read_beyond_a_bound() -> None:
    wire, echo, _ = connected()
    wire.receive(sized(b"1", b"/later"))
    wire.receive(b"x" * (HIGH_WATER + 1))
    assert not wire.reading
    echo.turns[0].answer()
    assert wire.reading


def test_a_client_that_does_not_read_gets_no_further_answers() -> None:
    wire, echo, connection = connected()
    connection.pause_writing()
    wire.receive(sized(b"1") + sized(b"2"))
    assert echo.asked == []
    assert not wire.reading
    connection.resume_writing()
    assert len(echo.asked) == 2
    assert wire.reading


def test_whoever_answers_is_told_that_the_client_is_slow() -> None:
    wire, echo, connection = connected()
    wire.receive(sized(b"1", b"/later"))
    connection.pause_writing()
    connection.resume_writing()
    assert echo.turns[0].slow == [True, False]


def test_whoever_answers_is_told_that_the_client_left() -> None:
    wire, echo, _ = connected()
    wire.receive(sized(b"1", b"/later"))
    wire.lose()
    assert echo.turns[0].left


@pytest.mark.parametrize(("target", "stays"), [(b"/later", True), (b"/upstream", False)])
def test_a_client_that_sends_no_more_still_gets_what_needs_no_upstream(
    target: bytes, stays: bool
) -> None:
    wire, _, connection = connected()
    wire.receive(sized(b"1", target))
    assert connection.eof_received() is stays


def test_a_half_closed_connection_ends_with_its_answer() -> None:
    wire, echo, connection = connected()
    wire.receive(sized(b"1", b"/later"))
    connection.eof_received()
    echo.turns[0].answer()
    assert wire.written == b"/later 1\n"
    assert wire.closed


@pytest.mark.parametrize("target", [b"/later", b"/a"])
def test_a_client_that_sends_no_more_gets_the_answers_to_all_that_it_had_sent(
    target: bytes,
) -> None:
    wire, echo, connection = connected()
    wire.receive(sized(b"1", b"/later") + sized(b"2", target) + sized(b"3"))
    assert connection.eof_received()
    for number in range(2 if target == b"/later" else 1):
        assert not wire.closed
        echo.turns[number].answer()
    assert wire.written == b"/later 1\n%b 2\n/a 3\n" % target
    assert wire.closed


def test_a_slow_client_that_sends_no_more_gets_the_answer_that_waits_for_it() -> None:
    wire, _, connection = connected()
    connection.pause_writing()
    wire.receive(sized(b"1"))
    assert connection.eof_received()
    connection.resume_writing()
    assert (wire.written, wire.closed) == (b"/a 1\n", True)


def test_half_a_request_behind_the_last_one_is_not_waited_for() -> None:
    wire, echo, connection = connected()
    wire.receive(sized(b"1", b"/later") + sized(b"23", b"/upstream")[:-1])
    assert connection.eof_received()
    echo.turns[0].answer()
    assert (wire.written, wire.closed) == (b"/later 1\n", True)
    connection.connection_lost(None)
    assert echo.turns[1].left


@pytest.mark.skipif(not hasattr(select, "POLLRDHUP"), reason="the system tells of resets only")
@pytest.mark.parametrize(("target", "left"), [(b"/upstream", True), (b"/later", False)])
def test_a_client_that_leaves_while_it_is_not_read_is_noticed(target: bytes, left: bool) -> None:
    async def use() -> bool:
        echo = Echo()
        ours, theirs = socket.socketpair()
        with theirs:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(Clients(echo).connection, sock=ours)
            theirs.sendall(sized(b"1", target))
            async with asyncio.timeout(PATIENCE_S):
                while not echo.turns:
                    await asyncio.sleep(0)
            connection.pause_reading(True)
            theirs.sendall(b"more")
            connection.close_if_still(time.monotonic())
            await asyncio.sleep(0)
            assert not echo.turns[0].left
            theirs.shutdown(socket.SHUT_WR)
            connection.close_if_still(time.monotonic())
            await asyncio.sleep(0)
            connection.break_off()
            return not connection.is_open and echo.turns[0].left

    assert asyncio.run(use()) is left


def test_a_half_request_ends_with_its_connection() -> None:
    wire, _, connection = connected()
    wire.receive(sized(b"123")[:-1])
    assert connection.eof_received() is False


def test_an_answer_before_the_end_of_the_request_is_followed_by_a_lingering_close() -> None:
    """Closing at once would reset the connection, and the client would never read the answer."""
    wire, _, _ = connected()
    wire.receive(sized(b"x" * 100, b"/no")[:60])
    assert wire.written == b"/no \n"
    assert wire.eof
    assert not wire.closed
    wire.receive(b"x" * 100)
    assert wire.written == b"/no \n"


@pytest.mark.parametrize(
    "head",
    [b"GET /a HTTP/1.0\r\nHost: h", b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: close"],
)
def test_a_client_that_wants_no_further_answer_gets_the_end(head: bytes) -> None:
    wire, _, _ = connected()
    wire.receive(head + b"\r\n\r\n")
    assert (wire.written, wire.eof) == (b"/a \n", True)


def test_what_is_no_request_is_answered_and_the_rest_is_not_read() -> None:
    wire, echo, _ = connected()
    wire.receive(b"GET / HTTP/1.1\r\nHost: h\r\nX : 1\r\n\r\n" + sized(b"smuggled"))
    assert wire.written == b"bad 400\n"
    assert (echo.asked, wire.eof) == ([], True)


def test_a_body_that_breaks_its_framing_ends_the_connection_and_its_turn() -> None:
    wire, echo, _ = connected()
    wire.receive(chunked(b"hello")[:-5] + b"broken\r\n")
    assert wire.aborted
    assert echo.turns[0].left


def test_the_client_is_told_to_go_on_with_a_body_that_it_holds_back() -> None:
    wire, echo, _ = connected()
    request = sized(b"hello", b"/a", b"Expect: 100-continue")
    wire.receive(request[:-5])
    assert wire.written == b"HTTP/1.1 100 Continue\r\n\r\n"
    wire.receive(request[-5:])
    assert echo.asked == [(b"/a", b"hello")]


def test_a_client_of_http_1_0_is_never_told_to_go_on() -> None:
    wire, _, _ = connected()
    wire.receive(b"POST /a HTTP/1.0\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
    assert wire.written == b""


def test_pausing_for_two_reasons_needs_both_to_end() -> None:
    wire, _, connection = connected()
    wire.receive(sized(b"1", b"/later"))
    connection.pause_reading(True)
    wire.receive(b"x" * (HIGH_WATER + 1))
    connection.pause_reading(False)
    assert not wire.reading


@pytest.mark.parametrize(
    ("sent", "limit"),
    [
        pytest.param(b"", IDLE_S, id="nothing was sent"),
        pytest.param(sized(b"1"), IDLE_S, id="between two requests"),
        pytest.param(b"POST /a HT", HEAD_S, id="in a head"),
        pytest.param(sized(b"12")[:-1], BODY_S, id="in a body"),
        pytest.param(sized(b"x" * 99, b"/no")[:70], LINGER_S, id="after the end"),
    ],
)
def test_a_still_client_is_closed_after_its_time(sent: bytes, limit: float) -> None:
    wire, _, connection = connected()
    wire.receive(sent)
    now = time.monotonic()
    connection.close_if_still(now + limit - 1)
    assert not wire.aborted
    connection.close_if_still(now + limit + 1)
    assert wire.aborted


def test_a_client_that_sends_a_head_byte_by_byte_gets_no_more_time_for_it() -> None:
    wire, _, connection = connected()
    wire.receive(b"P")
    begun = time.monotonic()
    wire.receive(b"O")
    connection.close_if_still(begun + HEAD_S + 1)
    assert wire.aborted


def test_a_client_that_waits_for_its_answer_has_all_the_time() -> None:
    wire, _, connection = connected()
    wire.receive(sized(b"1", b"/later"))
    connection.close_if_still(time.monotonic() + 1e6)
    assert not wire.aborted


def test_a_tunnel_carries_bytes_as_they_come_and_may_be_still() -> None:
    wire, echo, connection = connected()
    wire.receive(sized(b"", b"/later") + b"early")
    connection.becomes_tunnel()
    wire.receive(b" frames")
    assert echo.turns[0].got == b"early frames"
    connection.close_if_still(time.monotonic() + 1e6)
    assert not wire.aborted
    assert connection.eof_received() is False


def test_stopping_breaks_off_every_connection_and_tells_whoever_answers() -> None:
    echo = Echo()
    clients = Clients(echo)
    wire = Wire(clients.connection())
    wire.receive(sized(b"1", b"/later"))
    assert clients.are_busy
    clients.close()
    wire.lose()
    assert echo.turns[0].left
    assert not clients.open


def test_what_comes_behind_the_last_request_is_read_so_that_the_answer_can_be() -> None:
    wire, echo, _ = connected()
    wire.receive(b"GET /later HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
    wire.receive(b"x" * (HIGH_WATER + 1))
    assert not wire.reading
    echo.turns[0].answer()
    assert wire.eof
    assert wire.reading
