"""What a capture posts → the raw turn that is kept, and whether anybody can read it.

Rule 1: a body that is no envelope is refused, and nothing of it is kept. A turn that cannot be read
        is kept all the same, and its sender is told: a better reader may understand it later.
Rule 2: what comes to rest is clean: without secrets, and of text that every database takes.
Rule 3: who the tenant is, the server says and not the sender.

Knows nothing of HTTP or stores.  Pure.
"""

import base64
import binascii
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from tapes.envelope import ID_LIMIT, Envelope, cut, from_json, session_in, shortened
from tapes.errors import BadEnvelope
from tapes.exchange import Exchange, Headers, Piece, Request, Response, header
from tapes.jsontext import MAX_DEPTH, Json, compact, deeper_than, has_unwritable_float
from tapes.loosejson import loose
from tapes.providers.reading import DropReason, is_turn_request, read
from tapes.providers.reduced import reduced
from tapes.providers.turn import Turn, dicts, word
from tapes.redact import Redactor
from tapes.rows import NO_ORG, RawTurn, Source, moments, nanoseconds
from tapes.wire import codings

_NAME_LIMIT = 256
_JSON: Headers = (("content-type", "application/json"),)


@dataclass(frozen=True, slots=True)
class Told:
    """A turn to be kept, and why nobody can read it; "" where it can be read."""

    turn: RawTurn
    unreadable: str = ""
    reason: DropReason | None = None


def value_of_body(data: bytes) -> Json:
    """The JSON of a body, made such that it can be kept. Raises BadEnvelope."""
    if not data.strip():
        raise BadEnvelope("the body is empty", "send a JSON object")
    try:
        value = loose(data)
    except ValueError as error:
        raise BadEnvelope(f"the body is no JSON: {error}") from None
    return kept(value)


def kept(value: Json) -> Json:
    """A JSON value as it can be kept: numbers that JSON cannot say become their names.

    Raises BadEnvelope for what is nested too deeply.
    """
    if deeper_than(value, MAX_DEPTH):
        raise BadEnvelope(f"the body is nested in more than {MAX_DEPTH} levels")
    return _finite(value) if has_unwritable_float(value) else value


def _finite(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _finite(member) for name, member in value.items()}
    if isinstance(value, list):
        return [_finite(member) for member in value]
    return str(value) if isinstance(value, float) and has_unwritable_float(value) else value


# --- members ----------------------------------------------------------------------------------


def text_in(payload: dict[str, Json], name: str, limit: int | None = None) -> str:
    """The text of a member, "" where it is not there. Raises BadEnvelope."""
    value = payload.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise BadEnvelope(f"{name}: text, not {type(value).__name__}")
    if limit is not None and len(value.encode("utf-8", "replace")) > limit:
        raise BadEnvelope(f"{name}: at most {limit} bytes")
    return value


def object_in(payload: dict[str, Json], name: str) -> dict[str, Json]:
    """The object of a member, {} where it is not there. Raises BadEnvelope."""
    value = payload.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadEnvelope(f"{name}: an object, not {type(value).__name__}")
    return value


def envelope_in(payload: dict[str, Json], redactor: Redactor, subject: str = "") -> Envelope | None:
    """The envelope of a body, or None. `subject` replaces the one in it. Raises BadEnvelope."""
    value = payload.get("session")
    if value is None:
        return None
    envelope = from_json(value)
    for name in ("harness_id", "harness_session_id", "parent_harness_session_id"):
        if len((getattr(envelope, name) or "").encode("utf-8", "replace")) > ID_LIMIT:
            raise BadEnvelope(f"session.{name}: at most {ID_LIMIT} bytes")
    # Whose tenant it is, the server says (rule 3).
    return replace(
        envelope,
        org_id="",
        auth_subject=cut(subject or envelope.auth_subject, ID_LIMIT),
        harness_version=cut(envelope.harness_version, _NAME_LIMIT),
        cwd=redactor.text(envelope.cwd),
        name=redactor.text(cut(envelope.name, _NAME_LIMIT)),
        harness_metadata=redactor.value(envelope.harness_metadata),
    )


