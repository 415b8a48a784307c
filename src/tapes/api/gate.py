"""What every request to the read API passes first, as an ASGI application around the others.

In this order: an id, who it is (`keys`), whether this is the right server, how often they ask, how
much they send. What does not pass is answered with a problem document; what passes is counted by
its route.

Rule 1: nobody learns anything before the access allows them, except from pages without data.
Rule 2: a caller is known further in as `scope["tapes.caller"]`, its tenant cannot be changed there.
Rule 3: whatever fails unforeseen is logged here, and answered without a word of what it was about.
Rule 4: a request has one id: further in it is its header, out it is the answer's, the log names it.
"""

import logging
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from tapes.access import NotAllowed
from tapes.api.keys import Caller, Keys
from tapes.api.metrics import Metrics
from tapes.api.replies import problem, problem_reply
from tapes.asgi import break_off
from tapes.doors import USUAL, Door, misdirected
from tapes.errors import TapesError
from tapes.request_ids import identified, request_id_of

log = logging.getLogger(__name__)

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

CALLER = "tapes.caller"

# Pages that hold no data: a browser has to get them before it can send a token.
OPEN_PATHS = frozenset({"/", "/ping", "/healthz", "/readyz", "/swagger"})
OPEN_FOLDER = "/ui/"
# What services are sent is bounded by their own limits; to call one is not to change the log.
_SERVICES = re.compile(r"/v1/(cassettes|mcp)(/.*)?", re.IGNORECASE)
_NO_GUESS = (b"x-content-type-options", b"nosniff")
# To find out how they would begin takes as long as to answer them.
_ENDLESS = ("/v1/changes/stream", "/v1/export")
_READING = ("GET", "HEAD", "OPTIONS")

BODY_LIMIT = 1024 * 1024
RATE = 1000.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one address may send, and how often a second it may ask (0: always)."""

    body: int = BODY_LIMIT
    rate: float = RATE
    wrong_tokens: float = 5.0


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class _Rates:
    """How often each address asks. The addresses that asked longest ago are forgotten first."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait_s(self, who: str, now: float, *, spend: bool = True) -> float:
        """0 where they may ask, else how long they have to wait."""
        if not self._rate:
            return 0.0
        most = self._rate * 2
        bucket = self._buckets.pop(who, None) or _Bucket(most, now)
        self._buckets[who] = bucket
        if len(self._buckets) > 10_000:
            self._buckets.popitem(last=False)
        bucket.left = min(most, bucket.left + (now - bucket.at) * self._rate)
        bucket.at = now
        if bucket.left < 1:
            return (1 - bucket.left) / self._rate
        bucket.left -= spend
        return 0.0


class TooLarge(HTTPException):
    """More of a body came than there may be."""

    def __init__(self, limit: int) -> None:
        super().__init__(413, f"a body may have {limit} bytes here")


@dataclass(slots=True)
class _Answer:
    """What is known of an answer under way."""

    request_id: str
    status: int = 0
    ended: bool = False


FAILED = problem_reply(problem(500, "internal", "the server failed; its log says how", "try again"))


