"""Requests that nobody would think of: none crashes the host or reaches another service."""

import contextlib
import http.client
import re
from collections.abc import Iterator
from urllib.parse import unquote

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.strategies import examples

from .hosting import Hosting, Running, ask, connected, hosting, serving_service
from .making import document

PIECES = st.sampled_from(
    [
        "/", "//", "..", ".", "%2e", "%2E%2e", "%2f", "%5c", "\\", ";", "?", "#", "@", ":", "%00",
        "%0d%0aX: y", "%25%32%65", "two", "one", "v1", "cassettes", "openapi.json", "-", "recheck",
        "api", "ä", "\u3002\u3002", "%c0%ae", "*", "~", "|", "{x}", "a" * 300,
    ]
) | st.text(st.characters(min_codepoint=33, max_codepoint=255), max_size=6)  # fmt: skip
TARGETS = st.lists(PIECES, max_size=8).map("".join)
TOKEN = st.characters(min_codepoint=33, max_codepoint=126, exclude_characters=":")
NAMES = st.sampled_from(
    [
        "Connection", "Host", "X-Forwarded-For", "Transfer-Encoding", "Content-Length", "Expect",
        "X-Tapes-Cassette", "Te", "Upgrade", "Range", "Cookie", "Origin", "X-Request-Id", "X",
    ]
) | st.text(TOKEN, min_size=1)  # fmt: skip
VALUES = st.sampled_from(
    ["close", "keep-alive, X", "chunked", "0", "5", "-1", "two", "100-continue", "", "x" * 9000]
) | st.text(st.characters(min_codepoint=32, max_codepoint=255), max_size=20)  # fmt: skip
METHODS = st.sampled_from(
    ["GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "TRACE", "BREW", "get"]
)
BODIES = st.binary(max_size=40)
PATIENCE_S = 5


@pytest.fixture(scope="module")
def parts() -> Iterator[tuple[Hosting, Running, Running]]:
    with (
        serving_service(document(name="one")) as one,
        serving_service(document(name="two")) as two,
        hosting(one.source, two.source, ready=("one", "two")) as host,
    ):
        yield host, one, two


@pytest.mark.row("C7")
@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    method=METHODS,
    rest=TARGETS,
    headers=st.lists(st.tuples(NAMES, VALUES), max_size=5),
    body=BODIES,
)
@example("GET", "/../two/x", [], b"")
@example("GET", "/%2e%2e%2ftwo/x", [], b"")
@example("POST", "/x", [("Transfer-Encoding", "chunked"), ("Content-Length", "3")], b"0\r\n\r\n")
@example("GET", "/x HTTP/1.1\r\nHost: two", [], b"")
def test_no_request_harms_the_host_or_leaves_its_service(
    parts: tuple[Hosting, Running, Running],
    method: str,
    rest: str,
    headers: list[tuple[str, str]],
    body: bytes,
) -> None:
    host, one, two = parts
    before = len(two.service.requests)
    del one.service.requests[:]
    _sent(host.port, method, f"/v1/cassettes/one/{rest}", headers, body)
    # A request in the bytes of another is one that the client itself wrote to this connection.
    alone = f"/v1/cassettes/one/{rest}".isprintable() and b"HTTP/1" not in body
    for received in one.service.requests:
        path = received.target.partition("?")[0]
        assert path.startswith("/api/one/"), received.target
        assert ".." not in re.split(r"[/\\]", unquote(path)), received.target
        assert received.header("x-tapes-cassette") == "one"
        assert received.header("host") == f"127.0.0.1:{one.server.port}"
    if alone:
        assert len(two.service.requests) == before
    assert ask(host.port, "GET", "/v1/cassettes/two/reports").status == 200
    assert ask(host.port, "GET", "/v1/cassettes").status == 200


def _sent(port: int, method: str, target: str, headers: list[tuple[str, str]], body: bytes) -> None:
    """Whatever comes of it. A request that is no request may be closed without an answer."""
    lines = [f"{method} {target} HTTP/1.1", "Host: 127.0.0.1"]
    lines += [f"{name}: {value}" for name, value in headers]
    lines += [f"Content-Length: {len(body)}", "Connection: close", "", ""]
    data = "\r\n".join(lines).encode("latin-1", "replace") + body
    with connected(port) as sock:
        sock.settimeout(PATIENCE_S)
        with contextlib.suppress(OSError):
            sock.sendall(data)
            sock.shutdown(1)
        with contextlib.suppress(OSError, http.client.HTTPException):
            while sock.recv(65536):
                pass
