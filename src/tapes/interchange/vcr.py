"""Cassettes of vcrpy, in YAML and in JSON.

Rule 1: vcrpy keeps a body as one text, in the coding of its client: requests' bodies lie decoded
        under the headers of the coded ones, httpx's as they came. Either is brought into one form.
Rule 2: what is written replays in vcrpy through any client: bodies decoded, no content-encoding.
Rule 3: an interaction that is no interaction is an error with its number, never passed over.

vcrpy keeps no dates; the answer's own `Date` header says when it was made.
Knows nothing of keys, tapes or redaction.  Pure.
"""

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from urllib.parse import urlencode

from tapes.errors import ForeignFile, NotCarried
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
from tapes.interchange.yamltext import dump, load
from tapes.jsontext import Json

# The member of an interaction that vcrpy does not look at.
_BESIDE = "tapes"


def read(data: bytes) -> Reading:
    """The exchanges of a cassette. Raises ForeignFile naming the interaction, MissingExtra."""
    interactions = _interactions(data)
    found, notes = list[Found](), list[Note]()
    for number, interaction in enumerate(interactions, 1):
        place = f"interaction {number}"
        try:
            one, said = _found(interaction, place)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ForeignFile(f"{place} is not one of vcrpy's ({error!r})") from error
        reason = unsayable(one.request, one.response)
        if reason is not None:
            notes.append(Note(place, reason, left_out=True))
            continue
        found.append(one)
        notes.extend(Note(place, text) for text in said)
    return Reading(tuple(found), tuple(notes))


def _interactions(data: bytes) -> list[Json]:
    content = _parsed(data)
    if isinstance(content, list) and content and "request" in content[0]:
        raise ForeignFile(
            "a cassette of vcrpy before 1.0", "bring it up to date: python -m vcr.migration FILE"
        )
    if isinstance(content, dict) and "http_interactions" in content:
        raise ForeignFile("a cassette of another VCR (http_interactions), not of vcrpy")
    if not isinstance(content, dict) or not isinstance(content.get("interactions"), list):
        raise ForeignFile("no cassette of vcrpy: it has no list of interactions")
    if content.get("version", 1) != 1:
        raise ForeignFile(f"a cassette of version {content['version']}; known is version 1")
    interactions: list[Json] = content["interactions"]
    return interactions


def _parsed(data: bytes) -> Json:
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ForeignFile(f"the cassette is not UTF-8 ({error})") from error
    if text.lstrip().startswith("{"):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass  # YAML may begin like this as well
    return load(text)


def _found(interaction: Json, place: str) -> tuple[Found, tuple[str, ...]]:
    request, said = _request(interaction["request"], place)
    response = _response(interaction["response"], place)
    found = Found(place, request, response, date_of(header(response.headers, "date")))
    visible = dict(interaction)
    beside = visible.pop(_BESIDE, None)
    if beside is not None:
        whole = with_supplement(found, beside)
        if whole is not None and _visible(whole.request, whole.response) == visible:
            return whole, said
        said += (SET_ASIDE,)
    response, changes = settled(request, response)
    return replace(found, response=response), said + changes


def _request(form: Mapping[str, Json], place: str) -> tuple[Request, tuple[str, ...]]:
    headers = _headers(form.get("headers") or {}, f"{place}, request")
    body, said = form.get("body"), ()
    if isinstance(body, dict):
        return _request_with_fields(form, headers, body)
    request = Request(str(form["method"]), str(form["uri"]), headers, _bytes(body, place))
    return request, said


def _request_with_fields(
    form: Mapping[str, Json], headers: Headers, fields: dict[str, Json]
) -> tuple[Request, tuple[str, ...]]:
    """aiohttp's `json=` and `data=` are kept as the objects that they were given as."""
    kind = (header(headers, "content-type") or "").partition(";")[0].strip().lower()
    if kind == "application/x-www-form-urlencoded":
        body, said = urlencode(fields, doseq=True).encode(), "form fields"
    else:
        body, said = json.dumps(fields).encode(), "JSON"
        if not kind:
            headers += (("Content-Type", "application/json"),)
    text = f"the request's body is kept as an object, not as it was sent: taken as {said}"
    return Request(str(form["method"]), str(form["uri"]), headers, body), (text,)


