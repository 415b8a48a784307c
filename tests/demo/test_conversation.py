"""The demo's tape holds what the demo asks, byte for byte, however it is asked."""

import importlib.util
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tapes.canonical import HTTP_1, key_of_exchange_request
from tapes.demo import conversation
from tapes.exchange import Request, Response
from tapes.scanning import scan
from tapes.tape.base import MemoryTape
from tapes.tape.kinds import open_tape
from tapes.tape.mending import verify
from tests.late import late

openai = late("openai")


@contextmanager
def server() -> Iterator[tuple[Any, list[str]]]:
    """A model server that knows the tape and nothing else; and the keys that it was asked for."""
    tape = open_tape(conversation.TAPE)
    known = MemoryTape(tuple(tape.exchanges()))
    tape.close()
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            request = Request("POST", self.path, tuple(self.headers.items()), body)
            asked.append(key_of_exchange_request(HTTP_1, request))
            found = known.find(asked[-1])
            response = Response(404) if found is None else found.response
            assert isinstance(response, Response)
            self.send_response(response.status)
            self.send_header(
                "content-type", dict(response.headers).get("content-type", "text/plain")
            )
            self.send_header("content-length", str(len(response.body)))
            self.end_headers()
            self.wfile.write(response.body)

        def log_message(self, format: str, *args: object) -> None:
            """Quietly."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{listening.server_address[1]}/v1"
        with openai.OpenAI(base_url=url, api_key="none", max_retries=0) as sdk:
            yield sdk, asked
        listening.shutdown()
        thread.join()


def test_the_tape_is_sound_and_holds_no_secret() -> None:
    found = verify(conversation.TAPE)
    assert (found.damage, found.rows, found.incomplete) == ([], 6, 0)
    assert scan(conversation.TAPE) == []


def test_the_conversation_is_on_the_tape() -> None:
    with server() as (sdk, asked):
        turns = list(conversation.converse(sdk))
    assert [turn.asked for turn in turns] == list(conversation.QUESTIONS)
    assert [turn.tokens for turn in turns] == [95, 191, 287]
    assert len(set(asked)) == 3


def test_the_streams_are_on_the_tape() -> None:
    with server() as (sdk, _):
        ticket = "".join(conversation.stream(sdk, conversation.ticket(conversation.TICKET)))
        greeting = "".join(conversation.stream(sdk, conversation.greeting()))
    assert ticket.startswith("Summarize the failing test: test_invoice_total expected 42.00")
    assert "モデル" in greeting


def test_the_other_ticket_is_not_on_the_tape() -> None:
    other = conversation.ticket(conversation.OTHER_TICKET)
    assert conversation.OTHER_TICKET != conversation.TICKET
    with server() as (sdk, _), pytest.raises(openai.NotFoundError):
        list(conversation.stream(sdk, other))


def tool() -> ModuleType:
    """The program that made the tape."""
    path = Path(__file__).parents[2] / "tools" / "make_demo_tape.py"
    spec = importlib.util.spec_from_file_location("make_demo_tape", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tape_is_made_of_the_recordings_to_the_byte(
    reference_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = tool()
    monkeypatch.setattr(maker, "TAPE", tmp_path / "made.jsonl")
    maker.main(reference_data / "real-model")
    assert (tmp_path / "made.jsonl").read_bytes() == conversation.TAPE.read_bytes()
