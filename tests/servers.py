"""A real HTTP server on loopback that does exactly what a script says, byte by byte.

A script is a function of what was received and of the wire to answer on. It runs in the
connection's own thread, may wait for the test, and may break off in any way.
"""

import contextlib
import io
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

PATIENCE_S = 10.0
Pairs = Iterable[tuple[str, str]]


@dataclass(frozen=True)
class Received:
    """A request as it came: the head to the byte, the body without its framing."""

    head: bytes
    body: bytes

    @property
    def method(self) -> str:
        return self.head.split(b" ", 2)[0].decode()

    @property
    def target(self) -> str:
        return self.head.split(b" ", 2)[1].decode()

    @property
    def headers(self) -> list[tuple[str, str]]:
        lines = self.head.decode("latin-1").split("\r\n")[1:]
        pairs = (line.partition(":") for line in lines if line)
        return [(name, value.strip()) for name, _, value in pairs]

    def header(self, name: str) -> str | None:
        return next((v for n, v in self.headers if n.lower() == name.lower()), None)


class Wire:
    """The server's end of a connection."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.file = sock.makefile("rb")
        self.is_open = True

    def send(self, data: bytes) -> None:
        self._sock.sendall(data)

    def head(self, status: int = 200, headers: Pairs = (), reason: str = "OK") -> None:
        lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers)]
        self.send("\r\n".join((*lines, "", "")).encode("latin-1"))

    def chunk(self, data: bytes) -> None:
        self.send(b"%x\r\n%b\r\n" % (len(data), data))

    def last_chunk(self) -> None:
        self.send(b"0\r\n\r\n")

    def until_left(self) -> None:
        """Wait, without a word, until the client is gone."""
        self._sock.settimeout(PATIENCE_S)
        with contextlib.suppress(OSError):
            self._sock.recv(1)
        self.close()

    def start_tls(self, context: ssl.SSLContext) -> None:
        """Go on encrypted, as after CONNECT."""
        self._sock = context.wrap_socket(self._sock, server_side=True)
        self.file = self._sock.makefile("rb")

    def close(self) -> None:
        self.is_open = False
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def reset(self) -> None:
        """End the connection with RST instead of FIN."""
        self.is_open = False
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._sock.close()


Script = Callable[[Received, Wire], None]


def answer(
    body: bytes = b"{}",
    *,
    status: int = 200,
    content_type: str = "application/json",
    headers: Pairs = (),
    reason: str = "OK",
) -> Script:
    """A script that answers with one body of known length."""
    pairs = [("Content-Type", content_type), ("Content-Length", str(len(body))), *headers]

    def script(received: Received, wire: Wire) -> None:
        wire.head(status, pairs, reason)
        if received.method != "HEAD":
            wire.send(body)

    return script


def chunks(*pieces: bytes, content_type: str = "text/event-stream", headers: Pairs = ()) -> Script:
    """A script that answers with one chunk a piece."""

    def script(_: Received, wire: Wire) -> None:
        wire.head(200, [("Content-Type", content_type), ("Transfer-Encoding", "chunked"), *headers])
        for piece in pieces:
            wire.chunk(piece)
        wire.last_chunk()

    return script


@dataclass
class Acknowledged:
    """A chunked answer in which the server sends a piece only once the one before has arrived.

    The test calls `got` for each piece. Whoever holds pieces back makes `was_kept_waiting` true.
    """

    pieces: tuple[bytes, ...]
    content_type: str = "text/event-stream"
    was_kept_waiting: bool = False
    _got: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))

    def got(self) -> None:
        self._got.release()

    def __call__(self, _: Received, wire: Wire) -> None:
        wire.head(200, [("Content-Type", self.content_type), ("Transfer-Encoding", "chunked")])
        for piece in self.pieces:
            wire.chunk(piece)
            if not self._got.acquire(timeout=PATIENCE_S):
                self.was_kept_waiting = True
                wire.close()
                return
        wire.last_chunk()


class Server:
    """Answers each request with the next of its scripts; the last one goes on for ever."""

    def __init__(self, *scripts: Script) -> None:
        self.scripts = list(scripts)
        self.requests: list[Received] = []
        self.connections = 0
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
            threading.Thread(target=self._serve, args=(sock,), daemon=True).start()

    def _serve(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire = Wire(sock)
        with contextlib.suppress(OSError), contextlib.closing(wire):
            while wire.is_open:
                received = _received(wire.file)
                if received is None:
                    return
                with self._lock:
                    number = min(len(self.requests), len(self.scripts) - 1)
                    self.requests.append(received)
                self.scripts[number](received, wire)


def _received(file: io.BufferedReader) -> Received | None:
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = file.readline()
        if not line:
            return None
        head += line
    received = Received(head, b"")
    if (received.header("transfer-encoding") or "").lower() == "chunked":
        return Received(head, b"".join(_chunks(file)))
    return Received(head, file.read(int(received.header("content-length") or 0)))


def _chunks(file: io.BufferedReader) -> Iterator[bytes]:
    while size := int(file.readline().split(b";")[0], 16):
        yield file.read(size)
        file.readline()
    while file.readline() not in (b"\r\n", b""):
        pass


@contextlib.contextmanager
def serving(*scripts: Script) -> Iterator[Server]:
    """A server for the time of a test."""
    server = Server(*scripts)
    try:
        yield server
    finally:
        server.close()


def reserved_port() -> socket.socket:
    """Holds a port on loopback, which nobody is given but who asks for it by its number."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    return holder


def closed_port() -> int:
    """A port on loopback that nobody listens on, for as long as this process is there."""
    holder = reserved_port()
    port: int = holder.getsockname()[1]
    holder.detach()
    return port


def tls_files(folder: Path) -> tuple[Path, Path]:
    """A certificate for localhost that signs itself, and its key, made anew."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(certificate.public_bytes(Encoding.PEM))
    files[1].write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return files
