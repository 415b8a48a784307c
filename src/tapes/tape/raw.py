"""The rows of a tape as they lie there, each with its place: what the tools on tapes read.

A tape answers, and stops at the first thing that it cannot read. A tool has to see all of a tape:
every row in order, the broken ones with what is broken, and how far it has come.

Rule 1: a row is read exactly as the tape reads it; where a tape would raise, the row has a fault.
Rule 2: nothing is held but one row and the places of the bodies, however long the tape is.
Rule 3: reading changes nothing: no folder is made, no index kept, no left-over cleaned.

Knows nothing of keys beyond their form.
"""

import contextlib
import fcntl
import io
import json
import os
import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol
from urllib.parse import quote

from tapes.errors import DamagedTape, UnknownKey, UnreadableTape, as_typed
from tapes.exchange import SCHEMA_VERSION, Exchange, bytes_of, damaged, exchange_of, newer
from tapes.jsontext import Json
from tapes.tape.kinds import kind_of, open_tape
from tapes.tape.rowtext import why_unreadable

KEY = re.compile(r"[0-9a-f]{64}")
_BOM = b"\xef\xbb\xbf"
_OWN = b'{"hash":"'
_BODY = re.compile(rb'\{"hash":"([0-9a-f]{64})","v":\d+,"canonicalizer":"blob/1"')
_READ = 1024 * 1024
_PAGE = 200
_SHOWN = 8


# Told how much of the work is done, from 0 to 1, while it goes on.
Progress = Callable[[float], None]


def silent(_done: float) -> None:
    """Nobody wants to know how far it is."""


class Fault(StrEnum):
    """What can be wrong with a place on a tape."""

    UNREADABLE = "unreadable"  # no JSON
    NO_EXCHANGE = "no-exchange"  # JSON that is no row
    TORN = "torn"  # a last line without its end: it was never acknowledged and never answers
    WRONG_KEY = "wrong-key"  # the key is not the request's
    MISSING_BODY = "missing-body"  # a body that the row names is not there, or is damaged itself
    WRONG_BODY = "wrong-body"  # a body that is kept once is not the one of its name
    NEWER = "newer"  # written by a later version of this project: no damage, and not readable here


@dataclass(frozen=True, slots=True)
class RawRow:
    """A row as it lies on a tape. `row` is None where `text` could not be read.

    `token` is the tape's own name of the place; `done` says how much of the tape lies before the
    row's end, from 0 to 1.
    """

    place: str
    token: int | str
    text: bytes
    row: Json = None
    fault: Fault | None = None
    what: str = ""
    done: float = 0.0

    @property
    def key(self) -> str:
        """The key that the row claims."""
        return str(self.row["hash"])

    @property
    def answers(self) -> bool:
        """Whether the row is an answer, not the evidence of a stream that did not end."""
        return bool(self.row.get("state", "complete") == "complete")


class MissingBody(Exception):
    """A body that a row names is not on the tape."""


class Rows(Protocol):
    """The rows of one tape, to be read as often as one likes."""

    path: str
    kind: str

    def __iter__(self) -> Iterator[RawRow]:
        """Every row but the bodies, in the order of recording."""
        ...

    def bodies(self) -> Iterator[RawRow]:
        """Every body that is kept once; the row's `hash` is its name."""
        ...

    def body(self, name: str) -> bytes:
        """The body of a name. Raises MissingBody."""
        ...

    def keys(self, begin: str) -> set[str]:
        """The keys that begin so, evidence included."""
        ...

    def close(self) -> None:
        """Let go of files."""
        ...


@contextmanager
def open_rows(path: str | os.PathLike[str]) -> Iterator[Rows]:
    """The rows of the tape at a path, which must be there. Raises UnreadableTape."""
    rows = _KINDS[kind_of_existing(path)](os.fspath(path))
    try:
        yield rows
    finally:
        rows.close()


