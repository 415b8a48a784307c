"""Answers of the host itself, in ASGI's terms.

Rule 1: an error is `{"error": code, "message": prose}`. Codes are stable, messages are not.

Knows nothing of services.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from tapes.forwarding import Headers
from tapes.jsontext import Json
from tapes.services.spelling import compact

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

JSON = b"application/json"


async def reply(
    send: Send,
    status: int,
    body: bytes = b"",
    *,
    content_type: bytes = JSON,
    headers: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    """Send a whole answer."""
    given: Headers = [*headers]
    if status not in (204, 304):
        given += [(b"content-type", content_type), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": status, "headers": given})
    await send({"type": "http.response.body", "body": body})


async def reply_json(
    send: Send, value: Json, status: int = 200, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Send a JSON value."""
    await reply(send, status, compact(value), headers=headers)


async def reply_error(
    send: Send,
    status: int,
    code: str,
    message: str,
    headers: Iterable[tuple[bytes, bytes]] = (),
) -> None:
    """Send an error (rule 1)."""
    await reply_json(send, {"error": code, "message": message}, status, headers)


async def reply_not_allowed(send: Send, *methods: str) -> None:
    """Send that a path does not have this method."""
    allow = ", ".join(methods).encode()
    await reply(
        send,
        405,
        b"Method Not Allowed\n",
        content_type=b"text/plain; charset=utf-8",
        headers=[(b"allow", allow)],
    )


async def reply_document(scope: Scope, send: Send, body: bytes, etag: str) -> None:
    """Send a document with its entity tag, or that the client has it already."""
    tag = etag.encode()
    headers = [(b"etag", tag)]
    wanted = b",".join(value for name, value in scope["headers"] if name == b"if-none-match")
    if wanted and _has(wanted, tag):
        await reply(send, 304, headers=headers)
        return
    await reply(send, 200, body, headers=headers)


_TAG = re.compile(rb'(?:W/)?("[^"]*")')


def _has(wanted: bytes, tag: bytes) -> bool:
    """Whether a list of validators has this one, compared weakly, as the method asks for."""
    return wanted.strip() == b"*" or tag in _TAG.findall(wanted)


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first header of a name."""
    for key, value in scope["headers"]:
        if key == name:
            found: bytes = value
            return found
    return None


def raw_path(scope: Scope) -> bytes:
    """The path as it was sent, without the prefix under which the whole server stands."""
    path = scope.get("raw_path")
    if path is None:
        path = scope["path"].encode("utf-8", "surrogateescape")
    root = scope.get("app_root_path", scope.get("root_path", "")).encode()
    if root and path.startswith(root):
        path = path[len(root) :]
    found: bytes = path
    return found
