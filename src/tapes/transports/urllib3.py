"""Record and replay for urllib3, on which requests, botocore and others stand.

Rule 1: while recording and in replay the caller's response is made in one way: urllib3's and
        http.client's own response objects, told their head, reading from a file that gives the
        pieces, framed as chunks where the response is chunked. So whatever reads it behaves as it
        does live.
Rule 2: a piece ends where a chunk ends, and is passed on without waiting for more of it.
Rule 3: a piece is in the recording before the caller sees it, and the recording is whole and
        durable before the caller sees the end.
Rule 4: nothing connects, not even to a proxy, before there is a permit.
"""

import http.client
import io
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, _ResponseOptions
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import ReadTimeoutError
from urllib3.util import SKIP_HEADER, parse_url
from urllib3.util.request import body_to_chunks

from tapes import guard, telemetry
from tapes.cassette import Play
from tapes.exchange import Headers, Request, Response, State, header
from tapes.guarding.replacing import Function, Replacements
from tapes.lanes import (
    SAMPLE_HEADER,
    Answer,
    Lane,
    answer,
    current,
    end,
    for_this_call,
    settle,
    without_sample,
)
from tapes.permit import Permit

_PORTS = {"http": 80, "https": 443}
_AT_MOST = 64 * 1024
_FOLD = re.compile(r"\r?\n[ \t]+")
# What `_make_request` takes behind the headers, in order.
_OPTIONS = ("retries", "timeout", "chunked", "response_conn", "preload_content", "decode_content",
            "enforce_content_length")  # fmt: skip
_NO_BODY = (*range(100, 200), 204, 304)
# Set on a connection whose tunnel through a proxy waits for a permit.
_TUNNEL = "_tapes_tunnel_waits"


def cover(replacements: Replacements) -> None:
    """Have connection pools ask the lane of the moment."""
    connect = HTTPSConnectionPool._prepare_proxy
    replacements.replace(HTTPSConnectionPool, "_prepare_proxy", _deferred)
    replacements.replace(HTTPConnectionPool, "_make_request", partial(_entry, connect))


def _deferred(original: Function) -> Function:
    def _prepare_proxy(pool: Any, conn: Any) -> None:
        if current() is None:
            original(pool, conn)
        else:
            setattr(conn, _TUNNEL, True)

    return _prepare_proxy


@dataclass(slots=True)
class _Call:
    """What a pool was asked to send."""

    pool: Any
    conn: Any
    method: str
    url: str
    body: Any
    headers: Any
    options: dict[str, Any]


def _entry(connect: Function, original: Function) -> Function:
    def _make_request(
        pool: Any,
        conn: Any,
        method: str,
        url: str,
        body: Any = None,
        headers: Any = None,
        *positional: Any,
        **options: Any,
    ) -> Any:
        options.update(zip(_OPTIONS, positional, strict=False))
        call = _Call(pool, conn, method, url, body, headers, options)
        lane = current()
        send = partial(_send, connect, original)
        return send(call) if lane is None or _passes(lane, call) else _answered(lane, call, send)

    return _make_request


def _send(connect: Function, original: Function, call: _Call) -> Any:
    """Send for real, through the proxy that was not spoken to so far, and ask nobody again."""
    pool, conn = call.pool, call.conn
    with for_this_call(None):
        if conn.__dict__.pop(_TUNNEL, False) and conn.is_closed:
            try:
                connect(pool, conn)
            except OSError as error:
                pool._raise_timeout(err=error, url=pool.proxy.url, timeout_value=conn.timeout)
                raise
        return original(pool, conn, call.method, call.url, call.body, call.headers, **call.options)


def _answered(lane: Lane, call: _Call, send: Callable[[_Call], Any]) -> Any:
    """The response to a request: from the tape, or from `send` while it is recorded."""
    body, whole = _read(call.body, call.method)
    sent, sample = without_sample(_headers(call.headers or {}))
    verdict = settle(lane, Request(call.method, _url(call), sent, whole), sample)
    if isinstance(verdict, Play):
        played = answer(lane, verdict)
        return _response(call, played.response, _Wire(_played(played)))
    headers = call.headers
    if sample is not None:
        headers = urllib3.HTTPHeaderDict(headers)
        headers.discard(SAMPLE_HEADER)
    ours = {"preload_content": False, "decode_content": False, "response_conn": None}
    try:
        live = send(replace(call, body=body, headers=headers, options=call.options | ours))
        original: http.client.HTTPResponse = live._original_response
    except BaseException as error:
        end(partial(verdict.failed, we_left=_we_left(error)))
        raise
    head = Response(original.status, _live_headers(original), reason=original.reason)
    verdict.answered(head.status, head.headers, head.reason)
    if original.isclosed() or original.length == 0:
        end(verdict.finish)
    return _response(call, head, _Wire(_recorded(head, original, verdict), live, verdict))


