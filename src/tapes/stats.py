"""What a tape holds, what its runs did with it, and what replay has saved.

Runs and spends are this machine's own: a tape that came with a checkout has none yet.

Knows nothing of terminals.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from decimal import Decimal

from tapes.budget import Spend
from tapes.errors import MissingExtra
from tapes.exchange import Exchange, State
from tapes.providers.usage import Usage
from tapes.report import KEPT_RUNS, Run, Savings, runs_of, savings, usage_of_exchange
from tapes.spending import spends_on
from tapes.tape.base import Tape
from tapes.tape.finding import size_of
from tapes.tape.kinds import open_tape
from tapes.tape.raw import Progress, exchanges, kind_of_existing, open_rows, silent


@dataclass(slots=True)
class Recorded:
    """What lies on a tape. Tokens are those that its answers report."""

    answers: int = 0
    superseded: int = 0
    incomplete: int = 0
    samples: int = 0
    bytes: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    without_usage: int = 0
    usd: Decimal | None = None
    unpriced: int = 0
    first: str | None = None
    last: str | None = None
    models: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Stats:
    """A tape, its runs and what they saved; `spent` are the live calls that a budget counted."""

    path: str
    kind: str
    recorded: Recorded
    runs: tuple[Run, ...]
    saved: Savings
    spent: tuple[Spend, ...]
    unused: int | None

    def total(self, name: str) -> int:
        """The sum of a count over the runs: live, refused, not_stored, incomplete."""
        return sum(run.counts.get(name, 0) for run in self.runs)

    @property
    def served(self) -> int:
        """Answers from the tape over all runs that are kept."""
        return sum(sum(run.hits.values()) for run in self.runs)

    @property
    def newly_recorded(self) -> int:
        """Answers put on the tape over all runs that are kept."""
        return sum(sum(run.recordings.values()) for run in self.runs)


Price = Callable[[Usage], Decimal | None]


def stats_of(path: str | os.PathLike[str], price: Price, progress: Progress = silent) -> Stats:
    """Everything that is known of a tape. Raises UnreadableTape and its kin.

    `price` may raise MissingExtra: then no price is known.
    """
    kind = kind_of_existing(path)
    priced = never_missing(price)
    recorded, keys = _recorded(path, priced, progress)
    runs, saved = replayed_from(path, priced)
    latest = latest_used(runs, 1)
    unused = None if latest is None else len(keys - latest)
    spent = tuple(spend for spend in spends_on(path) if spend.state != "returned")
    return Stats(os.fspath(path), kind, recorded, runs, saved, spent, unused)


def replayed_from(path: str | os.PathLike[str], price: Price) -> tuple[tuple[Run, ...], Savings]:
    """The runs that are kept of a tape, and what their answers saved. Raises UnreadableTape."""
    tape = open_tape(path)
    try:
        runs = tuple(runs_of(tape))
        return runs, savings(_hits(tape, runs), never_missing(price))
    finally:
        tape.close()


def never_missing(price: Price) -> Price:
    """The same price, or none where the table is not installed."""

    def priced(usage: Usage) -> Decimal | None:
        try:
            return price(usage)
        except MissingExtra:
            return None

    return priced


def _recorded(
    path: str | os.PathLike[str], price: Price, progress: Progress
) -> tuple[Recorded, set[str]]:
    found, keys, samples = Recorded(bytes=size_of(os.fspath(path))), set[str](), set[str]()
    with open_rows(path) as rows:
        for raw, exchange in exchanges(rows):
            progress(raw.done)
            when = exchange.recorded_at
            if when:
                found.first = min(filter(None, (found.first, when)))
                found.last = max(filter(None, (found.last, when)))
            if exchange.state is not State.COMPLETE:
                found.incomplete += 1
                continue
            found.superseded += exchange.key in keys
            keys.add(exchange.key)
            if exchange.sample:
                samples.add(exchange.key)
            _count(exchange, found, price)
    found.answers, found.samples = len(keys), len(samples)
    return found, keys


def _count(exchange: Exchange, found: Recorded, price: Price) -> None:
    usage = usage_of_exchange(exchange)
    if usage is None:
        found.without_usage += 1
        return
    found.input_tokens += usage.input or 0
    found.output_tokens += usage.output or 0
    if usage.model:
        found.models[usage.model] += 1
    cost = price(usage)
    if cost is None:
        found.unpriced += 1
    else:
        found.usd = (found.usd or Decimal(0)) + cost


def _hits(tape: Tape, runs: tuple[Run, ...]) -> Iterator[tuple[Exchange, int]]:
    """Every recording that was served, and how often."""
    times = Counter[str]()
    for run in runs:
        times.update(run.hits)
    for key, count in times.items():
        exchange = tape.find(key)
        if exchange is not None:
            yield exchange, count


# --- runs -------------------------------------------------------------------------------------


def latest_used(runs: tuple[Run, ...] | list[Run], count: int) -> set[str] | None:
    """The keys that the latest so many runs used; None where nobody knows all of them.

    A run of tests opens a tape many times, and its workers do so in several processes: what one
    process did, and what went on at the same time, is one run.
    """
    groups = grouped(runs)[:count]
    # What was used before the oldest report that is kept is forgotten.
    is_cut = len(runs) >= KEPT_RUNS and sum(map(len, groups)) == len(runs)
    if not groups or is_cut:
        return None
    return set().union(*(run.used for group in groups for run in group))


def grouped(runs: tuple[Run, ...] | list[Run]) -> list[list[Run]]:
    """Runs that belong together, the latest group first."""
    groups: list[list[Run]] = []
    for run in sorted(runs, key=lambda run: run.started):
        mine = [g for g in groups if any(_together(run, other) for other in g)]
        groups = [g for g in groups if g not in mine]
        groups.append([run, *(other for group in mine for other in group)])
    return sorted(groups, key=lambda group: -max(run.ended for run in group))


def _together(one: Run, other: Run) -> bool:
    return one.pid == other.pid or (one.started <= other.ended and other.started <= one.ended)
