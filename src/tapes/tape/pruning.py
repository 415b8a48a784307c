"""Taking recordings off a tape by choice, and nothing else.

Rule 1: each choice names more of what goes. What nobody chose keeps its bytes and its order.
Rule 2: when what answers a request goes, what it had replaced goes with it: an older answer must
        not come back.
Rule 3: a body goes with the last row that names it.
Rule 4: a recording whose age nobody knows is not old.

Knows nothing of runs: whoever asks for the unused says which keys were used.
"""

import os
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from datetime import UTC, datetime

from tapes.jsontext import Json
from tapes.tape.raw import Fault, Progress, RawRow, Rows, exchange_at, open_rows, silent
from tapes.tape.rewriting import NewRow, bodies_named, editing


@dataclass(frozen=True, slots=True)
class Choice:
    """What is to go. `used` are the keys that stay where the unused go; None leaves them all."""

    used: Set[str] | None = None
    superseded: bool = False
    incomplete: bool = False
    before: datetime | None = None


@dataclass(frozen=True, slots=True)
class Pruned:
    """A row that goes, and why."""

    key: str
    place: str
    why: str
    recorded_at: str | None
    request: Json


@dataclass(frozen=True, slots=True)
class Pruning:
    """What went, or would go, and how much stays."""

    path: str
    gone: tuple[Pruned, ...]
    kept: int
    bodies: int


def plan_pruning(
    path: str | os.PathLike[str], choice: Choice, progress: Progress = silent
) -> Pruning:
    """What pruning would take away. Raises UnreadableTape, and DamagedTape at a broken row."""
    with open_rows(path) as rows:
        return _Plan(rows, choice, progress).pruning


def prune(path: str | os.PathLike[str], choice: Choice, progress: Progress = silent) -> Pruning:
    """Take away what was chosen. Raises as `plan_pruning`, and UnwritableTape."""
    with editing(path) as editor:
        plan = _Plan(editor.rows, choice, progress)
        if plan.gone:
            editor.apply(plan.change, plan.gone_bodies)
        return plan.pruning


class _Plan:
    """One look at a tape, and what goes."""

    def __init__(self, rows: Rows, choice: Choice, progress: Progress) -> None:
        self._choice = choice
        self._last: dict[str, int | str] = {}
        self.gone: dict[int | str, Pruned] = {}
        for raw in _readable(rows):
            progress(raw.done / 2)
            self._last[raw.key] = raw.token
        answer_goes = {
            raw.key
            for raw in _readable(rows)
            if self._last[raw.key] == raw.token and self._why(raw) is not None
        }
        kept_bodies, gone_bodies, kept = set[str](), set[str](), 0
        for raw in _readable(rows):
            progress(0.5 + raw.done / 2)
            why = self._why(raw)
            if why is None and raw.key in answer_goes:
                why = "what replaced it goes"
            if why is None:
                kept += 1
                kept_bodies |= bodies_named(raw.row)
                continue
            gone_bodies |= bodies_named(raw.row)
            self.gone[raw.token] = Pruned(
                raw.key, raw.place, why, raw.row.get("recorded_at"), raw.row["request"]
            )
        self.gone_bodies = gone_bodies - kept_bodies
        self.pruning = Pruning(rows.path, tuple(self.gone.values()), kept, len(self.gone_bodies))

    def change(self, raw: RawRow) -> Sequence[NewRow] | None:
        return () if raw.token in self.gone else None

    def _why(self, raw: RawRow) -> str | None:
        """Why a row goes, or None where it stays."""
        choice = self._choice
        if not raw.answers:
            if choice.incomplete:
                return "incomplete"
        elif choice.used is not None and raw.key not in choice.used:
            return "unused"
        if choice.superseded and self._last[raw.key] != raw.token:
            return "superseded"
        if choice.before is not None and _is_before(raw.row.get("recorded_at"), choice.before):
            return "old"
        return None


def _readable(rows: Rows) -> Iterator[RawRow]:
    """Every row. Raises DamagedTape: on a broken tape nobody can say what is unused."""
    for raw in rows:
        if raw.fault is Fault.TORN:
            continue
        if raw.fault is not None:
            exchange_at(rows, raw)
        yield raw


def _is_before(recorded_at: object, before: datetime) -> bool:
    try:
        when = datetime.fromisoformat(str(recorded_at))
    except ValueError:
        return False
    return (when if when.tzinfo else when.replace(tzinfo=UTC)) < before
