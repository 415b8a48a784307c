"""Whether a tape is what it says: every key recomputed, every row and every body read.

Rule 1: all damage is told, each with its place; the first does not hide the rest.
Rule 2: mending sets damaged places aside and keeps everything else to the byte. What two writers
        without locks glued together is taken apart, as far as each part proves itself: it is a
        whole row, and its key is its request's.
Rule 3: the original is kept, and what was set aside lies in a file of its own.
Rule 4: a row of a later version is no damage. Nothing is mended on a tape that has one.

Knows nothing of commands.
"""

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tapes.canonical import evidence_key, key_of_exchange_request, sample_key
from tapes.errors import DamagedTape, NewerTape, TapesError, UnreadableTape, as_typed
from tapes.exchange import Exchange, Response, State, bytes_of, exchange_of, newer
from tapes.jsontext import has_unwritable_float
from tapes.tape.base import blob_hash
from tapes.tape.raw import (
    Fault,
    JsonlRows,
    MissingBody,
    Progress,
    RawRow,
    Rows,
    SqliteRows,
    body_name,
    open_rows,
    read_row,
    silent,
)
from tapes.tape.rewriting import Editor, NewRow, editing
from tapes.varying import Rule

# The place of damage that is below rows.
_FILE = "the file"


@dataclass(frozen=True, slots=True)
class Damage:
    """A place on a tape that is not as it should be."""

    place: str
    fault: Fault
    what: str
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Mended:
    """What mending did. `aside` holds the damaged places, `backup` the whole tape as it was."""

    set_aside: int
    salvaged: int
    aside: Path
    backup: Path


@dataclass(slots=True)
class Verified:
    """What is on a tape, and all that is wrong with it.

    `unchecked` counts answers that were kept without their request: nobody can recompute a key.
    """

    path: str
    kind: str
    rows: int = 0
    bodies: int = 0
    incomplete: int = 0
    unchecked: int = 0
    damage: list[Damage] = field(default_factory=list)
    mended: Mended | None = None


def verify(
    path: str | os.PathLike[str],
    headers: frozenset[str] = frozenset(),
    progress: Progress = silent,
) -> Verified:
    """Read all of a tape. `headers` are those that a project declared to count.

    Raises UnreadableTape where there is no tape at all.
    """
    with open_rows(path) as rows:
        _wait_for_writers(rows)
        return _Check(rows, headers).whole(progress)


def mend(
    path: str | os.PathLike[str],
    headers: frozenset[str] = frozenset(),
    progress: Progress = silent,
) -> Verified:
    """Verify a tape and set aside what is damaged. A sound tape is not touched.

    Raises NewerTape where a row is of a later version, UnwritableTape where it cannot be written.
    """
    with editing(path) as editor:
        check = _Check(editor.rows, headers)
        verified = check.whole(progress)
        _require_mendable(verified)
        if verified.damage:
            verified.mended = _Mending(editor, check).done()
    return verified


def _require_mendable(verified: Verified) -> None:
    for damage in verified.damage:
        if damage.fault is Fault.NEWER:
            raise NewerTape(
                f"{verified.path}, {damage.place}: {damage.what}; nothing was mended",
                newer("", "", 0).remedy,
            )
        if damage.place == _FILE:
            raise DamagedTape(
                f"{verified.path}: {damage.what}; nothing was mended",
                f"save what can be read with: sqlite3 {as_typed(verified.path)} .recover",
            )


def _wait_for_writers(rows: Rows) -> None:
    """Let a line that is being written come to its end, so that it does not look torn."""
    if isinstance(rows, JsonlRows):
        rows.settle()


# --- checking ---------------------------------------------------------------------------------


