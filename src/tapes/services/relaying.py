"""One proxied request: to the service piece by piece, and its answer back piece by piece.

Rule 1: path and query go on as they were sent. A path that leads out of the service's prefix,
        plainly or escaped, is refused before anybody is asked.
Rule 2: nothing is gathered. A piece goes on when it comes, in both directions, and each side waits
        for the other.
Rule 3: when the client leaves, the service is told by closing; when the service's answer breaks
        off, the client's breaks off too.
Rule 4: what a service answers stands in an origin that it shares with the host. A page of it is
        put in a sandbox, and its type is taken as it is said.

Knows nothing of how services came here.
"""

import asyncio
import logging
import math
import re
from collections.abc import AsyncIterator, Iterable
from typing import NoReturn

from tapes.asgi import BARE_QUERY, break_off
from tapes.errors import BrokenAnswer, Busy, TapesError, TooSlow, Unreachable
from tapes.forwarding import Answer, Body, Headers, forwarded, sent_on
from tapes.request_ids import REQUEST_ID
from tapes.services.admission import Service
from tapes.services.calling import SERVICE_HEADER, Caller, answer_headers
from tapes.services.documented import Documented
from tapes.services.openapi import leads_out
from tapes.services.replying import Message, Receive, Scope, Send, header, reply_error
from tapes.services.traffic import Traffic

log = logging.getLogger(__name__)

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"})
# Types that a browser runs, shows as a page, or guesses at.
_PAGES = (b"text/html", b"text/xml", b"application/xml", b"text/xsl", b"multipart/")
_SANDBOX = (b"content-security-policy", b"sandbox allow-scripts allow-forms allow-downloads")
_NO_GUESS = (b"x-content-type-options", b"nosniff")
_BAD_VALUE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")


# What so many services document is made ready.
_DOCUMENTED = 256


class _BrokenUpload(Exception):
    """The request's body did not come whole, or is larger than it may be."""


# Why, as it is counted.
_CLIENT_LEFT = "client-left"
_CLIENT_SILENT = "client-silent"
_TOO_LARGE = "too-large"


class _Upload:
    """The body of a request as it comes; after its end, the wait for the client's leaving."""

    def __init__(self, first: Message, receive: Receive, traffic: Traffic) -> None:
        self._first = first
        self._receive = receive
        self._traffic = traffic
        self._limit = traffic.limits.request_bytes
        self._size = 0
        self._ended = asyncio.Event()
        self.broke_off: str | None = None
        if not first.get("more_body", False):
            self._ended.set()

    def body(self) -> Body:
        """The body to send on: nothing, what came whole, or what is still coming."""
        if not self._ended.is_set():
            return self._pieces()
        data: bytes = self._first.get("body", b"")
        self._count(data)
        return data or None

    async def _pieces(self) -> AsyncIterator[bytes]:
        message = self._first
        while True:
            data: bytes = message.get("body", b"")
            self._count(data)
            if data:
                yield data
            if not message.get("more_body", False):
                self._ended.set()
                return
            try:
                # Otherwise clients that say nothing would hold the service's slots for ever.
                async with asyncio.timeout(self._traffic.limits.silence_s):
                    message = await self._receive()
            except TimeoutError:
                self._break_off(_CLIENT_SILENT)
            if message["type"] == "http.disconnect":
                self._break_off(_CLIENT_LEFT)

    def _count(self, data: bytes) -> None:
        self._size += len(data)
        self._traffic.bytes_in += len(data)
        if self._limit and self._size > self._limit:
            self._break_off(_TOO_LARGE)

    def _break_off(self, why: str) -> NoReturn:
        self.broke_off = why
        raise _BrokenUpload

    async def client_left(self) -> None:
        """Return when the client leaves after its request's end."""
        await self._ended.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass


