"""Spans that came over OTLP → traces and spans, each with the ids that it came with.

Rule 1: a trace of OTLP is a trace here, its spans keep their places and ids. A parent that was not
        received has a placeholder until it comes.
Rule 2: of several deliveries of one span the last state counts: that which ended last, then that
        which says most.
Rule 3: only model calls are added up, and each once: what an agent claims for its calls, or a
        wrapper for the call inside it, is shown there and added nowhere. Of two that tell of one
        answer, the outer with its words and the inner without, the outer is the call.
Rule 4: a call that the proxy saw too is shown where the proxy saw it, with its bytes.

Knows nothing of stores.  Pure.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from tapes.derive import genai
from tapes.derive.calls import Call, Reading, calls_of
from tapes.derive.chain import Addresses
from tapes.derive.missing import in_place
from tapes.derive.rollups import (
    TITLE_BYTES,
    Pricing,
    preview_of,
    prices_of,
    prompt_text,
    summed,
)
from tapes.derive.spans import Owner
from tapes.derive.tools import ToolUse
from tapes.envelope import cut
from tapes.jsontext import Json
from tapes.providers.reduced import answer_blocks, blocks_of, usage_form
from tapes.providers.turn import (
    SYSTEM_ROLES,
    Answer,
    Asked,
    Message,
    ToolCall,
    ToolResult,
    Turn,
    arguments_of,
    dicts,
    result_text,
    word,
)
from tapes.rows import (
    Fidelity,
    Link,
    LinkKind,
    Outcome,
    RawTurn,
    Span,
    SpanKind,
    Status,
    Trace,
)

NO_SPAN = "no_span"
_ERROR = 2


@dataclass(slots=True)
class Seen:
    """One span, as it was last told."""

    raw: RawTurn
    form: Mapping[str, Json]
    attributes: dict[str, Json]
    kind: SpanKind
    turn: Turn | None
    trace_id: str
    parent: str
    call: Call | None = None
    thread: str = ""

    @property
    def id(self) -> str:
        """Its own id."""
        return str(self.form["span_id"])

    @property
    def key(self) -> str:
        """What tells it from all others."""
        return f"{self.trace_id}:{self.id}"

    @property
    def started(self) -> int:
        """When it began, as its sender says."""
        return self.raw.started_at or self.raw.ended_at or self.raw.received_at

    @property
    def duration(self) -> int | None:
        """How long it took; None while it runs."""
        ended = self.raw.ended_at
        if ended is None or genai.first(self.attributes, genai.NO_LENGTH) is True:
            return None
        return max(ended - self.started, 0)

    @property
    def status(self) -> Status:
        """What became of it."""
        if self.form.get("status") == _ERROR:
            return Status.ERROR
        if self.says in (Status.ABORTED, Status.RUNNING):
            return Status(self.says)
        return Status.RUNNING if self.raw.ended_at is None else Status.OK

    @property
    def says(self) -> str:
        """The status that an export of ours gave it, where OTLP has no word for it."""
        return word(genai.first(self.attributes, genai.STATUS))

    def events(self) -> list[dict[str, Json]]:
        """What happened in it and is not the content of a model call."""
        return [e for e in dicts(self.form.get("events")) if not _is_content(word(e.get("name")))]


def _is_content(name: str) -> bool:
    return name.startswith("gen_ai.")


@dataclass(slots=True)
class Told:
    """What spans add to their session."""

    calls: list[Call] = field(default_factory=list)
    tools: list[ToolUse] = field(default_factory=list)
    traces: list[Trace] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    raws: list[RawTurn] = field(default_factory=list)


Cache = dict[tuple[int, ...], "Seen"]

# --- reading ----------------------------------------------------------------------------------


def spans_of(raws: Iterable[RawTurn], known: Cache) -> tuple[list[Seen], list[RawTurn]]:
    """The spans of a session by their start, and the log records of spans that did not come."""
    last: dict[tuple[str, str, str], RawTurn] = {}
    logs: dict[tuple[str, str], list[RawTurn]] = {}
    for raw in raws:
        form = raw.records
        if not isinstance(form, dict):
            continue
        place = (word(form.get("trace_id")), word(form.get("span_id")))
        if "event" in form:
            logs.setdefault(place, []).append(raw)
            continue
        key = (*place, _part(raw))
        if key not in last or _rank(raw) > _rank(last[key]):
            last[key] = raw
    found = [
        _seen(raw, sorted(logs.get(key[:2], ()), key=_order), known) for key, raw in last.items()
    ]
    there = {key[:2] for key in last}
    lost = [raw for at, its in logs.items() for raw in its if at not in there]
    return sorted(found, key=lambda seen: (seen.started, seen.trace_id, seen.id)), lost


def _part(raw: RawTurn) -> str:
    return word(raw.meta.get("part")) if isinstance(raw.meta, dict) else ""


def _rank(raw: RawTurn) -> tuple[int, int, int, str]:
    said = raw.records.get("attributes")
    return raw.ended_at or 0, len(said) if isinstance(said, dict) else 0, raw.id, raw.request_id


def _order(raw: RawTurn) -> tuple[int, int, str]:
    return raw.started_at or 0, raw.id, raw.request_id


def _seen(raw: RawTurn, logs: Sequence[RawTurn], known: Cache) -> Seen:
    key = (raw.id, *(log.id for log in logs))
    if raw.id and key in known:
        return replace(known[key], raw=raw, call=None, thread="")
    form = raw.records
    plain = form.get("attributes")
    events = [(word(e.get("name")), e.get("attributes")) for e in dicts(form.get("events"))]
    exception = next((held for name, held in events if name == "exception"), None)
    events += [(word(log.records.get("event")), _log_content(log.records)) for log in logs]
    attributes = genai.with_events(plain if isinstance(plain, dict) else {}, events)
    kind = genai.kind_of(attributes)
    told = genai.Told(
        failed=form.get("status") == _ERROR
        or genai.first(attributes, genai.STATUS) == Status.ABORTED,
        ended=raw.ended_at is not None,
        message=word(form.get("message")),
        exception=word(exception.get("exception.type")) if isinstance(exception, dict) else "",
    )
    part = _part(raw)
    trace_id = word(form.get("trace_id"))
    seen = Seen(
        raw=raw,
        form=form,
        attributes=attributes,
        kind=kind,
        turn=genai.turn_of(attributes, told) if kind is SpanKind.LLM else None,
        trace_id=f"{trace_id}-{part}" if part else trace_id,
        parent=word(form.get("parent_id")),
    )
    known[key] = replace(seen)
    return seen


def _log_content(form: Mapping[str, Json]) -> dict[str, Json]:
    body, held = form.get("body"), form.get("attributes")
    return (held if isinstance(held, dict) else {}) | (body if isinstance(body, dict) else {})


# --- a session --------------------------------------------------------------------------------


def told_by(
    seen: Sequence[Seen],
    on_wire: frozenset[str],
    owner: Owner,
    price: Pricing,
    addresses: Addresses,
) -> Told:
    """What spans tell of their session. `on_wire` are the answers that the proxy saw there."""
    told = Told(raws=[span.raw for span in seen])
    by_trace: dict[str, list[Seen]] = {}
    for span in seen:
        by_trace.setdefault(span.trace_id, []).append(span)
    traces: dict[str, list[Seen]] = {}
    for name, spans in by_trace.items():
        known = {s.id for s in spans if s.turn is not None and s.turn.answer.id in on_wire}
        _break_circles(spans)
        _set_apart(spans)  # first: what is around a call that is shown elsewhere is no call either
        traces[name] = _without(spans, known)
    _call(seen, addresses)
    # Only spans that are shown have calls that count.
    shown = [span for spans in traces.values() for span in spans]
    told.calls = [span.call for span in shown if span.call is not None]
    told.calls.sort(key=lambda call: (call.started, call.id))
    prices = prices_of(told.calls, price)
    for trace_id, spans in traces.items():
        if spans:
            _draw(told, trace_id, spans, owner, prices)
    told.links += _links(shown, owner)
    return told


def _break_circles(spans: Sequence[Seen]) -> None:
    """Where parents lead back to their own child, whichever began first hangs at the top.

    Else nobody who goes down from the top would ever come to them.
    """
    by_id = {span.id: span for span in spans}
    clear = set[str]()
    for span in spans:
        way: dict[str, Seen] = {}
        at: Seen | None = span
        while at is not None and at.id not in clear and at.id not in way:
            way[at.id] = at
            at = by_id.get(at.parent)
        if at is not None and at.id in way:
            ids = list(way)
            circle = [way[each] for each in ids[ids.index(at.id) :]]
            min(circle, key=lambda seen: (seen.started, seen.id)).parent = ""
        clear |= way.keys()


def _without(spans: list[Seen], known: set[str]) -> list[Seen]:
    """The spans without the calls that are shown elsewhere; what hangs there hangs above."""
    gone = {span.id: span.parent for span in spans if span.id in known}
    kept = [span for span in spans if span.id not in gone]
    for span in kept:
        passed = set[str]()
        while span.parent in gone and span.parent not in passed:
            passed.add(span.parent)
            span.parent = gone[span.parent]
    return kept


def _set_apart(spans: Sequence[Seen]) -> None:
    """Tell calls from their wrappers, and sub-agents from the main one (rule 3)."""
    by_id = {span.id: span for span in spans}
    ordered = _outer_first(spans, by_id)
    around: dict[str, tuple[str, ...]] = {}  # the two agents that are nearest around a span
    for span in ordered:
        above, agents = by_id.get(span.parent), around.get(span.parent, ())
        if above is not None and above.kind is SpanKind.AGENT:
            agents = (above.id, *agents[:1])
        around[span.id] = agents
        span.thread = agents[0] if len(agents) > 1 else ""
    for span in ordered:
        if _is_sending(span, by_id.get(span.parent)):
            span.kind, span.turn = SpanKind.STEP, None
    wrappers = set[str]()
    for span in reversed(ordered):
        if span.turn is None and span.id not in wrappers:
            continue
        wrappers.add(span.parent)
        if span.turn is not None and span.id in wrappers:
            span.kind, span.turn = SpanKind.STEP, None


def _is_sending(span: Seen, above: Seen | None) -> bool:
    """Whether it is how a client sent the call above it, of which it has no words."""
    if span.turn is None or above is None or above.turn is None or span.turn.asked.messages:
        return False
    return bool(span.turn.answer.id) and span.turn.answer.id == above.turn.answer.id


def _outer_first(spans: Sequence[Seen], by_id: Mapping[str, Seen]) -> list[Seen]:
    """Every span behind what it lies in. Of those that name each other the first comes last."""
    ordered: dict[str, Seen] = {}
    for span in spans:
        path: dict[str, Seen] = {}
        here: Seen | None = span
        while here is not None and here.id not in ordered and here.id not in path:
            path[here.id] = here
            here = by_id.get(here.parent)
        ordered |= dict(reversed(path.items()))
    return list(ordered.values())


def _call(seen: Sequence[Seen], addresses: Addresses) -> None:
    """Make the model calls of a session, each with what it says first."""
    readings = []
    by_key = {}
    for span in seen:
        if span.turn is not None:
            told = word(genai.first(span.attributes, genai.OUTCOME))
            outcome = Outcome(told) if told in tuple(Outcome) else Outcome.LIVE
            raw = replace(
                span.raw,
                request_id=span.key,
                thread_id=span.thread,
                started_at=span.started,
                outcome=outcome,
            )
            readings.append(Reading(raw, span.turn))
            by_key[span.key] = span
    for call in calls_of(readings, "", addresses):
        by_key[call.id].call = call


# --- rows -------------------------------------------------------------------------------------


def _draw(
    told: Told,
    trace_id: str,
    seen: Sequence[Seen],
    owner: Owner,
    prices: Mapping[str, Decimal | None],
) -> None:
    drawn = [row for span in seen for row in _rows(span, owner, prices)]
    spans = in_place(drawn)
    told.spans += spans
    told.tools += [_tool_use(span) for span in seen if span.kind is SpanKind.TOOL]
    calls = [span.call for span in seen if span.call is not None]
    started = min(span.started for span in seen)
    ended = max(span.started + (span.duration or 0) for span in seen)
    trace = Trace(
        trace_id=trace_id,
        session_id=owner.session_id,
        org_id=owner.org_id,
        name=_name(seen),
        user_prompt=_prompt(seen),
        response_preview=_preview(seen),
        status=_status(spans),
        source="otlp",
        started_at=started,
        ended_at=ended,
        duration_ns=ended - started,
    )
    told.traces.append(summed(trace, calls, spans, prices))


def _status(spans: Sequence[Span]) -> Status:
    """That of what hangs nowhere; an error of one of several is the trace's."""
    known = {span.span_id: span for span in spans if span.status is not Status.MISSING}
    tops = [s.status for s in known.values() if s.parent_span_id not in known]
    worst_first = (Status.ERROR, Status.ABORTED, Status.RUNNING, Status.OK)
    return next((status for status in worst_first if status in tops), Status.OK)


