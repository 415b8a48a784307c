"""Sessions on their way out: their raw turns, or the rows made of them in the forms of others.

Rule 1: ids are made from ours, the same each time: exporting twice gives the same spans.
Rule 2: in OpenTelemetry (OTLP) texts leave only where the caller said so.
Rule 3: what is unknown is left out, or null in a table; never zero.
Rule 4: however much there is, little of it is in memory at a time, and no transaction waits for
        whoever takes the pieces.

Knows nothing of where it is written.
"""

import hashlib
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tapes.derive import genai
from tapes.errors import BadQuery, MissingExtra
from tapes.jsontext import Json, compact
from tapes.providers.reading import read
from tapes.providers.turn import Asked, Turn
from tapes.rows import NO_ORG, Session, Source, Span, SpanKind, Status
from tapes.store.base import MOST, Ask, Project
from tapes.store.filters import Condition, both, is_
from tapes.turnlines import line_of


class Form(StrEnum):
    """What sessions can be written as."""

    JSONL = "jsonl"  # their raw turns: what another log takes in
    OTLP = "otlp"
    PARQUET = "parquet"  # a table of spans

    @classmethod
    def named(cls, name: str) -> "Form":
        """The form of a name. Raises BadQuery."""
        try:
            return cls(name)
        except ValueError:
            known = ", ".join(cls)
            raise BadQuery(
                f"format={name[:40]!r} is none that sessions are written as", 0, f"forms: {known}"
            ) from None


def sessions_found(
    log: Project, where: Condition, *, since: int | None = None, until: int | None = None
) -> Iterator[Session]:
    """The sessions that a query finds, the oldest first."""
    ask = Ask(where, "started_at", descending=False, limit=MOST)
    while True:
        page = log.sessions(ask, since=since, until=until)
        yield from (listed.session for listed in page.items)
        if page.next_cursor is None:
            return
        ask = replace(ask, cursor=page.next_cursor)


Events = dict[tuple[str, str], list[Span]]
AllAsked = Mapping[int | None, Asked | None]  # by the turn
# A piece is given on when it has so many bytes.
_PIECE = 64 * 1024


