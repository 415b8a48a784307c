"""Changing a tape that lies there: under its lock, whole or not at all.

Rule 1: everything that stays keeps its bytes and its order.
Rule 2: a file is replaced in one step by a finished one; killed before that step, a tool leaves
        the tape as it was. A directory changes answer by answer, each whole or absent.
Rule 3: nobody who writes at the same time loses anything: writers wait for the lock and then find
        the new file. What a writer without locks added meanwhile is carried over.
Rule 4: the original is kept, where that is asked for, before anything changes.

Knows nothing of why rows go, come or change.
"""

import contextlib
import errno
import fcntl
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from tapes.errors import UnwritableTape, as_typed
from tapes.exchange import SCHEMA_VERSION, bytes_form, exchange_of
from tapes.jsontext import Json, compact
from tapes.tape.beside import FOLDER, make_local, sync_folder
from tapes.tape.directory import DirectoryTape
from tapes.tape.raw import (
    DirectoryRows,
    Fault,
    JsonlRows,
    RawRow,
    Rows,
    SqliteRows,
    body_name,
    broken_database,
    kind_of_existing,
)
from tapes.tape.sqlite import _SCHEMA, SqliteTape

_BLOCK = 4 * 1024 * 1024
BACKUPS = "backups"


@dataclass(frozen=True, slots=True)
class NewRow:
    """A row to be written, and the bodies that it names. `text` is what it looked like before."""

    row: dict[str, Json]
    bodies: dict[str, bytes] = field(default_factory=dict)
    text: bytes | None = None

    def line(self) -> bytes:
        """The row as a line of a JSONL tape."""
        if self.text is not None and b"\n" not in self.text.strip():
            return self.text.strip() + b"\n"
        return compact(self.row).encode() + b"\n"


# What becomes of a row: None leaves it as it is, () drops it, anything else takes its place.
Change = Callable[[RawRow], Sequence[NewRow] | None]


class Editor(Protocol):
    """A tape that nobody else can write to. Its rows do not change until `apply`."""

    path: str

    @property
    def rows(self) -> Rows:
        """The rows as they are, before `apply`."""
        ...

    def apply(self, change: Change, gone: Set[str] = frozenset()) -> None:
        """Change every row as told, and drop the bodies whose names are in `gone`."""
        ...

    def append(self, new: Iterable[NewRow]) -> None:
        """Add rows at the end, durably: all of them, or none where writing fails."""
        ...

    def back_up(self) -> Path:
        """Keep the tape as it is now; gives the place."""
        ...


@contextmanager
def editing(path: str | os.PathLike[str]) -> Iterator[Editor]:
    """The tape at a path, locked. Raises UnreadableTape and UnwritableTape."""
    text = os.fspath(path)
    kind = kind_of_existing(text)
    try:
        with _EDITORS[kind](text) as editor:
            yield editor
    except BrokenPipeError:
        raise  # whoever listened to the tool has gone; the tape is not concerned
    except (OSError, sqlite3.OperationalError) as error:
        raise unwritable(text, error) from error
    except sqlite3.DatabaseError as error:
        raise broken_database(text, error) from error


def unwritable(path: str, error: OSError | sqlite3.Error) -> UnwritableTape:
    """The error for a tape that the system does not let us change."""
    what = error.strerror if isinstance(error, OSError) else str(error)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        remedy = "free space on that disk"
    else:
        remedy = (
            f"see who may write: ls -ld {as_typed(os.path.dirname(path) or '.')} {as_typed(path)}"
        )
    return UnwritableTape(
        f"the tape {path} cannot be written: {what}", f"it is as it was; {remedy}"
    )


def backup_place(local: Path, name: str) -> Path:
    """A new name for what a tool keeps of a tape, in a folder that git passes over."""
    folder = local / BACKUPS
    make_local(local)
    folder.mkdir(exist_ok=True)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text("*\n")
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    place, number = folder / f"{name}.{stamp}", 1
    while place.exists() or place.with_name(f"{place.name}.damaged").exists():
        number += 1
        place = folder / f"{name}.{stamp}-{number}"
    return place


# --- JSONL ------------------------------------------------------------------------------------


