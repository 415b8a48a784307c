"""Raw turns → the rows of the read model, in passes: read, sort by session, order, weave, sum up.

Rule 1: the same turns give the same rows, in whatever order they come. Running it again changes
        nothing, and a session alone gives its part of the whole.
Rule 2: a turn that shows nowhere is counted, with its reason.

Knows nothing of stores or schedules; prices come in as a function.  Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

from tapes.derive.belonging import with_sessions
from tapes.derive.calls import Call, Reading, calls_of
from tapes.derive.chain import Addresses, with_ids
from tapes.derive.placing import Placing
from tapes.derive.rollups import (
    SESSION_PREVIEW,
    Pricing,
    has_git_activity,
    kind_counts,
    model_of,
    model_usage,
    prices_of,
    status_of,
    tasks_of,
    title_of,
    totals,
    trace_of,
    unpriced,
    worst,
)
from tapes.derive.spans import Owner, Spans, links_of
from tapes.derive.tools import ToolUse, tool_status
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
    Status,
    Trace,
    moments,
    parent_session_id_of,
    session_id_of,
    together,
)


class Memory:
    """What a pass may remember for the next one: it changes the speed, never the result.

    Keep one for each session that goes on, and let it go when the session rests.
    """

    def __init__(self) -> None:
        self.addresses = Addresses()
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
    wire, transcripts = _sorted_by_source(turns)
    memory = memory or Memory()
    readings, skipped = list[Reading](), list[tuple[RawTurn, str]]()
    for raw in wire:
        turn = memory.read(raw)
        if isinstance(turn, DropReason):
            skipped.append((raw, turn.value))
        else:
            readings.append(Reading(raw, turn))
    sessions: dict[str, list[Reading]] = {}
    for reading in with_sessions(readings):
        sessions.setdefault(session_id_of(reading.raw.envelope), []).append(reading)
    notes: dict[str, list[RawTurn]] = {}
    for raw in transcripts:
        notes.setdefault(session_id_of(raw.envelope), []).append(raw)
    parts = [
        _session(
            calls_of(its_readings, its_readings[0].raw.envelope.harness_id, memory.addresses),
            notes.get(session_id, ()),
            session_id,
            price,
        )
        for session_id, its_readings in sessions.items()
    ]
    parts.append(Projection(skipped=tuple(_skipped(raw, why) for raw, why in skipped)))
    parts.append(Projection(sessions=_placeholders(sessions)))
    return together(parts)


def _sorted_by_source(turns: Iterable[RawTurn]) -> tuple[list[RawTurn], list[RawTurn]]:
    """The turns of the wire and those of transcripts; of equal request ids the first row."""
    by_identity: dict[tuple[str, str], RawTurn] = {}
    for raw in turns:
        identity = raw.request_id or f"row {raw.id}"
        key = (raw.envelope.org_id or NO_ORG, identity)
        if key not in by_identity or raw.id < by_identity[key].id:
            by_identity[key] = raw
    kept = by_identity.values()
    wire = [raw for raw in kept if raw.source is Source.WIRE]
    return wire, [raw for raw in kept if raw.source is Source.TRANSCRIPT]


def _skipped(raw: RawTurn, reason: str) -> Skipped:
    named = bool(raw.envelope.harness_session_id)
    session_id = session_id_of(raw.envelope) if named else ""
    return Skipped(raw.id, raw.request_id, session_id, reason)


# --- one session ------------------------------------------------------------------------------


def _session(
    calls: Sequence[Call], transcripts: Sequence[RawTurn], session_id: str, price: Pricing
) -> Projection:
    prices = prices_of(calls, price)
    owner = Owner(session_id, calls[0].raw.envelope.org_id or NO_ORG)
    placing = Placing(calls, transcripts)
    maker = Spans(placing, owner, prices)
    drawn = [(draft, tuple(maker.of(draft))) for draft in placing.drafts]
    traces = [trace_of(draft, spans, owner, prices) for draft, spans in drawn]
    spans = [span for _, its_spans in drawn for span in its_spans]
    session = replace(
        _session_row(session_id, calls, traces, list(placing.tools.values()), prices),
        kind_counts=kind_counts(spans),
        fidelity=worst(span.fidelity for span in spans),
    )
    links = links_of(placing, owner)
    return Projection((session,), tuple(traces), tuple(spans), tuple(links))


def _session_row(
    session_id: str,
    calls: Sequence[Call],
    traces: Sequence[Trace],
    tools: Sequence[ToolUse],
    prices: Mapping[str, Decimal | None],
) -> Session:
    said = _said([call.raw.envelope for call in calls])
    total = totals(calls, prices)
    leads = [call for call in calls if call.leads]
    results = [tool_status(tool) for tool in tools if tool.result is not None]
    prompts = (trace.user_prompt for trace in traces if not trace.synthetic)
    return Session(
        id=session_id,
        org_id=said.org_id or NO_ORG,
        auth_subject=said.auth_subject,
        harness_id=said.harness_id,
        harness_session_id=said.harness_session_id,
        session_by=next((c.raw.session_by for c in calls if c.raw.session_by), ""),
        name=said.name,
        cwd=said.cwd,
        harness_version=said.harness_version,
        agent_name=next((c.raw.agent_name for c in reversed(calls) if c.raw.agent_name), ""),
        parent_session_id=parent_session_id_of(said),
        started_at=calls[0].started,
        last_seen_at=max(call.ended for call in calls),
        harness_metadata=said.harness_metadata,
        total_input_tokens=total.input,
        total_output_tokens=total.output,
        cache_read_tokens=total.cache_read,
        cache_creation_tokens=total.cache_write,
        reasoning_tokens=total.reasoning,
        total_cost_usd=total.cost,
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
        derived_title=title_of(calls),
        preview=next((prompt for prompt in prompts if prompt), "")[:SESSION_PREVIEW],
        derived_model=model_of(leads),
        model_usage=model_usage(calls, prices),
        tasks=tasks_of(tools),
    )


def _said(envelopes: Sequence[Envelope]) -> Envelope:
    """What a session's calls say of it together: later words replace earlier ones."""
    together_said = envelopes[0]
    metadata: dict[str, Json] = {}
    for envelope in envelopes:
        given = {name: getattr(envelope, name) for name in Envelope.__slots__}
        if isinstance(envelope.harness_metadata, dict):
            metadata |= envelope.harness_metadata
        together_said = replace(together_said, **{n: v for n, v in given.items() if v})
    return replace(together_said, harness_metadata=metadata or None)


def _placeholders(sessions: Mapping[str, Sequence[Reading]]) -> tuple[Session, ...]:
    """Sessions that others were forked from and of which nothing was received."""
    found: dict[str, Session] = {}
    for readings in sessions.values():
        for raw in (reading.raw for reading in readings):
            envelope = raw.envelope
            parent = parent_session_id_of(envelope)
            if parent is None or parent in sessions:
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
