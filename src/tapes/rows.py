"""The rows of the log and of the read model, as frozen values.

Rule 1: a raw turn is never changed. All other rows are made from raw turns alone, and can be thrown
        away and made again with the same ids.
Rule 2: what is unknown is None, never zero; sums say beside them how many calls they leave out.
Rule 3: times are whole nanoseconds since 1970 in UTC, durations whole nanoseconds, money Decimal.

Knows nothing of databases, of derivation or of the API.  Pure.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from uuid import UUID, uuid5

from tapes.envelope import Envelope
from tapes.exchange import Exchange
from tapes.jsontext import Json, canonical

# The generation of the read model. Clients see it; a change of meaning changes it.
SCHEMA = "2026-06-15"
# Goes up with every change of what a deriver makes of the same turns: a log that was derived by a
# lower one is derived anew.
DERIVATION = 3
NO_ORG = "00000000-0000-0000-0000-000000000000"
# How ids of requests begin that a copy of a log made up, to know its turns again: no identity.
OF_COPY = "copy-"
_SESSIONS = UUID("6f5ab7f1-7d0c-5d2f-9f6e-5b7f2f3b6a10")

# --- words ------------------------------------------------------------------------------------


class Source(StrEnum):
    """Where a raw turn comes from: seen on the wire, told by an agent's own log, or by OTLP."""

    WIRE = "wire"
    TRANSCRIPT = "transcript"
    OTLP = "otlp"


class Outcome(StrEnum):
    """How a call was answered."""

    LIVE = "live"
    RECORDED = "recorded"
    REPLAYED = "replayed"
    REFUSED = "refused"


class SpanKind(StrEnum):
    """What a span is."""

    AGENT = "agent"
    LLM = "llm"
    TOOL = "tool"
    EVENT = "event"
    STEP = "step"


class Status(StrEnum):
    """What became of what a span or a trace shows."""

    OK = "ok"
    ERROR = "error"
    ABORTED = "aborted"  # the client went away
    RUNNING = "running"  # a tool call whose result has not been seen
    MISSING = "missing"  # named by others, not received


class Fidelity(StrEnum):
    """What is kept of the bytes behind a row, from nothing needed to bytes that were lost."""

    NONE = ""
    RAW = "raw"
    REDUCED = "reduced"
    DEGRADED = "degraded"


class LinkKind(StrEnum):
    """What flows from one span to another."""

    EMITS = "emits"
    FEEDS = "feeds"
    REJOIN = "rejoin"
    VERDICT = "verdict"
    COMPACTION_SEAM = "compaction-seam"


# --- the log ----------------------------------------------------------------------------------


_NOBODY = Envelope()


@dataclass(frozen=True, slots=True, kw_only=True)
class RawTurn:
    """One exchange as it was captured, or one batch of an agent's own log.

    `exchange` has the bytes; its response is None where only the reduced form came, and it is
    None itself for a transcript, whose records are in `records`, and for a span that came over
    OTLP, which is itself there. `request_id` is the identity under which a second delivery is the
    same row; "" is never the same as another.
    """

    id: int = 0
    request_id: str = ""
    source: Source = Source.WIRE
    envelope: Envelope = _NOBODY
    # How the session is known: header, agent, body, content; of OpenTelemetry otlp or trace.
    session_by: str = ""
    provider: str = ""  # as the route says; "" where the paths say it
    agent_name: str = ""
    thread_id: str = ""
    exchange: Exchange | None = None
    reduced: Json = None
    dropped: bool = False  # the response's bytes existed and are not kept
    records: Json = None
    meta: Json = None
    outcome: Outcome = Outcome.LIVE
    started_at: int | None = None
    ended_at: int | None = None
    received_at: int = 0


# --- the read model ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """What one model did in a session."""

    model: str
    calls: int
    input_tokens: int | None
    output_tokens: int | None
    cost_usd: Decimal | None
    unpriced_calls: int = 0


@dataclass(frozen=True, slots=True)
class Task:
    """An entry of the list of tasks that an agent keeps."""

    id: str
    subject: str
    description: str = ""
    status: str = "pending"
    updates: int = 0


