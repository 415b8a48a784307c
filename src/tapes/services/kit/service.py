"""A service: its manifest, its routes, its tools and its health, on FastAPI.

Rule 1: the manifest is the one that is declared. The document that a host reads carries it, and
        describes the service's own API and nothing else.
Rule 2: every route stands below the service's own prefix; the anchors stand outside of it.
Rule 3: an installation may have a name of its own: `CASSETTE_NAME` replaces the declared one.
Rule 4: a service that could not be admitted does not start.
"""

import asyncio
import copy
import functools
import hashlib
import inspect
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_type_hints

import uvicorn
from fastapi import FastAPI, Request, Response
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from tapes.errors import BadManifest, BadSetting, TapesError
from tapes.services import manifest as manifests
from tapes.services.admission import EXTENSION, admit
from tapes.services.admission import Service as Admitted
from tapes.services.kit.settings import Settings
from tapes.services.manifest import Manifest, Setting
from tapes.services.problems import Stage
from tapes.services.tools import EXTENSION as TOOL

LISTEN = "127.0.0.1:9999"
_EVENTS = "text/event-stream"
Check = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a tool's call is. A tool that yields these tells the agent that waits."""

    done: float
    total: float | None = None
    message: str | None = None


class Failure(BaseModel):
    """What a service answers where it fails."""

    error: str


