"""What is particular to requests."""

import io
from typing import Any

import pytest
import requests

import tapes
from tapes import Cassette, CassetteMiss
from tapes.tape.base import MemoryTape
from tapes.transports.requests import Adapter
from tests.servers import Received, Wire, answer, chunks, serving


@pytest.fixture
def tape() -> MemoryTape:
    return MemoryTape()


def recording(tape: MemoryTape) -> tapes.use:
    return tapes.use(tape, "record", latch=True)


def session_with(cassette: Cassette, **options: Any) -> requests.Session:
    session = requests.Session()
    session.mount("http://", Adapter(cassette, **options))
    return session


def test_an_adapter_records_and_replays(tape: MemoryTape) -> None:
    with serving(answer(b"[1]")) as server:
        with session_with(Cassette(tape, "record", latch=True)) as session:
            assert session.post(server.url).json() == [1]
        with session_with(Cassette(tape)) as session:
            assert session.post(server.url).json() == [1]
        assert len(server.requests) == 1


def test_an_adapter_holds_after_its_session_was_closed(tape: MemoryTape) -> None:
    with serving(answer(b"[1]")) as server:
        session = session_with(Cassette(tape))
        session.close()
        with pytest.raises(CassetteMiss):
            session.post(server.url)
        assert server.connections == 0


def test_other_sessions_are_left_alone(tape: MemoryTape) -> None:
    with serving(answer(b"[1]")) as server, session_with(Cassette(tape)):
        assert requests.post(server.url, timeout=5).json() == [1]


@pytest.mark.parametrize("size", [1, 4, None])
def test_lines_and_pieces_come_as_without_us(tape: MemoryTape, size: int | None) -> None:
    def ask(url: str) -> tuple[list[Any], list[Any]]:
        with requests.post(url, stream=True, timeout=5) as response:
            lines = list(response.iter_lines())
        with requests.post(url, stream=True, timeout=5) as response:
            return lines, list(response.iter_content(size))

    with serving(chunks(b"one\ntw", b"o\nthree")) as server:
        live = ask(server.url)
        with recording(tape):
            assert ask(server.url) == live
        with tapes.use(tape):
            assert ask(server.url) == live
    assert live[0] == [b"one", b"two", b"three"]


@pytest.mark.row("N11")
def test_uploads_match_whatever_their_boundary_is(tape: MemoryTape) -> None:
    def upload(url: str, data: bytes) -> Any:
        file = ("notes.txt", io.BytesIO(data), "text/plain")
        return requests.post(url, data={"purpose": "x"}, files={"file": file}, timeout=5).json()

    with serving(answer(b"[1]")) as server:
        with recording(tape):
            upload(server.url, b"the same")
        with tapes.use(tape):
            assert upload(server.url, b"the same") == [1]
            with pytest.raises(CassetteMiss):
                upload(server.url, b"the sane")


def test_cookies_of_a_live_answer_reach_the_session(tape: MemoryTape) -> None:
    with serving(answer(b"{}", headers=[("Set-Cookie", "a=b")])) as server, recording(tape):
        with requests.Session() as session:
            session.get(server.url)
            assert session.cookies.get_dict() == {"a": "b"}
            session.get(server.url + "/again")
        assert server.requests[1].header("cookie") == "a=b"


def test_a_redirect_is_two_exchanges(tape: MemoryTape) -> None:
    def script(received: Received, wire: Wire) -> None:
        if received.target == "/":
            answer(b"moved", status=307, headers=[("Location", "/there")])(received, wire)
        else:
            answer(received.body)(received, wire)

    with serving(script) as server:
        for mode in ("record", "replay"):
            with tapes.use(tape, mode, latch=True):
                got = requests.post(server.url, data=io.BytesIO(b"said"), timeout=5)
                assert (got.content, [step.status_code for step in got.history]) == (b"said", [307])
        assert len(server.requests) == 2
