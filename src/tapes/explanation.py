"""How a request's key comes about, step by step, and why it hits or misses.

The verdict is the cassette's own: the same decision that a program would get in replay, asked on
a tape that keeps no report of it.

Knows nothing of terminals.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tapes.canonical import (
    HTTP_1,
    DictCanonicalizer,
    http_identity,
    http_text,
    key_of,
    sample_key,
)
from tapes.cassette import Cassette, Play, Refusal
from tapes.credentials import MARK
from tapes.diagnosis import Diagnosis, diagnose
from tapes.errors import BadSetting, CassetteError
from tapes.exchange import Exchange, Request, bytes_of, header
from tapes.explain import Near, find_nearest
from tapes.jsontext import Json, compact
from tapes.places import differences, leaves_of
from tapes.project import Declared
from tapes.redact import SECRET_PATTERNS, Redactor
from tapes.tape.base import Tape
from tapes.varying import Rule, vary_json

# Somebody asked for it and waits: looking for the nearest recording may take longer than in a run.
PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True)
class Explanation:
    """A request's way to its key, and what the tape says to it.

    `left_out` are parts of the request that do not count, `redacted` places whose text was
    replaced, `rules` those of a project's rules that took something out. `found` is the exchange
    that answers; without one there are `error`, and the nearest recording where there is any.
    """

    canonicalizer: str
    left_out: tuple[str, ...]
    redacted: tuple[str, ...]
    rules: tuple[Rule, ...]
    text: str
    key: str
    found: Exchange | None
    error: CassetteError | None
    near: Near | None
    diagnosis: Diagnosis | None = None


class _Unreported:
    """A tape as it is, without the folder in which a cassette leaves its reports."""

    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        self.path, self.name = tape.path, tape.name
        self.local: Path | None = None

    def find(self, key: str) -> Exchange | None:
        return self._tape.find(key)

    answer = find

    def append(self, exchange: Exchange) -> None:
        raise AssertionError(f"an explanation would record {exchange.key}")

    def exchanges(self) -> Iterator[Exchange]:
        return self._tape.exchanges()

    def keys(self) -> set[str]:
        return self._tape.keys()

    def close(self) -> None:
        """The tape belongs to whoever opened it."""


def explain(
    tape: Tape,
    request: Request | dict[str, Json],
    declared: Declared,
    *,
    canonicalizer: str,
    sample: int = 0,
) -> Explanation:
    """Why a request hits or misses. Raises NotCanonical for one that cannot have a key."""
    with Cassette(
        _Unreported(tape), "replay", canonicalizer=canonicalizer, declared=declared, environ={}
    ) as cassette:
        verdict = cassette.decide(request, sample=sample)
        rule = cassette.canonicalizer
    redactor = Redactor(patterns=(*SECRET_PATTERNS, *declared.patterns))
    if isinstance(request, Request):
        steps = _http_steps(request, redactor, declared)
    else:
        steps = _dict_steps(request, redactor, declared, rule)
    found = verdict.exchange if isinstance(verdict, Play) else None
    error = verdict.error if isinstance(verdict, Refusal) else None
    near = None
    if found is None:
        near = find_nearest(tape, steps.kept, declared.rules, declared.headers, patience=PATIENCE_S)
    return Explanation(
        canonicalizer=HTTP_1 if isinstance(request, Request) else rule.name,
        left_out=steps.left_out,
        redacted=steps.redacted,
        rules=steps.rules,
        text=steps.text,
        key=sample_key(key_of(steps.text), sample),
        found=found,
        error=error,
        near=near,
        diagnosis=None
        if near is None
        else diagnose(
            near, steps.kept, declared.rules, declared.headers, near.exchange.canonicalizer
        ),
    )


@dataclass(frozen=True, slots=True)
class _Steps:
    kept: Request | Json
    left_out: tuple[str, ...]
    redacted: tuple[str, ...]
    rules: tuple[Rule, ...]
    text: str


def _http_steps(request: Request, redactor: Redactor, declared: Declared) -> _Steps:
    kept = redactor.request(request)
    identity, rules = http_identity(kept, declared.rules, declared.headers)
    counted = {*identity["headers"], "content-type"}
    left_out = ["the scheme and the host", *_credentials_in_query(request, kept)]
    left_out += [f"header {n}" for n, _ in request.headers if n.lower() not in counted]
    return _Steps(kept, tuple(left_out), _redacted(request, kept), rules, http_text(identity))


def _credentials_in_query(request: Request, kept: Request) -> list[str]:
    pairs = request.url.partition("?")[2].split("&")
    now = kept.url.partition("?")[2].split("&")
    return [
        f"query parameter {pair.partition('=')[0]}"
        for pair, clean in zip(pairs, now, strict=False)
        if pair != clean
    ]


def _dict_steps(
    request: dict[str, Json], redactor: Redactor, declared: Declared, rule: DictCanonicalizer
) -> _Steps:
    identity = rule.identity(request)
    kept = redactor.value(identity)
    varied, rules = vary_json(kept, declared.rules)
    left_out = tuple(name for name in request if name in rule.leaves_out)
    return _Steps(kept, left_out, _redacted(identity, kept), rules, rule.text(varied))


def _redacted(before: Request | Json, after: Request | Json) -> tuple[str, ...]:
    found = differences(leaves_of(before), leaves_of(after))
    return tuple(d.place for d in found if MARK in str(d.recorded))


# --- requests from files ----------------------------------------------------------------------

_FORMS = ({"json"}, {"json", "style"}, {"text"}, {"base64"})


def http_request_of(value: Json) -> Request:
    """An HTTP request from JSON: method, url, headers, and a body as JSON, text or a form.

    Raises BadSetting, saying what it looks like.
    """
    example = '{"method": "POST", "url": "https://…/v1/chat/completions", "body": {"model": …}}'
    try:
        headers, body = value.get("headers", []), value.get("body")
        pairs = headers.items() if isinstance(headers, dict) else headers
        request = Request(
            str(value.get("method", "POST")),
            str(value["url"]),
            tuple((str(name), str(text)) for name, text in pairs),
            _body_of(body),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise BadSetting(
            f"this is no HTTP request ({error!r})", f"it looks like this: {example}"
        ) from error
    if isinstance(body, dict | list) and header(request.headers, "content-type") is None:
        return Request(
            request.method,
            request.url,
            (*request.headers, ("content-type", "application/json")),
            request.body,
        )
    return request


def _body_of(body: Json) -> bytes:
    if body is None:
        return b""
    if isinstance(body, dict) and set(body) in _FORMS:
        return bytes_of(body)
    return body.encode() if isinstance(body, str) else compact(body).encode()


def request_of_text(text: str, *, over_http: bool) -> Request | dict[str, Json]:
    """The request in a file: a dict as JSON, or an HTTP request as JSON. Raises BadSetting."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadSetting(
            f"the request is not JSON ({error})", "give the request as one JSON object"
        ) from error
    if over_http:
        return http_request_of(value)
    if not isinstance(value, dict):
        raise BadSetting(
            f"a request is an object, not {type(value).__name__}", "give it as one JSON object"
        )
    return value
