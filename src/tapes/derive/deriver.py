"""Raw turns → the rows of the read model, in passes: read, sort by session, order, weave, sum up.

Rule 1: the same turns give the same rows, in whatever order they come. Running it again changes
        nothing, and a session alone gives its part of the whole.
Rule 2: a turn that shows nowhere is counted, with its reason.

Knows nothing of stores or schedules; prices come in as a function.  Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

from tapes.derive.belonging import with_sessions
from tapes.derive.calls import Call, Calls, Reading, once
from tapes.derive.chain import Addresses, with_ids
from tapes.derive.otlp import NO_SPAN, Cache, spans_of, told_by
from tapes.derive.placing import Placing
from tapes.derive.rollups import (
    SESSION_PREVIEW,
    MadeTraces,
    Pricing,
    Traces,
    has_git_activity,
    kind_counts,
    model_of,
    model_usage,
    prices_of,
    status_of,
    tasks_of,
    title_of,
    totals,
    unpriced,
    worst,
)
from tapes.derive.spans import MadeSpans, Owner, Spans, links_of
from tapes.derive.tools import ToolUse, tool_status
from tapes.derive.transcripts import calls_told
from tapes.envelope import Envelope
from tapes.jsontext import Json
from tapes.providers.reading import DropReason, read
from tapes.providers.turn import Message, Turn, memo
from tapes.rows import (
    NO_ORG,
    Projection,
    RawTurn,
    Session,
    Skipped,
    Source,
    Span,
    Status,
    Trace,
    moments,
    parent_session_id_of,
    session_id_of,
    together,
)

# A turn that shows nowhere, because another capture of the same call does.
SEEN_TWICE = "seen_twice"


@dataclass(slots=True)
class _Made:
    """What the last pass made of a session."""

    calls: Calls = field(default_factory=Calls)
    spans: MadeSpans = field(default_factory=dict)
    traces: MadeTraces = field(default_factory=dict)


class Memory:
    """What a pass may remember for the next one: it changes the speed, never the result.

    Keep one for each session that goes on, and let it go when the session rests.
    """

    def __init__(self) -> None:
        self.addresses = Addresses()
        self.spans: Cache = {}
        self.made: dict[str, _Made] = {}
        self._remember = memo()
        self._turns: dict[tuple[int, str], Turn | DropReason] = {}

    def read(self, raw: RawTurn) -> Turn | DropReason:
        """The turn of a raw turn, or why it is none; read once, for a raw turn never changes."""
        key = (raw.id, raw.request_id)
        known = self._turns.get(key) if raw.id else None
        if known is None:
            known = self._turns[key] = self._read(raw)
        return known

    def _read(self, raw: RawTurn) -> Turn | DropReason:
        if raw.exchange is None:
            return DropReason.REQUEST_DECODE
        turn = read(raw.exchange, raw.reduced, self._remember, provider_name=raw.provider)
        if isinstance(turn, DropReason):
            return turn
        choices = turn.answer.choices
        messages = (*turn.asked.messages, *(choice.message for choice in choices[:1]))
        return _identified(turn, messages) if self.addresses.lacks_ids(messages) else turn


def _identified(turn: Turn, messages: Sequence[Message]) -> Turn:
    """The turn with an id for each tool call and each result, where its provider gives none."""
    named = with_ids(messages)
    asked = replace(turn.asked, messages=named[: len(turn.asked.messages)])
    if len(named) == len(asked.messages):
        return replace(turn, asked=asked)
    first = replace(turn.answer.choices[0], message=named[-1])
    choices = (first, *turn.answer.choices[1:])
    return replace(turn, asked=asked, answer=replace(turn.answer, choices=choices))


def derive(
    turns: Iterable[RawTurn], price: Pricing = unpriced, memory: Memory | None = None
) -> Projection:
    """The rows that these turns mean."""
    by_source = _sorted_by_source(turns)
    memory = memory or Memory()
    readings, skipped = list[Reading](), list[tuple[RawTurn, str]]()
    for raw in by_source[Source.WIRE]:
        turn = memory.read(raw)
        if isinstance(turn, DropReason):
            skipped.append((raw, turn.value))
        else:
            readings.append(Reading(raw, turn))
    sessions: dict[str, _Told] = {}
    for reading in with_sessions(readings):
        _of(sessions, reading.raw).readings.append(reading)
    for raw in by_source[Source.TRANSCRIPT]:
        _of(sessions, raw).notes.append(raw)
    for raw in by_source[Source.OTLP]:
        _of(sessions, raw).spans.append(raw)
    parts = []
    for session_id, told in sessions.items():
        told.readings, again = once(told.readings)
        part, lost = _session(told, session_id, price, memory)
        skipped += [(reading.raw, SEEN_TWICE) for reading in again]
        skipped += [(raw, NO_SPAN) for raw in lost]
        parts.append(part)
    parts.append(Projection(skipped=tuple(_skipped(raw, why) for raw, why in skipped)))
    parts.append(Projection(sessions=_placeholders(sessions)))
    return together(parts)


@dataclass(slots=True)
class _Told:
    """What was told of one session, by where it came from."""

    readings: list[Reading] = field(default_factory=list)
    notes: list[RawTurn] = field(default_factory=list)
    spans: list[RawTurn] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """Whether there is no more than a word of how a sub-agent began."""
        return not self.readings and not self.spans and not any(raw.records for raw in self.notes)


def _of(sessions: dict[str, _Told], raw: RawTurn) -> _Told:
    return sessions.setdefault(session_id_of(raw.envelope), _Told())


def _sorted_by_source(turns: Iterable[RawTurn]) -> dict[Source, list[RawTurn]]:
    """The turns by where they come from; of equal request ids the first row."""
    by_identity: dict[tuple[str, str], RawTurn] = {}
    for raw in turns:
        identity = raw.request_id or f"row {raw.id}"
        key = (raw.envelope.org_id or NO_ORG, identity)
        if key not in by_identity or raw.id < by_identity[key].id:
            by_identity[key] = raw
    found: dict[Source, list[RawTurn]] = {source: [] for source in Source}
    for raw in by_identity.values():
        found[raw.source].append(raw)
    return found


def _skipped(raw: RawTurn, reason: str) -> Skipped:
    named = bool(raw.envelope.harness_session_id)
    session_id = session_id_of(raw.envelope) if named else ""
    return Skipped(raw.id, raw.request_id, session_id, reason)


# --- one session ------------------------------------------------------------------------------


def _session(
    told: _Told, session_id: str, price: Pricing, memory: Memory
) -> tuple[Projection, list[RawTurn]]:
    """The rows of a session, and what was told of it that shows nowhere."""
    readings = [*told.readings, *calls_told(told.notes, told.readings)]
    seen, lost = spans_of(told.spans, memory.spans)
    if not readings and not seen:
        return Projection(), lost
    first = readings[0].raw if readings else seen[0].raw
    owner = Owner(session_id, first.envelope.org_id or NO_ORG)
    made = memory.made.setdefault(session_id, _Made())
    calls = made.calls.of(readings, first.envelope.harness_id, memory.addresses)
    prices = prices_of(calls, price)
    placing = Placing(calls, told.notes)
    maker, rows = Spans(placing, owner, prices, made.spans), Traces(owner, prices, made.traces)
    drawn = [(draft, maker.of(draft)) for draft in placing.drafts]
    on_wire = frozenset(call.turn.answer.id for call in calls if call.turn.answer.id)
    otlp = told_by(seen, on_wire, owner, price, memory.addresses)
    traces = [rows.of(draft, spans) for draft, spans in drawn] + otlp.traces
    made.spans, made.traces = maker.made, rows.made
    spans = [span for _, its_spans in drawn for span in its_spans] + otlp.spans
    everything = sorted([*calls, *otlp.calls], key=lambda c: (c.started, c.raw.id, c.id))
    raws = sorted([*(call.raw for call in calls), *otlp.raws], key=lambda r: (moments(r)[0], r.id))
    session = _session_row(
        session_id,
        raws,
        everything,
        traces,
        spans,
        [*placing.tools.values(), *otlp.tools],
        prices | prices_of(otlp.calls, price),
    )
    links = [*links_of(placing, owner), *otlp.links]
    return Projection((session,), tuple(traces), tuple(spans), tuple(links)), lost


def _session_row(
    session_id: str,
    raws: Sequence[RawTurn],
    calls: Sequence[Call],
    traces: Sequence[Trace],
    spans: Sequence[Span],
    tools: Sequence[ToolUse],
    prices: Mapping[str, Decimal | None],
) -> Session:
    said = _said([raw.envelope for raw in raws])
    total = totals(calls, prices)
    leads = [call for call in calls if call.leads]
    results = [tool_status(tool) for tool in tools if tool.result is not None]
    prompts = (trace.user_prompt for trace in traces if not trace.synthetic)
    preview = next((prompt for prompt in prompts if prompt), "")[:SESSION_PREVIEW]
    named = (trace.name for trace in traces if trace.name)
    ended = [*(call.ended for call in calls), *(trace.ended_at or 0 for trace in traces)]
    return Session(
        id=session_id,
        org_id=said.org_id or NO_ORG,
        auth_subject=said.auth_subject,
        harness_id=said.harness_id,
        harness_session_id=said.harness_session_id,
        session_by=next((raw.session_by for raw in raws if raw.session_by), ""),
        name=said.name,
        cwd=said.cwd,
        harness_version=said.harness_version,
        agent_name=next((raw.agent_name for raw in reversed(raws) if raw.agent_name), ""),
        parent_session_id=parent_session_id_of(said),
        started_at=min([*(c.started for c in calls), *(t.started_at for t in traces)]),
        last_seen_at=max(ended),
        harness_metadata=said.harness_metadata,
        total_input_tokens=total.input,
        total_output_tokens=total.output,
        cache_read_tokens=total.cache_read,
        cache_creation_tokens=total.cache_write,
        reasoning_tokens=total.reasoning,
        total_cost_usd=total.spent,
        saved_cost_usd=total.saved,
        llm_calls=total.calls,
        replayed_calls=total.replayed,
        failed_calls=total.failed,
        unpriced_calls=total.unpriced,
        uncounted_calls=total.uncounted,
        turn_count=len(traces),
        derived_status=status_of(leads, tools),
        has_git_activity=has_git_activity(tools),
        tool_result_count=len(results),
        tool_error_count=sum(status is Status.ERROR for status in results),
        derived_title=title_of(calls) or ("" if preview else next(named, "")),
        preview=preview,
        derived_model=model_of(leads),
        model_usage=model_usage(calls, prices),
        tasks=tasks_of(tools),
        kind_counts=kind_counts(spans),
        fidelity=worst(span.fidelity for span in spans),
    )


def _said(envelopes: Sequence[Envelope]) -> Envelope:
    """What a session's calls say of it together: later words replace earlier ones."""
    said: dict[str, Any] = {}
    metadata: dict[str, Json] = {}
    before: Envelope | None = None
    for envelope in envelopes:
        if envelope == before:  # most say the same again
            continue
        before = envelope
        given = ((name, getattr(envelope, name)) for name in Envelope.__slots__)
        said |= {name: value for name, value in given if value}
        if isinstance(envelope.harness_metadata, dict):
            metadata |= envelope.harness_metadata
    return replace(envelopes[0], **said | {"harness_metadata": metadata or None})


def _placeholders(sessions: Mapping[str, _Told]) -> tuple[Session, ...]:
    """Sessions that others were forked from and of which nothing was received."""
    found: dict[str, Session] = {}
    for told in sessions.values():
        for raw in (*(reading.raw for reading in told.readings), *told.spans):
            envelope = raw.envelope
            parent = parent_session_id_of(envelope)
            if parent is None or (parent in sessions and not sessions[parent].is_empty):
                continue
            started = moments(raw)[0]
            known = found.get(parent)
            if known is None or started < known.started_at:
                found[parent] = Session(
                    id=parent,
                    org_id=envelope.org_id or NO_ORG,
                    harness_id=envelope.harness_id,
                    harness_session_id=envelope.parent_harness_session_id or "",
                    placeholder=True,
                    started_at=started,
                    last_seen_at=started,
                )
    return tuple(found.values())
