"""Client connections: one request after the other, each with its answer.

Rule 1: what a client sends goes to whoever answers it at once, before anything is done with it.
Rule 2: nothing is piled up without bound. A client that sends ahead is not read, one that reads
        slowly is told of (`client_is_slow`), and gets no next answer until it has caught up.
Rule 3: when the client leaves, whoever answers is told at once (`client_left`). A client that
        closes its sending side while an upstream works for it has left; one that waits for an
        answer of our own still gets it, and one for every whole request that it had sent behind.
Rule 4: a connection is used again only after a request and an answer that both ended as they said
        they would. An answer that comes before its request has ended is followed by a lingering
        close, so that it can be read.
Rule 5: an answer that breaks off is broken off for the client too, never ended cleanly.

A relay of its own, because a general server with a general client in the middle changes these
bytes (header case and order, chunk boundaries) and costs ten times as much.
Knows nothing of tapes or upstreams: who answers is decided by the handler that it is given.
"""

import asyncio
import logging
import select
import socket
import time
from typing import Generic, Protocol, TypeVar, cast

from tapes.capture.bodies import Body, Step
from tapes.capture.http1 import (
    UNTIL_CLOSE,
    BadMessage,
    HeadReader,
    RequestHead,
    read_request_head,
)
from tapes.capture.recent import Recent

log = logging.getLogger(__name__)

# Above this much unsent output the other side is paused; above this much input it is not read.
HIGH_WATER = 256 * 1024
# What a client may take for a head, for the next piece of a body, and between two requests.
HEAD_S = 60.0
BODY_S = 120.0
IDLE_S = 600.0
# How long a client may go on sending what nobody wants any more.
LINGER_S = 30.0
_SWEEP_S = 2.0
_KNOWN_HEADS_BYTES = 8 * 1024 * 1024
# What is made of a head takes so many times as much as the head: measured.
_OF_A_HEAD = 16
# That the other side closed. Where a system has no such event, only its reset is told, unasked.
_HUNG_UP = getattr(select, "POLLRDHUP", 0)
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


class Note(Protocol):
    """What a handler notes of a head; `lasts` says that it holds for the next one as well."""

    @property
    def lasts(self) -> bool:
        """Whether it may be kept."""
        ...


Noted = TypeVar("Noted", bound=Note)


class Turn(Protocol):
    """One request on its way: what its client's connection tells whoever answers it."""

    @property
    def needs_client(self) -> bool:
        """Whether it ends when the client sends no more (rule 3)."""
        ...

    def body(self, step: Step) -> None:
        """More of the request's body came."""

    def client_left(self) -> None:
        """The client closed before its answer was complete."""

    def client_is_slow(self, slow: bool) -> None:
        """The client reads slower (or again as fast) as it is written to."""


class Handler(Protocol[Noted]):
    """Who answers requests. What it notes of a head can serve every request that has the same."""

    def note(self, request: RequestHead) -> Noted:
        """Find out what a head means."""
        ...

    def whole(self, client: "Client", request: RequestHead, noted: Noted, body: bytes) -> None:
        """A request that came whole in one piece. Where it is not answered on the spot, a turn is
        given to the client.
        """

    def begin(self, client: "Client", request: RequestHead, noted: Noted) -> None:
        """A request whose head came; its body follows, to the turn that the client is given."""

    def bad(self, client: "Client", error: BadMessage) -> None:
        """Something that is no request came. The connection is closed after the answer."""