@dataclass(slots=True)
class Export:
    """Sessions of one tenant as bytes, and how many sessions and rows went so far."""

    log: Project
    form: Form
    content: bool = False  # texts too, in OTLP
    sessions: int = 0
    rows: int = 0

    def pieces(self, sessions: Iterable[Session]) -> Iterator[bytes]:
        """What is to be written, piece by piece. Raises MissingExtra, DamagedStore."""
        match self.form:
            case Form.JSONL:
                yield from _gathered(self._lines(sessions))
            case Form.OTLP:
                yield from _gathered(self._document(sessions))
            case Form.PARQUET:
                yield from _table(self._records(sessions))

    def _lines(self, sessions: Iterable[Session]) -> Iterator[bytes]:
        for session in sessions:
            self.sessions += 1
            for turn in self.log.stream_turns(session_id=session.id):
                self.rows += 1
                yield line_of(turn).encode() + b"\n"

    def _document(self, sessions: Iterable[Session]) -> Iterator[bytes]:
        before = b'{"resourceSpans":['
        for session in sessions:
            self.sessions += 1
            events = self._events(session)
            about = self._about(session) if self.content else {}
            for some in self._spans(session, payload=self.content):
                asked = self._all_asked(some) if self.content else {}
                made = resource_spans(session, some, self.content, events, asked, about)
                yield before + compact(made).encode()
                before = b","
        yield b"]}\n" if before == b"," else before + b"]}\n"

    def _about(self, session: Session) -> dict[str, Json]:
        """What people and harnesses say of a session."""
        listed = self.log.session(session.id)
        held = session.harness_metadata
        given = held.get("tags") if isinstance(held, dict) else None
        tags = {tag for tag in given if isinstance(tag, str)} if isinstance(given, list) else set()
        if listed is not None:
            tags |= set(listed.notes.tags)
        return {
            genai.SESSION_NAME: (listed.notes.display_name if listed else "") or session.name,
            genai.SESSION_CWD: session.cwd,
            genai.SESSION_USER: session.auth_subject,
            genai.SESSION_TAGS: sorted(tags) or "",
        }

    def _all_asked(self, some: Iterable[Span]) -> AllAsked:
        """To read a request takes a hundred times as long as its span: only where texts go too."""
        return {span.raw_turn_id: self._asked(span) for span in some if span.kind is SpanKind.LLM}

    def _asked(self, span: Span) -> Asked | None:
        """What a call was asked with, where its turn is there and says so."""
        raw = None if span.raw_turn_id is None else self.log.turn(span.raw_turn_id)
        if raw is None:
            return None
        if raw.source is Source.OTLP:
            held = raw.records.get("attributes") if isinstance(raw.records, dict) else None
            return genai.turn_of(held if isinstance(held, dict) else {}, genai.Told()).asked
        turn = None if raw.exchange is None else read(raw.exchange, provider_name=raw.provider)
        return turn.asked if isinstance(turn, Turn) else None

    def _events(self, session: Session) -> Events:
        """The events of a session by the span that they happened in."""
        found: Events = {}
        where = both(is_("session", session.id), is_("type", SpanKind.EVENT))
        ask = Ask(where, "started_at", descending=False, limit=MOST)
        while True:
            page = self.log.spans(ask, payload=self.content)
            for event in page.items:
                found.setdefault((event.trace_id, event.parent_span_id), []).append(event)
            if page.next_cursor is None:
                return found
            ask = replace(ask, cursor=page.next_cursor)

    def _records(self, sessions: Iterable[Session]) -> Iterator[dict[str, Any]]:
        for session in sessions:
            self.sessions += 1
            for some in self._spans(session, payload=True):
                yield from span_records(session, some)

    def _spans(self, session: Session, *, payload: bool) -> Iterator[tuple[Span, ...]]:
        """The spans of a session in the order of their time, some at a time."""
        ask = Ask(is_("session", session.id), "started_at", descending=False, limit=MOST)
        while True:
            page = self.log.spans(ask, payload=payload)
            self.rows += len(page.items)
            if page.items:
                yield page.items
            if page.next_cursor is None:
                return
            ask = replace(ask, cursor=page.next_cursor)


def _gathered(parts: Iterable[bytes]) -> Iterator[bytes]:
    """Parts in pieces that are worth sending."""
    gathered, size = list[bytes](), 0
    for part in parts:
        gathered.append(part)
        size += len(part)
        if size >= _PIECE:
            yield b"".join(gathered)
            gathered, size = [], 0
    if gathered:
        yield b"".join(gathered)


# --- OpenTelemetry ----------------------------------------------------------------------------

_SCOPE = {"name": "tapes"}
_CLIENT, _INTERNAL = 3, 1
# Session and trace of a span are rows of their own in our model, and one trace in theirs.
_OPERATIONS = {SpanKind.LLM: "chat", SpanKind.TOOL: "execute_tool", SpanKind.AGENT: "invoke_agent"}


def resource_spans(
    session: Session,
    rows: Sequence[Span],
    content: bool,
    events: Events,
    asked: AllAsked,
    about: dict[str, Json] | None = None,
) -> dict[str, Json]:
    """Spans of a session under its resource: a trace for each trace. Nobody sent a placeholder."""
    resource = {
        "service.name": session.harness_id,
        "service.version": session.harness_version,
        "tapes.harness.id": session.harness_id,
        "tapes.session.id": session.id,
        "tapes.session.harness_id": session.harness_session_id,
        **(about or {}),
        **({} if session.org_id == NO_ORG else {"tapes.org.id": session.org_id}),
    }
    spans = [
        _otlp_span(
            span,
            _said(span, session, content, asked.get(span.raw_turn_id)),
            content,
            events.get((span.trace_id, span.span_id), ()),
        )
        for span in rows
        if span.kind is not SpanKind.EVENT and span.status is not Status.MISSING
    ]
    return {
        "resource": {"attributes": _attributes(resource)},
        "scopeSpans": [{"scope": _SCOPE, "spans": spans}],
    }


