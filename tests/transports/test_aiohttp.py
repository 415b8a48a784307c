"""What is particular to aiohttp."""

import asyncio
import gc
import gzip
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import ClientRequest, ClientResponse, ClientSession, ClientTimeout

import tapes
from tapes import BudgetExhausted, Cassette, CassetteMiss, NetworkBlocked
from tapes.budget import Limits
from tapes.errors import IncompleteRecording
from tapes.exchange import Exchange, State
from tapes.tape.base import MemoryTape
from tapes.transports.aiohttp import middleware
from tests.servers import (
    Acknowledged,
    Received,
    Script,
    Wire,
    answer,
    chunks,
    closed_port,
    serving,
)

EVENTS = tuple(b"data: %d\n\n" % number for number in range(5))
TIMEOUT = ClientTimeout(total=10)
Read = Callable[[ClientResponse], Awaitable[Any]]


@pytest.fixture
def tape() -> MemoryTape:
    return MemoryTape()


def recording(tape: MemoryTape, **options: Any) -> tapes.use:
    return tapes.use(tape, "record", latch=True, **options)


def the_only(tape: MemoryTape) -> Exchange:
    (exchange,) = tape.exchanges()
    return exchange


async def body(response: ClientResponse) -> bytes:
    return await response.read()


def ask(url: str, read: Read = body, session: dict[str, Any] | None = None, **options: Any) -> Any:
    async def main() -> Any:
        async with (
            ClientSession(timeout=TIMEOUT, **(session or {})) as client,
            client.post(url, **options) as response,
        ):
            return await read(response)

    return asyncio.run(main())


# --- explicit ---------------------------------------------------------------------------------


def test_a_middleware_records_and_replays(tape: MemoryTape) -> None:
    with serving(answer(b"[1]")) as server:
        for mode in ("record", "replay"):
            own = middleware(Cassette(tape, mode, latch=True))
            assert ask(server.url, session={"middlewares": [own]}) == b"[1]"
        assert len(server.requests) == 1


def test_a_middleware_does_not_ask_the_cassette_around_it(tape: MemoryTape) -> None:
    own = middleware(Cassette(tape, "record", latch=True))
    with serving(answer(b"[1]")) as server, tapes.use(MemoryTape()) as around:
        assert ask(server.url, session={"middlewares": [own]}) == b"[1]"
    assert around.report.as_dict()["refused"] == 0


def test_the_users_own_middlewares_stand_before_ours(tape: MemoryTape) -> None:
    seen: list[bytes] = []

    async def own(request: ClientRequest, handler: Any) -> ClientResponse:
        request.headers["Content-Type"] = "application/json"
        response: ClientResponse = await handler(request)
        seen.append(await response.read())
        return response

    coded = answer(gzip.compress(b"[1]"), headers=[("Content-Encoding", "gzip")])
    with serving(coded) as server:
        for mode in ("record", "replay"):
            with tapes.use(tape, mode, latch=True):
                assert ask(server.url, middlewares=[own], data=b"{ }") == b"[1]"
                assert ask(server.url, data=b"{}", json=None, middlewares=[own]) == b"[1]"
        assert [received.body for received in server.requests] == [b"{ }"]
    assert seen == [b"[1]"] * 4


# --- responses read as live ones --------------------------------------------------------------


async def lines(response: ClientResponse) -> list[bytes]:
    return [line async for line in response.content]


async def chunked(response: ClientResponse) -> bytes:
    parts = [part async for part in response.content.iter_chunked(4)]
    assert all(0 < len(part) <= 4 for part in parts)
    return b"".join(parts)


async def by_chunk(response: ClientResponse) -> list[bytes]:
    """The chunks, whose last part may come without their end, and their end without a part."""
    got = [b""]
    async for part, ends in response.content.iter_chunks():
        got[-1] += part
        if ends and got[-1]:
            got.append(b"")
    return got


async def exactly(response: ClientResponse) -> tuple[bytes | str, bytes]:
    try:
        return await response.content.readexactly(5), await response.read()
    except asyncio.IncompleteReadError as error:
        return f"{error.partial!r}", await response.read()


async def facts(response: ClientResponse) -> object:
    text = await response.text()
    return (response.status, response.reason, list(response.headers.items()), text,
            response.method, response.ok, response.content_type, response.charset,
            response.closed, response.history, response.version)  # fmt: skip