class JsonlEditor:
    """A JSONL tape under its lock."""

    def __init__(self, path: str, real: str, fd: int) -> None:
        self.path = path
        self.rows: JsonlRows = JsonlRows(path, fd)
        self._real = Path(real)
        self._fd = fd
        self._local = self._real.parent / FOLDER  # on the same disk, whatever links lead there

    @classmethod
    @contextmanager
    def open(cls, path: str) -> "Iterator[JsonlEditor]":
        """Lock the file that the name leads to."""
        real = os.path.realpath(path)
        fd = _locked(real)
        try:
            yield cls(path, real, fd)
        finally:
            os.close(fd)  # and with it the lock

    def back_up(self) -> Path:
        """Keep the file: a second name where that is possible, else a copy."""
        place = backup_place(self._local, self._real.name)
        try:
            os.link(self._real, place)
        except OSError:
            shutil.copy2(self._real, place)
        sync_folder(place.parent)
        return place

    def apply(self, change: Change, gone: Set[str] = frozenset()) -> None:
        """Write a new file beside the old one, then put it in its place."""
        make_local(self._local)
        # One name for all: whoever holds the tape's lock may write over what a killed tool left.
        temporary = self._local / f"{self._real.name}.rewriting.tmp"
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            _like(os.fstat(self._fd), fd)
            # Whoever finds the new file waits until what came late is in it.
            fcntl.flock(fd, fcntl.LOCK_EX)
            with open(fd, "wb", buffering=_BLOCK, closefd=False) as file:
                for part in self._changed(change, gone):
                    file.write(part)
                for part in self._late():
                    file.write(part)
            os.fsync(fd)
            _replace(temporary, self._real)
            late = b"".join(self._late())
            if late:
                os.pwrite(fd, late, os.fstat(fd).st_size)
                os.fsync(fd)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)

    def _changed(self, change: Change, gone: Set[str]) -> Iterator[bytes]:
        known: set[str] = set()
        for number, offset, line in self.rows.lines():
            name = body_name(line)
            raw = self.rows.raw(number, offset, line)
            if name is not None and name in gone:
                continue
            new = None if raw is None else change(raw)
            if new is None:
                if name is not None:
                    known.add(name)
                yield line
                continue
            for row in new:
                for body, data in row.bodies.items():
                    if body not in known and not self._stays(body, gone):
                        yield _body_line(body, data)
                    known.add(body)
                yield row.line()

    def _stays(self, body: str, gone: Set[str]) -> bool:
        return body not in gone and self.rows.has_body(body)

    def _late(self) -> Iterator[bytes]:
        """What somebody who knows of no locks has added since the lines were read."""
        while True:
            data = os.pread(self._fd, _BLOCK, self.rows.size)
            if not data:
                return
            self.rows.size += len(data)
            yield data

    def append(self, new: Iterable[NewRow]) -> None:
        """Write the rows behind the last whole line; take them back where that fails."""
        start = self._end_of_lines()
        known: set[str] = set()
        written = _Written(self._fd)
        block = bytearray(b"\n" if self._lacks_line_end(start) else b"")
        try:
            for row in new:
                for body, data in row.bodies.items():
                    if body not in known and not self.rows.has_body(body):
                        block += _body_line(body, data)
                    known.add(body)
                block += row.line()
                if len(block) > _BLOCK:
                    written.write(block)
                    block.clear()
            written.write(block)
            os.fsync(self._fd)
        except BaseException:
            written.take_back(start, self._real)
            raise

    def _end_of_lines(self) -> int:
        """Where the last line that counts ends; a torn one is set aside first."""
        size, last = self.rows.size, None
        for last in self.rows.lines():  # noqa: B007  # the last one is what is wanted
            pass
        raw = None if last is None else self.rows.raw(*last)
        if raw is None or raw.fault is not Fault.TORN:
            return size
        aside = make_local(self._local) / f"{self._real.name}.torn"
        with aside.open("ab") as file:
            file.write(raw.text + b"\n")
        start = int(raw.token)
        os.ftruncate(self._fd, start)
        self.rows.size = start
        return start

    def _lacks_line_end(self, size: int) -> bool:
        return size > 0 and os.pread(self._fd, 1, size - 1) != b"\n"


def _locked(path: str) -> int:
    """The file that the name leads to, locked as its writers lock it."""
    while True:
        # Appending even beside writers that know of no locks: nothing of theirs is written over.
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        fcntl.flock(fd, fcntl.LOCK_EX)
        try:
            if os.stat(path).st_ino == os.fstat(fd).st_ino:
                return fd
        except FileNotFoundError:
            os.close(fd)
            raise
        os.close(fd)  # somebody put another file in its place while we waited


def _like(status: os.stat_result, fd: int) -> None:
    """Give a file the rights and the owner of another."""
    os.fchmod(fd, status.st_mode & 0o7777)
    with contextlib.suppress(OSError):  # only the owner's own business, where it is possible
        os.fchown(fd, status.st_uid, status.st_gid)


def _replace(temporary: Path, real: Path) -> None:
    """Put a finished file in the place of another, durably."""
    os.replace(temporary, real)
    sync_folder(real.parent)


def _body_line(name: str, data: bytes) -> bytes:
    row = {
        "hash": name,
        "v": SCHEMA_VERSION,
        "canonicalizer": "blob/1",
        "request": None,
        "response": bytes_form(data),
    }
    return compact(row).encode() + b"\n"


