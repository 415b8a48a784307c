"""What is particular to httpx and httpx2."""

import asyncio
import gc
import io
from collections.abc import AsyncIterator, Iterator
from types import ModuleType
from typing import Any

import anyio
import httpx
import httpx2
import pytest

import tapes
import tapes.transports.httpx
import tapes.transports.httpx2
from tapes import BudgetExhausted, Cassette, CassetteMiss, NetworkBlocked
from tapes.budget import Limits
from tapes.exchange import Exchange, State
from tapes.tape.base import MemoryTape
from tests.servers import Acknowledged, Received, Wire, answer, chunks, closed_port, serving

EXPLICIT: dict[str, ModuleType] = {
    "httpx": tapes.transports.httpx,
    "httpx2": tapes.transports.httpx2,
}
EVENTS = tuple(b"data: %d\n\n" % number for number in range(5))


@pytest.fixture(params=[httpx, httpx2], ids=lambda module: module.__name__)
def library(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def tape() -> MemoryTape:
    return MemoryTape()


def recording(tape: MemoryTape, **options: Any) -> tapes.use:
    return tapes.use(tape, "record", latch=True, **options)


def the_only(tape: MemoryTape) -> Exchange:
    (exchange,) = tape.exchanges()
    return exchange


def test_an_explicit_transport_records_and_replays(library: Any, tape: MemoryTape) -> None:
    transports = EXPLICIT[library.__name__]
    with serving(answer(b"[1]")) as server:
        recorder = transports.Transport(Cassette(tape, "record", latch=True))
        with library.Client(transport=recorder) as client:
            assert client.post(server.url).content == b"[1]"
        with library.Client(transport=transports.Transport(Cassette(tape))) as client:
            assert client.post(server.url).content == b"[1]"
        assert len(server.requests) == 1


def test_an_explicit_async_transport_records_and_replays(library: Any, tape: MemoryTape) -> None:
    transports = EXPLICIT[library.__name__]

    async def ask(mode: str, url: str) -> bytes:
        transport = transports.AsyncTransport(Cassette(tape, mode, latch=True))
        async with library.AsyncClient(transport=transport) as client:
            return bytes((await client.post(url)).content)

    with serving(answer(b"[1]")) as server:
        assert asyncio.run(ask("record", server.url)) == b"[1]"
        assert asyncio.run(ask("replay", server.url)) == b"[1]"
        assert len(server.requests) == 1


def test_an_explicit_transport_sends_through_the_wrapped_one(
    library: Any, tape: MemoryTape
) -> None:
    wrapped = library.MockTransport(lambda request: library.Response(200, content=request.content))
    transport = EXPLICIT[library.__name__].Transport(Cassette(tape, "record", latch=True), wrapped)
    with library.Client(transport=transport) as client:
        assert client.post("http://provider.test", content=b"said").content == b"said"
    assert the_only(tape).state is State.COMPLETE


def test_an_explicit_transport_does_not_ask_the_cassette_around_it(
    library: Any, tape: MemoryTape
) -> None:
    transport = EXPLICIT[library.__name__].Transport(Cassette(tape, "record", latch=True))
    with (
        serving(answer(b"[1]")) as server,
        tapes.use(MemoryTape()) as around,
        library.Client(transport=transport) as client,
    ):
        assert client.post(server.url).content == b"[1]"
    assert around.report.as_dict()["refused"] == 0


def test_custom_transports_are_left_alone(library: Any, tape: MemoryTape) -> None:
    mock = library.MockTransport(lambda _: library.Response(200, content=b"mine"))
    with tapes.use(tape), library.Client(transport=mock) as client:
        assert client.get("http://provider.test").content == b"mine"


def test_a_transport_that_extends_the_librarys_own_is_covered(
    library: Any, tape: MemoryTape
) -> None:
    class Own(library.HTTPTransport):  # type: ignore[misc]  # either library's
        def handle_request(self, request: Any) -> Any:
            request.headers["x-own"] = "1"
            return super().handle_request(request)

    with tapes.use(tape), library.Client(transport=Own()) as client, pytest.raises(CassetteMiss):
        client.get("http://provider.test")


def test_replay_does_not_speak_to_a_proxy(library: Any, tape: MemoryTape) -> None:
    with serving(answer()) as proxy, tapes.use(tape), library.Client(proxy=proxy.url) as client:
        for url in ("http://provider.test/", "https://provider.test/"):
            with pytest.raises(CassetteMiss):
                client.get(url)
        assert proxy.connections == 0


# --- request bodies ---------------------------------------------------------------------------


def parts() -> Iterator[bytes]:
    yield b'{"a":'
    yield b"1}"


async def async_parts() -> AsyncIterator[bytes]:
    for part in parts():
        yield part


def test_an_iterator_is_read_for_the_key_and_still_sent(library: Any, tape: MemoryTape) -> None:
    headers = {"content-type": "application/json"}
    with serving(answer(b"[1]")) as server:
        with recording(tape), library.Client() as client:
            client.post(server.url, content=parts(), headers=headers)
        with tapes.use(tape), library.Client() as client:
            got = client.post(server.url, content=b'{"a":1}', headers=headers)
        sent = server.requests[0]
    assert (sent.body, sent.header("transfer-encoding")) == (b'{"a":1}', "chunked")
    assert got.content == b"[1]"


def test_an_async_iterator_is_read_for_the_key_and_still_sent(
    library: Any, tape: MemoryTape
) -> None:
    async def ask(url: str) -> bytes:
        async with library.AsyncClient() as client:
            return bytes((await client.post(url, content=async_parts())).content)

    with serving(answer(b"[1]")) as server:
        with recording(tape):
            assert asyncio.run(ask(server.url)) == b"[1]"
        with tapes.use(tape):
            assert asyncio.run(ask(server.url)) == b"[1]"
        assert [sent.body for sent in server.requests] == [b'{"a":1}']


@pytest.mark.row("N11")
def test_uploads_match_whatever_their_boundary_is(library: Any, tape: MemoryTape) -> None:
    def upload(client: Any, url: str, data: bytes) -> bytes:
        file = ("notes.txt", io.BytesIO(data), "text/plain")
        return bytes(client.post(url, data={"purpose": "x"}, files={"file": file}).content)

    with serving(answer(b"[1]")) as server, library.Client() as client:
        with recording(tape):
            upload(client, server.url, b"the same")
        with tapes.use(tape):
            assert upload(client, server.url, b"the same") == b"[1]"
            with pytest.raises(CassetteMiss):
                upload(client, server.url, b"the sane")
        assert b"the same" in server.requests[0].body


# --- redirects --------------------------------------------------------------------------------


def to_there(received: Received, wire: Wire) -> None:
    if received.target == "/":
        answer(b"", status=307, headers=[("Location", "/there")])(received, wire)
    else:
        answer(b"there " + received.body)(received, wire)


def test_a_redirect_is_two_exchanges(library: Any, tape: MemoryTape) -> None:
    with serving(to_there) as server, library.Client(follow_redirects=True) as client:
        with recording(tape):
            live = client.post(server.url, content=parts())
        with tapes.use(tape):
            replayed = client.post(server.url, content=b'{"a":1}')
        assert len(server.requests) == 2
    assert replayed.content == live.content == b'there {"a":1}'
    assert [step.status_code for step in replayed.history] == [307]


def test_a_sample_is_asked_for_along_a_redirect(library: Any, tape: MemoryTape) -> None:
    with (
        serving(to_there) as server,
        recording(tape),
        library.Client(follow_redirects=True) as client,
    ):
        client.post(server.url, headers={"x-tapes-sample": "2"})
    assert [exchange.sample for exchange in tape.exchanges()] == [2, 2]


# --- how calls end ----------------------------------------------------------------------------


def never(_: Received, wire: Wire) -> None:
    wire.until_left()


@pytest.mark.row("N17")
def test_a_call_that_timed_out_was_spent(library: Any, tape: MemoryTape) -> None:
    with serving(never) as server, recording(tape, limits=Limits(calls=1)):
        with pytest.raises(library.ReadTimeout):
            library.post(server.url, timeout=0.05)
        with pytest.raises(BudgetExhausted):
            library.post(server.url)


@pytest.mark.row("N17")
def test_a_call_that_was_cancelled_was_spent(library: Any, tape: MemoryTape) -> None:
    async def give_up(url: str) -> None:
        async with library.AsyncClient() as client:
            with anyio.move_on_after(0.05):
                await client.post(url)

    with serving(never) as server, recording(tape, limits=Limits(calls=1)):
        asyncio.run(give_up(server.url))
        with pytest.raises(BudgetExhausted):
            library.post(server.url)


def test_a_stream_that_was_cancelled_is_evidence(library: Any, tape: MemoryTape) -> None:
    script = Acknowledged(EVENTS)

    async def give_up(url: str) -> None:
        async with library.AsyncClient() as client, client.stream("POST", url) as response:
            pieces = response.aiter_raw()
            await anext(pieces)
            with anyio.move_on_after(0.05):
                await anext(pieces)

    with serving(script) as server, recording(tape):
        asyncio.run(give_up(server.url))
    assert the_only(tape).state is State.ABORTED_BY_CLIENT


def test_a_response_that_was_forgotten_is_evidence(library: Any, tape: MemoryTape) -> None:
    with serving(Acknowledged(EVENTS)) as server, recording(tape), library.Client() as client:
        response = client.send(client.build_request("POST", server.url), stream=True)
        del response
        gc.collect()
    assert the_only(tape).state is State.ABORTED_BY_CLIENT


# --- what is no exchange ----------------------------------------------------------------------


def test_an_upgrade_does_not_leave_this_machine_in_replay(library: Any, tape: MemoryTape) -> None:
    upgrade = {"connection": "upgrade", "upgrade": "websocket"}
    with tapes.use(tape, guard=False):
        with pytest.raises(NetworkBlocked, match=r"provider\.test:80"):
            library.get("http://provider.test", headers=upgrade)
        with pytest.raises(library.ConnectError):
            library.get(f"http://127.0.0.1:{closed_port()}", headers=upgrade)


def test_a_replayed_response_reads_in_every_way(library: Any, tape: MemoryTape) -> None:
    with serving(chunks(b"one\ntw", b"o\nthree")) as server:
        with recording(tape), library.Client() as client:
            client.post(server.url)
        with tapes.use(tape), library.Client() as client:
            with client.stream("POST", server.url) as response:
                assert list(response.iter_lines()) == ["one", "two", "three"]
            with client.stream("POST", server.url) as response:
                assert list(response.iter_bytes(4)) == [b"one\n", b"two\n", b"thre", b"e"]
            assert client.post(server.url).http_version == "HTTP/1.1"


def test_a_sync_stream_cannot_be_read_by_async_code(library: Any, tape: MemoryTape) -> None:
    async def read(response: Any) -> None:
        async for _ in response.aiter_raw():
            pass

    with serving(answer()) as server, recording(tape), library.Client() as client:
        client.post(server.url)
        with client.stream("POST", server.url) as response, pytest.raises(RuntimeError):
            asyncio.run(read(response))
