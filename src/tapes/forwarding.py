"""Send a request on and stream its answer back, changing nothing that need not change.

Rule 1: what belongs to one connection ends with it: `Connection`, all that it names, and the
        other hop-by-hop headers, on the way there and on the way back.
Rule 2: who asked is said by this hop alone. What a client says of that itself is dropped.
Rule 3: a connection is made only to an address that the gate allows at that moment, whatever name
        led to it, and one that is kept is used only while its host has such an address. No
        redirect is followed, nothing is decoded, no cookie is kept, no header added.
Rule 4: time is limited: for connecting, and for every wait in which nothing comes.
Rule 5: an answer that breaks off raises. It never looks like one that ended.

The client is aiohttp. Measured with 1.5 KB of JSON on 16 connections, a request through uvicorn
and aiohttp takes 0.2 ms of processor time, of which uvicorn's own part is 0.04; httpx takes about
2 ms. That is ten times more than a relay on asyncio's protocols would take, reaches what is asked
for (docs/services.md), and leaves HTTP/1.1 and its traps to a client that everybody uses.

Knows nothing of services, tapes or ASGI.
"""

import asyncio
import os
import re
import socket
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from tapes.errors import BrokenAnswer, TooSlow, Unreachable

# Names in lower case, as ASGI has them; values as they came.
Headers = list[tuple[bytes, bytes]]

# --- headers ----------------------------------------------------------------------------------

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"proxy-connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_FORWARDED = frozenset(
    {b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-forwarded-proto"}
)
# The connection to the other side has its own.
_OURS = frozenset({b"host", b"expect"})