class Clients(Generic[Noted]):
    """The open connections of one server, and the heads that they sent before."""

    def __init__(self, handler: Handler[Noted]) -> None:
        self.handler = handler
        self.open: set[ClientConnection[Noted]] = set()
        self.known: Recent[bytes, tuple[RequestHead, Noted]] = Recent(_KNOWN_HEADS_BYTES)

    def connection(self) -> "ClientConnection[Noted]":
        """The protocol of a new connection."""
        return ClientConnection(self)

    async def watch(self) -> None:
        """Close, for ever, what has been still for too long."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = time.monotonic()
            for connection in tuple(self.open):
                connection.close_if_still(now)

    @property
    def are_busy(self) -> bool:
        """Whether any client waits for an answer."""
        return any(connection.is_busy for connection in self.open)

    def close(self) -> None:
        """Break off all connections; whoever answers them is told."""
        for connection in tuple(self.open):
            connection.break_off()


class Client(Protocol):
    """What whoever answers a request may do with its client."""

    @property
    def is_open(self) -> bool:
        """Whether the client is still there."""
        ...

    @property
    def is_slow(self) -> bool:
        """Whether the client has not yet taken what it was sent."""
        ...

    @property
    def peer(self) -> str:
        """The client's address."""
        ...

    def answered_by(self, turn: Turn) -> None:
        """From now on this turn is told of what the client does."""

    def write(self, data: bytes) -> None:
        """Send bytes of the answer."""

    def end(self, *, keep_alive: bool) -> None:
        """The answer is complete."""

    def abort(self) -> None:
        """Break the connection off: the answer has no end."""

    def pause_reading(self, pause: bool) -> None:
        """Let the client wait with more of its body."""

    def becomes_tunnel(self) -> None:
        """From now on whatever the client sends is body, until it closes."""