def kind_of_existing(path: str | os.PathLike[str]) -> str:
    """The kind of the tape at a path. Raises UnreadableTape where there is none."""
    text = os.fspath(path)
    try:
        os.stat(text)
        kind = kind_of(text)
        if kind == "directory" and not _holds_answers(Path(text)) and os.listdir(text):
            raise UnreadableTape(
                f"{text} is a folder without answers",
                f"to see the tapes in it: tapes tape ls {as_typed(text)}",
            )
    except FileNotFoundError:
        raise UnreadableTape(
            f"there is no tape at {text}", "to see which there are: tapes tape ls"
        ) from None
    except OSError as error:
        raise unreadable(text, error) from error
    return kind


def _holds_answers(folder: Path) -> bool:
    """Whether a folder is a directory tape, and not just a folder."""
    with os.scandir(folder) as names:
        return any(
            name.name in (".requests", ".incomplete")
            or (name.name.endswith(".json") and KEY.fullmatch(name.name.removesuffix(".json")))
            for name in names
        )


def unreadable(path: str, error: OSError) -> UnreadableTape:
    """The error for a path that the system does not let us read."""
    return UnreadableTape(
        f"the tape {path} cannot be read: {error.strerror}",
        f"check it with: ls -ld {as_typed(path)}",
    )


def exchange_at(rows: Rows, raw: RawRow) -> Exchange:
    """The exchange of a row. Raises DamagedTape or NewerTape, naming path and place."""
    if raw.fault is Fault.NEWER:
        raise newer(rows.path, raw.place, raw.row["v"])
    if raw.fault is not None:
        raise damaged(rows.path, raw.place, raw.what)
    try:
        return exchange_of(raw.row, rows.path, raw.place, rows.body)
    except MissingBody as error:
        raise damaged(rows.path, raw.place, str(error)) from error


def exchanges(rows: Rows) -> Iterator[tuple[RawRow, Exchange]]:
    """Every row with its exchange. Raises at the first that is damaged; passes over a torn one."""
    for raw in rows:
        if raw.fault is not Fault.TORN:
            yield raw, exchange_at(rows, raw)


def key_that_begins(path: str | os.PathLike[str], begin: str) -> str:
    """The one key on a tape that begins so. Raises UnknownKey, naming the candidates."""
    text = begin.lower()
    if not re.fullmatch(r"[0-9a-f]{4,64}", text):
        raise UnknownKey(
            f"{begin!r} is no key and no beginning of one",
            "give its first 4 digits or more (0-9, a-f);"
            f" to see them: tapes tape ls {as_typed(path)}",
        )
    with open_rows(path) as rows:
        keys = sorted(rows.keys(text))
    if len(keys) == 1:
        return keys[0]
    if not keys:
        raise UnknownKey(
            f"no key on {path} begins with {text[:12]}",
            f"to see them: tapes tape ls {as_typed(path)}",
        )
    shown = ", ".join(key[:12] for key in keys[:_SHOWN]) + (", …" if len(keys) > _SHOWN else "")
    raise UnknownKey(
        f"{len(keys)} keys on {path} begin with {text}: {shown}", "give more digits of one of them"
    )


# --- one row ----------------------------------------------------------------------------------


def read_row(text: bytes) -> tuple[Json, Fault | None, str]:
    """What a row's text says, or which fault it has and what that is."""
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        return None, Fault.UNREADABLE, why_unreadable(text, error)
    if not isinstance(row, dict):
        return None, Fault.NO_EXCHANGE, "the row is not an object"
    version = row.get("v", 0)
    if isinstance(version, int) and version > SCHEMA_VERSION:
        return row, Fault.NEWER, f"schema version {version}"
    missing = sorted({"hash", "request", "response"} - row.keys())
    if missing:
        return row, Fault.NO_EXCHANGE, f"the row has no {', '.join(missing)}"
    if not isinstance(row["hash"], str) or not KEY.fullmatch(row["hash"]):
        return row, Fault.NO_EXCHANGE, "the hash is not 64 hex digits"
    return row, None, ""


# --- JSONL ------------------------------------------------------------------------------------


class _FileAt(io.RawIOBase):
    """A file from its beginning to a place, read without moving anybody's position in it."""

    def __init__(self, fd: int, end: int) -> None:
        self._fd, self._at, self._end = fd, 0, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # what BufferedReader passes
        wanted = min(len(buffer), self._end - self._at)
        count = os.preadv(self._fd, [buffer[:wanted]], self._at) if wanted else 0
        self._at += count
        return count


