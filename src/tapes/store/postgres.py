"""The log in PostgreSQL: for several machines, and for teams.

Rule 1: writers do not wait for each other but where they must: for a turn that others are packed
        against, for the number of a change.
Rule 2: tables change under one advisory lock, in one transaction.
Rule 3: words are found by sets of terms (tsvector) that we made ourselves: the same terms as in
        SQLite, so that both find the same.

Knows nothing of what is kept.
"""

import os
import select as polling
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.types.json import set_json_loads
from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    MetaData,
    Table,
    cast,
    create_engine,
    event,
    exc,
    exists,
    func,
    literal,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, TSQUERY, TSVECTOR
from sqlalchemy.types import Text

from tapes.errors import TapesError, UnavailableStore, UnreadableStore, as_typed
from tapes.loosejson import as_it_was_kept
from tapes.store.columns import Id, JsonText, bytes_of_id
from tapes.store.database import (
    Database,
    Either,
    Every,
    Term,
    Wanted,
    WordIndex,
    Words,
    close_what_comes_back,
)
from tapes.store.migrate import made_ready
from tapes.store.sql import SqlStore
from tapes.store.tables import metadata

_CONNECTIONS, _MORE = 8, 8
_CONNECT_S = 10
# Since when a connection rests, and for how long that needs no look.
_RESTS, _NAP_S = "rests since", 1.0
# Advisory locks are numbers; this one is for changing tables.
_MIGRATING = int.from_bytes(b"tlog", "big")
# A log of this size is vacuumed while the caller waits.
_SMALL = 256 * 1024 * 1024


def open_postgres(dsn: str) -> SqlStore:
    """The log in a database, whose tables are made where there are none.

    Raises UnreadableStore (NewerStore) or UnavailableStore.
    """
    database = PostgresDatabase(dsn)
    try:
        made_ready(database)
    except BaseException:
        database.close()
        raise
    return SqlStore(database)


class PostgresDatabase(Database):
    """A PostgreSQL database, by its DSN: a URL or libpq's own form."""

    def __init__(self, dsn: str) -> None:
        super().__init__()
        self.name = shown_name(dsn)
        self._dsn = dsn
        self.span_words = _Terms("span_words")
        self.session_words = _Terms("session_words")
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._sequence = ""
        self._copies: dict[tuple[str, tuple[str, ...]], _Copying] = {}
        self._engine = create_engine(
            "postgresql+psycopg://",
            creator=self._connect,
            pool_size=_CONNECTIONS,
            max_overflow=_MORE,
        )
        close_what_comes_back(self._engine)
        event.listen(self._engine, "connect", _prepare)
        event.listen(self._engine, "checkout", self._try_again_after_a_rest)
        event.listen(self._engine, "checkin", _rest)
        self.dialect = self._engine.dialect
        self._reading = self._engine.execution_options(
            isolation_level="REPEATABLE READ", postgresql_readonly=True
        )

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(
            self._dsn, connect_timeout=_CONNECT_S, application_name="tapes", autocommit=False
        )

    def _try_again_after_a_rest(self, connection: Any, record: Any, _: Any) -> None:
        """Have a connection replaced that broke while it rested, with all that are as old.

        To ask whether it works costs a round trip: one that worked just now is asked only where
        something came unasked, as it does from a server that stops.
        """
        try:
            has_slept = time.monotonic() - record.info.get(_RESTS, 0.0) >= _NAP_S
            if has_slept or _is_told_something(connection):
                self.dialect.do_ping(connection)
        except psycopg.Error as error:
            raise exc.InvalidatePoolError from error

    def _here(self) -> None:
        """Connections do not cross a fork: the child has its own, and leaves the parent's open."""
        if self._pid != os.getpid():
            self._engine.dispose(close=False)
            self._begin()

    # --- transactions

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one moment."""
        self._here()
        with self._translated(), self._reading.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that changes something."""
        self._here()
        with (
            self.noticing(),
            self._translated(),
            self._engine.connect() as connection,
            connection.begin(),
        ):
            yield connection

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """Under the lock for changing tables."""
        with self.writing() as connection:
            lock = text("SELECT pg_advisory_xact_lock(:number)")
            connection.execute(lock, {"number": _MIGRATING})
            yield connection

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (exc.OperationalError, exc.InterfaceError, exc.TimeoutError) as error:
            raise self._error(error) from error
        except exc.ProgrammingError as error:
            if isinstance(error.orig, psycopg.errors.InsufficientPrivilege):
                raise UnreadableStore(
                    f"{self.name}: {_said(error)}", "grant the user of the DSN what it lacks"
                ) from error
            raise

    def _error(self, error: Exception) -> TapesError:
        return UnavailableStore(
            f"the log {self.name} cannot be used just now: {_said(error)}",
            f"check that it can be reached: psql {self.name}",
        )

    def keep_copy(self, version: str) -> None:
        """Nothing: a server is backed up where it runs; what fails is rolled back."""

    # --- its own way

    def json_text(self, column: Column[Any], path: tuple[str, ...]) -> ColumnElement[str]:
        """By the path operator."""
        place = cast(literal(list(path), ARRAY(Text)), ARRAY(Text))
        return column.op("#>>", return_type=Text())(place)

    def new_turn_ids(
        self, connection: Connection, count: int, org_ids: Sequence[str]
    ) -> tuple[Sequence[int], Collection[str]]:
        """The next numbers of the sequence."""
        if not self._sequence:  # to find its name takes longer than to ask it
            ((self._sequence,),) = self.rows_of(connection, _SEQUENCE)
        asked = {"count": count, "sequence": self._sequence, "orgs": f"{{{','.join(org_ids)}}}"}
        ((ids, erased),) = self.rows_of(connection, _NEW_IDS, asked)
        return sorted(ids), [org_ids[number - 1] for number in erased]

    def insert_only_new(
        self, connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]
    ) -> bool:
        """By a copy in the server's own form: half the work of inserting them, for both sides."""
        key = (table.name, tuple(rows[0]))
        if key not in self._copies:
            self._copies[key] = _Copying([table.c[name] for name in key[1]], self.dialect)
        copying = self._copies[key]
        try:
            with (
                self.errors_as_usual(copying.sql),
                connection.connection.cursor().copy(copying.sql) as copy,
            ):
                copy.set_types(copying.kinds)
                for values in copying.bound(rows):
                    copy.write_row(values)
        except exc.IntegrityError as error:
            if isinstance(error.orig, psycopg.errors.UniqueViolation):
                return False
            raise
        return True

    @contextmanager
    def leading(self) -> Iterator[bool]:
        """Any number of processes may derive: each takes sessions that no other has."""
        yield True

    # --- keeping

    def wipe(self) -> bool:
        """Have dead rows taken out of all tables."""
        self._here()
        plain = self._engine.execution_options(isolation_level="AUTOCOMMIT")
        with self._translated(), plain.connect() as connection:
            for table in (*metadata.tables, "span_words", "session_words"):
                connection.exec_driver_sql(f'VACUUM "{table}"')
        return True

    def is_small(self) -> bool:
        """Whether the log is."""
        with self.reading() as connection:
            size = connection.execute(text("SELECT pg_total_relation_size('raw_turns')")).scalar()
        return (size or 0) < _SMALL

    def backups(self) -> tuple[str, ...]:
        """None that we know of."""
        return ()

    def backup(self, path: str) -> None:
        """Not ours to do. Raises UnavailableStore."""
        raise UnavailableStore(
            f"{self.name} is backed up where it runs, not into {path}",
            f"use pg_dump, or copy the log into a file: tapes db copy {as_typed(path)}",
        )

    def damage(self) -> tuple[str, ...]:
        """What the server keeps whole itself is not looked at."""
        return ()

    def close(self) -> None:
        """Let go of all connections."""
        if self._pid == os.getpid():
            self._engine.dispose()