class Gate:
    """The application that stands before all others."""

    def __init__(
        self,
        app: App,
        keys: Keys,
        metrics: Metrics,
        *,
        bounds: Bounds | None = None,
        addresses: Mapping[Door, str] = USUAL,
    ) -> None:
        self._app = app
        self._keys = keys
        self._metrics = metrics
        self._bounds = bounds or Bounds()
        self._addresses = addresses
        self._rates = _Rates(self._bounds.rate)
        self._wrong = _Rates(self._bounds.wrong_tokens)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or let it pass."""
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1000})
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.monotonic()
        scope = {**scope}  # the server's own stays as it is: it looks at the method again
        method = scope["method"]
        request_id = request_id_of(scope["headers"])
        answer = _Answer(request_id.decode())
        scope["headers"] = identified(scope["headers"], request_id)
        self._metrics.begin()
        try:
            await self._answer(scope, receive, _Sending(send, answer, method), answer)
        finally:
            route = getattr(scope.get("route"), "path", "unmatched")
            seconds = time.monotonic() - began
            known = method if method in _METHODS else "other"
            self._metrics.end(str(route), known, answer.status or 499, seconds)

    async def _answer(
        self, scope: Scope, receive: Receive, send: "_Sending", answer: _Answer
    ) -> None:
        refused = self._refusal(scope)
        if refused is not None:
            await refused(scope, receive, send)
            return
        limit = None if _SERVICES.fullmatch(scope["path"]) else self._bounds.body
        if scope["method"] == "HEAD" and limit is not None and scope["path"] not in _ENDLESS:
            scope["method"] = "GET"  # what sends the answer leaves the body out
        try:
            await self._app(scope, _bounded(receive, limit), send)
        except Exception as error:
            said = error.__cause__ if answer.status else None  # what handles errors says `from`
            if isinstance(said, TapesError):
                log.error("an answer is broken off: %s (request %s)", said, answer.request_id)
            else:
                log.exception("a request could not be answered (request %s)", answer.request_id)
            if not answer.status:
                await FAILED(scope, receive, send)
            elif not answer.ended and not break_off(scope):
                raise  # the connection is closed: what began is not whole

    # --- who, where, how often, how much

    def _refusal(self, scope: Scope) -> Response | None:
        path, method = scope["path"], scope["method"]
        if "\0" in path or b"%00" in scope["query_string"] or b"\0" in scope["query_string"]:
            return _refused(400, "bad-request", "a NUL is no part of a path or a query")
        who = str((scope.get("client") or ("somebody",))[0])
        now = time.monotonic()
        wait = self._rates.wait_s(who, now) or self._wrong.wait_s(who, now, spend=False)
        if wait:
            said = problem(429, "too-many", "too many requests from one address", "wait a little")
            return problem_reply(said, {"retry-after": str(max(1, round(wait)))})
        is_open = method in _READING and (path in OPEN_PATHS or path.startswith(OPEN_FOLDER))
        caller = self._caller(scope)
        if isinstance(caller, NotAllowed):
            if caller.status == 401:
                if is_open:
                    return None
                self._wrong.wait_s(who, now)
            headers = {"www-authenticate": "Bearer"} if caller.status == 401 else {}
            return problem_reply(problem(caller.status, "not-allowed", caller.why), headers)
        told = misdirected(Door.API, method, path, self._addresses)
        if told is not None:
            return _refused(421, "wrong-port", told)
        if not (caller.may_change or method in _READING or _SERVICES.fullmatch(path)):
            return _refused(403, "not-allowed", f"{caller.name} may only read")
        length = _header(scope, b"content-length")
        is_large = length.isdecimal() and int(length[:20]) > self._bounds.body
        if is_large and not _SERVICES.fullmatch(path):
            return self._too_large()
        scope[CALLER] = caller
        return None

    def _caller(self, scope: Scope) -> Caller | NotAllowed:
        given = _header(scope, b"authorization")
        token = _header(scope, b"x-tapes-token") or None
        if token is None and given[:7].lower() == "bearer ":
            token = given[7:].strip()
        return self._keys.caller(
            host=_header(scope, b"host"),
            origin=_header(scope, b"origin") or None,
            token=token,
            org=_header(scope, b"x-tapes-org") or None,
        )

    def _too_large(self) -> Response:
        return _refused(413, "too-large", f"a body may have {self._bounds.body} bytes here")


_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class _Sending:
    """Sends an answer with the request's id; to HEAD without its body."""

    def __init__(self, send: Send, answer: _Answer, method: str) -> None:
        self._send, self._answer, self._method = send, answer, method

    async def __call__(self, message: Message) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            self._answer.status = message["status"]
            headers = identified(message.get("headers", ()), self._answer.request_id.encode())
            headers = [pair for pair in headers if pair[0] != _NO_GUESS[0]] + [_NO_GUESS]
            message = {**message, "headers": headers}
        elif message["type"] == "http.response.body":
            self._answer.ended = not message.get("more_body", False)
            if self._method == "HEAD":
                message = {**message, "body": b""}
        await self._send(message)


def _refused(status: int, code: str, detail: str) -> Response:
    return problem_reply(problem(status, code, detail))


def _header(scope: Scope, name: bytes) -> str:
    for key, value in scope["headers"]:
        if key == name:
            found: str = value.decode("latin-1")
            return found
    return ""


def _bounded(receive: Receive, limit: int | None) -> Receive:
    if limit is None:
        return receive
    size = 0

    async def bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > limit:
            raise TooLarge(limit)
        return message

    return bounded
