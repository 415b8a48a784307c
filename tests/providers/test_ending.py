"""Whether a stream said that it ended."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes.providers.ending import Course, Ending, ending_of
from tapes.wire import frames_of

SSE = "text/event-stream"
NDJSON = "application/x-ndjson"


def sse(*events: Any, names: bool = False) -> bytes:
    lines = []
    for event in events:
        if names and isinstance(event, dict):
            lines.append(f"event: {event['type']}\n")
        lines.append(f"data: {event if isinstance(event, str) else json.dumps(event)}\n\n")
    return "".join(lines).encode()


def chunk(text: str | None = None, *, index: int = 0, reason: str | None = None) -> dict[str, Any]:
    choice = {"index": index, "delta": {"content": text}, "finish_reason": reason}
    return {"object": "chat.completion.chunk", "choices": [choice]}


USAGE = {"object": "chat.completion.chunk", "choices": [], "usage": {"prompt_tokens": 1}}
MESSAGE_START = {"type": "message_start", "message": {"role": "assistant"}}
DELTA = {"type": "content_block_delta", "index": 0, "delta": {"text": "a"}}
ERROR = {"error": {"message": "overloaded"}}

NO_CHOICE = {"object": "chat.completion.chunk", "choices": []}
CREATED = {"type": "response.created"}
TEXT = {"type": "response.output_text.delta"}
FINISHED_CANDIDATE = {"candidates": [{"finishReason": "STOP"}]}

# What a provider streams, and how far that is.
COURSES: list[tuple[str, list[Any], Ending]] = [
    ("chat, whole", [chunk("a"), chunk(reason="stop"), USAGE, "[DONE]"], Ending.SAID),
    ("chat, finished", [chunk("a"), chunk(reason="stop")], Ending.FINISHED),
    ("chat, finished with usage", [chunk("a"), chunk(reason="stop"), USAGE], Ending.FINISHED),
    ("chat, cut", [chunk("a")], Ending.OPEN),
    ("chat, cut before its first choice", [NO_CHOICE], Ending.OPEN),
    (
        "chat, one of two choices",
        [chunk("a"), chunk("b", index=1), chunk(reason="stop")],
        Ending.OPEN,
    ),
    (
        "chat, two of two choices",
        [chunk("a"), chunk("b", index=1), chunk(reason="stop"), chunk(index=1, reason="length")],
        Ending.FINISHED,
    ),
    ("chat, an error in the middle", [chunk("a"), ERROR, "[DONE]"], Ending.FAILED),
    ("chat, an error as text", [chunk("a"), {"error": "overloaded"}], Ending.FAILED),
    ("messages, whole", [MESSAGE_START, DELTA, {"type": "message_stop"}], Ending.SAID),
    ("messages, cut", [MESSAGE_START, DELTA], Ending.OPEN),
    ("messages, an error", [MESSAGE_START, DELTA, {"type": "error", **ERROR}], Ending.FAILED),
    ("responses, whole", [CREATED, {"type": "response.completed"}], Ending.SAID),
    ("responses, at its limit", [{"type": "response.incomplete"}], Ending.SAID),
    ("responses, cut", [CREATED, TEXT], Ending.OPEN),
    ("responses, failed", [CREATED, {"type": "response.failed"}], Ending.FAILED),
    ("gemini, whole", [{"candidates": [{}]}, FINISHED_CANDIDATE], Ending.FINISHED),
    ("gemini, cut", [{"candidates": [{"content": {}}]}], Ending.OPEN),
    ("cohere, whole", [{"type": "message-start"}, {"type": "message-end"}], Ending.SAID),
    ("cohere, cut", [{"type": "message-start"}], Ending.OPEN),
    ("nobody knows", [{"done": False}, {"status": "working"}, "text", [1]], Ending.UNKNOWN),
]


@pytest.mark.row("B8", "N08")
@pytest.mark.parametrize(
    ("events", "ending"), [c[1:] for c in COURSES], ids=[course[0] for course in COURSES]
)
def test_a_stream_is_as_far_as_its_provider_says(events: list[Any], ending: Ending) -> None:
    assert ending_of(SSE, sse(*events)) is ending


def test_the_name_of_an_event_is_as_good_as_its_type() -> None:
    assert ending_of(SSE, b"event: message_stop\ndata: {}\n\n") is Ending.SAID


@pytest.mark.parametrize(
    ("lines", "ending"),
    [
        ([{"model": "m", "done": False}, {"model": "m", "done": True}], Ending.SAID),
        ([{"model": "m", "done": False}], Ending.OPEN),
        ([{"model": "m", "done": False}, {"error": "out of memory"}], Ending.FAILED),
        ([{"any": "lines"}], Ending.UNKNOWN),
    ],
)
def test_lines_of_json_end_with_done(lines: list[Any], ending: Ending) -> None:
    assert ending_of(NDJSON, "\n".join(map(json.dumps, lines)).encode()) is ending


def test_what_is_no_stream_has_no_end_to_wait_for() -> None:
    assert ending_of("application/json", b'{"choices":[{"index":0}]}') is Ending.UNKNOWN


def test_a_stream_that_was_asked_for_and_brought_no_event_did_not_end() -> None:
    assert ending_of(SSE, b": ping\n\n", was_asked_for=True) is Ending.OPEN
    assert ending_of(SSE, b": ping\n\n") is Ending.UNKNOWN
    assert ending_of("application/json", b"{}", was_asked_for=True) is Ending.UNKNOWN


@pytest.mark.row("B8")
@pytest.mark.parametrize("names", [False, True])
def test_no_cut_of_a_known_stream_passes_for_its_end(names: bool) -> None:
    body = sse(MESSAGE_START, DELTA, {"type": "message_stop"}, names=names)
    last_word = len(body.rstrip())
    for length in range(body.index(b"\n\n") + 2, last_word):
        assert ending_of(SSE, body[:length]) is Ending.OPEN
    assert ending_of(SSE, body[:last_word]) is Ending.SAID


EVENTS = [event for _, events, _ in COURSES for event in events]
NAMED = [b"event: error", b"event: message_stop", b"event: response.failed", b": ping"]
SPELLED = [b'data: {"\\u0065rror": 1}', b'data: {"error": null}', b"\xef\xbb\xbfdata: [DONE]"]
PARTS = [
    *(f"data: {e if isinstance(e, str) else json.dumps(e)}".encode() for e in EVENTS),
    *(json.dumps(e).encode() for e in ({"model": "m", "done": True}, {"error": "late"})),
    *NAMED,
    *SPELLED,
]
LAST = [
    b"data: [DONE]",
    b'data: {"type": "message_stop"}',
    b'{"model": "m", "done": true}',
    *SPELLED,
]
ENDS = st.sampled_from([b"\n", b"\n\n", b"\n\n", b"\r\n\r\n"])


@given(
    st.lists(st.tuples(st.sampled_from(PARTS), ENDS), max_size=4),
    st.sampled_from(LAST),
    st.sampled_from([SSE, NDJSON]),
)
def test_the_last_word_alone_says_what_all_events_say(
    parts: list[tuple[bytes, bytes]], last: bytes, kind: str
) -> None:
    body, course = b"".join([part + end for part, end in parts] + [last]), Course()
    for frame in frames_of(kind, body + b"\n\n") or ():
        course.take(frame)
    assert ending_of(kind, body) is course.ending


# --- streams of real providers


def test_reference_streams_end_where_they_should(reference_data: Path) -> None:
    folder = reference_data / "provider-streams"
    expected = json.loads((folder / "expected.json").read_text())["files"]
    streams = [name for name in expected if name.endswith(".sse")]
    assert len(streams) >= 8
    for name in streams:
        ending = ending_of(expected[name]["content_type"], (folder / name).read_bytes())
        if "truncated" in name:
            assert ending is Ending.OPEN, name
        elif "error" in name:
            assert ending is Ending.FAILED, name
        else:
            assert ending is Ending.SAID, name


def test_no_cut_of_a_reference_stream_passes_for_its_end(reference_data: Path) -> None:
    for name in ("anthropic/messages_stream.sse", "openai_responses/stream.sse"):
        body = (reference_data / "provider-streams" / name).read_bytes()
        events = body.split(b"\n\n")
        for count in range(1, len(events) - 1):
            part = b"\n\n".join(events[:count]) + b"\n\n"
            if part.rstrip() == body.rstrip():
                continue
            assert ending_of(SSE, part) is Ending.OPEN, (name, count)


def test_streams_of_a_real_model_end_with_their_last_event(reference_data: Path) -> None:
    files = sorted((reference_data / "real-model").glob("*-stream.json"))
    assert files
    for file in files:
        response = json.loads(file.read_text())["response"]
        pieces = [chunk["text"].encode() for chunk in response["chunks"]]
        kind = response["headers"]["content-type"]
        assert ending_of(kind, b"".join(pieces)) is Ending.SAID, file.name
        text = b"".join(pieces).decode()
        cut = text[: text.index("finish_reason", len(text) // 2)]
        assert ending_of(kind, cut.encode()) is Ending.OPEN, file.name
