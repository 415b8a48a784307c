"""Who may come in, and where else one may have wanted to go.

Rule 1: the token comes in `x-tapes-token`, in `Authorization: Bearer`, or as the first segment of
        the path: `/~TOKEN/…`, for programs that can only set an address.
Rule 2: a path of another of our servers is answered with that server's address.
Rule 3: whose it is, is known further in as `scope["tapes.org"]`, and cannot be changed there.

Knows nothing of what is kept.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from tapes.access import NotAllowed
from tapes.doors import Door, misdirected
from tapes.ingest.senders import Senders

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]

ORG = "tapes.org"
_OURS = (
    "/ping", "/metrics", "/openapi", "/v1/ingest", "/v1/ingest/batch", "/v1/ingest/transcript",
    "/v1/traces", "/v1/logs", "/v1/metrics",
)  # fmt: skip


def guarded(app: App, senders: Senders, addresses: Mapping[Door, str]) -> App:
    """The application, for those who may send."""

    async def answer(scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1000})
            return
        scope, token = _without_token(scope)
        host = _header(scope, b"host") or ""
        origin = _header(scope, b"origin") or None
        org = senders.org_of(
            host=host,
            token=_header(scope, b"x-tapes-token") or token,
            origin=origin,
            org=_header(scope, b"x-tapes-org") or None,
        )
        if isinstance(org, NotAllowed):
            await _say(send, org.status, org.why)
            return
        method, path = scope["method"], scope["path"]
        told = misdirected(Door.INGEST, method, path, addresses)
        if told is not None:
            await _say(send, 421, told)
            return
        if path.rstrip("/") not in _OURS:
            await _say(send, 404, f"there is no {method} {path[:100]} here; see GET /openapi")
            return
        inner = {**scope, "path": path.rstrip("/"), "raw_path": None, ORG: org}
        await app(inner, receive, send)

    return answer


def _without_token(scope: Scope) -> tuple[Scope, str | None]:
    """The request without the token in its path or its `Authorization`, and the token."""
    path = scope["path"]
    if path.startswith("/~"):
        token, _, rest = path[2:].partition("/")
        return {**scope, "path": f"/{rest}"}, token
    given = _header(scope, b"authorization") or ""
    return scope, given[7:].strip() if given[:7].lower() == "bearer " else None


def _header(scope: Scope, name: bytes) -> str | None:
    return next((value.decode("latin-1") for key, value in scope["headers"] if key == name), None)


async def _lifespan(receive: Any, send: Any) -> None:
    await receive()
    await send({"type": "lifespan.startup.complete"})
    await receive()
    await send({"type": "lifespan.shutdown.complete"})


async def _say(send: Any, status: int, text: str) -> None:
    body = json.dumps({"error": text}).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
