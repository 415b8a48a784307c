"""Which headers, parameters, fields and texts never come to rest, and what stands in their place.

Rule 1: a credential in a place made for credentials (a header, a query parameter, a member named
        `access_token`) is replaced by a word made of the place's name. Its value counts for
        nothing, so a tape recorded with one key replays for another key or none.
Rule 2: a known key pattern in other text is replaced by a word made of the pattern's name and a
        short hash: equal secrets stay equal, different ones different, so matching does not
        change. These patterns have enough entropy for a hash to give nothing away.
Rule 3: a value seen in such a place is remembered and replaced wherever it turns up later.
Rule 4: redacting twice changes nothing more. The words are made of characters that need no
        escape in JSON, URLs or headers.
Rule 5: edits keep everything else to the byte: lengths of pieces move, their order does not. A
        secret that a stream spells over several events is found across them.

Request headers are kept by a list of the harmless; response headers all but those whose names
say otherwise. The running program always sees the real bytes: this works on copies.
Knows nothing of tapes or keys.  Pure but for what it remembers.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate

from tapes.canonical import CREDENTIAL_QUERY, IDENTITY_HEADERS, plain_body
from tapes.errors import BadRule, OversizeBody, SecretFound, UndecodableBody
from tapes.exchange import Headers, Piece, Request, Response, header
from tapes.jsontext import Json, compact, read
from tapes.wire import KNOWN_CODINGS, codings, decoded

MARK = "REDACTED."

_KEPT_REQUEST_HEADERS = IDENTITY_HEADERS | {"accept", "content-type", "content-encoding"}
_SECRET_HEADER = re.compile(
    r"^(?!access-control-|x-ratelimit-).*"
    r"(authorization|authenticate|cookie|token(?!s)|secret|password|api-?key|credential|signature"
    r"|organi[sz]ation|project|account|tenant|workspace|session|user|customer)"
)
_DROPPED_RESPONSE_HEADERS = frozenset({"set-cookie", "set-cookie2", "authentication-info"})
CREDENTIAL_HEADERS = re.compile(
    r"^(proxy-)?authorization$|cookie|api-?key|auth-token|access-token|security-token|secret"
)
_CREDENTIAL_FIELDS = frozenset(
    {
        "access_token", "refresh_token", "id_token", "client_secret", "api_key", "apikey",
        "api-key", "x-api-key", "secret_key", "secret_access_key", "auth_token", "session_token",
        "password", "passwd", "private_key", "authorization", "aws_session_token",
    }
)  # fmt: skip
# A shorter value is too likely to be a word of ordinary text.
_REMEMBERED_LENGTH = 8


@dataclass(frozen=True, slots=True)
class SecretPattern:
    """A text that is a secret wherever it stands. `marker` is in every match, for a quick look."""

    name: str
    marker: str
    regex: re.Pattern[str]


def _pattern(name: str, marker: str, regex: str) -> SecretPattern:
    return SecretPattern(name, marker, re.compile(regex, re.DOTALL))


SECRET_PATTERNS = (
    _pattern("openai_key", "sk-", r"(?<![A-Za-z0-9])sk-(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,}"),
    _pattern("google_key", "AIza", r"(?<![A-Za-z0-9])AIza[0-9A-Za-z_-]{35}"),
    _pattern("google_token", "ya29.", r"(?<![A-Za-z0-9])ya29\.[0-9A-Za-z_-]{20,}"),
    _pattern("github_token", "gh", r"(?<![A-Za-z0-9])gh[pousr]_[A-Za-z0-9]{36,}"),
    _pattern("github_token", "github_pat_", r"github_pat_[A-Za-z0-9_]{22,}"),
    _pattern("gitlab_token", "glpat-", r"(?<![A-Za-z0-9])glpat-[A-Za-z0-9_-]{20,}"),
    _pattern("aws_key", "KIA", r"(?<![A-Za-z0-9])AKIA[0-9A-Z]{16}(?![A-Za-z0-9])"),
    _pattern("aws_key", "SIA", r"(?<![A-Za-z0-9])ASIA[0-9A-Z]{16}(?![A-Za-z0-9])"),
    _pattern("slack_token", "xox", r"(?<![A-Za-z0-9])xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    _pattern("huggingface_token", "hf_", r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,}"),
    _pattern("groq_key", "gsk_", r"(?<![A-Za-z0-9])gsk_[A-Za-z0-9]{20,}"),
    _pattern("xai_key", "xai-", r"(?<![A-Za-z0-9])xai-[A-Za-z0-9]{20,}"),
    _pattern("perplexity_key", "pplx-", r"(?<![A-Za-z0-9])pplx-[A-Za-z0-9]{20,}"),
    _pattern("replicate_key", "r8_", r"(?<![A-Za-z0-9])r8_[A-Za-z0-9]{20,}"),
    _pattern("stripe_key", "k_live_", r"(?<![A-Za-z0-9])[rsp]k_live_[A-Za-z0-9]{16,}"),
    _pattern("sendgrid_key", "SG.", r"(?<![A-Za-z0-9])SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    _pattern("npm_token", "npm_", r"(?<![A-Za-z0-9])npm_[A-Za-z0-9]{36}"),
    _pattern("pypi_token", "pypi-", r"(?<![A-Za-z0-9])pypi-AgE[A-Za-z0-9_-]{30,}"),
    _pattern("jwt", "eyJ", r"(?<![A-Za-z0-9])eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}"),
    _pattern(
        "private_key", "PRIVATE KEY-----",
        r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----",
    ),
    _pattern("bearer_token", "earer ", r"(?<=[Bb]earer )[A-Za-z0-9._~+/-]{20,}=*"),
)  # fmt: skip


def user_patterns(declared: Iterable[Mapping[str, object]], where: str) -> list[SecretPattern]:
    """Patterns of a `tapes.toml`: [[secrets]] name = "…", pattern = '…'. Raises BadRule."""
    patterns = []
    for entry in declared:
        name, regex = entry.get("name"), entry.get("pattern")
        if (
            not isinstance(name, str)
            or not isinstance(regex, str)
            or set(entry) - {"name", "pattern"}
        ):
            raise BadRule(f"{where}: a secret has a name and a pattern, both text")
        if not re.fullmatch(r"[a-z0-9_]+", name):
            raise BadRule(f"{where}: the name {name!r} is not made of a-z, 0-9 and _")
        try:
            patterns.append(_pattern(name, "", regex))
        except re.error as error:
            raise BadRule(f"{where}: pattern {regex!r}: {error}") from error
    return patterns


@dataclass(frozen=True, slots=True)
class Finding:
    """A secret in a text: its name and where it stands."""

    name: str
    start: int
    end: int


@dataclass(slots=True)
class Redactor:
    """Makes the copy that may come to rest.

    `refuse` turns a pattern in a body into SecretFound instead of a word.
    """

    patterns: tuple[SecretPattern, ...] = SECRET_PATTERNS
    refuse: bool = False
    _seen: dict[str, str] = field(default_factory=dict)

    # --- HTTP

    def request(self, request: Request) -> Request:
        """The request without secrets; the same object where nothing had to change."""
        self._learn_from_request(request)
        headers = tuple(
            (name, self.text(value))
            for name, value in request.headers
            if name.lower() in _KEPT_REQUEST_HEADERS
        )
        body = request.body
        plain = plain_body(request)
        form = media_of(request.headers) == "application/x-www-form-urlencoded"
        clean = self._form(plain) if form else self.body(plain)
        if clean != plain:
            body = clean
            headers = tuple(pair for pair in headers if pair[0].lower() != "content-encoding")
        return Request(request.method, self.url(request.url), headers, body)

    def response(self, response: Response) -> Response:
        """The response without secrets. A changed body loses its content coding with its length."""
        headers = tuple(
            (name, self._response_header(name.lower(), value))
            for name, value in response.headers
            if name.lower() not in _DROPPED_RESPONSE_HEADERS
        )
        pieces, recoded = self._pieces(response)
        if pieces is not response.pieces:
            length = str(sum(len(piece.data) for piece in pieces))
            headers = tuple(
                (name, length if name.lower() == "content-length" else value)
                for name, value in headers
                if not (recoded and name.lower() == "content-encoding")
            )
        return replace(response, headers=headers, pieces=pieces)

    def _response_header(self, name: str, value: str) -> str:
        return f"{MARK}{_word(name)}" if _SECRET_HEADER.search(name) else self.text(value)

    def _learn_from_request(self, request: Request) -> None:
        for name, value in request.headers:
            if CREDENTIAL_HEADERS.search(name.lower()):
                # "Bearer x", "Basic y": the scheme is no secret.
                self._learn(name, value.rpartition(" ")[2])
        for name, _, value in _query_pairs(request.url):
            if name.lower() in CREDENTIAL_QUERY:
                self._learn(name, value)

    def _learn(self, name: str, value: str) -> None:
        if len(value) >= _REMEMBERED_LENGTH and not value.startswith(MARK):
            self._seen.setdefault(value, f"{MARK}{_word(name)}")

    def url(self, url: str) -> str:
        """A URL without credentials in its query, its user part or anywhere else."""
        head, mark, _ = url.partition("?")
        scheme, slashes, rest = head.partition("://")
        if slashes:
            authority, slash, path = rest.partition("/")
            head = f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}"
        if mark:
            pairs = (
                f"{name}={MARK}{_word(name)}"
                if name.lower() in CREDENTIAL_QUERY
                else name + eq + value
                for name, eq, value in _query_pairs(url)
            )
            head = f"{head}?{'&'.join(pairs)}"
        return self.text(head)

    def _form(self, body: bytes) -> bytes:
        pairs = [pair.partition("=") for pair in body.decode("latin-1").split("&")]
        for name, _, value in pairs:
            if _is_credential_field(name):
                self._learn(name, value)
        text = "&".join(
            f"{name}={MARK}{_word(name)}" if _is_credential_field(name) else name + eq + value
            for name, eq, value in pairs
        )
        return self.text(text).encode("latin-1")

    # --- bodies

    def body(self, data: bytes) -> bytes:
        """A decoded body without secrets; the same object where there were none."""
        clean = apply_edits(data, self._edits(data.decode("latin-1")))
        # JSON may spell any character as an escape, which no pattern sees.
        return self._unescaped(clean) if b"\\u00" in clean else clean

    def _unescaped(self, data: bytes) -> bytes:
        try:
            value = read(data)
        except ValueError:
            return data
        clean = self.value(value)
        return data if clean is value else compact(clean).encode()

    def _edits(self, text: str) -> list["Edit"]:
        """What has to change in a body, its bytes read as latin-1 so that places are offsets."""
        edits = [Edit(f.start, f.end, self._replacement(f, text)) for f in self.findings(text)]
        if '"' in text:
            edits += self._field_edits(text)
            edits += self._spread_edits(text)
        # After the fields, since they teach: the same value may stand in plain text as well.
        edits += self._seen_edits(text)
        return _without_overlaps(edits)

    def findings(self, text: str) -> list[Finding]:
        """Every match of a secret pattern, in the order of the patterns."""
        return [
            Finding(pattern.name, match.start(), match.end())
            for pattern in self.patterns
            if pattern.marker in text
            for match in pattern.regex.finditer(text)
            if not match[0].startswith(MARK)
        ]

    def _replacement(self, finding: Finding, text: str) -> str:
        secret = text[finding.start : finding.end]
        if self.refuse:
            raise SecretFound(
                f"a secret ({finding.name}) is in a body, and secrets are refused",
                'take it out of the request, or set secrets = "replace" in tapes.toml',
            )
        digest = hashlib.sha256(secret.encode("latin-1", "surrogatepass")).hexdigest()[:8]
        return self._seen.get(secret) or f"{MARK}{finding.name}.{digest}"

    def _field_edits(self, text: str) -> Iterator["Edit"]:
        for match in _FIELD.finditer(text):
            if not match["value"].startswith(MARK):
                self._learn(match["name"], match["value"])
                yield Edit(
                    match.start("value"), match.end("value"), f"{MARK}{_word(match['name'])}"
                )

    def _seen_edits(self, text: str) -> Iterator["Edit"]:
        for value, word in self._seen.items():
            start = text.find(value)
            while start >= 0:
                yield Edit(start, start + len(value), word)
                start = text.find(value, start + len(value))

    def _spread_edits(self, text: str) -> Iterator["Edit"]:
        """Secrets that a stream spells over several events: joined by member name, then found."""
        if not text.startswith(("data:", "event:", ":", "{")) or text.count("\n") < 2:
            return
        for fragments in _streams(text):
            joined = "".join(text[start:end] for start, end in fragments)
            starts = list(accumulate((end - start for start, end in fragments), initial=0))
            for found in self._found_in_joined(joined):
                first = True
                for (start, _), at, until in zip(fragments, starts, starts[1:], strict=False):
                    low, high = max(found.start, at), min(found.end, until)
                    if low < high:
                        yield Edit(start + low - at, start + high - at, found.word if first else "")
                        first = False

    def _found_in_joined(self, text: str) -> Iterator["Edit"]:
        for finding in self.findings(text):
            yield Edit(finding.start, finding.end, self._replacement(finding, text))
        yield from self._seen_edits(text)

    def _pieces(self, response: Response) -> tuple[tuple[Piece, ...], bool]:
        """The pieces without secrets, and whether their content coding had to go."""
        if not response.pieces:
            return response.pieces, False
        coding = header(response.headers, "content-encoding")
        names = codings(coding)
        body = response.body
        if names and KNOWN_CODINGS.issuperset(names):
            try:
                plain = decoded(body, coding).data
            except (UndecodableBody, OversizeBody):
                plain = body
            clean = self.body(plain)
            if clean is plain or clean == plain:
                return response.pieces, False
            return (Piece(response.pieces[-1].at, clean),), True
        edits = self._edits(body.decode("latin-1"))
        if not edits:
            return response.pieces, False
        ends = accumulate(len(piece.data) for piece in response.pieces)
        clean, moved = apply_edits(body, edits), [moved_offset(end, edits) for end in ends]
        cuts = zip([0, *moved], moved, response.pieces, strict=False)
        return tuple(Piece(piece.at, clean[low:high]) for low, high, piece in cuts), False

    # --- plain JSON and text

    def value(self, value: Json) -> Json:
        """A JSON value without secrets; the same object where there were none."""
        if not self._is_suspect(json.dumps(value, ensure_ascii=False)):
            return value
        clean = self._value(value)
        return value if clean == value else clean

    def _is_suspect(self, text: str) -> bool:
        """A quick look at everything at once: most requests hold nothing like a secret."""
        return (
            any(pattern.marker in text for pattern in self.patterns)
            or any(value in text for value in self._seen)
            or _FIELD.search(text) is not None
        )

    def _value(self, value: Json) -> Json:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list | tuple):
            return [self._value(item) for item in value]
        if isinstance(value, dict):
            return {name: self._member(name, item) for name, item in value.items()}
        return value

    def _member(self, name: str, value: Json) -> Json:
        if isinstance(value, str) and value and _is_credential_field(name):
            self._learn(name, value)
            return value if value.startswith(MARK) else f"{MARK}{_word(name)}"
        return self._value(value)

    def text(self, text: str) -> str:
        """A text without secrets."""
        edits = [Edit(f.start, f.end, self._replacement(f, text)) for f in self.findings(text)]
        return _edited(text, _without_overlaps([*edits, *self._seen_edits(text)]))


def _word(name: str) -> str:
    """A name in the characters that need no escape anywhere."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_") or "secret"