def _we_left(error: BaseException) -> bool:
    """Whether a call that got no answer was left by its caller, after it may have been sent."""
    return not isinstance(error, Exception) or isinstance(error, ReadTimeoutError | TimeoutError)


# --- values of the library ⇄ ours -------------------------------------------------------------


def _destination(call: _Call) -> tuple[str, str, int | None]:
    """Scheme, host and port, also of a request that a proxy forwards."""
    pool = call.pool
    if call.url.startswith("/"):
        return pool.scheme, pool.host, pool.port or _PORTS.get(pool.scheme)
    parts = parse_url(call.url)
    scheme = parts.scheme or pool.scheme
    return scheme, parts.host or pool.host, parts.port or _PORTS.get(scheme)


def _passes(lane: Lane, call: _Call) -> bool:
    _, host, port = _destination(call)
    upgrades = "websocket" in (header(_headers(call.headers or {}), "upgrade") or "").lower()
    told = telemetry.tells(call.method, _url(call), _headers(call.headers or {}))
    return guard.passes_by(lane, host, port, upgrades=upgrades, is_telemetry=told)


def _url(call: _Call) -> str:
    if not call.url.startswith("/"):
        return call.url
    scheme, host, port = _destination(call)
    host = f"[{host.strip('[]')}]" if ":" in host else host
    return f"{scheme}://{host}{'' if port == _PORTS.get(scheme) else f':{port}'}{call.url}"


def _headers(headers: Mapping[Any, Any]) -> Headers:
    pairs = ((_text(name), _text(value)) for name, value in headers.items())
    return tuple(pair for pair in pairs if pair[1] != SKIP_HEADER)


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _live_headers(response: http.client.HTTPResponse) -> Headers:
    # Folded lines (RFC 9112, 5.2) are one line on a tape.
    return tuple((name, _FOLD.sub(" ", value)) for name, value in response.headers.items())


def _read(body: Any, method: str) -> tuple[Any, bytes]:
    """A body to send in place of this one, which may be read only once, and its bytes."""
    if body is None or isinstance(body, bytes):
        return body, body or b""
    chunks: Any = body_to_chunks(body, method=method, blocksize=_AT_MOST)
    parts = list(map(_as_bytes, chunks.chunks or ()))
    return (parts if chunks.content_length is None else body), b"".join(parts)


def _as_bytes(part: Any) -> bytes:
    return part.encode() if isinstance(part, str) else bytes(part)


def _response(call: _Call, head: Response, wire: "_Wire") -> Any:
    """A response of the library's own making, as a connection makes it that read `wire`."""
    options = call.options
    conn: Any = HTTPConnection(call.pool.host)  # some of its attributes are the library's own
    conn.sock = _Socket(wire)
    conn.response_class = partial(_Response, head)
    # As its `request` does, without headers: nobody reads them.
    conn._response_options = _ResponseOptions(
        call.method, call.url, *(options.get(name, True) for name in _OPTIONS[4:])
    )
    conn.putrequest(call.method, call.url, skip_host=True, skip_accept_encoding=True)
    conn.endheaders()
    response = conn.getresponse()
    # As `_make_request` does, for whoever gives the connection back.
    response.retries = options.get("retries")
    response._connection = options.get("response_conn")
    response._pool = call.pool
    return response


