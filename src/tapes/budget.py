"""Latch and budget: whether a live call is permitted, counted across threads and processes.

Rule 1: the latch is `DEMO_LIVE=1` and nothing else. A budget is a number of live calls
        (`CASSETTE_LIVE_BUDGET`), of tokens (`…_TOKENS`) or of US dollars (`…_USD`).
Rule 2: a unit is taken before the call is sent, in one transaction with the count, so that no
        interleaving of processes exceeds a limit by one.
Rule 3: a call that got no answer because it failed gives its unit back; one that we left does
        not, and neither does one whose process was killed. When in doubt, it was spent.
Rule 4: the count goes on from run to run until somebody resets it (`tapes budget reset`) or names
        a new run (`CASSETTE_BUDGET_RUN`).

Knows nothing of tapes, requests or prices.
"""

import os
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Protocol, TypeVar

from tapes.errors import BadSetting, LedgerFailed, as_typed
from tapes.forks import bring_through_forks
from tapes.state import connect, connect_to_read

LATCH = "DEMO_LIVE"
CALLS = "CASSETTE_LIVE_BUDGET"
TOKENS = "CASSETTE_LIVE_BUDGET_TOKENS"
USD = "CASSETTE_LIVE_BUDGET_USD"
RUN = "CASSETTE_BUDGET_RUN"


def latch_is_on(environ: Mapping[str, str]) -> bool:
    """Whether the operator opened the latch."""
    return environ.get(LATCH) == "1"


_KINDS = {"calls": "a whole number", "tokens": "a whole number", "usd": "a Decimal"}
_EXAMPLES = {"calls": "20", "tokens": "100_000", "usd": 'Decimal("0.50")'}


@dataclass(frozen=True, slots=True)
class Limits:
    """What live calls may cost. None is no limit. Raises BadSetting."""

    calls: int | None = None
    tokens: int | None = None
    usd: Decimal | None = None

    def __post_init__(self) -> None:
        for name, value, kind in (
            ("calls", self.calls, int),
            ("tokens", self.tokens, int),
            ("usd", self.usd, int | Decimal),
        ):
            if value is None:
                continue
            is_one = isinstance(value, kind) and not isinstance(value, bool)
            if not is_one or value != value or value < 0:
                raise BadSetting(
                    f"{name}={value!r} is not {_KINDS[name]} from 0 up",
                    f"for example: Limits({name}={_EXAMPLES[name]})",
                )

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "Limits":
        """The limits that the environment sets. Raises BadSetting naming the variable."""
        calls, tokens, usd = environ.get(CALLS), environ.get(TOKENS), environ.get(USD)
        if not (calls or tokens or usd):
            return _NO_LIMITS
        return cls(
            _number(calls, CALLS, int), _number(tokens, TOKENS, int), _number(usd, USD, Decimal)
        )

    @property
    def are_set(self) -> bool:
        """Whether there is any limit."""
        return (self.calls, self.tokens, self.usd) != (None, None, None)

    @property
    def are_zero(self) -> bool:
        """Whether a limit forbids every call."""
        return 0 in (self.calls, self.tokens, self.usd)

    def __str__(self) -> str:
        parts = (
            (self.calls, f"{self.calls} calls"),
            (self.tokens, f"{self.tokens} tokens"),
            (self.usd, f"{self.usd} USD"),
        )
        return ", ".join(text for value, text in parts if value is not None) or "no limit"


_NO_LIMITS = Limits()
Number = TypeVar("Number", int, Decimal)


def _number(said: str | None, name: str, kind: Callable[[str], Number]) -> Number | None:
    text = (said or "").strip()
    if not text:
        return None
    try:
        value = kind(text)
        if value < 0 or value != value:
            raise ValueError
    except (ValueError, InvalidOperation):
        raise BadSetting(
            f"{name}={text!r} is not a number from 0 up", f"for example: {name}=20"
        ) from None
    return value


@dataclass(frozen=True, slots=True)
class Reserve:
    """The most that a call can cost in tokens and dollars; 0 where no such limit is set."""

    tokens: int = 0
    usd: Decimal = Decimal(0)


@dataclass(frozen=True, slots=True)
class Unit:
    """A permitted call in the ledger, and what was set aside for it."""

    number: int
    reserve: Reserve


@dataclass(frozen=True, slots=True)
class Spent:
    """What is gone of a budget, calls still under way included, and since when (Unix time)."""

    calls: int
    tokens: int
    usd: Decimal
    since: float | None

    def leaves_room_for(self, reserve: Reserve, limits: Limits) -> bool:
        """Whether one more call stays within every limit."""
        return not self.passed_by(reserve, limits)

    def passed_by(self, reserve: Reserve, limits: Limits) -> list[str]:
        """The variables of the limits that one more call would pass."""
        passed: list[str] = []
        if limits.calls is not None and self.calls + 1 > limits.calls:
            passed.append(CALLS)
        if limits.tokens is not None and self.tokens + reserve.tokens > limits.tokens:
            passed.append(TOKENS)
        if limits.usd is not None and not self.usd + reserve.usd <= limits.usd:
            passed.append(USD)
        return passed


@dataclass(frozen=True, slots=True)
class Spend:
    """One line of the ledger: who spent what."""

    tape: str
    run: str
    key: str
    host: str
    pid: int
    at: float
    state: str
    tokens: int
    usd: Decimal


