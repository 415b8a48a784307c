"""A name as text → the tape it means. The four homes, in one table."""

import os
import re
from collections.abc import Callable

from tapes.errors import MissingExtra, UnknownKind
from tapes.tape.base import Tape
from tapes.tape.directory import DirectoryTape
from tapes.tape.jsonl import JsonlTape
from tapes.tape.sqlite import SqliteTape, is_database

# What lies in a file or folder; a tape on a server is opened late.
KINDS: dict[str, Callable[[str], Tape]] = {
    "jsonl": JsonlTape,
    "directory": DirectoryTape,
    "sqlite": SqliteTape,
}
_SERVER = re.compile(r"postgres(ql)?://")
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".db": "sqlite",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
}


def is_on_server(where: str) -> bool:
    """Whether a name means a tape on a server."""
    return _SERVER.match(where) is not None


def kind_of(where: str | os.PathLike[str]) -> str:
    """`postgres` by how the name begins, else `jsonl`, `directory` or `sqlite`: by what is there,
    else by how the name ends.

    Raises UnknownKind for a name that says neither, and for none at all.
    """
    text = os.fspath(where)
    if not text:  # an unset variable, say: as a directory it would be the root
        raise UnknownKind("an empty name is the name of no tape", "name one: weather.jsonl")
    if is_on_server(text):
        return "postgres"
    if text.endswith(("/", os.sep)) or os.path.isdir(text):
        return "directory"
    suffix = os.path.splitext(text)[1].lower()
    if suffix in _SUFFIXES:
        return _SUFFIXES[suffix]
    if os.path.isfile(text):
        return "sqlite" if is_database(text) else "jsonl"
    if not suffix:
        return "directory"
    raise UnknownKind(
        f"{text} does not say which kind of tape it is",
        "end the name with .jsonl (a file for git), .db (SQLite) or / (a directory of answers), or"
        " begin it with postgresql:// (a server)",
    )


def open_tape(where: str | os.PathLike[str]) -> Tape:
    """The tape of this name. Raises UnknownKind or UnreadableTape."""
    kind = kind_of(where)
    return _on_server(os.fspath(where)) if kind == "postgres" else KINDS[kind](os.fspath(where))


def _on_server(where: str) -> Tape:
    """A tape in PostgreSQL. Raises MissingExtra where its driver is not installed."""
    try:
        from tapes.tape.postgres import PostgresTape
    except ImportError:
        raise MissingExtra(
            "tapes in PostgreSQL are an extra that is not installed",
            "pip install 'tapes-py[postgres]'",
        ) from None
    return PostgresTape(where)