def _rows(span: Seen, owner: Owner, prices: Mapping[str, Decimal | None]) -> Iterator[Span]:
    base = Span(
        trace_id=span.trace_id,
        session_id=owner.session_id,
        org_id=owner.org_id,
        span_id=span.id,
        parent_span_id=span.parent,
        kind=span.kind,
        name=word(span.form.get("name")) or "span",
        status=span.status,
        thread_id=span.thread,
        started_at=span.started,
        duration_ns=span.duration,
        raw_turn_id=span.raw.id,
        request_id=span.raw.request_id,
        fidelity=Fidelity.REDUCED,
    )
    told = word(genai.first(span.attributes, genai.ERROR))
    if span.status is Status.ERROR:
        base = replace(base, error_type=told or word(span.form.get("message"))[:200] or "_OTHER")
    elif span.status is Status.ABORTED:
        base = replace(base, error_type=told)
    shown = _shown(base, span, prices)
    yield replace(shown, input=(*shown.input, *_rest(span)))
    for number, event in enumerate(span.events()):
        yield _event(base, number, event)


def _rest(span: Seen) -> Iterator[dict[str, Json]]:
    """What else a span says, as it came; of a root also what it says of its program."""
    left = genai.left_over(span.attributes, span.kind)
    if left:
        yield {"type": "attributes", "content": left}
    if not span.parent:
        resource, scope = span.form.get("resource"), word(span.form.get("scope"))
        about = (resource if isinstance(resource, dict) else {}) | (
            {"otel.scope.name": scope} if scope else {}
        )
        if about:
            yield {"type": "resource", "content": about}


