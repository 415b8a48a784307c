"""From another tool's file onto a tape, and from a tape into one.

Rule 1: all or nothing. A file that cannot be carried whole is refused before the tape is touched,
        unless the caller said that a part will do.
Rule 2: importing the same file twice changes nothing. A different answer to a request that the
        tape, or a file before it, answers already is a conflict, unless the caller said that the
        new one holds.

Knows nothing of commands.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from urllib.parse import urlsplit

from tapes.errors import ForeignFile, MergeConflict, NotCarried
from tapes.exchange import Exchange, Response, State
from tapes.interchange import aimock, har, vcr
from tapes.interchange.foreign import Note, Reading, Written, brought
from tapes.project import Declared, declared_for
from tapes.redact import SECRET_PATTERNS, Redactor
from tapes.tape.base import Tape


class Format(StrEnum):
    """The files of other tools that are known here."""

    VCR = "vcr"
    HAR = "har"
    AIMOCK = "aimock"


@dataclass(frozen=True, slots=True)
class Imported:
    """What an import brought onto a tape."""

    added: int
    there_already: int
    secrets: Counter[str]
    notes: tuple[Note, ...]


def format_of(data: bytes, name: str = "") -> Format:
    """The format of a file, by what it says. Raises ForeignFile."""
    try:
        content = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        content = None
    for member, kind in (("log", Format.HAR), ("fixtures", Format.AIMOCK)):
        if isinstance(content, dict) and member in content:
            return kind
    if b"interactions" in data or name.lower().endswith((".yaml", ".yml")):
        return Format.VCR
    raise ForeignFile(
        f"{name or 'the file'} is no cassette of vcrpy, HTTP archive or fixture file of aimock",
        "say what it is: --format vcr, har or aimock",
    )


def read_file(
    data: bytes, name: str = "", *, kind: Format | None = None, model: str | None = None
) -> Reading:
    """What a file holds. Raises ForeignFile naming the file."""
    try:
        match kind or format_of(data, name):
            case Format.VCR:
                reading = vcr.read(data)
            case Format.HAR:
                reading = har.read(data)
            case Format.AIMOCK:
                reading = aimock.read(data, name, model=model)
    except ForeignFile as error:
        raise ForeignFile(
            f"{name}: {error.message}" if name else error.message, error.remedy
        ) from error
    return replace(reading, source=name)


def import_into(
    tape: Tape,
    *readings: Reading,
    hosts: Iterable[str] = (),
    partial: bool = False,
    replace_answers: bool = False,
    declared: Declared | None = None,
) -> Imported:
    """Put the exchanges of readings on a tape, redacted. `hosts` takes those of some hosts alone.

    Raises NotCarried, MergeConflict or SecretFound before the tape is touched, and UnwritableTape.
    """
    declared = declared_for(tape.path) if declared is None else declared
    wanted = frozenset(host.lower() for host in hosts)
    new, done = dict[str, Exchange](), Imported(0, 0, Counter(), ())
    for reading in readings:
        redactor = Redactor(
            patterns=(*SECRET_PATTERNS, *declared.patterns),
            refuse=declared.secrets == "refuse",
            keep=declared.headers,
        )
        chosen = _of_hosts(reading, wanted)
        came = brought(chosen, redactor, declared.rules, declared.headers)
        if not partial:
            _require_whole(_named(came.notes, reading.source))
        known = 0
        for exchange in came.exchanges:
            other = new.get(exchange.key) or tape.find(exchange.key)
            if other is not None and _answer(other) == _answer(exchange):
                known += 1
            elif other is None or replace_answers or exchange.state is not State.COMPLETE:
                new[exchange.key] = exchange
            else:
                raise _conflict(tape, exchange, reading.source)
        done = Imported(
            len(new),
            done.there_already + known,
            done.secrets + came.secrets,
            (*done.notes, *_named(came.notes, reading.source)),
        )
    for exchange in new.values():
        tape.append(exchange)
    return done


def _named(notes: Iterable[Note], source: str) -> tuple[Note, ...]:
    return tuple(replace(n, place=f"{source}, {n.place}") if source else n for n in notes)


def _conflict(tape: Tape, exchange: Exchange, source: str) -> MergeConflict:
    return MergeConflict(
        f"{source or 'the file'} answers {exchange.key[:12]} otherwise than {tape.path} or a file"
        " before it",
        "to let the imported answers hold: --replace",
    )


def _of_hosts(reading: Reading, hosts: frozenset[str]) -> Reading:
    if not hosts:
        return reading
    found = tuple(f for f in reading.found if _host_of(f.request.url) in hosts)
    others = len(reading.found) - len(found)
    if not others:
        return reading
    note = Note("all", f"of exchanges with other hosts {others} were not asked for")
    return replace(reading, found=found, notes=(*reading.notes, note))


def _host_of(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:  # it leads nowhere
        return None


def _require_whole(notes: Iterable[Note]) -> None:
    lost = [note for note in notes if note.left_out]
    if lost:
        more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
        raise NotCarried(
            f"{lost[0].place} cannot be carried: {lost[0].text}{more}",
            "to take the rest all the same: --partial",
        )


def _answer(exchange: Exchange) -> object:
    """An answer without its times: the same body comes at another pace every time."""
    response = exchange.response
    if not isinstance(response, Response):
        return response
    return response.status, response.headers, response.body


def export_from(
    exchanges: Iterable[Exchange],
    kind: Format,
    *,
    as_json: bool = False,
    partial: bool = False,
    version: str = "",
) -> Written:
    """The file of another tool with the exchanges of a tape. Raises NotCarried."""
    writers: dict[Format, Callable[[], Written]] = {
        Format.VCR: lambda: vcr.write(exchanges, as_json=as_json),
        Format.HAR: lambda: har.write(exchanges, version=version),
    }
    if kind not in writers:
        raise NotCarried(
            f"{kind} files hold rules, not exchanges: nothing is written there",
            "export as vcr or har",
        )
    written = writers[kind]()
    if not partial:
        _require_whole(written.notes)
    return written
