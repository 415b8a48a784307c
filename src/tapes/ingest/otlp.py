"""OTLP → spans and log records in one plain form, and the raw turns that keep them.

Rule 1: the two encodings give the same form, so the same span has one identity however it came.
Rule 2: what cannot be kept is rejected alone, with its reason; the rest of a request is kept.
Rule 3: the same delivery twice is one turn. A later state of a span is a turn of its own, and the
        deriver shows the last.

Knows nothing of HTTP, protobuf or stores.  Pure.
"""

import base64
import binascii
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tapes.credentials import is_credential_header, placeholder
from tapes.envelope import ID_LIMIT, Envelope, cut
from tapes.errors import BadEnvelope
from tapes.ingest.turns import kept
from tapes.jsontext import Json, canonical
from tapes.loosejson import storable
from tapes.providers.turn import dicts, word
from tapes.redact import Redactor
from tapes.rows import LATEST, RawTurn, Source

Form = dict[str, Json]


class Rejected(Exception):
    """An item that cannot be kept; its text is the reason."""


@dataclass(slots=True)
class Received:
    """What a request brought: forms, and why some items were rejected, with their number."""

    forms: list[Form] = field(default_factory=list)
    rejected: Counter[str] = field(default_factory=Counter)

    def message(self) -> str:
        """The reasons, for people; "" where nothing was rejected."""
        return "; ".join(f"{count} × {why}" for why, count in sorted(self.rejected.items()))


# --- JSON -------------------------------------------------------------------------------------


def spans_of_json(value: Json) -> Received:
    """The spans of an OTLP/JSON request. Raises BadEnvelope where it is none."""
    return _received(value, "resourceSpans", "scopeSpans", "spans", span_of_json)


def logs_of_json(value: Json) -> Received:
    """The log records of an OTLP/JSON request. Raises BadEnvelope where it is none."""
    return _received(value, "resourceLogs", "scopeLogs", "logRecords", log_of_json)


def _received(value: Json, outer: str, middle: str, inner: str, read: Json) -> Received:
    if not isinstance(value, dict) or not isinstance(value.get(outer, []), list):
        raise BadEnvelope(f"an object with a list {outer} is needed")
    found = Received()
    for of_resource in _each(value.get(outer), outer, found):
        for of_scope in _each(of_resource.get(middle), middle, found):
            for item in _each(of_scope.get(inner), inner, found):
                try:
                    about = _object(of_resource, "resource")
                    form = read(item) | {"resource": _attributes(about)}
                    found.forms.append(checked(form | _scope(_object(of_scope, "scope"))))
                except Rejected as why:
                    found.rejected[str(why)] += 1
    return found


def _each(value: Json, name: str, found: Received) -> Iterator[Form]:
    """The objects of a list; what is none, or no list, is rejected. One alone is a list of it."""
    for item in value if isinstance(value, list) else [] if value is None else [value]:
        if isinstance(item, dict):
            yield item
        else:
            found.rejected[f"no object in {name}"] += 1


def count_of_json(value: Json) -> int:
    """How many data points an OTLP/JSON request of metrics has."""
    count = 0
    for of_resource in dicts(value.get("resourceMetrics") if isinstance(value, dict) else None):
        for of_scope in dicts(of_resource.get("scopeMetrics")):
            for metric in dicts(of_scope.get("metrics")):
                kinds = (kind for kind in metric.values() if isinstance(kind, dict))
                count += sum(len(dicts(kind.get("dataPoints"))) for kind in kinds)
    return count


def span_of_json(item: Form) -> Form:
    """The form of a span. Raises Rejected."""
    status = _object(item, "status")
    return {
        "trace_id": word(item.get("traceId")).lower(),
        "span_id": word(item.get("spanId")).lower(),
        "parent_id": word(item.get("parentSpanId")).lower(),
        "name": word(item.get("name")),
        "kind": _enum(item.get("kind"), _KINDS),
        "started": _number(item.get("startTimeUnixNano")),
        "ended": _number(item.get("endTimeUnixNano")),
        "attributes": _attributes(item),
        "events": [
            {
                "name": word(event.get("name")),
                "time": _number(event.get("timeUnixNano")),
                "attributes": _attributes(event),
            }
            for event in _objects(item, "events")
        ],
        "links": [
            {
                "trace_id": word(link.get("traceId")).lower(),
                "span_id": word(link.get("spanId")).lower(),
                "attributes": _attributes(link),
            }
            for link in _objects(item, "links")
        ],
        "status": _enum(status.get("code"), _CODES),
        "message": word(status.get("message")),
    }


