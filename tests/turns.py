"""Raw turns as a proxy captures them, made from what a test wants to say and nothing more."""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tapes.envelope import Envelope, identified, thread_of
from tapes.exchange import Exchange, Piece, Request, Response, State
from tapes.jsontext import Json
from tapes.rows import Outcome, RawTurn, Source

SECOND = 1_000_000_000
START = 1_785_000_000 * SECOND

Message = dict[str, Json]


def at(seconds: float) -> int:
    """A time so many seconds after the beginning of the tests' time."""
    return START + round(seconds * SECOND)


def raw_turn(
    number: int,
    path: str,
    asked: Json,
    answered: Json,
    *,
    session: str = "s",
    harness: str = "bench",
    thread: str = "",
    request_id: str | None = None,
    begins: float | None = None,
    takes: float | None = 1.0,
    status: int = 200,
    state: State = State.COMPLETE,
    outcome: Outcome = Outcome.LIVE,
    stream: bytes | None = None,
    **envelope: Json,
) -> RawTurn:
    """The turn of one exchange. It begins ten seconds after the one before and takes one."""
    begins = number * 10 if begins is None else begins
    body = json.dumps(answered).encode() if stream is None else stream
    kind = "application/json" if stream is None else "text/event-stream"
    return RawTurn(
        id=number,
        request_id=f"r{number}" if request_id is None else request_id,
        envelope=Envelope(harness_id=harness, harness_session_id=session, **envelope),
        thread_id=thread,
        exchange=Exchange(
            "",
            "http/1",
            Request("POST", f"https://provider.test{path}", (), json.dumps(asked).encode()),
            Response(status, (("content-type", kind),), (Piece(takes or 0.0, body),)),
            state=state,
        ),
        outcome=outcome,
        started_at=at(begins),
        ended_at=None if takes is None else at(begins + takes),
    )


# --- the Messages API -------------------------------------------------------------------------

TOOLS = [{"name": "Bash", "input_schema": {}}, {"name": "Agent", "input_schema": {}}]


def user(*content: str | Message) -> Message:
    return {"role": "user", "content": [_block(item) for item in content]}


def assistant(*content: str | Message) -> Message:
    return {"role": "assistant", "content": [_block(item) for item in content]}


def _block(item: str | Message) -> Message:
    return {"type": "text", "text": item} if isinstance(item, str) else item


def call(call_id: str, name: str, **given: Json) -> Message:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def result(call_id: str, output: str, *, failed: bool = False) -> Message:
    return {
        "type": "tool_result",
        "tool_use_id": call_id,
        "content": output,
        **({"is_error": True} if failed else {}),
    }


def messages(
    number: int,
    history: Sequence[Message],
    answer: Message,
    *,
    tokens: tuple[int, int] | None = (100, 10),
    tools: bool = True,
    system: str = "",
    max_tokens: int = 1000,
    model: str = "claude-test",
    **how: Any,
) -> RawTurn:
    """A streaming call of the Messages API, by default with tools: an agent's."""
    asked: dict[str, Json] = {"model": model, "max_tokens": max_tokens, "stream": True}
    asked |= {"messages": list(history), "system": system}
    asked |= {"tools": TOOLS} if tools else {}
    calls = any(block["type"] == "tool_use" for block in answer["content"])
    answered = {
        "id": f"msg_{number}",
        "type": "message",
        "model": model,
        "stop_reason": "tool_use" if calls else "end_turn",
        **answer,
    }
    if tokens is not None:
        answered["usage"] = {"input_tokens": tokens[0], "output_tokens": tokens[1]}
    return raw_turn(number, "/v1/messages", asked, answered, **{"harness": "claude"} | how)


# --- chat completions -------------------------------------------------------------------------


def said(role: str, content: str | None, **more: Json) -> Message:
    return {"role": role, "content": content, **more}


def chat(
    number: int,
    history: Sequence[Message],
    answer: str | Message,
    *,
    tokens: tuple[int, int] | None = (100, 10),
    model: str = "gpt-test",
    asks: dict[str, Json] | None = None,
    **how: Any,
) -> RawTurn:
    """A call of chat completions: an application's, without tools and without a stream."""
    message = said("assistant", answer) if isinstance(answer, str) else answer
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    asked = {"model": model, "messages": list(history)} | (asks or {})
    answered: dict[str, Json] = {"id": f"chatcmpl-{number}", "model": model}
    answered["choices"] = [{"index": 0, "message": message, "finish_reason": reason}]
    if tokens is not None:
        answered["usage"] = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1]}
    return raw_turn(number, "/v1/chat/completions", asked, answered, **how)


# --- others -----------------------------------------------------------------------------------


def transcript(number: int, session: str = "s", harness: str = "claude", **meta: Json) -> RawTurn:
    """A batch of an agent's own log."""
    records = meta.pop("records", [])
    return RawTurn(
        id=number,
        request_id=f"transcript-{number}",
        source=Source.TRANSCRIPT,
        envelope=Envelope(harness_id=harness, harness_session_id=session),
        meta=meta,
        records=records,
    )


def recording(folder: Path) -> list[RawTurn]:
    """The turns of a recorded session, in order."""
    turns = []
    for number, place in enumerate(sorted(folder.glob("turn-*")), 1):
        told = json.loads((place / "request.json").read_text())
        meta = json.loads((place / "meta.json").read_text())
        headers = tuple((name, value) for name, value in told["headers"])
        body = base64.b64decode(told["body_b64"])
        envelope, by = identified(headers)
        started = int(place.name.split("-")[1])
        took = meta["duration_ms"]
        response = Response(
            meta["status"],
            tuple((name, value) for name, value in meta["response_headers"]),
            (Piece(took / 1000, (place / "response.sse").read_bytes()),),
        )
        request = Request(told["method"], told["url"], headers, body)
        turns.append(
            RawTurn(
                id=number,
                request_id=f"request-{number}",
                envelope=envelope,
                session_by=by,
                thread_id=thread_of(headers),
                exchange=Exchange("", "http/1", request, response),
                started_at=started,
                ended_at=started + took * 1_000_000,
            )
        )
    return turns


def exchanged(file: Path) -> Exchange:
    """The exchange with a real model server that a file keeps."""
    told = json.loads(file.read_text())
    asked, answered = told["request"], told["response"]
    url = f"http://127.0.0.1:8000{asked['path']}"
    request = Request(asked["method"], url, (), json.dumps(asked["body"]).encode())
    pieces = (Piece(piece["ms"] / 1000, piece["text"].encode()) for piece in answered["chunks"])
    headers = tuple(answered["headers"].items())
    return Exchange("", "http/1", request, Response(answered["status"], headers, tuple(pieces)))
