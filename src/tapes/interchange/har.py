"""HTTP archives (HAR 1.2), as browsers and proxies export them.

Rule 1: browsers keep a body decoded, and as text in Unicode whatever its charset was. The bytes
        are made again from what the entry says, and whatever had to be made up is noted.
Rule 2: an entry without an answer, or of what the browser has in itself, is no exchange; one whose
        answer was not saved is left out; all are said. What is no entry is an error with its
        number.
Rule 3: what is written is plain HAR 1.2: text where there is text, base64 elsewhere; what HAR has
        no place for stands in members with an underscore, as its document asks.

Knows nothing of keys, tapes or redaction.  Pure.
"""

import base64
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from http.cookies import CookieError, SimpleCookie
from urllib.parse import parse_qsl, quote_plus, urlsplit

from tapes.errors import ForeignFile
from tapes.exchange import Exchange, Headers, Piece, Request, Response, header
from tapes.interchange.foreign import (
    Found,
    Note,
    Reading,
    Written,
    answering,
    date_of,
    header_text,
    plain_response,
    settled,
    unsayable,
)
from tapes.interchange.supplement import SET_ASIDE, supplement, with_supplement
from tapes.jsontext import Json

_BESIDE = "_tapes"
# Addresses with which a browser asks nobody; those of its extensions are the others.
_IN_BROWSERS = ("about", "blob", "chrome", "data", "devtools", "file", "filesystem", "javascript")
# What an undated entry says, since HAR knows no other word for it.
_NO_DATE = datetime(1970, 1, 1, tzinfo=UTC).isoformat(timespec="milliseconds")


class _NotSaved(Exception):
    """The archive does not hold what the entry is about."""


def read(data: bytes) -> Reading:
    """The exchanges of an archive. Raises ForeignFile naming the entry."""
    found, notes = list[Found](), list[Note]()
    for number, entry in enumerate(_entries(data), 1):
        place = f"entry {number}"
        try:
            reason = _without_answer(entry) or _without_server(entry)
            if reason is not None:
                notes.append(Note(place, reason))
                continue
            one, said = _found(entry, place)
            reason = unsayable(one.request, one.response)
            if reason is not None:
                raise _NotSaved(reason)
        except _NotSaved as error:
            notes.append(Note(place, str(error), left_out=True))
            continue
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ForeignFile(f"{place} is no entry of HAR 1.2 ({error!r})") from error
        found.append(one)
        notes.extend(Note(place, text) for text in said)
    return Reading(tuple(found), tuple(notes))


def _entries(data: bytes) -> list[Json]:
    try:
        content = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ForeignFile(f"the archive is not JSON ({error})") from error
    log = content.get("log") if isinstance(content, dict) else None
    if not isinstance(log, dict) or not isinstance(log.get("entries"), list):
        raise ForeignFile("no HTTP archive: it has no log with a list of entries")
    version = str(log.get("version", "1.1"))
    if not version.startswith("1."):
        raise ForeignFile(f"an archive of version {version}; known are 1.x")
    entries: list[Json] = log["entries"]
    return entries


def _without_server(entry: Mapping[str, Json]) -> str | None:
    """Why an entry is no call of a server, or None where it is one."""
    scheme = str(entry["request"]["url"]).partition(":")[0].strip().lower()
    if scheme in _IN_BROWSERS or scheme.endswith("-extension"):
        return f"no call: what begins with {scheme}: is in the browser itself"
    return None


def _without_answer(entry: Mapping[str, Json]) -> str | None:
    """Why an entry has no answer, or None where it has one."""
    response = entry.get("response")
    if response is None:
        return "no response"
    if response["status"] < 100:
        error = response.get("_error") or entry.get("_error")
        return f"no response ({error})" if error else "no response"
    return None


def _broke_off(response: Mapping[str, Json]) -> str | None:
    """Why the browser had no whole answer, as Playwright and Chrome say it."""
    return next((str(response[n]) for n in ("_failureText", "_error") if response.get(n)), None)


def _found(entry: Mapping[str, Json], place: str) -> tuple[Found, tuple[str, ...]]:
    if entry.get("_webSocketMessages") is not None or entry["response"]["status"] == 101:
        raise _NotSaved("a WebSocket session is no exchange")
    failure = _broke_off(entry["response"])
    if failure is not None:
        raise _NotSaved(f"the answer did not end ({failure})")
    request, said = _request(entry["request"], place)
    response, more = _response(entry["response"], place)
    if not response.body and _had_body(request, response, entry["response"].get("content") or {}):
        raise _NotSaved("the answer's body was not saved")
    at = _seconds(entry)
    response = replace(response, pieces=tuple(replace(p, at=at) for p in response.pieces))
    moment = entry.get("startedDateTime")
    found = Found(place, request, response, _moment(moment))
    said += more
    if moment and date_of(moment) is None:
        said += (f"the date {moment!r} is none: kept without one",)
    visible = dict(entry)
    beside = visible.pop(_BESIDE, None)
    if beside is not None:
        whole = with_supplement(found, beside)
        if whole is not None and _visible(whole) == visible:
            return whole, said
        said += (SET_ASIDE,)
    response, changes = settled(request, response)
    return replace(found, response=response), said + changes


