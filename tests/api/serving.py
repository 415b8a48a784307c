"""The read API on a real socket, and a client that talks to it."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import uvicorn

from tapes.api.app import Api
from tapes.api.gate import Bounds
from tapes.api.keys import Keys
from tapes.projector import Projector
from tapes.seeding import seed
from tapes.store.sql import SqlStore

UNBOUNDED = Bounds(rate=0, wrong_tokens=0)


@contextmanager
def serving(api: Api) -> Iterator[httpx.Client]:
    """A client of the API, which serves on a port of its own."""
    config = uvicorn.Config(
        api.app, port=0, log_config=None, access_log=False, lifespan="off",
        timeout_graceful_shutdown=1,
    )  # fmt: skip
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    up = threading.Event()
    while not server.started and thread.is_alive():
        up.wait(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
            yield client
    finally:
        api.changes.close()
        server.should_exit = True
        thread.join(20)


@contextmanager
def served(
    store: SqlStore, keys: Keys | None = None, bounds: Bounds = UNBOUNDED
) -> Iterator[httpx.Client]:
    """A client of the API over a store."""
    with serving(Api(store, keys, bounds=bounds)) as client:
        yield client


def seeded(store: SqlStore) -> SqlStore:
    """The store with the sample sessions."""
    seed(store)
    Projector(store).drain()
    return store


def got(client: httpx.Client, path: str, **query: Any) -> Any:
    """The JSON of an answer that must be a good one."""
    answer = client.get(path, params=query or None)
    assert answer.status_code == 200, answer.text
    return answer.json()


def refused(client: httpx.Client, path: str, status: int, **query: Any) -> Any:
    """The problem document of an answer that must be a refusal."""
    answer = client.get(path, params=query or None)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert problem["error"] == problem["detail"]
    return problem
