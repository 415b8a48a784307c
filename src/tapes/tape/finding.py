"""Which tapes lie below a folder, and what is on each at a glance.

A glance reads the head of every row and no more: it counts, and it does not verify.

Knows nothing of what requests mean.
"""

import os
import re
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tapes.errors import DamagedTape, TapesError
from tapes.tape.raw import (
    DirectoryRows,
    Fault,
    JsonlRows,
    Rows,
    SqliteRows,
    body_name,
    exchange_at,
    kind_of_existing,
    open_rows,
)
from tapes.tape.sqlite import tables_of

_LINES = (".jsonl", ".ndjson")
_SUFFIXES = (*_LINES, ".db", ".sqlite", ".sqlite3")
# Folders that are full of files and hold nobody's tapes.
PASSED_OVER = frozenset(
    {
        ".git", ".hg", ".svn", ".tapes", ".requests", ".blobs", ".incomplete", "node_modules",
        "__pycache__", ".venv", "venv", ".tox", ".nox", ".mypy_cache", ".pytest_cache",
        ".ruff_cache", "site-packages",
    }
)  # fmt: skip


@dataclass(slots=True)
class Glance:
    """What is on a tape. `error` says why nothing can be said about it."""

    path: str
    kind: str
    exchanges: int = 0
    incomplete: int = 0
    bytes: int = 0
    last_recorded: str | None = None
    canonicalizers: list[str] = field(default_factory=list)
    error: TapesError | None = None


def find_tapes(folder: str | os.PathLike[str]) -> Iterator[str]:
    """The tapes of every kind below a folder, itself included, in the order of their names."""
    for where, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in PASSED_OVER)
        if any(_is_answer(name) for name in files):
            yield os.path.normpath(where)
        for name in sorted(files):
            path = os.path.normpath(os.path.join(where, name))
            if name.endswith(_SUFFIXES) and _looks_like_tape(Path(path)):
                yield path


_ANSWER = re.compile(r"[0-9a-f]{64}\.json")


def _is_answer(name: str) -> bool:
    return _ANSWER.fullmatch(name) is not None


def _looks_like_tape(path: Path) -> bool:
    """Whether a file is a tape, and not somebody's other data of the same name."""
    if path.suffix not in _LINES:
        tables = tables_of(str(path))
        if tables is not None:
            return tables >= {"exchanges", "blobs"}
    try:
        with path.open("rb") as file:
            head = file.read(64 * 1024)
    except OSError:
        return True  # its name says so; what is wrong with it, its glance says
    if not head:
        return True
    if path.suffix in _LINES:
        first = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:4096]
        return first.startswith(b"{") and b'"hash"' in first
    if not head.startswith(b"SQLite format 3\0"):
        return False
    return b"CREATE TABLE exchanges" in head and b"CREATE TABLE blobs" in head


def glance_at(path: str) -> Glance:
    """What is on a tape. What cannot be read is said in `error`, never raised."""
    try:
        glance = Glance(path, kind_of_existing(path))
    except TapesError as error:
        return Glance(path, "unknown", error=error)
    try:
        with open_rows(path) as rows:
            _look(rows, glance)
    except TapesError as error:
        glance.error = error
    except (OSError, sqlite3.Error) as error:
        glance.error = DamagedTape(f"the tape {path} cannot be read: {error}")
    return glance


def _look(rows: Rows, glance: Glance) -> None:
    if isinstance(rows, SqliteRows):
        _look_at_database(rows, glance)
        return
    heads = _line_heads(rows) if isinstance(rows, JsonlRows) else _file_heads(rows)
    names = set[str]()
    for complete, canonicalizer, recorded_at in heads:
        glance.exchanges += 1
        glance.incomplete += not complete
        names.add(canonicalizer)
        if recorded_at and recorded_at > (glance.last_recorded or ""):
            glance.last_recorded = recorded_at
    glance.canonicalizers = sorted(names)
    glance.bytes = size_of(glance.path)


_Head = tuple[bool, str, str | None]  # complete, canonicalizer, recorded at

_OWN = re.compile(
    rb'\{"hash":"[0-9a-f]{64}","v":1,(?:"state":"(\w+)",)?"canonicalizer":"([^"\\]+)"'
    rb'(?:,"sample":\d+)?(?:,"recorded_at":"([^"\\]*)")?'
)


def _line_heads(rows: JsonlRows) -> Iterator[_Head]:
    for number, offset, line in rows.lines():
        match = _OWN.match(line)
        if match and line.endswith(b"\n"):
            if match[2] != b"blob/1":
                yield (
                    match[1] in (None, b"complete"),
                    match[2].decode(),
                    match[3].decode() if match[3] else None,
                )
            continue
        raw = None if body_name(line) else rows.raw(number, offset, line)
        if raw is None or raw.fault is Fault.TORN:
            continue
        if raw.fault is not None:
            exchange_at(rows, raw)  # raises what is wrong
        yield _head_of(raw.row)


def _file_heads(rows: Rows) -> Iterator[_Head]:
    assert isinstance(rows, DirectoryRows)
    for name in rows.names():
        yield rows.head(name)


def _head_of(row: object) -> _Head:
    assert isinstance(row, dict)
    canonicalizer = str(row.get("canonicalizer")) if row.get("v") else "tape/1"
    return row.get("state", "complete") == "complete", canonicalizer, row.get("recorded_at")


def _look_at_database(rows: SqliteRows, glance: Glance) -> None:
    for canonicalizer, state, count, last in rows.read(
        "SELECT canonicalizer, state, count(*), max(recorded_at) FROM exchanges GROUP BY 1, 2"
    ):
        glance.exchanges += count
        glance.incomplete += 0 if state == "complete" else count
        glance.canonicalizers = sorted({*glance.canonicalizers, canonicalizer})
        glance.last_recorded = max(filter(None, (glance.last_recorded, last)), default=None)
    glance.bytes = size_of(glance.path)


def size_of(path: str) -> int:
    """The bytes that a tape takes, what lies in a directory's hidden folders included."""
    if not os.path.isdir(path):
        return os.stat(path).st_size
    folders = (path, *(os.path.join(path, sub) for sub in (".requests", ".blobs", ".incomplete")))
    return sum(_sizes(folders))


def _sizes(folders: Iterable[str]) -> Iterator[int]:
    for folder in folders:
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_file() and (entry.name.endswith(".json") or ".blobs" in folder):
                        yield entry.stat().st_size
        except FileNotFoundError:
            continue
