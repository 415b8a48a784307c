"""What another tool's form cannot say about an exchange, beside it in the same file.

Rule 1: tools that do not know a supplement pass over it; ours gets the exchange back whole: pieces
        with their times, the bytes as they came over the wire, headers in their order.
Rule 2: a supplement helps only while it fits. Whoever reads one writes the exchange again and
        compares: where somebody edited the visible part, the visible part holds.

Knows nothing of formats.  Pure.
"""

import base64
from dataclasses import replace

from tapes.exchange import Exchange, Headers, Piece, Request, Response
from tapes.interchange.foreign import Found
from tapes.jsontext import Json

SET_ASIDE = "it was edited since it was exported: what was kept beside it is set aside"


def supplement(exchange: Exchange, seen_by_others: Found) -> dict[str, Json]:
    """What a reader of `seen_by_others` would not get back of the exchange; {} for nothing."""
    request, response = exchange.request, exchange.response
    if not isinstance(request, Request) or not isinstance(response, Response):
        raise TypeError("only HTTP exchanges have a supplement")
    beside: dict[str, Json] = {}
    if exchange.sample:
        beside["sample"] = exchange.sample
    if exchange.recorded_at != seen_by_others.recorded_at:
        beside["recorded_at"] = exchange.recorded_at
    if request.headers != seen_by_others.request.headers:
        beside["request_headers"] = _pairs(request.headers)
    if response.headers != seen_by_others.response.headers:
        beside["headers"] = _pairs(response.headers)
    if response.body != seen_by_others.response.body:
        beside["body"] = base64.b64encode(response.body).decode("ascii")
    if response.pieces != seen_by_others.response.pieces:
        beside["pieces"] = [[piece.at, len(piece.data)] for piece in response.pieces]
    return beside


def with_supplement(found: Found, beside: object) -> Found | None:
    """The exchange as it was before it was written; None for what is no supplement of it."""
    if not isinstance(beside, dict):
        return None
    try:
        shown = found.response
        headers = _headers(beside["headers"]) if "headers" in beside else shown.headers
        body = base64.b64decode(beside["body"], validate=True) if "body" in beside else shown.body
        pieces = _cut(body, beside["pieces"]) if "pieces" in beside else shown.pieces
        if "body" in beside and "pieces" not in beside:
            pieces = (Piece(shown.pieces[0].at if shown.pieces else 0.0, body),)
        request = found.request
        if "request_headers" in beside:
            request = replace(request, headers=_headers(beside["request_headers"]))
        return replace(
            found,
            request=request,
            response=replace(shown, headers=headers, pieces=pieces),
            recorded_at=beside.get("recorded_at", found.recorded_at),
            sample=int(beside.get("sample", 0)),
        )
    except (KeyError, TypeError, ValueError):
        return None


def _cut(body: bytes, sizes: Json) -> tuple[Piece, ...]:
    pieces, start = list[Piece](), 0
    for at, size in sizes:
        pieces.append(Piece(float(at), body[start : start + int(size)]))
        start += int(size)
    if start != len(body):
        raise ValueError("the pieces are not the body")
    return tuple(pieces)


def _pairs(headers: Headers) -> list[list[str]]:
    return [[name, value] for name, value in headers]


def _headers(pairs: Json) -> Headers:
    return tuple((str(name), str(value)) for name, value in pairs)
