"""The time of an answer, said once: by whoever made the answer, else by the server.

Servers that put their own `Date` on everything say it twice where an answer is another's.

Knows nothing of who answers.
"""

import time
from collections.abc import Awaitable, Callable, MutableMapping
from email.utils import formatdate
from typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Callable[[], Awaitable[Message]], Send], Awaitable[None]]

_DATE = b"date"


def dated(app: App, clock: Callable[[], float] = time.time) -> App:
    """An ASGI application whose answers have a `Date`, for a server that adds none."""

    async def answered(
        scope: MutableMapping[str, Any], receive: Callable[[], Awaitable[Message]], send: Send
    ) -> None:
        def sent(message: Message) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                if not any(name == _DATE for name, _ in headers):
                    said = formatdate(clock(), usegmt=True).encode()
                    message = {**message, "headers": [*headers, (_DATE, said)]}
            return send(message)

        await app(scope, receive, sent)

    return answered
