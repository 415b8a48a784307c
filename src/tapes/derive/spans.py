"""Calls in order → traces, spans and links.

How it goes: calls of the main thread open traces or join the open one; then threads find the tool
call that spawned them, and threads inside threads theirs; then compactions and side calls find
their place; at last results find their tool calls, and every thing in a trace becomes a span.

Rule 1: a trace begins with words of the user that were not said before, or with what must be shown
        and has no trace yet.
Rule 2: ids are made from captured identity alone: the same call has the same span for ever.
Rule 3: a span shows what its call added. A tool call is one span, from the answer that asks for it
        to the request that brings its result; without a result it is running.
Rule 4: a thread is a lane of its own. Where its tool call is not known it is marked as unanchored
        under the root of the trace that was open, never mixed into the main thread.
Rule 5: a span that others name and nobody sent has a placeholder, whose place it takes later.

Knows nothing of prices, titles or totals.  Pure.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import NamedTuple, TypedDict

from tapes.derive.anchors import (
    UNANCHORED,
    Anchor,
    ToolUse,
    Transcript,
    anchor_of,
    judged,
    left_plan_mode,
    may_spawn,
    transcripts_of,
    used_web,
    verdict_of,
)
from tapes.derive.calls import Call, first_chunk
from tapes.derive.kinds import CHECK_1, CHECKS, COMPACTION, PLAN_NAME, WEB_SUMMARY
from tapes.exchange import Response, State
from tapes.jsontext import Json
from tapes.loosejson import loose
from tapes.providers.reduced import blocks_of, usage_form
from tapes.providers.turn import (
    SYSTEM_ROLES,
    AnswerState,
    ToolCall,
    ToolResult,
)
from tapes.rows import Fidelity, Link, LinkKind, RawTurn, Span, SpanKind, Status

SYSTEM_INSERT = "injected:system-insert"
POST_COMPACTION = "post-compaction"
SHADOW_OPENER = "shadow-opener"


# --- what is being woven ----------------------------------------------------------------------


@dataclass(slots=True)
class Lane:
    """A thread in its trace: the agent that makes its calls."""

    span_id: str
    thread: str
    parent: str = ""
    anchor: Anchor | None = None
    calls: list[Call] = field(default_factory=list)


@dataclass(slots=True)
class Draft:
    """A trace in the making. `parents` says where each call hangs."""

    opening: Call
    synthetic: str = ""
    compacted_by: Call | None = None
    calls: list[Call] = field(default_factory=list)
    parents: dict[str, str] = field(default_factory=dict)
    lanes: list[Lane] = field(default_factory=list)

    @property
    def id(self) -> str:
        """The trace's id."""
        return f"trc_{self.opening.id}"

    @property
    def root(self) -> str:
        """The span id of the main agent."""
        return f"agent_main_{self.opening.id}"

    def add(self, call: Call, parent: str) -> None:
        """One more call in this trace."""
        self.calls.append(call)
        self.parents[call.id] = parent


class Owner(NamedTuple):
    """Whose traces these are."""

    session_id: str
    org_id: str


class _Owned(TypedDict):
    trace_id: str
    session_id: str
    org_id: str


class Woven(NamedTuple):
    """A trace with its calls and its spans in order."""

    draft: Draft
    spans: tuple[Span, ...]


