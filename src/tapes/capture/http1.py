"""HTTP/1.1 heads and framing, as bytes: what a relay must know, and not one byte changed.

Rule 1: llhttp (through `httptools`, strict) has the first word on every head and every chunk;
        what it refuses is refused.
Rule 2: a head keeps its lines as they came. Reading one never writes it.
Rule 3: the length of a message is said once (RFC 9112, 6.3): `Transfer-Encoding: chunked` alone, or
        equal `Content-Length`s, or, for a response, the end of the connection. Both together, or
        two lengths, are refused: what two parsers could read differently goes no further.
Rule 4: hop-by-hop lines (RFC 9110, 7.6.1) end here: those that `Connection` names, and the usual.

Sans-IO: readers are fed bytes and say what they understood.  Pure.
"""

from dataclasses import dataclass

import httptools

HEAD_LIMIT = 64 * 1024
HEADERS_LIMIT = 256
_HOP_BY_HOP = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate",
        b"proxy-authorization", b"te", b"upgrade",
    }
)  # fmt: skip
_WITHOUT_BODY = frozenset({204, 304})


class BadMessage(Exception):
    """The bytes are not an HTTP/1.1 message that has one meaning.

    Never leaves this folder: the relay answers it, or says that the upstream sent it.
    """

    def __init__(self, why: str, status: int = 400) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a message: its start line, and its lines each with its name in lower case."""

    start: bytes
    lines: tuple[tuple[bytes, bytes], ...]

    def values(self, name: bytes) -> list[bytes]:
        """The values of all lines of this name, trimmed."""
        return [line[line.index(b":") + 1 :].strip(b" \t") for n, line in self.lines if n == name]

    def value(self, name: bytes) -> bytes | None:
        """The value of the only line of this name; of several, the first."""
        return next(iter(self.values(name)), None)

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Names as they were written, and values, as text (latin-1)."""
        pairs = (line.split(b":", 1) for _, line in self.lines)
        return tuple((n.decode("latin-1"), v.strip(b" \t").decode("latin-1")) for n, v in pairs)

    def end_to_end(self) -> list[bytes]:
        """The lines that go on to the other side, as they came."""
        named = {
            token.strip().lower()
            for value in self.values(b"connection")
            for token in value.split(b",")
        }
        return [line for name, line in self.lines if name not in _HOP_BY_HOP and name not in named]

    @property
    def keeps_alive(self) -> bool:
        """Whether the sender means to use the connection again."""
        tokens = b",".join(self.values(b"connection")).lower()
        if self.is_http_10:
            return b"keep-alive" in tokens
        return b"close" not in tokens

    @property
    def is_http_10(self) -> bool:
        """Whether the message says HTTP/1.0."""
        return b"HTTP/1.0" in self.start


def read_head(block: bytes) -> Head:
    """The head in a block that llhttp has accepted, without its blank line."""
    start, *lines = block.split(b"\r\n")
    if len(lines) > HEADERS_LIMIT:
        raise BadMessage("too many header lines", 431)
    named = []
    for line in lines:
        colon = line.find(b":")
        # llhttp takes folded lines and names that end in a blank in some modes; nobody needs them.
        if colon < 1 or line[0] in b" \t" or line[colon - 1] in b" \t":
            raise BadMessage("a header line has no name, or is folded")
        named.append((line[:colon].lower(), line))
    return Head(start, tuple(named))


@dataclass(frozen=True, slots=True)
class Framing:
    """Where a body ends: after `length` bytes, with the last chunk, or with the connection."""

    length: int | None = None
    chunked: bool = False
    until_close: bool = False

    @property
    def has_body(self) -> bool:
        """Whether any byte of body can follow."""
        return self.chunked or self.until_close or bool(self.length)


NO_BODY = Framing(length=0)


def request_framing(head: Head) -> Framing:
    """The framing of a request (rule 3)."""
    return _said_framing(head) or NO_BODY


def response_framing(head: Head, status: int, method: bytes) -> Framing:
    """The framing of the response to a request with this method."""
    if method == b"HEAD" or status in _WITHOUT_BODY or 100 <= status < 200:
        return NO_BODY
    return _said_framing(head) or Framing(until_close=True)


def _said_framing(head: Head) -> Framing | None:
    codings = head.values(b"transfer-encoding")
    lengths = {
        part.strip() for value in head.values(b"content-length") for part in value.split(b",")
    }
    if codings and lengths:
        raise BadMessage("both Transfer-Encoding and Content-Length")
    if codings:
        if b",".join(codings).lower().strip() != b"chunked":
            raise BadMessage("a transfer coding other than chunked", 501)
        if head.is_http_10:
            raise BadMessage("chunked in an HTTP/1.0 message")
        return Framing(chunked=True)
    if not lengths:
        return None
    (length, *others) = lengths
    if others or not length.isdigit() or len(length) > 18:
        raise BadMessage("Content-Length is not one number")
    return Framing(length=int(length))


