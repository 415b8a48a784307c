"""The read API as one ASGI application: its routes, its document, its errors.

    api = Api(open_store(".tapes/tapes.db"), Keys())
    api.app                  # behind the gate: what a server serves
    api.document()           # OpenAPI 3.1, from the types of the routes

Rule 1: the document is made from the types of the answers; `tests/api` hold the answers against it.
Rule 2: whatever stands in front (cassette services) is behind the same gate.
"""

import ast
import inspect
import logging
from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from threading import Lock
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import PlainTextResponse, Response

from tapes.api import (
    admin,
    changes,
    export,
    finding,
    freezing,
    governance,
    models,
    page,
    sessions,
    tapes,
    traces,
    turns,
)
from tapes.api.asking import Core, TheCaller, TheCore
from tapes.api.changes import Changes
from tapes.api.gate import CALLER, FAILED, App, Bounds, Gate
from tapes.api.keys import Caller, Keys
from tapes.api.metrics import TEXT, Metrics, log_lines
from tapes.api.models import Problem, ReadyItem
from tapes.api.replies import PROBLEM, error_reply, problem, problem_reply, reply, version
from tapes.derive.rollups import Pricing, unpriced
from tapes.doors import USUAL, Door
from tapes.errors import Busy, TapesError
from tapes.jsontext import Json
from tapes.projector import Projector
from tapes.store.base import Store

log = logging.getLogger(__name__)

ROUTERS = (
    sessions.router,
    traces.router,
    turns.router,
    tapes.router,
    export.router,
    freezing.router,
    finding.router,
    changes.router,
    governance.router,
    admin.router,
)
ABOUT = "What agents did: sessions, traces and spans, and the calls that they are made from."
_PROBLEMS = {
    "default": {
        "description": "An error",
        "content": {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}},
    }
}

Wrap = Callable[[App], App]


class Api:
    """The read API over a store."""

    def __init__(
        self,
        store: Store,
        keys: Keys | None = None,
        *,
        projector: Projector | None = None,
        price: Pricing = unpriced,
        bounds: Bounds | None = None,
        addresses: Mapping[Door, str] = USUAL,
    ) -> None:
        self.metrics = Metrics()
        self.changes = Changes()
        core = Core(store, self.metrics, price, projector, addresses=addresses)
        self.inner = _application(core, self.changes, self.document)
        self._document: dict[str, Json] = {}
        self._making = Lock()
        self.keys = keys or Keys()
        self._gate = (bounds, addresses)
        self.app: App = self.behind_gate(self.inner)

    def document(self) -> dict[str, Json]:
        """The OpenAPI document; one and the same value each time.

        It is made when it is first asked for: that takes longer than all else a server starts with.
        """
        with self._making:
            if not self._document:
                self._document = _document(self.inner)
        return self._document

    def behind_gate(self, app: App) -> App:
        """An application behind the gate: for what stands in front of `inner` (rule 2)."""
        bounds, addresses = self._gate
        return Gate(app, self.keys, self.metrics, bounds=bounds, addresses=addresses)


