"""Sessions into files and back: each format by one function.

Rule 1: a file is written whole or not at all.
Rule 2: what JSONL holds comes back as it was, on either database; secrets in it do not.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tapes.capture.noticed import KEPT_HEADERS
from tapes.cli.output import flush, write_bytes
from tapes.errors import ForeignFile, UnwritableTape, as_typed
from tapes.exporting import Export, Form, sessions_found
from tapes.redact import Redactor
from tapes.rows import NO_ORG, RawTurn
from tapes.store.base import Project, Store
from tapes.store.filters import Condition
from tapes.turnlines import cleaned, turn_of

_AT_ONCE = 200


def written(
    log: Project, where: Condition, target: str, form: Form, *, force: bool, content: bool
) -> Export:
    """Write what a query finds. Raises UnwritableTape, MissingExtra."""
    export = Export(log, form, content=content)
    with _file(target, force) as put:
        for piece in export.pieces(sessions_found(log, where)):
            put(piece)
    return export


@contextmanager
def _file(target: str, force: bool) -> Iterator[Callable[[bytes], object]]:
    if target == "-":
        yield write_bytes
        flush()
        return
    path = Path(target)
    if path.exists() and not force:
        raise UnwritableTape(f"{target} is there already", "to write over it: --force")
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as out:
            yield out.write
        temporary.replace(path)
    except OSError as error:
        raise UnwritableTape(f"{target} cannot be written: {error.strerror}") from error
    finally:
        temporary.unlink(missing_ok=True)


def brought(
    log: Store, files: tuple[str, ...], org: str, redactor: Redactor | None = None
) -> dict[str, int]:
    """Take in the turns of files, cleaned. Raises ForeignFile before a file's first bad line is
    passed.
    """
    clean = redactor or Redactor(keep=KEPT_HEADERS)
    done = {"new": 0, "known": 0, "erased": 0}
    for name in files:
        batch: list[RawTurn] = []
        for read in _turns(name):
            turn = cleaned(read, clean)
            if org != NO_ORG:
                turn = replace(turn, envelope=replace(turn.envelope, org_id=org))
            batch.append(turn)
            if len(batch) == _AT_ONCE:
                _append(log, batch, done)
        _append(log, batch, done)
    return done


def _append(log: Store, batch: list[RawTurn], done: dict[str, int]) -> None:
    for receipt in log.append(batch) if batch else ():
        done[receipt.kept.value] += 1
    batch.clear()


def _turns(name: str) -> Iterator[RawTurn]:
    try:
        with open(name, "rb") as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield turn_of(line, name, f"line {number}")
    except OSError as error:
        raise ForeignFile(
            f"{name} cannot be read: {error.strerror}", f"ls -l {as_typed(name)}"
        ) from error
