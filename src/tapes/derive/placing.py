"""Where each call of a session hangs: in which trace, under which agent or tool.

How it goes: calls of the main thread open traces or join the open one; then threads find the tool
call that spawned them, and threads inside threads theirs; then compactions find their trace, and
side calls what they are about.

Rule 1: a trace begins with words of the user that were not said before, or with what must be shown
        and has no trace yet.
Rule 2: a thread is a lane of its own. Where its tool call is not known it hangs, unanchored, under
        the root of the trace that was open; it is never mixed into the main thread.

Knows nothing of how spans look.  Pure.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush

from tapes.derive.anchors import (
    Actions,
    Anchor,
    Key,
    Sought,
    Spawners,
    Transcripts,
    sought_by,
    verdict_of,
)
from tapes.derive.calls import Call
from tapes.derive.kinds import CHECK_1, CHECKS, COMPACTION, PLAN_NAME, WEB_SUMMARY
from tapes.derive.tools import ToolUse, results_in
from tapes.jsontext import Json
from tapes.providers.turn import AnswerState, ToolCall
from tapes.rows import RawTurn

POST_COMPACTION = "post-compaction"
SHADOW_OPENER = "shadow-opener"


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


class _Waiting:
    """Threads whose place is not known, handed out when something changed that they wait for.

    Those that began first come first; who is told of a change by one after it waits for the next
    round. To ask all of them after each change would take the square of their number.
    """

    def __init__(self, sought: Sequence[Sought]) -> None:
        self._sought = sought
        self._at = -1
        self._now, self._later = list(range(len(sought))), list[int]()
        self._queued = set(self._now)
        self._by_key: dict[Key, list[int]] = {}
        for number, each in enumerate(sought):
            told = each.told.tool_use_id if each.told is not None else ""
            for key in (("tool", told),) if told else each.keys:
                self._by_key.setdefault(key, []).append(number)

    def stir(self, keys: Iterable[Key]) -> None:
        """Tool calls that are found by these came, or were taken."""
        for key in keys:
            for number in self._by_key.get(key, ()):
                if number not in self._queued:
                    self._queued.add(number)
                    heappush(self._now if number > self._at else self._later, number)

    def next(self) -> Sought | None:
        """The next one whose place may be known now."""
        if not self._now:
            self._now, self._later, self._at = self._later, [], -1
        if not self._now:
            return None
        self._at = heappop(self._now)
        self._queued.discard(self._at)
        return self._sought[self._at]


class Placing:
    """The calls of one session, each in its place; all is done when it is made."""

    def __init__(self, calls: Sequence[Call], transcripts: Sequence[RawTurn] = ()) -> None:
        self.calls = calls
        self.drafts: list[Draft] = []
        self.tools: dict[str, ToolUse] = {}
        self.trace_of_tool: dict[str, Draft] = {}
        self.lane_of_tool: dict[str, Lane] = {}  # the thread that it spawned
        self.verdicts: dict[str, dict[str, Json]] = {}  # by the id of the check, and of the tool
        self.tool_of_check: dict[str, str] = {}
        self._transcripts = Transcripts(transcripts)
        self._waiting: _Waiting | None = None
        self._results = results_in(calls)
        self._spawners, self._actions, self._checked = Spawners(), Actions(), Actions()
        self._lanes: dict[str, tuple[Draft, Lane]] = {}
        self._lead()
        self._place_threads()
        self._place_compactions()
        self._place_side_calls()

    def _lead(self) -> None:
        for call in self.calls:
            if not call.leads:
                continue
            if not self.drafts or call.prompt is not None:
                self.drafts.append(Draft(call))
            draft = self.drafts[-1]
            draft.add(call, draft.root)
            self._take_tools(call, draft)

    def _take_tools(self, call: Call, draft: Draft) -> None:
        """The tool calls in an answer; the first call that shows an id owns it."""
        whole = call.turn.answer.state is AnswerState.COMPLETE
        for part in call.turn.answer.parts:
            if not isinstance(part, ToolCall) or not part.id or part.id in self.tools:
                continue
            if part.raw is not None and not whole:
                continue  # cut off in its arguments: nobody can have run it
            result, brought_by = self._results.get(part.id, (None, None))
            tool = ToolUse(call, part, len(self.tools), result, brought_by)
            self.tools[part.id] = tool
            self.trace_of_tool[part.id] = draft
            self._actions.add(tool)
            self._stir(("tool", tool.id), *self._spawners.add(tool))

    def _live_at(self, call: Call) -> Draft:
        """The trace that was open when a call was made; one is opened where there is none."""
        if not self.drafts:
            self.drafts.append(Draft(call, SHADOW_OPENER))
        before = bisect_right(self.drafts, call.started, key=lambda draft: draft.opening.started)
        return self.drafts[max(before - 1, 0)]

    def _place_threads(self) -> None:
        waiting: dict[str, list[Call]] = {}
        for call in self.calls:
            if call.thread and call.kind not in CHECKS:
                waiting.setdefault(call.thread, []).append(call)
        sought = [sought_by(name, calls, self._transcripts) for name, calls in waiting.items()]
        self._waiting = _Waiting(sought)
        in_time = iter(sorted(sought, key=lambda each: (each.began, each.thread)))
        while waiting:
            each = self._waiting.next()
            if each is None:
                # Nothing says where the earliest hangs; others may still hang under it.
                each = next(each for each in in_time if each.thread in waiting)
                calls = waiting.pop(each.thread)
                draft = self._live_at(calls[0])
                lane = Lane(f"agent_{each.thread}", each.thread, draft.root)
                self._place_lane(draft, lane, calls)
            elif each.thread in waiting and self._anchored(each, waiting[each.thread]):
                del waiting[each.thread]

    def _stir(self, *keys: Key) -> None:
        """Something that threads wait for has changed."""
        if self._waiting is not None:
            self._waiting.stir(keys)

    def _anchored(self, sought: Sought, calls: Sequence[Call]) -> bool:
        anchor = self._spawners.anchor_of(sought, self.lane_of_tool)
        if anchor is None:
            return False
        draft = self.trace_of_tool.get(anchor.tool_id)
        if draft is None:
            if anchor.tool_id in self._asked_for:
                return False  # a thread that waits itself asks for it
            draft = self._live_at(calls[0])
        lane = Lane(f"agent_{sought.thread}", sought.thread, anchor.tool_id, anchor)
        self.lane_of_tool[anchor.tool_id] = lane
        # Of two that fit the one that is left decides; by words the first does anyway.
        keys = self._spawners.keys_of(anchor.tool_id)
        self._stir(*(key for key in keys if key[0] != "words"))
        self._place_lane(draft, lane, calls)
        return True

    @cached_property
    def _asked_for(self) -> frozenset[str]:
        """The tool calls that are in any answer."""
        answers = (call.turn.answer.parts for call in self.calls)
        return frozenset(p.id for parts in answers for p in parts if isinstance(p, ToolCall))

    def _place_lane(self, draft: Draft, lane: Lane, calls: Sequence[Call]) -> None:
        draft.lanes.append(lane)
        self._lanes[lane.thread] = (draft, lane)
        for call in calls:
            lane.calls.append(call)
            draft.add(call, lane.span_id)
            self._take_tools(call, draft)

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
        taken: dict[str, set[str]] = {}
        for call in self.calls:
            is_check = call.kind in CHECKS
            if call.leads or call.kind == COMPACTION or (call.thread and not is_check):
                continue
            for_kind = taken.setdefault("check" if is_check else call.kind, set())
            tool = self._tool_behind(call, for_kind)
            if tool is not None:
                for_kind.add(tool.id)
                self.trace_of_tool[tool.id].add(call, tool.id)
            elif call.thread in self._lanes:
                draft, lane = self._lanes[call.thread]
                draft.add(call, lane.span_id)
            else:
                draft = self._live_at(call)
                draft.add(call, draft.root)

    def _tool_behind(self, call: Call, taken: set[str]) -> ToolUse | None:
        """The tool call that a side call is about, or None where it is about none."""
        if call.kind == WEB_SUMMARY:
            return self._actions.used_web(call, taken)
        if call.kind == PLAN_NAME:
            return self._actions.left_plan_mode(call, taken)
        if call.kind not in CHECKS:
            return None
        first_stage = call.kind == CHECK_1
        # The second stage judges what the first one did.
        same = None if first_stage else self._checked.judged_by(call, ())
        tool = same or self._actions.judged_by(call, taken)
        if tool is None:
            return None
        self._checked.add(tool)
        self.tool_of_check[call.id] = tool.id
        verdict = verdict_of(call, 1 if first_stage else 2)
        if verdict is not None:
            self.verdicts[call.id] = self.verdicts[tool.id] = verdict
        return tool
