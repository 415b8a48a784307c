"""Sample sessions into a log, as if they had been captured just now.

Rule 1: doing it again changes nothing: each turn has its request id.
Rule 2: the samples are turned in time so that the last of them ended a few minutes ago, and none
        looks as if it still ran; how long they took, and what lies between, stays.

Knows nothing of deriving.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import resources

from tapes.rows import NO_ORG, RawTurn
from tapes.store.base import Kept, Store
from tapes.turnlines import turn_of

FILE = "samples/turns.jsonl"
_AGO_NS = 6 * 60 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class Seeded:
    """What became of the samples."""

    sessions: int
    turns: int
    new: int


def seed(store: Store, org_id: str = NO_ORG, *, now: int | None = None) -> Seeded:
    """Put the sample sessions into a log. Raises UnavailableStore."""
    turns = list(sample_turns(org_id, time.time_ns() if now is None else now))
    receipts = store.append(turns)
    named = {turn.envelope.harness_session_id for turn in turns}
    return Seeded(len(named), len(turns), sum(r.kept is Kept.NEW for r in receipts))


def sample_turns(org_id: str = NO_ORG, now: int | None = None) -> Iterator[RawTurn]:
    """The turns of the samples, those of a tenant where one is named; at their own times or now."""
    turns = list(_recorded())
    ends = max(turn.ended_at or turn.started_at or 0 for turn in turns)
    shift = 0 if now is None else now - _AGO_NS - ends
    for turn in turns:
        envelope = turn.envelope
        if org_id != NO_ORG:
            envelope = replace(envelope, org_id=org_id)
        yield replace(
            turn,
            envelope=envelope,
            started_at=None if turn.started_at is None else turn.started_at + shift,
            ended_at=None if turn.ended_at is None else turn.ended_at + shift,
            received_at=turn.received_at + shift,
        )


def _recorded() -> Iterator[RawTurn]:
    file = resources.files("tapes").joinpath(FILE)
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            yield turn_of(line, FILE, f"line {number}")
