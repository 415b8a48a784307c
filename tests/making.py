"""Exchanges and tapes of every kind, for the tests of the tools on tapes."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from tapes.canonical import (
    HTTP_1,
    TAPE,
    evidence_key,
    key_of,
    key_of_exchange_request,
    sample_key,
)
from tapes.exchange import Exchange, Piece, Request, Response, State
from tapes.jsontext import Json, compact
from tapes.tape.base import BLOB_SIZE
from tapes.tape.kinds import open_tape

KINDS = {"jsonl": "t.jsonl", "sqlite": "t.db", "directory": "t/"}


def call(prompt: str, answer: str = "", **more: object) -> Exchange:
    """A call with dicts; by default its answer is made of its prompt."""
    request: dict[str, Json] = {"prompt": prompt, **more}
    response = {"text": answer or f"about {prompt}"}
    return Exchange(
        key_of(TAPE.text(request)), TAPE.name, request, response, recorded_at=_time(prompt)
    )


def chat(text: str, *deltas: str, sample: int = 0, state: State = State.COMPLETE) -> Exchange:
    """A streamed chat completion over HTTP."""
    body = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": text}], "stream": True}
    request = Request(
        "POST",
        "https://api.openai.com/v1/chat/completions",
        (("content-type", "application/json"),),
        compact(body).encode(),
    )
    events = [
        _event({"choices": [{"index": 0, "delta": {"content": d}}]}) for d in deltas or ("hi",)
    ]
    if state is State.COMPLETE:
        events.append(b"data: [DONE]\n\n")
    pieces = tuple(Piece(0.1 * n, event) for n, event in enumerate(events))
    headers = (("content-type", "text/event-stream"), ("x-request-id", f"req-{text}"))
    key = sample_key(key_of_exchange_request(HTTP_1, request), sample)
    return Exchange(
        key if state is State.COMPLETE else evidence_key(key),
        HTTP_1,
        request,
        Response(200, headers, pieces),
        sample=sample,
        state=state,
        recorded_at=_time(text),
    )


def large(text: str, filler: str = "long ") -> Exchange:
    """An answer whose body is kept once, beside the row."""
    found = chat(text)
    data = compact({"text": filler * (2 * BLOB_SIZE // len(filler))}).encode()
    return Exchange(
        found.key,
        HTTP_1,
        found.request,
        Response(200, (("content-type", "application/json"),), (Piece(0.5, data),)),
        recorded_at=found.recorded_at,
    )


def _event(value: Json) -> bytes:
    return f"data: {compact(value)}\n\n".encode()


def _time(text: str) -> str:
    return f"2026-03-04T05:06:{sum(text.encode()) % 60:02d}.000+00:00"


def assorted() -> list[Exchange]:
    """One of everything that a tape can hold."""
    return [
        call("one"),
        call("two", name="Zoë"),
        chat("weather", "sun", "ny"),
        chat("weather", "rain", sample=1),
        chat("cut", "half", state=State.ABORTED_BY_CLIENT),
        large("long"),
        large("long again"),
    ]


def make_tape(path: str | os.PathLike[str], exchanges: Iterable[Exchange]) -> str:
    """A tape that holds these; gives its path."""
    tape = open_tape(path)
    for exchange in exchanges:
        tape.append(exchange)
    tape.close()
    return os.fspath(path)


def tape_in(folder: Path, kind: str, exchanges: Iterable[Exchange], name: str = "t") -> str:
    """A tape of a kind in a folder; gives its path."""
    suffix = KINDS[kind].removeprefix("t")
    return make_tape(f"{folder}/{name}{suffix}", exchanges)


def answers(path: str) -> dict[str, Exchange]:
    """What a tape answers, by key, as the tape itself reads it."""
    tape = open_tape(path)
    try:
        keys = sorted(tape.keys())
        return {key: found for key in keys if (found := tape.find(key)) is not None}
    finally:
        tape.close()


def contents(path: str) -> list[Exchange]:
    """Everything on a tape."""
    tape = open_tape(path)
    try:
        return list(tape.exchanges())
    finally:
        tape.close()


def stretch(tape: Path, seconds: float) -> None:
    """Rewrite a recording's times as if its pieces had come so many seconds apart."""
    row = json.loads(tape.read_text())
    pieces = row["response"]["pieces"]
    row["response"]["pieces"] = [[seconds * n, data] for n, (_, data) in enumerate(pieces, 1)]
    tape.write_text(json.dumps(row) + "\n")
