"""A tape in PostgreSQL: for a store that many machines share.

    postgresql://user@host/database#name          (`#name` chooses one of several tapes)

Rule 1: one row per exchange, in order; the last one under a key answers. Bodies of some size lie
        in a table of their own, once for all tapes of the database.
Rule 2: writers of a process share transactions (group commit); each is on the server's disk before
        `append` returns, whatever the server's default for that is.
Rule 3: a database without our tables is an empty tape; they are made with the first append.
Rule 4: a connection that was lost is opened anew, and what had not been committed is sent again.
        Where it is lost in a commit, nobody knows: that is an error.
Rule 5: a server that hangs is an error after a while, and its connection is given up.
Rule 6: no password is ever shown: `path` is without it.

Needs the extra `postgres`. Knows nothing of modes.
"""

import re
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import psycopg
from psycopg import errors as sql_errors

from tapes.errors import BadSetting, ClosedTape, TapesError, UnreadableTape, UnwritableTape
from tapes.exchange import Exchange, ReadRow, answer_of, damaged, exchange_of
from tapes.forks import bring_through_forks
from tapes.tape.base import blob_hash, is_key, is_of_bytes, row_and_bodies
from tapes.tape.beside import FOLDER
from tapes.tape.commit import GroupCommit
from tapes.tape.rowtext import read_row, write_row
from tapes.tape.sharing import PostgresFlights, PostgresLedger

# Made under one lock, because two who come first at once would get in each other's way.
_SCHEMA = """
SELECT pg_advisory_xact_lock(8386658464824651635);
CREATE TABLE IF NOT EXISTS tapes_exchanges (
  number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  tape text NOT NULL,
  key text NOT NULL,
  state text NOT NULL,
  canonicalizer text NOT NULL,
  recorded_at text,
  row text NOT NULL
);
CREATE INDEX IF NOT EXISTS tapes_exchanges_by_key ON tapes_exchanges (tape, key, number);
CREATE TABLE IF NOT EXISTS tapes_bodies (hash text PRIMARY KEY, bytes bytea NOT NULL);
"""
_LAST = (
    "SELECT number, row FROM tapes_exchanges WHERE tape = %s AND key = %s"
    " ORDER BY number DESC LIMIT 1"
)
_NEXT = (
    "SELECT number, row FROM tapes_exchanges WHERE tape = %s AND number > %s"
    " ORDER BY number LIMIT 64"
)
_ANSWERS = (
    "SELECT key FROM (SELECT DISTINCT ON (key) key, state FROM tapes_exchanges WHERE tape = %s"
    " ORDER BY key, number DESC) AS last WHERE state = 'complete'"
)
_BODY = "SELECT bytes FROM tapes_bodies WHERE hash = %s"
_INSERT = (
    "INSERT INTO tapes_exchanges (tape, key, state, canonicalizer, recorded_at, row)"
    " VALUES (%s, %s, %s, %s, %s, %s)"
)
_INSERT_BODY = "INSERT INTO tapes_bodies VALUES (%s, %s) ON CONFLICT DO NOTHING"

_WHERE = re.compile(r"(postgres(?:ql)?://)(?:([^@/?#:]*)(:[^@/?#]*)?@)?([^#]*)(?:#(.*))?")
_PASSWORD = re.compile(r"(?<=[?&])(?:ssl)?password=[^&]*&?")
# Of a password whose own / ? or @ is not escaped, the driver takes a part for the host.
_AMBIGUOUS = re.compile(r"[^?]*@|[^?]*\?[^=]*@")
_DEFAULT_NAME = "default"
# A server that is gone is found out within this time, in the middle of a question too.
_PATIENCE = {
    "connect_timeout": 10,
    "tcp_user_timeout": 20_000,
    "keepalives_idle": 30,
    "keepalives_interval": 10,
}
# So long may it say nothing while it is asked: one that hangs keeps its connections alive.
_SILENCE_S = 20.0
_CONNECTIONS = 8
_LOST = (psycopg.OperationalError, psycopg.InterfaceError)

# Connections of the parent, which a child must not even forget.
_inherited: list["_Links"] = []

Connection = psycopg.Connection[tuple[Any, ...]]
_Item = tuple[tuple[str, str, str, str, str | None, str], dict[str, bytes]]  # a row, its bodies
_Result = TypeVar("_Result")