class Weaver:
    """Finds each call of one session its place. One use each."""

    def __init__(
        self,
        calls: Sequence[Call],
        transcripts: Sequence[RawTurn],
        owner: Owner,
        prices: Mapping[str, Decimal | None],
    ) -> None:
        self.calls = calls
        self._owner, self._prices = owner, prices
        self.drafts: list[Draft] = []
        self.tools: dict[str, ToolUse] = {}
        self.links: list[Link] = []
        self._transcripts: list[Transcript] = transcripts_of(transcripts)
        self._results = _results_in(calls)
        self._spawners: list[ToolUse] = []
        self._place: dict[str, tuple[Draft, str]] = {}  # a tool's trace and its agent's span
        self._spawned: dict[str, Lane] = {}  # by the tool call that spawned it
        self._verdicts: dict[str, dict[str, Json]] = {}
        self._judged: dict[str, str] = {}  # a side call, and the tool that it hangs under

    def weave(self) -> list[Woven]:
        """All traces in order, with their spans. The links are in `links` afterwards."""
        self._lead()
        self._place_threads()
        self._place_compactions()
        self._place_side_calls()
        self._link()
        return [Woven(draft, tuple(self._spans(draft))) for draft in self.drafts]

    # --- where calls belong

    def _lead(self) -> None:
        for call in self.calls:
            if not call.leads:
                continue
            if not self.drafts or call.prompt is not None:
                self.drafts.append(Draft(call))
            draft = self.drafts[-1]
            draft.add(call, draft.root)
            self._take_tools(call, draft, draft.root)

    def _take_tools(self, call: Call, draft: Draft, agent: str) -> None:
        """The tool calls in an answer; the first call that shows an id owns it."""
        whole = call.turn.answer.state is AnswerState.COMPLETE
        for part in call.turn.answer.parts:
            if not isinstance(part, ToolCall) or not part.id or part.id in self.tools:
                continue
            if part.raw is not None and not whole:
                continue  # cut off in its arguments: nobody can have run it
            result, brought_by = self._results.get(part.id, (None, None))
            tool = self.tools[part.id] = ToolUse(call, part, result, brought_by)
            self._place[part.id] = (draft, agent)
            if may_spawn(tool):
                self._spawners.append(tool)

    def _live_at(self, call: Call) -> Draft:
        """The trace that was open when a call was made; one is opened where there is none."""
        if not self.drafts:
            self.drafts.append(Draft(call, SHADOW_OPENER))
        before = [draft for draft in self.drafts if draft.opening.started <= call.started]
        return before[-1] if before else self.drafts[0]

    def _place_threads(self) -> None:
        waiting: dict[str, list[Call]] = {}
        for call in self.calls:
            if call.thread and call.kind not in CHECKS:
                waiting.setdefault(call.thread, []).append(call)
        while waiting:
            placed = [thread for thread, calls in waiting.items() if self._anchored(thread, calls)]
            if not placed:
                # Nothing says where the earliest hangs; others may still hang under it.
                thread = min(waiting, key=lambda name: (waiting[name][0].started, name))
                draft = self._live_at(waiting[thread][0])
                self._place_lane(
                    draft, Lane(f"agent_{thread}", thread, draft.root), waiting[thread]
                )
                placed = [thread]
            for thread in placed:
                del waiting[thread]

    def _anchored(self, thread: str, calls: Sequence[Call]) -> bool:
        taken = frozenset(self._spawned)
        anchor = anchor_of(thread, calls, self._spawners, self._transcripts, taken)
        if anchor is None:
            return False
        place = self._place.get(anchor.tool_id)
        if place is None:
            later = any(
                isinstance(part, ToolCall) and part.id == anchor.tool_id
                for call in self.calls
                for part in call.turn.answer.parts
            )
            if later:
                return False  # a thread that waits itself asks for it
            place = (self._live_at(calls[0]), "")
        lane = Lane(f"agent_{thread}", thread, anchor.tool_id, anchor)
        self._spawned[anchor.tool_id] = lane
        self._place_lane(place[0], lane, calls)
        return True

    def _place_lane(self, draft: Draft, lane: Lane, calls: Sequence[Call]) -> None:
        draft.lanes.append(lane)
        for call in calls:
            lane.calls.append(call)
            draft.add(call, lane.span_id)
            self._take_tools(call, draft, lane.span_id)

    def _place_compactions(self) -> None:
        for call in self.calls:
            if call.kind != COMPACTION or call.thread:
                continue
            draft = self._live_at(call)
            draft.add(call, draft.root)
            for following in self.drafts:
                if following.opening.started < call.started or following.opening is call:
                    continue
                following.compacted_by = call
                following.synthetic = following.synthetic or POST_COMPACTION
                break

    def _place_side_calls(self) -> None:
        checked: dict[str, ToolUse] = {}
        taken: set[str] = set()
        for call in self.calls:
            if call.leads or (call.thread and call.kind not in CHECKS):
                continue
            if call.kind == COMPACTION:
                continue
            tool = self._tool_behind(call, checked, frozenset(taken))
            if tool is None:
                draft = self._live_at(call)
                draft.add(call, draft.root)
                continue
            taken.add(tool.id)
            draft = self._place[tool.id][0]
            draft.add(call, tool.id)
            self._judged[call.id] = tool.id

    def _tool_behind(
        self, call: Call, checked: dict[str, ToolUse], taken: frozenset[str]
    ) -> ToolUse | None:
        tools = self.tools.values()
        if call.kind == WEB_SUMMARY:
            return used_web(call, tools, taken)
        if call.kind == PLAN_NAME:
            return left_plan_mode(call, tools, taken)
        if call.kind not in CHECKS:
            return None
        tool = judged(call, tools, taken)
        same = judged(call, checked.values(), frozenset())
        if call.kind != CHECK_1 and same is not None:
            tool = same  # the second stage judges what the first one did
        if tool is not None:
            checked[tool.id] = tool
            verdict = verdict_of(call, 1 if call.kind == CHECK_1 else 2)
            if verdict is not None:
                self._verdicts[call.id] = self._verdicts[tool.id] = verdict
        return tool

    # --- spans

    def _of(self, draft: Draft) -> _Owned:
        session_id, org_id = self._owner
        return {"trace_id": draft.id, "session_id": session_id, "org_id": org_id}

    def _spans(self, draft: Draft) -> Iterator[Span]:
        main = self._main_lane(draft)
        lanes = {lane.calls[0].id: lane for lane in draft.lanes}
        made: list[Span] = []
        for call in draft.calls:
            if call.id in lanes:
                made += self._lane_spans(draft, lanes[call.id])
            made += self._call_spans(draft, call)
        made.sort(key=lambda span: span.started_at)
        ended = max(
            (span.started_at + (span.duration_ns or 0) for span in made), default=main.started_at
        )
        root = replace(main, duration_ns=max(ended - main.started_at, 0))
        for seq, span in enumerate([root, *made]):
            yield replace(span, seq=seq)

    def _main_lane(self, draft: Draft) -> Span:
        raw = draft.opening.raw
        leading = [call for call in draft.calls if call.leads] or draft.calls
        return Span(
            **self._of(draft),
            span_id=draft.root,
            kind=SpanKind.AGENT,
            name="main",
            agent=raw.agent_name,
            status=call_status(leading[-1]),
            started_at=draft.opening.started,
        )

    def _lane_spans(self, draft: Draft, lane: Lane) -> Iterator[Span]:
        """The agent of a thread, after the placeholder of a tool call that was not received."""
        anchor = lane.anchor
        began = lane.calls[0].started
        if anchor is not None and lane.parent not in self.tools:
            missing = missing_span(draft.id, lane.parent, draft.root, began)
            yield replace(missing, **self._of(draft))
        yield Span(
            **self._of(draft),
            span_id=lane.span_id,
            parent_span_id=lane.parent,
            kind=SpanKind.AGENT,
            name="subagent",
            agent=anchor.agent if anchor else "",
            anchor=anchor.by if anchor else UNANCHORED,
            status=call_status(lane.calls[-1]),
            thread_id=lane.thread,
            started_at=began,
            duration_ns=max(call.ended for call in lane.calls) - began,
        )

    def _call_spans(self, draft: Draft, call: Call) -> Iterator[Span]:
        yield self._llm_span(draft, call)
        if not call.is_conversation:
            return
        agent = draft.parents[call.id]
        for part in call.turn.answer.parts:
            tool = self.tools.get(part.id) if isinstance(part, ToolCall) else None
            if tool is not None and tool.asked_by is call and tool.block is part:
                yield self._tool_span(draft, tool, agent)
        yield from self._event_spans(draft, call, agent)

    def _llm_span(self, draft: Draft, call: Call) -> Span:
        raw, answer = call.raw, call.turn.answer
        return Span(
            **self._of(draft),
            span_id=f"llm_{call.id}",
            parent_span_id=draft.parents[call.id],
            kind=SpanKind.LLM,
            name=call.turn.model or "llm",
            status=call_status(call),
            error_type=error_type(call),
            call_kind=call.kind,
            thread_id=call.thread,
            provider=call.turn.provider,
            model=call.turn.model,
            response_id=answer.id,
            stop_reason=answer.finish_reason or "",
            outcome=raw.outcome.value,
            started_at=call.started,
            duration_ns=call.duration,
            first_chunk_ns=first_chunk(raw),
            input=tuple(_input_of(call)),
            output=tuple(blocks_of(answer.parts)),
            usage=usage_form(answer.usage, call.duration) or None,
            cost_usd=self._prices.get(call.id),
            raw_turn_id=raw.id,
            request_id=raw.request_id,
            node_hash=call.answer_hash,
            verdict=self._verdicts.get(call.id),
            fidelity=fidelity_of(raw),
        )

    def _tool_span(self, draft: Draft, tool: ToolUse, agent: str) -> Span:
        block = blocks_of([tool.block])[0]
        lane = self._spawned.get(tool.id)
        if tool.block.name == "spawn_agent" and lane is not None and lane.anchor is not None:
            told = {"subagent_type": lane.anchor.agent, "description": lane.anchor.description}
            block["tool_input"] = block.get("tool_input", {}) | told
        result = tool.result
        started, duration = _tool_times(tool, lane)
        return Span(
            **self._of(draft),
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
            verdict=self._verdicts.get(tool.id),
        )

    def _event_spans(self, draft: Draft, call: Call, agent: str) -> Iterator[Span]:
        opening = _leading_instructions(call)
        for index, node in call.new_messages():
            inserted = node.message.role in SYSTEM_ROLES and index >= opening
            kind = node.injected or (SYSTEM_INSERT if inserted else "")
            if not kind or call.repeated:
                continue
            yield Span(
                **self._of(draft),
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

    # --- links

    def _link(self) -> None:
        traces = {call.id: draft for draft in self.drafts for call in draft.calls}
        for tool in self.tools.values():
            asked = (self._place[tool.id][0], f"llm_{tool.asked_by.id}", "output")
            itself = (asked[0], tool.id)
            self._flow(LinkKind.EMITS, asked, (*itself, "input"))
            brought = tool.brought_by
            if brought is not None and brought is not tool.asked_by:
                reader = (traces[brought.id], f"llm_{brought.id}", "input")
                self._flow(LinkKind.FEEDS, (*itself, "output"), reader)
        for draft in self.drafts:
            for lane in draft.lanes:
                if lane.anchor is not None:
                    joined = (draft, lane.parent, "output")
                    self._flow(LinkKind.REJOIN, (draft, lane.span_id, "output"), joined)
            if draft.compacted_by is not None:
                call = draft.compacted_by
                seam = (traces[call.id], f"llm_{call.id}", "output")
                first = (draft, f"llm_{draft.opening.id}", "input")
                self._flow(LinkKind.COMPACTION_SEAM, seam, first)
        for call_id, tool_id in self._judged.items():
            draft = traces[call_id]
            if call_id in self._verdicts:
                verdict = (draft, tool_id, "verdict")
                self._flow(LinkKind.VERDICT, (draft, f"llm_{call_id}", "output"), verdict)

    def _flow(
        self, kind: LinkKind, source: tuple[Draft, str, str], target: tuple[Draft, str, str]
    ) -> None:
        self.links.append(
            Link(
                from_trace_id=source[0].id,
                from_span_id=source[1],
                from_io=source[2],
                to_trace_id=target[0].id,
                to_span_id=target[1],
                to_io=target[2],
                kind=kind,
                session_id=self._owner.session_id,
                org_id=self._owner.org_id,
            )
        )


def _results_in(calls: Iterable[Call]) -> dict[str, tuple[ToolResult, Call]]:
    """By the id of the tool call: the first result that was sent, and the call that brought it."""
    found: dict[str, tuple[ToolResult, Call]] = {}
    for call in calls:
        said = [call.turn.answer.parts]
        if call.is_conversation:
            said += [call.nodes[index].message.parts for index in sorted(call.fresh)]
        for part in (part for parts in said for part in parts):
            if isinstance(part, ToolResult):
                found.setdefault(part.id, (part, call))
    return found


# --- what spans say ---------------------------------------------------------------------------


def call_status(call: Call) -> Status:
    """What became of a call."""
    state = call.turn.answer.state
    if state is AnswerState.COMPLETE:
        return Status.OK
    exchange = call.raw.exchange
    left = exchange is not None and exchange.state is State.ABORTED_BY_CLIENT
    failure = call.turn.answer.failure
    if left and (failure is None or failure.code == "client_disconnect"):
        return Status.ABORTED
    return Status.ERROR


def error_type(call: Call) -> str:
    """The provider's code, or the word for how the answer was cut short; "" where all is well."""
    if call.turn.answer.failure is not None:
        return call.turn.answer.failure.code
    if call.turn.answer.state is AnswerState.COMPLETE:
        return ""
    exchange = call.raw.exchange
    cut = exchange is not None and exchange.state is not State.COMPLETE
    return exchange.state.value if exchange is not None and cut else "truncated"


def tool_status(tool: ToolUse) -> Status:
    """What became of a tool call: its result says, or its shell's exit status."""
    if tool.result is None:
        return Status.RUNNING
    failed = tool.result.is_error or (
        tool.block.name in _SHELLS and _exit_status(tool.result.output) not in (None, 0)
    )
    return Status.ERROR if failed else Status.OK


_SHELLS = frozenset({"exec", "exec_command", "shell", "shell_command", "local_shell"})
_EXITED = ("Process exited with code ", "Exit code: ")


def _exit_status(output: str) -> int | None:
    """The exit status that a shell tool of another harness reports in its output."""
    if output.lstrip().startswith("{"):
        try:
            told = loose(output)
        except ValueError:
            return None
        about = told.get("metadata") if isinstance(told, dict) else None
        code = about.get("exit_code") if isinstance(about, dict) else None
        return code if isinstance(code, int) else None
    for line in output[:2000].splitlines():
        for words in _EXITED:
            rest = line.strip().removeprefix(words)
            if rest != line.strip() and rest.lstrip("-").isdigit():
                return int(rest)
    return None


def command_of(block: ToolCall) -> str:
    """The command line of a shell tool's call; "" for any other tool."""
    given = block.arguments
    if not isinstance(given, dict) or block.name not in (*_SHELLS, "Bash"):
        return ""
    command = given.get("command") or given.get("cmd") or ""
    return " ".join(map(str, command)) if isinstance(command, list) else str(command)


def shown_name(block: ToolCall) -> str:
    """The name of a tool as people know it."""
    if block.name in _SHELLS and command_of(block):
        return "Bash"
    return block.name or "tool"


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


# --- placeholders -----------------------------------------------------------------------------


def missing_span(trace_id: str, span_id: str, parent: str, started: int) -> Span:
    """The placeholder of a span that others name and nobody sent."""
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_span_id=parent,
        kind=SpanKind.STEP,
        name=f"{span_id} (not received)",
        status=Status.MISSING,
        started_at=started,
    )


