"""Named, versioned canonicalizers: request → canonical text → key.

Rule 1: key = SHA-256, as 64 lowercase hex digits, of the UTF-8 of the canonical text.
Rule 2: `tape/1` (JSONL document): top-level `timestamp`, `request_id`, `cwd` are left out, names
        sorted by code point, no white space, non-ASCII text as it is.
Rule 3: `directory/1` (directory document): top-level `request_id`, `created`, `created_at`,
        `trace_id` are left out, non-ASCII text escaped.
Rule 4: `http/1`: method, path, query and body, and the few headers that choose behaviour. Not the
        host, not credentials, not headers that say nothing about the job. The text of the
        identity is written as in rule 2.
Rule 5: nothing else is ever normalised, unless a user's rule says so.
Rule 6: a further answer to the same request (a sample) and the evidence of a cut stream have
        keys of their own, made from the request's key.

Knows nothing of tapes, redaction or clients.  Pure.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import urlsplit

from tapes.credentials import is_credential_parameter
from tapes.errors import NotCanonical, OversizeBody, UndecodableBody, UnknownCanonicalizer
from tapes.exchange import Headers, Request, header
from tapes.jsontext import Json, canonical, canonical_of_read, read
from tapes.varying import Rule, vary_json, vary_text
from tapes.wire import KNOWN_CODINGS, codings, decoded


@dataclass(frozen=True, slots=True)
class DictCanonicalizer:
    """A rule for requests that are dicts: which top-level names say nothing, and how text looks."""

    name: str
    leaves_out: frozenset[str]
    ascii_only: bool

    def identity(self, request: Mapping[str, Json]) -> dict[str, Json]:
        """The request without what does not change the model's job."""
        if not isinstance(request, dict):
            raise NotCanonical(f"a request is a dict, not {type(request).__name__}")
        return {name: value for name, value in request.items() if name not in self.leaves_out}

    def text(self, request: Mapping[str, Json]) -> str:
        """The canonical text of a request. Raises NotCanonical naming the place."""
        return canonical(self.identity(request), ascii_only=self.ascii_only)


TAPE = DictCanonicalizer("tape/1", frozenset({"timestamp", "request_id", "cwd"}), False)
DIRECTORY = DictCanonicalizer(
    "directory/1", frozenset({"request_id", "created", "created_at", "trace_id"}), True
)
HTTP_1 = "http/1"
DICT_CANONICALIZERS = {rule.name: rule for rule in (TAPE, DIRECTORY)}


def dict_canonicalizer(name: str) -> DictCanonicalizer:
    """The canonicalizer of this name. Raises UnknownCanonicalizer."""
    try:
        return DICT_CANONICALIZERS[name]
    except KeyError:
        known = ", ".join(sorted(DICT_CANONICALIZERS))
        raise UnknownCanonicalizer(
            f"no canonicalizer for dicts is named {name!r}", f"there are: {known}"
        ) from None


def canonicalize(request: Mapping[str, Json]) -> str:
    """The canonical text of a request under `tape/1`, the rule of JSONL tapes."""
    return TAPE.text(request)


def req_hash(request: Mapping[str, Json]) -> str:
    """The key of a request under `tape/1`: 64 lowercase hex digits."""
    return key_of(TAPE.text(request))


def key_of(text: str) -> str:
    """The key of a canonical text. Raises NotCanonical for a lone surrogate."""
    try:
        return hashlib.sha256(text.encode("utf-8")).hexdigest()
    except UnicodeEncodeError as error:
        near = text[max(0, error.start - 20) : error.start]
        raise NotCanonical(f"a lone surrogate after {near!r} has no UTF-8") from None


def sample_key(key: str, sample: int) -> str:
    """The key of a further answer to one request. Sample 0 is the request's own key."""
    return key_of(f"{key} sample {sample}") if sample else key


def evidence_key(key: str) -> str:
    """The key under which a stream that did not end is kept. No request has it."""
    return key_of(f"{key} incomplete")


# --- HTTP -------------------------------------------------------------------------------------

# Headers that choose a version or a feature of the answer. All others say who asks, not what.
IDENTITY_HEADERS = frozenset({"anthropic-beta", "anthropic-version", "openai-beta"})


