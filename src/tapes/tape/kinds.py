"""A name as text → the tape it means. The three homes, in one table."""

import os
from collections.abc import Callable

from tapes.errors import UnknownKind
from tapes.tape.base import Tape
from tapes.tape.directory import DirectoryTape
from tapes.tape.jsonl import JsonlTape
from tapes.tape.sqlite import SqliteTape, is_database

KINDS: dict[str, Callable[[str], Tape]] = {
    "jsonl": JsonlTape,
    "directory": DirectoryTape,
    "sqlite": SqliteTape,
}
_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".db": "sqlite",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
}


def kind_of(where: str | os.PathLike[str]) -> str:
    """`jsonl`, `directory` or `sqlite`: by what is there, else by how the name ends.

    Raises UnknownKind for a name that says neither.
    """
    text = os.fspath(where)
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
        "end the name with .jsonl (a file for git), .db (SQLite) or / (a directory of answers)",
    )


def open_tape(where: str | os.PathLike[str]) -> Tape:
    """The tape of this name. Raises UnknownKind or UnreadableTape."""
    return KINDS[kind_of(where)](os.fspath(where))
