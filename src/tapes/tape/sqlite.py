"""A tape as an SQLite database: for many recordings and many writers.

Rule 1: one row per exchange, in order; the last one under a key answers. Bodies of some size lie
        in a table of their own, once.
Rule 2: writers share transactions (group commit), each synced before `append` returns; other
        processes wait for the lock. Readers never wait.
Rule 3: an absent file and a database without tables are empty tapes; the tables are made with
        the first append. A database with other tables only is never touched.
Rule 4: a closed tape is one file. While somebody writes, a log lies beside it (`-wal`, `-shm`);
        whoever closes last folds it in, after a kill whoever comes next.

Knows nothing of modes or keys beyond their form.
"""

import os
import random
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote

from tapes.errors import (
    ClosedTape,
    DamagedTape,
    TapesError,
    UnreadableTape,
    UnwritableTape,
    as_typed,
)
from tapes.exchange import (
    SCHEMA_VERSION,
    Exchange,
    ReadRow,
    answer_of,
    damaged,
    exchange_of,
    newer,
)
from tapes.forks import bring_through_forks
from tapes.tape.base import (
    blob_hash,
    is_key,
    is_of_bytes,
    row_and_bodies,
    unwritable,
)
from tapes.tape.beside import identity, make_folder, sync_folder
from tapes.tape.commit import GroupCommit
from tapes.tape.named import PATIENCE_S, file_status, local_of, patiently
from tapes.tape.rowtext import read_row, write_row

