"""Upstream connections: one request after the other, never two at once, and a pool of idle ones.

Rule 1: an answer's bytes go to whoever asked as they come (`head`, `step`), framing included.
Rule 2: an answer that breaks off is `failed`, never ended; so is one that is no HTTP.
Rule 3: a connection is used again only after a request that was sent whole and an answer that
        ended as it said it would, with nothing behind it; and not where it was closed meanwhile.
Rule 4: whoever does not want an answer any more closes the connection (`leave`), also one that is
        still being opened.

Knows nothing of clients or tapes.
"""

import asyncio
import select
import socket
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol, cast

from tapes.capture.bodies import Body, Step
from tapes.capture.http1 import BadMessage, HeadReader, ResponseHead, read_response_head

HIGH_WATER = 256 * 1024
CONNECT_S = 15.0
# An upstream connection that nobody used for so long is closed.
IDLE_S = 55.0
# After so long a connection is looked at before it is used again: it may have been closed.
_LOOK_S = 0.5
_IDLE_CONNECTIONS = 128
# An upstream that sends interim answers without end sends no answer.
_INTERIM_LIMIT = 100
_NO_HTTP = "what it sent is no HTTP: if it speaks TLS, its URL begins with https:"


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


class Asker(Protocol):
    """Who takes an upstream's answer."""

    def connected(self, connection: "UpstreamConnection") -> None:
        """Here is the connection to ask on."""

    def interim(self, head: ResponseHead) -> None:
        """An interim answer (1xx) came; the answer is still to come."""

    def head(self, head: ResponseHead) -> None:
        """The head came. Raises BadMessage where it is no answer to what was asked."""

    def step(self, step: Step) -> None:
        """More of the body came; `step.ended` with its end."""

    def failed(self, error: Exception) -> None:
        """There is no connection, or the upstream broke off."""

    def upstream_is_slow(self, slow: bool) -> None:
        """The upstream reads slower (or again as fast) as it is written to."""


class UpstreamConnection(asyncio.Protocol):
    """One connection to an upstream."""

    def __init__(self, pool: "Pool", origin: Origin) -> None:
        self._pool = pool
        self.origin = origin
        self._transport: asyncio.Transport | None = None
        self._asker: Asker | None = None
        self._method = b""
        self._sent_whole = False
        self._is_paused = False
        self._interim = 0
        self._heads = HeadReader(_NO_HTTP)
        self._head: ResponseHead | None = None
        self._body: Body | None = None
        self.idle_since = 0.0

    # --- from asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(HIGH_WATER)
        sock = self._transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, exc: Exception | None) -> None:
        """The upstream closed, or broke off."""
        self._transport = None
        self._pool.forget(self)
        if self._asker is None:
            return
        if self._body is not None and self._body.may_end_here and exc is None:
            self._finish(Step(b"", ended=True))
        else:
            self._fail(exc or ConnectionResetError("the upstream closed the connection"))

    def pause_writing(self) -> None:
        """The upstream reads slower than it is written to."""
        if self._asker is not None:
            self._asker.upstream_is_slow(True)

    def resume_writing(self) -> None:
        """The upstream has caught up."""
        if self._asker is not None:
            self._asker.upstream_is_slow(False)

    def data_received(self, data: bytes) -> None:
        """More of an answer."""
        if self._asker is None:
            self.close()  # nobody asked
            return
        try:
            self._take(self._asker, data)
        except BadMessage as error:
            self._fail(error)

    # --- answers

    def _take(self, asker: Asker, data: bytes) -> None:
        while self._body is None:
            found = self._heads.feed(data)
            if found is None:
                return
            block, data = found
            head = read_response_head(block, self._method)
            if head.is_interim:
                self._interim += 1
                if self._interim > _INTERIM_LIMIT:
                    raise BadMessage("too many interim answers")
                asker.interim(head)
                continue
            self._head = head
            self._body = Body(head.framing)
            asker.head(head)
            if not head.framing.has_body:
                self._finish(Step(b"", ended=True, rest=data))
                return
        if data and self._asker is asker:
            step = self._body.feed(data)
            if step.ended:
                self._finish(step)
            else:
                asker.step(step)

    def _finish(self, step: Step) -> None:
        asker, head = self._asker, self._head
        self._asker = self._body = self._head = None
        reusable = (
            head is not None
            and head.keeps_alive
            and not head.framing.until_close
            and not step.rest
            and self._sent_whole
        )
        if reusable:
            self._pool.give_back(self)
        else:
            self.close()
        if asker is not None:
            asker.step(step)

    def _fail(self, error: Exception) -> None:
        asker, self._asker = self._asker, None
        self._body = self._head = None
        if self._transport is not None:
            self._transport.abort()
        if asker is not None:
            asker.failed(error)

    # --- requests

    def ask(self, asker: Asker, method: bytes, data: bytes, *, whole: bool) -> None:
        """Send the beginning of a request, or all of it; what comes back goes to `asker`.

        A connection that is lost has failed at once: nobody will tell of its end again.
        """
        if self._transport is None:
            asker.failed(ConnectionResetError("the upstream closed the connection"))
            return
        self._asker, self._method, self._sent_whole = asker, method, whole
        self._interim = 0
        self._heads = HeadReader(_NO_HTTP)
        # Whoever asked before may have paused it, for a client that was slow to the end.
        self.pause_reading(False)
        self._send(data)

    def write(self, data: bytes, *, ended: bool) -> None:
        """Send more of the request."""
        self._sent_whole = ended
        self._send(data)

    def _send(self, data: bytes) -> None:
        if data and self._transport is not None:
            self._transport.write(data)

    def leave(self) -> None:
        """Nobody waits for the answer any more: break off."""
        self._asker = None
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close in good order."""
        if self._transport is not None:
            self._transport.close()

    def pause_reading(self, pause: bool) -> None:
        """Let the upstream wait with more of its answer."""
        if pause is self._is_paused or self._transport is None or self._transport.is_closing():
            return
        self._is_paused = pause
        if pause:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    @property
    def is_open(self) -> bool:
        """Whether it can be asked."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_quiet(self) -> bool:
        """Whether nothing came, not even its end, that the loop has not yet seen."""
        sock = None if self._transport is None else self._transport.get_extra_info("socket")
        if sock is None:
            return False
        watch = select.poll()
        watch.register(sock.fileno(), select.POLLIN)
        return not watch.poll(0)