class JsonlRows:
    """The lines of a JSONL tape. `token` is the offset of the line; its end belongs to `text`."""

    kind = "jsonl"

    def __init__(self, path: str, fd: int | None = None) -> None:
        """`fd` is the file where it is open already; it stays open."""
        self.path = path
        self._owns = fd is None
        try:
            self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC) if fd is None else fd
            self.size = os.fstat(self._fd).st_size
        except OSError as error:
            raise unreadable(path, error) from error
        self._places: dict[str, tuple[int, int]] | None = None  # name → offset, length

    def settle(self) -> None:
        """Let whoever is writing a line come to its end."""
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(self._fd, fcntl.LOCK_SH)
            self.size = os.fstat(self._fd).st_size
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def lines(self) -> Iterator[tuple[int, int, bytes]]:
        """Every line with its number and offset, its end included."""
        offset = 0
        reader = io.BufferedReader(_FileAt(self._fd, self.size), _READ)
        for number, line in enumerate(reader, 1):
            yield number, offset, line
            offset += len(line)

    def __iter__(self) -> Iterator[RawRow]:
        """Every line that holds something, but the bodies."""
        for number, offset, line in self.lines():
            if not is_body_line(line):
                raw = self.raw(number, offset, line)
                if raw is not None:
                    yield raw

    def bodies(self) -> Iterator[RawRow]:
        """Every line that holds a body."""
        for number, offset, line in self.lines():
            if is_body_line(line):
                raw = self.raw(number, offset, line)
                if raw is not None:
                    yield raw

    def raw(self, number: int, offset: int, line: bytes) -> RawRow | None:
        """What a line holds; None for an empty one."""
        text = line.removeprefix(_BOM) if number == 1 else line
        if not text.strip():
            return None
        row, fault, what = read_row(text)
        if fault in (Fault.UNREADABLE, Fault.NO_EXCHANGE) and not line.endswith(b"\n"):
            fault, what = Fault.TORN, "the last line is torn: it was never acknowledged"
        done = (offset + len(line)) / max(self.size, 1)
        return RawRow(f"line {number}", offset, text, row, fault, what, done)

    def has_body(self, name: str) -> bool:
        """Whether there is a body of this name."""
        return name in self._body_places()

    def _body_places(self) -> dict[str, tuple[int, int]]:
        if self._places is None:
            self._places = {
                body: (offset, len(line))
                for _, offset, line in self.lines()
                if (body := body_name(line)) is not None
            }
        return self._places

    def body(self, name: str) -> bytes:
        """The body of a name; of several lines the last one."""
        try:
            offset, length = self._body_places()[name]
            return bytes_of(json.loads(os.pread(self._fd, length, offset))["response"])
        except (KeyError, ValueError) as error:
            raise MissingBody(f"the body {name[:12]} that the row names is missing") from error

    def keys(self, begin: str) -> set[str]:
        """The keys that begin so."""
        wanted, found = begin.encode(), set[str]()
        for number, offset, line in self.lines():
            if line.startswith(_OWN):
                if not line.startswith(wanted, len(_OWN)) or is_body_line(line):
                    continue
            elif is_body_line(line):
                continue
            raw = self.raw(number, offset, line)
            if raw is not None and raw.fault is None and raw.key.startswith(begin):
                found.add(raw.key)
        return found

    def close(self) -> None:
        """Let go of the file."""
        if self._owns:
            os.close(self._fd)


def is_body_line(line: bytes) -> bool:
    """Whether a line of a JSONL tape holds a body that is kept once."""
    return body_name(line) is not None


def body_name(line: bytes) -> str | None:
    """The name of the body that a line holds, or None for any other line."""
    match = _BODY.match(line)
    if match:
        return match[1].decode()
    if b"blob/1" not in line:
        return None
    row, fault, _ = read_row(line)
    return str(row["hash"]) if fault is None and row.get("canonicalizer") == "blob/1" else None


# --- directory --------------------------------------------------------------------------------