class _Check:
    """One look at everything on a tape; afterwards, which places are bad."""

    def __init__(self, rows: Rows, headers: frozenset[str]) -> None:
        self.rows = rows
        self.headers = headers
        self.bad_bodies: set[str] = set()
        self.bad_places: set[int | str] = set()
        self._has_parts_of_rows = False

    def whole(self, progress: Progress) -> Verified:
        verified = Verified(self.rows.path, self.rows.kind)
        try:
            verified.damage += self._of_database()
            verified.damage += self._of_bodies(verified)
            for raw in self.rows:
                progress(raw.done)
                verified.damage += self._of_row(raw, verified)
        except DamagedTape as error:  # the database itself is broken from here on
            verified.damage.append(Damage(_FILE, Fault.UNREADABLE, error.message))
        if verified.damage and not (verified.rows or verified.bodies or self._has_parts_of_rows):
            self._require_tape(verified)
        verified.damage.sort(key=lambda damage: _natural(damage.place))
        return verified

    @staticmethod
    def _require_tape(verified: Verified) -> None:
        """A file of which nothing can be read is something else, not a damaged tape."""
        first = verified.damage[0]
        nothing = (Fault.UNREADABLE, Fault.NO_EXCHANGE)
        if first.place != _FILE and all(d.fault in nothing for d in verified.damage):
            raise UnreadableTape(
                f"{verified.path} is no tape: nothing in it is an exchange"
                f" ({first.place}: {first.what})",
                "name another one; this one is left as it is",
            )

    def _of_database(self) -> Iterator[Damage]:
        if isinstance(self.rows, SqliteRows):
            for (what,) in self.rows.read("PRAGMA integrity_check(20)"):
                if what != "ok":
                    yield Damage(_FILE, Fault.UNREADABLE, str(what))

    def _of_bodies(self, verified: Verified) -> Iterator[Damage]:
        for raw in self.rows.bodies():
            fault, what = self.body_fault(raw)
            if fault is None:
                verified.bodies += 1
                continue
            self.bad_places.add(raw.token)
            if raw.row is not None or self.rows.kind == "jsonl":
                self.bad_bodies.add(body_name(raw.text) or "" if raw.row is None else raw.key)
            yield Damage(raw.place, fault, what)

    def body_fault(self, raw: RawRow) -> tuple[Fault | None, str]:
        """What is wrong with a body that is kept once."""
        if raw.fault is not None:
            return raw.fault, raw.what
        try:
            jsonl = self.rows.kind == "jsonl"
            data = bytes_of(raw.row["response"]) if jsonl else raw.text
        except (ValueError, KeyError, TypeError) as error:
            return Fault.NO_EXCHANGE, f"the body cannot be read ({error})"
        if blob_hash(data) == raw.key:
            return None, ""
        return Fault.WRONG_BODY, f"the body {raw.key[:12]} holds other bytes than its name says"

    def _of_row(self, raw: RawRow, verified: Verified) -> Iterator[Damage]:
        fault, what = self.fault(raw)
        if fault is None:
            verified.rows += 1
            verified.incomplete += not raw.answers
            verified.unchecked += raw.row["request"] is None
            return
        self.bad_places.add(raw.token)
        self._has_parts_of_rows |= b'"hash"' in raw.text
        key = raw.row.get("hash") if isinstance(raw.row, dict) else None
        yield Damage(raw.place, fault, what, key if isinstance(key, str) else None)

    def fault(self, raw: RawRow) -> tuple[Fault | None, str]:
        """What is wrong with a row."""
        if raw.fault is not None:
            return raw.fault, raw.what
        try:
            exchange = exchange_of(raw.row, self.rows.path, raw.place, self._body)
        except MissingBody as error:
            return Fault.MISSING_BODY, str(error)
        except TapesError as error:
            return Fault.NO_EXCHANGE, error.message.rpartition(f"{raw.place}: ")[2]
        return _fault_of_exchange(exchange, self.headers)

    def _body(self, name: str) -> bytes:
        if name in self.bad_bodies:
            raise MissingBody(f"the body {name[:12]} that the row names is damaged")
        return self.rows.body(name)


def _fault_of_exchange(exchange: Exchange, headers: frozenset[str]) -> tuple[Fault | None, str]:
    response = exchange.response
    if not isinstance(response, Response) and has_unwritable_float(response):
        return Fault.NO_EXCHANGE, "the response holds a number that JSON cannot say"
    if exchange.request is None:
        return None, ""
    try:
        keys = keys_of(exchange, headers)
    except TapesError as error:
        return Fault.WRONG_KEY, f"the request has no key ({error.message})"
    if exchange.key in keys:
        return None, ""
    return Fault.WRONG_KEY, f"the key is {exchange.key[:12]}, and the request's is {keys[0][:12]}"