class Service:
    """A service. `app` is its application; `manifest` and `settings` are what was declared.

    The manifest comes from a `cassette.toml` or is given in code. Raises BadManifest, BadSetting.
    """

    def __init__(
        self,
        declared: str | os.PathLike[str] | Manifest,
        *,
        environ: Mapping[str, str] = os.environ,
        on_start: Callable[[], object] | None = None,
    ) -> None:
        self._environ = environ
        self._on_start = on_start
        self._checks: dict[str, Check] = {}
        self.manifest = _named(_manifest(declared), environ)
        self._settings: Settings | None = None
        self.app = FastAPI(
            title=self.manifest.display_name or self.manifest.name,
            version=self.manifest.version,
            description=self.manifest.description,
            openapi_url=None,
            docs_url=None,
            redoc_url=None,
            lifespan=self._lifespan,
            # Errors have one form, so that a client of several services reads only one.
            responses={"default": {"model": Failure, "description": "An error"}},
        )
        self.app.add_exception_handler(RequestValidationError, _bad_request)
        self.app.add_exception_handler(HTTPException, _failed)
        self.app.add_exception_handler(TapesError, _told)
        self.app.add_exception_handler(Exception, _broken)
        self.app.add_api_route(
            self.manifest.health, self._health, include_in_schema=False, methods=["GET"]
        )
        self.app.add_api_route(
            self.manifest.openapi, self._openapi, include_in_schema=False, methods=["GET"]
        )
        self.get = functools.partial(self._route, "GET")
        self.post = functools.partial(self._route, "POST")
        self.put = functools.partial(self._route, "PUT")
        self.patch = functools.partial(self._route, "PATCH")
        self.delete = functools.partial(self._route, "DELETE")

    # --- what is declared

    @property
    def name(self) -> str:
        """The name of this installation."""
        return self.manifest.name

    @property
    def prefix(self) -> str:
        """What every route begins with."""
        return self.manifest.local_prefix

    @property
    def settings(self) -> Settings:
        """The values of the declared settings. Raises BadSetting where one cannot be had."""
        if self._settings is None:
            self._settings = Settings(self.manifest.config, self._environ)
        return self._settings

    @property
    def environ(self) -> Mapping[str, str]:
        """Where settings come from."""
        return self._environ

    @property
    def digest(self) -> str:
        """The identity of the manifest."""
        return manifests.digest(self.manifest)

    # --- routes

    def _route(self, method: str, path: str, **options: Any) -> Callable[[Any], Any]:
        """Decorate a function as a route below the prefix, with FastAPI's own options."""
        return self.app.api_route(f"{self.prefix}{path}", methods=[method], **options)

    def tool(
        self,
        name: str,
        *,
        path: str | None = None,
        title: str | None = None,
        read_only: bool | None = None,
        destructive: bool | None = None,
        idempotent: bool | None = None,
        open_world: bool | None = None,
        returns: Any = None,
        **options: Any,
    ) -> Callable[[Any], Any]:
        """Decorate a function as a tool: its one argument is the body, its answer an object.

        Its docstring is what agents read. An async generator tells its progress: it yields
        `Progress` as often as it likes, and its result last; `returns` then says what that is.
        """
        hints = {
            "readOnlyHint": read_only,
            "destructiveHint": destructive,
            "idempotentHint": idempotent,
            "openWorldHint": open_world,
        }
        annotations = {hint: value for hint, value in hints.items() if value is not None}
        extra = {TOOL: {"name": name, "annotations": annotations}, **options.pop("extra", {})}

        def decorate(function: Any) -> Any:
            text = inspect.getdoc(function) or ""
            endpoint, model = function, returns
            if inspect.isasyncgenfunction(function):
                endpoint = _telling(function)
            elif model is None:
                model = get_type_hints(function).get("return", dict[str, Any])
            self.app.add_api_route(
                f"{self.prefix}{path or f'/{name}'}",
                endpoint,
                methods=["POST"],
                response_model=model if model is not None else dict[str, Any],
                summary=title or text.partition("\n")[0],
                description=text,
                operation_id=options.pop("operation_id", name),
                openapi_extra=extra,
                **options,
            )
            return function

        return decorate

    # --- health

    def health_check(self, check: Check) -> Check:
        """Decorate a function that raises where the service is not well."""
        self._checks[getattr(check, "__name__", "check")] = check
        return check

    async def _health(self) -> Response:
        failed: dict[str, str] = {}
        for name, check in self._checks.items():
            try:
                found = await asyncio.to_thread(check)
                if inspect.isawaitable(found):
                    await found
            except Exception as error:  # noqa: BLE001  # whatever it is, the service is not well
                failed[name] = type(error).__name__
        said = {"status": "failing" if failed else "ok", "cassette": self.name}
        if failed:
            return JSONResponse({**said, "failed": failed}, 503)
        return JSONResponse(said)

    # --- the document

    def document(self) -> dict[str, Any]:
        """The OpenAPI document, with the manifest in it."""
        found = copy.deepcopy(self.app.openapi())
        for item in found.get("paths", {}).values():
            for operation in item.values():
                if TOOL in operation:
                    _spell_out_arguments(operation, found.get("components", {}))
        return {**found, EXTENSION: json.loads(manifests.canonical_text(self.manifest))}

    async def _openapi(self, request: Request) -> Response:
        body = json.dumps(self.document()).encode()
        etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        if request.headers.get("if-none-match") == etag:
            return Response(status_code=304, headers={"ETag": etag})
        return Response(body, media_type="application/json", headers={"ETag": etag})

    def check(self) -> Admitted:
        """The service as a host would admit it. Raises RefusedService with every problem."""
        body = json.dumps(self.document()).encode()
        return admit(body, f"http://127.0.0.1{self.manifest.openapi}", [self.manifest.core])

    # --- running

    @asynccontextmanager
    async def _lifespan(self, _app: FastAPI) -> AsyncIterator[None]:
        self.check()
        _ = self.settings
        if self._on_start is not None:
            found = await asyncio.to_thread(self._on_start)
            if inspect.isawaitable(found):
                await found
        yield

    def on_start(self, function: Callable[[], object]) -> Callable[[], object]:
        """Decorate a function that is called once before the service answers."""
        self._on_start = function
        return function

    def run(self) -> None:
        """Serve on `CASSETTE_LISTEN` (127.0.0.1:9999 if not said) until told to stop.

        What keeps the service from starting ends the program, in words for whoever deploys it.
        """
        try:
            host, port = self._ready()
        except TapesError as error:
            raise SystemExit(str(error)) from None
        uvicorn.run(self.app, host=host, port=port, access_log=False)

    def _ready(self) -> tuple[str, int]:
        """Where to listen, once all is well. Raises BadSetting, RefusedService."""
        host, _, port = self._environ.get("CASSETTE_LISTEN", LISTEN).rpartition(":")
        if not port.isdecimal() or int(port) > 65535:
            raise BadSetting(
                "CASSETTE_LISTEN is no address to listen on",
                f"for example: CASSETTE_LISTEN={LISTEN}",
            )
        self.check()
        _ = self.settings
        return host.strip("[]") or "127.0.0.1", int(port)


