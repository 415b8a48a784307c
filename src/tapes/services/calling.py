"""A request to a service on its way: in a slot, within limits, told from credentials of ours.

Rule 1: whoever asks a service, the reverse proxy or a tool call, asks here: the same slots, the
        same breaker, the same counters.
Rule 2: what authenticates a caller to the host goes no further: the host's token, in its own header
        or as the bearer, and the host's cookies.
Rule 3: a service speaks for itself alone. On the way back it sets none of the host's cookies, and
        nothing that would hold for the whole origin that it shares with the host.

Knows nothing of ASGI or MCP.
"""

import hmac
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager

from tapes.access import token_hash
from tapes.errors import TooSlow, Unreachable
from tapes.forwarding import Answer, Body, Headers, Patience, Sender, end_to_end
from tapes.services.admission import Service
from tapes.services.traffic import Limits, Traffic

TOKEN_HEADER = b"x-tapes-token"
SERVICE_HEADER = b"x-tapes-cassette"
TIMEOUT_HEADER = b"x-tapes-timeout-ms"
_OUR_COOKIES = (b"tapes_", b"__host-tapes_", b"__secure-tapes_")
# Headers of an answer that a browser takes for a word of the whole origin, not of one path.
ORIGIN_WIDE = frozenset(
    {
        b"alt-svc",
        b"clear-site-data",
        b"nel",
        b"report-to",
        b"reporting-endpoints",
        b"service-worker-allowed",
        b"strict-transport-security",
    }
)


class Caller:
    """Asks services on behalf of others."""

    def __init__(
        self,
        sender: Sender,
        limits: Callable[[str], Limits] = lambda _: Limits(),
        *,
        tokens: Collection[str] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sender = sender
        self._limits = limits
        self._tokens = tuple(tokens)
        self._clock = clock
        self.traffic: dict[str, Traffic] = {}

    def traffic_of(self, name: str) -> Traffic:
        """The slots and counters of a service."""
        found = self.traffic.get(name)
        if found is None:
            found = self.traffic[name] = Traffic(name, self._limits(name))
        return found

    def hold_to(self, limits: Callable[[str], Limits]) -> None:
        """Hold services to other limits from now on."""
        self._limits = limits
        for name, traffic in self.traffic.items():
            traffic.hold_to(limits(name))

    @asynccontextmanager
    async def ask(
        self,
        service: Service,
        method: str,
        target: bytes,
        headers: Headers,
        *,
        body: Body = None,
        silence_s: float | None = None,
    ) -> AsyncIterator[Answer]:
        """Send a request to a service. Raises Busy, Unreachable, TooSlow.

        A body that breaks off is a failure of whoever sends it, and not of the service.
        """
        traffic = self.traffic_of(service.name)
        given = _Given(body)
        start = self._clock()
        which = traffic.enter(start)
        limits = traffic.limits
        patience = Patience(limits.connect_s, silence_s or limits.silence_s)
        asked = self._sender.ask(
            method, service.origin, target, headers, body=given.body, patience=patience
        )
        try:
            try:
                answer = await asked.__aenter__()
            except (Unreachable, TooSlow) as error:
                if not given.broke_off:
                    traffic.failed(error.slug, which, self._clock())
                raise
            try:
                traffic.answered(answer.status, self._clock() - start)
                yield answer
            finally:
                await asked.__aexit__(None, None, None)
        finally:
            traffic.leave(which)

    # --- headers

    def without_ours(self, headers: Iterable[tuple[bytes, bytes]]) -> Headers:
        """The headers of a request without what is meant for the host (rule 2)."""
        kept: Headers = []
        for name, value in headers:
            if name == TOKEN_HEADER or (name == b"authorization" and self.is_ours(value)):
                continue
            if name == b"cookie":
                value = _without_our_cookies(value)
                if not value:
                    continue
            kept.append((name, value))
        return kept

    def is_ours(self, authorization: bytes) -> bool:
        """Whether these credentials are a token of the host's. Only hashes of those are known."""
        if not self._tokens:
            return False
        scheme, _, token = authorization.partition(b" ")
        given = token_hash(token.strip().decode("latin-1"))  # as whoever lets callers in reads it
        return scheme.lower() == b"bearer" and any(
            hmac.compare_digest(given, token) for token in self._tokens
        )


class _Given:
    """A body, and whether it broke off while it came."""

    def __init__(self, body: Body) -> None:
        self.body = body if body is None or isinstance(body, bytes) else self._watched(body)
        self.broke_off = False

    async def _watched(self, pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        try:
            async for piece in pieces:
                yield piece
        except Exception:
            self.broke_off = True
            raise


def _without_our_cookies(value: bytes) -> bytes:
    cookies = (cookie.strip() for cookie in value.split(b";"))
    return b"; ".join(c for c in cookies if c and not c.lower().startswith(_OUR_COOKIES))


def _sent_back(cookie: bytes) -> bytes:
    """A cookie as a browser sends it back: one without a name is its value alone."""
    return cookie.lstrip(b" \t=").lower()


def answer_headers(headers: Iterable[tuple[bytes, bytes]]) -> Headers:
    """The headers of an answer as a client may have them (rule 3)."""
    return [
        (name, value)
        for name, value in end_to_end(headers)
        if name not in ORIGIN_WIDE
        and not (name == b"set-cookie" and _sent_back(value).startswith(_OUR_COOKIES))
    ]
