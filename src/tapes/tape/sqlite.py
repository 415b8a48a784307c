"""A tape as an SQLite database: for many recordings and many writers.

Rule 1: one row per exchange, in order; the last one under a key answers. Bodies of some size lie
        in a table of their own, once.
Rule 2: writers share transactions (group commit), each synced before `append` returns; other
        processes wait for the lock. Readers never wait.
Rule 3: an absent file is an empty tape and is made on the first append.

Knows nothing of modes or keys beyond their form.
"""

import json
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

from tapes.errors import ClosedTape, DamagedTape, TapesError, UnreadableTape, UnwritableTape
from tapes.exchange import SCHEMA_VERSION, Exchange, State, damaged, exchange_of, newer, row_of
from tapes.jsontext import compact
from tapes.tape.base import BLOB_SIZE, blob_hash
from tapes.tape.beside import FOLDER
from tapes.tape.commit import GroupCommit

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS exchanges (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  key TEXT NOT NULL,
  state TEXT NOT NULL,
  canonicalizer TEXT NOT NULL,
  recorded_at TEXT,
  row TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS exchanges_by_key ON exchanges (key, number);
CREATE TABLE IF NOT EXISTS blobs (hash TEXT PRIMARY KEY, bytes BLOB NOT NULL) WITHOUT ROWID;
PRAGMA user_version = {SCHEMA_VERSION};
"""
_WAIT_S = 60

_Item = tuple[Exchange, str, dict[str, bytes]]  # the exchange, its row, the bodies it names


class SqliteTape:
    """An SQLite file as a tape."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.local = Path(self.path).parent / FOLDER
        self.name = os.path.basename(self.path)
        self._lock = threading.RLock()
        self._closed = False
        self._forget()
        with self._lock:
            self._reader_now()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._reader: sqlite3.Connection | None = None
        self._writer: sqlite3.Connection | None = None
        self._commits = GroupCommit(self._write)

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedTape(f"the tape {self.path} is closed", "open it again to use it")
        if self._pid != os.getpid():
            # A connection must not cross a fork; the parent's is not closed here.
            self._lock = threading.RLock()
            self._forget()

    # --- finding

    def find(self, key: str) -> Exchange | None:
        """The exchange that answers under this key."""
        with self._lock:
            rows = self._read(
                "SELECT number, row FROM exchanges WHERE key = ? ORDER BY number DESC LIMIT 1",
                (key,),
            )
        return self._exchange(*rows[0]) if rows else None

    def exchanges(self) -> Iterator[Exchange]:
        """All exchanges in the order of appending. Raises DamagedTape at the first broken row."""
        after = 0
        while True:
            with self._lock:
                rows = self._read(
                    "SELECT number, row FROM exchanges WHERE number > ? ORDER BY number LIMIT 100",
                    (after,),
                )
            for number, row in rows:
                after = number
                yield self._exchange(number, row)
            if not rows:
                return

    def keys(self) -> set[str]:
        """The keys that have an answer."""
        with self._lock:
            rows = self._read(
                "SELECT DISTINCT key FROM exchanges WHERE state = ?", (str(State.COMPLETE),)
            )
        return {key for (key,) in rows}

    def _exchange(self, number: int, text: str) -> Exchange:
        place = f"exchange {number}"
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise damaged(self.path, place, f"not JSON ({error})") from error
        return exchange_of(row, self.path, place, self._blob)

    def _blob(self, blob: str) -> bytes:
        with self._lock:
            rows = self._read("SELECT bytes FROM blobs WHERE hash = ?", (blob,))
        if not rows:
            raise damaged(self.path, f"blob {blob[:12]}", "a body that a row names is missing")
        return bytes(rows[0][0])

    def _read(self, statement: str, values: tuple[object, ...]) -> list[tuple]:  # type: ignore[type-arg]  # rows as SQLite gives them
        self._require_open()
        reader = self._reader_now()
        if reader is None:
            return []
        try:
            return reader.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise self._unreadable(error) from error

    def _reader_now(self) -> sqlite3.Connection | None:
        if self._reader is None and os.path.exists(self.path):
            if os.path.isdir(self.path):
                raise UnreadableTape(
                    f"{self.path} is a folder, not a file",
                    "name it with a trailing / to open it as a directory tape",
                )
            self._reader = self._opened()
        return self._reader

    def _opened(self) -> sqlite3.Connection | None:
        """A connection that only reads; without side files where the folder is read-only."""
        if os.path.getsize(self.path) == 0 and not os.path.exists(f"{self.path}-wal"):
            return None  # made and not yet written: an empty tape
        error: sqlite3.Error | None = None
        for options in ("mode=ro", "immutable=1"):
            connection = sqlite3.connect(
                f"file:{quote(self.path)}?{options}",
                uri=True,
                timeout=_WAIT_S,
                check_same_thread=False,
            )
            try:
                (version,) = connection.execute("PRAGMA user_version").fetchone()
                (tables,) = connection.execute(
                    "SELECT count(*) FROM sqlite_master WHERE name IN ('exchanges', 'blobs')"
                ).fetchone()
            except sqlite3.OperationalError as failed:
                connection.close()
                error = failed
                continue
            except sqlite3.DatabaseError as failed:
                connection.close()
                raise self._unreadable(failed) from failed
            if version > SCHEMA_VERSION:
                connection.close()
                raise newer(self.path, "the database", version)
            if tables != 2:
                connection.close()
                if version == 0 and tables == 0 and self._is_empty():
                    return None  # its first writer has not come to its tables yet
                raise UnreadableTape(
                    f"{self.path} is a database, but not a tape",
                    "name another file; this one is left as it is",
                )
            return connection
        raise self._unreadable(error or sqlite3.OperationalError("cannot be opened"))

    def _is_empty(self) -> bool:
        connection = sqlite3.connect(f"file:{quote(self.path)}?mode=ro", uri=True)
        try:
            return bool(connection.execute("SELECT count(*) = 0 FROM sqlite_master").fetchone()[0])
        finally:
            connection.close()

    def _unreadable(self, error: sqlite3.Error) -> UnreadableTape:
        if isinstance(error, sqlite3.OperationalError) and "malformed" not in str(error):
            return UnreadableTape(
                f"the tape {self.path} cannot be read: {error}", f"check it with: ls -l {self.path}"
            )
        return DamagedTape(
            f"damaged tape: {self.path}: {error}",
            f"save what can be read with: sqlite3 {self.path} .recover",
        )

    # --- appending

    def append(self, exchange: Exchange) -> None:
        """Keep an exchange; on return it is durable. Raises UnwritableTape."""
        with self._lock:
            self._require_open()
        bodies: dict[str, bytes] = {}

        def put_blob(data: bytes) -> str | None:
            if len(data) < BLOB_SIZE:
                return None
            name = blob_hash(data)
            bodies[name] = data
            return name

        row = compact(row_of(exchange, put_blob))
        self._commits.submit((exchange, row, bodies))

    def _write(self, batch: Sequence[_Item]) -> None:
        try:
            writer = self._writer_now()
            writer.execute("BEGIN IMMEDIATE")
            try:
                for exchange, row, bodies in batch:
                    writer.executemany("INSERT OR IGNORE INTO blobs VALUES (?, ?)", bodies.items())
                    writer.execute(
                        "INSERT INTO exchanges (key, state, canonicalizer, recorded_at, row)"
                        " VALUES (?, ?, ?, ?, ?)",
                        (
                            exchange.key, str(exchange.state), exchange.canonicalizer,
                            exchange.recorded_at, row,
                        ),
                    )  # fmt: skip
                writer.execute("COMMIT")
            except BaseException:
                if writer.in_transaction:
                    writer.execute("ROLLBACK")
                raise
        except (sqlite3.Error, OSError) as error:
            raise self._unwritable(error) from error

    def _writer_now(self) -> sqlite3.Connection:
        if self._writer is None:
            self._require_tape()
            os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
            writer = sqlite3.connect(
                self.path, timeout=_WAIT_S, isolation_level=None, check_same_thread=False
            )
            try:
                writer.execute("PRAGMA journal_mode = WAL")
                writer.execute("PRAGMA synchronous = FULL")
                writer.executescript(f"BEGIN IMMEDIATE; {_SCHEMA} COMMIT;")
            except BaseException:
                writer.close()
                raise
            self._writer = writer
        return self._writer

    def _require_tape(self) -> None:
        """Never turn somebody's other database into a tape."""
        with self._lock:
            self._reader_now()

    def _unwritable(self, error: sqlite3.Error | OSError) -> TapesError:
        if isinstance(error, sqlite3.DatabaseError) and not isinstance(
            error, sqlite3.OperationalError
        ):
            return self._unreadable(error)
        full = "full" in str(error)
        return UnwritableTape(
            f"the tape {self.path} cannot be written: {error}",
            "free space on that disk; nothing that was recorded before is lost"
            if full
            else f"check it with: ls -ld {os.path.dirname(self.path) or '.'} {self.path}",
        )

    def close(self) -> None:
        """Let go of the file; the last one to close leaves a single file."""
        with self._lock:
            for connection in (self._reader, self._writer):
                if connection is not None and self._pid == os.getpid():
                    connection.close()
            self._reader = self._writer = None
            self._closed = True