def identity(request_id: str) -> str:
    """The identity of a delivery; one that is too long for an index is told by its hash."""
    return shortened(request_id, ID_LIMIT)


def of_tenant(turn: RawTurn, org_id: str) -> RawTurn:
    """The turn as one of this tenant (rule 3)."""
    return replace(turn, envelope=replace(turn.envelope, org_id="" if org_id == NO_ORG else org_id))


# --- one turn ---------------------------------------------------------------------------------


def turn_of(
    payload: Json,
    *,
    received_at: int,
    agent_name: str = "",
    redactor: Callable[[], Redactor] = Redactor,
) -> Told:
    """The turn that a body tells of. Raises BadEnvelope: nothing of it is to be kept."""
    if not isinstance(payload, dict):
        raise BadEnvelope("a turn is a JSON object")
    clean = redactor()
    meta = object_in(payload, "meta")
    envelope = envelope_in(payload, clean)
    provider = cut(text_in(payload, "provider").strip().lower(), 64)
    request = payload.get("request")
    exchange = _exchange(payload, meta, request, clean)
    by = "header" if envelope is not None and envelope.harness_session_id else ""
    if not by:
        session, harness = session_in(request)
        if session and len(session) <= ID_LIMIT:
            envelope, by = _with_session(envelope or Envelope(), session, harness), "body"
    turn = RawTurn(
        request_id=identity(text_in(meta, "request_id")),
        envelope=envelope or Envelope(),
        session_by=by,
        provider=provider,
        agent_name=cut(text_in(payload, "agent_name") or agent_name, _NAME_LIMIT),
        thread_id=text_in(meta, "thread_id", ID_LIMIT),
        exchange=exchange,
        reduced=clean.value(object_in(payload, "response")) or None,
        dropped=payload.get("raw_response_withheld") is True,
        meta=clean.value(meta) or None,
        received_at=received_at,
    )
    return _judged(_with_times(turn), provider)


def _with_session(envelope: Envelope, session: str, harness: str) -> Envelope:
    known = envelope.harness_id if envelope.harness_id != Envelope().harness_id else harness
    return replace(envelope, harness_session_id=session, harness_id=known)


def _exchange(
    payload: dict[str, Json], meta: dict[str, Json], request: Json, clean: Redactor
) -> Exchange:
    method = text_in(meta, "method") or "POST"
    path = text_in(meta, "path")
    # A path that is no model call's would hide a turn whose provider is named.
    url = path if path and is_turn_request(method, path) else ""
    body = b"" if request is None else compact(request).encode("utf-8", "replace")
    asked = clean.request(Request(method, url, _JSON, body))
    return Exchange("", "http/1", asked, _response(payload, meta, clean))


def _response(payload: dict[str, Json], meta: dict[str, Json], clean: Redactor) -> Response | None:
    text = text_in(payload, "raw_response")
    coding = text_in(payload, "raw_response_encoding")
    if not text:
        return None
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadEnvelope("raw_response: no base64") from None
    headers: Headers = ()
    if text_in(meta, "content_type"):
        headers += (("content-type", text_in(meta, "content_type")),)
    if codings(coding):
        headers += (("content-encoding", coding),)
    response = Response(_status_in(meta), headers, (Piece(_seconds_in(meta), data),))
    return clean.response(response)


def _status_in(meta: dict[str, Json]) -> int:
    """The status that the upstream gave; a capture that names none saw a good one."""
    status: Json = meta.get("upstream_status")
    return status if type(status) is int and 100 <= status < 600 else 200


def _seconds_in(meta: dict[str, Json]) -> float:
    took: Json = meta.get("elapsed_seconds")
    if isinstance(took, bool) or not isinstance(took, int | float):
        return 0.0
    return float(took) if 0 < took <= 7 * 86_400 else 0.0