def _moment(text: Json) -> str | None:
    moment = date_of(text)
    return None if moment == _NO_DATE else moment


def _seconds(entry: Mapping[str, Json]) -> float:
    """When the body was there, in seconds since the request was sent."""
    timings = entry.get("timings") or {}
    parts = [timings.get(name) for name in ("send", "wait", "receive")]
    known = [float(part) for part in parts if isinstance(part, int | float) and part >= 0]
    seconds = sum(known) / 1000
    return round(seconds, 4) if math.isfinite(seconds) else 0.0


# --- requests ---------------------------------------------------------------------------------


def _request(form: Mapping[str, Json], place: str) -> tuple[Request, tuple[str, ...]]:
    headers = _headers(form.get("headers") or (), f"{place}, request")
    url = str(form["url"]).partition("#")[0]
    body, said = _posted(form.get("postData"))
    # Browsers hold neither bytes that are no text nor parts of a form with files in them.
    length = _length(headers)
    if not body and (_is_sent(form.get("bodySize")) or length):
        raise _NotSaved("the request's body was not saved")
    if body and length not in (None, len(body)) and header(headers, "content-encoding") is None:
        said += (f"the request's content-length was {length}, its body has {len(body)} bytes",)
    if body is None:
        return Request(str(form["method"]), url, headers), said
    if header(headers, "content-type") is None and form["postData"].get("mimeType"):
        headers += (("content-type", str(form["postData"]["mimeType"])),)
    return Request(str(form["method"]), url, headers, body), said


def _is_sent(size: Json) -> bool:
    return isinstance(size, int) and size > 0


def _length(headers: Headers) -> int | None:
    text = header(headers, "content-length")
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _posted(form: Json) -> tuple[bytes | None, tuple[str, ...]]:
    """The bytes of `postData`; None where there are none."""
    if not form:
        return None, ()
    text, kind = form.get("text"), str(form.get("mimeType") or "")
    if "_file" in form:
        raise _NotSaved(f"the request's body lies in another file ({form['_file']})")
    if text is not None:
        coding = form.get("_encoding") or form.get("encoding")
        return _bytes(str(text), coding, kind, None)
    params = form.get("params")
    if not params:
        return None, ()
    if kind.startswith("multipart/"):
        raise _NotSaved("of the request's multipart body only the names of its parts were saved")
    pairs = ((str(p["name"]), str(p.get("value") or "")) for p in params)
    body = "&".join(f"{quote_plus(name)}={quote_plus(value)}" for name, value in pairs)
    return body.encode(), ("the request's form was saved by its fields: encoded anew",)


def _headers(form: Iterable[Mapping[str, Json]], place: str) -> Headers:
    """The headers in order. HTTP/2 keeps method, path and host among them; they are the URL's.

    Browsers write what came in several lines of one name as one value of several lines.
    """
    return tuple(
        (str(pair["name"]), line)
        for pair in form
        if not str(pair["name"]).startswith(":")
        for line in header_text(pair["value"], place).split("\n")
    )


# --- responses --------------------------------------------------------------------------------


def _response(form: Mapping[str, Json], place: str) -> tuple[Response, tuple[str, ...]]:
    content = form.get("content") or {}
    size, kind = content.get("size"), str(content.get("mimeType") or "")
    said: tuple[str, ...] = ()
    body = b""
    if content.get("text"):
        body, said = _bytes(str(content["text"]), content.get("encoding"), kind, size)
        if isinstance(size, int) and size > len(body):
            said += (f"the archive says {size} bytes of body and holds {len(body)}",)
    elif "_file" in content:
        raise _NotSaved(f"the answer's body lies in another file ({content['_file']})")
    elif _is_sent(size):
        raise _NotSaved(f"the answer's body was not saved ({size} bytes)")
    return Response(
        status=int(form["status"]),
        headers=_headers(form.get("headers") or (), f"{place}, response"),
        pieces=(Piece(0.0, body),) if body else (),
        reason=str(form.get("statusText") or ""),
    ), said


def _had_body(request: Request, response: Response, content: Mapping[str, Json]) -> bool:
    """Whether an answer came with a body that is not there. Of a redirect no browser keeps it."""
    if request.method == "HEAD" or response.status in (204, 304) or 300 <= response.status < 400:
        return False
    if "text" in content:
        return False
    is_chunked = header(response.headers, "transfer-encoding") is not None
    return bool(_length(response.headers)) or (content.get("size") == -1 and is_chunked)


_CHARSET = re.compile(r'charset\s*=\s*"?([^";\s]+)', re.IGNORECASE)


