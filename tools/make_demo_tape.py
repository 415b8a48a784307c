"""Makes the tape of `tapes demo` from recordings of a real model server.

Usage: python tools/make_demo_tape.py FOLDER

FOLDER holds one JSON file an exchange, as it went over the wire: {"request": {"method", "path",
"body"}, "response": {"status", "headers", "chunks": [{"ms", "text"}]}}. The server was llama.cpp's
own, over a model of 270 million parameters; `created` in its answers says when. The same
recordings give the same tape to the byte.
"""

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tapes.canonical import HTTP_1, key_of_exchange_request
from tapes.exchange import Exchange, Piece, Request, Response
from tapes.jsontext import compact
from tapes.redact import Redactor
from tapes.tape.jsonl import JsonlTape

TAPE = Path(__file__).parents[1] / "src" / "tapes" / "demo" / "conversation.jsonl"
NAMES = (
    "chat-ticket",
    "chat-ticket-stream",
    "chat-unicode-stream",
    "chat-turn-1",
    "chat-turn-2",
    "chat-turn-3",
)
# Where that server listens unless it is told otherwise; the host is no part of a request's key.
SERVER = "http://localhost:8000"


def exchange_of(recording: dict[str, Any]) -> Exchange:
    asked, came = recording["request"], recording["response"]
    request = Request(
        asked["method"],
        SERVER + asked["path"],
        (("Accept", "application/json"), ("Content-Type", "application/json")),
        compact(asked["body"]).encode(),
    )
    pieces = tuple(
        Piece(round(chunk["ms"] / 1000, 4), chunk["text"].encode()) for chunk in came["chunks"]
    )
    response = Response(came["status"], tuple(came["headers"].items()), pieces)
    redactor = Redactor()
    kept = redactor.request(request)
    return Exchange(
        key=key_of_exchange_request(HTTP_1, kept),
        canonicalizer=HTTP_1,
        request=kept,
        response=redactor.response(response),
        recorded_at=created(pieces[0].data),
    )


def created(first: bytes) -> str:
    seconds = json.loads(first.removeprefix(b"data: "))["created"]
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def main(folder: Path) -> None:
    TAPE.parent.mkdir(exist_ok=True)
    TAPE.unlink(missing_ok=True)
    tape = JsonlTape(TAPE)
    for name in NAMES:
        tape.append(exchange_of(json.loads((folder / f"{name}.json").read_text())))
    tape.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