# What marks a database as a tape: "tape", as a number.
APPLICATION = int.from_bytes(b"tape", "big")
_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS exchanges (
  number INTEGER PRIMARY KEY,
  key TEXT NOT NULL,
  state TEXT NOT NULL,
  canonicalizer TEXT NOT NULL,
  recorded_at TEXT,
  row TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS exchanges_by_key ON exchanges (key, number);
CREATE TABLE IF NOT EXISTS blobs (hash TEXT PRIMARY KEY, bytes BLOB NOT NULL) WITHOUT ROWID;
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = {SCHEMA_VERSION};
"""
_LAST = "SELECT number, row FROM exchanges WHERE key = ? ORDER BY number DESC LIMIT 1"
_NEXT = "SELECT number, row FROM exchanges WHERE number > ? ORDER BY number LIMIT 32"
_ANSWERS = (
    "SELECT key FROM exchanges WHERE state = 'complete' AND number IN"
    " (SELECT max(number) FROM exchanges GROUP BY key)"
)
# What may lie beside a database, and belong to it: of writers who append, and who change it.
_SIDE_FILES = ("-wal", "-journal")
_BODY = "SELECT bytes FROM blobs WHERE hash = ?"
_INSERT = (
    "INSERT INTO exchanges (key, state, canonicalizer, recorded_at, row) VALUES (?, ?, ?, ?, ?)"
)
_INSERT_BODY = "INSERT OR IGNORE INTO blobs VALUES (?, ?)"

_Item = tuple[tuple[str, str, str, str | None, str], dict[str, bytes]]  # a row, its bodies
_Result = TypeVar("_Result")


class SqliteTape:
    """An SQLite file as a tape."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._file = os.path.abspath(self.path)  # whatever the working folder is later
        self.local, self.name = local_of(self._file)
        self._closed = False
        self._open = _Open(self._file)
        self._begin()
        weakref.finalize(self, _Open.let_go_at_rest, self._open)
        with self._lock:
            self._reader()
        bring_through_forks(self)

    def _begin(self) -> None:
        self._lock = self._open.reading = threading.RLock()  # for reading, and for `_open`
        self._commits = GroupCommit(self._write)
        self._open.writing = self._commits.writing

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
        for number, row in self._read(_LAST, key) if is_key(key) else []:
            return self._exchange(number, row, read)
        return None

    def exchanges(self) -> Iterator[Exchange]:
        """All exchanges in the order of appending. Raises DamagedTape at the first broken row."""
        self._require_open()
        return self._exchanges()

    def _exchanges(self) -> Iterator[Exchange]:
        after = 0
        while rows := self._read(_NEXT, after):
            for number, row in rows:
                after = number
                yield self._exchange(number, row, exchange_of)

    def keys(self) -> set[str]:
        """The keys whose last exchange is complete."""
        return {key.decode() for (key,) in self._read(_ANSWERS)}

    def _exchange(self, number: int, text: bytes, read: ReadRow) -> Exchange:
        place = f"exchange {number}"
        row = read_row(text, self.path, place)
        return read(row, self.path, place, self._body)

    def _body(self, name: str) -> bytes:
        rows = self._read(_BODY, name)
        if not rows:
            raise damaged(self.path, f"body {name[:12]}", "it is missing, and a row names it")
        data = bytes(rows[0][0])
        if blob_hash(data) != name:
            raise damaged(self.path, f"body {name[:12]}", "it is not the one that was kept")
        return data

    def _read(self, statement: str, *values: object) -> list[tuple]:  # type: ignore[type-arg]  # rows as SQLite gives them
        with self._lock:
            self._require_open()
            reader = self._reader()
            if reader is None:
                return []
            try:
                return reader.execute(statement, values).fetchall()
            except sqlite3.Error as error:
                raise self._unreadable(error) from error

    # --- opening

    def _reader(self) -> sqlite3.Connection | None:
        """A connection that reads the file that the name leads to; None where there is none."""
        status = file_status(self._file, self.path)
        link = self._open.reader
        if link is not None and not link.leads_to(status):
            self._open.close_reader()
            link = None
        if link is None and status is not None:
            connection = self._opened(status)
            link = None if connection is None else _Link(connection, identity(status))
            self._open.reader = link
        return None if link is None else link.connection

    def _opened(self, status: os.stat_result) -> sqlite3.Connection | None:
        if status.st_size == 0:
            return None  # made and not yet written: an empty tape
        try:
            connection = self._connected()
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        try:
            is_tape = self._is_tape(connection)
        except BaseException:
            connection.close()
            raise
        if not is_tape:
            connection.close()
            return None
        return connection

    def _connected(self) -> sqlite3.Connection:
        """A connection that only reads; without side files where none can be made."""
        try:
            return _connect(self._file, "mode=ro")
        except sqlite3.OperationalError as error:
            if "locked" in str(error):
                raise  # whoever has it may be in the middle of writing it
            if _rolled_back(self._file):
                return _connect(self._file, "mode=ro")
            for ending in _SIDE_FILES:
                if _size(f"{self._file}{ending}") > 0:
                    # Without it, acknowledged exchanges would be missing, or others half there.
                    log = f"{self.path}{ending}"
                    raise UnreadableTape(
                        f"the tape {self.path} cannot be read with the log beside it, {log}:"
                        f" {error}",
                        "copy both to a folder that you may write to:"
                        f" cp {as_typed(self.path)} {as_typed(log)} …",
                    ) from error
            return _connect(self._file, "immutable=1")

    def _is_tape(self, connection: sqlite3.Connection) -> bool:
        """Whether it is a tape's; False where it holds nothing. Raises UnreadableTape."""
        try:
            # One transaction, so that a writer who makes the tables meanwhile is seen whole or not.
            connection.execute("BEGIN")
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        if application != APPLICATION and tables:
            raise UnreadableTape(
                f"{self.path} is a database, but not a tape",
                "name another file; this one is left as it is",
            )
        if application == APPLICATION and version > SCHEMA_VERSION:
            raise newer(self.path, "the database", version)
        return bool(application == APPLICATION)

    def _unreadable(self, error: sqlite3.Error) -> UnreadableTape:
        text = str(error)
        if "not a database" in text:
            return UnreadableTape(
                f"{self.path} is no SQLite database", "a tape of lines has a name in .jsonl"
            )
        if isinstance(error, sqlite3.OperationalError) and "malformed" not in text:
            return UnreadableTape(
                f"the tape {self.path} cannot be read: {text}",
                "wait for the program that holds it"
                if "locked" in text
                else f"check who may read and write there: ls -l {as_typed(self.path)}*",
            )
        return DamagedTape(
            f"damaged tape: {self.path}: {text}",
            f"save what can be read with: sqlite3 {as_typed(self.path)} .recover",
        )

    # --- appending

    def append(self, exchange: Exchange) -> None:
        """Keep an exchange; on return it is durable.

        Raises UnwritableTape, NotAnAnswer; UnreadableTape where the database is damaged.
        """
        self._commits.submit(self.ready(exchange))

    def ready(self, exchange: Exchange) -> _Item:
        """What `append_ready` keeps of an exchange. Raises NotAnAnswer."""
        self._require_open()
        row, bodies = row_and_bodies(exchange)
        text = write_row(row, of_bytes=is_of_bytes(exchange)).decode()
        values = (
            exchange.key, str(exchange.state), exchange.canonicalizer, exchange.recorded_at, text
        )  # fmt: skip
        return values, bodies

    def append_ready(self, items: Sequence[_Item]) -> list[Exception | None]:
        """Keep them in order, with one commit; what `append` would have raised for each."""
        return self._commits.submit_all(items)

    def _write(self, batch: Sequence[_Item]) -> int:
        """Insert a batch, or its first where it cannot be inserted whole; gives the number."""
        try:
            for _ in patiently():  # it may have gone into a file that was replaced meanwhile
                if self._inserted(batch):
                    return len(batch)
        except (sqlite3.Error, OSError, OverflowError) as error:
            self._forget_writer()
            if len(batch) > 1:
                return self._write(batch[:1])
            raise self._unwritable(error) from error
        raise UnwritableTape(
            f"the tape {self.path} cannot be written: its name leads to one file after another",
            "let the program that replaces it finish, then try again",
        )

    def _inserted(self, batch: Sequence[_Item]) -> bool:
        writer = self._writer()
        try:
            writer.execute("BEGIN IMMEDIATE")
            for _, bodies in batch:
                if bodies:
                    writer.executemany(_INSERT_BODY, bodies.items())
            writer.executemany(_INSERT, [values for values, _ in batch])
            writer.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):
                writer.execute("ROLLBACK")
            raise
        with self._lock:
            link = self._open.writer
            if link is not None and link.leads_to(file_status(self._file, self.path)):
                return True
            self._open.close_writer()
            return False

    def _writer(self) -> sqlite3.Connection:
        with self._lock:
            self._require_open()
            self._reader()  # never turn somebody's other database into a tape
            status = file_status(self._file, self.path)
            link = self._open.writer
            if link is not None and link.leads_to(status):
                return link.connection
            self._open.close_writer()
            make_folder(os.path.dirname(self._file))
            connection = _patiently(lambda: _writing(self._file))
            if status is None:
                sync_folder(os.path.dirname(os.path.realpath(self._file)))
            self._open.writer = _Link(connection, identity(os.stat(self._file)))
            return connection

    def _forget_writer(self) -> None:
        with self._lock:
            self._open.close_writer()

    def _unwritable(self, error: sqlite3.Error | OSError | OverflowError) -> TapesError:
        if isinstance(error, OSError):
            return unwritable(self.path, error)
        if isinstance(error, sqlite3.DatabaseError) and (
            "malformed" in str(error) or "not a database" in str(error)
        ):
            return self._unreadable(error)
        folder = os.path.dirname(self.path) or "."
        return UnwritableTape(
            f"the tape {self.path} cannot be written: {error}",
            "free space on that disk; nothing that was recorded before is lost"
            if "full" in str(error) or "I/O" in str(error)
            else f"check who may write there: ls -ld {as_typed(folder)} {as_typed(self.path)}",
        )

    # --- ending, and going through a fork

    def close(self) -> None:
        """Let go of the file; the last one to close leaves a single file."""
        with self._commits.at_rest(), self._lock:
            self._closed = True
            self._open.let_go()

    def before_fork(self) -> None:
        """No connection crosses a fork."""
        self._resting = self._commits.at_rest()
        self._resting.__enter__()
        self._lock.acquire()
        self._open.let_go()

    def after_fork(self) -> None:
        """Go on."""
        self._lock.release()
        self._resting.__exit__(None, None, None)

    def in_child(self) -> None:
        """Begin anew."""
        self._begin()


