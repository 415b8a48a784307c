"""Record and replay for aiohttp: covered by `tapes.use`, or explicit with this middleware.

    ClientSession(middlewares=[middleware(cassette)])

Rule 1: while recording and in replay the caller's response is the library's own, fed by its own
        parser with the head and the pieces, framed as chunks where the response is chunked.
Rule 2: the next piece is taken when the caller asks for more, so that a body is whole only when
        the caller had it whole. Of what is no stream, everything is taken at once.
Rule 3: a piece is in the recording before the caller sees it, and the recording is whole and
        durable before the caller sees the end.
"""

import asyncio
import copy
import weakref
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

from aiohttp import ClientRequest, ClientResponse, ClientSession, ConnectionTimeoutError, hdrs
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.payload import Payload
from aiohttp.streams import StreamReader

from tapes import guard, telemetry
from tapes.cassette import Busy, Cassette, Play
from tapes.errors import CassetteError
from tapes.exchange import Headers, Request, Response, State, header
from tapes.guarding.replacing import Function, Replacements
from tapes.lanes import (
    SAMPLE_HEADER,
    Answer,
    Lane,
    answer,
    asked,
    current,
    decided,
    end,
    explicit_lane,
    for_this_call,
    forget,
    outcome,
    raise_any,
    without_sample,
)
from tapes.permit import Permit
from tapes.transports import installing
from tapes.wire import framer

# A body of a known length up to this is no stream.
_SHORT = 64 * 1024
Handler = Callable[[ClientRequest], Awaitable[ClientResponse]]
Middleware = Callable[[ClientRequest, Handler], Awaitable[ClientResponse]]

# What the caller's `session.request(…)` was given: how its response is to be read.
_options: ContextVar[dict[str, Any]] = ContextVar("tapes_aiohttp_options")
# Whether the response that is being waited for keeps its content coding on.
_is_raw: ContextVar[bool] = ContextVar("tapes_aiohttp_raw", default=False)


def middleware(cassette: Cassette, *, pace: str | float = "at once") -> Middleware:
    """A middleware that answers from a cassette, or records; to be the last of its session."""
    lane = explicit_lane(cassette, pace)

    async def answer_or_record(request: ClientRequest, handler: Handler) -> ClientResponse:
        return await _answered(lane, request, handler)

    installing.hold()
    weakref.finalize(answer_or_record, installing.let_go)
    return answer_or_record


def cover(replacements: Replacements) -> None:
    """Have every session ask the lane of the moment, behind its own middlewares."""
    replacements.replace(ClientSession, "_request", _request_entry)
    replacements.replace(ResponseHandler, "set_response_params", _params_entry)


def _request_entry(original: Function) -> Function:
    async def _request(session: Any, method: str, url: Any, **options: Any) -> Any:
        if current() is not None:
            own = options.get("middlewares")
            own = session._middlewares if own is None else own
            options["middlewares"] = (*own, _of_the_moment)
        token = _options.set(options)
        try:
            return await original(session, method, url, **options)
        finally:
            _options.reset(token)

    return _request


async def _of_the_moment(request: ClientRequest, handler: Handler) -> ClientResponse:
    lane = current()
    return await (handler(request) if lane is None else _answered(lane, request, handler))


def _params_entry(original: Function) -> Function:
    def set_response_params(protocol: Any, **options: Any) -> None:
        if _is_raw.get():
            options["auto_decompress"] = False
        original(protocol, **options)

    return set_response_params


# --- the match --------------------------------------------------------------------------------


async def _answered(lane: Lane, request: ClientRequest, handler: Handler) -> ClientResponse:
    """The response to a request: from the tape, or from `handler` while it is recorded."""
    upgrades = "websocket" in request.headers.get(hdrs.UPGRADE, "").lower()
    told = telemetry.tells(request.method, str(request.url), _sent_headers(request))
    host, port = request.url.host, request.url.port
    if guard.passes_by(lane, host, port, upgrades=upgrades, is_telemetry=told):
        with for_this_call(None):
            return await handler(request)
    body = await _whole_body(request)
    headers, sample = without_sample(_sent_headers(request))
    question = Request(request.method, str(request.url), headers, body)
    verdict = decided(lane, question, sample)
    while isinstance(verdict, Busy):
        await asyncio.sleep(verdict.pause)
        verdict = asked(verdict.again)
    if isinstance(verdict, Play):
        return await _play(request, _Played(answer(lane, verdict)))
    request.headers.popall(SAMPLE_HEADER, None)
    try:
        live = await _raw(request, handler)
    except BaseException as error:
        raise_any(await _in_thread(partial(verdict.failed, we_left=_we_left(error))))
        raise
    return await _record(request, _Live(live, verdict))


