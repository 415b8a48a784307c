"""Answers of the read API: JSON with its entity tag, and errors as problem documents.

Rule 1: an answer that the client has already is not sent again: 304.
Rule 2: every error is a problem document (RFC 9457) with a stable code and, where there is one,
        the remedy. `error` says the same to clients that know only `{"error": …}`.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from tapes.api.models import Problem
from tapes.errors import BadQuery, Busy, TapesError, Unacceptable
from tapes.jsontext import Json, compact

JSON = "application/json"
PROBLEM = "application/problem+json"
# Where an error is explained: the slug is the anchor of its row.
_TYPES = "urn:tapes:error:"

_TAG = re.compile(r'(?:W/)?"([^"]*)"')


@cache
def version() -> str:
    """Which version of this program answers."""
    try:
        return metadata.version("tapes-py")
    except metadata.PackageNotFoundError:
        return "dev"


def body_of(value: Any) -> bytes:
    """A value as JSON."""
    try:
        return orjson.dumps(value)
    except TypeError:  # whole numbers beyond 64 bits, lone surrogates: a slower writer knows them
        return compact(value).encode()


def reply(request: Request, value: Any, status: int = 200) -> Response:
    """An answer with its entity tag, or that the client has it (rule 1)."""
    body = body_of(value)
    if request.method not in ("GET", "HEAD") or status != 200:
        return Response(body, status, media_type=JSON)
    tag = hashlib.blake2b(body, digest_size=12).hexdigest()
    headers = {"etag": f'W/"{tag}"', "cache-control": "no-cache"}
    if _is_known(request, tag):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type=JSON, headers=headers)


def reply_in_pieces(
    request: Request, mark: str, pieces: Iterator[bytes], *, is_long: bool
) -> Response:
    """A long answer, sent while it is made; `mark` is another where the answer would be."""
    tag = hashlib.blake2b(f"{version()} {mark}".encode(), digest_size=12).hexdigest()
    headers = {"etag": f'W/"{tag}"', "cache-control": "no-cache"}
    if _is_known(request, tag):
        return Response(status_code=304, headers=headers)
    if is_long:
        return StreamingResponse(pieces, media_type=JSON, headers=headers)
    return Response(b"".join(pieces), media_type=JSON, headers=headers)


def _is_known(request: Request, tag: str) -> bool:
    wanted = request.headers.get("if-none-match", "")
    return bool(wanted) and (wanted.strip() == "*" or tag in _TAG.findall(wanted))


# --- errors -----------------------------------------------------------------------------------


def problem(
    status: int, code: str, detail: str, remedy: str = "", more: Mapping[str, Json] | None = None
) -> Problem:
    """A problem document (rule 2)."""
    said: dict[str, Json] = {
        "type": f"{_TYPES}{code}",
        "title": code.replace("-", " "),
        "status": status,
        "code": code,
        "detail": detail,
        **({"remedy": remedy} if remedy else {}),
        **(more or {}),
        "error": detail,
    }
    return said  # type: ignore[return-value]  # made of the members above


def problem_of(error: TapesError) -> Problem:
    """The document of an error of ours."""
    more: dict[str, Json] = {}
    if isinstance(error, BadQuery):
        more["position"] = error.position
    if isinstance(error, Unacceptable):
        more["problems"] = [
            {"field": p.field, "message": p.message, "code": p.code} for p in error.problems
        ]
    return problem(error.http_status, error.slug, error.message, error.remedy, more)


def problem_reply(said: Problem, headers: Mapping[str, str] | None = None) -> Response:
    """The answer that carries a problem."""
    return Response(body_of(said), said["status"], media_type=PROBLEM, headers=dict(headers or {}))


def error_reply(error: TapesError, said: Problem | None = None) -> Response:
    """The answer to whoever asked for what failed; `said` in the place of the error's own words."""
    headers = {}
    if isinstance(error, Busy):
        headers["retry-after"] = str(max(1, round(error.retry_after_s)))
    elif error.http_status == 503:
        headers["retry-after"] = "1"
    return problem_reply(said or problem_of(error), headers)
