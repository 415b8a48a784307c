"""What is particular to urllib3."""

import gc
import gzip
import io
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import urllib3
from urllib3.util import Retry, Timeout

import tapes
from tapes import BudgetExhausted, CassetteMiss, NetworkBlocked
from tapes.budget import Limits
from tapes.exchange import Exchange, Request, State
from tapes.tape.base import MemoryTape
from tests.servers import (
    Acknowledged,
    Received,
    Script,
    Wire,
    answer,
    chunks,
    closed_port,
    serving,
    tls_files,
)

EVENTS = tuple(b"data: %d\n\n" % number for number in range(5))


@pytest.fixture
def tape() -> MemoryTape:
    return MemoryTape()


@pytest.fixture
def pool() -> Iterator[urllib3.PoolManager]:
    with urllib3.PoolManager(retries=False) as manager:
        yield manager


def recording(tape: MemoryTape, **options: Any) -> tapes.use:
    return tapes.use(tape, "record", latch=True, **options)


def the_only(tape: MemoryTape) -> Exchange:
    (exchange,) = tape.exchanges()
    return exchange


# --- responses read as live ones --------------------------------------------------------------

READS: dict[str, Callable[[Any], object]] = {
    "read": lambda r: r.read(),
    "read 3": lambda r: [r.read(3), r.read(3), r.read()],
    "read1": lambda r: [r.read1(100), r.read1(2), r.read()],
    "stream": lambda r: list(r.stream(4)),
    "raw stream": lambda r: list(r.stream(4, decode_content=False)),
    "data": lambda r: (r.data, r.data),
    "readinto": lambda r: (r.readinto(bytearray(4)), r.read()),
    "lines": lambda r: list(r),
    "tell": lambda r: (r.read(2), r.tell(), r.read(), r.tell()),
    "text": lambda r: io.TextIOWrapper(r).readlines(),
    "drained": lambda r: (r.drain_conn(), r.read()),
    "status": lambda r: (r.status, r.version, r.reason, r.headers.items(), r.read(), r.closed),
}
ANSWERS: dict[str, Script] = {
    "length": answer(b"one\ntwo\nthree", content_type="text/plain"),
    "chunked": chunks(b"one\ntw", b"o\nthr", b"ee"),
    "gzip": answer(gzip.compress(b"one\ntwo\nthree"), headers=[("Content-Encoding", "gzip")]),
    "empty": answer(b""),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("script", ANSWERS.values(), ids=ANSWERS)
def test_a_response_reads_as_it_does_without_us(
    tape: MemoryTape,
    pool: urllib3.PoolManager,
    script: Script,
    read: Callable[[Any], object],
) -> None:
    def ask(url: str) -> object:
        response = pool.request("POST", url, body=b"{}", preload_content=False)
        assert isinstance(response, urllib3.HTTPResponse)
        response.auto_close = False  # as `io` wants it
        return read(response)

    with serving(script) as server:
        live = ask(server.url)
        with recording(tape):
            assert ask(server.url) == live
        with tapes.use(tape):
            assert ask(server.url) == live


def test_a_chunk_comes_whole_where_it_has_come_and_in_parts_where_not(
    tape: MemoryTape, pool: urllib3.PoolManager
) -> None:
    rest_is_wanted = threading.Event()

    def script(_: Received, wire: Wire) -> None:
        wire.head(200, [("Transfer-Encoding", "chunked")])
        wire.send(b"4000\r\n" + b"x" * 0x4000 + b"\r\n8\r\nfirs")
        assert rest_is_wanted.wait(10)
        wire.send(b"tlas\r\n0\r\n\r\n")

    with serving(script) as server, recording(tape):
        response = pool.request("GET", server.url, preload_content=False)
        assert response.read(0x4000) == b"x" * 0x4000
        assert response.read1(4) == b"firs"  # and not: wait for the rest of the chunk
        rest_is_wanted.set()
        assert response.read() == b"tlas"
    pieces = [piece.data for piece in the_only(tape).response.pieces]
    assert b"".join(pieces) == b"x" * 0x4000 + b"firstlas"
    assert pieces[-2:] == [b"firs", b"tlas"]


@pytest.mark.parametrize("script", [ANSWERS["length"], ANSWERS["chunked"]])
def test_a_connection_goes_back_to_its_pool(tape: MemoryTape, script: Script) -> None:
    with (
        serving(script) as server,
        urllib3.HTTPConnectionPool("127.0.0.1", server.port, block=True, timeout=5) as pool,
    ):
        for mode in ("record", "replay"):
            with tapes.use(tape, mode, latch=True):
                for number in range(3):
                    pool.request("GET", f"/{number}", pool_timeout=5)
                    response = pool.urlopen("GET", f"/{number}", preload_content=False)
                    list(response.stream())
        assert server.connections == 1


def test_a_response_that_was_forgotten_is_evidence(
    tape: MemoryTape, pool: urllib3.PoolManager
) -> None:
    with serving(Acknowledged(EVENTS)) as server, recording(tape):
        response = pool.request("POST", server.url, preload_content=False)
        del response
        gc.collect()
    assert the_only(tape).state is State.ABORTED_BY_CLIENT


# --- request bodies ---------------------------------------------------------------------------

BODIES: dict[str, Callable[[], Any]] = {
    "text": lambda: '{"a": "ü"}',
    "bytearray": lambda: bytearray('{"a": "ü"}'.encode()),
    "memoryview": lambda: memoryview('{"a": "ü"}'.encode()),
    "file": lambda: io.BytesIO('{"a": "ü"}'.encode()),
    "iterator": lambda: iter([b'{"a": ', '"ü"}'.encode()]),
    "list": lambda: [b'{"a": ', '"ü"}'.encode()],
}


@pytest.mark.parametrize("make", BODIES.values(), ids=BODIES)
def test_a_body_is_read_for_the_key_and_sent_as_without_us(
    tape: MemoryTape, pool: urllib3.PoolManager, make: Callable[[], Any]
) -> None:
    headers = {"Content-Type": "application/json"}
    with serving(answer(b"[1]")) as server:
        pool.request("POST", server.url, body=make(), headers=headers)
        with recording(tape):
            pool.request("POST", server.url, body=make(), headers=headers)
        with tapes.use(tape):
            got = pool.request("POST", server.url, body='{"a":"ü"}'.encode(), headers=headers)
        plain, recorded = server.requests
    assert recorded == plain
    assert got.data == b"[1]"


# --- retries and redirects --------------------------------------------------------------------


def test_a_retry_within_the_library_is_recorded_by_its_answer(tape: MemoryTape) -> None:
    retries = Retry(2, status_forcelist=[503], backoff_factor=0, allowed_methods=None)
    with (
        serving(answer(b"busy", status=503), answer(b"[1]")) as server,
        urllib3.PoolManager(retries=retries) as pool,
    ):
        with recording(tape):
            assert pool.request("POST", server.url).data == b"[1]"
        with tapes.use(tape):
            assert pool.request("POST", server.url).data == b"[1]"
        assert len(server.requests) == 2


def test_a_redirect_is_two_exchanges(tape: MemoryTape) -> None:
    def script(received: Received, wire: Wire) -> None:
        if received.target == "/":
            answer(b"moved", status=302, headers=[("Location", "/there")])(received, wire)
        else:
            answer(b"there")(received, wire)

    with serving(script) as server, urllib3.PoolManager() as pool:
        for mode in ("record", "replay"):
            with tapes.use(tape, mode, latch=True):
                assert pool.request("GET", server.url).data == b"there"
        assert len(server.requests) == 2


@pytest.mark.row("N17")
def test_a_call_that_timed_out_was_spent(tape: MemoryTape, pool: urllib3.PoolManager) -> None:
    def never(_: Received, wire: Wire) -> None:
        wire.until_left()

    with serving(never) as server, recording(tape, limits=Limits(calls=1)):
        with pytest.raises(urllib3.exceptions.ReadTimeoutError):
            pool.request("POST", server.url, timeout=Timeout(read=0.05))
        with pytest.raises(BudgetExhausted):
            pool.request("POST", server.url)


# --- proxies ----------------------------------------------------------------------------------


def test_a_request_that_a_proxy_forwards_belongs_to_its_destination(tape: MemoryTape) -> None:
    with serving(answer(b"[1]")) as proxy:
        with recording(tape), urllib3.ProxyManager(proxy.url) as pool:
            pool.request("GET", "http://provider.test/v1/x")
        assert proxy.requests[0].target == "http://provider.test/v1/x"
    request = the_only(tape).request
    assert isinstance(request, Request)
    assert request.url == "http://provider.test/v1/x"
    with tapes.use(tape), urllib3.PoolManager() as pool:
        assert pool.request("GET", "http://provider.test/v1/x").data == b"[1]"


def test_replay_does_not_speak_to_a_proxy(tape: MemoryTape) -> None:
    with serving(answer()) as proxy, tapes.use(tape):
        with urllib3.ProxyManager(proxy.url) as pool:
            for url in ("http://provider.test/", "https://provider.test/"):
                with pytest.raises(CassetteMiss):
                    pool.request("GET", url)
        assert proxy.connections == 0


def test_a_tunnel_is_dug_once_a_call_is_permitted(tape: MemoryTape, tmp_path: Path) -> None:
    certificate, key = tls_files(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)

    def dig(received: Received, wire: Wire) -> None:
        if received.method == "CONNECT":
            wire.head(200, (), "Connection established")
            wire.start_tls(context)
        else:
            chunks(b"through the ", b"tunnel")(received, wire)

    with serving(dig) as proxy:
        with urllib3.ProxyManager(proxy.url, ca_certs=str(certificate)) as pool:
            with recording(tape):
                got = [pool.request("GET", f"https://localhost/{n}").data for n in range(2)]
            with tapes.use(tape):
                got.append(pool.request("GET", "https://localhost/1").data)
        assert got == [b"through the tunnel"] * 3
        assert [received.method for received in proxy.requests] == ["CONNECT", "GET", "GET"]


# --- what is no exchange ----------------------------------------------------------------------


def test_an_upgrade_does_not_leave_this_machine_in_replay(
    tape: MemoryTape, pool: urllib3.PoolManager
) -> None:
    headers = {"Connection": "upgrade", "Upgrade": "websocket"}
    with tapes.use(tape, guard=False):
        with pytest.raises(NetworkBlocked, match=r"provider\.test:443"):
            pool.request("GET", "https://provider.test", headers=headers)
        with pytest.raises(urllib3.exceptions.NewConnectionError):
            pool.request("GET", f"http://127.0.0.1:{closed_port()}", headers=headers)
