"""Makes the copy of a request, a response or a text that may come to rest: without secrets.

Rule 1: a credential in a place made for credentials (a header, a query parameter, a member named
        `access_token`) is replaced by a word made of the place's name. Its value counts for
        nothing, so a tape recorded with one key replays for another key or none.
Rule 2: a known form of keys in other text is replaced by a word with a short hash: equal secrets
        stay equal, different ones different, so matching does not change.
Rule 3: a value seen in such a place is remembered and replaced wherever it turns up later; of very
        many those that were seen last, since every one of them is looked for in every text.
Rule 4: redacting twice changes nothing more.
Rule 5: edits keep everything else to the byte: lengths of pieces move, their order does not. A
        secret is found however it is escaped, and however a stream cuts it.

Request headers are kept by a list of the harmless; response headers all but those whose names
say otherwise. The running program always sees the real bytes: this works on copies.
Knows nothing of tapes or keys.  Pure but for what it remembers.
"""

import base64
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate, count, pairwise
from threading import Lock
from urllib.parse import unquote, unquote_plus

from tapes.canonical import (
    IDENTITY_HEADERS,
    media_type,
    multipart_spans,
    normal_percent,
    plain_body,
)
from tapes.credentials import (
    FIELD_NAME,
    MARK,
    WORD,
    is_account_header,
    is_credential_field,
    is_credential_header,
    is_credential_parameter,
    placeholder,
)
from tapes.errors import OversizeBody, SecretFound, UndecodableBody
from tapes.exchange import Headers, Piece, Request, Response, header
from tapes.jsontext import Json
from tapes.patterns import (
    PRIVATE_KEY,
    PRIVATE_KEY_MARKER,
    RUN_LENGTH,
    SECRET_PATTERNS,
    SecretPattern,
    suspects_in,
    user_patterns,
)
from tapes.views import (
    Edit,
    edited,
    edited_bytes,
    in_bytes,
    in_order,
    is_stream,
    moved_offset,
    unescaped,
    views_of,
)
from tapes.wire import KNOWN_CODINGS, codings, decoded

__all__ = ["MARK", "SECRET_PATTERNS", "Finding", "Redactor", "SecretPattern", "user_patterns"]

_KEPT_REQUEST_HEADERS = IDENTITY_HEADERS | {"accept", "content-type", "content-encoding"}
_DROPPED_RESPONSE_HEADERS = frozenset({"set-cookie", "set-cookie2", "authentication-info"})
_FORM = "application/x-www-form-urlencoded"
_UPLOAD = "multipart/form-data"
_DISPOSITION = re.compile(rb"(?:^|\r\n)content-disposition:([^\r\n]*)", re.IGNORECASE)
_PART_NAME = re.compile(rb';\s*name\s*=\s*(?:"([^"]*)"|([^;\s]*))', re.IGNORECASE)
_IS_A_FILE = re.compile(rb";\s*filename\*?\s*=", re.IGNORECASE)