def _application(
    core: Core, listeners: Changes, document: Callable[[], dict[str, Json]]
) -> FastAPI:
    app = FastAPI(
        title="Tapes",
        version=version(),
        description=ABOUT,
        openapi_url=None,  # ours is made once, and may be merged with those of services
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.core, app.state.changes = core, listeners
    for router in ROUTERS:
        app.include_router(router)
    app.add_middleware(GZipMiddleware, minimum_size=2048, compresslevel=1)
    _add_pages(app, document)
    page.mount(app, sessions.first_asked)
    app.add_exception_handler(TapesError, _failed)
    app.add_exception_handler(RequestValidationError, _unreadable)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(Exception, lambda *_: FAILED)
    return app


def _add_pages(app: FastAPI, document: Callable[[], dict[str, Json]]) -> None:
    @app.get("/ping", tags=["server"], response_model=str)
    def ping(request: Request) -> Response:
        """Whether somebody is there."""
        return reply(request, "pong")

    is_ready: dict[str, Any] = {
        "tags": ["server"],
        "response_model": ReadyItem,
        "responses": {503: {"model": ReadyItem, "description": "The database cannot be read"}},
    }

    @app.get("/healthz", **is_ready)
    @app.get("/readyz", **is_ready)
    def ready(request: Request, core: TheCore) -> Response:
        """Whether the server can answer: it has asked the database.

        A database that can be read and not written to answers still, and takes no turn: `store`.
        """
        try:
            core.store.project().seq()
            takes_none = core.store.unwritten()
        except TapesError as error:  # whoever probes asks every few seconds
            log.warning("the store does not answer: %s", error.message)
            return reply(request, {"ready": False, "store": "unavailable"}, 503)
        return reply(request, {"ready": True, "store": "read only" if takes_none else "ok"})

    @app.get("/metrics", tags=["server"], response_class=PlainTextResponse)
    def metrics(core: TheCore, caller: TheCaller) -> Response:
        """Numbers, in the text form of Prometheus: to the token of a tenant those of the tenant.

        Of the log all tenants together are counted for who may do everything, one for a reader.
        """
        counts = core.store.counts(None if caller.may_change else caller.org_id)
        text = log_lines(counts) if caller.guest else core.metrics.text(counts)
        return Response(text, media_type=TEXT)

    @app.get("/openapi.json", tags=["server"], response_model=dict[str, Any])
    def own_document(request: Request) -> Response:
        """The document of the read API itself, in OpenAPI 3.1."""
        return reply(request, document())

    @app.get("/openapi", tags=["server"], response_model=dict[str, Any])
    def openapi(request: Request) -> Response:
        """This document; in OpenAPI 3.0.3 in one with those of services, where they are served."""
        return reply(request, document())


# --- errors -----------------------------------------------------------------------------------


_NOT_THEIRS = ("the server cannot answer just now", "ask again later, or whoever runs this server")


def _failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, TapesError)
    if error.http_status >= 500:
        log.error("%s: %s", error.slug, error.message)
        caller = request.scope.get(CALLER)
        is_guest = isinstance(caller, Caller) and caller.guest
        if is_guest and not isinstance(error, Busy):  # whose words name files and addresses
            return error_reply(error, problem(error.http_status, error.slug, *_NOT_THEIRS))
    return error_reply(error)


def _unreadable(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems: list[dict[str, Json]] = [
        {"field": ".".join(map(str, each["loc"])), "message": each["msg"], "code": each["type"]}
        for each in error.errors()
    ]
    detail = "; ".join(f"{p['field']}: {p['message']}" for p in problems[:3])
    remedy = ""
    if any(each["field"] == "body" for each in problems) and not _says_json(request):
        remedy = "send JSON, and say so: content-type: application/json"
    return problem_reply(problem(400, "bad-request", detail, remedy, {"problems": problems}))


def _says_json(request: Request) -> bool:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def _no_route(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    path = request.url.path[:200]
    if error.status_code == 405:
        said = problem(405, "method-not-allowed", f"{path} does not have {request.method}")
        return problem_reply(said, error.headers)
    if error.status_code == 404:
        said = problem(404, "not-found", f"there is nothing at {path}", "see GET /openapi")
        return problem_reply(said)
    code = "too-large" if error.status_code == 413 else "bad-request"
    return problem_reply(problem(error.status_code, code, str(error.detail)))


# --- the document -----------------------------------------------------------------------------


@cache
def _said_of_members() -> dict[str, dict[str, str]]:
    """What `models` says below the members of its shapes (rule 3 there)."""
    said: dict[str, dict[str, str]] = {}
    for shape in ast.parse(inspect.getsource(models)).body:
        if isinstance(shape, ast.ClassDef):
            mine = said[shape.name] = {}
            for base in shape.bases:
                mine |= said.get(getattr(base, "id", ""), {})
            for member, below in pairwise(shape.body):
                match member, below:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ):
                        mine[name] = inspect.cleandoc(text)
    return said


def _document(app: FastAPI) -> dict[str, Json]:
    """The document of the routes, in which every error is a problem document."""
    document = app.openapi()
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    schemas.pop("HTTPValidationError", None)
    schemas.pop("ValidationError", None)
    reference = "#/components/schemas/{model}"
    schemas["Problem"] = TypeAdapter(Problem).json_schema(ref_template=reference)
    said = _said_of_members()
    for name, schema in schemas.items():
        for member, text in said.get(name, {}).items():
            schema["properties"][member]["description"] = text
    for item in document["paths"].values():
        for operation in item.values():
            operation["responses"].pop("422", None)
            operation["responses"].update(_PROBLEMS)
    document["components"]["securitySchemes"] = {
        "bearer": {"type": "http", "scheme": "bearer"},
        "header": {"type": "apiKey", "in": "header", "name": "x-tapes-token"},
    }
    document["security"] = [{}, {"bearer": []}, {"header": []}]
    return document