class ClientConnection(asyncio.Protocol, Generic[Noted]):
    """One client's connection. See the rules above."""

    def __init__(self, clients: Clients[Noted]) -> None:
        self._clients = clients
        self._transport: asyncio.Transport | None = None
        self._heads = HeadReader()
        self._input = b""
        self._request: RequestHead | None = None
        self._body: Body | None = None  # of a request whose end has not come
        self._turn: Turn | None = None
        self._answering = False
        self._advancing = False
        self._lingering = False
        self._sends_no_more = False
        self._paused_by_turn = False
        self._paused_by_input = False
        self.is_slow = False
        self._since = 0.0  # when it last sent something, or began to be idle

    # --- from asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(HIGH_WATER)
        _notice_dead_peer(self._transport)
        self._clients.open.add(self)
        self._since = time.monotonic()

    def connection_lost(self, _exc: Exception | None) -> None:
        """The client is gone."""
        self._clients.open.discard(self)
        self._transport = None
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.client_left()

    def pause_writing(self) -> None:
        """The client reads slower than it is written to."""
        self.is_slow = True
        if self._turn is not None:
            self._turn.client_is_slow(True)

    def resume_writing(self) -> None:
        """The client has caught up."""
        self.is_slow = False
        if self._turn is not None:
            self._turn.client_is_slow(False)
        self._advance()

    def data_received(self, data: bytes) -> None:
        """More of a request, or the next one."""
        if self._lingering:
            return
        self._input = self._input + data if self._input else data
        self._advance()

    def eof_received(self) -> bool:
        """The client sends no more (rule 3). False closes the connection."""
        self._sends_no_more = True
        return self._waits and (self._turn is None or not self._turn.needs_client)

    @property
    def _waits(self) -> bool:
        """Whether a client that sends no more has an answer to come."""
        if self._answering:
            return self._body is None
        return self.is_slow and bool(self._input)

    # --- requests

    def _advance(self) -> None:
        """Take from the input whatever can be taken now.

        An answer that is given on the spot comes back here by `end`; the flag keeps a client that
        sends many requests at once from growing the stack.
        """
        if self._advancing:
            return
        self._advancing = True
        try:
            while self._input and not self._lingering and self._transport is not None:
                if self._body is not None:
                    self._follow(self._body)
                elif self._answering or self.is_slow or not self._begin():
                    break
        except BadMessage as error:
            self._refuse(error)
        finally:
            self._advancing = False
        if self._sends_no_more and not self._lingering and not self._waits:
            self._linger()
        self._hold_input()

    def _begin(self) -> bool:
        """Begin an exchange where a head is whole. False while it is not."""
        if self._heads.is_empty:
            self._since = time.monotonic()
        found = self._heads.feed(self._input)
        if found is None:
            self._input = b""
            return False
        block, self._input = found
        clients = self._clients
        known = clients.known.find(block)
        if known is None:
            request = read_request_head(block)
            noted = clients.handler.note(request)
            if noted.lasts:
                clients.known.add(block, (request, noted), _OF_A_HEAD * len(block))
        else:
            request, noted = known
        self._request = request
        self._answering = True
        length = request.framing.length
        if length is not None and length <= len(self._input):
            body, self._input = self._input[:length], self._input[length:]
            clients.handler.whole(self, request, noted, body)
            return True
        self._body = Body(request.framing)
        clients.handler.begin(self, request, noted)
        if self._answering and request.expects_continue and not self._input:
            self.write(_CONTINUE)
        return True

    def _follow(self, body: Body) -> None:
        self._since = time.monotonic()
        data, self._input = self._input, b""
        step = body.feed(data)
        self._input = step.rest
        if step.ended:
            self._body = None
        if self._turn is not None:
            self._turn.body(step)

    def _refuse(self, error: BadMessage) -> None:
        """What came is no request: answer it and close. A body that is none breaks off its turn."""
        turn, self._turn = self._turn, None
        if turn is not None:
            turn.client_left()
            self.abort()
            return
        self._request, self._body = None, None
        self._answering = True
        self._clients.handler.bad(self, error)

    def _hold_input(self) -> None:
        hold = len(self._input) > HIGH_WATER or (self.is_slow and bool(self._input))
        if hold is not self._paused_by_input:
            self._paused_by_input = hold
            self._set_reading()

    def _set_reading(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        if self._paused_by_input or self._paused_by_turn:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    # --- answers

    @property
    def is_busy(self) -> bool:
        """Whether a request has begun to come, or its answer has not ended."""
        return self._answering or not self._heads.is_empty

    @property
    def is_open(self) -> bool:
        """Whether the client is still there."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def peer(self) -> str:
        """The client's address."""
        name = self._transport.get_extra_info("peername") if self._transport else None
        return str(name[0]) if isinstance(name, tuple) else ""

    def answered_by(self, turn: Turn) -> None:
        """From now on this turn is told of what the client does."""
        self._turn = turn

    def write(self, data: bytes) -> None:
        """Send bytes of the answer."""
        if self._transport is not None:
            self._transport.write(data)

    def end(self, *, keep_alive: bool) -> None:
        """The answer is complete."""
        self._turn = None
        self._answering = False
        if self._transport is None:
            return
        if self._paused_by_turn:
            self.pause_reading(False)
        request = self._request
        if (
            not keep_alive
            or self._body is not None
            or request is None
            or not request.keeps_alive
            or (self._sends_no_more and not self._input)
        ):
            self._linger()
        else:
            self._since = time.monotonic()
            self._advance()

    def _linger(self) -> None:
        """Say that no more will come, and read on until the client closes (rule 4)."""
        if self._transport is None or self._transport.is_closing():
            return
        self._lingering, self._input, self._body = True, b"", None
        self._since = time.monotonic()
        self._hold_input()
        if self._sends_no_more or not self._transport.can_write_eof():
            self._transport.close()
        else:
            self._transport.write_eof()

    def abort(self) -> None:
        """Break the connection off: the answer has no end."""
        self._turn = None
        self.break_off()

    def break_off(self) -> None:
        """As `abort`; whoever answers is told that the client left."""
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self, pause: bool) -> None:
        """Let the client wait with more of its body."""
        if pause is not self._paused_by_turn:
            self._paused_by_turn = pause
            self._set_reading()

    @property
    def _has_hung_up(self) -> bool:
        """Whether the other side has closed, which a loop that does not read is not told."""
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        if sock is None:
            return False
        watch = select.poll()
        watch.register(sock.fileno(), _HUNG_UP)
        return bool(watch.poll(0))

    def becomes_tunnel(self) -> None:
        """From now on whatever the client sends is body, until it closes."""
        self._body = Body(UNTIL_CLOSE)
        self._advance()

    def close_if_still(self, now: float) -> None:
        """Close where the client has had its time, or has left while it is not read (rule 3)."""
        if self._transport is None:
            return
        needs_client = self._turn is not None and self._turn.needs_client
        if needs_client and (self._paused_by_turn or self._paused_by_input) and self._has_hung_up:
            self.break_off()
            return
        still = now - self._since
        if self._lingering:
            late = still > LINGER_S
        elif self._body is not None:
            # In a tunnel, and where we ourselves let it wait, the client may be still.
            late = still > BODY_S and not self._paused_by_turn and not self._body.may_end_here
        elif self._answering:
            late = False
        else:
            late = still > (IDLE_S if self._heads.is_empty else HEAD_S)
        if late:
            self.break_off()


def _notice_dead_peer(transport: asyncio.Transport) -> None:
    """Let the system find out that the other machine is gone, however long nothing is said."""
    sock = transport.get_extra_info("socket")
    if sock is not None and sock.family != socket.AF_UNIX:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