@dataclass(slots=True)
class Pool:
    """Upstream connections that wait to be used again."""

    tls: ssl.SSLContext | None = None
    _idle: dict[Origin, list[UpstreamConnection]] = field(default_factory=dict)
    _opening: set[asyncio.Task[None]] = field(default_factory=set)

    def connect(self, origin: Origin, asker: Asker) -> Callable[[], object]:
        """Give the asker a connection, at once where one is idle, or the reason why there is none.

        The result takes the wish back (rule 4).
        """
        idle = self._idle.get(origin)
        now = time.monotonic()
        while idle:
            connection = idle.pop()
            age = now - connection.idle_since
            if connection.is_open and age < IDLE_S and (age < _LOOK_S or connection.is_quiet):
                asker.connected(connection)
                return _nothing
            connection.close()
        task = asyncio.get_running_loop().create_task(self._open(origin, asker))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)
        return task.cancel

    async def _open(self, origin: Origin, asker: Asker) -> None:
        loop = asyncio.get_running_loop()
        connection = UpstreamConnection(self, origin)
        try:
            async with asyncio.timeout(CONNECT_S):
                await loop.create_connection(
                    lambda: connection,
                    origin.host,
                    origin.port,
                    ssl=await self._context() if origin.tls else None,
                )
        except asyncio.CancelledError:
            connection.close()  # it may have been made at that very moment
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, somebody waits for it
            asker.failed(error)
            return
        if connection.is_open:
            asker.connected(connection)
        else:  # closed before this task had its turn
            asker.failed(ConnectionResetError("it closed the connection at once"))

    async def _context(self) -> ssl.SSLContext:
        if self.tls is None:
            # All certificates of this machine are read: that takes a while.
            self.tls = await asyncio.to_thread(ssl.create_default_context)
        return self.tls

    def give_back(self, connection: UpstreamConnection) -> None:
        """A connection whose answer ended well."""
        connection.idle_since = time.monotonic()
        idle = self._idle.setdefault(connection.origin, [])
        idle.append(connection)
        if len(idle) > _IDLE_CONNECTIONS:
            idle.pop(0).close()

    def forget(self, connection: UpstreamConnection) -> None:
        """A connection that was closed."""
        idle = self._idle.get(connection.origin)
        if idle and connection in idle:
            idle.remove(connection)
        if idle is not None and not idle:
            del self._idle[connection.origin]

    async def watch(self) -> None:
        """Close, for ever, what nobody used for too long."""
        while True:
            await asyncio.sleep(IDLE_S / 4)
            now = time.monotonic()
            for connections in self._idle.values():
                for connection in tuple(connections):
                    if now - connection.idle_since > IDLE_S:
                        connections.remove(connection)
                        connection.close()

    def close(self) -> None:
        """Close all that are idle, and stop what is being opened.

        At once: TLS would wait for the upstream's farewell, longer than the loop may be there.
        """
        for task in self._opening:
            task.cancel()
        for connections in self._idle.values():
            for connection in connections:
                connection.leave()
        self._idle.clear()


def _nothing() -> None:
    """There is nothing to take back."""