class _Copying:
    """How rows of some columns are copied into their table."""

    def __init__(self, columns: Sequence[Column[Any]], dialect: Dialect) -> None:
        names = ", ".join(f'"{column.name}"' for column in columns)
        self.sql = f'COPY "{columns[0].table}" ({names}) FROM STDIN (FORMAT BINARY)'
        self._names = [column.name for column in columns]
        self.kinds, self._binds = list[int](), list[tuple[int, Any]]()
        for at, column in enumerate(columns):
            if isinstance(column.type, Id):
                self.kinds.append(_oid("bytea"))  # which the same bytes stand for
                self._binds.append((at, bytes_of_id))
                continue
            kind = column.type.compile(dialect).partition(" ")[0]
            self.kinds.append(_oid(_KINDS.get(kind, "text")))
            if isinstance(column.type, JsonText):
                self._binds.append((at, column.type.bind_processor(dialect)))

    def bound(self, rows: Iterable[Mapping[str, Any]]) -> Iterator[list[Any]]:
        """The values of rows as they are copied."""
        for row in rows:
            values = [row[name] for name in self._names]
            for at, bind in self._binds:
                values[at] = bind(values[at])
            yield values


def _oid(name: str) -> int:
    found = psycopg.adapters.types.get_oid(name)
    assert found is not None
    return found


# The server's names of what is not a text.
_KINDS = {
    "BIGINT": "int8",
    "INTEGER": "int4",
    "SMALLINT": "int2",
    "BOOLEAN": "bool",
    "BYTEA": "bytea",
}
_SEQUENCE = "SELECT pg_get_serial_sequence('raw_turns', 'id')"
_NEW_IDS = """
    SELECT ARRAY(SELECT nextval(%(sequence)s) FROM generate_series(1, %(count)s::int)),
    ARRAY(
        SELECT number FROM unnest(%(orgs)s::text::uuid[]) WITH ORDINALITY AS it (org, number)
        WHERE EXISTS (SELECT FROM tombstones WHERE org_id = org)
    )
"""


def _rest(_: Any, record: Any) -> None:
    record.info[_RESTS] = time.monotonic()


def _is_told_something(connection: psycopg.Connection[Any]) -> bool:
    poll = polling.poll()
    poll.register(connection.fileno(), polling.POLLIN)
    return bool(poll.poll(0))