# A JSON member whose name says that its text is a credential.
_FIELD = re.compile(rf'"(?P<name>{FIELD_NAME})"\s*:\s*"(?P<value>(?:[^"\\]|\\.)+)"')
# The same in a URL inside a text, where the value looks like one, and in a file of settings.
_PARAMETER = re.compile(
    rf"[?&;](?P<name>[A-Za-z_-]{{3,24}})=(?P<value>(?=[A-Za-z_%.~+/-]*\d)[\w%.~+/-]{{{RUN_LENGTH},}})"
)
_SETTING = re.compile(
    r"\b(?P<name>[A-Z][A-Z0-9_]*_(?:API_KEY|SECRET_KEY|ACCESS_KEY|SECRET|TOKEN|PASSWORD))\s?=\s?"
    rf"[\"']?(?P<value>(?=[A-Za-z_+/-]*\d)[\w+/-]{{{RUN_LENGTH},}}=*)(?![\w.(\[])"
)
# What a quick look sees of them: more than there is, and never less.
_IS_SET = re.compile(r"_(?:KEY|SECRET|TOKEN|PASSWORD)(?:\s|\\+[tnrf])?=")
_HIDING_ESCAPE = re.compile(r"\\(?:u00|/)")
_SPACED_NAME = re.compile(r'"(?:\s|\\+[tnrf])+:')  # no usual writer has a space there, bytes may
_SPACED_FIELD = re.compile(rf'"(?:{FIELD_NAME})\\*"(?:\s|\\+[tnrf])+:')
# A shorter value is too likely to be a word of ordinary text.
_REMEMBERED_LENGTH = 8
# Texts of this length are remembered as harmless, so many at most.
_SHORT, _HARMLESS = 200, 4096
# So many secrets are remembered, of so many characters: providers set cookies with every answer.
# Where there are more, half of them are forgotten, those that were seen longest ago.
_SECRETS, _SECRETS_LENGTH = 256, 1024 * 1024
# So many heads of requests are remembered: a client sends the same one again and again.
_HEADS = 256
_NUMBER = re.compile(r"[-+.\deE]+")
_WORD_OF_TEXT = re.compile(r"[A-Za-z]{1,19}")
# For what all redactors remember: they seldom see anything new.
_lock = Lock()


_forks = 0


def _in_child() -> None:
    """After a fork: whoever held it, or was at work, is the parent's."""
    global _lock, _forks
    _lock = Lock()
    _forks += 1


os.register_at_fork(after_in_child=_in_child)


@dataclass(frozen=True, slots=True)
class Finding:
    """A secret in a text: its name, where it stands, and the word that takes its place."""

    name: str
    start: int
    end: int
    word: str


@dataclass(frozen=True, slots=True)
class _Head:
    """A request's headers that come to rest, with all that was known to be secret; and its own."""

    spellings: tuple[str, ...]
    kept: Headers
    credentials: tuple[tuple[str, str], ...]