class _Hashed:
    """A row whose hash is worked out once: what it says never changes."""

    __slots__ = ("known_hash",)
    known_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Session(_Hashed):
    """All that one agent, or one conversation, did. A placeholder is only named by its children."""

    id: str
    org_id: str = NO_ORG
    auth_subject: str = ""
    harness_id: str = ""
    harness_session_id: str = ""
    session_by: str = ""
    name: str = ""
    cwd: str = ""
    harness_version: str = ""
    agent_name: str = ""
    parent_session_id: str | None = None
    placeholder: bool = False
    started_at: int = 0
    last_seen_at: int = 0
    ended_at: int | None = None
    harness_metadata: Json = None
    total_input_tokens: int | None = None
    total_output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_creation_tokens: int | None = None
    reasoning_tokens: int | None = None
    total_cost_usd: Decimal | None = None
    saved_cost_usd: Decimal | None = None  # of calls that were answered from a tape
    llm_calls: int = 0
    replayed_calls: int = 0
    failed_calls: int = 0
    unpriced_calls: int = 0
    uncounted_calls: int = 0
    turn_count: int = 0
    derived_status: str = "unknown"
    has_git_activity: bool = False
    tool_result_count: int = 0
    tool_error_count: int = 0
    derived_title: str = ""
    preview: str = ""
    derived_model: str = ""
    model_usage: tuple[ModelUsage, ...] = ()
    tasks: tuple[Task, ...] = ()
    kind_counts: tuple[tuple[str, int], ...] = ()
    fidelity: Fidelity = Fidelity.NONE

    @property
    def total_tokens(self) -> int | None:
        """Input and output together; None where neither is known."""
        known = [n for n in (self.total_input_tokens, self.total_output_tokens) if n is not None]
        return sum(known) if known else None

    @property
    def duration_ns(self) -> int:
        """From the first call's start to the last one's end."""
        return self.last_seen_at - self.started_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace(_Hashed):
    """What one prompt of the user set going."""

    trace_id: str
    session_id: str
    org_id: str = NO_ORG
    name: str = ""  # what its sender calls it; wire and transcripts give none
    user_prompt: str = ""
    response_preview: str = ""
    synthetic: str = ""
    status: Status = Status.OK
    source: str = "wire"
    started_at: int = 0
    ended_at: int | None = None
    duration_ns: int | None = None
    total_input_tokens: int | None = None
    total_output_tokens: int | None = None
    main_input_tokens: int | None = None
    main_output_tokens: int | None = None
    cache_read_tokens: int | None = None
    cache_creation_tokens: int | None = None
    reasoning_tokens: int | None = None
    total_cost_usd: Decimal | None = None
    saved_cost_usd: Decimal | None = None
    unpriced_calls: int = 0
    uncounted_calls: int = 0
    tool_calls: int = 0
    span_count: int = 0
    missing_count: int = 0
    fidelity: Fidelity = Fidelity.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Span(_Hashed):
    """One thing that happened in a trace."""

    trace_id: str
    span_id: str
    parent_span_id: str = ""
    session_id: str = ""
    org_id: str = NO_ORG
    kind: SpanKind = SpanKind.LLM
    name: str = ""
    status: Status = Status.OK
    error_type: str = ""
    call_kind: str = ""
    thread_id: str = ""
    agent: str = ""  # the name of the agent, where it has one
    anchor: str = ""  # how the place of a sub-agent is known, or "unanchored"
    provider: str = ""
    model: str = ""  # that answered
    request_model: str = ""  # that was asked
    response_id: str = ""
    stop_reason: str = ""
    outcome: str = ""
    started_at: int = 0
    duration_ns: int | None = None
    first_chunk_ns: int | None = None
    input: tuple[dict[str, Json], ...] = ()
    output: tuple[dict[str, Json], ...] = ()
    usage: Json = None
    cost_usd: Decimal | None = None
    raw_turn_id: int | None = None
    request_id: str = ""
    node_hash: str = ""
    seq: int = 0
    verdict: Json = None
    fidelity: Fidelity = Fidelity.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Link(_Hashed):
    """A flow from one span to another."""

    from_trace_id: str
    from_span_id: str
    from_io: str = ""
    to_trace_id: str
    to_span_id: str
    to_io: str = ""
    kind: LinkKind
    session_id: str = ""
    org_id: str = NO_ORG