def _prepare(connection: psycopg.Connection[Any], _: Any) -> None:
    set_json_loads(as_it_was_kept, connection)
    with connection.cursor() as cursor:
        # What is acknowledged is on the server's disk, whatever its own setting says.
        cursor.execute(
            "SELECT set_config('synchronous_commit', 'on', false)"
            " WHERE current_setting('synchronous_commit') = 'off'"
        )
        # Disks no longer turn: an index that has all that is asked for is half the work of reading
        # the rows, and is taken only if the server knows. What an operator chose stays.
        cursor.execute(
            "SELECT set_config('random_page_cost', '1.1', false)"
            " FROM pg_settings WHERE name = 'random_page_cost' AND source = 'default'"
        )
        # A plan that was made while a table was empty reads all of it when it is large.
        cursor.execute("SET plan_cache_mode = force_custom_plan")
    connection.commit()


def _said(error: Exception) -> str:
    said = str(getattr(error, "orig", None) or error)
    return said.strip().partition("\n")[0]


def shown_name(dsn: str) -> str:
    """A DSN for people: without its password."""
    try:
        told = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        raise UnreadableStore(
            "the DSN of PostgreSQL cannot be read", "write postgresql://user@host:5432/name"
        ) from error
    user = f"{told['user']}@" if told.get("user") else ""
    port = f":{told['port']}" if told.get("port") else ""
    host = str(told.get("host") or "")
    place = host if not host.startswith("/") else ""
    return f"postgresql://{user}{place}{port}/{told.get('dbname') or ''}"


# --- words ------------------------------------------------------------------------------------


class _Terms(WordIndex):
    """A table of sets of terms, by the place of their row."""

    def __init__(self, name: str) -> None:
        self._table = Table(
            name,
            MetaData(),  # of its own: the other database has no such table
            Column("place", BigInteger, primary_key=True),
            Column("org_id", Id(), nullable=False),
            Column("prompt", TSVECTOR, nullable=False),
            Column("words", TSVECTOR, nullable=False),
        )
        self._insert = text(
            f"INSERT INTO {name} (place, org_id, prompt, words) VALUES (:place, :org,"
            " array_to_tsvector(CAST(:prompt AS text[])),"
            " array_to_tsvector(CAST(:words AS text[])))"
        )
        self._delete = text(f"DELETE FROM {name} WHERE place = :place AND org_id = :org")

    def replace(self, connection: Connection, old: Iterable[Words], new: Iterable[Words]) -> None:
        """Old rows out, new rows in."""
        gone = [{"place": words.place, "org": words.org_id} for words in old]
        come = [
            {
                "place": words.place,
                "org": words.org_id,
                "prompt": sorted(words.prompt),
                "words": sorted(words.prompt | words.rest),
            }
            for words in new
        ]
        for statement, rows in ((self._delete, gone), (self._insert, come)):
            if rows:
                connection.execute(statement, rows)

    def _matches(
        self, org_id: str, wanted: Wanted, *, in_prompt: bool = False
    ) -> ColumnElement[bool]:
        column = self._table.c.prompt if in_prompt else self._table.c.words
        asked = cast(literal(_expression(wanted), Text), TSQUERY)
        return (self._table.c.org_id == org_id) & column.op("@@")(asked)

    def places(self, org_id: str, wanted: Wanted, *, since: int | None = None) -> Any:
        """All rows that match."""
        ask = select(self._table.c.place).where(self._matches(org_id, wanted))
        return ask if since is None else ask.where(self._table.c.place >= since)

    def has(self, org_id: str, wanted: Wanted, place: ColumnElement[int]) -> ColumnElement[bool]:
        """A look-up of one row."""
        return exists().where(self._table.c.place == place, self._matches(org_id, wanted))

    def latest(
        self,
        connection: Connection,
        org_id: str,
        wanted: Wanted,
        *,
        below: int | None,
        limit: int,
        in_prompt: bool = False,
    ) -> Sequence[int]:
        """The highest places that match."""
        place = self._table.c.place
        ask = select(place).where(self._matches(org_id, wanted, in_prompt=in_prompt))
        if below is not None:
            ask = ask.where(place < below)
        return connection.execute(ask.order_by(place.desc()).limit(limit)).scalars().all()

    def number(self, connection: Connection, org_id: str, wanted: Wanted, *, at_most: int) -> int:
        """Asked of the index: else all rows may be read to find the first few in them."""
        found = self.places(org_id, wanted).cte("found").prefix_with("MATERIALIZED")
        some = select(found.c.place).limit(at_most).subquery()
        return connection.execute(select(func.count()).select_from(some)).scalar_one()

    def forget_all(self, connection: Connection) -> None:
        """An empty table."""
        connection.execute(self._table.delete())


def _expression(wanted: Wanted) -> str:
    match wanted:
        case Term(term, begins):
            quoted = term.replace("\\", "\\\\").replace("'", "''")
            return f"'{quoted}':*" if begins else f"'{quoted}'"
        case Every(parts):
            return "(" + " & ".join(map(_expression, parts)) + ")"
        case Either(parts):
            return "(" + " | ".join(map(_expression, parts)) + ")"