READS: dict[str, Read] = {
    read.__name__: read
    for read in (body, lines, chunked, by_chunk, exactly, facts)
}  # fmt: skip
ANSWERS: dict[str, Script] = {
    "length": answer(b"one\ntwo\nthree", content_type="text/plain"),
    "chunked": chunks(b"one\ntw", b"o\nthr", b"ee"),
    "gzip": answer(gzip.compress(b"one\ntwo\nthree"), headers=[("Content-Encoding", "gzip")]),
    "empty": answer(b""),
    "nothing in chunks": chunks(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
@pytest.mark.parametrize("script", ANSWERS.values(), ids=ANSWERS)
def test_a_response_reads_as_it_does_without_us(
    tape: MemoryTape, script: Script, read: Read
) -> None:
    with serving(script) as server:
        live = ask(server.url, read)
        with recording(tape):
            assert ask(server.url, read) == live
        with tapes.use(tape):
            assert ask(server.url, read) == live


def test_options_of_the_session_and_the_request_hold(tape: MemoryTape) -> None:
    coded = gzip.compress(b"a" * 100_000)
    with serving(answer(coded, headers=[("Content-Encoding", "gzip")])) as server:
        for mode in ("record", "replay"):
            with tapes.use(tape, mode, latch=True):
                assert ask(server.url, session={"auto_decompress": False}) == coded
                assert ask(server.url, auto_decompress=False) == coded
                assert ask(server.url, read_bufsize=1024) == b"a" * 100_000
                with pytest.raises(Exception, match="more than 2048 bytes"):
                    ask(server.url, lines, read_bufsize=1024)


def test_a_status_that_raises_does_so_in_replay(tape: MemoryTape) -> None:
    with serving(answer(b"no", status=404, reason="Not Here")) as server:
        for mode in ("record", "replay"):
            with tapes.use(tape, mode, latch=True):
                raises = pytest.raises(aiohttp.ClientResponseError, match="Not Here")
                with raises:
                    ask(server.url, session={"raise_for_status": True})
        assert len(server.requests) == 1


def test_json_and_its_type_are_the_librarys_business(tape: MemoryTape) -> None:
    async def as_json(response: ClientResponse) -> Any:
        return await response.json()

    with serving(answer(b"[1]"), answer(b"[1]", content_type="text/plain")) as server:
        for mode in ("record", "replay"):
            with tapes.use(tape, mode, latch=True):
                assert ask(server.url, as_json) == [1]
                with pytest.raises(aiohttp.ContentTypeError):
                    ask(server.url + "/text", as_json)


def test_a_read_that_was_given_up_goes_on(tape: MemoryTape) -> None:
    script = Acknowledged(EVENTS)

    async def impatient(response: ClientResponse) -> list[bytes]:
        got = [await response.content.readany()]
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(response.content.readany(), 0.05)
        script.got()
        async for piece in response.content.iter_any():
            script.got()
            got.append(piece)
        return got

    with serving(script) as server:
        with recording(tape):
            assert ask(server.url, impatient) == list(EVENTS)
        assert the_only(tape).state is State.COMPLETE


# --- bodies that nobody reads -----------------------------------------------------------------


async def nothing(response: ClientResponse) -> int:
    return response.status


def test_an_answer_whose_body_nobody_reads_is_whole_if_it_has_come(tape: MemoryTape) -> None:
    def at_once(_: Received, wire: Wire) -> None:
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n[1]")

    with serving(at_once) as server:
        with recording(tape):
            assert ask(server.url, nothing) == 200
        with tapes.use(tape):
            assert ask(server.url) == b"[1]"


def test_an_answer_that_nobody_waits_for_is_evidence(tape: MemoryTape) -> None:
    with serving(Acknowledged(EVENTS)) as server:
        with recording(tape):
            assert ask(server.url, nothing) == 200
        with tapes.use(tape), pytest.raises(IncompleteRecording):
            ask(server.url)


def test_a_response_that_was_forgotten_is_evidence(tape: MemoryTape) -> None:
    async def forget(url: str) -> None:
        async with ClientSession(timeout=TIMEOUT) as client:
            response = await client.post(url)
            assert response.status == 200
            del response
            gc.collect()

    with serving(Acknowledged(EVENTS)) as server, recording(tape):
        asyncio.run(forget(server.url))
    assert the_only(tape).state is State.ABORTED_BY_CLIENT


# --- request bodies ---------------------------------------------------------------------------


async def parts() -> AsyncIterator[bytes]:
    yield b'{"a": '
    yield '"ü"}'.encode()


def form() -> aiohttp.FormData:
    made = aiohttp.FormData()
    made.add_field("purpose", "x")
    made.add_field("file", io.BytesIO(b"the same"), filename="a.txt", content_type="text/plain")
    return made


BODIES: dict[str, Callable[[], dict[str, Any]]] = {
    "json": lambda: {"json": {"a": "ü"}},
    "text": lambda: {"data": '{"a": "ü"}'},
    "file": lambda: {"data": io.BytesIO(b"some bytes")},
    "async iterator": lambda: {"data": parts()},
    "fields": lambda: {"data": {"a": "b", "c": "ü"}},
    "compressed": lambda: {"data": b"a" * 1000, "compress": "gzip"},
    "nothing": dict,
}


@pytest.mark.parametrize("make", BODIES.values(), ids=BODIES)
def test_a_body_is_read_for_the_key_and_sent_as_without_us(
    tape: MemoryTape, make: Callable[[], dict[str, Any]]
) -> None:
    async def send(url: str) -> bytes:
        async with ClientSession(timeout=TIMEOUT) as client, client.post(url, **make()) as response:
            return await response.read()

    with serving(answer(b"[1]")) as server:
        asyncio.run(send(server.url))
        for mode in ("record", "replay"):
            with tapes.use(tape, mode, latch=True):
                assert asyncio.run(send(server.url)) == b"[1]"
        plain, recorded = server.requests
    assert recorded == plain


def test_a_file_on_disk_is_sent_whole(tape: MemoryTape, tmp_path: Path) -> None:
    path = tmp_path / "upload"
    path.write_bytes(b"x" * 300_000)
    with serving(answer(b"[1]")) as server, recording(tape), path.open("rb") as file:
        ask(server.url, data=file)
        assert server.requests[0].body == path.read_bytes()


@pytest.mark.row("N11")
def test_uploads_match_whatever_their_boundary_is(tape: MemoryTape) -> None:
    async def upload(url: str) -> bytes:
        async with (
            ClientSession(timeout=TIMEOUT) as client,
            client.post(url, data=form()) as response,
        ):
            return await response.read()

    with serving(answer(b"[1]")) as server:
        for mode in ("record", "replay"):
            with tapes.use(tape, mode, latch=True):
                assert asyncio.run(upload(server.url)) == b"[1]"
        assert len(server.requests) == 1
        with tapes.use(tape), pytest.raises(CassetteMiss):
            ask(server.url, data={"purpose": "x"})


# --- redirects and cookies --------------------------------------------------------------------


def to_there(received: Received, wire: Wire) -> None:
    if received.target == "/":
        moved = [("Location", "/there"), ("Set-Cookie", "a=b")]
        answer(b"moved", status=307, headers=moved)(received, wire)
    else:
        answer(b"there " + received.body)(received, wire)


def test_a_redirect_is_two_exchanges(tape: MemoryTape) -> None:
    async def facts(response: ClientResponse) -> object:
        return [step.status for step in response.history], await response.read()

    async def go(url: str) -> object:
        jar = aiohttp.CookieJar(unsafe=True)  # addresses have cookies too
        async with (
            ClientSession(timeout=TIMEOUT, cookie_jar=jar) as client,
            client.post(url, data=b"said") as response,
        ):
            return await facts(response)

    with serving(to_there) as server:
        for mode in ("record", "replay"):
            with tapes.use(tape, mode, latch=True):
                assert asyncio.run(go(server.url)) == ([307], b"there said")
        assert len(server.requests) == 2
        assert server.requests[1].header("cookie") == "a=b"


def test_a_redirect_whose_body_comes_late_is_whole(tape: MemoryTape) -> None:
    script = Acknowledged((b"moved", b"!"))

    def late(received: Received, wire: Wire) -> None:
        if received.target == "/":
            wire.head(302, [("Location", "/there"), ("Transfer-Encoding", "chunked")])
            script.got()
            wire.chunk(b"mov")
            wire.chunk(b"ed")
            wire.last_chunk()
        else:
            answer(b"there")(received, wire)

    with serving(late) as server:
        for mode in ("record", "replay"):
            with tapes.use(tape, mode, latch=True):
                assert ask(server.url) == b"there"
        assert len(server.requests) == 2


# --- how calls end ----------------------------------------------------------------------------


def never(_: Received, wire: Wire) -> None:
    wire.until_left()


@pytest.mark.row("N17")
@pytest.mark.parametrize("timeout", [ClientTimeout(total=0.05), ClientTimeout(sock_read=0.05)])
def test_a_call_that_timed_out_was_spent(tape: MemoryTape, timeout: ClientTimeout) -> None:
    with serving(never) as server, recording(tape, limits=Limits(calls=1)):
        with pytest.raises(TimeoutError):
            ask(server.url, timeout=timeout)
        with pytest.raises(BudgetExhausted):
            ask(server.url)


def test_a_time_out_within_a_body_is_the_librarys(tape: MemoryTape) -> None:
    with serving(Acknowledged(EVENTS)) as server, recording(tape), pytest.raises(TimeoutError):
        ask(server.url, timeout=ClientTimeout(total=0.2))
    assert the_only(tape).state is not State.COMPLETE


def test_traces_see_a_replayed_call(tape: MemoryTape) -> None:
    seen: list[str] = []

    async def note(_session: object, _context: object, parameters: Any) -> None:
        seen.append(type(parameters).__name__)

    trace = aiohttp.TraceConfig()
    trace.on_request_start.append(note)
    trace.on_request_headers_sent.append(note)
    trace.on_request_end.append(note)
    with serving(answer()) as server:
        for mode in ("record", "replay"):
            with tapes.use(tape, mode, latch=True):
                ask(server.url, session={"trace_configs": [trace]})
    assert seen[:3] == seen[3:]
    assert len(seen) == 6


# --- what is no exchange ----------------------------------------------------------------------


def test_a_websocket_does_not_leave_this_machine_in_replay(tape: MemoryTape) -> None:
    async def connect(url: str) -> None:
        async with ClientSession(timeout=TIMEOUT) as client, client.ws_connect(url):
            pass

    with tapes.use(tape, guard=False):
        with pytest.raises(NetworkBlocked, match=r"provider\.test:443"):
            asyncio.run(connect("wss://provider.test/live"))
        with pytest.raises(aiohttp.ClientConnectorError):
            asyncio.run(connect(f"ws://127.0.0.1:{closed_port()}"))
