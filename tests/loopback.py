"""A provider on loopback: a real HTTP server that answers what a function says."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tapes.exchange import Piece, Request, Response

Answer = Callable[[Request], Response]


@dataclass
class Provider:
    """Where the provider listens, and what it was asked so far."""

    url: str
    requests: list[Request] = field(default_factory=list)


def json_answer(text: str, status: int = 200, *headers: tuple[str, str]) -> Response:
    """A plain answer in JSON."""
    body = text.encode()
    length = ("content-length", str(len(body)))
    return Response(
        status, (("content-type", "application/json"), length, *headers), (Piece(0.0, body),)
    )


def event_answer(*events: str) -> Response:
    """A streamed answer, an event a chunk."""
    pieces = tuple(Piece(0.0, f"data: {event}\n\n".encode()) for event in events)
    return Response(200, (("content-type", "text/event-stream"),), pieces)


@contextmanager
def provider(answer: Answer) -> Iterator[Provider]:
    """Serve the function's answers: those without a content-length go out in chunks."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            request = Request(
                self.command, provided.url + self.path, tuple(self.headers.items()), body
            )
            provided.requests.append(request)
            self.respond(answer(request))

        def respond(self, response: Response) -> None:
            self.send_response_only(response.status, response.reason or None)
            for name, value in response.headers:
                self.send_header(name, value)
            in_chunks = not any(name.lower() == "content-length" for name, _ in response.headers)
            if in_chunks:
                self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            for piece in response.pieces:
                data = piece.data
                self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data) if in_chunks else data)
                self.wfile.flush()
            if in_chunks:
                self.wfile.write(b"0\r\n\r\n")

        do_GET = do_POST = do_PUT = do_HEAD = handle_any  # noqa: N815  # the library's names

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    provided = Provider(f"http://127.0.0.1:{server.server_address[1]}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield provided
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
