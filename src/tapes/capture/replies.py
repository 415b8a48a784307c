"""A recorded response → the bytes that answer a client: head, framing and pieces.

Rule 1: each recorded piece is one chunk where the answer is chunked, so its boundaries are kept.
Rule 2: an answer that was recorded without framing (HTTP/2, or ended by closing) gets chunks.

Pure.
"""

from dataclasses import dataclass

from tapes.capture.http1 import RequestHead
from tapes.exchange import Response, header

_FRAMING = ("transfer-encoding", "content-length", "connection", "keep-alive")
_WITHOUT_BODY = frozenset({204, 304})


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer: all bytes, the same with the time of each piece, and what comes after."""

    data: bytes
    timed: tuple[tuple[float, bytes], ...]
    keeps_alive: bool


def reply_of(response: Response, request: RequestHead) -> Reply:
    """The answer to a request, from a recorded response."""
    with_body = request.method != b"HEAD" and response.status not in _WITHOUT_BODY
    length = header(response.headers, "content-length")
    chunked = with_body and (
        length is None or header(response.headers, "transfer-encoding") is not None
    )
    old = request.head.is_http_10
    lines = [f"HTTP/1.1 {response.status} {response.reason}"]
    lines += [f"{n}: {v}" for n, v in response.headers if n.lower() not in _FRAMING]
    if chunked and not old:
        lines.append("transfer-encoding: chunked")
    elif length is not None and not chunked:
        lines.append(f"content-length: {len(response.body) if with_body else length}")
    if old:
        lines.append("connection: close")
    head = "\r\n".join(lines).encode("latin-1", "replace") + b"\r\n\r\n"
    pieces = response.pieces if with_body else ()
    if chunked and not old:
        timed = [(p.at, b"%x\r\n%b\r\n" % (len(p.data), p.data)) for p in pieces]
        timed.append((pieces[-1].at if pieces else 0.0, b"0\r\n\r\n"))
    else:
        timed = [(p.at, p.data) for p in pieces]
    data = head + b"".join(chunk for _, chunk in timed)
    return Reply(data, ((0.0, head), *timed), keeps_alive=not old)
