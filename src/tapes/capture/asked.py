"""What a request head means to the proxy, found out once for all requests that have the same.

Rule 1: the upstream gets the client's lines as they came and in their order, but for `Host`,
        hop-by-hop lines, `Expect` (which is answered here) and our own `x-tapes-…`.
Rule 2: whatever is wrong with a head is an answer (Fixed), never an exception.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any

from tapes.access import Access
from tapes.capture.http1 import RequestHead
from tapes.capture.refusals import answer, refusal, told
from tapes.capture.routes import Dialect, Route, Routes, prefix_of
from tapes.capture.shelf import Shelf
from tapes.capture.upstream import Origin
from tapes.cassette import Cassette
from tapes.errors import BadSetting, CassetteError, TapesError
from tapes.exchange import Headers

OWN_PREFIX = b"x-tapes-"
CONTROL = "/_tapes/"
PING = f"{CONTROL}ping"
# What to do about a body that is too long, whichever command serves.
RAISE_LIMIT = "raise it: TAPES_PROXY_BODY_LIMIT=512MiB"
_GROUP_LIMIT = 200


class ProxyMode(StrEnum):
    """What the proxy does: one of the cassette's modes, or pass on without a tape."""

    PASS = "pass"
    REPLAY = "replay"
    RECORD = "record"
    LIVE = "live"


@dataclass(frozen=True, slots=True)
class Setup:
    """What a proxy was set up to do. `pace` is a factor on recorded times; 0 is at once."""

    mode: ProxyMode
    routes: Routes = field(default_factory=Routes.of)
    shelf: Shelf = field(default_factory=Shelf)
    access: Access = field(default_factory=Access)
    body_limit: int = 256 * 1024 * 1024
    pace: float = 0.0


@dataclass(frozen=True, slots=True)
class Fixed:
    """An answer that no body can change; with `refused` it counts as a refusal.

    It is made of the line that says where a person sees more of it.
    """

    answer: Callable[[str], bytes]
    refused: CassetteError | TapesError | None = None
    lasts = False  # what was wrong may be put right


@dataclass(frozen=True, slots=True)
class Control:
    """A question to the proxy itself."""

    path: str
    lasts = True


@dataclass(frozen=True, slots=True)
class Asked:
    """A request to be answered or passed on.

    `lines` is the head as the upstream gets it, with its blank line. `seed` is a SHA-256 over all
    but the body that can change the answer; None where no answer is given twice.
    """

    request: RequestHead
    route: Route
    origin: Origin
    url: str
    headers: Headers
    lines: bytes
    cassette: Cassette | None = None
    sample: int | None = None
    group: str | None = None
    pace: float = 0.0
    seed: Any = None  # hashlib has no public type for it
    lasts = True

    @property
    def dialect(self) -> Dialect:
        """Whose API it speaks."""
        return self.route.dialect


Noted = Asked | Fixed | Control


def note(request: RequestHead, setup: Setup, *, keeps_log: bool = False) -> Noted:
    """What a head means, also to the log where one is kept."""
    own = {
        name: request.head.values(name)[0].decode("latin-1")
        for name, _ in request.head.lines
        if name.startswith(OWN_PREFIX)
    }
    prefix = prefix_of(origin_form(request))
    target = prefix.target
    is_ping = target.partition("?")[0] == PING
    why = setup.access.why_not(
        _text(request, b"host") or "localhost",
        own.get(b"x-tapes-token", prefix.token),
        _text(request, b"origin"),
    )
    if why is not None and not (is_ping and why.status == 401):
        denied = answer(why.status, "not-allowed", why.why, None)
        return Fixed(lambda _: denied)
    if target.startswith(CONTROL):
        return Control(target.partition("?")[0])
    if request.method == b"CONNECT":
        what = "this is not a tunnel: set the client's base URL to this address instead"
        untunnelled = answer(501, "no-tunnel", what, None, close=True)
        return Fixed(lambda _: untunnelled)
    dialect = None
    try:
        names = [name for name, _ in request.head.lines]
        route = setup.routes.find(target, own.get(b"x-tapes-upstream"), names)
        dialect = route.dialect
        if keeps_log and setup.mode is ProxyMode.PASS and _can_come_over_http(request, route):
            return Fixed(partial(_over_http, dialect))
        return _asked(request, setup, route, own, own.get(b"x-tapes-tape", prefix.tape))
    except (TapesError, CassetteError) as error:
        return Fixed(partial(refusal, error, dialect), error)