def http_identity(
    request: Request, rules: Iterable[Rule] = (), also_headers: frozenset[str] = frozenset()
) -> tuple[dict[str, Json], tuple[Rule, ...]]:
    """All that can change the answer to an HTTP request, and the rules that took something out.

    Raises UnsupportedCoding where the decoder of a known coding is not installed: else the
    identity would depend on the machine. Raises NotCanonical for what is no URL.
    """
    rules = tuple(rules)
    try:
        path, query, url_rules = _place(request.url, rules)
    except ValueError as error:
        raise NotCanonical(f"{request.method} {request.url[:80]!r} is no URL: {error}") from None
    headers, header_rules = _headers(request, rules, also_headers)
    body, body_rules = _body(request, rules)
    identity = {
        "method": request.method.upper(),
        "path": path,
        "query": list(query),
        "headers": headers,
        "body": body,
    }
    if not rules:
        return identity, ()
    used = {*url_rules, *header_rules, *body_rules}
    return identity, tuple(rule for rule in rules if rule in used)


def http_text(identity: Mapping[str, Json]) -> str:
    """The canonical text of an HTTP identity."""
    return canonical_of_read(identity)


_UNRESERVED = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_PERCENT = re.compile(rb"%([0-9A-Fa-f]{2})")
_UNSAFE = re.compile(rb"[^!-~]|[\"<>\\^`{|}]")


def normal_percent(text: str) -> str:
    """RFC 3986, 6.2.2: unreserved characters unescaped, all escapes in upper case."""

    def tidy(match: re.Match[bytes]) -> bytes:
        byte = int(match[1], 16)
        return bytes((byte,)) if byte in _UNRESERVED else b"%" + match[1].upper()

    escaped = _UNSAFE.sub(lambda m: b"%%%02X" % m[0][0], text.encode("utf-8", "surrogateescape"))
    return _PERCENT.sub(tidy, escaped).decode("ascii")


@lru_cache(256)
def _place(url: str, rules: tuple[Rule, ...]) -> tuple[str, tuple[str, ...], frozenset[Rule]]:
    """Path and query of a URL; a program asks at the same few again and again."""
    parts = urlsplit(url)
    query, query_rules = _query(parts.query, rules)
    path, path_rules = vary_text(normal_percent(parts.path) or "/", rules)
    return path, tuple(query), frozenset((*query_rules, *path_rules))


def _query(query: str, rules: tuple[Rule, ...]) -> tuple[list[str], set[Rule]]:
    """The parameters in order, without credentials; a value that varies stands as its word."""
    kept, used = [], set[Rule]()
    for pair in query.split("&") if query else ():
        name, equals, value = normal_percent(pair).partition("=")
        if is_credential_parameter(name, value):
            continue
        for rule in rules:
            varied = rule.word if rule.query == name else rule.in_text(value)
            if varied != value:
                used.add(rule)
                value = varied
        kept.append(name + equals + value)
    return kept, used


def _headers(
    request: Request, rules: tuple[Rule, ...], also: frozenset[str]
) -> tuple[dict[str, Json], set[Rule]]:
    wanted, used = IDENTITY_HEADERS | also, set[Rule]()
    kept: dict[str, Json] = {}
    for name, value in request.headers:
        lower = name.lower()
        if lower not in wanted:
            continue
        varying = [rule for rule in rules if rule.header == lower]
        used.update(varying)
        if not varying:
            kept.setdefault(lower, []).append(value.strip())
    if request.body:
        kept["content-type"] = media_type(request.headers)
    return kept, used


def media_type(headers: Headers) -> str:
    """The media type of a body without its parameters, in lower case; "" where none is said."""
    return (header(headers, "content-type") or "").partition(";")[0].strip().lower()


def is_json_type(media: str) -> bool:
    """Whether a media type says JSON."""
    return media in ("application/json", "text/json") or media.endswith("+json")


