"""A real private door on loopback for the time of a test."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import uvicorn

from tapes.ingest.app import ingest_app
from tapes.projector import Projector
from tapes.store.base import Store

PATIENCE_S = 20.0


@contextlib.contextmanager
def door(store: Store, **options: Any) -> Iterator[httpx.Client]:
    """A client of a door over this store."""
    with serving(ingest_app(store, **options)) as url, httpx.Client(base_url=url) as client:
        yield client


@contextlib.contextmanager
def serving(app: Any) -> Iterator[str]:
    """An application that is served in a thread; gives its address."""
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(app, log_config=None, access_log=False, lifespan="off")
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listening],))
    thread.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join(PATIENCE_S)
        listening.close()


def derived(store: Store) -> None:
    """Derive all that is there, and have a rebuild prove it."""
    projector = Projector(store)
    projector.drain()
    assert list(projector.check()) == []


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until something is so, within bounds."""
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until, "it never came"
        time.sleep(0.01)
