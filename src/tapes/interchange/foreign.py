"""What a foreign file holds, and the exchanges that it becomes.

Rule 1: nothing is dropped or altered in silence. What a file says otherwise than it came over the
        wire, and what it cannot say at all, stands in a note; a note that is `left_out` says that
        an exchange is missing because of it.
Rule 2: keys are made as for a recording of our own: redacted first, then canonicalized under the
        present rules. Equal requests are samples, in the order of the file.
Rule 3: every credential that any exchange of the file shows is known before the first is kept.
Rule 4: a stream that did not end is no answer here either: it is kept as evidence.

Knows nothing of formats, files or tapes.  Pure but for what the redactor remembers.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from tapes.canonical import (
    HTTP_1,
    evidence_key,
    http_identity,
    http_text,
    key_of,
    plain_body,
    sample_key,
)
from tapes.credentials import MARK, is_credential_header
from tapes.errors import ForeignFile, OversizeBody, TapesError, UndecodableBody
from tapes.exchange import Exchange, Headers, Request, Response, State, header
from tapes.providers.ending import Ending, ending_of
from tapes.redact import Redactor
from tapes.varying import Rule
from tapes.wire import KNOWN_CODINGS, codings, decoded


@dataclass(frozen=True, slots=True)
class Note:
    """Something that whoever reads or writes a foreign file should know."""

    place: str
    text: str
    left_out: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """An exchange as a foreign file has it: with its secrets, without a key."""

    place: str
    request: Request
    response: Response
    recorded_at: str | None = None
    sample: int | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What was found in a foreign file; `source` is the file's name."""

    found: tuple[Found, ...]
    notes: tuple[Note, ...] = ()
    source: str = ""


@dataclass(frozen=True, slots=True)
class Brought:
    """The exchanges of a foreign file as they may come to rest, and the secrets taken out."""

    exchanges: tuple[Exchange, ...]
    notes: tuple[Note, ...]
    secrets: Counter[str]


@dataclass(frozen=True, slots=True)
class Written:
    """The bytes of a foreign file, how many exchanges it holds, and what it could not say."""

    data: bytes
    count: int
    notes: tuple[Note, ...] = ()


def brought(
    reading: Reading,
    redactor: Redactor,
    rules: Iterable[Rule] = (),
    also_headers: frozenset[str] = frozenset(),
) -> Brought:
    """The exchanges of a reading, redacted and keyed. Raises SecretFound, UnsupportedCoding."""
    rules = tuple(rules)
    for found in reading.found:  # a later exchange may show what an earlier one holds (rule 3)
        redactor.request(found.request)
        redactor.response(found.response)
    exchanges, notes, secrets = list[Exchange](), list(reading.notes), Counter[str]()
    kept = [_kept(found, redactor, rules, also_headers) for found in reading.found]
    numbers = _Samples((one.key, one.found.sample) for one in kept)
    for one in kept:
        found, response = one.found, one.response
        secrets += _secrets(found, one.request, response)
        is_cut = _is_cut(response)
        sample = numbers.next(one.key, found.sample, keep=not is_cut)
        key = sample_key(one.key, sample)
        if is_cut:
            notes.append(
                Note(found.place, "the stream did not end: kept as evidence, it never answers")
            )
        exchanges.append(
            Exchange(
                key=evidence_key(key) if is_cut else key,
                canonicalizer=HTTP_1,
                request=one.request,
                response=response,
                sample=sample,
                state=State.UPSTREAM_ERROR if is_cut else State.COMPLETE,
                recorded_at=found.recorded_at,
                rules=tuple(rule.declaration() for rule in one.rules),
            )
        )
    return Brought(tuple(exchanges), tuple(notes), secrets)


@dataclass(frozen=True, slots=True)
class _Kept:
    """A found exchange as it may come to rest, and the key of its request."""

    found: Found
    request: Request
    response: Response
    key: str
    rules: tuple[Rule, ...]


def _kept(
    found: Found, redactor: Redactor, rules: tuple[Rule, ...], also_headers: frozenset[str]
) -> _Kept:
    request = redactor.request(found.request)
    identity, used = http_identity(request, rules, also_headers)
    return _Kept(
        found, request, redactor.response(found.response), key_of(http_text(identity)), used
    )


class _Samples:
    """The numbers of equal requests: those that say theirs keep it, the others fill the gaps."""

    def __init__(self, said: Iterable[tuple[str, int | None]]) -> None:
        self._said = {pair for pair in said if pair[1] is not None}
        self._taken: set[tuple[str, int]] = set()
        self._next = Counter[str]()

    def next(self, key: str, said: int | None, *, keep: bool) -> int:
        """The number of the next exchange with this key; `keep` says that nobody else gets it."""
        number = said
        if number is None or (key, number) in self._taken:
            number = self._next[key]
            while (key, number) in self._taken or (key, number) in self._said:
                number += 1
            self._next[key] = number
        if keep:
            self._taken.add((key, number))
        return number


def _is_cut(response: Response) -> bool:
    body = response.body
    try:
        body = decoded(body, header(response.headers, "content-encoding")).data
    except TapesError:
        pass
    return ending_of(header(response.headers, "content-type"), body) is Ending.OPEN


# --- secrets ----------------------------------------------------------------------------------

_WORD = re.compile(re.escape(MARK) + r"([a-z0-9_]+)")


def _secrets(found: Found, request: Request, response: Response) -> Counter[str]:
    """What redaction took out of one exchange, by name."""
    names = Counter(_words(request, response))
    names.subtract(_words(found.request, found.response))
    kept = Counter(name.lower() for name, _ in (*request.headers, *response.headers))
    came = Counter(name.lower() for name, _ in (*found.request.headers, *found.response.headers))
    gone = came - kept
    names.update({name: n for name, n in gone.items() if is_credential_header(name)})
    return +names