def trace_id_of(trace_id: str, org_id: str = NO_ORG) -> str:
    """The trace id in OTLP of one of ours: 16 bytes in hex, never all zero.

    One that came over OTLP stays what it was.
    """
    return trace_id if _came_as_otlp(trace_id, 32) else _id(f"{org_id} {trace_id}", 32)


def span_id_of(trace_id: str, span_id: str, org_id: str = NO_ORG) -> str:
    """The span id in OTLP of one of ours: 8 bytes in hex, never all zero.

    One that came over OTLP stays what it was.
    """
    own = _came_as_otlp(trace_id, 32) and _came_as_otlp(span_id, 16)
    return span_id if own else _id(f"{org_id} {trace_id} {span_id}", 16)


def _came_as_otlp(found: str, digits: int) -> bool:
    return len(found) == digits and not set(found) - _HEX and bool(found.strip("0"))


_HEX = frozenset("0123456789abcdef")


def _id(text: str, digits: int) -> str:
    found = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:digits]
    return found if found.strip("0") else "1".rjust(digits, "0")


def _otlp_span(
    span: Span, said: dict[str, Json], content: bool, events: Iterable[Span]
) -> dict[str, Json]:
    made: dict[str, Json] = {
        "traceId": trace_id_of(span.trace_id, span.org_id),
        "spanId": span_id_of(span.trace_id, span.span_id, span.org_id),
        "name": _name(span, said),
        "kind": _CLIENT if span.kind is SpanKind.LLM else _INTERNAL,
        "startTimeUnixNano": str(span.started_at),
        "endTimeUnixNano": str(span.started_at + (span.duration_ns or 0)),
        "attributes": _attributes(said),
        "status": {"code": 2} if span.status is Status.ERROR else {},
    }
    if span.parent_span_id:
        made["parentSpanId"] = span_id_of(span.trace_id, span.parent_span_id, span.org_id)
    happened: list[Json] = [_otlp_event(event, content) for event in events]
    return made | ({"events": happened} if happened else {})


def _otlp_event(event: Span, content: bool) -> dict[str, Json]:
    said: dict[str, Json] = {"exception.type": event.error_type}
    for block in event.input if content else ():
        held = block.get("content")
        if block.get("type") == "attributes" and isinstance(held, dict):
            said |= held
        else:
            said["tapes.content"] = compact(list(event.input))
    return {
        "timeUnixNano": str(event.started_at),
        "name": event.name,
        "attributes": _attributes(said),
    }


def _name(span: Span, said: dict[str, Json]) -> str:
    operation = said.get("gen_ai.operation.name", span.kind.value)
    what = (span.request_model or span.model) if span.kind is SpanKind.LLM else span.name
    if what.startswith(f"{operation} "):  # as its sender called it
        return what
    return f"{operation} {what}".strip()