async def _raw(request: ClientRequest, handler: Handler) -> ClientResponse:
    """Send what was decided, and ask nobody again."""
    token = _is_raw.set(True)
    try:
        with for_this_call(None):
            return await handler(request)
    finally:
        _is_raw.reset(token)


def _we_left(error: BaseException) -> bool:
    """Whether a call that got no answer was left by its caller, after it may have been sent."""
    if isinstance(error, ConnectionTimeoutError):
        return False
    return not isinstance(error, Exception) or isinstance(error, TimeoutError)


async def _whole_body(request: ClientRequest) -> bytes:
    body = request.body
    if not isinstance(body, Payload):
        return bytes(body)
    whole = await body.as_bytes()
    if body.consumed:
        await request.update_body(whole)
    return whole


def _sent_headers(request: ClientRequest) -> Headers:
    # With `compress`, the coding is put on while sending: what was read here is without it.
    left_out = hdrs.CONTENT_ENCODING.lower() if request.compress else ""
    return tuple(pair for pair in request.headers.items() if pair[0].lower() != left_out)


async def _play(request: ClientRequest, source: "_Played") -> ClientResponse:
    connection = _connected(request, source)
    response = await request.send(connection)
    return await _started(response, connection)


async def _record(request: ClientRequest, source: "_Live") -> ClientResponse:
    if source.is_whole or source.is_short:
        await source.fetch()
    # The library's own response once more, to be fed by us.
    response = copy.copy(source.live)
    response._writer = None
    response._cache = {}
    return await _started(response, _connected(request, source))


async def _started(response: ClientResponse, connection: "_Connection") -> ClientResponse:
    await response.start(connection)
    if type(response.content) is StreamReader:
        response.content.__class__ = _Reader
    return response


# --- sources of a response --------------------------------------------------------------------


class _Played:
    """A recorded response."""

    def __init__(self, played: Answer) -> None:
        self._answer = played
        self.head = Response(
            played.response.status, played.response.headers, reason=played.response.reason
        )
        self._framed, self._last = _framing(self.head.headers)
        self._next = 0

    async def more(self) -> bytes:
        """The next piece as it stands on the wire; b"" at the end."""
        pieces = self._answer.response.pieces
        if self._next < len(pieces):
            piece = pieces[self._next]
            wait = self._answer.wait(piece)
            if wait:
                await asyncio.sleep(wait)
            self._next += 1
            return self._framed(piece.data)
        last, self._last = self._last, b""
        return last

    def leave(self) -> None:
        """The caller wants no more."""

    def drop(self) -> None:
        """The caller forgot about it."""


class _Live:
    """A response that comes from the upstream, on its way through a permit."""

    def __init__(self, live: ClientResponse, permit: Permit) -> None:
        self.live = live
        headers = tuple((n.decode("latin-1"), v.decode("latin-1")) for n, v in live.raw_headers)
        self.head = Response(live.status, headers, reason=live.reason or "")
        permit.answered(self.head.status, headers, self.head.reason)
        self._permit = permit
        self._framed, self._last = _framing(headers)
        self._was_asked = False
        self._fetched: deque[bytes] = deque()

    @property
    def is_whole(self) -> bool:
        """Whether the upstream has nothing more to send, and all it sent was taken."""
        return self.live.content.at_eof()

    @property
    def is_short(self) -> bool:
        """Whether the body is no stream, and often not read: a redirect's, an error's, a small one.

        It is fetched before the caller has the head, so that it is whole even if nobody reads it.
        """
        if self.head.status >= 300:
            return True
        length = header(self.head.headers, "content-length") or ""
        is_stream = framer(header(self.head.headers, "content-type")) is not None
        return length.isdigit() and int(length) <= _SHORT and not is_stream

    async def fetch(self) -> None:
        """Take all that comes. What breaks it off is told again to whoever reads."""
        try:
            while data := await self._next():
                self._fetched.append(data)
        except Exception:  # noqa: BLE001  # whatever the library makes of it
            return
        except BaseException:
            self.drop()
            raise

    async def more(self) -> bytes:
        """The next piece as it stands on the wire; b"" at the end."""
        self._was_asked = True
        return self._fetched.popleft() if self._fetched else await self._next()

    async def _next(self) -> bytes:
        piece = await self._piece()
        if piece:
            self._permit.feed(piece)
        data = self._framed(piece) if piece else b""
        if self.is_whole:
            data, self._last = data + self._last, b""
            await self._finish(data)
        return data

    async def _piece(self) -> bytes:
        try:
            while not self.is_whole:
                piece, _ = await self.live.content.readchunk()
                if piece:
                    return piece
            return b""
        except Exception:
            raise_any(await _in_thread(partial(self._permit.abandon, State.UPSTREAM_ERROR)))
            raise

    async def _finish(self, data: bytes) -> None:
        try:
            raise_any(await _in_thread(self._permit.finish))
        except asyncio.CancelledError:
            self._fetched.append(data)  # for a caller who reads on
            raise

    def leave(self) -> None:
        """The caller wants no more. Plain, because closing a response is: no thread helps here."""
        end(self._leaving())

    def drop(self) -> None:
        """The caller forgot about it: there is nobody to raise to."""
        forget(self._leaving())

    def _leaving(self) -> Callable[[], object]:
        """Let go of the upstream; how the permit has to end."""
        content = self.live.content
        if not self._was_asked and content.is_eof() and content.exception() is None:
            self._permit.feed(content.read_nowait())
            return self._permit.finish
        self.live.close()
        return partial(self._permit.abandon, State.ABORTED_BY_CLIENT)