def _words(request: Request, response: Response) -> Iterator[str]:
    texts = [value for _, value in (*request.headers, *response.headers)]
    texts += [request.url, plain_body(request).decode("latin-1")]
    body = response.body
    try:
        body = decoded(body, header(response.headers, "content-encoding")).data
    except TapesError:
        pass
    texts.append(body.decode("latin-1"))
    for text in texts:
        yield from _WORD.findall(text)


# --- bodies and headers -----------------------------------------------------------------------

_WITHOUT_BODY = frozenset({204, 304, *range(100, 200)})
_MAGIC = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}


def settled(request: Request, response: Response) -> tuple[Response, tuple[str, ...]]:
    """The response with headers that fit its body, and what had to change for it.

    Many tools keep a body decoded under the `content-encoding` that it came with, which would have
    every client decode it a second time.
    """
    body, said = response.body, list[str]()
    headers = response.headers
    coding = header(headers, "content-encoding")
    if body and _is_decoded_already(body, coding):
        headers = _without(headers, "content-encoding")
        said.append(f"the body is kept decoded: content-encoding: {coding} was taken off")
    length = header(headers, "content-length")
    if (
        length is not None
        and length.strip() != str(len(body))
        and request.method.upper() != "HEAD"
        and response.status not in _WITHOUT_BODY
    ):
        headers = with_length(headers, len(body))
        if not said:
            said.append(f"content-length was {length}, the body has {len(body)} bytes")
    return (replace(response, headers=headers), tuple(said)) if said else (response, ())


def _is_decoded_already(body: bytes, coding: str | None) -> bool:
    names = codings(coding)
    if not names or not KNOWN_CODINGS.issuperset(names):
        return False
    magic = _MAGIC.get(names[-1])
    if magic is not None:
        return not body.startswith(magic)
    try:
        return not decoded(body, coding).whole
    except UndecodableBody:
        return True
    except OversizeBody:
        return False


def _without(headers: Headers, name: str) -> Headers:
    return tuple(pair for pair in headers if pair[0].lower() != name)


def with_length(headers: Headers, length: int) -> Headers:
    """The headers with every content-length set."""
    return tuple(
        (name, str(length) if name.lower() == "content-length" else value)
        for name, value in headers
    )


def plain_response(response: Response) -> tuple[Headers, bytes]:
    """Headers and body with the content coding undone, where that can be done whole."""
    coding, body = header(response.headers, "content-encoding"), response.body
    names = codings(coding)
    if not names or not KNOWN_CODINGS.issuperset(names):
        return response.headers, body
    try:
        result = decoded(body, coding)
    except (UndecodableBody, OversizeBody):
        return response.headers, body
    if not result.whole:
        return response.headers, body
    headers = _without(response.headers, "content-encoding")
    return with_length(headers, len(result.data)), result.data


_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, 5.6.2
_BREAKS = re.compile(r"[\x00\r\n]")
_STATUS = range(100, 1000)  # three digits are what a status line has room for


def unsayable(request: Request, response: Response) -> str | None:
    """What of an exchange HTTP has no way to say, or None where it can be said whole."""
    if not _TOKEN.fullmatch(request.method):
        return f"the method {request.method!r} is none"
    if _BREAKS.search(request.url):
        return f"the URL {request.url!r} is no single line"
    if response.status not in _STATUS:
        return f"the status {response.status} is none"
    if _BREAKS.search(response.reason):
        return f"the reason {response.reason!r} is no single line"
    for name, value in (*request.headers, *response.headers):
        if not _TOKEN.fullmatch(name) or _BREAKS.search(value):
            return f"the header {name!r} cannot be sent: a name is a word, a value one line"
    if not all(math.isfinite(piece.at) for piece in response.pieces):
        return "the times of its pieces are none"
    return None


def header_text(value: object, place: str) -> str:
    """A header's value as our exchanges have it: its bytes read as latin-1. Raises ForeignFile."""
    if isinstance(value, bytes):
        return value.decode("latin-1")
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ForeignFile(f"{place}: a header has the value {str(value)[:40]!r}, which is no text")
    text = str(value)
    try:
        text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass").decode("latin-1")
    return text


def date_of(text: object) -> str | None:
    """A moment as rows have it, from ISO 8601 or an HTTP date; None for what is neither.

    Times of the first and the last day that there is, such as .NET's for "none", are none either.
    """
    if isinstance(text, datetime):
        moment = text
    else:
        try:
            moment = datetime.fromisoformat(str(text))
        except ValueError:
            try:
                moment = parsedate_to_datetime(str(text))
            except ValueError:
                return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC).isoformat(timespec="milliseconds")
    except OverflowError:
        return None


def answering(exchanges: Iterable[Exchange]) -> tuple[list[Exchange], list[Note]]:
    """The HTTP exchanges that answer, in order, and notes on those that no HTTP archive can hold.

    Of several under one key the last answers; the place is the first one's.
    """
    last: dict[str, Exchange] = {}
    notes = list[Note]()
    for exchange in exchanges:
        if exchange.state is State.COMPLETE:
            last[exchange.key] = exchange
        else:
            notes.append(Note(exchange.key[:12], "a stream that did not end is no answer"))
    kept = list[Exchange]()
    for exchange in last.values():
        if isinstance(exchange.request, Request) and isinstance(exchange.response, Response):
            kept.append(exchange)
        else:
            what = "an answer without its request" if exchange.request is None else "plain JSON"
            notes.append(Note(exchange.key[:12], f"{what} is no HTTP exchange", left_out=True))
    return kept, notes