def in_place(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The spans of one trace as a tree in order, with a placeholder for each missing parent.

    Parents come before their children, children by their start. A placeholder hangs under the
    root, and the span that it stands for takes its place: ids, order and links stay.
    """
    known = {span.span_id: span for span in spans}
    root = _root_of(known.values())
    for span in sorted(known.values(), key=_by_start):
        parent = span.parent_span_id
        if parent and parent not in known:
            above = root.span_id if root is not None else ""
            placeholder = missing_span(span.trace_id, parent, above, span.started_at)
            known[parent] = replace(placeholder, session_id=span.session_id, org_id=span.org_id)
    children: dict[str, list[Span]] = {}
    for span in known.values():
        children.setdefault(span.parent_span_id, []).append(span)
    ordered = list(_below("", children))
    reached = {span.span_id for span in ordered}
    # Spans that name each other as parents hang nowhere: they are shown, at the end.
    ordered += sorted((s for s in known.values() if s.span_id not in reached), key=_by_start)
    return tuple(replace(span, seq=seq) for seq, span in enumerate(ordered))


def _by_start(span: Span) -> tuple[int, str]:
    return span.started_at, span.span_id


def _root_of(spans: Iterable[Span]) -> Span | None:
    return min((s for s in spans if not s.parent_span_id), key=_by_start, default=None)


def _below(parent: str, children: dict[str, list[Span]]) -> Iterator[Span]:
    waiting = sorted(children.get(parent, ()), key=_by_start, reverse=True)
    while waiting:
        span = waiting.pop()
        yield span
        waiting += sorted(children.get(span.span_id, ()), key=_by_start, reverse=True)
