"""Calls in their places → the spans of each trace, and the links between spans.

Rule 1: ids are made from captured identity alone: the same call has the same span for ever.
Rule 2: a span shows what its call added. A tool call is one span, from the answer that asks for it
        to the request that brings its result; without a result it is running.
Rule 3: spans of a trace are ordered by their start, the main agent first.
Rule 4: the spans of a call that is as it was in the last pass, with all that hangs on it, are the
        very ones that were made then: nobody has to make them, or hash them, again.

Knows nothing of titles or totals.  Pure.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import NamedTuple, TypedDict

from tapes.derive.anchors import UNANCHORED
from tapes.derive.calls import Call, first_chunk
from tapes.derive.missing import missing_span
from tapes.derive.placing import Draft, Lane, Placing
from tapes.derive.tools import ToolUse, shown_name, tool_status
from tapes.exchange import Response
from tapes.jsontext import Json
from tapes.providers.reduced import answer_blocks, blocks_of, usage_form
from tapes.providers.turn import SYSTEM_ROLES, ToolCall, ToolResult
from tapes.rows import Fidelity, Link, LinkKind, RawTurn, Span, SpanKind

SYSTEM_INSERT = "injected:system-insert"


class Owner(NamedTuple):
    """Whose traces these are."""

    session_id: str
    org_id: str


class _Owned(TypedDict):
    trace_id: str
    session_id: str
    org_id: str
    seq: int


# What spans follow from: where it is the same, they are.
_Of = tuple[object, ...]
# Not numbered yet, so that nobody else has it.
_NEW = -1


@dataclass(slots=True)
class _MadeTrace:
    """The spans of a trace, and those of each of its calls by itself."""

    of: _Of = ()
    spans: tuple[Span, ...] = ()
    calls: dict[str, tuple[_Of, list[Span]]] = field(default_factory=dict)


MadeSpans = dict[str, _MadeTrace]


class Spans:
    """Makes the spans of the traces of one session. `made` are those of this pass, by trace."""

    def __init__(
        self,
        placing: Placing,
        owner: Owner,
        prices: Mapping[str, Decimal | None],
        before: MadeSpans | None = None,
    ) -> None:
        self._placing, self._owner, self._prices = placing, owner, prices
        self._before: MadeSpans = before or {}
        self.made: MadeSpans = {}

    def _owned(self, draft: Draft) -> _Owned:
        session_id, org_id = self._owner
        return {
            "trace_id": draft.id,
            "session_id": session_id,
            "org_id": org_id,
            "seq": _NEW,
        }

    def of(self, draft: Draft) -> tuple[Span, ...]:
        """The spans of a trace in order, the main agent first."""
        before = self._before.get(draft.id) or _MadeTrace()
        of_calls = [self._call_follows_from(draft, call) for call in draft.calls]
        of = (draft.opening, *map(self._lane_follows_from, draft.lanes), *of_calls)
        if before.of != of:
            made = _MadeTrace(of)
            for call, of_call in zip(draft.calls, of_calls, strict=True):
                known = before.calls.get(call.id)
                if known is None or known[0] != of_call:
                    known = of_call, list(self._call_spans(draft, call))
                made.calls[call.id] = known
            made.spans = tuple(self._in_order(draft, made))
            before = made
        self.made[draft.id] = before
        return before.spans

    def _in_order(self, draft: Draft, trace: _MadeTrace) -> Iterator[Span]:
        main = self._main_lane(draft)
        lanes = {lane.calls[0].id: lane for lane in draft.lanes}
        made: list[Span] = []
        for call in draft.calls:
            if call.id in lanes:
                made += self._lane_spans(draft, lanes[call.id])
            made += trace.calls[call.id][1]
        made.sort(key=lambda span: span.started_at)
        ended = max(
            (span.started_at + (span.duration_ns or 0) for span in made), default=main.started_at
        )
        yield replace(main, duration_ns=max(ended - main.started_at, 0), seq=0)
        for seq, span in enumerate(made, 1):
            if span.seq == _NEW:
                # To copy all that was made a moment ago takes a tenth of the time.
                object.__setattr__(span, "seq", seq)
            yield span if span.seq == seq else replace(span, seq=seq)

    def _main_lane(self, draft: Draft) -> Span:
        raw = draft.opening.raw
        leading = [call for call in draft.calls if call.leads] or draft.calls
        return Span(
            **self._owned(draft),
            span_id=draft.root,
            kind=SpanKind.AGENT,
            name="main",
            agent=raw.agent_name,
            status=leading[-1].status,
            started_at=draft.opening.started,
        )

    def _lane_spans(self, draft: Draft, lane: Lane) -> Iterator[Span]:
        """The agent of a thread, after the placeholder of a tool call that was not received."""
        anchor = lane.anchor
        began = lane.calls[0].started
        if anchor is not None and lane.parent not in self._placing.tools:
            missing = missing_span(draft.id, lane.parent, draft.root, began)
            yield replace(missing, **self._owned(draft))
        yield Span(
            **self._owned(draft),
            span_id=lane.span_id,
            parent_span_id=lane.parent,
            kind=SpanKind.AGENT,
            name="subagent",
            agent=anchor.agent if anchor else "",
            anchor=anchor.by if anchor else UNANCHORED,
            status=lane.calls[-1].status,
            thread_id=lane.thread,
            started_at=began,
            duration_ns=max(call.ended for call in lane.calls) - began,
        )

    def _lane_follows_from(self, lane: Lane) -> _Of:
        known = lane.parent in self._placing.tools
        return (lane.span_id, lane.thread, lane.parent, known, lane.anchor, *lane.calls)

    def _call_follows_from(self, draft: Draft, call: Call) -> _Of:
        verdicts, tools = self._placing.verdicts, list[object]()
        for part in call.turn.answer.parts if call.is_conversation else ():
            tool = self._placing.tools.get(part.id) if isinstance(part, ToolCall) else None
            if tool is None or tool.asked_by is not call or tool.block is not part:
                continue
            lane = self._placing.lane_of_tool.get(tool.id)
            began = None if lane is None else (lane.anchor, lane.calls[0].started)
            tools += (tool.id, tool.result, tool.brought_by, began, verdicts.get(tool.id))
        price = self._prices.get(call.id)
        return (call, self._owner, draft.parents[call.id], price, verdicts.get(call.id), *tools)

    def _call_spans(self, draft: Draft, call: Call) -> Iterator[Span]:
        yield self._llm_span(draft, call)
        if not call.is_conversation:
            return
        agent = draft.parents[call.id]
        for part in call.turn.answer.parts:
            tool = self._placing.tools.get(part.id) if isinstance(part, ToolCall) else None
            if tool is not None and tool.asked_by is call and tool.block is part:
                yield self._tool_span(draft, tool, agent)
        yield from self._event_spans(draft, call, agent)

    def _llm_span(self, draft: Draft, call: Call) -> Span:
        raw, answer = call.raw, call.turn.answer
        return Span(
            **self._owned(draft),
            span_id=f"llm_{call.id}",
            parent_span_id=draft.parents[call.id],
            kind=SpanKind.LLM,
            name=call.turn.model or "llm",
            status=call.status,
            error_type=call.error_type,
            call_kind=call.kind,
            thread_id=call.thread,
            provider=call.turn.provider,
            model=call.turn.model,
            request_model=call.turn.asked.model,
            response_id=answer.id,
            stop_reason=answer.finish_reason or "",
            outcome=raw.outcome.value,
            started_at=call.started,
            duration_ns=call.duration,
            first_chunk_ns=first_chunk(raw),
            input=tuple(_input_of(call)),
            output=tuple(answer_blocks(answer)),
            usage=usage_form(answer.usage, call.duration) or None,
            cost_usd=self._prices.get(call.id),
            raw_turn_id=raw.id,
            request_id=raw.request_id,
            node_hash=call.answer_hash,
            verdict=self._placing.verdicts.get(call.id),
            fidelity=fidelity_of(raw),
        )

    def _tool_span(self, draft: Draft, tool: ToolUse, agent: str) -> Span:
        block = blocks_of([tool.block])[0]
        lane = self._placing.lane_of_tool.get(tool.id)
        if tool.block.name == "spawn_agent" and lane is not None and lane.anchor is not None:
            told = {"subagent_type": lane.anchor.agent, "description": lane.anchor.description}
            block["tool_input"] = block.get("tool_input", {}) | told
        result = tool.result
        started, duration = _tool_times(tool, lane)
        return Span(
            **self._owned(draft),
            span_id=tool.id,
            parent_span_id=agent,
            kind=SpanKind.TOOL,
            name=shown_name(tool.block),
            status=tool_status(tool),
            thread_id=tool.asked_by.thread,
            started_at=started,
            duration_ns=duration,
            input=(block,),
            output=() if result is None else tuple(blocks_of([result])),
            verdict=self._placing.verdicts.get(tool.id),
        )

    def _event_spans(self, draft: Draft, call: Call, agent: str) -> Iterator[Span]:
        opening = _leading_instructions(call)
        for index, node in call.new_messages():
            inserted = node.message.role in SYSTEM_ROLES and index >= opening
            kind = node.injected or (SYSTEM_INSERT if inserted else "")
            if not kind or call.repeated:
                continue
            yield Span(
                **self._owned(draft),
                span_id=f"evt_{node.hash[:16]}",
                parent_span_id=agent,
                kind=SpanKind.EVENT,
                name=kind,
                call_kind=kind,
                thread_id=call.thread,
                started_at=call.started,
                input=tuple(blocks_of(node.message.parts)),
                raw_turn_id=call.raw.id,
                node_hash=node.hash,
                fidelity=fidelity_of(call.raw),
            )


# --- links -----------------------------------------------------------------------------------

_End = tuple[Draft, str, str]


def links_of(placing: Placing, owner: Owner) -> list[Link]:
    """What flows between the spans of one session."""
    return [
        Link(
            from_trace_id=source[0].id,
            from_span_id=source[1],
            from_io=source[2],
            to_trace_id=target[0].id,
            to_span_id=target[1],
            to_io=target[2],
            kind=kind,
            session_id=owner.session_id,
            org_id=owner.org_id,
        )
        for kind, source, target in _flows(placing)
    ]


def _flows(placing: Placing) -> Iterator[tuple[LinkKind, _End, _End]]:
    traces = {call.id: draft for draft in placing.drafts for call in draft.calls}

    def llm(call_id: str, io: str) -> _End:
        return traces[call_id], f"llm_{call_id}", io

    for tool in placing.tools.values():
        trace = placing.trace_of_tool[tool.id]
        yield LinkKind.EMITS, llm(tool.asked_by.id, "output"), (trace, tool.id, "input")
        brought = tool.brought_by
        if brought is not None and brought is not tool.asked_by:
            yield LinkKind.FEEDS, (trace, tool.id, "output"), llm(brought.id, "input")
    for draft in placing.drafts:
        for lane in draft.lanes:
            if lane.anchor is not None:
                joined = (draft, lane.parent, "output")
                yield LinkKind.REJOIN, (draft, lane.span_id, "output"), joined
        if draft.compacted_by is not None:
            seam = llm(draft.compacted_by.id, "output")
            yield LinkKind.COMPACTION_SEAM, seam, llm(draft.opening.id, "input")
    for check_id, tool_id in placing.tool_of_check.items():
        if check_id in placing.verdicts:
            judged = (traces[check_id], tool_id, "verdict")
            yield LinkKind.VERDICT, llm(check_id, "output"), judged


# --- what spans say ---------------------------------------------------------------------------


def _tool_times(tool: ToolUse, lane: Lane | None) -> tuple[int, int | None]:
    """From the end of the answer that asks for it to the request that brings its result."""
    started = tool.asked_by.ended
    if lane is not None:
        # An agent may set to work before the last byte of the answer is in.
        started = max(min(started, lane.calls[0].started), tool.asked_by.started)
    if tool.brought_by is None:
        return started, None
    if tool.brought_by is tool.asked_by:
        return tool.asked_by.started, None  # the provider ran it meanwhile
    return started, max(tool.brought_by.started - started, 0)


def _input_of(call: Call) -> Iterator[dict[str, Json]]:
    for _, node in call.new_messages():
        if node.message.role == "user" and not node.injected:
            yield from blocks_of(p for p in node.message.parts if not isinstance(p, ToolResult))


def _leading_instructions(call: Call) -> int:
    """How many messages at the beginning are the system prompt, and so no event."""
    for index, node in enumerate(call.nodes):
        if node.message.role not in SYSTEM_ROLES:
            return index
    return len(call.nodes)


def fidelity_of(raw: RawTurn) -> Fidelity:
    """What is kept of the bytes behind a raw turn."""
    if raw.dropped:
        return Fidelity.DEGRADED
    response = raw.exchange.response if raw.exchange is not None else None
    return Fidelity.RAW if isinstance(response, Response) else Fidelity.REDUCED
