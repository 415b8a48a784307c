"""What machines that share a tape in PostgreSQL count together: live calls, and who makes which.

Rule 1: a unit is taken in one transaction with the count, under a lock of that tape and run, so
        that no interleaving of machines exceeds a limit by one.
Rule 2: a flight is a lock of the session, which the server lets go when its holder dies. It needs
        a connection of its own: behind a pooler, one that keeps sessions.

Knows nothing of exchanges.
"""

import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from hashlib import sha256
from typing import Any

import psycopg

from tapes.budget import Limits, Reserve, Spend, Spent, Unit
from tapes.errors import LedgerFailed
from tapes.flights import Flights

Connection = psycopg.Connection[tuple[Any, ...]]
_TRUSTED_S = 1.0

_SCHEMA = """
SELECT pg_advisory_xact_lock(8386658464824651635);
CREATE TABLE IF NOT EXISTS tapes_spends (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tape text NOT NULL,
  run text NOT NULL,
  key text NOT NULL,
  host text NOT NULL,
  pid bigint NOT NULL,
  at double precision NOT NULL,
  state text NOT NULL CHECK (state IN ('open', 'spent', 'returned')),
  tokens bigint NOT NULL,
  usd numeric NOT NULL
);
CREATE INDEX IF NOT EXISTS tapes_spends_of_run ON tapes_spends (tape, run)
  WHERE state <> 'returned';
"""
_SPENT = (
    "SELECT count(*), coalesce(sum(tokens), 0), coalesce(sum(usd), 0), min(at) FROM tapes_spends"
    " WHERE tape = %s AND run = %s AND state <> 'returned'"
)
_TAKE = (
    "INSERT INTO tapes_spends (tape, run, key, host, pid, at, state, tokens, usd)"
    " VALUES (%s, %s, %s, %s, %s, %s, 'open', %s, %s) RETURNING number"
)
_SETTLE = (
    "UPDATE tapes_spends SET state = 'spent', tokens = coalesce(%s, tokens),"
    " usd = coalesce(%s, usd) WHERE number = %s"
)
_GIVE_BACK = "UPDATE tapes_spends SET state = 'returned', tokens = 0, usd = 0 WHERE number = %s"
_ALL = (
    "SELECT tape, run, key, host, pid, at, state, tokens, usd FROM tapes_spends WHERE tape = %s"
    " ORDER BY number"
)
_RESET = "DELETE FROM tapes_spends WHERE tape = %s"


