"""A host in front of another application: one server, one document, one life.

    app = in_front_of(api, api.openapi, Setup(sources=...))

Rule 1: the host begins before the other application does and ends after it, in one lifespan.
Rule 2: the document has the other application's operations, the host's own, and all services'.
        Where the other application describes a path of the host itself, its word stands.

Knows nothing of what the other application is.
"""

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack

from tapes.jsontext import Json
from tapes.services.described import OWN_PATHS
from tapes.services.host import Host, Setup
from tapes.services.replying import App, Message, Receive, Scope, Send
from tapes.services.trust import Lookup, system_lookup

Document = dict[str, Json]


class InFront:
    """The application: the host's routes, and the other's. `host` is the host itself."""

    def __init__(self, inner: App, host: Host) -> None:
        self.host = host
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or live: for servers that know lifespans."""
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        else:
            await self.host.app(scope, receive, send)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the host around the other application's life (rule 1)."""
        said: list[str] = []

        async def heard(message: Message) -> None:
            said.append(str(message["type"]))
            await send(message)

        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(self.host.running())
            except Exception as error:
                await receive()
                await send({"type": "lifespan.startup.failed", "message": str(error)})
                raise
            try:
                await self._inner(scope, receive, heard)
            except asyncio.CancelledError:
                raise
            except Exception:
                if said:
                    raise
            if not said:
                # An application without a life of its own, as the protocol lets it say.
                await _wait_for_the_end(receive, send)


async def _wait_for_the_end(receive: Receive, send: Send) -> None:
    await send({"type": "lifespan.startup.complete"})
    while (await receive())["type"] != "lifespan.shutdown":
        pass
    await send({"type": "lifespan.shutdown.complete"})


def in_front_of(
    inner: App,
    own_document: Callable[[], Document],
    setup: Setup,
    *,
    lookup: Lookup = system_lookup,
) -> InFront:
    """The routes of a host in front of an application with this document (rule 2).

    Whoever wants the aggregate made once lets `own_document` give the same object while nothing
    changed, as FastAPI's `openapi` does.
    """
    host = Host(setup, own_document=Described(own_document), inner=inner, lookup=lookup)
    return InFront(inner, host)


class Described:
    """A document with the host's own routes in it, made once for each document."""

    def __init__(self, own_document: Callable[[], Document]) -> None:
        self._own_document = own_document
        self._last: tuple[Document, Document] | None = None

    def __call__(self) -> Document:
        """The document. The same object for as long as the other application's is the same."""
        own = self._own_document()
        if self._last is None or self._last[0] is not own:
            self._last = (own, {**own, "paths": {**OWN_PATHS, **own.get("paths", {})}})
        return self._last[1]
