"""The body of a request, read within bounds and decoded.

Rule 1: no more is read than the limit, and no more is decoded, whatever the bytes promise.
Rule 2: a body that was cut short, or does not decode to its end, is refused: half a turn is none.

Knows nothing of what bodies say.
"""

import asyncio
from collections.abc import Callable

from starlette.requests import ClientDisconnect, Request

from tapes.errors import BadEnvelope, OversizeBody, UndecodableBody
from tapes.wire import codings, decoded

# 32 MiB of request, 8 MiB of answer in base64, 4 MiB of everything else.
BODY_LIMIT = 48_933_546
# Larger ones are worked on in a thread, so that the loop goes on.
LARGE = 64 * 1024


async def body_of(request: Request, limit: int, more: Callable[[int], None]) -> bytes:
    """The decoded body.

    Raises OversizeBody, UnsupportedCoding, UndecodableBody, and what `more` raises.
    """
    told = request.headers.get("content-length", "")
    if told.isdecimal() and int(told) > limit:
        raise too_large(limit)
    pieces, size = list[bytes](), 0
    try:
        async for piece in request.stream():
            size += len(piece)
            if size > limit:
                raise too_large(limit)
            more(len(piece))
            pieces.append(piece)
    except ClientDisconnect:
        raise BadEnvelope("the sender left in the middle of the body") from None
    body = b"".join(pieces)
    coding = request.headers.get("content-encoding")
    if not codings(coding):
        return body
    plain = await asyncio.to_thread(_decoded, body, coding, limit)
    more(len(plain))
    return plain


def too_large(limit: int) -> OversizeBody:
    """The error for a body beyond the limit."""
    return OversizeBody(f"a body may have {limit} bytes here", "send less at a time")


def _decoded(body: bytes, coding: str | None, limit: int) -> bytes:
    plain = decoded(body, coding, limit)
    if not plain.whole:
        raise UndecodableBody(f"the body is not {coding} to its end")
    return plain.data
