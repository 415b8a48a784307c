"""Who may come in, and where else one may have wanted to go.

Rule 1: the token comes in `x-tapes-token`, in `Authorization: Bearer`, or as the first segment of
        the path: `/~TOKEN/…`, for programs that can only set an address.
Rule 2: a path of another of our servers is answered with that server's port.

Knows nothing of what is kept.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from tapes.access import Access

Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]

_OURS = (
    "/ping", "/metrics", "/openapi", "/v1/ingest", "/v1/ingest/batch", "/v1/ingest/transcript",
    "/v1/traces", "/v1/logs", "/v1/metrics",
)  # fmt: skip
# Paths that are at home elsewhere, and where.
_READS = ("/v1/sessions", "/v1/traces", "/v1/stats", "/v1/search", "/v1/cassettes", "/v1/mcp")
_CALLS = (
    "/chat/completions", "/responses", "/messages", "/api/chat", "/api/generate", "/embeddings",
    ":generateContent", ":streamGenerateContent", "/completions",
)  # fmt: skip


def guarded(app: App, access: Access) -> App:
    """The application, for those whom the access allows."""

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
        why = access.why_not(host, _header(scope, b"x-tapes-token") or token, origin)
        if why is not None:
            await _say(send, why.status, why.why)
            return
        path = scope["path"]
        is_read = scope["method"] == "GET" and path.rstrip("/") == "/v1/traces"
        if path.rstrip("/") not in _OURS or is_read:
            await _say(send, 404, elsewhere(scope["method"], path))
            return
        await app({**scope, "path": path.rstrip("/"), "raw_path": None}, receive, send)

    return answer


def elsewhere(method: str, path: str) -> str:
    """What to say to somebody who asks for a path that is not here."""
    if path.endswith(_CALLS):
        return "this is the ingest port; model calls go to the proxy: http://127.0.0.1:8080"
    if path.startswith(_READS):
        return "this is the ingest port; the read API is at http://127.0.0.1:8081"
    return f"there is no {method} {path[:100]} here; see GET /openapi"


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