@dataclass(slots=True, eq=False)
class Redactor:
    """Makes the copy that may come to rest. Safe to use from many threads.

    `refuse` turns a known form of keys in a body into SecretFound instead of a word. `keep` are
    further request headers, in lower case, that come to rest because they belong to the identity.
    """

    patterns: tuple[SecretPattern, ...] = SECRET_PATTERNS
    refuse: bool = False
    keep: frozenset[str] = frozenset()
    _seen: dict[str, str] = field(default_factory=dict)  # replaced as a whole, never changed
    _seen_at: dict[str, int] = field(default_factory=dict)  # by a count of sights
    _sights: Iterator[int] = field(default_factory=count)
    _begun: set[tuple[int, int]] = field(default_factory=set)  # of texts that are looked at now
    _length: int = 0
    _spellings: tuple[str, ...] = ()
    _heads: dict[Headers, "_Head"] = field(default_factory=dict)
    _harmless: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _is_thorough: bool = False

    def __post_init__(self) -> None:
        self._is_thorough = not all(pattern.marker for pattern in self.patterns)

    # --- HTTP

    def request(self, request: Request) -> Request:
        """The request without secrets; the same object where nothing had to change."""
        with self._one_text():
            return self._request(request)

    def _request(self, request: Request) -> Request:
        known = self.remember(request)
        if known is None or known.spellings is not self._spellings:
            known = self._head(request.headers)
        headers = known.kept
        body, plain = request.body, plain_body(request)
        media = media_type(request.headers)
        if media == _FORM:
            clean = self._form(plain)
        elif media == _UPLOAD:
            clean = self._upload(header(request.headers, "content-type") or "", plain)
        else:
            clean = self.body(plain)
        if clean != plain:
            body = clean
            headers = tuple(pair for pair in headers if pair[0].lower() != "content-encoding")
        cleaned = Request(request.method, self.url(request.url), headers, body)
        return request if cleaned == request else cleaned

    def remember(self, request: Request) -> _Head | None:
        """Know what is secret in its head, as when it was cleaned; to be told when its answer
        came after long. Gives what is known of the same head."""
        known = self._heads.get(request.headers)
        for name, value in _credentials_of(request.headers) if known is None else known.credentials:
            self._learn(name, value)
        for name, _, value in _query_pairs(request.url):
            if _is_credential(name, value):
                self._learn(name, unquote_plus(value))
        _, password = _user_of(request.url)
        if password:
            self._learn("password", unquote(password))
        return known

    def _head(self, headers: Headers) -> _Head:
        spellings = self._spellings
        kept = tuple(
            (name, self.text(value))
            for name, value in headers
            if name.lower() in _KEPT_REQUEST_HEADERS or name.lower() in self.keep
        )
        if len(self._heads) >= _HEADS:
            self._heads.clear()
        known = _Head(spellings, kept, tuple(_credentials_of(headers)))
        self._heads[headers] = known
        return known

    def response(self, response: Response) -> Response:
        """The response without secrets. A changed body loses its content coding with its length."""
        with self._one_text():
            return self._response(response)

    def _response(self, response: Response) -> Response:
        for name, value in _credentials_of(response.headers):
            self._learn(name, value)
        headers = tuple(
            (name, self._response_header(name, value))
            for name, value in response.headers
            if name.lower() not in _DROPPED_RESPONSE_HEADERS
        )
        pieces, coding_is_gone = self._pieces(response)
        if pieces is not response.pieces:
            length = str(sum(len(piece.data) for piece in pieces))
            headers = tuple(
                (name, length if name.lower() == "content-length" else value)
                for name, value in headers
                if not (coding_is_gone and name.lower() == "content-encoding")
            )
        return replace(response, headers=headers, pieces=pieces)

    def _response_header(self, name: str, value: str) -> str:
        return placeholder(name) if is_account_header(name) else self.text(value)

    def url(self, url: str) -> str:
        """A URL without credentials in its query, its user part or anywhere else."""
        head, mark, _ = url.partition("?")
        user, password = _user_of(url)
        if user or password:
            scheme, _, rest = head.partition("://")
            authority, slash, path = rest.partition("/")
            head = f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"
        if mark:
            pairs = (
                f"{name}={placeholder(name)}" if _is_credential(name, value) else original
                for name, original, value in _query_pairs(url)
            )
            head = f"{head}?{'&'.join(pairs)}"
        return self.text(head)

    def _form(self, body: bytes) -> bytes:
        pairs = []
        for pair in body.decode("latin-1").split("&"):
            name, _, value = pair.partition("=")
            plain = unquote_plus(name)
            if value and _is_credential(plain, value):
                self._learn(plain, unquote_plus(value))
                pair = f"{name}={placeholder(plain)}"
            pairs.append(pair)
        return self.body("&".join(pairs).encode("latin-1"))

    def _upload(self, content_type: str, body: bytes) -> bytes:
        """An upload: its fields are those of a form, its files are bodies like any other."""
        edits = []
        for at, start, end in multipart_spans(content_type, body) or ():
            name = _field_of(body[at:start])
            value = body[start:end].decode("utf-8", "surrogateescape")
            if value and _is_credential_of_upload(name, value):
                if not WORD.fullmatch(value):
                    self._learn(name, value)
                edits.append(Edit(start, end, placeholder(name)))
        return self.body(edited_bytes(body, edits))

    # --- bodies

    def body(self, data: bytes) -> bytes:
        """A decoded body without secrets; the same object where there were none."""
        with self._one_text():
            return edited_bytes(data, self._body_edits(data, ""))

    def _body_edits(self, data: bytes, media: str) -> list[Edit]:
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            text = data.decode("latin-1")
            return self._edits(text, is_stream=is_stream(media, text))
        return in_bytes(text, self._edits(text, is_stream=is_stream(media, text)))

    def _pieces(self, response: Response) -> tuple[tuple[Piece, ...], bool]:
        """The pieces without secrets, and whether their content coding had to go."""
        if not response.pieces:
            return response.pieces, False
        coding, media = header(response.headers, "content-encoding"), media_type(response.headers)
        body = plain = response.body
        names = codings(coding)
        if names and KNOWN_CODINGS.issuperset(names):
            try:
                plain = decoded(body, coding).data
            except (UndecodableBody, OversizeBody):
                names = []  # nobody can read it, so it is bytes like any other
        edits = self._body_edits(plain, media)
        if not edits:
            return response.pieces, False
        clean = edited_bytes(plain, edits)
        if plain is not body:
            return (Piece(response.pieces[-1].at, clean),), True
        ends = accumulate((len(piece.data) for piece in response.pieces), initial=0)
        cuts = pairwise([moved_offset(end, edits) for end in ends])
        pieces = zip(cuts, response.pieces, strict=True)
        # A piece that held nothing but the middle of a secret is gone with it.
        return tuple(Piece(p.at, clean[low:high]) for (low, high), p in pieces if low < high), False

    # --- plain JSON and text

    def value(self, value: Json, text: str | None = None) -> Json:
        """A JSON value without secrets; the same object where there were none.

        `text` is its JSON text, where the caller has one already.
        """
        with self._one_text():
            if not self._is_suspect(
                json.dumps(value, ensure_ascii=False) if text is None else text
            ):
                return value
            clean = self._value(value)
            return value if clean == value else clean

    def _value(self, value: Json) -> Json:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self._value(item) for item in value]
        if isinstance(value, dict):
            return {self.text(name): self._member(name, item) for name, item in value.items()}
        if isinstance(value, int | float) and not isinstance(value, bool):
            text = self.text(str(value))
            return text if text.startswith(MARK) else value
        return value

    def _member(self, name: str, value: Json) -> Json:
        if isinstance(value, str) and value and is_credential_field(name):
            if WORD.fullmatch(value):
                return value
            self._learn(name, value)
            return placeholder(name)
        return self._value(value)

    def text(self, text: str) -> str:
        """A text without secrets; the same object where there were none."""
        # Headers say the same in every exchange: what held no secret is not looked at again, until
        # another secret is known.
        spellings = self._spellings
        if self._harmless.get(text) is spellings:
            return text
        clean = edited(text, self._edits(text))
        if clean is text and len(text) <= _SHORT:
            if len(self._harmless) >= _HARMLESS:
                self._harmless.clear()
            self._harmless[text] = spellings
        return clean

    def findings(self, text: str, *, is_stream: bool = False) -> list[Finding]:
        """Every secret in a text, in the order in which they stand; they may overlap."""
        views = views_of(text, is_stream=is_stream)
        # Places teach, so they come first; and they win, because their values count for nothing.
        kinds = (self._by_place, self._by_memory, self._by_pattern)
        found = [
            Finding(finding.name, start, end, finding.word if number == 0 else "")
            for by_kind in kinds
            for view in views
            for finding in _not_redacted(view.text, by_kind(view.text))
            for number, (start, end) in enumerate(view.spans(finding.start, finding.end))
        ]
        return sorted(found, key=lambda finding: finding.start)

    # --- looking

    def _edits(self, text: str, *, is_stream: bool = False) -> list[Edit]:
        if not is_stream and not self._is_suspect(text):
            return []
        found = self.findings(text, is_stream=is_stream)
        edits = in_order([Edit(f.start, f.end, f.word) for f in found])
        return [_as_json(edit, text) for edit in edits]

    def _is_suspect(self, text: str) -> bool:
        """A quick look at everything at once: most texts hold nothing like a secret."""
        if self._is_thorough or PRIVATE_KEY_MARKER in text:
            return True
        if suspects_in(text) or any(spelling in text for spelling in self._spellings):
            return True
        if '":' in text and any(map(is_credential_field, _names_in(text))):
            return True
        if _SPACED_NAME.search(text) and _SPACED_FIELD.search(text):
            return True
        if "=" in text and (_IS_SET.search(text) or any(_credential_parameters(text))):
            return True
        # JSON may spell any character as an escape, and a slash in two ways, which no look sees.
        plain = unescaped(text) if _HIDING_ESCAPE.search(text) else text
        return plain != text and self._is_suspect(plain)

    def _by_pattern(self, text: str) -> Iterator[Finding]:
        suspects = suspects_in(text)
        extra = (PRIVATE_KEY,) if PRIVATE_KEY_MARKER in text else ()
        if not (suspects or extra or self._is_thorough):
            return
        for pattern in (*self.patterns, *extra):
            for start, end in pattern.find(text, suspects):
                yield Finding(pattern.name, start, end, self._word(pattern, text[start:end]))

    def _word(self, pattern: SecretPattern, secret: str) -> str:
        if self.refuse and not WORD.fullmatch(secret):
            raise SecretFound(
                f"a secret ({pattern.name}) is in a body, and secrets are refused",
                'take it out of the request, or set secrets = "replace" in tapes.toml',
            )
        digest = hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()[:8]
        return placeholder(pattern.name, digest if pattern.hashed else "")

    def _by_place(self, text: str) -> Iterator[Finding]:
        places = [*_FIELD.finditer(text)] if '"' in text else []
        if "=" in text:
            places += _credential_parameters(text)
            # It begins at any word: over bytes that are no text, an upload of sound, it is slow.
            places += _SETTING.finditer(text) if _IS_SET.search(text) else ()
        for match in places:
            if not WORD.fullmatch(match["value"]):
                self._learn(match["name"], unescaped(match["value"]))
            yield Finding(match["name"], *match.span("value"), placeholder(match["name"]))

    # --- remembering

    def _learn(self, name: str, value: str) -> None:
        with _lock:
            if value not in self._seen:
                if not _is_memorable(value):
                    return
                self._spellings = (*self._spellings, *_spellings_of(value))
                self._length += len(value)
                # At last: what is known by now is looked for, also in a child made by fork.
                self._seen = {**self._seen, value: placeholder(name)}
            self._seen_at[value] = next(self._sights)

    @contextmanager
    def _one_text(self) -> Iterator[None]:
        """Of what is seen within it nothing is forgotten before its end, whatever others see."""
        begun = (_forks, next(self._sights))
        self._begun.add(begun)
        try:
            self._forget_some()
            yield
        finally:
            self._begun.discard(begun)

    def _forget_some(self) -> None:
        if len(self._seen) <= _SECRETS and self._length <= _SECRETS_LENGTH:
            return
        with _lock:
            at = dict(self._seen_at)
            in_use = min(sight for forks, sight in self._begun.copy() if forks == _forks)
            latest = sorted(self._seen, key=lambda value: at.get(value, 0), reverse=True)
            lengths = accumulate(map(len, latest))
            kept = [
                value
                for number, (value, length) in enumerate(zip(latest, lengths, strict=True))
                if at.get(value, 0) > in_use
                or not number
                or (number < _SECRETS // 2 and length <= _SECRETS_LENGTH // 2)
            ]
            self._seen = {value: self._seen[value] for value in kept}
            self._spellings = tuple(each for value in kept for each in _spellings_of(value))
            self._seen_at = {value: at.get(value, 0) for value in kept}
            self._length = sum(map(len, kept))

    def _by_memory(self, text: str) -> Iterator[Finding]:
        for value, word in self._seen.items():
            start = text.find(value)
            while start >= 0:
                yield Finding(word.removeprefix(MARK), start, start + len(value), word)
                start = text.find(value, start + len(value))


def _not_redacted(text: str, findings: Iterable[Finding]) -> Iterator[Finding]:
    """The findings that do not lie inside a word that took a secret's place before."""
    words = [match.span() for match in WORD.finditer(text)] if MARK in text else []
    for finding in findings:
        if not any(start <= finding.start and finding.end <= end for start, end in words):
            yield finding


def _is_memorable(value: str) -> bool:
    """Whether a value is no word or number of ordinary text, so that it may be replaced there."""
    return (
        len(value) >= _REMEMBERED_LENGTH
        and not value.startswith(MARK)
        and not _NUMBER.fullmatch(value)
        and not _WORD_OF_TEXT.fullmatch(value)
    )


def _spellings_of(value: str) -> set[str]:
    """A secret as it is, and as it stands in JSON."""
    return {value, json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]}