def _is_credential_field(name: str) -> bool:
    return name.lower() in _CREDENTIAL_FIELDS


def media_of(headers: Headers) -> str:
    """The media type that headers declare, in lower case."""
    return (header(headers, "content-type") or "").partition(";")[0].strip().lower()


def _query_pairs(url: str) -> list[tuple[str, str, str]]:
    query = url.partition("?")[2].partition("#")[0]
    return [pair.partition("=") for pair in query.split("&")] if query else []


# A JSON member whose name says that its text is a credential.
_FIELD = re.compile(
    r'"(?P<name>' + "|".join(map(re.escape, sorted(_CREDENTIAL_FIELDS))) + r')"\s*:\s*'
    r'"(?P<value>(?:[^"\\]|\\.)+)"',
    re.IGNORECASE,
)
_MEMBER = re.compile(r'"(?P<name>[A-Za-z_]+)"\s*:\s*"(?P<value>(?:[^"\\]|\\.)*)"')
_INDEX = re.compile(r'"(?:index|content_index|output_index|choice)"\s*:\s*(\d+)')


def _streams(text: str) -> Iterable[list[tuple[int, int]]]:
    """Where the texts of one member stand, event after event: one list a member and index."""
    streams: dict[tuple[str, str], list[tuple[int, int]]] = {}
    position = 0
    for line in text.split("\n"):
        index = ",".join(_INDEX.findall(line))
        for match in _MEMBER.finditer(line):
            span = (position + match.start("value"), position + match.end("value"))
            streams.setdefault((match["name"], index), []).append(span)
        position += len(line) + 1
    return [spans for spans in streams.values() if len(spans) > 1]


