"""What recording and replaying mean in the terms of httpx, and of httpx2 which has the same ones.

Rule 1: a response is the library's own, with a stream that yields the pieces as they came, with
        their content coding on; the library decodes them as it does any other.
Rule 2: a piece is in the recording before the caller sees it, and the recording is whole and
        durable before the caller sees the end.
Rule 3: whoever leaves a stream before its end leaves evidence that never answers.

Knows nothing of which of the two libraries it serves.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any, ClassVar

import anyio
import anyio.to_thread

from tapes import guard, telemetry
from tapes.cassette import Busy, Cassette, Play
from tapes.exchange import Headers, Request, State
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
    settle,
    without_sample,
)
from tapes.permit import Permit

# Requests, responses and streams of one of two libraries, which share no types.
Library = Any
Send = Callable[[Any], Any]
SendAsync = Callable[[Any], Awaitable[Any]]


class Family:
    """One of the two libraries, and the streams of its own kind."""

    def __init__(self, library: ModuleType) -> None:
        self.library: Library = library
        sync, both = (library.SyncByteStream,), (library.SyncByteStream, library.AsyncByteStream)
        self._played = _kind(_Played, *sync)
        self._recorded = _kind(_Recorded, *sync)
        self._async_played = _kind(_AsyncPlayed, library.AsyncByteStream)
        self._async_recorded = _kind(_AsyncRecorded, library.AsyncByteStream)
        self._parts = _kind(_Parts, *both)

    # --- the match

    def handle(self, lane: Lane, request: Any, send: Send) -> Any:
        """The response to a request: from the tape, or from `send` while it is recorded."""
        if _passes(lane, request):
            return _uncovered(send, request)
        if not isinstance(request.stream, self.library.ByteStream):
            request.stream = self._parts(list(request.stream))
        question, sample = self._question(request, b"".join(request.stream))
        verdict = settle(lane, question, sample)
        if isinstance(verdict, Play):
            return self._response(answer(lane, verdict), self._played)
        try:
            response = _uncovered(send, self._as_sent(request, sample))
        except BaseException as error:
            end(partial(verdict.failed, we_left=self._we_left(error)))
            raise
        verdict.answered(*_head(response))
        if self._is_read(response):
            verdict.feed(b"".join(response.stream))
            end(verdict.finish)
        else:
            response.stream = self._recorded(response.stream, verdict)
        return response

    async def handle_async(self, lane: Lane, request: Any, send: SendAsync) -> Any:
        """As `handle`, for async transports."""
        if _passes(lane, request):
            return await _uncovered_async(send, request)
        if not isinstance(request.stream, self.library.ByteStream):
            request.stream = self._parts([part async for part in request.stream])
        question, sample = self._question(request, b"".join(request.stream))
        verdict = decided(lane, question, sample)
        while isinstance(verdict, Busy):
            await anyio.sleep(verdict.pause)
            verdict = asked(verdict.again)
        if isinstance(verdict, Play):
            return self._response(answer(lane, verdict), self._async_played)
        try:
            response = await _uncovered_async(send, self._as_sent(request, sample))
        except BaseException as error:
            await _end(partial(verdict.failed, we_left=self._we_left(error)))
            raise
        verdict.answered(*_head(response))
        if self._is_read(response):
            verdict.feed(b"".join(response.stream))
            await _end(verdict.finish)
        else:
            response.stream = self._async_recorded(response.stream, verdict)
        return response

    # --- values of the library ⇄ ours

    def _question(self, request: Any, body: bytes) -> tuple[Request, int | None]:
        url = request.url
        headers, sample = without_sample(_headers(request.headers.raw))
        where = f"{url.scheme}://{url.netloc.decode('ascii')}{url.raw_path.decode('ascii')}"
        return Request(request.method, where, headers, body), sample

    def _as_sent(self, request: Any, sample: int | None) -> Any:
        """The request without the header that was for us; the caller's own object keeps it."""
        if sample is None:
            return request
        headers = request.headers.copy()
        del headers[SAMPLE_HEADER]
        return self.library.Request(
            request.method,
            request.url,
            headers=headers,
            stream=request.stream,
            extensions=request.extensions,
        )

    def _response(self, played: Answer, stream: type) -> Any:
        return self.library.Response(
            status_code=played.response.status,
            headers=[(_bytes(name), _bytes(value)) for name, value in played.response.headers],
            stream=stream(played),
            extensions={
                "http_version": b"HTTP/1.1",
                "reason_phrase": _bytes(played.response.reason),
            },
        )

    def _is_read(self, response: Any) -> bool:
        """Whether a wrapped transport gave its whole body at once, so that nobody will read it."""
        return isinstance(response.stream, self.library.ByteStream)

    def _we_left(self, error: BaseException) -> bool:
        """Whether a call that got no answer was left by its caller, after it may have been sent."""
        library = self.library
        if isinstance(error, library.ConnectTimeout | library.PoolTimeout):
            return False
        return not isinstance(error, Exception) or isinstance(error, library.TimeoutException)

    # --- covering a library

    def cover(self, replacements: Replacements) -> None:
        """Have the library's own transports ask the lane of the moment."""
        replacements.replace(self.library.HTTPTransport, "handle_request", self._sync_entry)
        replacements.replace(
            self.library.AsyncHTTPTransport, "handle_async_request", self._async_entry
        )

    def _sync_entry(self, original: Function) -> Function:
        def handle_request(transport: Any, request: Any) -> Any:
            lane = current()
            if lane is None:
                return original(transport, request)
            return self.handle(lane, request, partial(original, transport))

        return handle_request

    def _async_entry(self, original: Function) -> Function:
        async def handle_async_request(transport: Any, request: Any) -> Any:
            lane = current()
            if lane is None:
                return await original(transport, request)
            return await self.handle_async(lane, request, partial(original, transport))

        return handle_async_request