_RECORDED = re.compile(rb'"recorded_at":\s*"([^"\\]*)"')
_CANONICALIZER = re.compile(rb'"canonicalizer":\s*"([^"\\]*)"')
_HEAD = 512


class DirectoryRows:
    """The answers of a directory tape, and what lies there of streams that did not end.

    `token` is the file's name in the tape's folder.
    """

    kind = "directory"

    def __init__(self, path: str) -> None:
        self.path = path
        self.folder = Path(path)

    def __iter__(self) -> Iterator[RawRow]:
        """Every answer in the order of recording, those of which no time is known first."""
        names = self.names()
        for number, name in enumerate(names, 1):
            raw = self.row(name, number / len(names))
            if raw is not None:
                yield raw

    def names(self) -> list[str]:
        """The files that hold an answer or evidence, in the order of recording."""
        names = [*_json_files(self.folder), *_json_files(self.folder / ".incomplete")]
        return sorted(
            (os.path.relpath(name, self.folder) for name in names),
            key=lambda name: (self._recorded(name), name),
        )

    def _recorded(self, name: str) -> str:
        return self.head(name)[2] or ""

    def head(self, name: str) -> tuple[bool, str, str | None]:
        """Whether a file answers, its canonicalizer and when it was recorded, at a glance."""
        answers = not name.startswith(".incomplete")
        try:
            with (self.folder / (f".requests/{name}" if answers else name)).open("rb", 0) as file:
                head = file.read(_HEAD)
        except OSError:
            return answers, "directory/1", None
        rule, recorded = _CANONICALIZER.search(head), _RECORDED.search(head)
        return (
            answers,
            rule[1].decode() if rule else "unknown",
            recorded[1].decode() if recorded else None,
        )

    def row(self, name: str, done: float = 0.0) -> RawRow | None:
        """The row of one file; None where somebody has removed it."""
        try:
            text = (self.folder / name).read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unreadable(f"{self.path}/{name}", error) from error
        if name.startswith(".incomplete"):
            row, fault, what = read_row(text)
            return RawRow(name, name, text, row, fault, what, done)
        try:
            row = {**self._about(name), "response": json.loads(text)}
        except (ValueError, RecursionError, TypeError) as error:
            why = why_unreadable(text, error)
            return RawRow(name, name, text, None, Fault.UNREADABLE, why, done)
        newer_row = row["v"] > SCHEMA_VERSION
        fault, what = (Fault.NEWER, f"schema version {row['v']}") if newer_row else (None, "")
        return RawRow(name, name, text, row, fault, what, done)

    def _about(self, name: str) -> dict[str, Json]:
        """What the answer does not say about itself. Raises ValueError or TypeError."""
        head: dict[str, Json] = {"hash": name.removesuffix(".json")}
        try:
            about = json.loads((self.folder / ".requests" / name).read_bytes())
        except FileNotFoundError:
            return {**head, "v": SCHEMA_VERSION, "canonicalizer": "directory/1", "request": None}
        if not isinstance(about.get("v") if isinstance(about, dict) else None, int):
            raise ValueError(f".requests/{name} is no description of an answer")
        return {**head, **about}

    def bodies(self) -> Iterator[RawRow]:
        """Every body, as a row that holds its file's bytes as text."""
        for path in sorted(_files(self.folder / ".blobs")):
            if KEY.fullmatch(path.name):
                name = f".blobs/{path.name}"
                yield RawRow(name, name, path.read_bytes(), {"hash": path.name})

    def body(self, name: str) -> bytes:
        """The body of a name."""
        try:
            return (self.folder / ".blobs" / name).read_bytes()
        except OSError as error:
            raise MissingBody(f"the body {name[:12]} that the row names is missing") from error

    def keys(self, begin: str) -> set[str]:
        """The keys that begin so."""
        keys = {Path(name).name.removesuffix(".json") for name in self.names()}
        return {key for key in keys if key.startswith(begin)}

    def close(self) -> None:
        """Nothing is held open."""


def _json_files(folder: Path) -> list[Path]:
    return [
        path
        for path in _files(folder)
        if path.suffix == ".json" and KEY.fullmatch(path.name.removesuffix(".json"))
    ]


