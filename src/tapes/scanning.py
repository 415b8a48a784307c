"""Secrets that slipped onto a tape: found where they lie, and taken out.

Rule 1: a secret is what the recorder itself would have replaced, and a header whose value looks
        like a key. What is found and what is taken out are the same by construction: a finding
        is a place where the clean copy differs.
Rule 2: nothing that comes out of here holds a secret: an excerpt is cut from the clean copy.
Rule 3: the whole tape is read before the first row changes, so that a value which is known as a
        credential in one row is found in the plain text of another.
Rule 4: a row whose request changes gets the key that its request then has.

Knows nothing of commands.
"""

import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tapes.answers import plain_response
from tapes.canonical import plain_body
from tapes.credentials import MARK
from tapes.errors import TapesError
from tapes.exchange import Exchange, Headers, Request, Response
from tapes.jsontext import Json, read
from tapes.places import leaves_of
from tapes.project import Declared, declared_for
from tapes.redact import SECRET_PATTERNS, Redactor
from tapes.tape.copying import row_with_bodies
from tapes.tape.mending import keys_of
from tapes.tape.raw import (
    Fault,
    Progress,
    RawRow,
    Rows,
    exchange_at,
    open_rows,
    silent,
    unreadable,
)
from tapes.tape.rewriting import NewRow, bodies_named, editing

_WORD = re.compile(re.escape(MARK) + r"([a-z0-9_]+)(?:\.[0-9a-f]{8})?")
_AROUND = 24
_KNOWN_MEMBERS = frozenset(
    {"hash", "v", "state", "canonicalizer", "sample", "recorded_at", "rules", "request", "response"}
)


@dataclass(frozen=True, slots=True)
class Finding:
    """A secret: what kind, where, and what stands around it with the secret masked."""

    path: str
    place: str
    name: str
    excerpt: str
    key: str | None = None


# --- the clean copy ---------------------------------------------------------------------------

# Headers with long random values that are known to be no credentials.
_HARMLESS = re.compile(
    r"(^|-)(id|ray|trace|traceparent|tracestate|etag|digest|md5|sha256|hash|fingerprint|nonce|agent"
    r"|policy|nel|link|via|server|location|revision|deployment|region|model|boundary|type)(-|$)"
)
_TOKEN = re.compile(r"^(?:\w+ )?([A-Za-z0-9+/=_.~-]{20,})$")
# Bits a character: hexadecimal digits have 4 at most, words about 3.
_RANDOM_BITS = 4.0


def looks_random(name: str, value: str) -> bool:
    """Whether a header's value looks like a key: long, without spaces, without a pattern."""
    match = _TOKEN.match(value)
    if match is None or value.startswith(MARK) or _HARMLESS.search(name.lower()):
        return False
    token = match[1]
    counts = Counter(token)
    bits = -sum(n / len(token) * math.log2(n / len(token)) for n in counts.values())
    kinds = (str.isupper, str.islower, str.isdigit)
    return bits >= _RANDOM_BITS and all(any(map(kind, token)) for kind in kinds)


class Cleaner:
    """Makes the clean copy of what lies on a tape, and remembers credentials from row to row."""

    def __init__(self, declared: Declared) -> None:
        self._redactor = Redactor(patterns=(*SECRET_PATTERNS, *declared.patterns))

    def exchange(self, exchange: Exchange) -> Exchange:
        """The exchange without secrets; the same object where there are none."""
        request = self._request(exchange.request)
        response = self._response(exchange.response)
        if request is exchange.request and response is exchange.response:
            return exchange
        return replace(exchange, request=request, response=response)

    def _request(self, request: Request | Json) -> Request | Json:
        if not isinstance(request, Request):
            return self.value(request)
        clean = self._redactor.request(request)
        if (clean.url, clean.body) != (request.url, request.body):
            return clean
        # A header that the recorder would not have kept is no secret for that alone.
        return clean if any(self.is_secret_header(*h) for h in request.headers) else request

    def is_secret_header(self, name: str, value: str) -> bool:
        """Whether a header's name or value says that it must not come to rest."""
        alone = ((name, value),)
        return not value.startswith(MARK) and (
            self._redactor.response(Response(200, alone)).headers != alone
            or looks_random(name, value)
        )

    def _response(self, response: Response | Json) -> Response | Json:
        if not isinstance(response, Response):
            return self.value(response)
        clean = self._redactor.response(response)
        headers = tuple(
            (name, f"{MARK}header" if looks_random(name, value) else value)
            for name, value in clean.headers
        )
        clean = replace(clean, headers=headers)
        return response if clean == response else clean

    def value(self, value: Json) -> Json:
        """A JSON value without secrets; the same object where there are none."""
        return self._redactor.value(value)

    def bytes(self, data: bytes) -> bytes:
        """Any bytes without secrets."""
        # Behind a blank line nothing is taken for a stream, whose events would be put together.
        return self._redactor.body(b"\n" + data)[1:]