class ExplicitTransport:
    """Answers from a cassette, or records what `wrapped` answers."""

    family: ClassVar[Family]

    def __init__(
        self, cassette: Cassette, wrapped: Library = None, *, pace: str | float = "at once"
    ) -> None:
        self._lane = explicit_lane(cassette, pace)
        self._wrapped = self.family.library.HTTPTransport() if wrapped is None else wrapped

    def handle_request(self, request: Any) -> Any:
        """The answer to a request. Ends the process (CassetteError) where there is none."""
        return self.family.handle(self._lane, request, self._wrapped.handle_request)

    def close(self) -> None:
        """Close the wrapped transport; the cassette stays open."""
        self._wrapped.close()


class ExplicitAsyncTransport:
    """As `ExplicitTransport`, for async clients."""

    family: ClassVar[Family]

    def __init__(
        self, cassette: Cassette, wrapped: Library = None, *, pace: str | float = "at once"
    ) -> None:
        self._lane = explicit_lane(cassette, pace)
        self._wrapped = self.family.library.AsyncHTTPTransport() if wrapped is None else wrapped

    async def handle_async_request(self, request: Any) -> Any:
        """The answer to a request. Ends the process (CassetteError) where there is none."""
        send = self._wrapped.handle_async_request
        return await self.family.handle_async(self._lane, request, send)

    async def aclose(self) -> None:
        """Close the wrapped transport; the cassette stays open."""
        await self._wrapped.aclose()


def _uncovered(send: Send, request: Any) -> Any:
    """Send what was decided: whatever it goes through may be covered itself, and must not ask."""
    with for_this_call(None):
        return send(request)


async def _uncovered_async(send: SendAsync, request: Any) -> Any:
    with for_this_call(None):
        return await send(request)


def _kind(behaviour: type, *bases: type) -> type:
    return type(behaviour.__name__.strip("_"), (behaviour, *bases), {})