def _credentials_of(headers: Headers) -> Iterator[tuple[str, str]]:
    """What is secret in headers, each with the name of its header."""
    for name, value in headers:
        if is_credential_header(name):
            for credential in _credentials_in(name.lower(), value):
                yield name, credential


def _credentials_in(name: str, value: str) -> Iterable[str]:
    """What is secret in a header: of cookies each value, else what follows the scheme."""
    if name == "set-cookie":
        return [value.partition(";")[0].partition("=")[2]]
    if "cookie" in name:
        return [cookie.partition("=")[2].strip() for cookie in value.split(";")]
    scheme, _, credential = value.rpartition(" ")
    if scheme.strip().lower() != "basic":
        return [credential]
    try:
        password = base64.b64decode(credential).decode().partition(":")[2]
    except ValueError:
        return [credential]
    return [credential, password]


def _is_credential(name: str, value: str) -> bool:
    """Whether a parameter of a URL or of a form holds a credential."""
    return is_credential_parameter(name, value) or is_credential_field(name)


def _is_credential_of_upload(name: str, value: str) -> bool:
    """As above, for a field of an upload, where `key` is the name that an object will have."""
    return name.lower() != "key" and _is_credential(name, value)


def _field_of(head: bytes) -> str:
    """The name of a part of an upload that is a field; empty for a file."""
    disposition = _DISPOSITION.search(head)
    if disposition is None or _IS_A_FILE.search(disposition[1]):
        return ""
    name = _PART_NAME.search(disposition[1])
    return "" if name is None else (name[1] or name[2] or b"").decode("utf-8", "replace")