class Relaying:
    """The reverse proxy."""

    def __init__(
        self, caller: Caller, *, only_documented: bool = False, sandbox: bool = True
    ) -> None:
        self._caller = caller
        self._only_documented = only_documented
        self._sandbox = sandbox
        self._documented: dict[str, tuple[Service, Documented]] = {}

    async def relay(
        self, service: Service, path: bytes, scope: Scope, receive: Receive, send: Send
    ) -> None:
        """Answer a request for a path below a service's public prefix."""
        refused = self._refusal(service, path, scope)
        if refused is not None:
            await reply_error(send, *refused)
            return
        traffic = self._caller.traffic_of(service.name)
        limit, said = traffic.limits.request_bytes, header(scope, b"content-length")
        if limit and said is not None and said.isdigit() and int(said) > limit:
            traffic.failures[_TOO_LARGE] += 1
            await _reply_too_large(send, service, limit)
            return
        first = await receive()
        if first["type"] == "http.disconnect":
            return
        upload = _Upload(first, receive, traffic)
        await self._watched(_Exchange(self, service, path, scope, send, upload, traffic), upload)

    async def _watched(self, exchange: "_Exchange", upload: _Upload) -> None:
        """Carry an exchange out, unless the client leaves before its end (rule 3)."""
        task = asyncio.current_task()
        assert task is not None
        left = False

        async def watch() -> None:
            nonlocal left
            await upload.client_left()
            if not exchange.ended:
                left = True
                task.cancel()

        watching = asyncio.create_task(watch())
        try:
            await exchange.carry_out()
        except asyncio.CancelledError:
            if not left:
                raise
            task.uncancel()
            exchange.traffic.failures[_CLIENT_LEFT] += 1
        finally:
            watching.cancel()

    def _refusal(self, service: Service, path: bytes, scope: Scope) -> tuple[int, str, str] | None:
        if leads_out(path.decode("latin-1")):
            return 400, "bad_path", "the path has a dot segment, which leads out of the cassette"
        if scope["method"] not in METHODS:
            return 400, "bad_method", "no cassette has this method"
        if _asks_for_websocket(scope):
            what = "WebSockets are not passed on; a stream of server-sent events is"
            return 501, "no_websocket", what
        if (coding := _other_coding(scope["headers"])) is not None:
            return 501, "bad_coding", f"the transfer coding {coding} would be lost on the way"
        if self._only_documented and not self._documents(service).has(scope["method"], path):
            what = f"cassette {service.name} does not document this method and path"
            return 404, "undocumented_path", f"{what}, and only documented ones are passed on"
        return None

    def _documents(self, service: Service) -> Documented:
        """What a service documents, made once for each of its documents."""
        known = self._documented.get(service.name)
        if known is None or known[0] is not service:
            if len(self._documented) >= _DOCUMENTED:  # services come and go
                self._documented.clear()
            known = self._documented[service.name] = (service, Documented(service.operations))
        return known[1]

    # --- used by an exchange

    def request_headers(self, service: Service, scope: Scope) -> Headers:
        """The headers of the request to the service."""
        client = scope.get("client")
        host = header(scope, b"host") or b""
        kept = [
            (name, value)
            for name, value in self._caller.without_ours(sent_on(scope["headers"]))
            if name != SERVICE_HEADER
        ]
        return [
            *kept,
            *forwarded(client[0] if client else "", host, scope.get("scheme", "http")),
            (SERVICE_HEADER, service.name.encode()),
        ]

    def response_headers(self, answer: Answer) -> Headers:
        """The headers of the answer to the client."""
        has_no_body = answer.status in (204, 304)
        kept = [
            (name, value)
            for name, value in answer_headers(answer.headers)
            if not (has_no_body and name == b"content-length")
        ]
        if _BAD_VALUE.search(b"".join([value for _, value in kept])):
            kept = [(name, value) for name, value in kept if not _BAD_VALUE.search(value)]
        if self._sandbox:
            kept += _protection(kept)
        return kept

    @property
    def caller(self) -> Caller:
        """Whoever asks services."""
        return self._caller


