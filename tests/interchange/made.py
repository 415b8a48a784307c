"""Exchanges of any kind, and entries as browsers write them."""

import gzip
import json
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from tapes.canonical import HTTP_1, http_identity, http_text, key_of, sample_key
from tapes.exchange import Exchange, Headers, Piece, Request, Response
from tapes.interchange import har
from tapes.interchange.foreign import Found, Reading, brought
from tapes.redact import Redactor

TEXTS = st.text(st.characters(codec="utf-8"), max_size=60)
TRICKY = st.sampled_from(
    [
        b"", b"\x00", b"caf\xe9", b"\xef\xbb\xbfBOM", b"\r\n\r", b" lead and trail ", b"- a: b",
        b"yes", b"null", b"0x1F", b"2026-01-01", b"'\"`", b"\xc2\x85\xe2\x80\xa8\xe2\x80\xa9",
        b"{\"a\":1,\"a\":2}", b"a" * 500, b"word " * 60, bytes(range(256)), b"\xf0\x9f\x98\x80",
        b"# no comment", b"%TAG", b"---\n...\n", b"<<: *a", b"\x7f\xc2\xa0\xef\xbf\xbd",
    ]
)  # fmt: skip
BODIES = st.one_of(TRICKY, st.binary(max_size=80), TEXTS.map(str.encode))
VALUES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0xFF), max_size=12).map(str.strip)
NAMES = st.sampled_from(["x-a", "X-A", "x-b", "content-type", "Date", "location"])
HEADERS = st.lists(st.tuples(NAMES, VALUES), max_size=5).map(tuple)


@st.composite
def responses(draw: st.DrawFn) -> Response:
    """An answer in one piece or several, plain or coded, its length said or not."""
    body, headers = draw(BODIES), draw(HEADERS)
    if body and draw(st.booleans()):
        body = gzip.compress(body, mtime=0)
        headers = (*headers, ("Content-Encoding", "gzip"))
    if draw(st.booleans()):
        headers = (*headers, ("content-length", str(len(body))))
    reason = draw(st.sampled_from(["", "OK", "Fine by me"]))
    return Response(draw(st.sampled_from([200, 201, 404, 429])), headers, cut(draw, body), reason)


def cut(draw: st.DrawFn, body: bytes) -> tuple[Piece, ...]:
    """The body in pieces with times."""
    places = sorted(draw(st.lists(st.integers(1, max(len(body) - 1, 1)), max_size=3, unique=True)))
    bounds = [0, *(place for place in places if place < len(body)), len(body)]
    parts = [body[low:high] for low, high in pairwise(bounds)]
    at = draw(st.floats(0, 5).map(lambda seconds: round(seconds, 4)))
    return tuple(Piece(round(at + n / 8, 4), part) for n, part in enumerate(parts) if part)


@st.composite
def exchanges(draw: st.DrawFn) -> Exchange:
    """An HTTP exchange under its own key."""
    headers: Headers = draw(st.sampled_from([(), (("accept", "*/*"), ("accept", "a/b"))]))
    request = Request(
        draw(st.sampled_from(["GET", "POST"])),
        "http://127.0.0.1/" + draw(st.sampled_from(["", "a", "v1/x?b=c&d=%20"])),
        (*headers, ("content-type", draw(st.sampled_from(["application/json", "text/plain"])))),
        draw(BODIES),
    )
    identity, _ = http_identity(request)
    key, sample = key_of(http_text(identity)), draw(st.integers(0, 2))
    dates = [None, "2026-03-01T10:20:30.123+00:00"]
    return Exchange(
        key=sample_key(key, sample),
        canonicalizer=HTTP_1,
        request=request,
        response=draw(responses()),
        sample=sample,
        recorded_at=draw(st.sampled_from(dates)),
    )


def one_of_each_key(many: list[Exchange]) -> list[Exchange]:
    """The exchanges without those that another has the key of."""
    return list({exchange.key: exchange for exchange in many}.values())


def same(exchange: Exchange) -> tuple[object, ...]:
    """What has to come back."""
    return exchange.key, exchange.request, exchange.response, exchange.recorded_at


def unredacted(reading: Reading) -> tuple[Exchange, ...]:
    """The exchanges of a reading as they are: these hold no secrets, and headers that we drop."""

    class Keeps(Redactor):
        def request(self, request: Request) -> Request:
            return request

        def response(self, response: Response) -> Response:
            return response

    return brought(reading, Keeps()).exchanges


# --- HTTP archives ----------------------------------------------------------------------------


def entry(
    request: dict[str, Any] | None = None,
    response: dict[str, Any] | None = None,
    **members: Any,
) -> dict[str, Any]:
    """An entry as a browser writes it, some of its members set."""
    return {
        "startedDateTime": "2026-03-01T11:20:30.123+01:00",
        "time": 345.6,
        "request": {
            "method": "GET",
            "url": "https://h/v1/x?a=b#part",
            "httpVersion": "http/2.0",
            "cookies": [],
            "headers": [{"name": ":authority", "value": "h"}, {"name": "accept", "value": "*/*"}],
            "queryString": [],
            "headersSize": -1,
            "bodySize": 0,
            **(request or {}),
        },
        "response": {
            "status": 200,
            "statusText": "",
            "httpVersion": "http/2.0",
            "cookies": [],
            "headers": [],
            "content": {"size": 0, "mimeType": "x-unknown"},
            "redirectURL": "",
            "headersSize": -1,
            "bodySize": -1,
            **(response or {}),
        },
        "cache": {},
        "timings": {"blocked": 5, "dns": -1, "send": 0.5, "wait": 300, "receive": 40.1},
        **members,
    }


def read(*entries: dict[str, Any]) -> Reading:
    log = {"version": "1.2", "creator": {"name": "b", "version": "1"}, "entries": list(entries)}
    return har.read(b"\xef\xbb\xbf" + json.dumps({"log": log}).encode())


def only(reading: Reading) -> Found:
    (found,) = reading.found
    return found


def content(text: str, **members: Any) -> dict[str, Any]:
    return {
        "content": {"size": len(text.encode()), "mimeType": "text/plain", "text": text} | members
    }
