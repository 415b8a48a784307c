"""Sessions into files and back: each format by one function.

Rule 1: a file is written whole or not at all.
Rule 2: what JSONL holds comes back as it was, on either database.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO

from tapes.errors import ForeignFile, UnwritableTape
from tapes.exporting import otlp_document, parquet_file
from tapes.jsontext import compact
from tapes.rows import NO_ORG, RawTurn
from tapes.store.base import MOST, Ask, Kept, Project, Store
from tapes.store.filters import Condition
from tapes.turnlines import line_of, turn_of

_AT_ONCE = 200


def session_ids(log: Project, where: Condition) -> Iterator[str]:
    """The sessions that a query finds, the oldest first."""
    ask = Ask(where, "started_at", descending=False, limit=MOST)
    while True:
        page = log.sessions(ask)
        yield from (listed.session.id for listed in page.items)
        if page.next_cursor is None:
            return
        ask = replace(ask, cursor=page.next_cursor)


def written(
    log: Project, where: Condition, target: str, kind: str, force: bool, content: bool
) -> tuple[int, int]:
    """Write what a query finds; gives the number of sessions, and of turns or spans.

    Raises UnwritableTape, MissingExtra.
    """
    ids = list(session_ids(log, where))
    with _file(target, force) as out:
        if kind == "jsonl":
            number = 0
            for session_id in ids:
                for turn in log.stream_turns(session_id=session_id):
                    out.write(line_of(turn).encode() + b"\n")
                    number += 1
            return len(ids), number
        rows = [log.rows_of_session(session_id) for session_id in ids]
        if kind == "otlp":
            out.write(compact(otlp_document(rows, content=content)).encode() + b"\n")
        else:
            parquet_file(rows, out)
        spans = sum(len(each.spans) for each in rows)
    return len(ids), spans


@contextmanager
def _file(target: str, force: bool) -> Iterator[IO[bytes]]:
    if target == "-":
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(target)
    if path.exists() and not force:
        raise UnwritableTape(f"{target} is there already", "to write over it: --force")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as out:
            yield out
        temporary.replace(path)
    except OSError as error:
        raise UnwritableTape(f"{target} cannot be written: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


def brought(log: Store, files: tuple[str, ...], org: str) -> dict[str, int]:
    """Take in the turns of files. Raises ForeignFile before a file's first bad line is passed."""
    done = {"new": 0, "known": 0}
    for name in files:
        batch: list[RawTurn] = []
        for turn in _turns(name):
            if org != NO_ORG:
                turn = replace(turn, envelope=replace(turn.envelope, org_id=org))
            batch.append(turn)
            if len(batch) == _AT_ONCE:
                _append(log, batch, done)
        _append(log, batch, done)
    return done


def _append(log: Store, batch: list[RawTurn], done: dict[str, int]) -> None:
    for receipt in log.append(batch) if batch else ():
        done["new" if receipt.kept is Kept.NEW else "known"] += 1
    batch.clear()


def _turns(name: str) -> Iterator[RawTurn]:
    try:
        with open(name, "rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield turn_of(line, name, f"line {number}")
    except OSError as error:
        raise ForeignFile(f"{name} cannot be read: {error.strerror}", f"ls -l {name}") from error
