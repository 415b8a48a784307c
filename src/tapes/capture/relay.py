"""Client and upstream connections: bytes, header order and chunk boundaries as they came.

Rule 1: what one side sends goes to the other at once, before anything is done with it.
Rule 2: a side that reads slowly slows the other down; nothing is piled up without bound.
Rule 3: when one side leaves, the other is told at once: a client that closes ends the upstream's
        connection, an upstream that breaks off breaks the client's answer, never ends it cleanly.
Rule 4: a connection is used again only after a message that ended as it said it would.

A relay of its own, because a general server with a general client in the middle changes these
bytes (header case and order, chunk boundaries) and costs ten times as much.
Knows nothing of tapes: who answers is decided by the handler that it is given.
"""

import asyncio
import contextlib
import logging
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, cast

from tapes.capture.http1 import (
    BadMessage,
    BodyReader,
    HeadReader,
    RequestHead,
    ResponseHead,
    Step,
    accept_request,
    accept_response,
)

log = logging.getLogger(__name__)

# A client that sends nothing for so long, in the middle of a request or between two.
CLIENT_IDLE_S = 120.0
CONNECT_TIMEOUT_S = 10.0
# An upstream connection that nobody used for so long is closed.
UPSTREAM_IDLE_S = 60.0
# Above this much unsent output the other side is paused.
HIGH_WATER = 256 * 1024
_KNOWN_HEADS = 4096


@dataclass(slots=True)
class KnownHead:
    """A request head that came before, read once; `notes` belong to the handler."""

    request: RequestHead
    notes: object = None


class Exchange(Protocol):
    """One request on its way: what the client connection tells whoever answers it."""

    def body(self, step: Step) -> None:
        """More of the request's body came."""

    def client_left(self) -> None:
        """The client closed before its answer was complete."""

    def client_is_slow(self, slow: bool) -> None:
        """The client reads slower (or again as fast) as it is written to."""


class Handler(Protocol):
    """Who answers requests. `known_heads` remembers what was read, and what was noted of it."""

    known_heads: dict[bytes, KnownHead]

    def whole(self, client: "ClientConnection", known: KnownHead, body: bytes) -> "Exchange | None":
        """A request that came whole in one piece. None where it was answered on the spot."""

    def begin(self, client: "ClientConnection", known: KnownHead) -> "Exchange | None":
        """A request whose head came; its body follows. None where it was answered."""

    def bad(self, client: "ClientConnection", error: BadMessage) -> None:
        """Something that is no request came."""