class AnyLedger(Protocol):
    """The spends of one tape and run, counted once for all who share the tape.

    Every call raises LedgerFailed where the count cannot be had.
    """

    def take(self, key: str, limits: Limits, reserve: Reserve) -> Unit | Spent:
        """A unit for one call, or what is spent where a limit leaves no room for it."""
        ...

    def settle(self, unit: Unit, tokens: int | None, usd: Decimal | None) -> None:
        """The call was made. What it really cost takes the place of what was set aside."""

    def give_back(self, unit: Unit) -> None:
        """The call failed before anybody answered."""

    def spent(self) -> Spent:
        """What this tape's run has spent."""
        ...

    def close(self) -> None:
        """Let go of files and connections."""


_SCHEMA = """
CREATE TABLE IF NOT EXISTS spends (
  number INTEGER PRIMARY KEY,
  tape TEXT NOT NULL,
  run TEXT NOT NULL,
  key TEXT NOT NULL,
  host TEXT NOT NULL,
  pid INTEGER NOT NULL,
  at REAL NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('open', 'spent', 'returned')),
  tokens INTEGER NOT NULL,
  usd TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS spends_of_run ON spends (tape, run) WHERE state != 'returned';
"""
_COUNTED = "FROM spends WHERE tape = ? AND run = ? AND state != 'returned'"


class Ledger:
    """The spends of one tape and run, in a SQLite file that all processes share."""

    def __init__(self, path: Path | None, tape: str, run: str | None = None) -> None:
        """`path` is the ledger's file; None keeps it in memory, for a tape that is in memory."""
        self._path = path
        self._tape = tape
        self._run = os.environ.get(RUN, "") if run is None else run
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        bring_through_forks(self)

    def before_fork(self) -> None:
        """Let nothing be half counted. No connection to a file crosses a fork: in the child SQLite
        would take what the parent had locked for its own."""
        self._lock.acquire()
        if self._path is not None:
            self._close()

    def after_fork(self) -> None:
        """Go on."""
        self._lock.release()

    def in_child(self) -> None:
        """Begin anew."""
        self._close()
        self._lock = threading.Lock()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _translated(self._path):
            if self._connection is None:
                self._connection = connect(self._path, _SCHEMA)
            connection = self._connection
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.rollback()
                raise
            connection.commit()

    def take(self, key: str, limits: Limits, reserve: Reserve) -> Unit | Spent:
        """A unit for one call, or what is spent where a limit leaves no room for it."""
        with self._transaction() as connection:
            spent = self._spent(connection)
            if not spent.leaves_room_for(reserve, limits):
                return spent
            cursor = connection.execute(
                "INSERT INTO spends (tape, run, key, host, pid, at, state, tokens, usd)"
                " VALUES (?, ?, ?, ?, ?, ?, 'open', ?, ?)",
                (
                    self._tape, self._run, key, socket.gethostname(), os.getpid(), time.time(),
                    reserve.tokens, str(reserve.usd),
                ),
            )  # fmt: skip
            return Unit(cursor.lastrowid or 0, reserve)

    def settle(self, unit: Unit, tokens: int | None, usd: Decimal | None) -> None:
        """The call was made. What it really cost takes the place of what was set aside."""
        with self._transaction() as connection:
            connection.execute(
                "UPDATE spends SET state = 'spent', tokens = coalesce(?, tokens),"
                " usd = coalesce(?, usd) WHERE number = ?",
                (tokens, None if usd is None else str(usd), unit.number),
            )

    def give_back(self, unit: Unit) -> None:
        """The call failed before anybody answered."""
        with self._transaction() as connection:
            connection.execute(
                "UPDATE spends SET state = 'returned', tokens = 0, usd = '0' WHERE number = ?",
                (unit.number,),
            )

    def spent(self) -> Spent:
        """What this tape's run has spent."""
        with self._transaction() as connection:
            return self._spent(connection)

    def _spent(self, connection: sqlite3.Connection) -> Spent:
        row = connection.execute(
            f"SELECT count(*), coalesce(sum(tokens), 0), min(at) {_COUNTED}",
            (self._tape, self._run),
        ).fetchone()
        dollars = connection.execute(
            f"SELECT usd {_COUNTED} AND usd != '0'",
            (self._tape, self._run),
        )
        return Spent(row[0], row[1], sum((Decimal(d[0]) for d in dollars), Decimal(0)), row[2])

    def close(self) -> None:
        """Let go of the file."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = None

    def __del__(self) -> None:
        """A cassette that nobody closed leaves no open file behind."""
        if getattr(self, "_connection", None) is not None:
            self.close()


@contextmanager
def _translated(path: Path | None) -> Iterator[None]:
    """A ledger that cannot be kept permits nothing."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        folder = path.parent if path else Path()
        remedy = f"give yourself the right to write there: ls -la {as_typed(folder)}"
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
            remedy = f"free space on that disk: df -h {as_typed(folder)}"
        raise LedgerFailed(f"live calls cannot be counted in {path}: {error}", remedy) from error


def spends(path: Path) -> list[Spend]:
    """Every line of a ledger, the oldest first; none where there is no ledger."""
    if not path.exists():
        return []
    with _translated(path), closing(connect_to_read(path, _SCHEMA)) as connection:
        rows = connection.execute(
            "SELECT tape, run, key, host, pid, at, state, tokens, usd FROM spends ORDER BY number"
        )
        return [Spend(*row[:-1], Decimal(row[-1])) for row in rows]  # type: ignore[call-arg]  # a row has the fields in order


def reset(path: Path, tape: str | None = None) -> int:
    """Forget what was spent, on one tape or on all of a ledger; gives the number of lines."""
    if not path.exists():
        return 0
    where, values = ("WHERE tape = ?", (tape,)) if tape else ("", ())
    with _translated(path), closing(connect(path, _SCHEMA)) as connection:
        return connection.execute(f"DELETE FROM spends {where}", values).rowcount