def _shown(base: Span, span: Seen, prices: Mapping[str, Decimal | None]) -> Span:
    match span.kind:
        case SpanKind.LLM if span.call is not None:
            return _llm(base, span.call, span.attributes, prices)
        case SpanKind.TOOL:
            use = _tool_use(span)
            output = () if use.result is None else tuple(blocks_of([use.result]))
            name = use.block.name or base.name
            return replace(base, name=name, input=tuple(blocks_of([use.block])), output=output)
        case SpanKind.AGENT:
            asked = genai.messages_of(genai.first(span.attributes, genai.INPUT))
            said = genai.messages_of(genai.first(span.attributes, genai.OUTPUT), "assistant")
            return replace(
                base,
                agent=word(genai.first(span.attributes, genai.AGENT_NAME)),
                input=tuple(_blocks(message for message, _ in asked)),
                output=tuple(_blocks(message for message, _ in said)),
                usage=usage_form(genai.usage_of(span.attributes)) or None,
            )
    return replace(base, usage=usage_form(genai.usage_of(span.attributes)) or None)


def _blocks(messages: Iterable[Message]) -> Iterator[dict[str, Json]]:
    for message in messages:
        if message.role not in SYSTEM_ROLES:
            yield from blocks_of(message.parts)


def _llm(
    base: Span, call: Call, attributes: Mapping[str, Json], prices: Mapping[str, Decimal | None]
) -> Span:
    answer = call.turn.answer
    new = (node.message for _, node in call.new_messages() if node.message.role != "assistant")
    first = genai.first(attributes, genai.FIRST_CHUNK)
    known = isinstance(first, int | float) and 0 <= first < 7 * 86_400
    return replace(
        base,
        name=call.turn.model or base.name,
        error_type=call.error_type if base.error_type else "",
        call_kind=call.kind,
        provider=call.turn.provider,
        model=call.turn.model,
        request_model=call.turn.asked.model,
        response_id=answer.id,
        stop_reason=answer.finish_reason or "",
        outcome=call.raw.outcome.value,
        first_chunk_ns=round(float(first) * 1_000_000_000) if known else None,
        input=tuple(_blocks(new)),
        output=tuple(answer_blocks(answer)),
        usage=usage_form(answer.usage, call.duration) or None,
        cost_usd=prices.get(call.id),
        node_hash=call.answer_hash,
    )


