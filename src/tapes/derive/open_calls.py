"""Tool calls without results, and results without calls, in a conversation that is to go on.

A provider refuses such a conversation, or the model goes astray in it; so it is said before any
byte is sent, with what can be done about it.

Knows nothing of sessions or of sending.  Pure.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tapes.derive.chain import with_ids
from tapes.jsontext import Json
from tapes.providers.reduced import block_of
from tapes.providers.turn import Message, ToolCall, ToolResult


class Trouble(StrEnum):
    """What is wrong with a tool call or a result."""

    OPEN = "open_call"
    ORPHAN = "orphan_result"
    EARLY = "result_before_call"
    DUPLICATE_CALL = "duplicate_call"
    DUPLICATE_RESULT = "duplicate_result"


class Offer(StrEnum):
    """What can be done about it."""

    RECORDED = "use_recorded_result"
    GIVEN = "give_result"
    DROP = "drop"


@dataclass(frozen=True, slots=True)
class Finding:
    """One trouble, where it is, and the offers; `recorded` is the result of a later turn."""

    trouble: Trouble
    id: str
    name: str
    message: int  # the place of the message
    offers: tuple[Offer, ...]
    recorded: ToolResult | None = None

    def as_dict(self) -> dict[str, Json]:
        """The finding for people's programs."""
        form: dict[str, Json] = {
            "trouble": self.trouble.value,
            "id": self.id,
            "name": self.name,
            "message": self.message,
            "offers": [offer.value for offer in self.offers],
        }
        return form | ({"recorded": block_of(self.recorded)} if self.recorded else {})


def open_tool_calls(
    messages: Sequence[Message], later: Iterable[Message] = ()
) -> tuple[Finding, ...]:
    """All troubles of a conversation, in order; empty where it can go on.

    `later` are messages of turns that came after it: they may hold the results that are missing.
    """
    named = with_ids((*messages, *later))
    kept, after = named[: len(messages)], named[len(messages) :]
    recorded = {r.id: r for m in reversed(after) for r in m.parts if isinstance(r, ToolResult)}
    calls: dict[str, tuple[ToolCall, int]] = {}
    results: dict[str, int] = {}
    found: list[Finding] = []
    for place, message in enumerate(kept):
        for part in message.parts:
            if isinstance(part, ToolCall):
                if part.id in calls:
                    found.append(_simple(Trouble.DUPLICATE_CALL, part.id, part.name, place))
                calls.setdefault(part.id, (part, place))
            elif isinstance(part, ToolResult):
                if part.id in results:
                    found.append(_simple(Trouble.DUPLICATE_RESULT, part.id, part.name, place))
                results.setdefault(part.id, place)
    for call, place in calls.values():
        if call.id not in results and not call.server:
            found.append(_open(call, place, recorded.get(call.id)))
    for result_id, place in results.items():
        if result_id not in calls:
            found.append(_simple(Trouble.ORPHAN, result_id, "", place))
        elif place < calls[result_id][1]:
            name = calls[result_id][0].name
            found.append(_simple(Trouble.EARLY, result_id, name, place))
    return tuple(sorted(found, key=lambda f: f.message))


def _open(call: ToolCall, place: int, recorded: ToolResult | None) -> Finding:
    offers: tuple[Offer, ...] = (Offer.GIVEN, Offer.DROP)
    if recorded is not None:
        offers = (Offer.RECORDED, *offers)
    return Finding(Trouble.OPEN, call.id, call.name, place, offers, recorded)


def _simple(trouble: Trouble, part_id: str, name: str, place: int) -> Finding:
    return Finding(trouble, part_id, name, place, (Offer.DROP,))


_SENTENCES = {
    Trouble.OPEN: ("tool call has no result", "tool calls have no result"),
    Trouble.ORPHAN: ("result has no tool call", "results have no tool call"),
    Trouble.EARLY: ("result stands before its tool call", "results stand before their tool calls"),
    Trouble.DUPLICATE_CALL: ("tool call has the id of another", "tool calls have ids of others"),
    Trouble.DUPLICATE_RESULT: ("result is there twice", "results are there twice"),
}


def summary(findings: Sequence[Finding]) -> str:
    """One line for each kind of trouble; "" where there is none."""
    lines = []
    for trouble, (one, several) in _SENTENCES.items():
        those = [f for f in findings if f.trouble is trouble]
        if those:
            named = ", ".join(f"{f.id} ({f.name})" if f.name else f.id for f in those)
            lines.append(f"{len(those)} {one if len(those) == 1 else several}: {named}")
    return "\n".join(lines)