class _Written:
    """What was appended to a file to which somebody who knows of no locks may append as well."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._spans: list[tuple[int, int]] = []

    def write(self, data: bytes | bytearray) -> None:
        """Append all of it."""
        with memoryview(data) as view:
            done = 0
            while done < len(view):
                count = os.write(self._fd, view[done:])
                end = os.lseek(self._fd, 0, os.SEEK_CUR)
                self._spans.append((end - count, end))
                done += count

    def take_back(self, start: int, real: Path) -> None:
        """Take away what was written from `start` on.

        Where somebody else wrote there too, his lines stay: ours become blank, which is none.
        """
        size = os.fstat(self._fd).st_size
        if size == start + sum(end - begin for begin, end in self._spans):
            os.ftruncate(self._fd, start)
            return
        fd = os.open(real, os.O_WRONLY | os.O_CLOEXEC)  # the other one appends wherever it is told
        try:
            for begin, end in self._spans:
                os.pwrite(fd, b" " * (end - begin - 1) + b"\n", begin)
            os.fsync(fd)
        finally:
            os.close(fd)


# --- directory --------------------------------------------------------------------------------


class DirectoryEditor:
    """A directory tape under a lock on its folder."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.rows: DirectoryRows = DirectoryRows(path)
        self._folder = Path(path)
        self._tape = DirectoryTape(path)

    @classmethod
    @contextmanager
    def open(cls, path: str) -> "Iterator[DirectoryEditor]":
        """Lock the folder against other tools, and against writers that look at its lock."""
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield cls(path)
        finally:
            os.close(fd)

    def back_up(self) -> Path:
        """Keep all files under a second name each; they are replaced, never written to."""
        place = backup_place(self._folder / FOLDER, "answers")
        for folder in ("", ".requests", ".blobs", ".incomplete"):
            (place / folder).mkdir(parents=True, exist_ok=True)
            for path in _plain_files(self._folder / folder):
                try:
                    os.link(path, place / folder / path.name)
                except OSError:
                    shutil.copy2(path, place / folder / path.name)
            sync_folder(place / folder)
        return place

    def apply(self, change: Change, gone: Set[str] = frozenset()) -> None:
        """Put new answers first, then take away old ones, then the bodies that nobody names."""
        before = self._stamps()
        for name in self.rows.names():
            with self._held(name) as inode:
                raw = self.rows.row(name)
                new = None if raw is None else change(raw)
                if new is None:
                    continue
                self.append(new)
                if name not in {_file_of(row) for row in new}:
                    self._remove(name, inode)
        for body in gone - self._named_since(before):
            self._unlink(f".blobs/{body}")

    @contextmanager
    def _held(self, name: str) -> Iterator[int]:
        """The number of the file of this name, which no other file gets meanwhile."""
        try:
            fd = os.open(self._folder / name, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            yield -1
            return
        try:
            yield os.fstat(fd).st_ino
        finally:
            os.close(fd)

    def _stamps(self) -> dict[str, tuple[int, int]]:
        found = {}
        for name in self.rows.names():
            with contextlib.suppress(FileNotFoundError):
                status = os.stat(self._folder / name)
                found[name] = status.st_ino, status.st_mtime_ns
        return found

    def _named_since(self, before: dict[str, tuple[int, int]]) -> set[str]:
        """The bodies that answers name which came while we were at work."""
        named = set[str]()
        for name, stamp in self._stamps().items():
            raw = self.rows.row(name) if before.get(name) != stamp else None
            if raw is not None and raw.fault is None:
                named |= bodies_named(raw.row)
        return named

    def append(self, new: Iterable[NewRow]) -> None:
        """Put every answer, each durably and whole."""
        for row in new:

            def body(name: str, bodies: dict[str, bytes] = row.bodies) -> bytes:
                return bodies[name] if name in bodies else self.rows.body(name)

            self._tape.put(exchange_of(row.row, self.path, _file_of(row), body))

    def _remove(self, name: str, inode: int) -> None:
        """Take an answer away, unless somebody has put another one in its place meanwhile.

        The answer goes before what is said about it: without an answer nobody reads that.
        """
        path = self._folder / name
        aside = path.with_name(f".{os.getpid():016x}.tmp")
        with contextlib.suppress(FileNotFoundError):
            path.rename(aside)
            if aside.stat().st_ino != inode:
                with contextlib.suppress(FileExistsError):  # one that is newer still
                    os.link(aside, path)
            aside.unlink()
            sync_folder(path.parent)
        if not name.startswith(".") and not path.exists():
            self._unlink(f".requests/{name}")

    def _unlink(self, name: str) -> None:
        path = self._folder / name
        path.unlink(missing_ok=True)
        if path.parent.exists():
            sync_folder(path.parent)


def _file_of(row: NewRow) -> str:
    name = f"{row.row['hash']}.json"
    return name if row.row.get("state", "complete") == "complete" else f".incomplete/{name}"


def _plain_files(folder: Path) -> list[Path]:
    try:
        return [
            path for path in folder.iterdir() if path.is_file() and not path.name.endswith(".tmp")
        ]
    except FileNotFoundError:
        return []


# --- SQLite -----------------------------------------------------------------------------------


class SqliteEditor:
    """An SQLite tape in one transaction that excludes other writers."""

    def __init__(self, path: str, connection: sqlite3.Connection) -> None:
        self.path = path
        self.rows: SqliteRows = SqliteRows(path, connection)
        self._connection = connection
        self._took_away = False

    @classmethod
    @contextmanager
    def open(cls, path: str) -> "Iterator[SqliteEditor]":
        """Begin the transaction; what it did counts once the block ends without an error."""
        SqliteTape(path).close()  # refuses what is no tape, or a newer one
        connection = sqlite3.connect(path, timeout=60, isolation_level=None)
        try:
            connection.execute("PRAGMA synchronous = FULL")
            # What is taken away must not stay readable in the file.
            connection.execute("PRAGMA secure_delete = ON")
            connection.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA.split(";"):
                connection.execute(statement)
            editor = cls(path, connection)
            try:
                yield editor
                connection.execute("COMMIT")
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            if editor._took_away:
                _forget_for_good(connection)
        finally:
            connection.close()

    def back_up(self) -> Path:
        """Keep the database as it was before this transaction."""
        place = backup_place(Path(self.path).parent / FOLDER, os.path.basename(self.path))
        source = sqlite3.connect(f"file:{quote(os.path.abspath(self.path))}?mode=ro", uri=True)
        copy = sqlite3.connect(place)
        try:
            source.backup(copy)
        finally:
            copy.close()
            source.close()
        os.chmod(place, os.stat(self.path).st_mode & 0o7777)
        return place

    def apply(self, change: Change, gone: Set[str] = frozenset()) -> None:
        """Change rows where they are; further rows in the place of one go to the end."""
        self._took_away = True
        for raw in self.rows:
            new = change(raw)
            if new is None:
                continue
            if not new:
                self._connection.execute("DELETE FROM exchanges WHERE number = ?", (raw.token,))
                continue
            self._put_bodies(new[0])
            self._connection.execute(
                "UPDATE exchanges SET key = ?, state = ?, canonicalizer = ?, recorded_at = ?,"
                " row = ? WHERE number = ?",
                (*_columns(new[0]), raw.token),
            )
            self.append(new[1:])
        self._connection.executemany("DELETE FROM blobs WHERE hash = ?", ((name,) for name in gone))

    def append(self, new: Iterable[NewRow]) -> None:
        """Insert the rows; they count once the transaction ends."""
        for row in new:
            self._put_bodies(row)
            self._connection.execute(
                "INSERT INTO exchanges (key, state, canonicalizer, recorded_at, row)"
                " VALUES (?, ?, ?, ?, ?)",
                _columns(row),
            )

    def _put_bodies(self, row: NewRow) -> None:
        self._connection.executemany(
            "INSERT OR IGNORE INTO blobs VALUES (?, ?)", row.bodies.items()
        )


def _forget_for_good(connection: sqlite3.Connection) -> None:
    """Give space back, and end the log that still holds what was taken away.

    Where somebody reads at this moment, the last one to close does it.
    """
    with contextlib.suppress(sqlite3.OperationalError):
        connection.execute("PRAGMA busy_timeout = 1000")
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()


def _columns(new: NewRow) -> tuple[str, str, str, str | None, str]:
    row = new.row
    return (
        row["hash"],
        row.get("state", "complete"),
        row["canonicalizer"] if row.get("v") else "tape/1",
        row.get("recorded_at"),
        new.line().decode().rstrip("\n"),
    )


_EDITORS: dict[str, Callable[[str], AbstractContextManager[Editor]]] = {
    "jsonl": JsonlEditor.open,
    "directory": DirectoryEditor.open,
    "sqlite": SqliteEditor.open,
}


def new_row(row: dict[str, Json], rows: Rows, text: bytes | None = None) -> NewRow:
    """A row of one tape with its bodies, to be written on another. Raises MissingBody."""
    return NewRow(row, {name: rows.body(name) for name in bodies_named(row)}, text)


def bodies_named(row: Json) -> set[str]:
    """The bodies that a row names instead of holding them."""
    if not str(row.get("canonicalizer", "")).startswith("http/"):
        return set()
    request, response = row.get("request"), row.get("response")
    forms = [request.get("body")] if isinstance(request, dict) else []
    if isinstance(response, dict):
        forms.append(response.get("body"))
        forms += [piece[1] for piece in response.get("pieces", ()) if isinstance(piece, list)]
    return {str(form["blob"]) for form in forms if isinstance(form, dict) and set(form) == {"blob"}}
