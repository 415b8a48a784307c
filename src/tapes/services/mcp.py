"""The tools of all services over MCP, at `/v1/mcp`: the official SDK behind the contract's HTTP.

Rule 1: stateless. Every request stands alone and sees the services as they are now; a session id
        is given to clients that want one, and nothing depends on it but their own cancellations.
Rule 2: what the contract says of HTTP holds before the SDK sees a request: the statuses for what
        cannot be a request, batches for the protocol versions that have them.
Rule 3: the names in a list are those of the contract, or their aliases where the client's URL asks
        for them (`?names=alias`); one service's alone with `?cassette=`. Both names can be called.
Rule 4: no tool's words reach an agent that the operator holds back.

Protocol versions from 2024-11-05 on are served; 2026-07-28 beside them, with notices when the list
of tools changes. Knows nothing of how services are asked.
"""

import asyncio
import base64
import json
import secrets
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS
from mcp_types import methods as wire_methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request

from tapes.errors import BadArguments
from tapes.jsontext import Json
from tapes.services.calling import Caller
from tapes.services.discovery import moment
from tapes.services.registry import Registry, Snapshot
from tapes.services.replying import Message, Receive, Scope, Send, header, reply, reply_not_allowed
from tapes.services.toolcalls import Progress, call

MAX_BODY = 4 * 1024 * 1024
PAGE = 1_000
MAX_BATCH = 100
CANCELLED = -32800
_SESSION = b"mcp-session-id"
_VERSION = b"mcp-protocol-version"
_TEXT = b"text/plain; charset=utf-8"
_EVENT_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
]
_BATCH_VERSIONS = (None, b"2025-03-26", b"2024-11-05")
# Methods that mean nothing without parameters.
_NEED_PARAMS = frozenset({"initialize", "tools/call", "logging/setLevel", "completion/complete"})

_Context = ServerRequestContext[Any, Any]


class _Tools(Server[Any]):
    """The SDK's server, which says of itself that it has tools and nothing else."""

    def get_capabilities(
        self,
        notification_options: NotificationOptions | None = None,  # noqa: ARG002  # none are served
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,  # noqa: ARG002
        extensions: dict[str, dict[str, Any]] | None = None,  # noqa: ARG002
        *,
        protocol_version: str | None = None,
    ) -> types.ServerCapabilities:
        """Tools; notices of change where the protocol has a stream for them."""
        changes = True if protocol_version in MODERN_PROTOCOL_VERSIONS else None
        return types.ServerCapabilities(tools=types.ToolsCapability(list_changed=changes))