def _passes(lane: Lane, request: Any) -> bool:
    url = request.url
    port = url.port or _PORTS.get(url.scheme)
    upgrades = "websocket" in request.headers.get("upgrade", "").lower()
    told = telemetry.tells(request.method, str(url), _headers(request.headers.raw))
    return guard.passes_by(lane, url.host, port, upgrades=upgrades, is_telemetry=told)


_PORTS = {"http": 80, "https": 443, "ws": 80, "wss": 443}


def _headers(raw: list[tuple[bytes, bytes]]) -> Headers:
    return tuple((name.decode("latin-1"), value.decode("latin-1")) for name, value in raw)


def _head(response: Any) -> tuple[int, Headers, str]:
    reason: bytes = response.extensions.get("reason_phrase", b"")
    return response.status_code, _headers(response.headers.raw), reason.decode("latin-1")


def _bytes(text: str) -> bytes:
    return text.encode("latin-1", "replace")


# --- streams ----------------------------------------------------------------------------------


class _Parts:
    """A request body that was read for its identity, sent in the parts in which it came."""

    def __init__(self, parts: list[bytes]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._parts)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            yield part


class _Played:
    """A recorded body."""

    def __init__(self, played: Answer) -> None:
        self._answer = played

    def __iter__(self) -> Iterator[bytes]:
        for piece in self._answer.response.pieces:
            wait = self._answer.wait(piece)
            if wait:
                time.sleep(wait)
            yield piece.data


class _AsyncPlayed:
    """A recorded body, for async clients."""

    def __init__(self, played: Answer) -> None:
        self._answer = played

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self._answer.response.pieces:
            wait = self._answer.wait(piece)
            if wait:
                await anyio.sleep(wait)
            yield piece.data


class _Recorded:
    """A body that comes from the upstream, on its way through a permit."""

    def __init__(self, stream: Any, permit: Permit) -> None:
        self._stream = stream
        self._permit = permit

    def __iter__(self) -> Iterator[bytes]:
        try:
            for piece in self._stream:
                self._permit.feed(piece)
                yield piece
        except Exception:
            end(partial(self._permit.abandon, State.UPSTREAM_ERROR))
            raise
        except BaseException:
            end(partial(self._permit.abandon, State.ABORTED_BY_CLIENT))
            raise
        end(self._permit.finish)

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            end(partial(self._permit.abandon, State.ABORTED_BY_CLIENT))

    def __del__(self) -> None:
        forget(partial(self._permit.abandon, State.ABORTED_BY_CLIENT))


class _AsyncRecorded:
    """A body that comes from the upstream, on its way through a permit, for async clients.

    No generator: one that is dropped is ended by whoever collects it, where nothing can wait.
    """

    def __init__(self, stream: Any, permit: Permit) -> None:
        self._stream = stream
        self._pieces: AsyncIterator[bytes] | None = None
        self._permit = permit

    def __aiter__(self) -> "_AsyncRecorded":
        return self

    async def __anext__(self) -> bytes:
        if self._pieces is None:
            self._pieces = self._stream.__aiter__()
        try:
            piece = await anext(self._pieces)
        except StopAsyncIteration:
            await _end(self._permit.finish)
            raise
        except Exception:
            await _end(partial(self._permit.abandon, State.UPSTREAM_ERROR))
            raise
        except BaseException:
            await _end(partial(self._permit.abandon, State.ABORTED_BY_CLIENT))
            raise
        self._permit.feed(piece)
        return piece

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            await _end(partial(self._permit.abandon, State.ABORTED_BY_CLIENT))

    def __del__(self) -> None:
        forget(partial(self._permit.abandon, State.ABORTED_BY_CLIENT))


async def _end(keep: Callable[[], object]) -> None:
    """Let a permit end in a worker thread, whatever is being cancelled meanwhile."""
    with anyio.CancelScope(shield=True):
        error = await anyio.to_thread.run_sync(outcome, keep)
    raise_any(error)