def _credential_parameters(text: str) -> Iterator[re.Match[str]]:
    parameters = _PARAMETER.finditer(text)
    return (m for m in parameters if is_credential_parameter(m["name"], m["value"]))


def _names_in(text: str) -> set[str]:
    """The names of JSON members, at any depth of JSON in strings."""
    parts = text.split('":')
    parts.pop()
    names = {part[part.rfind('"') + 1 :] for part in parts}
    return {name.rstrip("\\") for name in names} if "\\" in text else names


def _as_json(edit: Edit, text: str) -> Edit:
    """The edit; as a text of its own where a JSON number would become a bare word."""
    if not _NUMBER.fullmatch(text, edit.start, edit.end):
        return edit
    before = text[max(0, edit.start - 9) : edit.start].rstrip()[-1:]
    behind = text[edit.end : edit.end + 9].lstrip()[:1]
    is_bare = before in (":", "[", ",") and behind in (",", "]", "}")
    return replace(edit, word=f'"{edit.word}"') if is_bare else edit


def _user_of(url: str) -> tuple[str, str]:
    """The user and the password that a URL holds; empty where it holds none."""
    if "@" not in url:
        return "", ""
    authority = url.partition("://")[2].partition("/")[0].partition("?")[0]
    user, _, password = authority.rpartition("@")[0].partition(":")
    return user, password


def _query_pairs(url: str) -> Iterator[tuple[str, str, str]]:
    """The parameters of a URL: each name as it reads, the pair as it stands, the value."""
    query = url.partition("?")[2].partition("#")[0]
    for pair in query.split("&") if query else ():
        name, _, value = pair.partition("=")
        yield normal_percent(name), pair, value