def _event(base: Span, number: int, event: Mapping[str, Json]) -> Span:
    held, at = event.get("attributes"), event.get("time")
    name = word(event.get("name")) or "event"
    content: Json = held if isinstance(held, dict) else {}
    return replace(
        base,
        span_id=f"evt_{base.span_id}_{number}",
        parent_span_id=base.span_id,
        kind=SpanKind.EVENT,
        name=name,
        status=Status.ERROR if name == "exception" else Status.OK,
        error_type=word(content.get("exception.type")),
        started_at=at if isinstance(at, int) and at > 0 else base.started_at,
        duration_ns=None,
        input=({"type": "attributes", "content": content},) if content else (),
    )


def _tool_use(span: Seen) -> ToolUse:
    """The tool call that a span tells of, and its result."""
    given = genai.given_to_tool(span.attributes)
    arguments, raw = (given, None) if isinstance(given, dict) else arguments_of(given)
    name = word(genai.first(span.attributes, genai.TOOL_NAME)) or word(span.form.get("name"))
    call_id = word(genai.first(span.attributes, genai.TOOL_ID)) or span.id
    got = genai.first(span.attributes, genai.TOOL_RESULT)
    failed = span.status is Status.ERROR
    result = None
    if got is not None or failed:
        output, original = result_text(got)
        result = ToolResult(call_id, output or word(span.form.get("message")), failed, original)
    block = ToolCall(call_id, name, arguments, raw)
    asked_by = Call(
        raw=span.raw,
        turn=Turn("", "otlp", Asked(), Answer()),
        id=span.key,
        thread=span.thread,
        kind="",
        started=span.started,
        duration=span.duration,
    )
    return ToolUse(asked_by, block, 0, result)