@dataclass(frozen=True, slots=True)
class Step:
    """What a piece of input brought: bytes of this message as they came, its body in them.

    `raw` is what a relay passes on, `pieces` the body without its framing. `rest` lies behind the
    message and is the beginning of the next.
    """

    raw: bytes
    pieces: tuple[bytes, ...] = ()
    ended: bool = False
    rest: bytes = b""


class HeadReader:
    """Collects bytes until a head is whole."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        """The head's block and what follows it, or None while it is not whole."""
        buffer = self._buffer + data if self._buffer else data
        end = buffer.find(b"\r\n\r\n")
        if end > HEAD_LIMIT or (end < 0 and len(buffer) > HEAD_LIMIT):
            raise BadMessage("the head is too large", 431)
        if end < 0:
            if b"\n\n" in buffer:
                raise BadMessage("lines must end with CRLF")
            self._buffer = buffer
            return None
        self._buffer = b""
        return buffer[:end], buffer[end + 4 :]

    @property
    def is_empty(self) -> bool:
        """Whether no byte of a head has come."""
        return not self._buffer


Parser = httptools.HttpRequestParser | httptools.HttpResponseParser


class _Body:
    """What llhttp calls while a chunked body is fed to it."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.ended = False
        self.another = False

    def on_body(self, data: bytes) -> None:
        self.pieces.append(data)

    def on_message_begin(self) -> None:
        self.another = self.ended

    def on_message_complete(self) -> None:
        self.ended = True


class BodyReader:
    """Follows one body to its end."""

    def __init__(self, framing: Framing, parser: Parser, body: "_Body") -> None:
        self._framing = framing
        self._parser = parser
        self._body = body
        self._left = framing.length or 0

    def feed(self, data: bytes) -> Step:
        """What these bytes brought. Raises BadMessage for broken chunks."""
        if self._framing.until_close:
            return Step(data, (data,) if data else ())
        if self._framing.chunked:
            return self._chunks(data)
        mine, rest = data[: self._left], data[self._left :]
        self._left -= len(mine)
        return Step(mine, (mine,) if mine else (), ended=not self._left, rest=rest)

    def _chunks(self, data: bytes) -> Step:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise BadMessage(f"broken chunk: {error}") from error
        if self._body.another:
            # Where the next message begins is not said; nobody pipelines behind a chunked body.
            raise BadMessage("another message behind a chunked one")
        pieces, self._body.pieces = tuple(self._body.pieces), []
        return Step(data, pieces, ended=self._body.ended)

    def end_of_connection(self) -> bool:
        """Whether the body is whole now that the other side has closed."""
        return self._framing.until_close


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request's head, read."""

    method: bytes
    target: bytes
    head: Head
    framing: Framing


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """A response's head, read."""

    status: int
    reason: bytes
    head: Head
    framing: Framing


def accept_request(block: bytes) -> tuple[RequestHead, BodyReader]:
    """A request from its head's block. Raises BadMessage."""
    body = _Body()
    parser = httptools.HttpRequestParser(body)
    _feed_head(parser, block)
    head = read_head(block)
    method, target, version = head.start.split(b" ", 2)
    if version not in (b"HTTP/1.1", b"HTTP/1.0"):
        raise BadMessage("only HTTP/1.1 and HTTP/1.0 are spoken here", 505)
    if version == b"HTTP/1.1" and len(head.values(b"host")) != 1:
        raise BadMessage("exactly one Host is needed")
    framing = request_framing(head)
    return RequestHead(method, target, head, framing), BodyReader(framing, parser, body)


def accept_response(block: bytes, method: bytes) -> tuple[ResponseHead, BodyReader]:
    """The response to a request with this method, from its head's block. Raises BadMessage."""
    body = _Body()
    parser = httptools.HttpResponseParser(body)
    _feed_head(parser, block)
    head = read_head(block)
    status = parser.get_status_code()
    reason = head.start.split(b" ", 2)[2:] or [b""]
    framing = response_framing(head, status, method)
    return ResponseHead(status, reason[0], head, framing), BodyReader(framing, parser, body)


def _feed_head(parser: Parser, block: bytes) -> None:
    try:
        parser.feed_data(block + b"\r\n\r\n")
    except httptools.HttpParserUpgrade:
        pass  # the relay looks at Upgrade itself
    except httptools.HttpParserError as error:
        raise BadMessage(f"not HTTP: {error}") from error