class _Response(http.client.HTTPResponse):
    """A response that is told its head, and reads the rest."""

    def __init__(self, head: Response, sock: Any, *, method: str) -> None:
        super().__init__(sock, method=method)
        self._head = head
        self._has_body = method != "HEAD" and head.status not in _NO_BODY

    def begin(self) -> None:
        """As the library does after it has read a head (RFC 9112, 6.3)."""
        head = self._head
        self.code = self.status = head.status
        self.reason = head.reason
        self.version = 11
        self.headers = self.msg = http.client.HTTPMessage()
        for name, value in head.headers:
            self.headers[name] = value
        self.chunked = _is_chunked(head.headers)
        self.chunk_left = None
        self.length = None if self._has_body else 0
        if self._has_body and not self.chunked:
            length = header(head.headers, "content-length") or ""
            self.length = int(length) if length.isdecimal() else None
        self.will_close = True  # nothing else comes over this wire


# --- the wire ---------------------------------------------------------------------------------


class _Socket:
    """What a connection needs of a socket to read a response; what it sends goes nowhere."""

    def __init__(self, wire: "_Wire") -> None:
        self._wire = wire

    def makefile(self, *_: object) -> io.BufferedReader:
        return io.BufferedReader(self._wire)

    def sendall(self, data: object) -> None: ...

    def settimeout(self, seconds: object) -> None: ...

    def shutdown(self, how: int) -> None:
        self._wire.shutdown(how)

    def close(self) -> None: ...


class _Wire(io.RawIOBase):
    """The bytes of a response, made as they are read."""

    def __init__(
        self, pieces: Iterator[bytes], live: Any = None, permit: Permit | None = None
    ) -> None:
        self._pieces = pieces
        self._rest = memoryview(b"")
        self._live = live
        self._permit = permit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._rest:
            piece = next(self._pieces, None)
            if piece is None:
                return 0
            self._rest = memoryview(piece)
        count = min(len(buffer), len(self._rest))
        buffer[:count] = self._rest[:count]
        self._rest = self._rest[count:]
        return count

    def shutdown(self, how: int) -> None:
        if self._live is not None:
            self._live._sock_shutdown(how)

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        if self._permit is None:
            return
        try:
            self._live.close()
        finally:
            end(partial(self._permit.abandon, State.ABORTED_BY_CLIENT))


def _is_chunked(headers: Headers) -> bool:
    return (header(headers, "transfer-encoding") or "").lower() == "chunked"


def _framing(headers: Headers) -> tuple[Callable[[bytes], bytes], bytes]:
    """How pieces stand on the wire, and what stands at their end."""
    if not _is_chunked(headers):
        return bytes, b""
    return lambda piece: b"%x\r\n%b\r\n" % (len(piece), piece), b"0\r\n\r\n"


def _played(played: Answer) -> Iterator[bytes]:
    framed, last = _framing(played.response.headers)
    for piece in played.response.pieces:
        wait = played.wait(piece)
        if wait:
            time.sleep(wait)
        yield framed(piece.data)
    if last:
        yield last


def _recorded(head: Response, live: http.client.HTTPResponse, permit: Permit) -> Iterator[bytes]:
    framed, last = _framing(head.headers)
    try:
        while piece := _next_piece(live):
            permit.feed(piece)
            if live.length == 0:
                live.close()
                end(permit.finish)
            yield framed(piece)
    except Exception:
        end(partial(permit.abandon, State.UPSTREAM_ERROR))
        raise
    if live.length:
        end(partial(permit.abandon, State.UPSTREAM_ERROR))
        return  # the caller's response sees that it is too short, in its own words
    live.close()
    end(permit.finish)
    if last:
        yield last


def _next_piece(live: http.client.HTTPResponse) -> bytes:
    """What has come of the body: waits for its first byte only, and stops where a chunk ends."""
    parts = [live.read1(_AT_MOST)]
    size = len(parts[0])
    while size and size < _AT_MOST and (live.chunk_left or not live.chunked) and _has_come(live):
        parts.append(live.read1(_AT_MOST - size))
        if not parts[-1]:
            break
        size += len(parts[-1])
    return b"".join(parts)


def _has_come(live: http.client.HTTPResponse) -> bool:
    """Whether there is more to read at once."""
    raw = getattr(live.fp, "raw", None)
    sock = getattr(raw, "_sock", None)
    if sock is None or live.length == 0:
        return False
    seconds = sock.gettimeout()
    sock.settimeout(0)
    try:
        return bool(live.fp.peek(1))
    except OSError:
        return False  # nothing yet; or a fault, which reading will tell
    finally:
        sock.settimeout(seconds)