@dataclass(frozen=True, slots=True)
class Skipped:
    """A raw turn that shows nowhere, and why."""

    raw_turn_id: int
    request_id: str
    session_id: str
    reason: str


Row = Session | Trace | Span | Link


@dataclass(frozen=True, slots=True)
class Projection:
    """What raw turns mean: rows in a fixed order, so that equal meanings are equal values."""

    sessions: tuple[Session, ...] = ()
    traces: tuple[Trace, ...] = ()
    spans: tuple[Span, ...] = ()
    links: tuple[Link, ...] = ()
    skipped: tuple[Skipped, ...] = ()

    def of_session(self, session_id: str) -> "Projection":
        """The rows of one session alone."""
        return Projection(
            tuple(s for s in self.sessions if s.id == session_id),
            tuple(t for t in self.traces if t.session_id == session_id),
            tuple(s for s in self.spans if s.session_id == session_id),
            tuple(k for k in self.links if k.session_id == session_id),
            tuple(k for k in self.skipped if k.session_id == session_id),
        )

    def rows(self) -> dict[tuple[str, ...], Row]:
        """All rows by their keys."""
        together: tuple[Row, ...] = (*self.sessions, *self.traces, *self.spans, *self.links)
        return {key_of_row(row): row for row in together}

    def differences(self, other: "Projection") -> list[str]:
        """What differs from another projection, a line for each row; empty where nothing does."""
        mine, theirs = self.rows(), other.rows()
        lines = [f"{_shown(key)}: not in the other" for key in mine.keys() - theirs.keys()]
        lines += [f"{_shown(key)}: only in the other" for key in theirs.keys() - mine.keys()]
        for key in mine.keys() & theirs.keys():
            names = _differing(mine[key], theirs[key])
            if names:
                lines.append(f"{_shown(key)}: differs in {', '.join(names)}")
        return sorted(lines)


def _shown(key: tuple[str, ...]) -> str:
    return " ".join(part for part in key if part)


def _differing(one: Row, other: Row) -> list[str]:
    return [f.name for f in fields(one) if getattr(one, f.name) != getattr(other, f.name)]


def together(projections: Iterable[Projection]) -> Projection:
    """Several projections as one, in the fixed order."""
    parts = tuple(projections)
    return Projection(
        tuple(sorted((r for p in parts for r in p.sessions), key=lambda s: (s.started_at, s.id))),
        tuple(
            sorted(
                (r for p in parts for r in p.traces),
                key=lambda t: (t.session_id, t.started_at, t.trace_id),
            )
        ),
        tuple(
            sorted(
                (r for p in parts for r in p.spans),
                key=lambda s: (s.session_id, s.trace_id, s.seq, s.span_id),
            )
        ),
        tuple(sorted((r for p in parts for r in p.links), key=key_of_row)),
        tuple(
            sorted(
                (r for p in parts for r in p.skipped),
                key=lambda k: (k.session_id, k.raw_turn_id, k.request_id),
            )
        ),
    )


# --- keys and hashes --------------------------------------------------------------------------


def session_id_of(envelope: Envelope) -> str:
    """The id of the session that an envelope names: the same for ever, on every machine."""
    return _session_id(envelope, envelope.harness_session_id)


def parent_session_id_of(envelope: Envelope) -> str | None:
    """The id of the other session that this one was forked from, in the same harness; or None."""
    parent = envelope.parent_harness_session_id
    if not parent or parent == envelope.harness_session_id:
        return None
    return _session_id(envelope, parent)


def _session_id(envelope: Envelope, harness_session_id: str) -> str:
    return _id_of(envelope.org_id or NO_ORG, envelope.harness_id, harness_session_id)


@lru_cache(maxsize=10_000)
def _id_of(*names: str) -> str:
    return str(uuid5(_SESSIONS, "\0".join(names)))


