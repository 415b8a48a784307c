"""The log in one SQLite file: nothing to install, and many processes may write to it.

Rule 1: writers come one after another, in order (`turnstile`); readers never wait, and never make
        anybody wait.
Rule 2: what is committed is on the disk. What is deleted is overwritten with zeros.
Rule 3: a file that is not ours is left as it is.
Rule 4: a file that was deleted, or had another put in its place, while it was open is used no more:
        what is written to it is gone when the last who has it open ends.
Rule 5: words are found by an index of SQLite's own (FTS5) that keeps terms and no text.
Rule 6: a file that may only be read is read: a copy on a read-only disk, a log of somebody else.
Rule 7: nobody but SQLite opens the file. Where a process closes one, the system forgets all locks
        that it has there, those of SQLite too: another process would then take itself for the last,
        and take the write-ahead log away from whoever still writes to it.

Knows nothing of what is kept.
"""

import os
import sqlite3
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from glob import escape, glob
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Engine,
    Integer,
    QueuePool,
    Text,
    case,
    cast,
    column,
    create_engine,
    event,
    exc,
    exists,
    func,
    literal_column,
    select,
    text,
)
from sqlalchemy import table as sql_table

from tapes.errors import DamagedStore, TapesError, UnavailableStore, UnreadableStore, as_typed
from tapes.rows import NO_ORG
from tapes.store.columns import bytes_of_id
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
from tapes.store.migrate import copy_name, made_ready
from tapes.store.sql import SqlStore
from tapes.store.turnstile import Turnstile, first_of_all

# What marks a database as a log: "tlog", as a number.
APPLICATION = int.from_bytes(b"tlog", "big")
# How long a stranger that does not know of turns may have the file locked.
_PATIENCE_S = 30.0
_READERS = 8
# The write-ahead log is no larger than this once all of it was written into the file.
_LOG_LIMIT = 16 * 1024 * 1024


def open_sqlite(path: str | os.PathLike[str]) -> SqlStore:
    """The log in a file, which is made where there is none.

    Raises UnreadableStore (NewerStore, DamagedStore) or UnavailableStore.
    """
    database = SqliteDatabase(path)
    try:
        made_ready(database)
    except BaseException:
        database.close()
        raise
    return SqlStore(database)