class ClientConnection(asyncio.Protocol):
    """One client's connection: one exchange after the other."""

    def __init__(self, handler: Handler, open_clients: "set[ClientConnection]") -> None:
        self._handler = handler
        self._open = open_clients
        self._heads = HeadReader()
        self._body: BodyReader | None = None
        self._exchange: Exchange | None = None
        self._known: KnownHead | None = None
        self._waiting = b""
        self._answering = False
        self._request_ended = True
        self._transport: asyncio.Transport | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._last_input = 0.0

    # --- from asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(HIGH_WATER)
        self._open.add(self)
        self._last_input = time.monotonic()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._open.discard(self)
        self._transport = None
        if self._deadline is not None:
            self._deadline.cancel()
        exchange, self._exchange = self._exchange, None
        if exchange is not None:
            exchange.client_left()

    def pause_writing(self) -> None:
        """The client reads slower than it is written to."""
        if self._exchange is not None:
            self._exchange.client_is_slow(True)

    def resume_writing(self) -> None:
        """The client has caught up."""
        if self._exchange is not None:
            self._exchange.client_is_slow(False)

    def data_received(self, data: bytes) -> None:
        """More of a request, or the next one."""
        self._last_input = time.monotonic()
        if self._answering and self._request_ended:
            self._waiting += data  # the next request waits for this answer
            if len(self._waiting) > HIGH_WATER and self._transport is not None:
                self._transport.pause_reading()
            return
        try:
            self._take(data)
        except BadMessage as error:
            self._request_ended = True
            self._answering = True
            self._handler.bad(self, error)

    # --- requests

    def _take(self, data: bytes) -> None:
        if self._body is None:
            found = self._heads.feed(data)
            if found is None:
                return
            block, data = found
            if not self._start(block, data):
                return
        if self._body is not None and data:
            self._follow(self._body.feed(data))

    def _start(self, block: bytes, data: bytes) -> bool:
        """Begin an exchange. False where nothing of `data` is left to be followed."""
        heads = self._handler.known_heads
        known = heads.get(block)
        if known is None:
            request, body = accept_request(block)
            known = KnownHead(request)
            if not request.framing.chunked:
                if len(heads) >= _KNOWN_HEADS:
                    heads.clear()
                heads[block] = known
        else:
            body = None
        self._known = known
        self._answering = True
        framing = known.request.framing
        if not framing.chunked and (framing.length or 0) <= len(data):
            length = framing.length or 0
            self._waiting += data[length:]
            self._request_ended = True
            exchange = self._handler.whole(self, known, data[:length])
            if self._answering:
                self._exchange = exchange
            return False
        if body is None:
            _, body = accept_request(block)
        self._body = body
        self._request_ended = False
        if known.request.head.value(b"expect") is not None:
            self.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._exchange = self._handler.begin(self, known)
        return True

    def _follow(self, step: Step) -> None:
        if step.ended:
            self._body = None
            self._request_ended = True
            self._waiting += step.rest
        if self._exchange is not None:
            self._exchange.body(step)

    # --- answers

    def write(self, data: bytes) -> None:
        """Send bytes of the answer."""
        if self._transport is not None:
            self._transport.write(data)

    def end(self, *, keep_alive: bool) -> None:
        """The answer is complete."""
        self._exchange = None
        self._answering = False
        transport = self._transport
        if transport is None:
            return
        known = self._known
        if not keep_alive or not self._request_ended or known is None:
            transport.close()
            return
        if not known.request.head.keeps_alive:
            transport.close()
            return
        if self._waiting:
            data, self._waiting = self._waiting, b""
            transport.resume_reading()
            asyncio.get_running_loop().call_soon(self.data_received, data)

    def abort(self) -> None:
        """Break the connection off: the answer has no end."""
        self._exchange = None
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self, pause: bool) -> None:
        """Let the client wait with more of its body."""
        if self._transport is not None:
            if pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    @property
    def peer(self) -> str:
        """The client's address."""
        name = self._transport.get_extra_info("peername") if self._transport else None
        return str(name[0]) if isinstance(name, tuple) else ""

    @property
    def is_open(self) -> bool:
        """Whether the client is still there."""
        return self._transport is not None and not self._transport.is_closing()

    def _watch(self) -> None:
        """Close a connection on which the client has sent nothing for too long."""
        if self._transport is None:
            return
        idle = time.monotonic() - self._last_input
        if idle > CLIENT_IDLE_S and not (self._answering and self._request_ended):
            self._transport.abort()
            return
        loop = asyncio.get_running_loop()
        self._deadline = loop.call_later(max(1.0, CLIENT_IDLE_S - idle + 1), self._watch)


# --- upstream ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an upstream listens."""

    host: str
    port: int
    tls: bool

    @property
    def authority(self) -> str:
        """The value of `Host`: the port only where it is not the usual one."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"


class Answer(Protocol):
    """Who takes an upstream's answer."""

    def head(self, head: ResponseHead, raw: bytes) -> None:
        """The head came; `raw` is its block with the blank line."""

    def step(self, step: Step) -> None:
        """More of the body came; `step.ended` with its end."""

    def failed(self, error: Exception, answered: bool) -> None:
        """The upstream broke off, before or after it began to answer."""

    def upstream_is_slow(self, slow: bool) -> None:
        """The upstream reads slower than it is written to."""