def _text(request: RequestHead, name: bytes) -> str | None:
    value = request.head.value(name)
    return None if value is None else value.decode("latin-1")


def origin_form(request: RequestHead) -> str:
    """The target without scheme and authority, which a client that knows a proxy sends."""
    target = request.target.decode("latin-1")
    scheme, slashes, rest = target.partition("://")
    if not slashes or scheme.lower() not in ("http", "https"):
        return target
    return f"/{rest.partition('/')[2]}"


def _asked(
    request: RequestHead, setup: Setup, route: Route, own: dict[bytes, str], tape: str | None
) -> Noted:
    passes = setup.mode is ProxyMode.PASS
    if request.wants_websocket and not passes:
        # 426 is what makes clients that know both go on over HTTP.
        what = (
            f"a WebSocket to {route.upstream.name} cannot be recorded yet: use the provider's HTTP"
            " API, or pass it on with --mode pass"
        )
        return Fixed(
            lambda more: answer(426, "no-websocket", told(what, more), route.dialect),
            BadSetting(what),
        )
    if not passes and _only_connects(request, route):
        return Fixed(lambda _: _CONNECTED)
    origin = Origin(route.upstream.host, route.upstream.port, route.upstream.tls)
    lines = [
        f"{request.method.decode()} {route.target} HTTP/1.1".encode("latin-1"),
        f"Host: {origin.authority}".encode(),
    ]
    sent = []
    for line in request.head.end_to_end():
        name, _, value = line.partition(b":")
        lower = name.lower()
        if lower in (b"host", b"expect") or lower.startswith(OWN_PREFIX):
            continue
        lines.append(line)
        sent.append((name.decode("latin-1"), value.strip(b" \t").decode("latin-1")))
    if request.wants_websocket:
        lines += [b"Connection: Upgrade", b"Upgrade: websocket"]
    scheme = "https" if origin.tls else "http"
    url, headers = f"{scheme}://{origin.authority}{route.target}", tuple(sent)
    cassette = None if passes else setup.shelf.find(tape)
    sample = _sample(own.get(b"x-tapes-sample"))
    pace = _pace(own.get(b"x-tapes-pace"), setup.pace)
    group = own.get(b"x-tapes-group")
    seed = None
    reuses = setup.mode in (ProxyMode.REPLAY, ProxyMode.RECORD) and sample is None and not pace
    if cassette is not None and reuses and group is None and cassette.gives_again:
        text = json.dumps([request.method.decode(), url, headers, cassette.tape.path])
        seed = hashlib.sha256(text.encode() + b"\0%d\0" % request.is_http_10)
    return Asked(
        request=request,
        route=route,
        origin=origin,
        url=url,
        headers=headers,
        lines=b"\r\n".join(lines) + b"\r\n\r\n",
        cassette=cassette,
        sample=sample,
        group=None if group is None else group[:_GROUP_LIMIT],
        pace=pace,
        seed=seed,
    )


def _can_come_over_http(request: RequestHead, route: Route) -> bool:
    """Whether it is the WebSocket of a client that makes the same calls over HTTP when refused.

    What passes through a WebSocket comes into no log: Codex would be captured with no call at all.
    """
    path = route.target.partition("?")[0].rstrip("/")
    return request.wants_websocket and path.endswith("/responses")


def _over_http(dialect: Dialect, more: str) -> bytes:
    what = "calls over a WebSocket come into no log: make them over HTTP, or start with --no-log"
    return answer(426, "no-websocket", told(what, more), dialect)


_CONNECTED = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


def _only_connects(request: RequestHead, route: Route) -> bool:
    """Whether it is the HEAD with which Claude Code opens its connection before it has a prompt.

    It says nothing and waits for no answer: on a tape it would cost a live call, and a tape that
    was made without it would refuse it.
    """
    is_base = "/v1/" not in route.target and "?" not in route.target
    return request.method == b"HEAD" and route.dialect is Dialect.ANTHROPIC and is_base


def _sample(text: str | None) -> int | None:
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise BadSetting(f"x-tapes-sample: {text[:20]!r} is not a number from 0 up")
    return int(text)


def _pace(text: str | None, usual: float) -> float:
    if text is None:
        return usual
    try:
        pace = float(text)
    except ValueError:
        pace = -1.0
    if not 0 <= pace <= 1000:
        raise BadSetting(
            f"x-tapes-pace: {text[:20]!r} is not a factor from 0 up",
            "0 is at once, 1 is as recorded, 0.5 is twice as fast",
        )
    return pace
