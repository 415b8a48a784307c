"""The HTTP server that our ASGI applications stand in: uvicorn, which adds and loses nothing.

Rule 1: what an application says goes out as it is; a `Date` is added where it says none.
Rule 2: who asked is who connected; no header may say otherwise.
Rule 3: the query of a target that ends in a bare `?` is as empty as that of one without. The
        extensions of such a request have `BARE_QUERY`.
Rule 4: an application that cannot end an answer breaks it off (`break_off`) and says why itself;
        the server does not call that an error of the application.
Rule 5: HTTP/1.1 is all that is spoken. A request that offers to go on in another protocol is a
        request like any other, with its body; what stands behind a body is no header of it.
Rule 6: a head is at most `HEAD_LIMIT` bytes and `HEADERS_LIMIT` lines: what is larger is refused
        before anybody has it whole, for whoever sends it need not have a token. Who leaves a head
        unfinished for `HEAD_S`, or sends nothing of a body for `BODY_S`, is let go.
Rule 7: an answer that takes longer than the server's patience at the end is broken off too.

Knows nothing of what is served. Sockets, signals and the end are somebody else's business.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import uvicorn

from tapes.dated import App, dated

BARE_QUERY = "tapes.bare_query"
_BREAK_OFF = "tapes.break_off"
# As much as the relay lets pass.
HEAD_LIMIT = 64 * 1024
HEADERS_LIMIT = 256
# As long as the relay waits.
HEAD_S = 60.0
BODY_S = 120.0


def break_off(scope: Mapping[str, Any]) -> bool:
    """Close the connection of a request whose answer has begun and has no end (rule 4).

    Under another server this does nothing, and says so: that one closes it when the application
    fails, or returns.
    """
    extension = scope.get("extensions", {}).get(_BREAK_OFF)
    if extension is not None:
        extension["now"]()
    return extension is not None


try:
    import httptools
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:
    # Without this extra there are no services, and whom else a bare `?` would matter to.
    _PROTOCOL: type | str = "h11"
else:

    class _Parser:
        """Reads requests; where httptools stops for another protocol, it goes on (rule 5).

        httptools takes a request with `Upgrade` to end with its head, and its body to be that
        protocol: a POST of Java's own client, which offers HTTP/2 in this way, had no body.
        """

        def __init__(self, connection: "_Connection") -> None:
            self._connection = connection
            self._begin()

        def _begin(self) -> None:
            self._inner = httptools.HttpRequestParser(self._connection)
            with contextlib.suppress(AttributeError):  # as uvicorn does; older ones lack it
                self._inner.set_dangerous_leniencies(lenient_data_after_close=True)
            self.get_http_version = self._inner.get_http_version
            self.get_method = self._inner.get_method
            self.should_keep_alive = self._inner.should_keep_alive

        def should_upgrade(self) -> bool:
            """Never."""
            return False

        @property
        def stops(self) -> bool:
            """Whether the request that is read ends here for httptools."""
            return bool(self._inner.should_upgrade())

        def feed_data(self, data: bytes) -> None:
            """Read on."""
            while True:
                try:
                    self._inner.feed_data(data)
                except httptools.HttpParserUpgrade as stopped:
                    data = data[stopped.args[0] :]
                    self._begin()
                    self._connection.go_on(self._inner)
                    if data:
                        continue
                return

    class _TooLarge(Exception):
        """A head is larger than it may be."""

    class _Connection(HttpToolsProtocol):
        """A client's connection (rules 3, 4, 5, 6)."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._in_head = self._is_told = self._is_too_large = False
            self._read = self._unread = 0  # of a head, and of a line of it that has no end yet
            self._framing: list[bytes] = []
            self._waiting: asyncio.TimerHandle | None = None
            self.parser: Any = _Parser(self)

        def go_on(self, parser: "httptools.HttpRequestParser") -> None:
            """Let a new parser read the body of the request whose head another one read."""
            if self._framing:
                self._is_told = True
                parser.feed_data(b"POST / HTTP/1.1\r\n" + b"".join(self._framing) + b"\r\n")
                self._is_told = False

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._wait(HEAD_S)

        def connection_lost(self, exc: Exception | None) -> None:
            self._wait(None)
            super().connection_lost(exc)

        def _wait(self, seconds: float | None) -> None:
            """Let go of a client who sends nothing for so long; None: it owes nothing."""
            if self._waiting is not None:
                self._waiting.cancel()
            let_go = self._let_go
            self._waiting = None if seconds is None else self.loop.call_later(seconds, let_go)

        def _let_go(self) -> None:
            if self.flow.read_paused:  # it is the application that takes its time
                self._wait(BODY_S)
            else:
                self.transport.close()

        def data_received(self, data: bytes) -> None:
            read = self._read
            super().data_received(data)
            if self._in_head and self._read == read and not self.transport.is_closing():
                self._unread += len(data)
                if self._unread > HEAD_LIMIT:
                    self._is_too_large = True
                    self.send_400_response("")
            else:
                self._unread = 0

        def send_400_response(self, msg: str) -> None:
            if not self._is_too_large:
                super().send_400_response(msg)
                return
            said = b"the head of a request may have %d bytes and %d lines here" % (
                HEAD_LIMIT,
                HEADERS_LIMIT,
            )
            self.transport.write(
                b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n"
                b"content-type: text/plain\r\ncontent-length: %d\r\n\r\n%s" % (len(said), said)
            )
            self.transport.close()

        def on_message_begin(self) -> None:
            if not self._is_told:
                self._in_head, self._framing, self._read = True, [], 0
                self._wait(HEAD_S)
                super().on_message_begin()

        def _take(self, size: int) -> None:
            """So much more of a head was read. What is raised ends the connection."""
            self._read += size
            if self._read > HEAD_LIMIT or len(self.headers) >= HEADERS_LIMIT:
                self._is_too_large = True
                raise _TooLarge

        def on_url(self, url: bytes) -> None:
            if self._in_head:
                self._take(len(url))
                super().on_url(url)

        def on_header(self, name: bytes, value: bytes) -> None:
            if self._in_head:  # not one behind the body, which nobody has judged
                self._take(len(name) + len(value))
                super().on_header(name, value)

        def on_body(self, body: bytes) -> None:
            self._wait(BODY_S)
            super().on_body(body)

        def on_message_complete(self) -> None:
            if not (self.parser.stops and self._framing):
                self._wait(None)
                super().on_message_complete()

        def on_headers_complete(self) -> None:
            if not self._in_head:
                return
            self._in_head = False
            self._wait(BODY_S)
            if self.parser.stops:
                self._framing = [
                    name + b": " + value + b"\r\n"
                    for name, value in self.headers
                    if name in (b"content-length", b"transfer-encoding")
                ]
            extensions: dict[str, dict[object, object]] = {}
            if self.url.endswith(b"?"):
                extensions[BARE_QUERY] = {}
            self.scope["extensions"] = extensions
            super().on_headers_complete()
            cycle = self.cycle  # of this request; one that is sent behind it has another
            if cycle is None or cycle.scope is not self.scope:
                return  # it became something else than a request

            def now() -> None:
                cycle.disconnected = True
                cycle.transport.close()

            extensions[_BREAK_OFF] = {"now": now}

    _PROTOCOL = _Connection


class AsgiServer(uvicorn.Server):
    """A server of an application: `serve` the sockets, until `should_exit` is set."""

    def __init__(self, app: App, *, patience_s: int) -> None:
        super().__init__(
            uvicorn.Config(
                dated(self._broken_off_at_the_end(app)),
                http=_PROTOCOL,
                ws="none",
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=patience_s,
            )
        )

    def _broken_off_at_the_end(self, app: App) -> App:
        async def answered(scope: Any, receive: Any, send: Any) -> None:
            try:
                await app(scope, receive, send)
            except asyncio.CancelledError:
                if not self.should_exit:
                    raise
                break_off(scope)

        return answered

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield
