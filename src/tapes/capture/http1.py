"""HTTP/1.1 heads as bytes: what a relay must know of a message, and not one byte changed.

Rule 1: what two parsers could read differently goes no further. A head is lines of one grammar
        (RFC 9112, 2-5), each with its CRLF; no folding, no blank before a colon, no control
        character, no bare LF. The rest is refused, on either side.
Rule 2: a head keeps its lines as they came. Reading one never writes it.
Rule 3: the length of a message is said once (RFC 9112, 6.3): `Transfer-Encoding: chunked` alone,
        one `Content-Length`, or, for a response, the end of the connection. Both together, two
        of either, or another coding are refused.
Rule 4: hop-by-hop lines (RFC 9110, 7.6.1) end here: those that `Connection` names, and the usual.
        What says where a body ends cannot be called off by naming it.
Rule 5: HEAD, 1xx, 204 and 304 have no body, whatever their lines say.

Tests hold every head and body that is accepted here against llhttp, cut anywhere.
Sans-IO: readers are fed bytes and say what they understood.  Pure.
"""

import re
from dataclasses import dataclass

HEAD_LIMIT = 64 * 1024
HEADERS_LIMIT = 256

_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_VALUE = rb"[\t\x20-\x7e\x80-\xff]*+"
_FIELD_LINE = re.compile(rb"%b:%b" % (_TOKEN, _VALUE))
_LINES = rb"((?:\r\n%b:%b)*+)" % (_TOKEN, _VALUE)
_REQUEST = re.compile(rb"(%b) ([\x21-\x7e]++) HTTP/1\.([01])%b" % (_TOKEN, _LINES))
_RESPONSE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: (%b))?+%b" % (_VALUE, _LINES))
_ANY_VERSION = re.compile(rb"[^\r\n]* HTTP/[0-9](?:\.[0-9])?(?:\r\n|$)")

_HOP_BY_HOP = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate",
        b"proxy-authorization", b"te", b"upgrade", b"http2-settings",
    }
)  # fmt: skip
_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
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
        return [line[len(name) + 1 :].strip(b" \t") for n, line in self.lines if n == name]

    def value(self, name: bytes) -> bytes | None:
        """The value of the only line of this name; of several, the first."""
        return next(iter(self.values(name)), None)

    def tokens(self, name: bytes) -> set[bytes]:
        """The words of a comma list, in lower case, over all lines of this name."""
        return {
            token.strip(b" \t").lower()
            for value in self.values(name)
            for token in value.split(b",")
        }

    def headers(self) -> tuple[tuple[str, str], ...]:
        """Names as they were written, and values, as text (latin-1)."""
        pairs = (line.split(b":", 1) for _, line in self.lines)
        return tuple((n.decode("latin-1"), v.strip(b" \t").decode("latin-1")) for n, v in pairs)

    def end_to_end(self) -> list[bytes]:
        """The lines that go on to the other side, as they came (rule 4)."""
        ended = _HOP_BY_HOP | (self.tokens(b"connection") - _FRAMING)
        return [line for name, line in self.lines if name not in ended]


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
UNTIL_CLOSE = Framing(until_close=True)
_CHUNKED = Framing(chunked=True)


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request's head, read."""

    method: bytes
    target: bytes
    head: Head
    framing: Framing
    keeps_alive: bool
    is_http_10: bool

    @property
    def expects_continue(self) -> bool:
        """Whether the client waits for `100 Continue` before it sends its body."""
        return not self.is_http_10 and b"100-continue" in self.head.tokens(b"expect")

    @property
    def wants_websocket(self) -> bool:
        """Whether the client asks for another protocol that only a tunnel can carry.

        Another `Upgrade` (h2c) may be ignored (RFC 9110, 7.8), and is.
        """
        wants = b"upgrade" in self.head.tokens(b"connection")
        return wants and b"websocket" in self.head.tokens(b"upgrade")


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """A response's head, read."""

    status: int
    reason: bytes
    head: Head
    framing: Framing
    keeps_alive: bool

    @property
    def is_interim(self) -> bool:
        """Whether the answer itself is still to come."""
        return 100 <= self.status < 200 and self.status != 101


def read_request_head(block: bytes) -> RequestHead:
    """A request's head from its block, without the blank line. Raises BadMessage."""
    match = _REQUEST.fullmatch(block)
    if match is None:
        raise _no_request(block)
    method, target, minor, lines = match.groups()
    head = _head(block, len(block) - len(lines))
    is_http_10 = minor == b"0"
    if not is_http_10 and len(head.values(b"host")) != 1:
        raise BadMessage("exactly one Host is needed")
    framing = _said_framing(head, is_http_10) or NO_BODY
    return RequestHead(method, target, head, framing, _keeps_alive(head, is_http_10), is_http_10)


def _no_request(block: bytes) -> BadMessage:
    line = block.partition(b"\r\n")[0]
    if _ANY_VERSION.match(block) and not re.search(rb" HTTP/1\.[01]$", line):
        return BadMessage("only HTTP/1.1 and HTTP/1.0 are spoken here", 505)
    return BadMessage("this is no HTTP request, or a line of its head is malformed")


def read_response_head(block: bytes, method: bytes) -> ResponseHead:
    """The head of the response to a request with this method. Raises BadMessage."""
    match = _RESPONSE.fullmatch(block)
    if match is None:
        raise BadMessage("this is no HTTP response, or a line of its head is malformed")
    minor, digits, reason, lines = match.groups()
    head = _head(block, len(block) - len(lines))
    status, is_http_10 = int(digits), minor == b"0"
    if status == 101:
        framing: Framing | None = UNTIL_CLOSE
    elif method == b"HEAD" or status in _WITHOUT_BODY or status < 200:
        framing = NO_BODY
    else:
        framing = _said_framing(head, is_http_10)
    keeps = _keeps_alive(head, is_http_10)
    return ResponseHead(status, reason or b"", head, framing or UNTIL_CLOSE, keeps)


def _head(block: bytes, start_ends: int) -> Head:
    lines = block[start_ends + 2 :].split(b"\r\n") if start_ends < len(block) else []
    if len(lines) > HEADERS_LIMIT:
        raise BadMessage("too many header lines", 431)
    return Head(
        block[:start_ends], tuple((line[: line.index(b":")].lower(), line) for line in lines)
    )


def _keeps_alive(head: Head, is_http_10: bool) -> bool:
    """Whether the sender means to use the connection again."""
    tokens = head.tokens(b"connection")
    return b"keep-alive" in tokens if is_http_10 else b"close" not in tokens


def _said_framing(head: Head, is_http_10: bool) -> Framing | None:
    """The framing that the lines say (rule 3), or None where they say none."""
    codings = head.values(b"transfer-encoding")
    lengths = head.values(b"content-length")
    if codings and lengths:
        raise BadMessage("both Transfer-Encoding and Content-Length")
    if codings:
        if is_http_10:
            raise BadMessage("Transfer-Encoding in an HTTP/1.0 message")
        if len(codings) > 1 or codings[0].lower() != b"chunked":
            raise BadMessage("a transfer coding other than chunked", 501)
        return _CHUNKED
    if not lengths:
        return None
    if len(lengths) > 1 or not re.fullmatch(rb"[0-9]{1,18}", lengths[0]):
        raise BadMessage("Content-Length is not said once, as one number")
    return Framing(length=int(lengths[0]))


def is_field_line(line: bytes) -> bool:
    """Whether a line has the form of a header or trailer line."""
    return _FIELD_LINE.fullmatch(line) is not None


_NO_HTTP = "this port speaks HTTP without TLS: the address begins with http:"


class HeadReader:
    """Collects bytes until a head is whole."""

    def __init__(self, no_http: str = _NO_HTTP) -> None:
        """`no_http` is said of bytes that cannot begin a head: TLS, mostly."""
        self._buffer = bytearray()
        self._no_http = no_http

    def feed(self, data: bytes) -> tuple[bytes, bytes] | None:
        """The head's block and what follows it, or None while it is not whole.

        Line ends before a head are passed over (RFC 9112, 2.2). Raises BadMessage for what cannot
        become a head any more.
        """
        if not self._buffer:
            data = data.lstrip(b"\r\n")
            end = data.find(b"\r\n\r\n")
            if 0 <= end <= HEAD_LIMIT:
                return data[:end], data[end + 4 :]
            if data and not 0x21 <= data[0] <= 0x7E:
                raise BadMessage(self._no_http)
            self._buffer += data
        else:
            behind = max(0, len(self._buffer) - 3)
            self._buffer += data
            end = self._buffer.find(b"\r\n\r\n", behind)
            if 0 <= end <= HEAD_LIMIT:
                block, rest = bytes(self._buffer[:end]), bytes(self._buffer[end + 4 :])
                self._buffer.clear()
                return block, rest
        if end >= 0 or len(self._buffer) > HEAD_LIMIT:
            raise BadMessage("the head is too large", 431)
        if b"\n\n" in self._buffer:
            raise BadMessage("lines must end with CRLF")
        return None

    @property
    def is_empty(self) -> bool:
        """Whether no byte of a head has come."""
        return not self._buffer
