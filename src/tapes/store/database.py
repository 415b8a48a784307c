"""One database as the rest of the store sees it: transactions, and the few things that SQLite and
PostgreSQL do each in their own way.

Knows nothing of what is kept in it.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from sqlalchemy import (
    Boolean,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Engine,
    LargeBinary,
    Select,
    Table,
    any_,
    bindparam,
    event,
    exc,
    literal_column,
    type_coerce,
)
from sqlalchemy.dialects import postgresql, sqlite

from tapes.errors import UnavailableStore
from tapes.store.columns import POSTGRES, Id

# Both have `on_conflict_do_nothing` and `on_conflict_do_update`, and mean the same by them.
Insert = sqlite.Insert | postgresql.Insert


def insert_into(table: Table, *, is_postgres: bool) -> Any:
    """An insert that can say what happens where there is such a row."""
    return postgresql.insert(table) if is_postgres else sqlite.insert(table)


@dataclass(frozen=True, slots=True)
class Words:
    """The terms of one row: of prompts or titles, and of everything else."""

    place: int
    org_id: str
    prompt: frozenset[str]
    rest: frozenset[str]


@dataclass(frozen=True, slots=True)
class Term:
    """A term that has to be there, or one that begins so."""

    text: str
    begins: bool = False


@dataclass(frozen=True, slots=True)
class Every:
    """All of these."""

    parts: tuple["Wanted", ...]


@dataclass(frozen=True, slots=True)
class Either:
    """At least one of these."""

    parts: tuple["Wanted", ...]


Wanted = Term | Every | Either


class WordIndex(ABC):
    """Which rows have which terms. There is one for spans and one for sessions."""

    @abstractmethod
    def replace(self, connection: Connection, old: Iterable[Words], new: Iterable[Words]) -> None:
        """Forget rows with the terms that they had, and take in rows with the terms they have."""

    @abstractmethod
    def places(self, org_id: str, wanted: Wanted, *, since: int | None = None) -> Any:
        """The places of all rows that have the terms, or of those from one on, as a sub-select."""

    @abstractmethod
    def has(self, org_id: str, wanted: Wanted, place: ColumnElement[int]) -> ColumnElement[bool]:
        """Whether the row at a place has the terms, looked up for that row alone."""

    @abstractmethod
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
        """The highest places below one, at most so many, highest first."""

    @abstractmethod
    def number(self, connection: Connection, org_id: str, wanted: Wanted, *, at_most: int) -> int:
        """How many rows have the terms, counted up to a number."""

    @abstractmethod
    def forget_all(self, connection: Connection) -> None:
        """Forget everything, to take it in anew."""


def close_what_comes_back(engine: Engine) -> None:
    """Have a connection closed that somebody worked with as the engine let go of its pool.

    Not one of the parent, in a child: it would be ended for both.
    """

    def came(_: Any, record: Any) -> None:
        record.info[_HOME] = engine.pool, os.getpid()

    def comes_back(_: Any, record: Any) -> None:
        pool, pid = record.info.get(_HOME, (engine.pool, 0))
        if pool is not engine.pool and pid == os.getpid():
            record.invalidate()

    event.listen(engine, "connect", came)
    event.listen(engine, "checkin", comes_back)


# Of a connection: where it belongs.
_HOME = "tapes_home"
# So many items are asked for with one question.
_AT_ONCE = 256


class Shape:
    """A statement as text, made once, and how its values are bound."""

    def __init__(
        self, statement: Any, dialect: Dialect, names: Sequence[str] | None = None
    ) -> None:
        compiled = statement.compile(
            dialect=dialect, column_keys=None if names is None else list(names)
        )
        self.sql = str(compiled)
        order = getattr(compiled, "positiontup", None)
        self._is_positional = order is not None
        # Values that stand in the statement itself, such as a limit.
        self._own = {n: value for n, value in compiled.params.items() if value is not None}
        types = {name: parameter.type for parameter, name in compiled.bind_names.items()}
        self._names = list(order or types)
        self._binds: list[tuple[Any, Any]] = []
        for at, name in enumerate(self._names):
            kind = types[name].dialect_impl(dialect)
            # Both drivers take bytes, and what is true or not, as they are.
            is_plain = isinstance(kind, LargeBinary | Boolean)
            bind = None if is_plain else kind.bind_processor(dialect)
            if bind is not None:
                self._binds.append((at if self._is_positional else name, bind))
        self._get = itemgetter(*self._names) if len(self._names) > 1 else self._get_few
        found = statement.selected_columns if isinstance(statement, Select) else ()
        self.reads = [
            (at, column.type.result_processor(dialect, None))
            for at, column in enumerate(found)
            if isinstance(column.type, Id)
        ]

    def _get_few(self, row: Mapping[str, Any]) -> tuple[Any, ...]:
        return tuple(row[name] for name in self._names)

    def read(self, rows: Iterable[Sequence[Any]]) -> list[Sequence[Any]]:
        """What was found, with its ids as texts."""
        out = list[Sequence[Any]]()
        for row in rows:
            values = list(row)
            for at, read in self.reads:
                values[at] = read(values[at])
            out.append(values)
        return out

    def bound(self, rows: Iterable[Mapping[str, Any]]) -> list[Any]:
        """The values of rows as the driver takes them."""
        if self._own:
            rows = [{**self._own, **row} for row in rows]
        names, get, binds = self._names, self._get, self._binds
        out = list[Any]()
        for row in rows:
            values: Any = list(get(row))
            if not self._is_positional:
                values = dict(zip(names, values, strict=True))
            for at, bind in binds:
                values[at] = bind(values[at])
            out.append(values)
        return out


class Database(ABC):
    """A database and what is its own way."""

    name: str  # for people
    dialect: Dialect
    span_words: WordIndex
    session_words: WordIndex
    only_read = False  # whether nobody may write to it from here

    def __init__(self) -> None:
        self._shapes: dict[Any, Shape] = {}
        # Why the last attempt to write failed; "" where it did not.
        self.unwritten = ""

    @property
    def is_postgres(self) -> bool:
        """Which of the two it is."""
        return self.dialect.name == POSTGRES

    def unindexed(self, column: Column[Any]) -> ColumnElement[Any]:
        """A column whose index is not to be used. PostgreSQL knows by itself when not to."""
        if self.is_postgres:
            return column
        return type_coerce(literal_column(f"+{column.table.name}.{column.name}"), column.type)

    def insert(self, table: Table) -> Any:
        """An insert that can say what happens where there is such a row."""
        return insert_into(table, is_postgres=self.is_postgres)

    def insert_rows(
        self, connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Insert rows that all have the same columns, straight through the driver.

        SQLAlchemy makes the statement and says how each type is bound, once for each shape: to
        have it look at every value of every row takes longer than the database needs.
        """
        self._run_each(connection, self._shape(table, rows, is_new=False), rows)

    def insert_only_new(
        self, connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]
    ) -> bool:
        """The same, or False where one of them was there: then the transaction has to end."""
        done = self._run_each(connection, self._shape(table, rows, is_new=True), rows)
        return int(done.rowcount) == len(rows)

    def _shape(self, table: Table, rows: Sequence[Mapping[str, Any]], *, is_new: bool) -> Shape:
        key = (table.name, tuple(rows[0]), is_new)
        if key not in self._shapes:
            insert = self.insert(table)
            insert = insert.on_conflict_do_nothing() if is_new else insert
            self._shapes[key] = Shape(insert, self.dialect, key[1])
        return self._shapes[key]

    def run_many(
        self, connection: Connection, statement: Any, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Run a statement of ours, which is never made anew, for each of these values."""
        if statement not in self._shapes:
            self._shapes[statement] = Shape(statement, self.dialect)
        self._run_each(connection, self._shapes[statement], rows)

    def _run_each(
        self, connection: Connection, shape: Shape, rows: Sequence[Mapping[str, Any]]
    ) -> Any:
        values = shape.bound(rows)
        if connection.dispatch.before_cursor_execute:
            values = values if isinstance(values[0], dict) else list(map(tuple, values))
            return connection.exec_driver_sql(shape.sql, values)
        cursor = connection.connection.cursor()
        with self.errors_as_usual(shape.sql):
            cursor.executemany(shape.sql, values)
        return cursor

    @contextmanager
    def errors_as_usual(self, sql: str) -> Iterator[None]:
        """What the driver raises, as SQLAlchemy raises it, but without the values."""
        driver: Any = self.dialect.dbapi
        try:
            yield
        except driver.Error as error:
            raise exc.DBAPIError.instance(
                sql, None, error, driver.Error, dialect=self.dialect
            ) from error

    def rows_of(self, connection: Connection, sql: str, values: Any = ()) -> list[Sequence[Any]]:
        """What a question in the database's own words finds, as the driver gives it."""
        with self.errors_as_usual(sql):  # SQLite finds what is wrong while it is read
            return list(self._run(connection, sql, values).fetchall())

    def _run(self, connection: Connection, sql: str, values: Any) -> Any:
        """Run a statement straight through the driver, but where somebody listens."""
        if connection.dispatch.before_cursor_execute:
            return connection.exec_driver_sql(
                sql, values if isinstance(values, dict) else tuple(values)
            )
        cursor = connection.connection.cursor()
        with self.errors_as_usual(sql):
            cursor.execute(sql, values)
        return cursor

    def rows_among(
        self,
        connection: Connection,
        ask: Select[Any],
        column: ColumnElement[Any],
        items: Sequence[Any],
        **values: Any,
    ) -> list[Sequence[Any]]:
        """What a question of ours, which is never made anew, finds where a column is one of these.

        What it finds comes as the driver gives it, but for ids.
        """
        found: list[Sequence[Any]] = []
        for shape, bound in self._each_among(ask, column, items, values):
            rows = self.rows_of(connection, shape.sql, bound)
            found += shape.read(rows) if shape.reads else rows
        return found

    def run_among(
        self,
        connection: Connection,
        statement: Any,
        column: ColumnElement[Any],
        items: Sequence[Any],
        **values: Any,
    ) -> None:
        """Run a statement of ours, which is never made anew, where a column is one of these."""
        for shape, bound in self._each_among(statement, column, items, values):
            self._run(connection, shape.sql, bound)

    def _each_among(
        self,
        statement: Any,
        column: ColumnElement[Any],
        items: Sequence[Any],
        values: dict[str, Any],
    ) -> Iterator[tuple[Shape, Any]]:
        for at in range(0, len(items), _AT_ONCE):
            some = list(items[at : at + _AT_ONCE])
            # Of few sizes, so that few texts are made.
            size = 1 if self.is_postgres else 1 << (len(some) - 1).bit_length()
            key = (statement, size)
            if key not in self._shapes:
                self._shapes[key] = Shape(statement.where(self._among(column, size)), self.dialect)
            if self.is_postgres:
                values["among"] = some
            else:
                some += some[-1:] * (size - len(some))
                values |= {f"among_{number}": item for number, item in enumerate(some)}
            (bound,) = self._shapes[key].bound([values])
            yield self._shapes[key], bound

    def _among(self, column: ColumnElement[Any], size: int) -> ColumnElement[bool]:
        if self.is_postgres:
            return column == any_(bindparam("among", type_=postgresql.ARRAY(column.type)))
        return column.in_([bindparam(f"among_{n}", type_=column.type) for n in range(size)])

    @contextmanager
    def noticing(self) -> Iterator[None]:
        """Around each attempt to write: remember whether it failed, and why."""
        try:
            yield
        except UnavailableStore as error:
            self.unwritten = error.message
            raise
        self.unwritten = ""

    @abstractmethod
    def reading(self) -> AbstractContextManager[Connection]:
        """A transaction that sees one moment and changes nothing. Raises UnavailableStore."""

    @abstractmethod
    def writing(self) -> AbstractContextManager[Connection]:
        """A transaction that changes something; durable when it ends. Raises UnavailableStore."""

    @abstractmethod
    def migrating(self) -> AbstractContextManager[Connection]:
        """A transaction in which tables change; nobody else migrates meanwhile."""

    @abstractmethod
    def keep_copy(self, version: str) -> None:
        """Keep a copy of the database as it is, where that is ours to do."""

    @abstractmethod
    def json_text(self, column: Column[Any], path: tuple[str, ...]) -> ColumnElement[str]:
        """The text of a member of a JSON column, by its path."""

    @abstractmethod
    def new_turn_ids(
        self, connection: Connection, count: int, org_ids: Sequence[str]
    ) -> tuple[Sequence[int], Collection[str]]:
        """Ids for turns that are about to be kept, ascending; none is ever given to two.

        With them those of the tenants of whom anything was erased.
        """

    @abstractmethod
    def leading(self) -> AbstractContextManager[bool]:
        """Whether this process may derive: several may on PostgreSQL, one at a time on SQLite."""

    @abstractmethod
    def wipe(self) -> bool:
        """Take what was deleted out of the files' bytes; False where readers are in the way."""

    @abstractmethod
    def is_small(self) -> bool:
        """Whether wiping takes no time to speak of."""

    @abstractmethod
    def backups(self) -> tuple[str, ...]:
        """Copies of this database that we know of."""

    @abstractmethod
    def backup(self, path: str) -> None:
        """Write a whole copy to a path, while others read and write."""

    @abstractmethod
    def damage(self) -> tuple[str, ...]:
        """What the database itself finds damaged."""

    @abstractmethod
    def close(self) -> None:
        """Let go of all connections."""
