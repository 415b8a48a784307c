"""The private door as a server: what becomes of it when serving fails."""

import asyncio
import threading
from pathlib import Path

import pytest

from tapes.access import Access
from tapes.ingesting import IngestServer
from tapes.listening import Listen
from tapes.store.sqlite import open_sqlite


def test_a_door_that_fails_to_serve_says_so_and_leaves_no_thread_behind(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "tapes.db")
    server = IngestServer(store, Listen("127.0.0.1", 0), Access())

    async def serve() -> None:
        await asyncio.wait_for(server.serve(lambda up: up._socket.close()), 30)

    with pytest.raises((OSError, ValueError)):
        asyncio.run(serve())
    assert "tapes projector" not in {thread.name for thread in threading.enumerate()}
    store.close()