def _with_times(turn: RawTurn) -> RawTurn:
    """The turn with the times that its capture noted, where it noted any."""
    meta = turn.meta if isinstance(turn.meta, dict) else {}
    told = (nanoseconds(meta.get("captured_at")), nanoseconds(meta.get("ts_request")))
    if told == (None, None):
        return turn
    started, ended = moments(turn)
    return replace(turn, started_at=started, ended_at=ended)


# --- judging ----------------------------------------------------------------------------------


def _judged(turn: RawTurn, provider: str) -> Told:
    """Whether the turn can be read; with the reduced form where only its bytes came."""
    assert turn.exchange is not None
    if not provider:
        return Told(turn, "no provider is named", DropReason.UNKNOWN_PROVIDER)
    found = read(turn.exchange, turn.reduced, provider_name=provider)
    if isinstance(found, DropReason):
        return Told(turn, _WHY.get(found, found.value), found)
    if turn.reduced is not None:
        wrong = _wrong_in(turn.reduced)
        return Told(turn, wrong, DropReason.REDUCER_ERROR if wrong else None)
    if turn.exchange.response is None:
        if turn.dropped:
            return Told(turn)
        why = "neither response nor raw_response"
        return Told(turn, why, DropReason.EMPTY_RESPONSE)
    return Told(replace(turn, reduced=_form_of(turn, found)))


_WHY = {
    DropReason.UNKNOWN_PROVIDER: "unknown provider",
    DropReason.REQUEST_DECODE: "the request is no JSON object",
    DropReason.NON_TURN_REQUEST: "the request is no model call",
}


def _form_of(turn: RawTurn, found: Turn) -> dict[str, Json]:
    took = None
    if turn.ended_at is not None and turn.started_at is not None:
        took = turn.ended_at - turn.started_at
    return reduced(found.answer, found.api, took)


def _wrong_in(form: Json) -> str:
    """What keeps a reduced response from being read; an empty answer is an answer."""
    message = form.get("message")
    if not isinstance(message, dict) or not word(message.get("role")):
        return "response.message has no role"
    content = message.get("content")
    if not isinstance(content, list | None):
        return "response.message.content is no list of blocks"
    blocks = dicts(content)
    if len(blocks) != len(content or ()) or not all(word(b.get("type")) for b in blocks):
        return "a block of response.message.content has no type"
    return ""


# --- transcripts ------------------------------------------------------------------------------


def transcript_of(
    payload: Json,
    *,
    received_at: int,
    subject: str = "",
    redactor: Callable[[], Redactor] = Redactor,
) -> RawTurn:
    """The raw turn that holds a transcript, or tells how one began. Raises BadEnvelope."""
    if not isinstance(payload, dict):
        raise BadEnvelope("a transcript is a JSON object")
    clean = redactor()
    envelope = envelope_in(payload, clean, subject)
    if envelope is None or not envelope.harness_session_id:
        raise BadEnvelope("session.harness_session_id: needed, a transcript is of one session")
    records = payload.get("records")
    if records is None:
        records = []
    if not isinstance(records, list):
        raise BadEnvelope(f"records: a list, not {type(records).__name__}")
    told = {
        name: text_in(payload, name, ID_LIMIT if name != "description" else None)
        for name in ("agent_id", "agent_type", "tool_use_id", "kind", "description")
    }
    content = hashlib.sha256(compact(records).encode("utf-8", "replace")).hexdigest()[:16]
    place = (envelope.harness_session_id, told["agent_id"] or "main", told["kind"], content)
    meta = {name: clean.text(value) for name, value in told.items() if value}
    return RawTurn(
        request_id=identity(":".join(("transcript", *filter(None, place)))),
        source=Source.TRANSCRIPT,
        envelope=envelope,
        session_by="header",
        records=clean.value(records),
        meta=meta or None,
        received_at=received_at,
    )


def provider_label(provider: str) -> str:
    """A provider's name for a metric: senders cannot make as many as they like."""
    known = ("anthropic", "openai", "ollama", "gemini")
    return provider if provider in known else "unknown"


def coding_of(headers: Headers) -> str | None:
    """The content coding of a request."""
    return header(headers, "content-encoding")
