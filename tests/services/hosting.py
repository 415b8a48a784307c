"""A real host on loopback for the time of a test, and services that answer it byte by byte."""

import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tapes.access import Access
from tapes.services.host import Host, HostServer, Setup
from tapes.services.limiting import Limited
from tapes.services.registry import Snapshot
from tapes.services.sources import Listed
from tests.servers import Received, Script, Server, Wire, answer

from .making import document

Json = Any
PATIENCE_S = 20.0
ECHOES = answer(b'{"ok":true}')
# No connection is kept after these, so that a service that is closed is gone at once.
CLOSE = [("Connection", "close")]
WELL = answer(b"{}", headers=CLOSE)


def until(holds: Callable[[], Any], what: str = "it") -> Any:
    """Wait until something holds, and give it."""
    end = time.monotonic() + PATIENCE_S
    while True:
        found = holds()
        if found:
            return found
        assert time.monotonic() < end, f"{what} did not come about"
        time.sleep(0.005)


# --- a service --------------------------------------------------------------------------------


@dataclass
class Service:
    """A service whose document, health and answers a test may change while it runs."""

    document: Json
    script: Script = ECHOES
    health: Script = WELL
    etag: str | None = None
    document_script: Script | None = None
    fetches: list[Received] = field(default_factory=list)
    requests: list[Received] = field(default_factory=list)

    def __call__(self, received: Received, wire: Wire) -> None:
        path = received.target.partition("?")[0]
        if path == "/openapi":
            self.fetches.append(received)
            self._give_document(received, wire)
        elif path == "/ping":
            self.health(received, wire)
        else:
            self.requests.append(received)
            self.script(received, wire)

    def _give_document(self, received: Received, wire: Wire) -> None:
        if self.document_script is not None:
            self.document_script(received, wire)
        elif self.etag is not None and received.header("if-none-match") == self.etag:
            wire.head(304, [("ETag", self.etag), *CLOSE], "Not Modified")
        else:
            headers = CLOSE if self.etag is None else [("ETag", self.etag), *CLOSE]
            answer(json.dumps(self.document).encode(), headers=headers)(received, wire)


@dataclass
class Running:
    """A service that listens."""

    service: Service
    server: Server

    @property
    def source(self) -> str:
        return f"{self.server.url}/openapi"

    @property
    def last(self) -> Received:
        return self.service.requests[-1]


@contextlib.contextmanager
def serving_service(tree: Json = None, script: Script = ECHOES, **more: Any) -> Iterator[Running]:
    service = Service(document() if tree is None else tree, script, **more)
    server = Server(service)
    try:
        yield Running(service, server)
    finally:
        server.close()


# --- a host -----------------------------------------------------------------------------------


@dataclass
class Hosting:
    """A host that listens, in a thread of its own."""

    host: Host
    address: str
    loop: asyncio.AbstractEventLoop

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    @property
    def snapshot(self) -> Snapshot:
        return self.host.registry.snapshot

    def call(self, run: Callable[[], Any]) -> Any:
        """Run a coroutine of the host's parts on the host's loop."""
        return asyncio.run_coroutine_threadsafe(run(), self.loop).result(PATIENCE_S)

    def follow(self, *sources: str) -> None:
        async def follow() -> None:
            assert self.host.refresher is not None
            self.host.refresher.follow(sources)

        self.call(follow)

    def recheck(self) -> None:
        assert self.host.refresher is not None
        self.call(self.host.refresher.recheck)

    def ready(self, *names: str) -> None:
        """Wait until these services are published."""
        until(lambda: set(names) <= set(self.snapshot.services), f"admission of {names}")

    def get(self, path: str, method: str = "GET", **headers: str) -> "Answered":
        return ask(self.port, method, path, headers)

    def json(self, path: str) -> Json:
        return json.loads(self.get(path).body)

    def discovery(self) -> Json:
        return self.json("/v1/cassettes")


@contextlib.contextmanager
def hosting(*sources: str, ready: tuple[str, ...] = (), **setup: Any) -> Iterator[Hosting]:
    """A host that follows these sources; retries fast and never waits long."""
    parts: dict[str, Any] = {
        name: setup.pop(name) for name in ("own_document", "inner", "lookup") if name in setup
    }
    listed = setup.pop("listed", Listed(sources, "test"))
    if "limits" in setup:
        setup["limited"] = Limited(setup.pop("limits"))
    whole = Setup(sources=listed, **{"access": Access(), **setup})
    up, started, failed = threading.Event(), list[Hosting](), list[BaseException]()
    stop: list[Callable[[], object]] = []

    async def serve() -> None:
        stopped, loop = asyncio.Event(), asyncio.get_running_loop()
        stop.append(lambda: loop.call_soon_threadsafe(stopped.set))
        host = Host(whole, **parts)

        def told(server: HostServer) -> None:
            started.append(Hosting(host, server.address, loop))
            up.set()

        await HostServer(host, "127.0.0.1", 0).serve(told, stopped)

    def run() -> None:
        try:
            asyncio.run(serve())
        except BaseException as error:  # noqa: BLE001  # raised where the host is wanted
            failed.append(error)
        finally:
            up.set()

    thread = threading.Thread(target=run, name="host")
    thread.start()
    up.wait()
    if failed:
        thread.join()
        raise failed[0]
    try:
        if ready:
            started[0].ready(*ready)
        yield started[0]
    finally:
        stop[0]()
        thread.join()
    if failed:
        raise failed[0]


@contextlib.contextmanager
def hosted(
    tree: Json = None, script: Script = ECHOES, **setup: Any
) -> Iterator[tuple[Hosting, Running]]:
    """One service, `summary` if nothing else is said, on a host."""
    more = {n: setup.pop(n) for n in ("health", "etag", "document_script") if n in setup}
    with serving_service(tree, script, **more) as running:
        name = running.service.document["x-tapes-cassette"]["cassette"]["name"]
        with hosting(running.source, ready=(name,), **setup) as host:
            yield host, running


# --- a client ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answered:
    """An answer: status, headers in lower case and in order, whole body."""

    status: int
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    @property
    def json(self) -> Json:
        return json.loads(self.body)


def ask(
    port: int,
    method: str,
    path: str,
    headers: dict[str, str] | list[tuple[str, str]] | None = None,
    body: bytes | None = None,
) -> Answered:
    """Send one request exactly as it is given, with a Host and nothing else added."""
    pairs = list(headers.items()) if isinstance(headers, dict) else list(headers or [])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        if not any(name.lower() == "host" for name, _ in pairs):
            connection.putheader("Host", f"127.0.0.1:{port}")
        for name, value in pairs:
            connection.putheader(name, value)
        if body is not None and not any(name.lower() == "content-length" for name, _ in pairs):
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body)
        response = connection.getresponse()
        found = [(name.lower(), value) for name, value in response.getheaders()]
        return Answered(response.status, found, response.read())
    finally:
        connection.close()


@contextlib.contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    """A bare connection."""
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as sock:
        yield sock


def request(path: str, *headers: str, method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/1.1", "Host: 127.0.0.1", *headers, "", ""]).encode()