# --- edits ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Edit:
    """Put `word` in the place of [start, end)."""

    start: int
    end: int
    word: str


def _without_overlaps(edits: list[Edit]) -> list[Edit]:
    """In order of place; of two that overlap, the one that begins first and reaches furthest."""
    kept: list[Edit] = []
    for edit in sorted(edits, key=lambda e: (e.start, -e.end)):
        if not kept or edit.start >= kept[-1].end:
            kept.append(edit)
        elif edit.end > kept[-1].end:
            kept[-1] = replace(kept[-1], end=edit.end)
    return kept


def _edited(text: str, edits: list[Edit]) -> str:
    parts, position = list[str](), 0
    for edit in edits:
        parts += (text[position : edit.start], edit.word)
        position = edit.end
    return "".join((*parts, text[position:])) if edits else text


def apply_edits(data: bytes, edits: list[Edit]) -> bytes:
    """The bytes with the edits made; the same object where there are none."""
    return _edited(data.decode("latin-1"), edits).encode("latin-1") if edits else data


def moved_offset(offset: int, edits: list[Edit]) -> int:
    """Where a place lies after the edits; a place inside an edit lies at its end."""
    shift = 0
    for edit in edits:
        if edit.start >= offset:
            break
        end = edit.end
        if end > offset:
            return edit.start + shift + len(edit.word)
        shift += len(edit.word) - (end - edit.start)
    return offset + shift