def _spell_out_arguments(operation: dict[str, Any], components: dict[str, Any]) -> None:
    """Put the schema of a tool's arguments in the place of a reference to it.

    Clients look for `properties` at the top of an input schema: where a reference stands, they
    send every argument as a text, or tell the model of none.
    """
    for media in operation.get("requestBody", {}).get("content", {}).values():
        target = media.get("schema", {}).get("$ref", "")
        named = components.get("schemas", {}).get(target.removeprefix("#/components/schemas/"))
        if named is not None:
            media["schema"] = copy.deepcopy(named)


async def _bad_request(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:10]]
    return JSONResponse({"error": "; ".join(found)}, 400)


async def _failed(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": str(error.detail)}, error.status_code, error.headers)


async def _told(_request: Request, error: Exception) -> Response:
    assert isinstance(error, TapesError)
    return JSONResponse({"error": error.message}, error.http_status)


async def _broken(_request: Request, _error: Exception) -> Response:
    return JSONResponse({"error": "the service failed; see its log"}, 500)


def _manifest(declared: str | os.PathLike[str] | Manifest) -> Manifest:
    if isinstance(declared, Manifest):
        return declared
    return manifests.parse_toml(Path(declared).read_text(encoding="utf-8"))


def _named(declared: Manifest, environ: Mapping[str, str]) -> Manifest:
    """The manifest under this installation's name, valid (rules 3, 4)."""
    name = environ.get("CASSETTE_NAME")
    if name:
        declared = replace(declared, name=name)
    problems = manifests.validate(declared, [declared.core])
    if problems:
        raise BadManifest(
            f"the manifest of {declared.name or 'the service'} breaks rules",
            "fields and rules: docs/services-manifest.md",
            problems,
        )
    return declared


def setting(key: str, type: str = "string", **more: Any) -> Setting:  # as TOML has it
    """A setting for a manifest that is given in code. Raises BadManifest for an unknown member."""
    try:
        return Setting(key=key, type=type, **more)
    except TypeError as error:
        raise BadManifest(f"{Stage.MANIFEST_PARSE}: {key}: {error}") from None


def _telling(function: Any) -> Any:
    """An endpoint for a tool that tells its progress: as events where these are accepted."""
    signature = inspect.signature(function)
    hints = get_type_hints(function)

    async def endpoint(*, tapes_request: Request, **given: Any) -> Response:
        if _EVENTS in tapes_request.headers.get("accept", ""):
            return StreamingResponse(_as_events(function(**given)), media_type=_EVENTS)
        last: Any = None
        async for item in function(**given):
            last = last if isinstance(item, Progress) else item
        return JSONResponse(jsonable_encoder(last))

    parameters = [
        parameter.replace(annotation=hints.get(name, parameter.annotation))
        for name, parameter in signature.parameters.items()
    ]
    own = inspect.Parameter("tapes_request", inspect.Parameter.KEYWORD_ONLY, annotation=Request)
    endpoint.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*parameters, own], return_annotation=Response
    )
    endpoint.__name__ = function.__name__
    endpoint.__doc__ = function.__doc__
    return endpoint


async def _as_events(items: AsyncIterator[Any]) -> AsyncIterator[bytes]:
    last: Any = None
    try:
        async for item in items:
            if isinstance(item, Progress):
                told = {"progress": item.done, "total": item.total, "message": item.message}
                yield _event("progress", {n: v for n, v in told.items() if v is not None})
            else:
                last = item
    except Exception as error:  # noqa: BLE001  # the head is sent: this is how it is told
        yield _event("error", {"error": type(error).__name__})
        return
    yield _event("result", jsonable_encoder(last))


def _event(name: str, data: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