class Tools:
    """The endpoint, as an ASGI application. To be run (`running`) on one loop."""

    def __init__(self, registry: Registry, caller: Caller, *, version: str = "dev") -> None:
        self._registry = registry
        self._caller = caller
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)
        self._lists: dict[tuple[Any, ...], dict[str, Any]] = {}
        self._calls: dict[tuple[str, types.RequestId], anyio.CancelScope] = {}
        self._notices: set[asyncio.Task[None]] = set()
        self._server = self._made(version)
        self._manager: StreamableHTTPSessionManager | None = None
        registry.watch(self._changed)

    def _made(self, version: str) -> Server[Any]:
        server = _Tools(
            "tapes",
            version=version,
            get_tool_input_schema=self._input_schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=_no_resources,
            on_list_resource_templates=_no_templates,
            on_list_prompts=_no_prompts,
            on_subscriptions_listen=self._listen,
        )
        server.add_request_handler("logging/setLevel", types.SetLevelRequestParams, _nothing)
        server.middleware += [self._list_ready, _without_false_error]
        return server

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve, for as long as the context lasts."""
        # A manager serves once; a host may be started again.
        manager = StreamableHTTPSessionManager(
            self._server, stateless=True, max_request_body_size=MAX_BODY
        )
        async with manager.run():
            self._manager = manager
            try:
                yield
            finally:
                self._manager = None
                self._listen.close()

    # --- changes

    def _changed(self, old: Snapshot, new: Snapshot) -> None:
        if new.published == old.published:
            return
        self._lists.clear()
        if self._manager is not None and list(old.tools.values()) != list(new.tools.values()):
            task = asyncio.get_running_loop().create_task(self._bus.publish(ToolsListChanged()))
            self._notices.add(task)
            task.add_done_callback(self._notices.discard)

    # --- the list of tools

    async def _list_ready(self, ctx: _Context, call_next: CallNext) -> HandlerResult:
        """Answer with a list that is ready: a thousand tools take the SDK's checks too long.

        The list was shaped and checked by the same function of the SDK when it was made.
        """
        if ctx.method != "tools/list":
            return await call_next(ctx)
        cursor = (ctx.params or {}).get("cursor")
        if cursor is not None and not isinstance(cursor, str):
            return await call_next(ctx)  # which refuses it
        result = self._page(ctx, cursor)
        if ctx.protocol_version in MODERN_PROTOCOL_VERSIONS:
            stamp = {types.SERVER_INFO_META_KEY: self._server.server_info_stamp}
            return {**result, "_meta": stamp}
        return dict(result)

    async def _list_tools(
        self, ctx: _Context, params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        cursor = None if params is None else params.cursor
        return types.ListToolsResult.model_validate(self._page(ctx, cursor))

    def _page(self, ctx: _Context, cursor: str | None) -> dict[str, Any]:
        alias, service = _wishes(ctx.request)
        key = (ctx.protocol_version, alias, service, cursor)
        ready = self._lists.get(key)
        if ready is None:
            ready = self._made_page(ctx.protocol_version, cursor, alias=alias, service=service)
            if len(self._lists) > 64:
                self._lists.clear()
            self._lists[key] = ready
        return ready

    def _made_page(
        self, version: str, cursor: str | None, *, alias: bool, service: str
    ) -> dict[str, Any]:
        after = None if cursor is None else _after(cursor)
        tools = [
            tool
            for name, tool in self._registry.snapshot.tools.items()
            if service in ("", tool.service) and (after is None or name > after)
        ]
        page = tools[:PAGE]
        result: dict[str, Any] = {
            "tools": [tool.form(alias=alias) for tool in page],
            "resultType": "complete",
            "ttlMs": 0,
            "cacheScope": "private",
        }
        if len(tools) > PAGE:
            result["nextCursor"] = _cursor(page[-1].full_name)
        return wire_methods.serialize_server_result("tools/list", version, result)

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        tool = self._registry.snapshot.tool(name)
        return None if tool is None else tool.input_schema

    # --- calls

    async def _call_tool(
        self, ctx: _Context, params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        snapshot = self._registry.snapshot
        tool = snapshot.tool(params.name)
        service = None if tool is None else snapshot.service(tool.service)
        if tool is None or service is None:
            raise MCPError(INVALID_PARAMS, _unknown(snapshot, params.name))
        request = ctx.request
        assert isinstance(request, Request)
        scope = request.scope
        session = request.headers.get("mcp-session-id", "")
        client = scope.get("client")
        with anyio.CancelScope() as cancel:
            key = None if not session or ctx.request_id is None else (session, ctx.request_id)
            if key is not None:
                self._calls[key] = cancel
            try:
                result = await call(
                    self._caller,
                    service,
                    tool,
                    params.arguments,
                    headers=scope["headers"],
                    peer=client[0] if client else "",
                    host=header(scope, b"host") or b"",
                    scheme=scope.get("scheme", "http"),
                    progress=_progress(ctx),
                )
            except BadArguments as error:
                raise MCPError(INVALID_PARAMS, str(error)) from None
            finally:
                if key is not None and self._calls.get(key) is cancel:
                    del self._calls[key]
            return types.CallToolResult.model_validate(result.form())
        raise MCPError(CANCELLED, f"the call of {tool.full_name} was cancelled")

    def _cancel(self, message: dict[str, Json], scope: Scope) -> None:
        """Cancel a call of the same session, where there is one."""
        session = (header(scope, _SESSION) or b"").decode("latin-1")
        params = message.get("params")
        wanted = params.get("requestId") if isinstance(params, dict) else None
        if isinstance(wanted, str | int):
            cancel = self._calls.get((session, wanted))
            if cancel is not None:
                cancel.cancel()

    # --- HTTP (rule 2)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one HTTP request."""
        method, manager = scope["method"], self._manager
        if manager is None:
            await _say(send, 503, "this host is starting or ending")
        elif method == "GET":
            if not _accepts(scope)[1]:
                await _say(send, 400, "Accept must have text/event-stream")
            else:
                await reply_not_allowed(send, "POST", "DELETE")
        elif method == "DELETE":
            if header(scope, _SESSION):
                await reply(send, 204)
            else:
                await _say(send, 400, "DELETE needs the session id that it ends")
        elif method != "POST":
            await reply_not_allowed(send, "GET", "POST", "DELETE")
        elif not all(_accepts(scope)):
            await _say(send, 400, "Accept must have application/json and text/event-stream")
        elif header(scope, b"last-event-id"):
            await _say(send, 400, "there is no stream to go on with")
        else:
            await self._post(manager.handle_request, scope, receive, send)

    async def _post(
        self,
        served: Callable[[Scope, Receive, Send], Any],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        body = await _body(receive)
        if body is None:
            await _say(send, 413, f"a message has at most {MAX_BODY:,} bytes")
            return
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            await _say(send, 400, "the body is not one JSON value")
            return
        scope = _plain(scope)
        if isinstance(message, list):
            await self._batch(served, message, scope, receive, send)
            return
        if isinstance(message, dict):
            if message.get("method") == "notifications/cancelled":
                self._cancel(message, scope)
            fault = _fault(message)
            if fault is not None:
                await _say(send, 400, fault)
                return
            if message.get("method") == "initialize":
                send = _with_session(send, header(scope, _SESSION))
        await served(scope, _again(body, receive), send)

    async def _batch(
        self,
        served: Callable[[Scope, Receive, Send], Any],
        messages: list[Json],
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        """Several messages at once, as protocol versions up to 2025-03-26 have them, in order."""
        if header(scope, _VERSION) not in _BATCH_VERSIONS:
            await _say(send, 400, "this protocol version has no batches")
            return
        if not 0 < len(messages) <= MAX_BATCH:
            await _say(send, 400, f"a batch has 1 to {MAX_BATCH} messages")
            return
        faults = [_fault(m) if isinstance(m, dict) else "no message" for m in messages]
        if any(faults):
            await _say(send, 400, next(filter(None, faults)))
            return
        left = False

        async def heard() -> Message:
            nonlocal left
            message = await receive()
            left = left or message["type"] == "http.disconnect"
            return message

        begun = False
        for message in messages:
            if left:
                return  # nobody waits for the rest
            if message.get("method") == "notifications/cancelled":
                self._cancel(message, scope)
            answered = _Gathered()
            await served(scope, _again(json.dumps(message).encode(), heard), answered)
            if not answered.events:
                continue
            if not begun:
                begun = True
                await send(
                    {"type": "http.response.start", "status": 200, "headers": _EVENT_HEADERS}
                )
            # Each at once: a hundred answers of eight megabytes are too many to gather.
            await send({"type": "http.response.body", "body": answered.events, "more_body": True})
        if begun:
            await send({"type": "http.response.body", "body": b""})
        else:
            await reply(send, 202)


async def _without_false_error(ctx: _Context, call_next: CallNext) -> HandlerResult:
    """Leave out of a result that it is no error, as the contract has it."""
    result = await call_next(ctx)
    if ctx.method == "tools/call" and isinstance(result, dict) and result.get("isError") is False:
        return {name: value for name, value in result.items() if name != "isError"}
    return result


# --- helpers ----------------------------------------------------------------------------------


def _wishes(request: object) -> tuple[bool, str]:
    """What the client's URL asks of the list (rule 3)."""
    if not isinstance(request, Request):
        return False, ""
    asked = request.query_params
    return asked.get("names") == "alias", asked.get("cassette", "")


def _cursor(name: str) -> str:
    return base64.urlsafe_b64encode(name.encode()).decode()


def _after(cursor: str) -> str:
    try:
        name = base64.b64decode(cursor, altchars=b"-_", validate=True).decode()
    except ValueError:
        name = ""
    if not name or _cursor(name) != cursor:
        raise MCPError(INVALID_PARAMS, "the cursor is none of this list")
    return name


def _unknown(snapshot: Snapshot, name: str) -> str:
    if name in snapshot.held:
        return (
            f"the tool {name} waits for the operator: what it says of itself changed "
            f"(tapes cassette approve {snapshot.held[name]})"
        )
    gone = snapshot.withdrawn.get(name)
    if gone is not None:
        return f"the tool {name} was withdrawn at {moment(gone.at)}; cassette {gone.service} had it"
    return f"unknown tool {name[:200]!r}"


def _progress(ctx: _Context) -> Progress | None:
    """How to tell the agent how far a call is, where it asked for that."""
    if ctx.meta is None or ctx.meta.get("progress_token") is None:
        return None
    return ctx.session.report_progress


async def _no_resources(
    _ctx: _Context, _params: types.PaginatedRequestParams | None
) -> types.ListResourcesResult:
    return types.ListResourcesResult(resources=[])


async def _no_templates(
    _ctx: _Context, _params: types.PaginatedRequestParams | None
) -> types.ListResourceTemplatesResult:
    return types.ListResourceTemplatesResult(resource_templates=[])


async def _no_prompts(
    _ctx: _Context, _params: types.PaginatedRequestParams | None
) -> types.ListPromptsResult:
    return types.ListPromptsResult(prompts=[])


async def _nothing(_ctx: _Context, _params: types.SetLevelRequestParams) -> types.EmptyResult:
    return types.EmptyResult()


async def _say(send: Send, status: int, text: str) -> None:
    await reply(send, status, f"{text}\n".encode(), content_type=_TEXT)


def _accepts(scope: Scope) -> tuple[bool, bool]:
    """Whether JSON and event streams are accepted."""
    said = b",".join(value for name, value in scope["headers"] if name == b"accept")
    known = {token.partition(b";")[0].strip().lower() for token in said.split(b",")}
    anything = b"*/*" in known
    return (
        anything or bool(known & {b"application/json", b"application/*"}),
        anything or bool(known & {b"text/event-stream", b"text/*"}),
    )


async def _body(receive: Receive) -> bytes | None:
    data = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return bytes(data)
        data += message.get("body", b"")
        if len(data) > MAX_BODY:
            return None
        if not message.get("more_body", False):
            return bytes(data)


def _plain(scope: Scope) -> Scope:
    """The scope with a type of the body that the SDK takes, whatever the client said."""
    kept = [(name, value) for name, value in scope["headers"] if name != b"content-type"]
    return {**scope, "headers": [*kept, (b"content-type", b"application/json")]}


def _fault(message: dict[str, Json]) -> str | None:
    """Why an object is no request, notification or reply, as far as the contract says 400."""
    method = message.get("method")
    if not isinstance(method, str | None):
        return "a method is a string"
    if method is not None and message.get("jsonrpc") != "2.0":
        return 'a message has "jsonrpc": "2.0"'
    if method in _NEED_PARAMS and not isinstance(message.get("params"), dict):
        return f"{method} needs params"
    is_note = method is not None and method.startswith("notifications/")
    if method is not None and not is_note and message.get("id") is None:
        return "a request has an id"
    return None


def _again(body: bytes, receive: Receive) -> Receive:
    """The body once more, then whatever comes."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


def _with_session(send: Send, session: bytes | None) -> Send:
    """Give the client the session id that it sent, or a new one (rule 1)."""
    given = session or base64.b32encode(secrets.token_bytes(17))[:26]

    async def with_session(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:
            message["headers"] = [*message.get("headers", ()), (_SESSION, given)]
        await send(message)

    return with_session


class _Gathered:
    """The events of an answer to one message of a batch."""

    def __init__(self) -> None:
        self._is_stream = False
        self._body = bytearray()

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            kinds = [value for name, value in message["headers"] if name == b"content-type"]
            self._is_stream = bool(kinds) and kinds[0].startswith(b"text/event-stream")
        elif message["type"] == "http.response.body":
            self._body += message.get("body", b"")

    @property
    def events(self) -> bytes:
        """The events; a plain answer as one."""
        if self._is_stream or not self._body:
            return bytes(self._body)
        return b"event: message\r\ndata: " + self._body + b"\r\n\r\n"