def _said(span: Span, session: Session, content: bool, asked: Asked | None) -> dict[str, Json]:
    usage = span.usage if isinstance(span.usage, dict) else {}
    said: dict[str, Json] = {
        "gen_ai.operation.name": _OPERATIONS.get(span.kind),
        "gen_ai.conversation.id": session.harness_session_id or session.id,
        "gen_ai.provider.name": genai.PROVIDER_NAMES.get(span.provider, span.provider),
        "error.type": span.error_type,
        "tapes.span.id": span.span_id,
        "tapes.trace.id": span.trace_id,
        "tapes.outcome": span.outcome,
        "tapes.status": None if span.status in (Status.OK, Status.ERROR) else span.status.value,
        # OTLP wants an end of every span: this one's is its start.
        "tapes.duration.unknown": True if span.duration_ns is None else None,
        "tapes.turn.id": span.raw_turn_id,
    }
    if span.kind is SpanKind.LLM:
        said |= {
            "gen_ai.request.model": span.request_model or span.model,
            "gen_ai.response.model": span.model,
            "gen_ai.response.id": span.response_id,
            "gen_ai.response.finish_reasons": _finish_reasons(span),
            "gen_ai.response.time_to_first_chunk": _seconds(span.first_chunk_ns),
            "gen_ai.usage.input_tokens": usage.get("prompt_tokens"),
            "gen_ai.usage.output_tokens": usage.get("completion_tokens"),
            "gen_ai.usage.cache_read.input_tokens": usage.get("cache_read_input_tokens"),
            "gen_ai.usage.cache_creation.input_tokens": usage.get("cache_creation_input_tokens"),
            "gen_ai.usage.reasoning.output_tokens": usage.get("reasoning_tokens"),
            genai.CACHE_WRITE_1H[0]: usage.get("cache_creation_1h_input_tokens"),
            "tapes.cost.total": None if span.cost_usd is None else f"{span.cost_usd:f}",
            "tapes.cost.currency": None if span.cost_usd is None else "USD",
        }
        if asked is not None:
            said |= _settings(asked)
        if content:
            said["gen_ai.input.messages"] = _messages("user", span.input)
            said["gen_ai.output.messages"] = _choices(span.output)
    elif span.kind is SpanKind.TOOL:
        call_id = _first(span.input, "tool_use_id") or span.span_id
        said |= {"gen_ai.tool.name": span.name, "gen_ai.tool.call.id": call_id}
        if content:
            said["gen_ai.tool.call.arguments"] = _first(span.input, "tool_input")
            said["gen_ai.tool.call.result"] = _first(span.output, "tool_output")
    elif span.kind is SpanKind.AGENT:
        said["gen_ai.agent.name"] = span.agent or span.name
    for block in span.input if content else ():
        held = block.get("content")
        if block.get("type") == "attributes" and isinstance(held, dict):
            said = held | {name: value for name, value in said.items() if value not in (None, "")}
    return {name: value for name, value in said.items() if value not in (None, "")}


def _settings(asked: Asked) -> dict[str, Json]:
    """What a request says beside its messages."""
    said: dict[str, Json] = {"gen_ai.operation.name": asked.operation}
    said[genai.STREAM[0]] = True if asked.stream else None
    for name, (current, *_) in genai.SETTINGS:
        value = asked.settings.get(name)
        if isinstance(value, str | int | float) and name != "stop_sequences":
            said[current] = value
        elif name == "stop_sequences" and value:
            said[current] = [str(each) for each in (value if isinstance(value, list) else [value])]
    return said


def _seconds(nanoseconds: int | None) -> float | None:
    return None if nanoseconds is None else nanoseconds / 1e9


def _first(blocks: Sequence[dict[str, Json]], name: str) -> str | None:
    found = next((block[name] for block in blocks if name in block), None)
    return found if found is None or isinstance(found, str) else compact(found)


def _finish_reasons(span: Span) -> list[Json] | None:
    """One for each choice, as far as they are known."""
    others = [block["stop_reason"] for block in span.output if "stop_reason" in block]
    return [span.stop_reason, *others] if span.stop_reason else None


def _messages(role: str, *choices: Sequence[dict[str, Json]]) -> str | None:
    # What else came over OTLP stands beside the messages.
    said = [
        [_part(block) for block in blocks if block.get("type") not in ("attributes", "resource")]
        for blocks in choices
    ]
    return (
        compact([{"role": role, "parts": parts} for parts in said if parts]) if any(said) else None
    )


def _choices(blocks: Sequence[dict[str, Json]]) -> str | None:
    """A message for each choice of an answer."""
    by_choice: dict[str, list[dict[str, Json]]] = {}
    for block in blocks:
        by_choice.setdefault(str(block.get("choice", 0)), []).append(block)
    return _messages("assistant", *by_choice.values())


def _part(block: dict[str, Json]) -> dict[str, Json]:
    match block.get("type"):
        case "text":
            return {"type": "text", "content": block.get("text", "")}
        case "thinking":
            return {"type": "reasoning", "content": block.get("thinking", "")}
        case "tool_use":
            return {
                "type": "tool_call",
                "id": block.get("tool_use_id"),
                "name": block.get("tool_name"),
                "arguments": block.get("tool_input"),
            }
        case "tool_result":
            return {
                "type": "tool_call_response",
                "id": block.get("tool_result_id"),
                "response": block.get("tool_output"),
            }
        case _:
            return dict(block)


