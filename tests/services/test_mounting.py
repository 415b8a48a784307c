"""A host in front of another application."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import uvicorn
from fastapi import FastAPI
from openapi_spec_validator import validate

from tapes.services.host import Setup
from tapes.services.mounting import Described, in_front_of
from tapes.services.sources import Listed
from tests.servers import closed_port

from .hosting import ask, serving_service, until
from .serving import beside


def application(lived: list[str]) -> FastAPI:
    @contextlib.asynccontextmanager
    async def life(_app: FastAPI) -> AsyncIterator[None]:
        lived.append("began")
        yield
        lived.append("ended")

    own = FastAPI(title="own", version="v1", openapi_url=None, lifespan=life)

    @own.get("/v1/sessions", operation_id="listSessions")
    def sessions() -> list[str]:
        return ["one"]

    return own


@contextlib.contextmanager
def served(app: Any) -> Iterator[int]:
    port = closed_port()
    server = uvicorn.Server(
        uvicorn.Config(app, port=port, log_config=None, access_log=False, lifespan="on")
    )
    with beside(server.serve, lambda: setattr(server, "should_exit", True)):
        until(lambda: server.started, "the server")
        yield port


@pytest.mark.row("C6", "C7")
def test_one_server_has_both_applications_and_one_document() -> None:
    lived: list[str] = []
    own = application(lived)
    with serving_service() as service:
        app = in_front_of(own, own.openapi, Setup(sources=Listed((service.source,), "test")))
        with served(app) as port:
            until(lambda: "summary" in app.host.registry.snapshot.services)
            assert ask(port, "GET", "/v1/sessions").json == ["one"]
            assert ask(port, "GET", "/v1/cassettes/summary/x").status == 200
            merged = ask(port, "GET", "/openapi").json
            assert lived == ["began"]
    assert lived == ["began", "ended"]
    validate(merged)
    assert {
        "/v1/sessions", "/v1/cassettes", "/v1/mcp", "/v1/cassettes/summary/reports",
    } <= set(merged["paths"])  # fmt: skip


def test_an_application_without_a_life_of_its_own_is_served_too() -> None:
    async def bare(scope: Any, _receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            raise NotImplementedError(scope["type"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    app = in_front_of(bare, lambda: {"openapi": "3.0.3", "paths": {}}, Setup())
    with served(app) as port:
        assert ask(port, "GET", "/x").status == 204
        assert ask(port, "GET", "/v1/cassettes").json["cassettes"] == []


def test_an_application_that_cannot_begin_ends_the_host_too() -> None:
    async def open_store() -> None:
        raise RuntimeError("the store is gone")

    @contextlib.asynccontextmanager
    async def life(_app: FastAPI) -> AsyncIterator[None]:
        await open_store()
        yield

    own = FastAPI(openapi_url=None, lifespan=life)
    app = in_front_of(own, own.openapi, Setup())
    server = uvicorn.Server(uvicorn.Config(app, port=closed_port(), log_config=None, lifespan="on"))
    with pytest.raises(SystemExit), beside(server.serve, lambda: None):
        pass
    assert not server.started


def test_the_document_is_made_once_and_the_applications_own_word_stands() -> None:
    mine = {"get": {"responses": {"200": {"description": "mine"}}}}
    own = {"openapi": "3.0.3", "paths": {"/v1/cassettes": mine}}
    described = Described(lambda: own)
    assert described() is described()
    assert described()["paths"]["/v1/cassettes"] is mine
    assert "/v1/mcp" in described()["paths"]
    assert own["paths"] == {"/v1/cassettes": mine}