def keys_of(exchange: Exchange, headers: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """The keys that the request on a row may rightly have; the likeliest first.

    A row names the rules that changed its key, not the further headers that a project declared.
    Raises TapesError where the request has no key.
    """
    rules = [Rule.of(declared, "the row's rules") for declared in exchange.rules]
    found = []
    for counted in dict.fromkeys((headers, frozenset[str]())):
        key = key_of_exchange_request(exchange.canonicalizer, exchange.request, rules, counted)
        key = sample_key(key, exchange.sample)
        found.append(key if exchange.state is State.COMPLETE else evidence_key(key))
    return tuple(found)


def _natural(place: str) -> tuple[str, int]:
    """`line 9` before `line 10`."""
    name, _, number = place.rpartition(" ")
    return (name, int(number)) if number.isdigit() else (place, 0)


# --- mending ----------------------------------------------------------------------------------

_ROW_START = re.compile(r'\{\s*"hash"\s*:')


class _Mending:
    """Sets aside what a check found bad."""

    def __init__(self, editor: Editor, check: _Check) -> None:
        self._editor = editor
        self._check = check
        self._set_aside = 0
        self._salvaged = 0

    def done(self) -> Mended:
        """Keep the original, write what is damaged to a file of its own, then change the tape."""
        backup = self._editor.back_up()
        aside = backup.with_name(f"{backup.name}.damaged")
        with aside.open("xb") as file:
            for raw in self._bad_rows():
                _, rest = self._parts(raw)
                for part in rest:
                    self._set_aside += 1
                    file.write(part.rstrip(b"\n") + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self._editor.apply(self._change, self._gone_bodies())
        return Mended(self._set_aside, self._salvaged, aside, backup)

    def _bad_rows(self) -> Iterator[RawRow]:
        for rows in (self._editor.rows.bodies(), self._editor.rows):
            for raw in rows:
                if raw.token in self._check.bad_places:
                    yield raw

    def _gone_bodies(self) -> set[str]:
        # The lines of a JSONL tape are taken one by one: a glued line may hold good rows too.
        return set() if self._editor.rows.kind == "jsonl" else self._check.bad_bodies

    def _change(self, raw: RawRow) -> Sequence[NewRow] | None:
        if raw.token not in self._check.bad_places:
            return None
        good, _ = self._parts(raw)
        self._salvaged += len(good)
        return good

    def _parts(self, raw: RawRow) -> tuple[list[NewRow], list[bytes]]:
        """The rows that can be saved out of a damaged place, and what is left."""
        if self._editor.rows.kind != "jsonl" or raw.fault is None:
            return [], [raw.text]
        return _taken_apart(raw.text, self._check)


def _taken_apart(line: bytes, check: _Check) -> tuple[list[NewRow], list[bytes]]:
    text = line.decode("utf-8", "surrogateescape")
    decoder = json.JSONDecoder()
    good, rest, behind = list[NewRow](), list[bytes](), 0
    for match in _ROW_START.finditer(text):
        if match.start() < behind:
            continue  # inside a row that was saved
        try:
            _, end = decoder.raw_decode(text, match.start())
        except (ValueError, RecursionError):
            continue
        part = text[match.start() : end].encode("utf-8", "surrogateescape")
        row = _proven(part, check)
        if row is not None:
            rest.append(text[behind : match.start()].encode("utf-8", "surrogateescape"))
            good.append(row)
            behind = end
    rest.append(text[behind:].encode("utf-8", "surrogateescape"))
    return good, [part for part in rest if part.strip()]


def _proven(part: bytes, check: _Check) -> NewRow | None:
    """The row of a part of a line, if it shows by itself that it is whole."""
    row, fault, what = read_row(part)
    raw = RawRow("part", 0, part, row, fault, what)
    if fault is not None:
        return None
    if row.get("canonicalizer") == "blob/1":
        return NewRow(row, text=part) if check.body_fault(raw)[0] is None else None
    proven = row["request"] is not None and check.fault(raw)[0] is None
    return NewRow(row, text=part) if proven else None