def _bytes(text: str, coding: Json, kind: str, size: Json) -> tuple[bytes, tuple[str, ...]]:
    """The bytes of a text that the archive made Unicode of.

    The charset counts as far as it can write the text; of two possible ones the size decides.
    """
    if coding == "base64":
        return base64.b64decode(text), ()
    if coding:
        raise ValueError(f"the encoding {coding!r} is not known")
    match = _CHARSET.search(kind)
    declared = match[1].lower() if match else "utf-8"
    data = text.encode("utf-8", "surrogatepass")
    if declared in ("utf-8", "utf8") or data.isascii():
        return data, ()
    try:
        coded = text.encode(declared)
    except (LookupError, UnicodeEncodeError):
        return data, (f"the text has no {declared}: kept as UTF-8",)
    return (data, ()) if size == len(data) != len(coded) else (coded, ())


# --- writing ----------------------------------------------------------------------------------


def write(exchanges: Iterable[Exchange], *, version: str = "") -> Written:
    """An archive of the exchanges. What HAR cannot hold (plain JSON calls) is noted as left out."""
    kept, notes = answering(exchanges)
    log = {
        "version": "1.2",
        "creator": {"name": "tapes", "version": version or "0"},
        "entries": [_entry(exchange) for exchange in kept],
    }
    text = json.dumps({"log": log}, ensure_ascii=False, indent=1) + "\n"
    return Written(text.encode("utf-8", "surrogatepass"), len(kept), tuple(notes))


def _entry(exchange: Exchange) -> dict[str, Json]:
    request, response = exchange.request, exchange.response
    if not isinstance(request, Request) or not isinstance(response, Response):
        raise TypeError("only HTTP exchanges are entries")
    whole = Found("", request, response, exchange.recorded_at, exchange.sample)
    entry = _visible(whole)
    seen_request, _ = _request(entry["request"], "")
    seen_response, _ = _response(entry["response"], "")
    at = _seconds(entry)
    pieces = tuple(replace(piece, at=at) for piece in seen_response.pieces)
    seen = Found(
        "",
        seen_request,
        replace(seen_response, pieces=pieces),
        _moment(entry["startedDateTime"]),
    )
    beside = supplement(exchange, seen)
    return {**entry, _BESIDE: beside} if beside else entry


def _visible(found: Found) -> dict[str, Json]:
    request, response = found.request, found.response
    times = [piece.at for piece in response.pieces] or [0.0]
    wait, receive = _milliseconds(times[0]), _milliseconds(times[-1] - times[0])
    return {
        "startedDateTime": date_of(found.recorded_at) or _NO_DATE,
        "time": _milliseconds(times[-1]),
        "request": _request_form(request),
        "response": _response_form(response),
        "cache": {},
        "timings": {"send": 0, "wait": wait, "receive": receive},
    }


def _milliseconds(seconds: float) -> float:
    return round(max(seconds, 0.0) * 1000, 1)


def _request_form(request: Request) -> dict[str, Json]:
    form: dict[str, Json] = {
        "method": request.method,
        "url": request.url,
        "httpVersion": "HTTP/1.1",
        "cookies": _cookies(request.headers, "cookie"),
        "headers": _pairs(request.headers),
        "queryString": [
            {"name": name, "value": value}
            for name, value in parse_qsl(urlsplit(request.url).query, keep_blank_values=True)
        ],
        "headersSize": -1,
        "bodySize": len(request.body),
    }
    if request.body:
        kind = header(request.headers, "content-type") or ""
        text, coding = _text(request.body, kind)
        form["postData"] = {"mimeType": kind, "text": text}
        if coding:
            form["postData"]["_encoding"] = coding
    return form


def _response_form(response: Response) -> dict[str, Json]:
    headers, body = plain_response(response)
    kind = header(response.headers, "content-type") or ""
    text, coding = _text(body, kind)
    content: dict[str, Json] = {"size": len(body), "mimeType": kind}
    if len(body) > len(response.body):
        content["compression"] = len(body) - len(response.body)
    if body:
        content["text"] = text
    if coding:
        content["encoding"] = coding
    return {
        "status": response.status,
        "statusText": response.reason,
        "httpVersion": "HTTP/1.1",
        "cookies": _cookies(headers, "set-cookie"),
        "headers": _pairs(headers),
        "content": content,
        "redirectURL": header(headers, "location") or "",
        "headersSize": -1,
        "bodySize": len(response.body),
    }


def _text(body: bytes, kind: str) -> tuple[str, str | None]:
    """A body as text where a reader makes the same bytes of it, else as base64."""
    try:
        text = body.decode("utf-8")
        if _bytes(text, None, kind, len(body))[0] == body:
            return text, None
    except ValueError:
        pass
    return base64.b64encode(body).decode("ascii"), "base64"


def _cookies(headers: Headers, name: str) -> list[Json]:
    cookies = list[Json]()
    for key, value in headers:
        if key.lower() != name:
            continue
        try:
            jar = SimpleCookie(value)
        except CookieError:
            continue  # the header itself is there
        cookies += [{"name": c.key, "value": c.value} for c in jar.values()]
    return cookies


def _pairs(headers: Headers) -> list[Json]:
    return [{"name": name, "value": value} for name, value in headers]