def _body(request: Request, rules: tuple[Rule, ...]) -> tuple[Json, tuple[Rule, ...]]:
    if not request.body:
        return None, ()
    body, media = plain_body(request), media_type(request.headers)
    if is_json_type(media):
        try:
            value, used = vary_json(read(body), rules)
        except ValueError:
            pass  # what is not exactly one JSON value is identified by its bytes
        else:
            return {"json": value}, used
    if media.startswith("multipart/"):
        parts = multipart_parts(header(request.headers, "content-type") or "", body)
        if parts is not None:
            return {"multipart": parts}, ()
    text_rules = [rule for rule in rules if rule.pattern and not rule.at]
    if text_rules:
        try:
            text, used = vary_text(body.decode("utf-8"), text_rules)
        except UnicodeDecodeError:
            pass
        else:
            return {"sha256": hashlib.sha256(text.encode()).hexdigest()}, used
    return {"sha256": hashlib.sha256(body).hexdigest()}, ()


def plain_body(request: Request) -> bytes:
    """The body with its content coding undone; as it is where nobody could undo it."""
    coding = header(request.headers, "content-encoding")
    names = codings(coding)
    if not names or not KNOWN_CODINGS.issuperset(names):
        return request.body
    try:
        result = decoded(request.body, coding)
    except (UndecodableBody, OversizeBody):
        return request.body
    return result.data if result.whole else request.body


def multipart_parts(content_type: str, body: bytes) -> list[Json] | None:
    """The parts of an upload: headers by name and the hash of the bytes. None for a broken one."""
    pieces = multipart_pieces(content_type, body)
    if pieces is None:
        return None
    parts: list[Json] = []
    for head, content in pieces:
        # Folded lines (RFC 5322, 2.2.3) are one.
        lines = head.decode("latin-1").replace("\r\n ", " ").replace("\r\n\t", "\t").split("\r\n")
        headers = [line.partition(":") for line in lines if line]
        parts.append(
            {
                "headers": sorted(
                    [name.strip().lower(), value.strip()] for name, _, value in headers
                ),
                "sha256": hashlib.sha256(content).hexdigest(),
            }
        )
    return parts


def multipart_pieces(content_type: str, body: bytes) -> list[tuple[bytes, bytes]] | None:
    """The head and the content of each part of an upload. None for a broken one."""
    spans = multipart_spans(content_type, body)
    if spans is None:
        return None
    return [(body[at : start - 4], body[start:end]) for at, start, end in spans]


def multipart_spans(content_type: str, body: bytes) -> list[tuple[int, int, int]] | None:
    """Where each part of an upload begins, where its content does, and where that ends.

    None for a broken one. The boundary is no part of it (RFC 2046, 5.1): it differs with every
    upload.
    """
    boundary = _BOUNDARY.search(content_type)
    if boundary is None:
        return None
    delimiter = b"--" + (boundary[1] or boundary[2]).encode("latin-1", "replace")
    # Every delimiter but the first follows a line end that belongs to it.
    preamble, *pieces = (b"\r\n" + body).split(b"\r\n" + delimiter)
    end = pieces.pop() if pieces else preamble
    if not end.startswith(b"--") or not all(map(_AFTER_DELIMITER.match, pieces)):
        return None
    spans: list[tuple[int, int, int]] = []
    at = len(preamble) - len(b"\r\n")
    for piece in pieces:
        at += len(b"\r\n" + delimiter)
        head = len(piece) - len(piece.lstrip(b" \t"))
        content = piece.find(b"\r\n\r\n", head)
        if content < 0:
            return None
        spans.append((at + head, at + content + len(b"\r\n\r\n"), at + len(piece)))
        at += len(piece)
    return spans


_BOUNDARY = re.compile(r';\s*boundary=(?:"([^"]+)"|([^;\s]+))', re.IGNORECASE)
_AFTER_DELIMITER = re.compile(rb"[ \t]*\r\n")


def key_of_exchange_request(
    canonicalizer: str,
    request: Request | Json,
    rules: Iterable[Rule] = (),
    also_headers: frozenset[str] = frozenset(),
) -> str:
    """The key that a request as it lies on a tape has, to hold against the one that it claims.

    Raises TapesError where the request has no key under this canonicalizer.
    """
    if isinstance(request, Request):
        if canonicalizer != HTTP_1:
            raise UnknownCanonicalizer(f"no canonicalizer for HTTP is named {canonicalizer!r}")
        identity, _ = http_identity(request, rules, also_headers)
        return key_of(http_text(identity))
    rule = dict_canonicalizer(canonicalizer)
    value, _ = vary_json(rule.identity(request), rules)
    return key_of(rule.text(value))
