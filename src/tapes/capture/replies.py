"""A recorded response → the bytes that answer a client: head, framing and pieces.

Rule 1: each recorded piece is one chunk where the answer is chunked, so its boundaries are kept.
Rule 2: an answer that was recorded without framing (HTTP/2, or ended by closing) gets chunks.
Rule 3: lines keep their place, framing included, so that a client sees the head that it saw live.
        `Trailer` alone is left out: what it promises is not on a tape.
Rule 4: no recorded text can end a header line, no empty piece can end the body.

Pure.
"""

import re
from dataclasses import dataclass

from tapes.capture.http1 import RequestHead
from tapes.exchange import Response, header

_WITHOUT_BODY = frozenset({204, 304})
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole answer: its bytes, each with its time, and whether the connection stays open."""

    timed: tuple[tuple[float, bytes], ...]
    keeps_alive: bool

    @property
    def data(self) -> bytes:
        """All bytes at once."""
        return b"".join(data for _, data in self.timed)


def reply_of(response: Response, request: RequestHead) -> Reply:
    """The answer to a request, from a recorded response."""
    has_body = request.method != b"HEAD" and response.status not in _WITHOUT_BODY
    length = header(response.headers, "content-length")
    chunked = has_body and (
        length is None or header(response.headers, "transfer-encoding") is not None
    )
    chunks = chunked and not request.is_http_10
    lines = [f"HTTP/1.1 {response.status} {response.reason}"]
    for name, value in response.headers:
        match name.lower():
            case "connection" | "keep-alive" | "trailer":
                pass  # trailers are not kept, so none are promised
            case "transfer-encoding":
                if chunks:
                    lines.append(f"{name}: chunked")
                    chunks = False  # said once
            case "content-length":
                if has_body and not chunked:
                    lines.append(f"{name}: {len(response.body)}")
                elif not has_body and response.status != 204:
                    lines.append(f"{name}: {value}")
            case _:
                lines.append(f"{name}: {value}")
    if chunks:
        lines.append("transfer-encoding: chunked")
    if request.is_http_10:
        lines.append("connection: close")
    text = "\r\n".join(_CONTROL.sub(" ", line) for line in lines)
    head = text.encode("latin-1", "replace") + b"\r\n\r\n"
    pieces = [p for p in response.pieces if p.data] if has_body else []
    timed = [(p.at, p.data) for p in pieces]
    if chunked and not request.is_http_10:
        timed = [(at, b"%x\r\n%b\r\n" % (len(data), data)) for at, data in timed]
        timed.append((pieces[-1].at if pieces else 0.0, b"0\r\n\r\n"))
    begins = timed[0][0] if timed else 0.0
    return Reply(((begins, head), *timed), keeps_alive=not request.is_http_10)