# --- what flows -------------------------------------------------------------------------------


def _links(shown: Sequence[Seen], owner: Owner) -> Iterator[Link]:
    """From the calls that ask for tools to these, and on to the calls that hear of the result."""
    emitted: dict[str, Seen] = {}
    heard: dict[str, Seen] = {}
    for span in sorted(shown, key=lambda s: (s.started, s.id)):
        if span.call is None:
            continue
        for part in span.call.turn.answer.parts:
            if isinstance(part, ToolCall) and part.id:
                emitted.setdefault(part.id, span)
        for _, node in span.call.new_messages():
            for part in node.message.parts:
                if isinstance(part, ToolResult) and part.id:
                    heard.setdefault(part.id, span)
    for span in shown:
        call_id = word(genai.first(span.attributes, genai.TOOL_ID))
        if span.kind is not SpanKind.TOOL or not call_id:
            continue
        if call_id in emitted:
            yield _link(owner, LinkKind.EMITS, (emitted[call_id], "output"), (span, "input"))
        if call_id in heard:
            yield _link(owner, LinkKind.FEEDS, (span, "output"), (heard[call_id], "input"))


def _link(owner: Owner, kind: LinkKind, source: tuple[Seen, str], to: tuple[Seen, str]) -> Link:
    return Link(
        from_trace_id=source[0].trace_id,
        from_span_id=source[0].id,
        from_io=source[1],
        to_trace_id=to[0].trace_id,
        to_span_id=to[0].id,
        to_io=to[1],
        kind=kind,
        session_id=owner.session_id,
        org_id=owner.org_id,
    )


# --- for people -------------------------------------------------------------------------------


def _name(seen: Sequence[Seen]) -> str:
    """That of the first span that hangs on no other one that is known."""
    known = {span.id for span in seen}
    tops = (span for span in seen if span.parent not in known)
    first = min(tops, key=lambda span: (span.started, span.id), default=seen[0])
    return cut(word(first.form.get("name")), TITLE_BYTES)


def _prompt(seen: Sequence[Seen]) -> str:
    """The words with which it began: those of an agent, else those of the first call."""
    for span in seen:
        if span.kind is SpanKind.AGENT:
            asked = genai.messages_of(genai.first(span.attributes, genai.INPUT))
            own = [message for message, _ in asked if message.role == "user"]
            if own and prompt_text(own[-1]):
                return prompt_text(own[-1])
        if span.call is not None and span.call.prompt is not None:
            return prompt_text(span.call.prompt)
    return ""


def _preview(seen: Sequence[Seen]) -> str:
    calls = [span.call for span in seen if span.call is not None and span.call.leads]
    return preview_of(calls)