def log_of_json(item: Form) -> Form:
    """The form of a log record. Raises Rejected."""
    attributes = _attributes(item)
    return {
        "trace_id": word(item.get("traceId")).lower(),
        "span_id": word(item.get("spanId")).lower(),
        "event": word(item.get("eventName")) or word(attributes.get("event.name")),
        "started": _number(item.get("timeUnixNano")) or _number(item.get("observedTimeUnixNano")),
        "attributes": attributes,
        "body": _value(item.get("body")),
    }


_KINDS = ("UNSPECIFIED", "INTERNAL", "SERVER", "CLIENT", "PRODUCER", "CONSUMER")
_CODES = ("UNSET", "OK", "ERROR")


def _object(holder: Form, name: str) -> Form:
    value = holder.get(name)
    if value is not None and not isinstance(value, dict):
        raise Rejected(f"{name}: no object")
    return value or {}


def _objects(holder: Form, name: str) -> list[Form]:
    value = holder.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or any(not isinstance(item, dict) for item in value):
        raise Rejected(f"{name}: no list of objects")
    return value


def _scope(scope: Form) -> Form:
    return {"scope": word(scope.get("name")), "scope_version": word(scope.get("version"))}


def _enum(value: Json, names: tuple[str, ...]) -> int:
    if isinstance(value, str) and not value.isdecimal():
        last = value.rpartition("_")[2].upper()
        return names.index(last) if last in names else 0
    return _number(value)


def _number(value: Json) -> int:
    """A whole number as OTLP/JSON writes it: as text, where it may be large."""
    if isinstance(value, bool):
        raise Rejected("a number is no number")
    if isinstance(value, str):
        if not re.fullmatch(r"-?[0-9]{1,20}", value):
            raise Rejected("a number is no number")
        return int(value)
    if value is None:
        return 0
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if not isinstance(value, int):
        raise Rejected("a number is no number")
    return value


def _attributes(holder: Form, name: str = "attributes") -> Form:
    return {word(pair.get("key")): _value(pair.get("value")) for pair in _objects(holder, name)}


