"""The routes of cassette services, as one ASGI application: discovery, documents, proxy, MCP.

| path | methods | answer |
| --- | --- | --- |
| `/openapi` | GET, HEAD | the host's document and all services', merged |
| `/v1/cassettes` | GET, HEAD | discovery |
| `/v1/cassettes/-/tools` | GET, HEAD | the tools: `?cassette=`, `?q=` |
| `/v1/cassettes/-/recheck` | POST | ask sources now: `?source=`, `?cassette=`, or all |
| `/v1/cassettes/-/metrics` | GET, HEAD | counters of each service |
| `/v1/cassettes/<name>/openapi.json` | GET, HEAD | a service's document as it is published |
| `/v1/cassettes/<name>/…` | every | the service itself |
| `/v1/mcp` | POST, GET, DELETE | the tools over MCP |

A name cannot begin with a dash, so what stands below `-` is no service's. Whatever else is asked
goes to the application that this one stands in front of, if there is one.

Rule 1: nobody is answered whom the access does not allow. Without one, somebody in front decides.
Rule 2: a route reads one snapshot and waits for no source.
Rule 3: a request has one id: the one that it came with, or a new one. The service that it is for
        gets it, the answer bears it, and what is logged of it names it.
"""

import logging
from collections.abc import Awaitable, Callable, Collection
from urllib.parse import parse_qs, urlsplit

from tapes.access import Access
from tapes.forwarding import Headers
from tapes.request_ids import identified, request_id_of
from tapes.services.calling import TOKEN_HEADER, Caller
from tapes.services.discovery import discovery, source_id, tool_list
from tapes.services.merging import Aggregate
from tapes.services.registry import Registry, Snapshot
from tapes.services.relaying import Relaying
from tapes.services.replying import (
    App,
    Message,
    Receive,
    Scope,
    Send,
    header,
    raw_path,
    reply,
    reply_document,
    reply_error,
    reply_json,
    reply_not_allowed,
)
from tapes.services.sidework import WorkFailed
from tapes.services.spelling import ordered
from tapes.services.traffic import metrics_text

log = logging.getLogger(__name__)

ROOT = b"/v1/cassettes"
MCP = b"/v1/mcp"
AGGREGATE = b"/openapi"
_METRICS = b"text/plain; version=0.0.4; charset=utf-8"

Recheck = Callable[[Collection[str] | None], Awaitable[None]]