def _response(form: Mapping[str, Json], place: str) -> Response:
    if "status_code" in form:  # httpx under vcrpy before 6
        status, reason, body = form["status_code"], "", form.get("content")
    else:
        status, reason = form["status"]["code"], form["status"].get("message") or ""
        body = _response_body(form.get("body"))
    data = _bytes(body, place)
    return Response(
        status=int(status),
        headers=_headers(form.get("headers") or {}, f"{place}, response"),
        pieces=(Piece(0.0, data),) if data else (),
        reason=_text(reason),
    )


def _response_body(form: Json) -> Json:
    if not isinstance(form, dict):
        return form
    if "base64_string" in form:
        return base64.b64decode(form["base64_string"], validate=True)
    return form.get("string")


def _headers(form: Mapping[str, Json], place: str) -> Headers:
    pairs = list[tuple[str, str]]()
    for name, values in form.items():
        for value in values if isinstance(values, list) else [values]:
            pairs.append((_text(name), header_text(value, place)))
    return tuple(pairs)


def _text(value: Json) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _bytes(body: Json, place: str) -> bytes:
    """A body in any of the forms that vcrpy has written over the years."""
    if body is None:
        return b""
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        try:
            return body.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ForeignFile(
                f"{place}: the body holds a lone surrogate, which no bytes have"
            ) from error
    if isinstance(body, list):
        if body and all(isinstance(item, int) for item in body):
            return bytes(body)
        return b"".join(_bytes(item, place) for item in body)
    raise ForeignFile(f"{place}: the body is a {type(body).__name__}, not text or bytes")


# --- writing ----------------------------------------------------------------------------------


def write(exchanges: Iterable[Exchange], *, as_json: bool = False) -> Written:
    """A cassette that vcrpy replays. Raises NotCarried for bytes that JSON cassettes cannot hold.

    What has no place in a cassette (plain JSON calls) is noted as left out.
    """
    kept, notes = answering(exchanges)
    interactions = [_interaction(exchange) for exchange in kept]
    content = {"interactions": interactions, "version": 1}
    if not as_json:
        return Written(dump(content).encode("ascii"), len(kept), tuple(notes))
    for exchange, interaction in zip(kept, interactions, strict=True):
        if isinstance(interaction["request"]["body"], bytes) or isinstance(
            interaction["response"]["body"]["string"], bytes
        ):
            raise NotCarried(
                f"{exchange.key[:12]} has a body that is not UTF-8, which vcrpy's JSON cannot hold",
                "write YAML instead: name the file .yaml",
            )
    text = json.dumps(content, indent=4) + "\n"
    return Written(text.encode("ascii"), len(kept), tuple(notes))


def _interaction(exchange: Exchange) -> dict[str, Json]:
    request, response = exchange.request, exchange.response
    if not isinstance(request, Request) or not isinstance(response, Response):
        raise TypeError("only HTTP exchanges are interactions")
    interaction = _visible(request, response)
    seen = Found(
        "",
        _request(interaction["request"], "")[0],
        _response(interaction["response"], ""),
        date_of(header(response.headers, "date")),
    )
    beside = supplement(exchange, seen)
    return {**interaction, _BESIDE: beside} if beside else interaction


def _visible(request: Request, response: Response) -> dict[str, Json]:
    headers, body = plain_response(response)
    return {
        "request": {
            "body": _readable(request.body),
            # vcrpy takes the first value of a request header alone.
            "headers": {n: [", ".join(v)] for n, v in _grouped(request.headers).items()},
            "method": request.method,
            "uri": request.url,
        },
        "response": {
            "body": {"string": _readable(body)},
            "headers": _grouped(headers),
            "status": {"code": response.status, "message": response.reason},
        },
    }


def _grouped(headers: Headers) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for name, value in headers:
        grouped.setdefault(name, []).append(value)
    return grouped


def _readable(data: bytes) -> str | bytes:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data
