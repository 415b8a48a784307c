import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tapes.asgi import BARE_QUERY, AsgiServer
from tests.services.serving import PATIENCE_S, beside


async def says_its_target(scope: Any, _receive: Any, send: Any) -> None:
    """Answer the path, the query, and whether there is a query of nothing."""
    is_bare = BARE_QUERY in scope.get("extensions", ())
    body = repr((scope["raw_path"], scope["query_string"], is_bare)).encode()
    headers = [(b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
def port() -> Iterator[int]:
    """Where the application above is served."""
    server = AsgiServer(says_its_target, patience_s=1)
    listening = socket.create_server(("127.0.0.1", 0))
    started = threading.Event()

    async def serve() -> None:
        started.set()
        await server.serve([listening])

    with beside(serve, lambda: setattr(server, "should_exit", True)):
        started.wait(PATIENCE_S)
        yield listening.getsockname()[1]


def asked(port: int, *targets: str) -> list[str]:
    """The heads and bodies of the answers to these targets, one after the other."""
    found = []
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as sock:
        for target in targets:
            sock.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            text = ""
            while not text.endswith(")"):
                text += sock.recv(65536).decode()
            found.append(text)
    return found


def test_a_query_of_nothing_is_told_from_none(port: int) -> None:
    bodies = [text.rpartition("\r\n\r\n")[2] for text in asked(port, "/a?", "/a", "/a??", "/a?b")]
    assert bodies == [
        "(b'/a', b'', True)", "(b'/a', b'', False)", "(b'/a', b'?', True)", "(b'/a', b'b', False)",
    ]  # fmt: skip


def test_an_answer_has_a_date_and_names_no_server(port: int) -> None:
    (text,) = asked(port, "/")
    assert text.count("\r\ndate: ") == 1
    assert "server:" not in text


def test_without_the_extra_for_services_the_server_still_reads_http() -> None:
    code = """if True:
        import sys
        sys.modules["httptools"] = None
        from tapes.asgi import AsgiServer
        config = AsgiServer(print, patience_s=1).config
        config.load()
        print(config.http_protocol_class.__name__)
    """
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "H11Protocol\n"