# --- findings ---------------------------------------------------------------------------------

_Change = tuple[str, str, str]  # the place, the kind of secret, the masked excerpt


def _changes(cleaner: Cleaner, old: Request | Response | Json, new: object) -> Iterator[_Change]:
    """Every place in which a clean copy differs."""
    if isinstance(old, Request) and isinstance(new, Request):
        yield from _header_changes(cleaner, old.headers, new.headers)
        yield from _text_changes("url", old.url, new.url)
        yield from _body_changes(plain_body(old), plain_body(new))
    elif isinstance(old, Response) and isinstance(new, Response):
        yield from _header_changes(cleaner, old.headers, new.headers)
        if len(old.pieces) == len(new.pieces) > 1:
            for number, (one, other) in enumerate(zip(old.pieces, new.pieces, strict=True)):
                yield from _text_changes(f"pieces[{number}]", _shown(one.data), _shown(other.data))
        else:
            yield from _body_changes(plain_response(old), plain_response(new))
    else:
        yield from _value_changes("", old, new)


def _header_changes(cleaner: Cleaner, old: Headers, new: Headers) -> Iterator[_Change]:
    for name, value in old:
        if (name, value) in new:
            continue
        masked = next((v for n, v in new if n == name and MARK in v), None)
        if masked is not None:
            yield from _text_changes(f"headers.{name}", value, masked)
        elif cleaner.is_secret_header(name, value):
            yield f"headers.{name}", name.lower(), f"{name}: …"


def _body_changes(old: bytes, new: bytes) -> Iterator[_Change]:
    if old == new:
        return
    try:
        before, after = read(old), read(new)
    except ValueError:
        yield from _text_changes("body", _shown(old), _shown(new))
    else:
        yield from _value_changes("body", before, after)


def _value_changes(at: str, old: Json, new: Json) -> Iterator[_Change]:
    if old is new:
        return
    before = leaves_of(old)
    for place, value in leaves_of(new).items():
        if before.get(place) != value:
            name = "" if place == "the body" else place
            if place not in before:  # the name of a member holds one
                yield from _text_changes(_joined(at, name), "", name)
            yield from _text_changes(_joined(at, name), str(before.get(place)), str(value))


def _text_changes(place: str, old: str, new: str) -> Iterator[_Change]:
    """One change for every word that stands in the clean text more often than before."""
    if old == new:
        return
    known = Counter(match[0] for match in _WORD.finditer(old))
    for match in _WORD.finditer(new):
        known[match[0]] -= 1
        if known[match[0]] < 0:
            yield place, match[1], _excerpt(new, match.start(), match.end())


def _excerpt(text: str, start: int, end: int) -> str:
    cut = text[max(0, start - _AROUND) : end + _AROUND]
    before, after = "…" * (start > _AROUND), "…" * (end + _AROUND < len(text))
    return before + " ".join(cut.split()) + after