class _Exchange:
    """A request on its way to the service, and the answer on its way back."""

    def __init__(
        self,
        relaying: Relaying,
        service: Service,
        path: bytes,
        scope: Scope,
        send: Send,
        upload: _Upload,
        traffic: Traffic,
    ) -> None:
        self._relaying = relaying
        self._service = service
        self._scope = scope
        self._send = send
        self._upload = upload
        self.traffic = traffic
        query = scope["query_string"]
        has_query = query or BARE_QUERY in scope.get("extensions", ())
        local = service.local_prefix.encode() + path[len(service.public_prefix) :]
        self._target = local + b"?" + query if has_query else local
        self._began = False
        self.ended = False

    async def carry_out(self) -> None:
        """Ask, and pass the answer on."""
        service, scope = self._service, self._scope
        headers = self._relaying.request_headers(service, scope)
        try:
            body = self._upload.body()
            async with self._relaying.caller.ask(
                service, scope["method"], self._target, headers, body=body
            ) as answer:
                await self._pass_on(answer)
        except (Busy, Unreachable, TooSlow, BrokenAnswer, _BrokenUpload) as error:
            await self._failed(error)

    async def _pass_on(self, answer: Answer) -> None:
        limit = self.traffic.limits.response_bytes
        if not 200 <= answer.status <= 599:
            await self._error(502, "bad_answer", f"answered {answer.status}, which is no status")
            return
        if (coding := _other_coding(answer.headers)) is not None:
            what = f"answered in the transfer coding {coding}, which would be lost on the way"
            await self._error(502, "bad_answer", what)
            return
        if limit and _length_of(answer.headers) > limit:
            await self._error(502, "answer_too_large", f"answered more than {limit:,} bytes")
            return
        head = self._relaying.response_headers(answer)
        self._began = True
        await self._send({"type": "http.response.start", "status": answer.status, "headers": head})
        size = 0
        while piece := await answer.piece():
            size += len(piece)
            self.traffic.bytes_out += len(piece)
            if limit and size > limit:
                raise BrokenAnswer(f"its answer has more than {limit:,} bytes")
            self.ended = answer.has_ended
            await self._send(
                {"type": "http.response.body", "body": piece, "more_body": not self.ended}
            )
        if not self.ended:
            self.ended = True
            await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    @property
    def _request_id(self) -> str:
        return (header(self._scope, REQUEST_ID) or b"").decode("latin-1")

    async def _failed(self, error: TapesError | _BrokenUpload) -> None:
        if self._upload.broke_off is not None:
            # Whatever else the error is, it comes of that.
            await self._upload_failed(self._upload.broke_off)
            return
        assert isinstance(error, TapesError)
        if self._began:
            self.traffic.failures[error.slug] += 1
            log.warning(
                "cassette %s: %s (request %s)", self._service.name, error.message, self._request_id
            )
            self.ended = True
            break_off(self._scope)  # rule 3
            return
        code = "cassette_timeout" if isinstance(error, TooSlow) else "cassette_unavailable"
        wait: Headers = []
        if isinstance(error, Busy):
            code = "cassette_busy"
            wait = [(b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_s)))]
        await self._error(error.http_status, code, error.message, wait)

    async def _upload_failed(self, why: str) -> None:
        self.ended = True
        self.traffic.failures[why] += 1
        limits = self.traffic.limits
        if self._began:
            break_off(self._scope)
        elif why == _TOO_LARGE:
            await _reply_too_large(self._send, self._service, limits.request_bytes)
        elif why == _CLIENT_SILENT:
            what = f"nothing more of the request came within {limits.silence_s:g} s"
            close = [(b"connection", b"close")]
            await reply_error(self._send, 408, "request_timeout", what, close)

    async def _error(
        self, status: int, code: str, message: str, headers: Headers | None = None
    ) -> None:
        self.ended = True
        text = message if message.startswith("cassette ") else f"{self._service.name}: {message}"
        await reply_error(self._send, status, code, text, headers or ())


async def _reply_too_large(send: Send, service: Service, limit: int) -> None:
    what = f"cassette {service.name} takes at most {limit:,} bytes of a request's body"
    await reply_error(send, 413, "request_too_large", what, [(b"connection", b"close")])


def _asks_for_websocket(scope: Scope) -> bool:
    wanted = (header(scope, b"upgrade") or b"").lower()
    named = (header(scope, b"connection") or b"").lower().split(b",")
    return wanted == b"websocket" and b"upgrade" in (token.strip() for token in named)


def _other_coding(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The transfer coding of a body beside its chunks, which end with this connection."""
    said = b",".join(value for name, value in headers if name == b"transfer-encoding")
    other = [coding.strip() for coding in said.lower().split(b",")]
    return ", ".join(c.decode("latin-1") for c in other if c not in (b"", b"chunked")) or None


def _length_of(headers: Headers) -> int:
    said = next((value for name, value in headers if name == b"content-length"), b"0")
    return int(said) if said.isdigit() else 0


def _protection(headers: Headers) -> Headers:
    """What keeps a service's answer from acting as the host (rule 4)."""
    # Of several types browsers take another than we would: one that is a page is enough.
    said = b",".join(value for name, value in headers if name == b"content-type")
    kinds = [kind.strip().lower() for kind in said.split(b",")]
    added = [] if any(name == _NO_GUESS[0] for name, _ in headers) else [_NO_GUESS]
    return [*added, _SANDBOX] if any(map(_is_page, kinds)) else added


def _is_page(kind: bytes) -> bool:
    return not kind or kind.startswith(_PAGES) or b"+xml" in kind
