"""A real proxy on loopback for the time of a test, and a client that sends what it is told."""

import contextlib
import json
import socket
import struct
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tapes.access import Access
from tapes.capture.asked import ProxyMode, Setup
from tapes.capture.routes import Routes
from tapes.capture.shelf import Shelf
from tapes.capture.watching import Watcher
from tapes.cassette import Cassette
from tapes.server import Listen, ProxyServer, proxy_in_thread
from tapes.tape.base import Tape

PATIENCE_S = 10.0


@contextlib.contextmanager
def proxying(
    upstream: str | None = None,
    tape: str | Path | Tape | None = None,
    mode: str = "replay",
    *,
    latch: bool = True,
    named: dict[str, Path] | None = None,
    upstreams: dict[str, str] | None = None,
    watcher: Watcher | None = None,
    listen: Listen | None = None,
    access: Access | None = None,
    folder: Path | None = None,
    any_url: bool = False,
    body_limit: int = 256 * 1024 * 1024,
    pace: float = 0.0,
    **options: Any,
) -> Iterator[ProxyServer]:
    """A proxy in a thread of its own; `latch` is open, as the mode alone decides in most tests."""

    def opened(place: str | Path | Tape) -> Cassette:
        return Cassette(place, mode, latch=latch, **options)

    passes = mode == "pass"
    shelf = Shelf(
        None if passes or tape is None else opened(tape),
        {} if passes else {name: opened(path) for name, path in (named or {}).items()},
        folder=folder,
        opened=opened,
    )
    routes = Routes.of(upstreams, upstream, any_url=any_url)
    setup = Setup(
        ProxyMode(mode), routes, shelf, access or Access(), body_limit=body_limit, pace=pace
    )
    with proxy_in_thread(setup, listen, watcher, patience_s=0.2) as server:
        yield server


@dataclass
class Answered:
    """An answer as it came: the head to the byte, the body without and with its framing."""

    head: bytes
    body: bytes
    raw: bytes
    chunks: list[bytes] = field(default_factory=list)

    @property
    def status(self) -> int:
        return int(self.head.split(b" ", 2)[1])

    @property
    def lines(self) -> list[bytes]:
        return self.head.split(b"\r\n")[1:]

    def header(self, name: str) -> str | None:
        wanted = name.lower().encode()
        pairs = (line.split(b":", 1) for line in self.lines)
        return next((v.strip().decode() for n, v in pairs if n.lower() == wanted), None)

    def json(self) -> Any:
        return json.loads(self.body)


class Broken(Exception):
    """The connection ended before the answer did."""


class Raw:
    """A client that is a socket."""

    def __init__(self, server: ProxyServer | int, host: str = "127.0.0.1") -> None:
        port = server if isinstance(server, int) else int(server.address.rpartition(":")[2])
        self.sock = socket.create_connection((host, port), timeout=PATIENCE_S)
        self._buffer = b""

    def __enter__(self) -> "Raw":
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        self.sock.sendall(data)

    def ask(
        self,
        body: bytes = b"",
        path: str = "/v1/chat/completions",
        *lines: str,
        method: str = "POST",
    ) -> Answered:
        self.send(request(body, path, *lines, method=method))
        return self.answer(method)

    def answer(self, method: str = "POST") -> Answered:
        head = self.until(b"\r\n\r\n")[:-4]
        answered = Answered(head, b"", b"")
        if method == "HEAD" or answered.status in (204, 304) or 100 <= answered.status < 200:
            return answered
        if (answered.header("transfer-encoding") or "") == "chunked":
            return self._chunks(answered)
        length = answered.header("content-length")
        body = self.rest() if length is None else self.exactly(int(length))
        return Answered(head, body, body)

    def _chunks(self, answered: Answered) -> Answered:
        while True:
            line = self.until(b"\r\n")
            size = int(line.split(b";")[0], 16)
            if not size:
                end = self.until(b"\r\n")
                answered.raw += line + end
                answered.body = b"".join(answered.chunks)
                return answered
            chunk = self.exactly(size + 2)
            answered.raw += line + chunk
            answered.chunks.append(chunk[:-2])

    def chunk(self) -> bytes:
        size = int(self.until(b"\r\n").split(b";")[0], 16)
        return self.exactly(size + 2)[:-2]

    def until(self, mark: bytes) -> bytes:
        while mark not in self._buffer:
            self._more()
        data, _, self._buffer = self._buffer.partition(mark)
        return data + mark

    def exactly(self, size: int) -> bytes:
        parts = [self._buffer]
        have = len(self._buffer)
        while have < size:
            self._buffer = b""
            self._more()
            parts.append(self._buffer)
            have += len(self._buffer)
        data = b"".join(parts)
        self._buffer = data[size:]
        return data[:size]

    def rest(self) -> bytes:
        while True:
            try:
                self._more()
            except Broken:
                data, self._buffer = self._buffer, b""
                return data

    def _more(self) -> None:
        data = self.sock.recv(256 * 1024)
        if not data:
            raise Broken
        self._buffer += data

    @property
    def is_closed(self) -> bool:
        """Whether the other side has closed. Waits for it."""
        try:
            return self.sock.recv(1) == b""
        except ConnectionError:
            return True

    def reset(self) -> None:
        """End the connection with RST instead of FIN."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()


def request(
    body: bytes = b"", path: str = "/v1/chat/completions", *lines: str, method: str = "POST"
) -> bytes:
    """A request of known length with a JSON body."""
    head = [f"{method} {path} HTTP/1.1", "Host: localhost", *lines]
    if body:
        head.append("Content-Type: application/json")
    if body or method == "POST":
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join((*head, "", "")).encode("latin-1") + body


def chat(text: str, **more: object) -> bytes:
    """The body of a chat completion."""
    content = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
    return json.dumps(content).encode()


def wait_until(holds: Callable[[], object], patience_s: float = PATIENCE_S) -> None:
    """Wait for a condition, with a bound."""
    until = time.monotonic() + patience_s
    while not holds():
        assert time.monotonic() < until, "what was waited for did not come"
        time.sleep(0.002)


def report_of(server: ProxyServer) -> Any:
    with Raw(server) as client:
        return client.ask(b"", "/_tapes/report", method="GET").json()