def _shown(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _joined(*parts: str) -> str:
    return ".".join(part for part in parts if part)


# --- scan -------------------------------------------------------------------------------------


def scan(
    path: str | os.PathLike[str], declared: Declared | None = None, progress: Progress = silent
) -> list[Finding]:
    """Every secret on a tape, with its place. Raises UnreadableTape and NewerTape."""
    with open_rows(path) as rows:
        return _Scan(rows, declared or declared_for(path), progress).findings


class _Scan:
    """Everything on a tape looked at twice: to learn which values are credentials, and to find."""

    def __init__(self, rows: Rows, declared: Declared, progress: Progress) -> None:
        self.cleaner = Cleaner(declared)
        self.findings: list[Finding] = []
        # What changes: rows by their token, and bodies that no row names.
        self.places: set[int | str] = set()
        self.bodies: set[str] = set()
        self._rows = rows
        named = set[str]()
        for raw in rows:
            progress(raw.done / 2)
            self._note(raw, list(self._look(raw)))
            if raw.fault is None:
                named |= bodies_named(raw.row)
        if self.findings:  # else no credential was learned, and nothing is to be found with it
            self.findings.clear()
            for raw in rows:
                progress(0.5 + raw.done / 2)
                self._note(raw, list(self._look(raw)))
        for raw in rows.bodies():
            if raw.fault is None and raw.key not in named:
                self._look_at_body(raw)

    def _note(self, raw: RawRow, found: list[Finding]) -> None:
        self.findings += found
        if found:
            self.places.add(raw.token)

    def _look(self, raw: RawRow) -> Iterator[Finding]:
        path = self._rows.path
        if raw.fault in (None, Fault.NEWER):
            exchange = exchange_at(self._rows, raw)
            yield from self._in_exchange(raw, exchange)
            old = extra_members(raw.row)
            for place, name, excerpt in _value_changes("", old, self.cleaner.value(old)):
                yield Finding(path, f"{raw.place}, {place}", name, excerpt, exchange.key)
        else:  # what is damaged can hold a secret all the same
            for name, excerpt in self._in_bytes(raw.text):
                yield Finding(path, raw.place, name, excerpt)

    def _in_exchange(self, raw: RawRow, exchange: Exchange) -> Iterator[Finding]:
        clean = self.cleaner.exchange(exchange)
        sides = (
            ("request", exchange.request, clean.request),
            ("response", exchange.response, clean.response),
        )
        for side, old, new in sides:
            if old is new:
                continue
            changes = list(_changes(self.cleaner, old, new)) or [("", "secret", "…")]
            for place, name, excerpt in changes:
                where = f"{raw.place}, {_joined(side, place)}"
                yield Finding(self._rows.path, where, name, excerpt, exchange.key)

    def _in_bytes(self, data: bytes) -> list[tuple[str, str]]:
        clean = self.cleaner.bytes(data)
        return [
            (name, excerpt) for _, name, excerpt in _text_changes("", _shown(data), _shown(clean))
        ]

    def _look_at_body(self, raw: RawRow) -> None:
        """A body that no row names: nobody reads it, and it lies there."""
        for name, excerpt in self._in_bytes(self._rows.body(raw.key)):
            self.findings.append(Finding(self._rows.path, raw.place, name, excerpt))
            self.bodies.add(raw.key)


def extra_members(row: Json) -> dict[str, Json]:
    """What a row says beyond the members that a tape knows."""
    return {name: value for name, value in row.items() if name not in _KNOWN_MEMBERS}


# --- any file ---------------------------------------------------------------------------------

_BLOCK = 4 * 1024 * 1024
_OVERLAP = 16 * 1024


def scan_file(path: str | os.PathLike[str], declared: Declared | None = None) -> list[Finding]:
    """Every secret in the bytes of any file, by line. Raises UnreadableTape."""
    name = os.fspath(path)
    cleaner = Cleaner(declared or declared_for(path))
    found = dict[tuple[int, str], Finding]()  # the overlap of two blocks is looked at twice
    try:
        with Path(path).open("rb") as file:
            line, rest = 1, b""
            while block := file.read(_BLOCK):
                data = rest + block
                for number, kind, excerpt in _in_lines(data, cleaner.bytes(data), line):
                    finding = Finding(name, f"line {number}", kind, excerpt)
                    found.setdefault((number, excerpt), finding)
                rest = data[-_OVERLAP:]
                line += data.count(b"\n", 0, len(data) - len(rest))
    except OSError as error:
        raise unreadable(name, error) from error
    return list(found.values())


def _in_lines(old: bytes, new: bytes, first: int) -> Iterator[tuple[int, str, str]]:
    if old == new:
        return
    known = Counter(match[0] for match in _WORD.finditer(old.decode("latin-1")))
    text = new.decode("latin-1")
    line, at, shown = first, 0, 0
    for match in _WORD.finditer(text):
        # What stands between two words stands in the bytes too, behind what the first is for.
        between = new[shown : match.start()]
        found = old.find(between, at)
        begin = max(found, at) + len(between)
        line += old.count(b"\n", at, begin)
        at, shown = begin, match.end()
        known[match[0]] -= 1
        if known[match[0]] < 0:
            yield line, match[1], _excerpt(text, match.start(), match.end())


# --- scrub ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Scrubbed:
    """What was taken out. `rekeyed` maps the old key of a request that changed to its new one."""

    path: str
    findings: list[Finding] = field(default_factory=list)
    rows: int = 0
    rekeyed: dict[str, str] = field(default_factory=dict)
    backup: Path | None = None


def scrub(
    path: str | os.PathLike[str],
    declared: Declared | None = None,
    *,
    backup: bool = True,
    progress: Progress = silent,
) -> Scrubbed:
    """Take every secret out of a tape. A tape without one is not touched.

    Raises UnwritableTape, and UnreadableTape and its kin: a damaged tape is mended first.
    """
    project = declared or declared_for(path)
    with editing(path) as editor:
        for raw in editor.rows:
            if raw.fault not in (None, Fault.TORN):
                exchange_at(editor.rows, raw)  # raises what is wrong
        looked = _Scan(editor.rows, project, progress)
        result = Scrubbed(os.fspath(path), looked.findings)
        if looked.findings:
            work = _Scrub(editor.rows, looked, project.headers)
            result.backup = editor.back_up() if backup else None
            editor.apply(work.change, work.gone_bodies())
            result.rows, result.rekeyed = work.rows, work.rekeyed
    return result


class _Scrub:
    """The clean row for every row in which something was found."""

    def __init__(self, rows: Rows, looked: _Scan, headers: frozenset[str]) -> None:
        self._rows = rows
        self._looked = looked
        self._headers = headers
        self.rows = 0
        self.rekeyed: dict[str, str] = {}

    def gone_bodies(self) -> set[str]:
        """The bodies that no row names any more, and those with a secret that none named."""
        kept, gone = set[str](), set(self._looked.bodies)
        for raw in self._rows:
            if raw.token not in self._looked.places:
                kept |= bodies_named(raw.row) if raw.fault is None else set()
            elif raw.fault is None:
                gone |= bodies_named(raw.row)
                kept |= bodies_named(self._clean(raw).row)
        return gone - kept

    def change(self, raw: RawRow) -> Sequence[NewRow] | None:
        """What takes the place of a row."""
        if raw.token not in self._looked.places:
            return None
        self.rows += 1
        if raw.fault is not None:
            return ()  # a torn last line answers nothing
        new = self._clean(raw)
        if new.row["hash"] != raw.key:
            self.rekeyed[raw.key] = new.row["hash"]
        return (new,)

    def _clean(self, raw: RawRow) -> NewRow:
        exchange = exchange_at(self._rows, raw)
        clean = self._looked.cleaner.exchange(exchange)
        if clean.request is not exchange.request:
            clean = replace(clean, key=self._key_of(exchange, clean))
        new = row_with_bodies(clean)
        extra = self._looked.cleaner.value(extra_members(raw.row))
        return NewRow({**new.row, **extra}, new.bodies)

    def _key_of(self, before: Exchange, after: Exchange) -> str:
        """The key of the clean request; as it was where it was not the request's own before."""
        try:
            variant = keys_of(before, self._headers).index(before.key)
            return keys_of(after, self._headers)[variant]
        except (TapesError, ValueError):
            return before.key
