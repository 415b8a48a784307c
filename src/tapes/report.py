"""What a run did with a tape: served, live, refused, unused; and what replay saved.

A run's report is kept beside the tape when the run ends, so that commands can say later which
recordings nobody used. It is this machine's own and no part of the tape.

Knows nothing of cassettes.
"""

import json
import logging
import os
import sqlite3
import threading
import time
import weakref
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from decimal import Decimal

from tapes.errors import CassetteError, MissingExtra, TapesError, UnreadableTape, as_typed
from tapes.exchange import Exchange, Response, header
from tapes.providers.usage import Usage, usage_of, usage_of_value
from tapes.state import STATE as STATE
from tapes.state import connect, connect_to_read
from tapes.tape.base import Tape
from tapes.tape.beside import make_local
from tapes.wire import decoded

log = logging.getLogger(__name__)

# Refusals are all counted, and so many of the latest are kept as they were said.
KEPT_REFUSALS = 500


@dataclass(frozen=True, slots=True)
class Refused:
    """What one refusal said, and its diagnosis as data where it has one."""

    message: str
    remedy: str
    diagnosis: Mapping[str, object] | None = None

    def __str__(self) -> str:
        return f"{self.message}\n{self.remedy}" if self.remedy else self.message


class Report:
    """The counts of one run. Safe to use from many threads.

    A child made by fork begins with a report of its own: what the parent did is the parent's.
    """

    def __init__(self, tape: Tape, mode: str) -> None:
        self.tape = tape.path
        self.local = tape.local
        self.name = tape.name
        self.mode = mode
        # Hits that somebody counted on its own account since the last time it was asked.
        self.pending: Callable[[], Iterable[tuple[str, int]]] = tuple
        self._begin()
        _reports.add(self)

    def _begin(self) -> None:
        self.started = time.time()
        self._hits: Counter[str] = Counter()
        self._recordings: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._refusals: deque[Refused] = deque(maxlen=KEPT_REFUSALS)
        self._expired: set[str] = set()
        self._lock = threading.Lock()

    def begin_in_child(self) -> None:
        """Forget what the parent counted."""
        self._begin()
        self.take_in()
        self._hits.clear()

    def take_in(self) -> None:
        """Add the hits that are counted elsewhere."""
        with self._lock:
            for key, times in self.pending():
                self._hits[key] += times

    def served(self, key: str, times: int = 1) -> None:
        """An answer was given from the tape."""
        with self._lock:
            self._hits[key] += times

    def recorded(self, key: str) -> None:
        """An answer was put on the tape."""
        with self._lock:
            self._recordings[key] += 1

    def served_expired(self, key: str) -> bool:
        """An answer was given that is too old; True for the first time with this key."""
        with self._lock:
            is_new = key not in self._expired
            self._expired.add(key)
            return is_new

    def count(self, name: str) -> None:
        """One more of: live, failed, not_stored, incomplete."""
        with self._lock:
            self._counts[name] += 1

    def refused(self, error: CassetteError) -> None:
        """A request got no answer."""
        with self._lock:
            self._counts["refused"] += 1
            self._refusals.append(Refused(error.message, error.remedy, error.diagnosis))

    @property
    def hits(self) -> Counter[str]:
        """How often each key was answered from the tape."""
        self.take_in()
        with self._lock:
            return Counter(self._hits)

    @property
    def recordings(self) -> Counter[str]:
        """How often each key was recorded."""
        with self._lock:
            return Counter(self._recordings)

    @property
    def counts(self) -> Counter[str]:
        """How many calls were live, failed, not_stored, incomplete or refused."""
        with self._lock:
            return Counter(self._counts)

    @property
    def expired(self) -> set[str]:
        """The keys that were answered although their recording is too old."""
        with self._lock:
            return set(self._expired)

    @property
    def refusals(self) -> list[str]:
        """What the refusals said, in order: the latest that are kept."""
        return [refused.message for refused in self.refused_since(0)]

    def refused_since(self, number: int) -> list[Refused]:
        """The refusals after the first so many, in order: the latest that are kept."""
        with self._lock:
            new = self._counts["refused"] - number
            return list(self._refusals)[-new:] if new > 0 else []

    @property
    def used(self) -> set[str]:
        """The keys that were served or recorded."""
        return set(self.hits) | set(self.recordings)

    @property
    def reused(self) -> int:
        """How often an answer was given again to a request that was made before in this run."""
        together = self.hits + self.recordings
        return sum(times - 1 for times in together.values())

    def as_dict(self) -> dict[str, object]:
        """The counts, for people's programs."""
        counts = self.counts
        return {
            "tape": self.tape,
            "mode": self.mode,
            "served": self.hits.total(),
            "reused": self.reused,
            "live": counts["live"],
            "recorded": self.recordings.total(),
            "failed": counts["failed"],
            "refused": counts["refused"],
            "not_stored": counts["not_stored"],
            "incomplete": counts["incomplete"],
            "expired": len(self.expired),
            "refusals": self.refusals,
        }