def key_of_row(row: Row) -> tuple[str, ...]:
    """What tells a row from every other of its organisation."""
    match row:
        case Session():
            return ("session", row.id)
        case Trace():
            return ("trace", row.trace_id)
        case Span():
            return ("span", row.trace_id, row.span_id)
        case Link():
            return (
                "link",
                row.from_trace_id,
                row.from_span_id,
                row.from_io,
                row.to_trace_id,
                row.to_span_id,
                row.to_io,
            )


_IDENTITY = frozenset({"id", "org_id", "session_id", "trace_id", "span_id"})


# What gets all values of a row that may change, for each kind.
_CHANGING: dict[type, Callable[[Row], tuple[Json, ...]]] = {
    _kind: attrgetter(*(each.name for each in fields(_kind) if each.name not in _IDENTITY))
    for _kind in (Session, Trace, Span, Link)
}


def content_hash(row: Row) -> str:
    """SHA-256 over everything in a row that may change: equal hashes need no writing."""
    known: str | None = getattr(row, "known_hash", None)
    if known is None:
        known = _hash_of(row)
        object.__setattr__(row, "known_hash", known)
    return known


def _hash_of(row: Row) -> str:
    values_of = _CHANGING[type(row)]
    # One text for all values: to make one for each takes longer than to hash them.
    values = [v if type(v) in _AS_THEY_ARE else _hashed(v) for v in values_of(row)]
    return hashlib.sha256(repr(values).encode("utf-8", "surrogatepass")).hexdigest()


_AS_THEY_ARE = frozenset({str, int, bool, type(None)})


def _hashed(value: Json) -> Json:
    if isinstance(value, Decimal):
        return value.normalize()
    if isinstance(value, str) or (
        isinstance(value, tuple) and not (value and isinstance(value[0], dict))
    ):
        return value
    return (canonical(value),)


# --- times ------------------------------------------------------------------------------------

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# No clock shows what 64 bits of nanoseconds cannot say (before 1970, after 2262).
LATEST = 2**63 - 1


def nanoseconds(text: Json) -> int | None:
    """The time of an RFC 3339 text with up to nine digits of fraction, or None."""
    if not isinstance(text, str):
        return None
    head, point, rest = text.partition(".")
    digits = len(rest) - len(rest.lstrip("0123456789")) if point else 0
    try:
        moment = datetime.fromisoformat(head + rest[digits:])
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    since = moment - _EPOCH
    fraction = int(rest[:9][:digits].ljust(9, "0")) if digits else 0
    told = (since.days * 86_400 + since.seconds) * 1_000_000_000 + fraction
    return told if 0 <= told <= LATEST else None


def time_text(moment: int) -> str:
    """The RFC 3339 text of a time, in UTC, with as much fraction as it has."""
    seconds, fraction = divmod(moment, 1_000_000_000)
    tail = f".{fraction:09d}".rstrip("0") if fraction else ""
    return f"{_second_text(seconds)}{tail}Z"


@lru_cache(4096)  # what happens in one trace happens close together
def _second_text(seconds: int) -> str:
    return (_EPOCH + timedelta(seconds=seconds)).isoformat()[:19]


# A measured time that nobody waited for: it is not believed.
_LONGEST_S = 7 * 86_400


def moments(turn: RawTurn) -> tuple[int, int | None]:
    """When a call began, and when it ended or None where nobody said.

    Its own times count first, then what its capture noted, then when it arrived.
    """
    if turn.started_at is not None:
        return turn.started_at, turn.ended_at
    meta = turn.meta if isinstance(turn.meta, dict) else {}
    captured, asked = nanoseconds(meta.get("captured_at")), nanoseconds(meta.get("ts_request"))
    took = _elapsed(meta.get("elapsed_seconds"))
    if captured is not None and took is not None:
        return captured - took, captured
    if asked is not None:
        return asked, captured if took is None else asked + took
    return (turn.received_at if captured is None else captured), None


def _elapsed(seconds: Json) -> int | None:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return None
    if not 0 < seconds <= _LONGEST_S:  # nor is what is no number
        return None
    return round(Decimal(str(seconds)) * 1_000_000_000) or None
