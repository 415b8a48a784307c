"""Sessions into files and back: each format by one function.

Rule 1: a file is written whole or not at all.
Rule 2: what JSONL holds comes back as it was, on either database; secrets in it do not. What OTLP
        holds comes back as the private door takes it in.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from tapes.capture.noticed import KEPT_HEADERS
from tapes.cli.files import require_room, whole_file
from tapes.cli.output import flush, write_bytes
from tapes.errors import BadEnvelope, ForeignFile, as_typed
from tapes.exporting import Export, Form, sessions_found
from tapes.ingest.otlp import Received, spans_of_json
from tapes.ingest.sessions import TraceSessions, turns_of_spans
from tapes.ingest.turns import of_tenant, value_of_body
from tapes.redact import Redactor
from tapes.rows import NO_ORG, RawTurn
from tapes.store.base import Project, Store
from tapes.store.filters import Condition
from tapes.turnlines import cleaned, turn_of

_AT_ONCE = 200
# An export of OpenTelemetry is one line, and read as a whole: it takes some ten times its size.
OTLP_LIMIT = 64 * 1024 * 1024


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
    require_room(target, force=force)
    with whole_file(target) as put:
        yield put


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
            if isinstance(read, Received):
                _append_spans(log, read, org, clean, done)
                continue
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


def _append_spans(
    log: Store, received: Received, org: str, clean: Redactor, done: dict[str, int]
) -> None:
    sessions = TraceSessions(log.project(org))
    turns = turns_of_spans(received.forms, sessions, clean)
    for at in range(0, len(turns), _AT_ONCE):
        _append(log, [of_tenant(turn, org) for turn in turns[at : at + _AT_ONCE]], done)
    sessions.settle(received.forms)


def _turns(name: str) -> Iterator[RawTurn | Received]:
    try:
        with open(name, "rb") as lines:
            number = 0
            while line := lines.readline(OTLP_LIMIT + 1):
                number += 1
                place = f"line {number}"
                is_whole = line.endswith(b"\n") or len(line) <= OTLP_LIMIT
                if _OTLP.match(line) and not is_whole:
                    raise ForeignFile(
                        f"{name}, {place}: OpenTelemetry of more than {OTLP_LIMIT >> 20} MiB in one"
                        " piece, which would all be read into memory",
                        "export with --format jsonl, or fewer sessions at a time",
                    )
                if not is_whole:
                    line += lines.readline()
                if _OTLP.match(line):
                    yield _spans(line, name, place)
                elif number == 1 and line.startswith(b"PAR1"):
                    raise ForeignFile(
                        f"{name} is a table (Parquet), which others read",
                        "what comes back is written with --format jsonl (or otlp)",
                    )
                elif line.strip():
                    yield turn_of(line, name, place)
    except OSError as error:
        raise ForeignFile(
            f"{name} cannot be read: {error.strerror}", f"ls -l {as_typed(name)}"
        ) from error


# What this program and collectors write: a whole request on one line.
_OTLP = re.compile(rb'\s*\{\s*"resourceSpans"')


def _spans(line: bytes, name: str, place: str) -> Received:
    try:
        received = spans_of_json(value_of_body(line))
    except BadEnvelope as error:
        raise ForeignFile(f"{name}, {place}: {error.message}", "write it anew") from error
    if received.rejected:
        raise ForeignFile(f"{name}, {place}: {received.message()}", "take those spans out")
    return received
