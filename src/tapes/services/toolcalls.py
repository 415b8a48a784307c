"""Calling a tool: the request to its service, and its answer as a result for the agent.

Rule 1: arguments are judged before the service is asked. They fill the body, or the places that
        the tool declares, and nothing else: no header, no other path, no other host.
Rule 2: a caller's end-to-end headers go with the call; what belongs to the caller's own exchange
        with the host (its validators, ranges, codings, digests) does not.
Rule 3: whatever comes of it is a result. A service that fails makes a failed result, in words that
        name the service and the tool.
Rule 4: a service may tell how far it is. Where the agent asked for that, an event stream is
        accepted as the answer: `progress` events, then one `result`.

Knows nothing of MCP's messages.
"""

import asyncio
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

from tapes.errors import BrokenAnswer, Busy, TapesError, TooSlow, Unreachable
from tapes.forwarding import Answer, Headers, forwarded, sent_on
from tapes.request_ids import REQUEST_ID, request_id_of
from tapes.services.admission import Service
from tapes.services.calling import SERVICE_HEADER, TIMEOUT_HEADER, Caller
from tapes.services.spelling import text_of
from tapes.services.tools import MAX_ANSWER, Call, Tool, ToolResult, call_of, failure, result_of
from tapes.wire import Events, decoded

CALL_S = 30.0
_NOT_PASSED_ON = frozenset(
    {
        b"accept",
        b"accept-encoding",
        b"content-encoding",
        b"content-length",
        b"content-md5",
        b"content-type",
        b"digest",
        b"if-match",
        b"if-modified-since",
        b"if-none-match",
        b"if-range",
        b"if-unmodified-since",
        b"range",
        b"te",
        REQUEST_ID,
        SERVICE_HEADER,
        TIMEOUT_HEADER,
    }
)
_EVENTS = b"text/event-stream"
_MAX_PIECES = 100_000
# How far a call is: so much, of how much where that is known, and a word on it.
Progress = Callable[[float, float | None, str | None], Awaitable[None]]


async def call(
    caller: Caller,
    service: Service,
    tool: Tool,
    arguments: object,
    *,
    headers: Iterable[tuple[bytes, bytes]],
    peer: str,
    host: bytes,
    scheme: str,
    progress: Progress | None = None,
    limit_s: float = CALL_S,
) -> ToolResult:
    """Call a tool. Raises BadArguments, and nothing else (rules 1, 3)."""
    asked = call_of(tool, arguments)
    given = list(headers)
    sent = [
        (name, value)
        for name, value in caller.without_ours(sent_on(given, trailers=False))
        if name not in _NOT_PASSED_ON
    ]
    accepted = b"application/json" + (b", " + _EVENTS if progress is not None else b"")
    own: Headers = [
        (b"accept", accepted),
        *([(b"content-type", b"application/json")] if asked.body is not None else []),
        *forwarded(peer, host, scheme),
        (SERVICE_HEADER, service.name.encode()),
        (REQUEST_ID, request_id_of(given)),
        (TIMEOUT_HEADER, b"%d" % (limit_s * 1000)),
    ]
    result = await _result(caller, service, tool, asked, [*sent, *own], progress, limit_s)
    outcome = "error" if result.is_error else "done"
    caller.traffic_of(service.name).calls[tool.full_name, outcome] += 1
    return result


async def _result(
    caller: Caller,
    service: Service,
    tool: Tool,
    asked: Call,
    headers: Headers,
    progress: Progress | None,
    limit_s: float,
) -> ToolResult:
    target = f"{asked.path}?{asked.query}" if asked.query else asked.path
    try:
        async with (
            asyncio.timeout(limit_s),
            caller.ask(
                service, asked.method, target.encode(), headers, body=asked.body, silence_s=limit_s
            ) as answer,
        ):
            kind = dict(answer.headers).get(b"content-type", b"").lower()
            if progress is not None and answer.status == 200 and kind.startswith(_EVENTS):
                return await _followed(tool, answer, progress)
            body = await answer.body(MAX_ANSWER)
            if body is None:
                return failure(tool, f"the answer has more than {MAX_ANSWER:,} bytes")
            return result_of(tool, answer.status, _undone(answer, body), answer.reason)
    except TimeoutError:
        return failure(tool, f"there was no whole answer within {limit_s:g} s")
    except (Busy, Unreachable, TooSlow, BrokenAnswer) as error:
        return failure(tool, error.message)


def _undone(answer: Answer, body: bytes) -> bytes:
    """A body without its content codings: who is not told which ones he may use may use any."""
    coding = b", ".join(value for name, value in answer.headers if name == b"content-encoding")
    if not coding or not body:
        return body
    try:
        found = decoded(body, coding.decode("latin-1"), MAX_ANSWER)
    except TapesError as error:
        raise BrokenAnswer(f"the answer cannot be read: {error.message}") from None
    if not found.whole:
        raise BrokenAnswer("the answer cannot be read: what is coded there was cut short")
    return found.data


# --- rule 4 -----------------------------------------------------------------------------------


async def _followed(tool: Tool, answer: Answer, progress: Progress) -> ToolResult:
    """The result at the end of an event stream, its progress told on the way."""
    async for name, data in _events(answer):
        if name == "progress":
            told = _progress_of(data)
            if told is not None:
                await progress(*told)
        elif name == "result":
            return result_of(tool, 200, data)
        elif name == "error":
            return failure(
                tool, f"the answer is an error: {data[:4096].decode('utf-8', 'replace')}"
            )
    return failure(tool, "the event stream ended without a result")


async def _events(answer: Answer) -> AsyncIterator[tuple[str, bytes]]:
    framer, size, count = Events(), 0, 0
    while piece := await answer.piece():
        size, count = size + len(piece), count + 1
        if size > MAX_ANSWER or count > _MAX_PIECES:
            raise BrokenAnswer(f"the answer has more than {MAX_ANSWER:,} bytes, or too many pieces")
        for frame in framer.feed(piece):
            yield frame.event or "message", frame.text.encode("utf-8", "replace")


def _progress_of(data: bytes) -> tuple[float, float | None, str | None] | None:
    """The progress in an event, or None where it is none."""
    try:
        told = json.loads(text_of(data))
        done, total, message = told["progress"], told.get("total"), told.get("message")
        numbers = float(done), None if total is None else float(total)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None
    # What JSON cannot say would break off the whole answer to the agent.
    if not isinstance(message, str | None) or not all(math.isfinite(n or 0) for n in numbers):
        return None
    return *numbers, message