_reports: "weakref.WeakSet[Report]" = weakref.WeakSet()


def _begin_reports_in_child() -> None:
    for report in list(_reports):
        report.begin_in_child()


os.register_at_fork(after_in_child=_begin_reports_in_child)


@dataclass(frozen=True, slots=True)
class Savings:
    """What answers from a tape made unnecessary. None where nothing is known."""

    calls: int
    tokens: int | None
    usd: Decimal | None
    unpriced: int
    bytes: int


def usage_of_exchange(exchange: Exchange) -> Usage | None:
    """The tokens that a recorded answer reports."""
    response = exchange.response
    if not isinstance(response, Response):
        return usage_of_value(response)
    try:
        body = decoded(response.body, header(response.headers, "content-encoding")).data
    except TapesError:
        return None
    return usage_of(header(response.headers, "content-type"), body)


def savings(
    hits: Iterable[tuple[Exchange, int]], price: Callable[[Usage], Decimal | None]
) -> Savings:
    """What so many answers from these exchanges saved."""
    calls = unpriced = size = 0
    tokens: int | None = None
    usd: Decimal | None = None
    for exchange, times in hits:
        calls += times
        size += times * _size(exchange)
        usage = usage_of_exchange(exchange)
        if usage is None:
            unpriced += times
            continue
        tokens = (tokens or 0) + usage.total * times
        try:
            cost = price(usage)
        except MissingExtra:  # no prices are at hand, so none are known
            cost = None
        if cost is None:
            unpriced += times
        else:
            usd = (usd or Decimal(0)) + cost * times
    return Savings(calls, tokens, usd, unpriced, size)


def _size(exchange: Exchange) -> int:
    response = exchange.response
    if isinstance(response, Response):
        return len(response.body)
    return len(json.dumps(response, ensure_ascii=False).encode("utf-8", "surrogatepass"))


# --- kept beside the tape ---------------------------------------------------------------------

_SCHEMA = """
CREATE TABLE IF NOT EXISTS runs (
  number INTEGER PRIMARY KEY,
  tape TEXT NOT NULL,
  mode TEXT NOT NULL,
  pid INTEGER NOT NULL,
  started REAL NOT NULL,
  ended REAL NOT NULL,
  counts TEXT NOT NULL,
  hits TEXT NOT NULL,
  recordings TEXT NOT NULL
)
"""
# Runs that are kept a tape; older ones are forgotten.
KEPT_RUNS = 50


@dataclass(frozen=True, slots=True)
class Run:
    """A run that ended."""

    mode: str
    pid: int
    started: float
    ended: float
    counts: dict[str, int]
    hits: dict[str, int]
    recordings: dict[str, int]

    @property
    def used(self) -> set[str]:
        """The keys that the run served or recorded."""
        return set(self.hits) | set(self.recordings)


def keep_report(report: Report) -> None:
    """Leave a run's report beside its tape. A folder that cannot be written has none."""
    if report.local is None or not (report.used or report.counts):
        return
    name = report.name
    row = (
        name, report.mode, os.getpid(), report.started, time.time(),
        json.dumps(report.counts), json.dumps(report.hits), json.dumps(report.recordings),
    )  # fmt: skip
    try:
        with closing(connect(make_local(report.local) / STATE, _SCHEMA)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(
                "INSERT INTO runs (tape, mode, pid, started, ended, counts, hits, recordings)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                row,
            )
            connection.execute(
                "DELETE FROM runs WHERE tape = ? AND number NOT IN"
                " (SELECT number FROM runs WHERE tape = ? ORDER BY number DESC LIMIT ?)",
                (name, name, KEPT_RUNS),
            )
            connection.execute("COMMIT")
    except (OSError, sqlite3.Error) as error:
        log.debug("report not kept", extra={"tape": report.tape, "error": str(error)})


def runs_of(tape: Tape) -> list[Run]:
    """The runs that are kept of a tape, the latest first. Raises UnreadableTape."""
    path = None if tape.local is None else tape.local / STATE
    if path is None or not path.exists():
        return []
    try:
        with closing(connect_to_read(path, _SCHEMA)) as connection:
            rows = connection.execute(
                "SELECT mode, pid, started, ended, counts, hits, recordings FROM runs"
                " WHERE tape = ? ORDER BY number DESC",
                (tape.name,),
            )
            return [Run(*row[:4], *map(json.loads, row[4:])) for row in rows]
    except sqlite3.Error as error:
        raise UnreadableTape(
            f"the reports in {path} cannot be read: {error}",
            f"they are this machine's alone, and can go: rm {as_typed(path)}",
        ) from error


def unused(tape: Tape, used: set[str]) -> list[Exchange]:
    """The exchanges that answer and were not used, in the order of the tape."""
    return [
        exchange
        for exchange in tape.exchanges()
        if exchange.state == "complete" and exchange.key not in used
    ]