class ServicesApp:
    """The application. It needs a running refresher, and is closed by whoever made its parts."""

    def __init__(
        self,
        registry: Registry,
        caller: Caller,
        aggregate: Aggregate,
        recheck: Recheck,
        *,
        contracts: Collection[str] = ("v1",),
        mcp: App | None = None,
        inner: App | None = None,
        access: Access | None,
        only_documented: bool = False,
        sandbox: bool = True,
    ) -> None:
        self._registry = registry
        self._caller = caller
        self._aggregate = aggregate
        self._recheck = recheck
        self._contracts = contracts
        self._mcp = mcp
        self._inner = inner
        self._access = access
        self._relaying = Relaying(caller, only_documented=only_documented, sandbox=sandbox)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or hand it to the inner application."""
        if scope["type"] != "http":
            await self._other(scope, receive, send)
            return
        path = raw_path(scope)
        if not path.startswith((b"/v1/", b"/V1/")) and path.rstrip(b"/").lower() != AGGREGATE:
            await self._other(scope, receive, send)
            return
        folded = path.rstrip(b"/").lower()
        is_below = path.startswith(ROOT + b"/") and folded != ROOT
        if not (is_below or folded in (ROOT, MCP, AGGREGATE)):
            await self._other(scope, receive, send)
            return
        request_id = request_id_of(scope["headers"])
        scope = {**scope, "headers": identified(scope["headers"], request_id)}
        send = _identifying(send, request_id)
        refused = self._why_not(scope)
        if refused is not None:
            await reply_error(send, *refused)
        elif is_below:
            await self._below(path, scope, receive, send)
        elif folded == ROOT:
            await self._discovery(scope, send)
        elif folded == AGGREGATE:
            await self._aggregated(scope, send)
        elif self._mcp is not None:
            await self._mcp(scope, receive, send)
        else:
            await reply_error(send, 404, "not_found", "this host serves no tools")

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._inner is not None:
            await self._inner(scope, receive, send)
        elif scope["type"] == "http":
            await reply_error(send, 404, "not_found", "there is nothing here")
        elif scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.complete"})
            await receive()
            await send({"type": "lifespan.shutdown.complete"})
        else:
            await send({"type": "websocket.close", "code": 1000})

    def _why_not(self, scope: Scope) -> tuple[int, str, str] | None:
        """Why somebody gets no answer (rule 1). A page of the host itself is no stranger."""
        if self._access is None:
            return None
        host = (header(scope, b"host") or b"").decode("latin-1")
        origin = (header(scope, b"origin") or b"").decode("latin-1") or None
        if origin is not None and urlsplit(origin).netloc.lower() == host.lower():
            origin = None
        token = (header(scope, TOKEN_HEADER) or b"").decode("latin-1") or None
        given = header(scope, b"authorization") or b""
        if token is None and given[:7].lower() == b"bearer ":
            token = given[7:].strip().decode("latin-1")
        why = self._access.why_not(host, token, origin)
        return None if why is None else (why.status, "not_allowed", why.why)

    # --- the host's own routes

    async def _discovery(self, scope: Scope, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            await reply_not_allowed(send, "GET", "HEAD")
        else:
            await self._reply_discovery(send)

    async def _aggregated(self, scope: Scope, send: Send) -> None:
        if scope["method"] not in ("GET", "HEAD"):
            await reply_not_allowed(send, "GET", "HEAD")
            return
        try:
            merged = await self._aggregate.document()
        except WorkFailed as error:
            await reply_error(
                send, 500, "aggregate_failed", f"the document of all services {error}"
            )
            return
        await reply_document(scope, send, merged.body, merged.etag)

    async def _below(self, path: bytes, scope: Scope, receive: Receive, send: Send) -> None:
        rest = path[len(ROOT) + 1 :]
        segment, _, last = rest.partition(b"/")
        if segment == b"-":
            await self._own(last.rstrip(b"/"), scope, send)
            return
        name = segment.decode("latin-1")
        source = self._registry.snapshot.services.get(name)
        service = None if source is None else source.service
        if service is None:
            await self._unknown(name, send)
        elif last.rstrip(b"/").lower() == b"openapi.json":
            if scope["method"] in ("GET", "HEAD"):
                await reply_document(scope, send, service.document, service.etag)
            else:
                await reply_not_allowed(send, "GET", "HEAD")
        else:
            await self._relaying.relay(service, path, scope, receive, send)

    async def _unknown(self, name: str, send: Send) -> None:
        """Say that a name is nobody's. What a source will be called is known once it was asked."""
        open_yet = sum(source.attempted is None for source in self._registry.snapshot.sources)
        what = f"no cassette is published as {name[:80]!r}"
        wait: Headers = []
        if open_yet:
            what += f" so far: {open_yet} of the sources have not been asked yet"
            wait = [(b"retry-after", b"1")]
        await reply_error(send, 404, "unknown_cassette", f"{what}; see GET /v1/cassettes", wait)

    async def _own(self, what: bytes, scope: Scope, send: Send) -> None:
        methods = ("POST",) if what == b"recheck" else ("GET", "HEAD")
        if what not in (b"recheck", b"tools", b"metrics"):
            await reply_error(send, 404, "not_found", "there are tools, recheck and metrics here")
            return
        if scope["method"] not in methods:
            await reply_not_allowed(send, *methods)
            return
        snapshot = self._registry.snapshot
        try:
            asked = parse_qs(scope["query_string"].decode("latin-1"), max_num_fields=20)
        except ValueError:
            await reply_error(send, 400, "bad_query", "a query has at most 20 members here")
            return
        if what == b"metrics":
            health = {name: str(source.health) for name, source in snapshot.services.items()}
            text = metrics_text(self._caller.traffic.values(), health)
            await reply(send, 200, text.encode(), content_type=_METRICS)
        elif what == b"tools":
            service, query = asked.get("cassette", [""])[0], asked.get("q", [""])[0]
            await reply_json(send, {"tools": tool_list(snapshot, service=service, query=query)})
        else:
            await self._rechecked(snapshot, asked, send)

    async def _rechecked(self, snapshot: Snapshot, asked: dict[str, list[str]], send: Send) -> None:
        ids, names = asked.get("source", []), asked.get("cassette", [])
        urls = [
            source.url
            for source in snapshot.sources
            if source_id(source.url) in ids or source.subject in ids or source.name in names
        ]
        if (ids or names) and not urls:
            await reply_error(send, 404, "unknown_source", "no such source is configured")
            return
        await self._recheck(urls or None)
        await self._reply_discovery(send)

    async def _reply_discovery(self, send: Send) -> None:
        said = discovery(self._registry.snapshot, self._contracts, self._caller.traffic)
        await reply(send, 200, ordered(said))


def _identifying(send: Send, request_id: bytes) -> Send:
    """Sends an answer under the id of its request (rule 3)."""

    def sent(message: Message) -> Awaitable[None]:
        if message["type"] == "http.response.start":
            message = {**message, "headers": identified(message.get("headers", ()), request_id)}
        return send(message)

    return sent