class UpstreamConnection(asyncio.Protocol):
    """One connection to an upstream: one request after the other, never two at once."""

    def __init__(self, pool: "Pool", origin: Origin) -> None:
        self._pool = pool
        self.origin = origin
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._method = b""
        self._heads = HeadReader()
        self._head: ResponseHead | None = None
        self._body: BodyReader | None = None
        self.idle_since = 0.0

    # --- from asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(HIGH_WATER)

    def connection_lost(self, exc: Exception | None) -> None:
        """The upstream closed, or broke off."""
        self._transport = None
        self._pool.forget(self)
        answer = self._answer
        if answer is None:
            return
        if self._body is not None and self._body.end_of_connection() and exc is None:
            self._answer = None
            answer.step(Step(b"", ended=True))
            return
        self._fail(exc or ConnectionResetError("the upstream closed the connection"))

    def pause_writing(self) -> None:
        """The upstream reads slower than it is written to."""
        if self._answer is not None:
            self._answer.upstream_is_slow(True)

    def resume_writing(self) -> None:
        """The upstream has caught up."""
        if self._answer is not None:
            self._answer.upstream_is_slow(False)

    def data_received(self, data: bytes) -> None:
        """More of an answer."""
        if self._answer is None:
            self.close()  # nobody asked
            return
        try:
            self._take(data)
        except BadMessage as error:
            self._fail(error)

    # --- answers

    def _take(self, data: bytes) -> None:
        while self._body is None:
            found = self._heads.feed(data)
            if found is None:
                return
            block, data = found
            head, body = accept_response(block, self._method)
            answer = self._answer
            if answer is None:
                return
            if 100 <= head.status < 200 and head.status != 101:
                continue  # an interim answer says nothing that anyone waits for
            self._head = head
            answer.head(head, block + b"\r\n\r\n")
            if not head.framing.has_body:
                self._finish(Step(b"", ended=True, rest=data))
                return
            self._body = body
        if data:
            step = self._body.feed(data)
            if step.ended:
                self._finish(step)
            elif self._answer is not None:
                self._answer.step(step)

    def _finish(self, step: Step) -> None:
        answer, head = self._answer, self._head
        self._answer = self._body = self._head = None
        reusable = (
            head is not None
            and head.head.keeps_alive
            and not head.framing.until_close
            and not step.rest
            and head.status != 101
        )
        if reusable:
            self._pool.give_back(self)
        else:
            self.close()
        if answer is not None:
            answer.step(step)

    def _fail(self, error: Exception) -> None:
        answer, self._answer = self._answer, None
        answered = self._head is not None
        self.close()
        if answer is not None:
            answer.failed(error, answered)

    # --- requests

    def ask(self, answer: Answer, method: bytes, data: bytes) -> None:
        """Send the beginning of a request; what comes back goes to `answer`."""
        self._answer, self._method = answer, method
        self._heads, self._body, self._head = HeadReader(), None, None
        self.write(data)

    def write(self, data: bytes) -> None:
        """Send more of the request."""
        if self._transport is not None:
            self._transport.write(data)

    def leave(self) -> None:
        """Nobody waits for the answer any more: break off."""
        self._answer = None
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close in good order."""
        if self._transport is not None:
            self._transport.close()

    def pause_reading(self, pause: bool) -> None:
        """Let the upstream wait with more of its answer."""
        if self._transport is not None and not self._transport.is_closing():
            if pause:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    @property
    def is_open(self) -> bool:
        """Whether it can be asked."""
        return self._transport is not None and not self._transport.is_closing()


@dataclass(slots=True)
class Pool:
    """Upstream connections that wait to be used again."""

    tls: ssl.SSLContext | None = None
    _idle: dict[Origin, list[UpstreamConnection]] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def connect(
        self, origin: Origin, then: Callable[[UpstreamConnection | Exception], None]
    ) -> None:
        """Call `then` with a connection, at once where one is idle, or with why there is none."""
        idle = self._idle.get(origin)
        while idle:
            connection = idle.pop()
            if connection.is_open and time.monotonic() - connection.idle_since < UPSTREAM_IDLE_S:
                then(connection)
                return
            connection.close()
        task = asyncio.get_running_loop().create_task(self._open(origin, then))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _open(
        self, origin: Origin, then: Callable[[UpstreamConnection | Exception], None]
    ) -> None:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, connection = await loop.create_connection(
                    lambda: UpstreamConnection(self, origin),
                    origin.host,
                    origin.port,
                    ssl=self._context() if origin.tls else None,
                )
        except OSError as error:  # a time-out is one
            then(error)
            return
        then(connection)

    def _context(self) -> ssl.SSLContext:
        if self.tls is None:
            self.tls = ssl.create_default_context()
        return self.tls

    def give_back(self, connection: UpstreamConnection) -> None:
        """A connection whose answer ended well."""
        connection.idle_since = time.monotonic()
        self._idle.setdefault(connection.origin, []).append(connection)

    def forget(self, connection: UpstreamConnection) -> None:
        """A connection that was closed."""
        idle = self._idle.get(connection.origin)
        if idle:
            with contextlib.suppress(ValueError):
                idle.remove(connection)

    def close(self) -> None:
        """Close all that are idle."""
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()
