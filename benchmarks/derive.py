"""How fast raw turns become the read model, on one core.

Three shapes of work: chats of an application, an agent that calls tools and streams, and one long
agent session as it grows. Each with the answer's bytes alone, and with its reduced form at hand as
the log keeps it.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from benchmarks import Measurement
from tapes.derive.deriver import Memory, derive
from tapes.envelope import Envelope
from tapes.exchange import Exchange, Piece, Request, Response
from tapes.jsontext import Json
from tapes.providers.reading import DropReason, read
from tapes.providers.reduced import reduced
from tapes.rows import RawTurn

START = 1_785_000_000_000_000_000
SECOND = 1_000_000_000
PROSE = "the deriver reads what was captured and says what it means in rows that people read"
WORDS = PROSE.split(" ")


def prose(words: int, seed: int) -> str:
    return " ".join(WORDS[(seed * 7 + n * 3) % len(WORDS)] for n in range(words))


# --- turns ------------------------------------------------------------------------------------


def raw_turn(number: int, session: str, body: Json, response: Response, path: str) -> RawTurn:
    request = Request("POST", f"https://provider.test{path}", (), json.dumps(body).encode())
    started = START + number * 2 * SECOND
    return RawTurn(
        id=number,
        request_id=f"request-{number}",
        envelope=Envelope(harness_id="bench", harness_session_id=session),
        exchange=Exchange("", "http/1", request, response),
        started_at=started,
        ended_at=started + SECOND,
    )


def chat(sessions: int, turns: int) -> Iterator[RawTurn]:
    """Chats over chat completions: no tools, one body."""
    number = 0
    for session in range(sessions):
        messages: list[Json] = [{"role": "system", "content": prose(60, session)}]
        for turn in range(turns):
            number += 1
            messages.append({"role": "user", "content": f"{number} {prose(30, turn)}"})
            said = f"{number} {prose(120, turn)}"
            answer = {
                "id": f"chatcmpl-{number}",
                "object": "chat.completion",
                "created": 1_785_000_000,
                "model": "bench-1",
                "choices": [
                    {
                        "index": 0,
                        "message": {"role": "assistant", "content": said},
                        "finish_reason": "stop",
                    }
                ],
                "usage": {"prompt_tokens": 500, "completion_tokens": 150, "total_tokens": 650},
            }
            body = {"model": "bench-1", "messages": list(messages), "temperature": 0}
            response = Response(
                200,
                (("content-type", "application/json"),),
                (Piece(1.0, json.dumps(answer).encode()),),
            )
            yield raw_turn(number, f"chat-{session}", body, response, "/v1/chat/completions")
            messages.append({"role": "assistant", "content": said})


TOOLS = [
    {
        "name": f"tool_{n}",
        "description": prose(40, n),
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    }
    for n in range(12)
]


def agent(sessions: int, turns: int, events: int = 40) -> Iterator[RawTurn]:
    """An agent over the Messages API: each answer streams text and asks for one tool."""
    number = 0
    for session in range(sessions):
        messages: list[Json] = [{"role": "user", "content": f"{session}: {prose(40, session)}"}]
        for turn in range(turns):
            number += 1
            call = {"id": f"toolu_{number}", "name": "tool_3", "input": {"path": f"/{number}"}}
            said = f"{number} {prose(events, turn)}"
            body = {
                "model": "bench-2",
                "max_tokens": 4096,
                "stream": True,
                "system": prose(200, 1),
                "tools": TOOLS,
                "messages": list(messages),
            }
            response = Response(
                200,
                (("content-type", "text/event-stream"),),
                (Piece(0.2, b""), Piece(1.0, streamed(number, said, call))),
            )
            yield raw_turn(number, f"agent-{session}", body, response, "/v1/messages")
            messages.append(
                {
                    "role": "assistant",
                    "content": [{"type": "text", "text": said}, {"type": "tool_use", **call}],
                }
            )
            result = {"type": "tool_result", "tool_use_id": call["id"], "content": prose(80, turn)}
            messages.append({"role": "user", "content": [result]})


def streamed(number: int, said: str, call: dict[str, Json]) -> bytes:
    usage = {"input_tokens": 20, "cache_read_input_tokens": 4000, "output_tokens": 1}
    head = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "bench-2"}
    events: list[dict[str, Json]] = [
        {"type": "message_start", "message": head | {"content": [], "usage": usage}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    ]
    words = said.split(" ")
    events += [
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": word if n == 0 else f" {word}"},
        }
        for n, word in enumerate(words)
    ]
    opened = {"type": "tool_use", "id": call["id"], "name": call["name"], "input": {}}
    given = {"type": "input_json_delta", "partial_json": json.dumps(call["input"])}
    events += [
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": opened},
        {"type": "content_block_delta", "index": 1, "delta": given},
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 90},
        },
        {"type": "message_stop"},
    ]
    return "".join(f"event: {e['type']}\ndata: {json.dumps(e)}\n\n" for e in events).encode()


def with_reduced(turns: Sequence[RawTurn]) -> list[RawTurn]:
    """The same turns as the log keeps them: each with its answer's reduced form."""
    out = []
    for raw in turns:
        assert raw.exchange is not None
        turn = read(raw.exchange)
        assert not isinstance(turn, DropReason)
        out.append(replace(raw, reduced=reduced(turn.answer, turn.api)))
    return out


# --- measuring --------------------------------------------------------------------------------


def best(work: Callable[[], object], times: int) -> float:
    """The shortest of some runs, in seconds of this process: others on the machine do not count.

    Nothing here waits for anything, so that is also the time on a clock of an idle machine.
    """
    shortest = float("inf")
    for _ in range(times):
        began = time.process_time()
        work()
        shortest = min(shortest, time.process_time() - began)
    return shortest


def measurements(quick: bool) -> Iterator[Measurement]:
    """The time of a turn from scratch, and until one more turn is in the read model."""
    scale, times = (10, 1) if quick else (100, 3)
    shapes = {
        "chats": list(chat(scale, 10)),
        "agent sessions": list(agent(scale, 10)),
    }
    for name, turns in shapes.items():
        for kept, given in (("bytes", turns), ("reduced form", with_reduced(turns))):
            seconds = best(lambda given=given: derive(given), times)  # type: ignore[misc]
            what = f"derive {name} from {kept}, a turn"
            yield Measurement(what, seconds / len(turns), 1 / 2000, "2,000 turns/s", "s", 1.0)
    length = 50 if quick else 200
    long = with_reduced(list(agent(1, length)))
    seconds = best(lambda: derive(long), times)
    what = f"a session of {length} turns anew after one more"
    yield Measurement(what, seconds, 1.0, "visible within a second", "s", 1.0)
    memory = Memory()
    derive(long[:-1], memory=memory)
    seconds = best(lambda: derive(long, memory=memory), 1)
    what = "the same by a process that remembers"
    yield Measurement(what, seconds, 1.0, "visible within a second", "s", 1.0)
