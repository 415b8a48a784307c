"""Request, Response, Exchange: frozen values and their one JSON form.

Rule 1: the JSON form gives the same bytes back, or it is not used for them: JSON bodies are
        shown as JSON where a usual writer reproduces them exactly, else as text where they are
        UTF-8, else as base64.
Rule 2: what was sent in pieces is kept in pieces, each with its time.
Rule 3: a row names its schema version and the canonicalizer that made its key. A row without a
        version is one of the JSONL document's own (`hash`, `request`, `response`).

Knows nothing of keys, tapes or HTTP clients.  Pure.
"""

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tapes.errors import DamagedTape, NewerTape, as_typed
from tapes.jsontext import MAX_DEPTH, Json, deeper_than, value_of_compact

SCHEMA_VERSION = 1

Headers = tuple[tuple[str, str], ...]
PutBlob = Callable[[bytes], str | None]
GetBlob = Callable[[str], bytes]
# `exchange_of` or `answer_of`: from a row, the tape's path, the place and its bodies.
ReadRow = Callable[[Json, str, object, GetBlob | None], "Exchange"]


class State(StrEnum):
    """How an exchange ended. Only a complete one answers."""

    COMPLETE = "complete"
    ABORTED_BY_CLIENT = "aborted_by_client"
    UPSTREAM_ERROR = "upstream_error"


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request as it was sent. `headers` keep order, case and repetition (latin-1)."""

    method: str
    url: str
    headers: Headers = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a body that came together; `at` is in seconds since the request was sent."""

    at: float
    data: bytes


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response: the body in the pieces in which it came, content coding left on."""

    status: int
    headers: Headers = ()
    pieces: tuple[Piece, ...] = ()
    reason: str = ""

    @property
    def body(self) -> bytes:
        """All pieces together."""
        return b"".join(piece.data for piece in self.pieces)


# What a piece takes in memory beside its bytes: measured. A limit that counted bytes alone would be
# passed many times over by pieces of one byte.
OF_A_PIECE = 128


@dataclass(frozen=True, slots=True)
class Exchange:
    """One request and its response, under the key that finds it.

    `request` and `response` are either plain JSON (a call with dicts) or Request and Response (a
    call over HTTP). `request` is None where a store keeps answers alone.
    """

    key: str
    canonicalizer: str
    request: Request | Json
    response: Response | Json
    sample: int = 0
    state: State = State.COMPLETE
    recorded_at: str | None = None
    rules: tuple[dict[str, str], ...] = ()
    version: int = SCHEMA_VERSION


def header(headers: Headers, name: str) -> str | None:
    """The first value of a header, whatever the case of its name."""
    wanted, size = name.lower(), len(name)
    for key, value in headers:
        if len(key) == size and key.lower() == wanted:
            return value
    return None


# --- bytes ⇄ JSON -----------------------------------------------------------------------------

# How programs write JSON: a name for the row, and what makes Python write the same.
_COMPACT: dict[str, Any] = {"separators": (",", ":")}
_INDENTED: dict[str, Any] = {"indent": 2}
_BODY_STYLES: dict[str, dict[str, Any]] = {
    "compact": {**_COMPACT, "ensure_ascii": False},
    "spaced": {"ensure_ascii": False},
    "indented": {**_INDENTED, "ensure_ascii": False},
    "compact-ascii": _COMPACT,
    "spaced-ascii": {},
    "indented-ascii": _INDENTED,
}


def bytes_form(data: bytes, put_blob: PutBlob | None = None) -> Json:
    """The JSON form of bytes: {"json": …}, {"text": …}, {"base64": …} or {"blob": hash}."""
    if put_blob is not None:
        blob = put_blob(data)
        if blob is not None:
            return {"blob": blob}
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}
    return _json_form(text) or {"text": text}


def _json_form(text: str) -> Json:
    if not text.startswith(("{", "[")):
        return None
    end = "\n" if text.endswith("\n") else ""
    text = text.removesuffix(end)
    compact = value_of_compact(text)
    if compact is not None:
        return {"json": compact, "end": end} if end else {"json": compact}
    try:
        value = json.loads(text)
        # A row must be readable whatever the reader's stack already holds.
        if deeper_than(value, MAX_DEPTH):
            return None
        for style in _likely_styles(text):
            if json.dumps(value, allow_nan=False, **_BODY_STYLES[style]) == text:
                form = {"json": value, "style": style, "end": end}
                usual = {"style": "compact", "end": ""}
                return {k: v for k, v in form.items() if v != usual.get(k)}
    except (ValueError, RecursionError):
        pass
    return None


def _likely_styles(text: str) -> Iterator[str]:
    for style in ("indented",) if text[1:2] == "\n" else ("compact", "spaced"):
        yield style
        if "\\u" in text:
            yield f"{style}-ascii"


def bytes_of(form: Json, get_blob: GetBlob | None = None) -> bytes:
    """The bytes that a form stands for. Raises ValueError for what is no form."""
    match form:
        case {"json": value, **rest} if rest.get("style", "compact") in _BODY_STYLES:
            style = _BODY_STYLES[str(rest.get("style", "compact"))]
            return (json.dumps(value, **style) + str(rest.get("end", ""))).encode("utf-8")
        case {"text": str(text)}:
            return text.encode("utf-8")
        case {"base64": str(text)}:
            return base64.b64decode(text, validate=True)
        case {"blob": str(blob)} if get_blob is not None:
            return get_blob(blob)
        case _:
            raise ValueError(f"no form of bytes: {str(form)[:80]}")


# --- HTTP ⇄ JSON ------------------------------------------------------------------------------


def request_form(request: Request, put_blob: PutBlob | None = None) -> Json:
    """The JSON form of an HTTP request."""
    form: dict[str, Json] = {"method": request.method, "url": request.url}
    if request.headers:
        form["headers"] = [list(pair) for pair in request.headers]
    if request.body:
        form["body"] = bytes_form(request.body, put_blob)
    return form


def request_of(form: Json, get_blob: GetBlob | None = None) -> Request:
    """The HTTP request of a form. Raises ValueError or KeyError for what is none."""
    return Request(
        method=str(form["method"]),
        url=str(form["url"]),
        headers=_headers_of(form),
        body=bytes_of(form["body"], get_blob) if "body" in form else b"",
    )


def response_form(response: Response, put_blob: PutBlob | None = None) -> Json:
    """The JSON form of an HTTP response: one `body`, or `pieces` of [seconds, bytes]."""
    form: dict[str, Json] = {"status": response.status}
    if response.reason:
        form["reason"] = response.reason
    form["headers"] = [list(pair) for pair in response.headers]
    match response.pieces:
        case ():
            pass
        case (piece,):
            form["at"] = piece.at
            form["body"] = bytes_form(piece.data, put_blob)
        case pieces:
            form["pieces"] = [[p.at, _piece_form(p.data, put_blob)] for p in pieces]
    return form


def _piece_form(data: bytes, put_blob: PutBlob | None) -> Json:
    """As `bytes_form`, with text as a plain string: most pieces are events, one a line."""
    blob = None if put_blob is None else put_blob(data)
    if blob is not None:
        return {"blob": blob}
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def response_of(form: Json, get_blob: GetBlob | None = None) -> Response:
    """The HTTP response of a form. Raises ValueError or KeyError for what is none."""
    if "body" in form:
        pieces: tuple[Piece, ...] = (Piece(float(form["at"]), bytes_of(form["body"], get_blob)),)
    else:
        pieces = tuple(
            Piece(
                float(at),
                data.encode("utf-8") if isinstance(data, str) else bytes_of(data, get_blob),
            )
            for at, data in form.get("pieces", ())
        )
    return Response(
        status=int(form["status"]),
        headers=_headers_of(form),
        pieces=pieces,
        reason=str(form.get("reason", "")),
    )


def _headers_of(form: Json) -> Headers:
    return tuple((str(name), str(value)) for name, value in form.get("headers", ()))


# --- rows -------------------------------------------------------------------------------------


def row_of(exchange: Exchange, put_blob: PutBlob | None = None) -> dict[str, Json]:
    """The row of an exchange. `hash`, `v` and `state` come first: an index finds them by place."""
    row: dict[str, Json] = {"hash": exchange.key, "v": exchange.version or SCHEMA_VERSION}
    if exchange.state is not State.COMPLETE:
        row["state"] = str(exchange.state)
    row["canonicalizer"] = exchange.canonicalizer
    if exchange.sample:
        row["sample"] = exchange.sample
    if exchange.recorded_at:
        row["recorded_at"] = exchange.recorded_at
    if exchange.rules:
        row["rules"] = list(exchange.rules)
    row["request"] = (
        request_form(exchange.request, put_blob)
        if isinstance(exchange.request, Request)
        else exchange.request
    )
    row["response"] = (
        response_form(exchange.response, put_blob)
        if isinstance(exchange.response, Response)
        else exchange.response
    )
    return row


def exchange_of(row: Json, path: str, place: object, get_blob: GetBlob | None = None) -> Exchange:
    """The exchange of a row that lies on the tape `path` at `place` ("line 3", once it is shown).

    Raises DamagedTape or NewerTape, both naming path and place.
    """
    try:
        version = int(row.get("v", 0))
        if version > SCHEMA_VERSION:
            raise newer(path, place, version)
        # A row without a version is the JSONL document's, keyed by its own rule.
        canonicalizer = str(row["canonicalizer"]) if version else "tape/1"
        request, response, when = row["request"], row["response"], row.get("recorded_at")
        if canonicalizer.startswith("http/"):
            request = None if request is None else request_of(request, get_blob)
            response = response_of(response, get_blob)
        return Exchange(
            key=str(row["hash"]),
            canonicalizer=canonicalizer,
            request=request,
            response=response,
            sample=int(row.get("sample", 0)),
            state=State(row.get("state", "complete")),
            recorded_at=when if isinstance(when, str) else None,
            rules=tuple(row.get("rules", ())),
            version=version,
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise damaged(path, place, f"the row is not an exchange ({error!r})") from error


def answer_of(row: Json, path: str, place: object, get_blob: GetBlob | None = None) -> Exchange:
    """As `exchange_of`, without the request: reading that costs as much as the answer."""
    return exchange_of({**row, "request": None}, path, place, get_blob)


def newer(path: str, place: object, version: object) -> NewerTape:
    """The error for a row of a later schema."""
    return NewerTape(
        f"{path}, {place}: schema version {version}; this program knows up to {SCHEMA_VERSION}",
        "upgrade with: pip install --upgrade tapes-py",
    )


def damaged(path: str, place: object, what: str) -> DamagedTape:
    """The error for a broken place on a tape."""
    return DamagedTape(
        f"damaged tape: {path}, {place}: {what}",
        f"to see all damage: tapes tape verify {as_typed(path)}; to set it aside: add --mend",
    )