def _attributes(said: dict[str, Json]) -> list[Json]:
    return [{"key": name, "value": _value(value)} for name, value in said.items() if value != ""]


def _value(value: Json) -> Json:
    match value:
        case bool():
            return {"boolValue": value}
        case int():
            return {"intValue": str(value)}
        case float():
            return {"doubleValue": value}
        case list():
            return {"arrayValue": {"values": [_value(item) for item in value]}}
        case dict():
            values = [{"key": name, "value": _value(member)} for name, member in value.items()]
            return {"kvlistValue": {"values": values}}
        case None:
            return {}
        case _:
            return {"stringValue": str(value)}


# --- tables -----------------------------------------------------------------------------------


def span_records(session: Session, rows: Iterable[Span]) -> Iterator[dict[str, Any]]:
    """Spans of a session as rows of a table, each with what its session says."""
    for span in rows:
        usage = span.usage if isinstance(span.usage, dict) else {}
        yield {
            "session_id": session.id,
            "harness_id": session.harness_id,
            "harness_session_id": session.harness_session_id,
            "trace_id": span.trace_id,
            "span_id": span.span_id,
            "parent_span_id": span.parent_span_id or None,
            "kind": span.kind.value,
            "name": span.name,
            "status": span.status.value,
            "error_type": span.error_type or None,
            "call_kind": span.call_kind or None,
            "thread_id": span.thread_id or None,
            "provider": span.provider or None,
            "model": span.model or None,
            "outcome": span.outcome or None,
            "stop_reason": span.stop_reason or None,
            "started_at": span.started_at,
            "duration_ns": span.duration_ns,
            "first_chunk_ns": span.first_chunk_ns,
            "input_tokens": usage.get("prompt_tokens"),
            "output_tokens": usage.get("completion_tokens"),
            "cache_read_tokens": usage.get("cache_read_input_tokens"),
            "cache_creation_tokens": usage.get("cache_creation_input_tokens"),
            "cost_usd": span.cost_usd,
            "raw_turn_id": span.raw_turn_id,
            "request_id": span.request_id or None,
            "input": compact(list(span.input)) if span.input else None,
            "output": compact(list(span.output)) if span.output else None,
        }


_NUMBERS = (
    "duration_ns", "first_chunk_ns", "input_tokens", "output_tokens", "cache_read_tokens",
    "cache_creation_tokens", "raw_turn_id",
)  # fmt: skip


# Rows are written together until there are so many, or so many characters.
_ROWS, _CHARACTERS = 5000, 8_000_000


class _Sink(io.RawIOBase):
    """A file that only remembers what was written since it was last asked."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[bytes] = []
        self._at = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def write(self, data: Any, /) -> int:
        part = bytes(data)
        self._parts.append(part)
        self._at += len(part)
        return len(part)

    def taken(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


def _table(records: Iterable[dict[str, Any]]) -> Iterator[bytes]:
    """Spans as a Parquet table. Raises MissingExtra."""
    try:
        # An extra of its own, and large.
        import pyarrow as arrow
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra(
            "Parquet is an extra, and pyarrow is not installed", "pip install 'tapes-py[parquet]'"
        ) from error
    kinds: dict[str, Any] = dict.fromkeys(_NUMBERS, arrow.int64())
    kinds |= {"started_at": arrow.timestamp("ns", "UTC"), "cost_usd": arrow.decimal128(24, 12)}
    schema = arrow.schema([(name, kinds.get(name, arrow.string())) for name in _COLUMNS])
    sink = _Sink()
    with parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        for some in _together(records):
            writer.write_table(arrow.Table.from_pylist(some, schema=schema))
            yield sink.taken()
    yield sink.taken()


def _together(records: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    some, size = list[dict[str, Any]](), 0
    for record in records:
        some.append(record)
        size += len(record["input"] or "") + len(record["output"] or "")
        if len(some) >= _ROWS or size >= _CHARACTERS:
            yield some
            some, size = [], 0
    if some:
        yield some


_COLUMNS = tuple(next(span_records(Session(id=""), [Span(trace_id="", span_id="")])))