class PostgresLedger:
    """The spends of one tape and run, in the database that all machines share."""

    def __init__(
        self, connect: Callable[[], Connection], shown: str, tape: str, run: str = ""
    ) -> None:
        self._connect = connect
        self._shown = shown
        self._tape = tape
        self._run = run
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._pid = -1
        self._used = 0.0
        _ledgers.add(self)

    def begin_in_child(self) -> None:
        """After a fork: another thread may have held the lock, while it asked the server."""
        self._lock = threading.Lock()

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._lock:
            try:
                connection = self._current()
                with connection.transaction():
                    yield connection
            except (psycopg.Error, OSError) as error:
                self._let_go()
                raise LedgerFailed(
                    f"live calls cannot be counted in {self._shown}: {str(error).strip()}",
                    f"check that it can be reached: psql '{self._shown.partition('#')[0]}'",
                ) from error

    def _current(self) -> Connection:
        idle_s = time.monotonic() - self._used
        self._used = time.monotonic()
        connection = self._connection
        if connection is not None and self._pid == os.getpid() and _is_alive(connection, idle_s):
            return connection
        self._let_go()
        connection = self._connect()
        connection.execute(_SCHEMA)
        self._connection, self._pid = connection, os.getpid()
        return connection

    def take(self, key: str, limits: Limits, reserve: Reserve) -> Unit | Spent:
        """A unit for one call, or what is spent where a limit leaves no room for it."""
        with self._transaction() as connection:
            number = _number(f"ledger {self._tape} {self._run}")
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (number,))
            spent = self._spent(connection)
            if not spent.leaves_room_for(reserve, limits):
                return spent
            values = (
                self._tape, self._run, key, socket.gethostname(), os.getpid(), time.time(),
                reserve.tokens, reserve.usd,
            )  # fmt: skip
            (unit,) = connection.execute(_TAKE, values).fetchone() or (0,)
            return Unit(unit, reserve)

    def settle(self, unit: Unit, tokens: int | None, usd: Decimal | None) -> None:
        """The call was made. What it really cost takes the place of what was set aside."""
        with self._transaction() as connection:
            connection.execute(_SETTLE, (tokens, usd, unit.number))

    def give_back(self, unit: Unit) -> None:
        """The call failed before anybody answered."""
        with self._transaction() as connection:
            connection.execute(_GIVE_BACK, (unit.number,))

    def spent(self) -> Spent:
        """What this tape's run has spent."""
        with self._transaction() as connection:
            return self._spent(connection)

    def _spent(self, connection: Connection) -> Spent:
        row = connection.execute(_SPENT, (self._tape, self._run)).fetchone() or (0, 0, 0, None)
        return Spent(row[0], int(row[1]), Decimal(row[2]), row[3])

    def spends(self) -> list[Spend]:
        """Every line of this tape, whatever its run, the oldest first."""
        with self._transaction() as connection:
            rows = connection.execute(_ALL, (self._tape,)).fetchall()
        return [Spend(*row) for row in rows]

    def reset(self) -> int:
        """Forget what was spent on this tape; gives the number of lines."""
        with self._transaction() as connection:
            return connection.execute(_RESET, (self._tape,)).rowcount

    def close(self) -> None:
        """Let go of the connection."""
        with self._lock:
            self._let_go()

    def _let_go(self) -> None:
        if self._connection is not None and self._pid == os.getpid():
            self._connection.close()
        self._connection = None


_ledgers: "weakref.WeakSet[PostgresLedger]" = weakref.WeakSet()


def _begin_in_child() -> None:
    for ledger in list(_ledgers):
        ledger.begin_in_child()


os.register_at_fork(after_in_child=_begin_in_child)


class PostgresFlights(Flights):
    """Flights whose locks the database keeps, for all machines."""

    def __init__(self, connect: Callable[[], Connection], tape: str) -> None:
        super().__init__(None)
        self._connect = connect
        self._tape = tape
        self._connection: Connection | None = None
        self._connection_pid = -1
        self._used = 0.0

    def _lock(self, key: str) -> bool:
        try:
            return bool(self._said("SELECT pg_try_advisory_lock(%s)", key))
        except (psycopg.Error, OSError):
            # Within this process the table still holds; recording will say what is wrong.
            return True

    def _unlock(self, key: str) -> None:
        try:
            self._said("SELECT pg_advisory_unlock(%s)", key)
        except (psycopg.Error, OSError):
            self._let_go()  # and with the connection the server lets go of its locks

    def _said(self, statement: str, key: str) -> object:
        """The answer to a question about a key's lock. Raises psycopg.Error."""
        idle_s = time.monotonic() - self._used
        self._used = time.monotonic()
        connection, is_ours = self._connection, self._connection_pid == os.getpid()
        if connection is None or not is_ours or not _is_alive(connection, idle_s):
            self._let_go()
            connection = self._connection = self._connect()
            self._connection_pid = os.getpid()
        number = _number(f"flight {self._tape} {key}")
        return (connection.execute(statement, (number,)).fetchone() or (None,))[0]

    def close(self) -> None:
        """Let go of the connection, and with it of every flight."""
        with self._mutex:  # nobody is asking the server with it
            self._let_go()

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and self._connection_pid == os.getpid():
            connection.close()


def _is_alive(connection: Connection, idle_s: float) -> bool:
    """Whether a connection can be used; one that was idle for a while is asked."""
    if connection.closed or connection.broken:
        return False
    if idle_s < _TRUSTED_S:
        return True
    try:
        connection.execute("SELECT 1")
    except psycopg.Error:
        return False
    return True


def _number(text: str) -> int:
    """A lock's number: 64 bits with a sign."""
    return int.from_bytes(sha256(text.encode()).digest()[:8], "big", signed=True)