@dataclass(frozen=True, slots=True)
class _Link:
    """A connection, and the file that it leads to."""

    connection: sqlite3.Connection
    file: tuple[int, int]

    def leads_to(self, status: os.stat_result | None) -> bool:
        """Whether the file of this status is still the one."""
        return status is not None and identity(status) == self.file


class _Open:
    """What a tape has open."""

    def __init__(self, file: str) -> None:
        self._file = file
        self.reader: _Link | None = None
        self.writer: _Link | None = None
        # Held by whoever is at work with the one or the other.
        self.reading, self.writing = threading.RLock(), threading.Lock()

    def close_reader(self) -> None:
        """Close the connection that reads."""
        link, self.reader = self.reader, None
        if link is not None:
            link.connection.close()

    def close_writer(self) -> None:
        """Close the connection that writes."""
        link, self.writer = self.writer, None
        if link is not None:
            with suppress(sqlite3.Error):
                link.connection.close()

    def let_go_at_rest(self) -> None:
        """Let go of both, unless a thread is at work, as it may be where a program ends."""
        with ExitStack() as held:
            for lock in (self.writing, self.reading):
                if not lock.acquire(blocking=False):
                    return
                held.callback(lock.release)
            self.let_go()

    def let_go(self) -> None:
        """Close both, and leave one file behind if nobody else has it open."""
        self.close_reader()
        if self.writer is not None:
            _fold_log(self.writer.connection)
            self.close_writer()
        elif os.path.exists(f"{self._file}-wal"):
            with suppress(sqlite3.Error), closing(sqlite3.connect(self._file)) as last:
                _fold_log(last)