def _value(value: Json) -> Json:
    """The value of an AnyValue; of several members the first that is known counts."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise Rejected("a value: no object")
    for name, read in _READERS:
        if name in value and value[name] is not None:
            return read(value[name])
    return None


def _listed(value: Json) -> Json:
    values = value.get("values") if isinstance(value, dict) else None
    if not isinstance(value, dict) or not isinstance(values, list | None):
        raise Rejected("a list: no object with values")
    return [_value(item) for item in values or ()]


def _mapped(value: Json) -> Json:
    if not isinstance(value, dict):
        raise Rejected("a map: no object with values")
    return _attributes(value, "values")


def _text(value: Json) -> Json:
    if not isinstance(value, str):
        raise Rejected("a text is no text")
    return value


def _truth(value: Json) -> Json:
    if value not in (True, False, "true", "false"):
        raise Rejected("a truth is neither true nor false")
    return value in (True, "true")


def _double(value: Json) -> Json:
    if isinstance(value, str):
        return value  # NaN and infinities are texts there
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Rejected("a number is no number")
    try:
        return float(value)
    except OverflowError:
        return str(value)


def _bytes(value: Json) -> Json:
    _text(value)
    try:
        return base64.b64encode(base64.b64decode(word(value))).decode()
    except (ValueError, binascii.Error):
        return word(value)


_READERS = (
    ("stringValue", _text),
    ("boolValue", _truth),
    ("intValue", _number),
    ("doubleValue", _double),
    ("arrayValue", _listed),
    ("kvlistValue", _mapped),
    ("bytesValue", _bytes),
)

# --- what can be kept -------------------------------------------------------------------------

_TRACE_ID, _SPAN_ID = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9a-f]{16}")


def checked(form: Form) -> Form:
    """The form where it can be kept. Raises Rejected."""
    is_log = "event" in form
    if not _is_id(form["trace_id"], _TRACE_ID):
        raise Rejected("not of a trace" if is_log and not form["trace_id"] else "invalid trace id")
    if not _is_id(form["span_id"], _SPAN_ID):
        raise Rejected("not of a span" if is_log and not form["span_id"] else "invalid span id")
    if form.get("parent_id") and not _is_id(form["parent_id"], _SPAN_ID):
        form["parent_id"] = ""  # all zero: a root, as some write it
    for name in ("started", "ended"):
        if not 0 <= form.get(name, 0) <= LATEST:
            raise Rejected("a time beyond all clocks")
    try:
        value: Form = kept(storable(form))
    except BadEnvelope:
        raise Rejected("nested too deeply") from None
    return value


def _is_id(text: str, pattern: re.Pattern[str]) -> bool:
    return pattern.fullmatch(text) is not None and bool(text.strip("0"))


# Events that say what a model was asked and what it answered, of the current and the older names.
CONTENT_EVENTS = (
    "gen_ai.client.inference.operation.details", "gen_ai.system.message", "gen_ai.user.message",
    "gen_ai.assistant.message", "gen_ai.tool.message", "gen_ai.choice", "gen_ai.content.prompt",
    "gen_ai.content.completion",
)  # fmt: skip


def only_content(received: Received) -> Received:
    """The log records that belong to model calls; all others are rejected."""
    wanted = [form for form in received.forms if form["event"] in CONTENT_EVENTS]
    others = len(received.forms) - len(wanted)
    rejected = received.rejected + Counter({"log records of no model call are not kept": others})
    return Received(wanted, +rejected)


# --- whose it is ------------------------------------------------------------------------------

# Where instrumentations write the conversation that a span belongs to.
_SESSION_NAMES = (
    "gen_ai.conversation.id", "session.id", "traceloop.association.properties.session_id",
    "langfuse.session.id", "ai.telemetry.metadata.sessionId", "langsmith.trace.session_id",
)  # fmt: skip
HARNESS = "tapes.harness.id"
_RESPONSE_IDS = ("gen_ai.response.id", "llm.response.id")


def conversation_of(form: Form) -> str:
    """The conversation that a span names, or ""."""
    for holder in (form["attributes"], form["resource"]):
        for name in _SESSION_NAMES:
            value = holder.get(name)
            if isinstance(value, str | int) and str(value):
                return cut(str(value), ID_LIMIT)
    return ""


def harness_of(form: Form) -> str:
    """The harness that a span names, or ""."""
    told = form["attributes"].get(HARNESS) or form["resource"].get(HARNESS)
    return cut(word(told), ID_LIMIT)


def response_id_of(form: Form) -> str:
    """The id of the answer that a span names, or ""."""
    return next((word(form["attributes"].get(n)) for n in _RESPONSE_IDS), "")


# --- raw turns --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Place:
    """The session of a span, how it is known, and which part of its trace lies there."""

    envelope: Envelope
    by: str
    part: str = ""


def clean(form: Form, redactor: Redactor) -> Form:
    """The form without secrets."""
    plain: Form = {}
    for name, value in form.items():
        is_map = name in ("attributes", "resource")
        plain[name] = _without_headers(value, redactor) if is_map else value
    found: Form = redactor.value(plain)
    return found


def _without_headers(attributes: Form, redactor: Redactor) -> Form:
    """Attributes without the credentials that recorded headers and URLs hold."""
    out: Form = {}
    for name, value in attributes.items():
        head, _, last = name.rpartition(".")
        if head.endswith(".header") and is_credential_header(last.replace("_", "-")):
            value = placeholder(last)
        elif last in ("url", "full", "target", "query") and isinstance(value, str):
            value = redactor.url(value if last != "query" else f"?{value}")
        out[name] = value
    return out


def turn_of(form: Form, place: Place, received_at: int) -> RawTurn:
    """The raw turn that keeps a span, or a log record of one."""
    digest = hashlib.sha256(canonical(form).encode("utf-8", "replace")).hexdigest()[:16]
    kind = "otlp-log" if "event" in form else "otlp"
    started = form["started"] or None
    meta = {"trace_id": form["trace_id"], "span_id": form["span_id"]}
    if place.part:
        meta["part"] = place.part
    service = word(form["resource"].get("service.name"))
    return RawTurn(
        request_id=f"{kind}:{form['trace_id']}:{form['span_id']}:{digest}",
        source=Source.OTLP,
        envelope=place.envelope,
        session_by=place.by,
        agent_name="" if service.startswith("unknown_service") else cut(service, 256),
        records=form,
        meta=meta,
        started_at=started,
        ended_at=form.get("ended") or None,
        received_at=received_at,
    )


def by_trace(forms: Iterable[Form]) -> Iterator[tuple[str, list[Form]]]:
    """The forms of each trace, those that began first first."""
    found: dict[str, list[Form]] = {}
    for form in forms:
        found.setdefault(form["trace_id"], []).append(form)
    for trace_id, its in found.items():
        yield trace_id, sorted(its, key=lambda form: (form["started"], form["span_id"]))