def end_to_end(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers that go beyond this connection, in their order, repeated ones repeated."""
    found = [(name.lower(), value) for name, value in headers]
    named = {
        token.strip().lower()
        for name, value in found
        if name == b"connection"
        for token in value.split(b",")
    }
    return [
        (name, value)
        for name, value in found
        # What a body's framing or its receiver rests on cannot be called off by naming it.
        if name not in _HOP_BY_HOP and (name not in named or name in (b"content-length", b"host"))
    ]


def sent_on(headers: Iterable[tuple[bytes, bytes]], *, trailers: bool = True) -> Headers:
    """The headers of a request for the next hop, without what this hop says itself (rules 1, 2)."""
    given = list(headers)
    result = [
        (name, value)
        for name, value in end_to_end(given)
        if name not in _FORWARDED and name not in _OURS
    ]
    if trailers and any(
        name.lower() == b"te" and b"trailers" in value.lower() for name, value in given
    ):
        result.append((b"te", b"trailers"))
    return result


def forwarded(peer: str, host: bytes, scheme: str) -> Headers:
    """Who asked, and for what: the peer's address, the name it used, and how it came."""
    said = [(b"x-forwarded-for", peer.encode("latin-1", "replace"))] if peer else []
    return [*said, (b"x-forwarded-host", host), (b"x-forwarded-proto", scheme.encode())]


# --- addresses --------------------------------------------------------------------------------


class Gate(Protocol):
    """Which addresses may be connected to."""

    def addresses(self, host: str) -> Sequence[str]:
        """The addresses of a host that were found and judged before; none where there are none."""
        ...

    def allows(self, address: str) -> bool:
        """Whether a connection to this address may be made now."""
        ...


class _Resolver(AbstractResolver):
    """Gives the addresses that the gate knows; asks nobody."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,  # noqa: ARG002  # each is of its own
    ) -> list[ResolveResult]:
        found = self._gate.addresses(host)
        if not found:
            raise OSError(f"no address of {host} may be connected to")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in found
        ]

    async def close(self) -> None:
        """Nothing is held."""


# --- asking -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to wait: for a connection, and whenever nothing comes (rule 4)."""

    connect_s: float = 10.0
    silence_s: float = 300.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The head of an answer, and its body as it comes."""

    status: int
    reason: str
    headers: Headers
    _content: aiohttp.StreamReader
    _silence: "_Silence"
    _subject: str

    async def piece(self) -> bytes:
        """The next piece of the body as soon as it is there; nothing at the end.

        Raises BrokenAnswer, TooSlow.
        """
        try:
            if self._content.is_eof():
                return self._content.read_nowait()
            self._silence.began()
            return await self._content.readany()
        except _FAILURES as error:
            raise _failure(error, self._subject, answered=True) from error
        finally:
            self._silence.ended()

    @property
    def has_ended(self) -> bool:
        """Whether all pieces have been given."""
        return self._content.at_eof()

    async def body(self, limit: int) -> bytes | None:
        """The whole body, or None where it is larger. Raises BrokenAnswer, TooSlow."""
        data = bytearray()
        while piece := await self.piece():
            data += piece
            if len(data) > limit:
                return None
        return bytes(data)


class _Silence:
    """Breaks an answer off when somebody waits for a piece of it for too long (rule 4).

    The client's own timer is made anew for each piece, which takes up to a tenth of the time that
    passing one on does. This one looks once in a while how long the wait has been.
    """

    def __init__(self, content: aiohttp.StreamReader, longest_s: float) -> None:
        self._content = content
        self._longest_s = longest_s
        self._loop = asyncio.get_running_loop()
        self._since: float | None = None
        self._timer: asyncio.TimerHandle | None = None

    def began(self) -> None:
        """Somebody waits from now on."""
        self._since = self._loop.time()
        if self._timer is None:
            self._look_after(self._longest_s)

    def ended(self) -> None:
        """Nobody waits: something came."""
        self._since = None

    def close(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look_after(self, seconds: float) -> None:
        self._timer = self._loop.call_later(seconds, self._look)

    def _look(self) -> None:
        waited = 0.0 if self._since is None else self._loop.time() - self._since
        if waited < self._longest_s:
            self._look_after(self._longest_s - waited)
        else:
            self._content.set_exception(TimeoutError())


Body = bytes | AsyncIterator[bytes] | None

_FAILURES = (aiohttp.ClientError, asyncio.TimeoutError, OSError, ValueError)
# Servers commonly close a connection that was idle for five seconds; it is let go before.
_IDLE_S = 3.0
_WHOLE = 256 * 1024
# What may stand in a target as it is; all else is escaped, so that no byte can end the line.
_UNSAFE = re.compile(rb"[^!$%&'()*+,\-./0-9:;=?@A-Z\[\]_a-z~|]")


class Sender:
    """An HTTP client that keeps the rules above. To be opened and closed on one loop."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._session: aiohttp.ClientSession | None = None
        self._timeouts: dict[Patience, aiohttp.ClientTimeout] = {}

    async def open(self) -> None:
        """Get ready."""
        connector = aiohttp.TCPConnector(
            limit=0,  # how many at once is decided for each receiver by whoever asks
            use_dns_cache=False,
            resolver=_Resolver(self._gate),
            keepalive_timeout=_IDLE_S,
            socket_factory=self._socket,
        )
        self._session = aiohttp.ClientSession(
            connector=connector,
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("accept", "accept-encoding", "content-type", "user-agent"),
            trust_env=False,
            max_line_size=64 * 1024,
            max_field_size=64 * 1024,
            read_bufsize=256 * 1024,
        )

    async def close(self) -> None:
        """Let all connections go."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _socket(self, info: Any) -> socket.socket:
        """The socket of a connection, made only to an address that is allowed (rule 3)."""
        family, kind, proto, _, address = info
        if not self._gate.allows(address[0]):
            raise OSError(f"the address {address[0]} may not be connected to")
        made = socket.socket(family=family, type=kind, proto=proto)
        made.setblocking(False)
        return made

    @asynccontextmanager
    async def ask(
        self,
        method: str,
        origin: str,
        target: bytes,
        headers: Headers,
        *,
        body: Body = None,
        patience: Patience | None = None,
    ) -> AsyncIterator[Answer]:
        """Send a request; the answer is there from its head on.

        `target` is path and query as they are to be sent. A body that comes in pieces is sent as
        it comes. Raises Unreachable, TooSlow; leaving early closes the connection.
        """
        session = self._session
        if session is None:
            raise Unreachable(f"{origin} is not asked: the client is closed")
        patience = patience or Patience()
        timeout = self._timeouts.get(patience)
        if timeout is None:
            timeout = self._timeouts[patience] = aiohttp.ClientTimeout(
                total=None, sock_connect=patience.connect_s, sock_read=patience.silence_s
            )
        try:
            url = _url(origin, _UNSAFE.sub(_escaped, target).decode())
            host = url.raw_host or ""
        except ValueError as error:  # a port that there cannot be
            raise _failure(error, origin, answered=False) from error
        if not self._gate.addresses(host):
            raise Unreachable(f"{origin} is not asked: its host has no address that may be asked")
        try:
            asked = session.request(
                method,
                url,
                headers=[(name.decode("latin-1"), _value(value)) for name, value in headers],
                data=_in_pieces(body) if isinstance(body, bytes) and len(body) > _WHOLE else body,
                allow_redirects=False,
                timeout=timeout,
            )
            response = await asked.__aenter__()
        except _FAILURES as error:
            raise _failure(error, origin, answered=False) from error
        silence = _Silence(response.content, patience.silence_s)
        if response.connection is not None and response.connection.protocol is not None:
            response.connection.protocol.read_timeout = None  # from here on it is `silence`
        try:
            found = [(name.lower(), value) for name, value in response.raw_headers]
            reason = response.reason or ""
            yield Answer(response.status, reason, found, response.content, silence, origin)
        finally:
            silence.close()
            if response.content.is_eof() or response.closed:
                response.release()
            else:
                response.close()


async def _in_pieces(body: bytes) -> AsyncIterator[bytes]:
    """A large body, so that what else is under way gets its turn between two pieces."""
    for start in range(0, len(body), _WHOLE):
        yield body[start : start + _WHOLE]


def _url(origin: str, target: str) -> URL:
    if not target.endswith("?"):
        return URL(origin + target, encoded=True)
    # Parted from its path, a query of nothing would be lost.
    scheme, _, authority = origin.partition("://")
    return URL.build(scheme=scheme, authority=authority, path=target, encoded=True)


def _escaped(match: re.Match[bytes]) -> bytes:
    return b"%%%02X" % match[0][0]


def _value(value: bytes) -> str:
    # aiohttp writes headers in UTF-8; what is not valid in it has no other way through.
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _failure(
    error: BaseException, subject: str, *, answered: bool
) -> Unreachable | TooSlow | BrokenAnswer:
    """A failure of the client in our own words. The one place where they are translated."""
    if isinstance(error, asyncio.TimeoutError):
        return TooSlow(f"{subject} did not answer in time")
    why = _reason(error)
    if answered:
        return BrokenAnswer(f"the answer of {subject} broke off: {why}")
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientResponseError):
        return Unreachable(f"{subject} was reached, but {why}")
    # Those of a connection that could not be made have a class of their own.
    if isinstance(error, aiohttp.ClientOSError | ConnectionResetError) and not isinstance(
        error, aiohttp.ClientConnectorError
    ):
        return Unreachable(f"{subject} was reached, but it reset the connection before it answered")
    return Unreachable(f"{subject} cannot be reached: {why}")


def _reason(error: BaseException) -> str:
    if isinstance(error, aiohttp.ServerDisconnectedError):
        return "it closed the connection before it answered"
    if isinstance(error, aiohttp.ClientConnectorError):
        cause = error.os_error
        return os.strerror(cause.errno) if cause.errno else str(cause)
    if isinstance(error, aiohttp.ClientPayloadError):
        return "it closed the connection in the middle of a body"
    if isinstance(error, aiohttp.ClientResponseError):
        return f"what it answered is not HTTP ({error.message.splitlines()[0].rstrip(':')})"
    return (str(error) or type(error).__name__).splitlines()[0][:200]