class PostgresTape:
    """A tape in a PostgreSQL database."""

    def __init__(self, where: str) -> None:
        self._conninfo, self.path, self._tape = _taken_apart(where)
        self.local: Path | None = Path(FOLDER)
        self.name = re.sub(r"[^\w.-]+", "_", self.path.partition("://")[2])
        self._closed = False
        self._begin()
        weakref.finalize(self, _Links.close, self._links)
        self._read("SELECT 1")  # that it can be reached is found out now, not at the first miss
        bring_through_forks(self)

    def _begin(self) -> None:
        self._links = _Links(self._conninfo)
        self._commits = GroupCommit(self._write)
        self._has_tables = False
        self._counting: list[PostgresLedger | PostgresFlights] = []

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedTape(f"the tape {self.path} is closed", "open it again to use it")

    # --- finding

    def find(self, key: str) -> Exchange | None:
        """The exchange that was appended last under this key."""
        return self._last(key, exchange_of)

    def answer(self, key: str) -> Exchange | None:
        """As `find`, without the request."""
        return self._last(key, answer_of)

    def _last(self, key: str, read: ReadRow) -> Exchange | None:
        self._require_open()
        for number, row in self._read(_LAST, self._tape, key) if is_key(key) else []:
            return self._exchange(number, row, read)
        return None

    def exchanges(self) -> Iterator[Exchange]:
        """All exchanges in the order of appending. Raises DamagedTape at the first broken row."""
        self._require_open()
        return self._exchanges()

    def _exchanges(self) -> Iterator[Exchange]:
        after = 0
        while rows := self._read(_NEXT, self._tape, after):
            for number, row in rows:
                after = number
                yield self._exchange(number, row, exchange_of)

    def keys(self) -> set[str]:
        """The keys whose last exchange is complete."""
        self._require_open()
        return {key for (key,) in self._read(_ANSWERS, self._tape)}

    def _exchange(self, number: int, text: str, read: ReadRow) -> Exchange:
        place = f"exchange {number}"
        return read(read_row(text.encode(), self.path, place), self.path, place, self._body)

    def _body(self, name: str) -> bytes:
        rows = self._read(_BODY, name)
        if not rows:
            raise damaged(self.path, f"body {name[:12]}", "it is missing, and a row names it")
        data = bytes(rows[0][0])
        if blob_hash(data) != name:
            raise damaged(self.path, f"body {name[:12]}", "it is not the one that was kept")
        return data

    def _read(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        def ask(connection: Connection) -> list[tuple[Any, ...]]:
            try:
                return connection.execute(statement, values).fetchall()
            except sql_errors.UndefinedTable:
                return []  # nothing was ever appended

        with self._translated():
            return self._links.ask(ask)

    @property
    def _reached(self) -> str:
        return f"check that it can be reached: psql '{self.path.partition('#')[0]}' -c 'SELECT 1'"

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            raise UnreadableTape(
                f"the tape {self.path} cannot be read: {_said(error)}", self._reached
            ) from error

    # --- appending

    def append(self, exchange: Exchange) -> None:
        """Keep an exchange; on return it is durable. Raises UnwritableTape, NotAnAnswer."""
        self._commits.submit(self.ready(exchange))

    def ready(self, exchange: Exchange) -> _Item:
        """What `append_ready` keeps of an exchange. Raises NotAnAnswer."""
        self._require_open()
        row, bodies = row_and_bodies(exchange)
        text = write_row(row, of_bytes=is_of_bytes(exchange)).decode()
        values = (
            self._tape, exchange.key, str(exchange.state), exchange.canonicalizer,
            exchange.recorded_at, text,
        )  # fmt: skip
        return values, bodies

    def append_ready(self, items: Sequence[_Item]) -> list[Exception | None]:
        """Keep them in order, with one commit; what `append` would have raised for each."""
        return self._commits.submit_all(items)

    def _write(self, batch: Sequence[_Item]) -> int:
        """Insert a batch, or its first where it cannot be inserted whole; gives the number."""
        try:
            try:
                self._insert(batch)
            except sql_errors.UndefinedTable:  # somebody dropped them
                self._has_tables = False
                self._insert(batch)
        except psycopg.Error as error:
            if len(batch) > 1:
                return self._write(batch[:1])
            raise self._unwritable(error) from error
        return len(batch)

    def _insert(self, batch: Sequence[_Item]) -> None:
        def send(connection: Connection) -> None:
            with connection.cursor() as cursor:
                cursor.execute("BEGIN")
                try:
                    if not self._has_tables:
                        cursor.execute(_SCHEMA)
                    bodies = {name: data for _, some in batch for name, data in some.items()}
                    if bodies:
                        # In one order, so that two writers never wait for each other in a circle.
                        cursor.executemany(_INSERT_BODY, sorted(bodies.items()))
                    cursor.executemany(_INSERT, [values for values, _ in batch])
                except BaseException:
                    if not connection.closed:
                        cursor.execute("ROLLBACK")
                    raise

        def commit(connection: Connection) -> None:
            connection.execute("COMMIT")

        self._links.ask(send, commit)
        self._has_tables = True

    def _unwritable(self, error: psycopg.Error) -> TapesError:
        remedy = "check that its user may write: GRANT CREATE, USAGE ON SCHEMA public TO …"
        if isinstance(error, sql_errors.InsufficientResources):
            remedy = "free space on the server's disk; nothing that was recorded before is lost"
        elif isinstance(error, _LOST):
            remedy = self._reached
        return UnwritableTape(f"the tape {self.path} cannot be written: {_said(error)}", remedy)

    # --- what else the server counts for all machines

    def ledger(self, run: str) -> PostgresLedger:
        """The count of live calls of a run, in the same database."""
        conninfo = self._conninfo
        ledger = PostgresLedger(lambda: connected(conninfo), self.path, self._tape, run)
        self._counting.append(ledger)
        return ledger

    def flights(self) -> PostgresFlights:
        """Which keys have a live call under way: locks of the same database."""
        conninfo = self._conninfo
        flights = PostgresFlights(lambda: connected(conninfo), self._tape)
        self._counting.append(flights)
        return flights

    # --- ending, and going through a fork

    def close(self) -> None:
        """Let go of the connections."""
        with self._commits.at_rest():
            self._closed = True
            self._links.close()
            for counting in self._counting:
                counting.close()

    def before_fork(self) -> None:
        """Let nothing be half written."""
        self._resting = self._commits.at_rest()
        self._resting.__enter__()

    def after_fork(self) -> None:
        """Go on."""
        self._resting.__exit__(None, None, None)

    def in_child(self) -> None:
        """Begin anew: a connection must not cross a fork. The parent's are not closed here."""
        _inherited.append(self._links)
        self._begin()


class _Links:
    """A few connections, made when they are needed. Safe to use from many threads."""

    def __init__(self, conninfo: str) -> None:
        self._conninfo = conninfo
        self._idle: list[Connection] = []
        self._free = threading.BoundedSemaphore(_CONNECTIONS)

    def ask(
        self,
        question: Callable[[Connection], _Result],
        commit: Callable[[Connection], None] | None = None,
    ) -> _Result:
        """Ask on one connection, once more where it turns out to have been lost meanwhile.

        `commit` is never done twice: see rule 4.
        """
        with self._free:
            old = self._taken()
            connection = old or connected(self._conninfo)
            try:
                try:
                    result = question(connection)
                except _LOST:
                    if old is None or not (connection.broken or connection.closed):
                        raise
                    connection.close()
                    connection = connected(self._conninfo)
                    result = question(connection)
                if commit is not None:
                    commit(connection)
            except BaseException:
                self._put_back(connection)
                raise
            self._put_back(connection)
            return result

    def _taken(self) -> Connection | None:
        try:
            return self._idle.pop()
        except IndexError:
            return None

    def _put_back(self, connection: Connection) -> None:
        idle = connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        if connection.broken or connection.closed or not idle:
            connection.close()
        else:
            self._idle.append(connection)

    def close(self) -> None:
        """Close those that nobody uses; whoever uses one closes it."""
        while (connection := self._taken()) is not None:
            connection.close()


class _Impatient(psycopg.Connection[tuple[Any, ...]]):
    """A connection that is given up where the server says nothing for long (rule 5)."""

    def wait(self, gen: Generator[Any, Any, _Result], *args: Any, **options: Any) -> _Result:
        """Wait for the server."""
        try:
            return super().wait(_heard(gen), *args, **options)
        except _Silence:
            self.close()
            raise


class _Silence(psycopg.OperationalError):
    """The server said nothing for long."""


def _heard(gen: Generator[Any, Any, _Result]) -> Generator[Any, Any, _Result]:
    """The steps of asking, as long as the server says something. Raises _Silence."""
    last = time.monotonic()
    try:
        wanted = next(gen)
        while True:
            ready = yield wanted  # 0 is: not yet
            now = time.monotonic()
            if ready:
                last = now
            elif now - last > _SILENCE_S:
                raise _Silence(f"the server has not answered for {_SILENCE_S:g} seconds")
            wanted = gen.send(ready)
    except StopIteration as end:
        result: _Result = end.value
        return result


def connected(conninfo: str) -> Connection:
    """A connection on which each statement stands for itself, and is durable once answered."""
    given = {name: value for name, value in _PATIENCE.items() if f"{name}=" not in conninfo}
    connection = _Impatient.connect(conninfo, autocommit=True, prepare_threshold=None, **given)  # type: ignore[arg-type]  # the options are numbers and not those with a type of their own
    try:
        connection.execute("SET synchronous_commit = on")
        connection.execute("SET client_encoding = 'UTF8'")
    except BaseException:
        connection.close()
        raise
    return connection


def _taken_apart(where: str) -> tuple[str, str, str]:
    """What the driver gets, what people are shown, and the name of the tape. Raises BadSetting."""
    match = _WHERE.fullmatch(where)
    name = unquote((match and match[5]) or "") or _DEFAULT_NAME
    if match is None or not re.fullmatch(r"[\w.-]{1,100}", name):
        raise BadSetting(
            "this is no address of a tape in PostgreSQL",
            "for example: postgresql://user@host/database#demo; names have letters, digits, ._-",
        )
    scheme, user, _, rest, _ = match.groups()
    if _AMBIGUOUS.match(rest):
        raise BadSetting(
            "in this address of a tape in PostgreSQL, a / ? or @ stands before the host",
            "in a password they are written %2F, %3F and %40",
        )
    conninfo = where.partition("#")[0]
    shown = f"{scheme}{user + '@' if user else ''}{_PASSWORD.sub('', rest).rstrip('?&')}"
    return conninfo, shown if name == _DEFAULT_NAME else f"{shown}#{name}", name


def _said(error: psycopg.Error) -> str:
    """The first line of what the server or the driver said."""
    return str(error).strip().partition("\n")[0] or type(error).__name__