class SqliteDatabase(Database):
    """An SQLite file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__()
        self.path = os.path.abspath(path)
        self.name = os.fspath(path)
        self._indexes = _Fts("span_words"), _Fts("session_words")
        self.span_words, self.session_words = self._indexes
        self.only_read = _may_only_read(self.path)
        self._turnstile = Turnstile(f"{self.path}.lock")
        self._require_ours()
        with suppress(OSError):  # what is wrong shows when the file is opened
            os.makedirs(os.path.dirname(self.path), mode=0o700, exist_ok=True)
            _make_for_its_owner(os.path.realpath(self.path))
        self._begin()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._way = _way_to_read(self.path)
        self._file: tuple[int, int] | None = None  # which one was opened
        self._readers = self._engine(_READERS, read_only=True)
        self._writer = self._engine(1, read_only=False)
        self.dialect = self._writer.dialect

    def _here(self) -> None:
        """Connections do not cross a fork: the child has its own, and leaves the parent's open."""
        if self._pid != os.getpid():
            self._readers.dispose(close=False)
            self._writer.dispose(close=False)
            self._begin()

    # --- opening

    def _require_ours(self) -> None:
        if not os.path.exists(self.path) or os.path.getsize(self.path) == 0:
            return
        try:
            with closing(_connected(self.path, _way_to_read(self.path))) as connection:
                (application,) = connection.execute("PRAGMA application_id").fetchone()
                (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            # Only now: whoever has it open cannot use it either (rule 7).
            if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB and not _begins_as_database(
                self.path
            ):
                raise UnreadableStore(
                    f"{self.name} is no database",
                    "name another file; this one is left as it is. If it was a log, take its"
                    " backup",
                ) from error
            raise self._error(error) from error
        if application != APPLICATION and tables:
            raise UnreadableStore(
                f"{self.name} is a database, but not a log of Tapes",
                "name another file; this one is left as it is",
            )

    def _engine(self, kept: int, *, read_only: bool) -> Engine:
        """Of the pools, this one leaves a connection open that somebody works with as it closes."""
        engine = create_engine(
            "sqlite+pysqlite://",
            creator=lambda: self._connect(read_only=read_only),
            poolclass=QueuePool,
            pool_size=kept,
            max_overflow=16,
        )
        close_what_comes_back(engine)
        begin = "BEGIN" if read_only else "BEGIN IMMEDIATE"
        event.listen(
            engine, "begin", lambda connection: connection.connection.cursor().execute(begin)
        )
        return engine

    def _connect(self, *, read_only: bool) -> sqlite3.Connection:
        if self.only_read:
            return self._connect_to_read()
        connection = _connected(self.path, "mode=rwc")
        if self._file is None:
            self._file = _file_at(self.path)
        # Set before the first table is made; later they have no effect. Turns of an agent have some
        # 2.5 KB: in pages of 4 KB a third of the file would be empty.
        connection.execute("PRAGMA page_size = 8192")
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        # What a reader of long or a day of large bodies made of it is given back to the disk.
        connection.execute(f"PRAGMA journal_size_limit = {_LOG_LIMIT}")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA secure_delete = ON")
        # In KiB, for each connection: a reader's pages are in the system's cache as well.
        connection.execute(f"PRAGMA cache_size = -{4_000 if read_only else 16_000}")
        connection.execute("PRAGMA temp_store = MEMORY")
        if read_only:
            connection.execute("PRAGMA query_only = ON")
        return connection

    def _connect_to_read(self) -> sqlite3.Connection:
        connection = _connected(self.path, self._way)
        if self._file is None:
            self._file = _file_at(self.path)
        connection.execute("PRAGMA temp_store = MEMORY")
        connection.execute("PRAGMA query_only = ON")
        return connection

    # --- transactions

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one moment."""
        self._here()
        self._require_there()
        if self.only_read and self._way != _way_to_read(self.path):
            # Whoever may write began to, or was the last to do so.
            self._readers.dispose()
            self._way = _way_to_read(self.path)
        with self._translated(), self._readers.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that changes something, when it is our turn."""
        self._here()
        with self.noticing():
            self._require_writable()
            self._require_there()
            with (
                self._translated(),
                self._turnstile.turn(),
                self._writer.connect() as connection,
                connection.begin(),
            ):
                yield connection
            self._require_there()

    def _require_writable(self) -> None:
        """Raises UnavailableStore where the file may only be read (rule 6)."""
        if self.only_read:
            raise UnavailableStore(
                f"the log {self.name} may only be read here",
                f"copy it to where you may write: cp {as_typed(self.name)}* .",
            )

    def _require_there(self) -> None:
        """Raises UnavailableStore where the open file is not that of this name (rule 4)."""
        if self._file is not None and _file_at(self.path) != self._file:
            raise UnavailableStore(
                f"the log {self.name} was deleted or replaced while it was open",
                "start this again; what is not kept yet waits in the spool",
            )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.OperationalError, exc.OperationalError, exc.TimeoutError) as error:
            raise self._error(error) from error
        except (sqlite3.DatabaseError, exc.DatabaseError) as error:
            if not _is_damage(str(error)):
                raise
            raise self._error(error) from error

    @contextmanager
    def migrating(self) -> Iterator[Connection]:
        """A turn like any other; the file is marked as ours."""
        with self.writing() as connection:
            yield connection
            connection.exec_driver_sql(f"PRAGMA application_id = {APPLICATION}")

    def keep_copy(self, version: str) -> None:
        """A copy beside the file."""
        self.backup(copy_name(self.path, version))

    def _error(self, error: Exception) -> TapesError:
        said = str(getattr(error, "orig", None) or error)
        if _is_damage(said):
            return DamagedStore(
                f"damaged log: {self.name}: {said}",
                f"save what can be read with: sqlite3 {as_typed(self.name)} .recover",
            )
        full = "full" in said or "I/O" in said or "No space" in said
        return UnavailableStore(
            f"the log {self.name} cannot be used just now: {said}",
            "free space on that disk; nothing that was kept is lost"
            if full
            else f"check who may write there: ls -l {as_typed(self.name)}*",
        )

    def json_text(self, column: Column[Any], path: tuple[str, ...]) -> ColumnElement[str]:
        """By SQLite's JSON functions."""
        place = "$" + "".join(f'."{name}"' for name in path)
        kind, found = func.json_type(column, place), cast(func.json_extract(column, place), Text)
        # As JSON writes them; SQLite itself has no truth but 1 and 0.
        return case((kind.in_(("true", "false")), kind), else_=found)

    def new_turn_ids(
        self, connection: Connection, count: int, org_ids: Sequence[str]
    ) -> tuple[Sequence[int], Collection[str]]:
        """The ids after the last one; nobody else writes meanwhile."""
        found = self.rows_of(connection, _LAST_ID)
        last = found[0][0] if found else 0
        erased = {
            org_id
            for org_id in org_ids
            if self.rows_of(connection, _ERASED, (bytes_of_id(org_id),))
        }
        return range(last + 1, last + 1 + count), erased

    @contextmanager
    def leading(self) -> Iterator[bool]:
        """One process derives at a time, where one may write."""
        if self.only_read:
            yield False
            return
        with first_of_all(f"{self.path}.deriver.lock") as is_first:
            yield is_first

    # --- keeping

    def wipe(self) -> bool:
        """Merge the index of words, give free pages back, and empty the write-ahead log."""
        self._here()
        self._require_there()
        for index in self._indexes:
            for step in index.merging():
                while True:
                    with self.writing() as connection:
                        if not step(connection):
                            break
        with (
            self._translated(),
            self._turnstile.turn(),
            closing(self._connect(read_only=False)) as connection,
        ):
            connection.execute("PRAGMA incremental_vacuum").fetchall()
            # Readers may be at it for long, and behind us all writers wait.
            connection.execute("PRAGMA busy_timeout = 0")
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not busy

    def is_small(self) -> bool:
        """Whether the file is."""
        return os.path.getsize(self.path) < _SMALL

    def backups(self) -> tuple[str, ...]:
        """Copies that were made before migrations."""
        return tuple(sorted(glob(f"{escape(self.path)}.before-*")))

    def backup(self, path: str) -> None:
        """A copy of one moment, written beside its place and then moved there."""
        part = f"{path}.part"
        try:
            Path(part).unlink(missing_ok=True)
            with (
                closing(_connected(self.path, _way_to_read(self.path))) as source,
                closing(sqlite3.connect(part)) as target,
            ):
                os.chmod(part, 0o600)
                source.backup(target, pages=1000, sleep=0)
            with open(part, "rb") as file:
                os.fsync(file.fileno())
            os.replace(part, path)
        except (OSError, sqlite3.Error) as error:
            raise UnavailableStore(
                f"no copy of {self.name} could be written to {path}: {error}",
                "name a place with enough space",
            ) from error
        finally:
            with suppress(OSError):  # where it was moved, or could not be made, it is not there
                Path(part).unlink(missing_ok=True)

    def damage(self) -> tuple[str, ...]:
        """What SQLite's own check says."""
        with self.reading() as connection:
            said = connection.exec_driver_sql("PRAGMA integrity_check(20)").scalars().all()
        return tuple(line for line in said if line != "ok")

    def close(self) -> None:
        """Let go of all connections; whoever closes last leaves a single file.

        Whoever reads or writes just now does so to the end, and his connection goes with him.
        """
        if self._pid == os.getpid():
            self._readers.dispose()
            self._writer.dispose()
        self._turnstile.close()


