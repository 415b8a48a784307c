"""A host in front of another application: one server, one document, one life.

    app = in_front_of(api, api.openapi, Setup(sources=...))

    setup = Setup(sources=..., access=None, own_tokens=frozenset(hashes))
    app = in_front_of(api.inner, api.document, setup, gate=api.behind_gate)

Rule 1: the host begins before the other application does and ends after it, in one lifespan.
Rule 2: the document has the other application's operations, the host's own, and all services'.
        Where the other application describes a path of the host itself, its word stands.
Rule 3: with a gate, everything passes it, the host's routes and services too, and it alone decides
        who is answered (`access=None`). Tokens that it takes go no further (`own_tokens`).

Knows nothing of what the other application is.
"""

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

    def __init__(self, inner: App, host: Host, app: App) -> None:
        self.host = host
        self._inner = inner
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or live: for servers that know lifespans."""
        if scope["type"] == "lifespan":
            await self._live(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _live(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run the host around the other application's life (rule 1)."""
        said: list[Message] = []

        async def heard(message: Message) -> None:
            said.append(message)
            if message["type"] == "lifespan.startup.complete":
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
            except Exception:
                if said:
                    raise
            if not said:
                # An application without a life of its own, as the protocol lets it say.
                await heard({"type": "lifespan.startup.complete"})
                while (await receive())["type"] != "lifespan.shutdown":
                    pass
                await heard({"type": "lifespan.shutdown.complete"})
        # Once an end is told, a server waits for nobody: it is told when the host has ended too.
        if said[-1]["type"] != "lifespan.startup.complete":
            await send(said[-1])


def in_front_of(
    inner: App,
    own_document: Callable[[], Document],
    setup: Setup,
    *,
    gate: Callable[[App], App] | None = None,
    lookup: Lookup = system_lookup,
) -> InFront:
    """The routes of a host in front of an application with this document (rules 2, 3).

    Whoever wants the aggregate made once lets `own_document` give the same object while nothing
    changed, as FastAPI's `openapi` does.
    """
    host = Host(setup, own_document=Described(own_document), inner=inner, lookup=lookup)
    return InFront(inner, host, host.app if gate is None else gate(host.app))


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
