"""Totals, costs, statuses and titles: what a trace and a session add up to.

Rule 1: sums go over model calls alone. What an agent, or a tool, claims to have used is shown where
        it is claimed and never added.
Rule 2: unknown stays unknown: a sum is None where nothing is known, and says beside it how many
        calls it leaves out. A declared price of zero is a price.
Rule 3: what was answered from a tape cost nothing; what it would have cost is kept apart. What was
        refused, or failed before anything was counted, has nothing to count.

Knows nothing of where spans hang.  Pure.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TypeVar

from tapes.derive.calls import Call
from tapes.derive.chain import own_parts, prompt_words
from tapes.derive.kinds import MAIN, TITLE
from tapes.derive.placing import Draft
from tapes.derive.spans import Owner
from tapes.derive.tools import ToolUse, command_of, tool_status
from tapes.envelope import cut
from tapes.jsontext import Json
from tapes.loosejson import loose
from tapes.providers.turn import AnswerState, Message, Text, text_of, word
from tapes.providers.usage import Usage
from tapes.rows import Fidelity, ModelUsage, Outcome, Span, SpanKind, Status, Task, Trace

# Usage (it names its model), provider, and the time of the call → US dollars, or None: unpriced.
Pricing = Callable[[Usage, str, int], Decimal | None]

PREVIEW_BYTES = 280
TITLE_BYTES = 255
SESSION_PREVIEW = 120

Amount = TypeVar("Amount", int, Decimal)


def unpriced(_usage: Usage, _provider: str, _at: int) -> Decimal | None:
    """No call has a price."""
    return None


def plus(one: Amount | None, other: Amount | None) -> Amount | None:
    """A sum that leaves out what is unknown, and is unknown where all is."""
    if one is None or other is None:
        return other if one is None else one
    return one + other


# --- sums -------------------------------------------------------------------------------------


@dataclass(slots=True)
class Totals:
    """What calls add up to."""

    calls: int = 0
    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    cost: Decimal | None = None
    saved: Decimal | None = None
    unpriced: int = 0
    uncounted: int = 0
    replayed: int = 0
    failed: int = 0

    def add(self, call: Call, cost: Decimal | None) -> None:
        """One more call, and its price where it has one."""
        answer, outcome = call.turn.answer, call.raw.outcome
        usage = answer.usage
        self.calls += 1
        self.failed += call.status is Status.ERROR
        self.replayed += outcome is Outcome.REPLAYED
        if usage is not None:
            self.input = plus(self.input, usage.input)
            self.output = plus(self.output, usage.output)
            self.cache_read = plus(self.cache_read, usage.cache_read)
            self.cache_write = plus(self.cache_write, usage.cache_write)
            self.reasoning = plus(self.reasoning, usage.reasoning)
        elif outcome is Outcome.REFUSED or (
            answer.state is AnswerState.ERROR and call.status is not Status.ABORTED
        ):
            return
        self.uncounted += usage is None or usage.input is None or usage.output is None
        if outcome is Outcome.REPLAYED:
            self.saved = plus(self.saved, cost)
        else:
            self.unpriced += cost is None
            self.cost = plus(self.cost, cost)

    @property
    def spent(self) -> Decimal | None:
        """The cost; where a tape answered all that may cost something, that is known to be none."""
        is_replay = self.replayed > 0 and not self.unpriced
        return Decimal(0) if self.cost is None and is_replay else self.cost


def totals(calls: Iterable[Call], prices: Mapping[str, Decimal | None]) -> Totals:
    """What calls add up to; `prices` are by the id of the call."""
    total = Totals()
    for call in calls:
        total.add(call, prices.get(call.id))
    return total


def prices_of(calls: Iterable[Call], price: Pricing) -> dict[str, Decimal | None]:
    """The price of each call that counted its tokens, by its id."""
    return {
        call.id: price(call.turn.answer.usage, call.turn.provider, call.started)
        for call in calls
        if call.turn.answer.usage is not None
    }


_WORST = (Fidelity.DEGRADED, Fidelity.REDUCED, Fidelity.RAW, Fidelity.NONE)


def worst(fidelities: Iterable[Fidelity]) -> Fidelity:
    """The worst of these."""
    return min(fidelities, key=_WORST.index, default=Fidelity.NONE)


# --- traces -----------------------------------------------------------------------------------

# The traces of a session by their ids, each with all that it follows from.
MadeTraces = dict[str, tuple[tuple[object, ...], Trace]]


class Traces:
    """Makes the rows of traces; one that follows from the same as in the last pass is the same.

    `made` are those of this pass.
    """

    def __init__(
        self, owner: Owner, prices: Mapping[str, Decimal | None], before: MadeTraces | None = None
    ) -> None:
        self._owner, self._prices, self._before = owner, prices, before or {}
        self.made: MadeTraces = {}

    def of(self, draft: Draft, spans: Sequence[Span]) -> Trace:
        """The row of a trace, of which these are the spans in order."""
        prices = tuple(self._prices.get(call.id) for call in draft.calls)
        of = (draft.opening, draft.synthetic, tuple(draft.calls), tuple(spans), prices)
        before = self._before.get(draft.id)
        if before is None or before[0] != of:
            before = of, trace_of(draft, spans, self._owner, self._prices)
        self.made[draft.id] = before
        return before[1]


def trace_of(
    draft: Draft, spans: Sequence[Span], owner: Owner, prices: Mapping[str, Decimal | None]
) -> Trace:
    """The row of a trace, of which these are the spans in order."""
    root, prompt = spans[0], draft.opening.prompt
    leads = [call for call in draft.calls if call.leads]
    trace = Trace(
        trace_id=draft.id,
        session_id=owner.session_id,
        org_id=owner.org_id,
        user_prompt="" if prompt is None or draft.synthetic else prompt_text(prompt),
        response_preview=preview_of(leads),
        synthetic=draft.synthetic,
        status=root.status,
        started_at=root.started_at,
        ended_at=root.started_at + (root.duration_ns or 0),
        duration_ns=root.duration_ns,
    )
    return summed(trace, draft.calls, spans, prices)


def summed(
    trace: Trace,
    calls: Sequence[Call],
    spans: Sequence[Span],
    prices: Mapping[str, Decimal | None],
) -> Trace:
    """A trace with the sums over its calls and its spans."""
    everything = totals(calls, prices)
    main = totals((call for call in calls if call.kind == MAIN), prices)
    return replace(
        trace,
        total_input_tokens=everything.input,
        total_output_tokens=everything.output,
        main_input_tokens=main.input,
        main_output_tokens=main.output,
        cache_read_tokens=everything.cache_read,
        cache_creation_tokens=everything.cache_write,
        reasoning_tokens=everything.reasoning,
        total_cost_usd=everything.spent,
        saved_cost_usd=everything.saved,
        unpriced_calls=everything.unpriced,
        uncounted_calls=everything.uncounted,
        tool_calls=sum(span.kind is SpanKind.TOOL for span in spans),
        span_count=sum(span.status is not Status.MISSING for span in spans),
        missing_count=sum(span.status is Status.MISSING for span in spans),
        fidelity=worst(span.fidelity for span in spans),
    )


def prompt_text(message: Message) -> str:
    """The words of a prompt, for people, at most 280 bytes."""
    words = (prompt_words(part.text) for part in own_parts(message) if isinstance(part, Text))
    return cut("\n".join(text for text in words if text), PREVIEW_BYTES)


def preview_of(leads: Sequence[Call]) -> str:
    """The words of the last answer that has any, at most 280 bytes."""
    texts = (text_of(call.turn.answer.parts) for call in reversed(leads))
    return cut(next((text for text in texts if text), ""), PREVIEW_BYTES)


# --- sessions ---------------------------------------------------------------------------------


def status_of(leads: Sequence[Call], tools: Iterable[ToolUse]) -> str:
    """How a session ended: completed, failed, abandoned, or unknown.

    `leads` are the main calls of its main thread, in order.
    """
    if not leads:
        return "unknown"
    last, reason = leads[-1], (leads[-1].turn.answer.finish_reason or "").lower()
    if last.status is Status.ABORTED:
        return "abandoned"
    if last.status is Status.ERROR or reason in _FAILED or "error" in reason:
        return "failed"
    used = list(tools)
    if has_git_activity(used):
        return "completed"
    statuses = [tool_status(tool) for tool in used if tool.result is not None]
    if 2 * sum(status is Status.ERROR for status in statuses) > len(statuses):
        return "failed"
    return "completed" if reason in _COMPLETED else "unknown"


_FAILED = frozenset({"length", "max_tokens", "content_filter", "max_output_tokens"})
_COMPLETED = frozenset(
    {"stop", "end_turn", "end-turn", "eos", "tool_use", "tool_use_response", "tool_calls",
     "function_call", "stop_sequence"}
)  # fmt: skip


def has_git_activity(tools: Iterable[ToolUse]) -> bool:
    """Whether a shell tool committed or pushed."""
    commands = (command_of(tool.block) for tool in tools)
    return any("git commit" in command or "git push" in command for command in commands)


def model_of(leads: Iterable[Call]) -> str:
    """The model of most main calls; of several, the one whose name comes first."""
    counts = Counter(call.turn.model for call in leads if call.turn.model)
    return min(counts, key=lambda model: (-counts[model], model), default="")


def model_usage(
    calls: Iterable[Call], prices: Mapping[str, Decimal | None]
) -> tuple[ModelUsage, ...]:
    """What each model did, the most expensive first; what has no price last."""
    by_model: dict[str, Totals] = {}
    for call in calls:
        if call.turn.answer.usage is not None:
            total = by_model.setdefault(call.turn.model, Totals())
            total.add(call, prices.get(call.id))
    rows = [
        ModelUsage(model, t.calls, t.input, t.output, t.cost, t.unpriced)
        for model, t in by_model.items()
    ]
    return tuple(sorted(rows, key=lambda m: (m.cost_usd is None, -(m.cost_usd or 0), m.model)))


def title_of(calls: Iterable[Call]) -> str:
    """The title that the harness last had made for the session; "" where it made none."""
    for call in sorted(
        (c for c in calls if c.kind == TITLE), key=lambda c: c.started, reverse=True
    ):
        text = text_of(call.turn.answer.parts)
        if text.strip() and "{" not in text:
            return cut(" ".join(text.split()), TITLE_BYTES)
        start, end = text.find("{"), text.rfind("}")
        try:
            told: Json = loose(text[start : end + 1]) if start >= 0 else None
        except ValueError:
            continue
        title = word(told.get("title")) if isinstance(told, dict) else ""
        if title.strip():
            return cut(title.strip(), TITLE_BYTES)
    return ""


_NUMBER = re.compile(r"#(\w+)")


def tasks_of(tools: Iterable[ToolUse]) -> tuple[Task, ...]:
    """The tasks that an agent made and changed, as they stand in the end."""
    tasks: dict[str, Task] = {}
    for tool in sorted(tools, key=lambda t: t.asked_by.started):
        given = tool.block.arguments
        if not isinstance(given, dict) or tool.result is None:
            continue
        if tool.block.name == "TaskCreate":
            number = _NUMBER.search(tool.result.output)
            if number is not None:
                description = word(given.get("description"))
                task = Task(number[1], word(given.get("subject")), description)
                tasks[task.id] = task
        elif tool.block.name == "TaskUpdate":
            _update(tasks, given)
    return tuple(tasks.values())


def _update(tasks: dict[str, Task], given: dict[str, Json]) -> None:
    task = tasks.get(str(given.get("taskId")))
    if task is None:
        return
    status = word(given.get("status")) or task.status
    if status == "deleted":
        del tasks[task.id]
        return
    tasks[task.id] = replace(
        task,
        subject=word(given.get("subject")) or task.subject,
        status=status,
        updates=task.updates + 1,
    )


def kind_counts(spans: Iterable[Span]) -> tuple[tuple[str, int], ...]:
    """How many spans there are of each kind of call, by name."""
    counts = Counter(span.call_kind for span in spans if span.call_kind)
    return tuple(sorted(counts.items()))