def _file_at(path: str) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0)
    return found.st_dev, found.st_ino


def _make_for_its_owner(path: str) -> None:
    """An empty file, where there is none. Raises OSError.

    What is said to models is for nobody else; SQLite's own files beside it follow suit. It was
    closed before it has its name: by then nobody has a lock on it (rule 7).
    """
    if os.path.exists(path):
        return
    new = f"{path}.{os.getpid()}-{threading.get_ident()}.new"
    os.close(os.open(new, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    try:
        os.link(new, path)
    finally:
        os.unlink(new)


def _may_only_read(path: str) -> bool:
    places = (path, os.path.dirname(path))
    return os.path.isfile(path) and not all(
        os.access(place, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
        for place in places
    )


def _begins_as_database(path: str) -> bool:
    """Whether a file begins as those of SQLite; one that nobody may read is for SQLite to tell."""
    try:
        with open(path, "rb") as file:
            return file.read(len(_MAGIC)) == _MAGIC
    except OSError:
        return True


_MAGIC = b"SQLite format 3\0"


def _way_to_read(path: str) -> str:
    """As others write, or, where nobody can: then SQLite needs no file beside it."""
    nobody_writes = _may_only_read(path) and not os.path.exists(f"{path}-wal")
    return "mode=ro&immutable=1" if nobody_writes else "mode=ro"


def _is_damage(said: str) -> bool:
    return "malformed" in said or "not a database" in said


# A file of this size is wiped while the caller waits.
_SMALL = 64 * 1024 * 1024
_ERASED = "SELECT 1 FROM tombstones WHERE org_id = ? LIMIT 1"
_LAST_ID = "SELECT seq FROM sqlite_sequence WHERE name = 'raw_turns'"


def _connected(path: str, options: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"file:{quote(path)}?{options}",
        uri=True,
        timeout=_PATIENCE_S,
        isolation_level=None,
        check_same_thread=False,
        cached_statements=512,
    )


# --- words ------------------------------------------------------------------------------------


class _Fts(WordIndex):
    """Terms in an FTS5 table without content: what it forgets has to be told again."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._fts: ColumnElement[Any] = literal_column(table)
        self._rowid = sql_table(table, column("rowid", Integer)).c.rowid
        self._insert = text(f"INSERT INTO {table}(rowid, prompt, rest) VALUES (:p, :a, :b)")
        self._delete = text(
            f"INSERT INTO {table}({table}, rowid, prompt, rest) VALUES ('delete', :p, :a, :b)"
        )
        self._latest = text(
            f"SELECT rowid FROM {table} WHERE {table} MATCH :wanted AND rowid < :below"
            " ORDER BY rowid DESC LIMIT :most"
        )
        self._some = text(
            f"SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {table} MATCH :wanted LIMIT :most)"
        )

    def replace(self, connection: Connection, old: Iterable[Words], new: Iterable[Words]) -> None:
        """Old rows out, new rows in."""
        for statement, rows in ((self._delete, old), (self._insert, new)):
            values = [
                {"p": row.place, "a": _joined(row.prompt), "b": _joined(row.rest, row.org_id)}
                for row in rows
            ]
            if values:
                connection.execute(statement, values)

    def places(self, org_id: str, wanted: Wanted, *, since: int | None = None) -> Any:
        """All rows that match."""
        ask = select(self._rowid).where(self._matches(org_id, wanted))
        return ask if since is None else ask.where(self._rowid >= since)

    def has(self, org_id: str, wanted: Wanted, place: ColumnElement[int]) -> ColumnElement[bool]:
        """A look-up of one row."""
        return exists().where(self._matches(org_id, wanted), self._rowid == place)

    def _matches(self, org_id: str, wanted: Wanted) -> ColumnElement[bool]:
        return self._fts.op("MATCH")(_query(org_id, wanted))

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
        """The highest places that match: the index lies in their order."""
        values = {
            "wanted": _query(org_id, wanted, in_prompt=in_prompt),
            "below": 2**63 - 1 if below is None else below,
            "most": limit,
        }
        return connection.execute(self._latest, values).scalars().all()

    def number(self, connection: Connection, org_id: str, wanted: Wanted, *, at_most: int) -> int:
        """A walk through the index."""
        values = {"wanted": _query(org_id, wanted), "most": at_most}
        return int(connection.execute(self._some, values).scalar_one())

    def forget_all(self, connection: Connection) -> None:
        """An empty index."""
        connection.execute(text(f"INSERT INTO {self._table}({self._table}) VALUES ('delete-all')"))

    def merging(self) -> Iterator[Callable[[Connection], bool]]:
        """Steps after which nothing that was forgotten is left; each is repeated while it says so.

        What was forgotten lies in the index until its parts are merged, and a single part never
        is: so one more is made first.
        """
        nothing = [Words(-1, NO_ORG, frozenset(), frozenset({"nothing"}))]

        def come(connection: Connection) -> bool:
            self.replace(connection, (), nothing)
            return False

        def go(connection: Connection) -> bool:
            self.replace(connection, nothing, ())
            return False

        def begin(connection: Connection) -> bool:
            self._merge(connection, -_PAGES)
            return False

        yield from (come, go, begin, lambda connection: self._merge(connection, _PAGES))

    def _merge(self, connection: Connection, pages: int) -> bool:
        before = _changes(connection)
        sql = f"INSERT INTO {self._table}({self._table}, rank) VALUES ('merge', :pages)"
        connection.execute(text(sql), {"pages": pages})
        return _changes(connection) - before >= 2


# How much of an index is merged in one transaction.
_PAGES = 500


def _changes(connection: Connection) -> int:
    return int(connection.exec_driver_sql("SELECT total_changes()").scalar_one())


def _joined(terms: frozenset[str], org_id: str = NO_ORG) -> str:
    """Terms as a text, in one order; with the tenant's own, so that others' rows are not met."""
    words = sorted(terms)
    return " ".join(words if org_id == NO_ORG else [*words, _tenant(org_id)])


def _tenant(org_id: str) -> str:
    return f"·{org_id.replace('-', '')}"


def _query(org_id: str, wanted: Wanted, *, in_prompt: bool = False) -> str:
    asked = _expression(wanted)
    if in_prompt:
        asked = f"{{prompt}} : ({asked})"
    return asked if org_id == NO_ORG else f'({asked}) AND "{_tenant(org_id)}"'


def _expression(wanted: Wanted) -> str:
    match wanted:
        case Term(term, begins):
            return f'"{term}"*' if begins else f'"{term}"'
        case Every(parts):
            return "(" + " AND ".join(map(_expression, parts)) + ")"
        case Either(parts):
            return "(" + " OR ".join(map(_expression, parts)) + ")"
