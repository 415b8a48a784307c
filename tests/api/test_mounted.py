"""The read API with cassette services in front: one gate, one document."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator, validate

from tapes.access import token_hash
from tapes.api.keys import Keys
from tapes.doors import Door
from tapes.listening import Listen
from tapes.opening import Where
from tapes.services.host import Setup
from tapes.services.mounting import in_front_of
from tapes.serving import Plan, Served, serve


@contextmanager
def mounted(folder: Path, keys: Keys) -> Iterator[httpx.Client]:
    """A server with a host of services in front, in a thread of its own."""
    up, served = threading.Event(), list[Served]()
    stop: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def in_front(api):  # type: ignore[no-untyped-def]  # as a plan wants it
        app = in_front_of(api.inner, api.document, Setup())
        return app, app.host.running()

    plan = Plan(Where(str(folder / "a.db")), Listen("127.0.0.1", 0), keys, in_front=in_front)

    async def main() -> None:
        stopped = asyncio.Event()
        stop.append((asyncio.get_running_loop(), stopped))

        def ready(told: Served) -> None:
            served.append(told)
            up.set()

        await serve(plan, ready, stopped)

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    try:
        assert up.wait(30)
        with httpx.Client(base_url=served[0].addresses[Door.API]) as client:
            yield client
    finally:
        loop, stopped = stop[0]
        loop.call_soon_threadsafe(stopped.set)
        thread.join(30)


def test_services_and_the_api_are_one_document_behind_one_gate(tmp_path: Path) -> None:
    with mounted(tmp_path, Keys(read=token_hash("r"))) as client:
        for path in ("/openapi", "/v1/cassettes", "/v1/sessions", "/v1/mcp"):
            assert client.get(path).status_code == 401, path
        client.headers["authorization"] = "Bearer r"
        document = client.get("/openapi").json()
        assert {"/v1/sessions", "/v1/traces", "/v1/cassettes"} <= document["paths"].keys()
        assert "Problem" in document["components"]["schemas"]
        assert client.get("/v1/cassettes").json()["cassettes"] == []
        assert client.get("/v1/sessions").json()["items"] == []


@pytest.mark.row("D4")
def test_the_apis_own_document_is_openapi_3_1_also_beside_services(tmp_path: Path) -> None:
    with mounted(tmp_path, Keys()) as client:
        own, merged = (client.get(path).json() for path in ("/openapi.json", "/openapi"))
    validate(own, cls=OpenAPIV31SpecValidator)
    assert "/v1/cassettes" not in own["paths"]
    assert own["paths"].keys() < merged["paths"].keys()


def test_a_web_page_of_somebody_else_reaches_neither(tmp_path: Path) -> None:
    with mounted(tmp_path, Keys()) as client:
        for path in ("/v1/cassettes", "/v1/sessions", "/openapi"):
            assert client.get(path).status_code == 200
            stranger = {"origin": "https://evil.example"}
            assert client.get(path, headers=stranger).status_code == 403