def _fold_log(connection: sqlite3.Connection) -> None:
    """Put what is in the log into the file, unless somebody else uses it: then he will."""
    with suppress(sqlite3.Error):
        connection.execute("PRAGMA busy_timeout = 0")
        connection.execute("PRAGMA journal_mode = DELETE")


def is_database(path: str) -> bool:
    """Whether a file is an SQLite database.

    SQLite itself looks: to open and close the file otherwise would let go of all locks that this
    process has on it.
    """
    with suppress(sqlite3.DatabaseError), closing(_connect(path, "mode=ro")):
        return os.path.getsize(path) > 0
    return False


def tables_of(path: str) -> frozenset[str] | None:
    """The names of a database's tables, as SQLite itself reads them (see `is_database`).

    None where it cannot, or where the file is empty.
    """
    with suppress(sqlite3.Error), closing(_connect(path, "mode=ro")) as connection:
        found = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return frozenset(name.decode() for (name,) in found) or None
    return None


def _connect(file: str, options: str) -> sqlite3.Connection:
    """A connection that has read from its file. Raises sqlite3.Error."""
    connection = sqlite3.connect(
        f"file:{quote(os.path.abspath(file))}?{options}",
        uri=True,
        timeout=PATIENCE_S,
        check_same_thread=False,
    )
    connection.text_factory = bytes  # what is no UTF-8 is damage, and has a place
    try:
        connection.execute("PRAGMA user_version").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection


def _rolled_back(file: str) -> bool:
    """Whether a change that somebody killed left half done was there, and is undone."""
    if _size(f"{file}-journal") == 0:
        return False
    with suppress(sqlite3.Error), closing(_connect(file, "mode=rw")):  # SQLite itself does it
        return True
    return False


def _writing(file: str) -> sqlite3.Connection:
    """A connection that writes, with the tables made. Raises sqlite3.Error."""
    connection = sqlite3.connect(
        file, timeout=PATIENCE_S, isolation_level=None, check_same_thread=False
    )
    try:
        # Where the file system cannot share memory it stays without a log, and is as safe.
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = EXTRA")
        connection.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
    except BaseException:
        connection.close()
        raise
    return connection


def _patiently(open_it: Callable[[], _Result]) -> _Result:
    """Try again while others change how the database keeps its log: SQLite does not wait there."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            return open_it()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
        time.sleep(random.uniform(0.001, 0.01))


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0