Source = _Played | _Live


def _framing(headers: Headers) -> tuple[Callable[[bytes], bytes], bytes]:
    """How pieces stand on the wire, and what stands at their end."""
    if "chunked" not in (header(headers, "transfer-encoding") or "").lower():
        return bytes, b""
    return lambda piece: b"%x\r\n%b\r\n" % (len(piece), piece), b"0\r\n\r\n"


def _head(head: Response) -> bytes:
    lines = [f"HTTP/1.1 {head.status} {head.reason}"]
    lines += [f"{name}: {value}" for name, value in head.headers]
    return "\r\n".join((*lines, "", "")).encode("latin-1", "replace")


async def _in_thread(keep: Callable[[], object]) -> CassetteError | None:
    """Let a permit end in a worker thread, which goes on if we are cancelled meanwhile."""
    loop = asyncio.get_running_loop()
    return await asyncio.shield(loop.run_in_executor(None, outcome, keep))


# --- the wire ---------------------------------------------------------------------------------


def _connected(request: ClientRequest, source: Source) -> "_Connection":
    """A connection of the library's own kind that a source feeds."""
    feeder = _Feeder(request.loop, source)
    feeder.connection_made(_Transport(source))
    feeder.set_response_params(**_how_to_read(request))
    feeder.data_received(_head(source.head))
    return _Connection(request, feeder)


def _how_to_read(request: ClientRequest) -> dict[str, Any]:
    options, session = _options.get({}), request.session

    def told(name: str) -> Any:
        value = options.get(name)
        return getattr(session, f"_{name}") if value is None else value

    return {
        "timer": request._timer,
        "skip_payload": request.method == hdrs.METH_HEAD,
        "read_until_eof": options.get("read_until_eof", True),
        "auto_decompress": told("auto_decompress"),
        "read_bufsize": told("read_bufsize"),
        "max_line_size": told("max_line_size"),
        "max_field_size": told("max_field_size"),
    }


class _Feeder(ResponseHandler):
    """The library's protocol, fed when its reader asks for more."""

    def __init__(self, loop: asyncio.AbstractEventLoop, source: Source) -> None:
        super().__init__(loop)
        self.source = source

    async def feed(self) -> None:
        """Parse the next piece, or the end."""
        data = await self.source.more()
        if data:
            self.data_received(data)
        else:
            self.connection_lost(None)


class _Reader(StreamReader):
    """The library's reader; an instance becomes one once its protocol is a feeder."""

    __slots__ = ()

    async def _wait(self, func_name: str) -> None:  # noqa: ARG002  # as the library calls it
        feeder = self._protocol
        assert isinstance(feeder, _Feeder)
        if not feeder.connected:
            raise RuntimeError("Connection closed.")
        try:
            with self._timer:
                await feeder.feed()
        except (Exception, CassetteError) as error:
            self.set_exception(error)
            raise


class _Transport(asyncio.Transport):
    """A transport that takes everything and gives nothing: the feeder is fed beside it."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source
        self._is_closing = False

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True
        self._source.leave()

    abort = close

    def write(self, data: object) -> None: ...

    def writelines(self, parts: object) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class _Connection(Connection):
    """A connection that belongs to no pool."""

    def __init__(self, request: ClientRequest, feeder: _Feeder) -> None:
        connector = request.session.connector
        assert connector is not None
        super().__init__(connector, request.connection_key, feeder, request.loop)
        self.feeder = feeder

    def close(self) -> None:
        self._notify_release()
        if self._protocol is not None:
            self._protocol = None
            self.feeder.source.leave()

    release = close

    def __del__(self, *_: object) -> None:
        self.feeder.source.drop()
