"""How far a stream came, for those who decide whether it is an answer."""

import json

import pytest

from tapes.jsontext import Json
from tapes.providers.ending import Ending, Watch, ending_of

CHAT = {"index": 0, "delta": {"content": "a"}, "finish_reason": None}
DONE = CHAT | {"finish_reason": "stop"}

STREAMS: dict[str, tuple[list[Json], Ending]] = {
    "messages, stopped": ([{"type": "message_start"}, {"type": "message_stop"}], Ending.SAID),
    "messages, cut": ([{"type": "message_start"}, {"type": "ping"}], Ending.OPEN),
    "messages, failed": ([{"type": "message_start"}, {"type": "error"}], Ending.OPEN),
    "responses, completed": (
        [{"type": "response.created"}, {"type": "response.completed"}],
        Ending.SAID,
    ),
    "responses, cut": ([{"type": "response.in_progress"}], Ending.OPEN),
    "chat, cut": ([{"choices": [CHAT]}], Ending.OPEN),
    "chat, finished": ([{"choices": [CHAT]}, {"choices": [DONE]}], Ending.FINISHED),
    "chat, usage after the end": ([{"choices": [DONE]}, {"choices": []}], Ending.FINISHED),
    "chat, done": ([{"choices": [DONE]}, "[DONE]"], Ending.SAID),
    "chat, one of two finished": (
        [{"choices": [CHAT | {"index": 1}]}, {"choices": [DONE]}],
        Ending.OPEN,
    ),
    "chat, failed and done": ([{"error": {"message": "no"}}, "[DONE]"], Ending.OPEN),
    "gemini, cut": ([{"candidates": [{"content": {}}]}], Ending.OPEN),
    "gemini, finished": ([{"candidates": [{"finishReason": "STOP"}]}], Ending.FINISHED),
    "gemini, blocked": ([{"promptFeedback": {"blockReason": "SAFETY"}}], Ending.FINISHED),
    "ollama, cut": ([{"done": False}], Ending.OPEN),
    "ollama, done": ([{"done": False}, {"done": True}], Ending.SAID),
    "nobody's": ([{"tick": 1}, {"tick": 2}], Ending.UNKNOWN),
    "nobody's, done": ([{"tick": 1}, "[DONE]"], Ending.SAID),
}


def sse(events: list[Json]) -> bytes:
    texts = (event if isinstance(event, str) else json.dumps(event) for event in events)
    return "".join(f"data: {text}\n\n" for text in texts).encode()


@pytest.mark.row("B8")
@pytest.mark.parametrize("name", STREAMS)
def test_each_kind_of_stream_says_in_its_own_way_that_it_ended(name: str) -> None:
    events, ending = STREAMS[name]
    assert ending_of("text/event-stream", sse(events)) is ending


def test_lines_end_like_events() -> None:
    lines = b'{"done":false}\n{"done":true}\n'
    assert ending_of("application/x-ndjson", lines) is Ending.SAID


def test_a_body_that_is_no_stream_has_no_ending() -> None:
    assert ending_of("application/json", b'{"type":"message_stop"}') is Ending.UNKNOWN


def test_nothing_undoes_a_last_word() -> None:
    watch = Watch()
    watch.see_text("[DONE]")
    watch.see({"choices": [CHAT]})
    assert watch.ending is Ending.SAID