def _files(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise unreadable(str(folder), error) from error


# --- SQLite -----------------------------------------------------------------------------------


class SqliteRows:
    """The rows of an SQLite tape. `token` is the row's number."""

    kind = "sqlite"

    def __init__(self, path: str, connection: sqlite3.Connection | None = None) -> None:
        """`connection` is the database where it is open already; it stays open."""
        self.path = path
        self._owns = connection is None
        self._connection = _reader(path) if connection is None else connection

    def _number(self, statement: str) -> int:
        return int(self.read(statement)[0][0]) if self._connection is not None else 0

    def read(self, statement: str, *values: object) -> list[tuple]:  # type: ignore[type-arg]  # rows as SQLite gives them
        """The rows of a statement. Raises DamagedTape where the file is broken."""
        if self._connection is None:
            return []
        try:
            return self._connection.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise broken_database(self.path, error) from error

    def __iter__(self) -> Iterator[RawRow]:
        """Every row in the order of appending."""
        after, done = 0, 0
        count = max(self._number("SELECT count(*) FROM exchanges"), 1)
        last = self._number("SELECT coalesce(max(number), 0) FROM exchanges")
        statement = (
            "SELECT number, key, state, row FROM exchanges"
            " WHERE number > ? AND number <= ? ORDER BY number LIMIT ?"
        )
        while page := self.read(statement, after, last, _PAGE):
            for number, key, state, text in page:
                after, done = number, done + 1
                yield self._raw(number, key, state, text, min(done / count, 1.0))

    @staticmethod
    def _raw(number: int, key: str, state: str, text: object, done: float) -> RawRow:
        data = text if isinstance(text, bytes) else str(text).encode("utf-8", "surrogatepass")
        row, fault, what = read_row(data)
        if fault is None and (row["hash"], row.get("state", "complete")) != (key, state):
            fault, what = Fault.NO_EXCHANGE, "the row and its columns say different things"
        return RawRow(f"exchange {number}", number, data, row, fault, what, done)

    def bodies(self) -> Iterator[RawRow]:
        """Every body, as a row that holds its bytes as text."""
        for (name,) in self.read("SELECT hash FROM blobs ORDER BY hash"):
            yield RawRow(f"body {name[:12]}", name, self.body(name), {"hash": name})

    def body(self, name: str) -> bytes:
        """The body of a name."""
        found = self.read("SELECT bytes FROM blobs WHERE hash = ?", name)
        if not found:
            raise MissingBody(f"the body {name[:12]} that the row names is missing")
        return bytes(found[0][0])

    def keys(self, begin: str) -> set[str]:
        """The keys that begin so."""
        found = self.read(
            "SELECT DISTINCT key FROM exchanges WHERE key >= ? AND key < ?", begin, f"{begin}g"
        )
        return {key for (key,) in found}

    def close(self) -> None:
        """Let go of the database."""
        if self._owns and self._connection is not None:
            self._connection.close()


def broken_database(path: str, error: sqlite3.Error) -> DamagedTape:
    """The error for a file that SQLite itself cannot read."""
    return DamagedTape(
        f"damaged tape: {path}: {error}",
        f"save what can be read with: sqlite3 {as_typed(path)} .recover",
    )


def _reader(path: str) -> sqlite3.Connection | None:
    """A connection that only reads; None for a file that nobody has written to yet."""
    open_tape(path).close()  # refuses what is no tape, or a newer one
    error: sqlite3.Error | None = None
    # Whoever may write takes the side files away at the end; `immutable` needs none of them.
    for options in ("mode=rw", "mode=ro", "immutable=1"):
        connection = sqlite3.connect(f"file:{quote(path)}?{options}", uri=True, timeout=60)
        try:
            connection.execute("PRAGMA query_only = ON")
            tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        except sqlite3.Error as failed:
            connection.close()
            error = failed
            continue
        if not tables:
            connection.close()
            return None
        return connection
    raise UnreadableTape(
        f"the tape {path} cannot be read: {error}", f"check it with: ls -l {as_typed(path)}"
    )


_KINDS = {"jsonl": JsonlRows, "directory": DirectoryRows, "sqlite": SqliteRows}
