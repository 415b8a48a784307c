"""Fixtures that a real aimock recorded or serves, and what can become of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tapes.cassette import Cassette, Play
from tapes.errors import ForeignFile
from tapes.exchange import Request, Response
from tapes.interchange import aimock
from tapes.interchange.foreign import Reading, brought
from tapes.permit import Permit
from tapes.providers.usage import usage_of
from tapes.redact import Redactor
from tapes.sending import send
from tapes.tape.base import MemoryTape
from tapes.tape.kinds import open_tape
from tests.interchange.conftest import StartAimock
from tests.late import late
from tests.loopback import event_answer, json_answer, provider

openai = late("openai")

USAGE = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8}
HELLO: Any = [{"role": "user", "content": "hello"}]


def completion(text: str) -> Response:
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    body = {
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m-1",
        "choices": [choice], "usage": USAGE,
    }  # fmt: skip
    return json_answer(json.dumps(body))


def stream(*texts: str) -> Response:
    def chunk(delta: Any, reason: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m-1"}
        return json.dumps({**head, "choices": [choice]})

    chunks = [chunk({"content": text}) for text in texts]
    return event_answer(*chunks, chunk({}, "stop"), "[DONE]")


def answer(request: Request) -> Response:
    body = json.loads(request.body)
    if body["messages"][-1]["content"] == "too much":
        error = {"error": {"message": "slow down", "type": "rate_limit"}}
        return json_answer(json.dumps(error), 429)
    return stream("Hi ", "there") if body.get("stream") else completion("Hi there")


def client(url: str) -> Any:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="sk-test", max_retries=0)


def said_in_stream(at: Any, messages: Any) -> str:
    chunks = at.chat.completions.create(model="m-1", messages=messages, stream=True)
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def recorded(folder: Path) -> list[Reading]:
    files = sorted((folder / "recorded").rglob("*.json"))
    return [aimock.read(file.read_bytes(), str(file)) for file in files]


def replay(readings: list[Reading]) -> Cassette:
    exchanges = [e for r in readings for e in brought(r, Redactor()).exchanges]
    return Cassette(MemoryTape(tuple(exchanges)), "replay")


def served(cassette: Cassette) -> Any:
    """A server that answers what a cassette plays, for a real client to talk to."""

    def play(request: Request) -> Response:
        verdict = cassette.decide(request)
        assert isinstance(verdict, Play), verdict
        assert isinstance(verdict.exchange.response, Response)
        return verdict.exchange.response

    return provider(play)


def test_what_aimock_recorded_of_one_message_replays_to_the_real_sdk(
    start_aimock: StartAimock, tmp_path: Path
) -> None:
    with provider(answer) as at:
        url = start_aimock(tmp_path, "--record", "--provider-openai", at.url)
        with client(url) as through:
            assert said_in_stream(through, HELLO) == "Hi there"
            through.chat.completions.create(
                model="m-1", messages=[{"role": "user", "content": "by"}]
            )
    readings = recorded(tmp_path)
    assert len(readings) == 2
    assert all(found.recorded_at for reading in readings for found in reading.found)
    with served(replay(readings)) as at, client(at.url) as again:
        assert said_in_stream(again, HELLO) == "Hi there"
        plain = again.chat.completions.create(
            model="m-1", messages=[{"role": "user", "content": "by"}]
        )
    assert plain.choices[0].message.content == "Hi there"
    assert plain.usage is not None
    assert plain.usage.model_dump(include=set(USAGE)) == USAGE


def test_a_recorded_error_is_an_error_with_its_status(
    start_aimock: StartAimock, tmp_path: Path
) -> None:
    messages: Any = [{"role": "user", "content": "too much"}]
    with provider(answer) as at:
        url = start_aimock(tmp_path, "--record", "--provider-openai", at.url)
        with client(url) as through, pytest.raises(openai.APIStatusError):
            through.chat.completions.create(model="m-1", messages=messages)
    with (
        served(replay(recorded(tmp_path))) as at,
        client(at.url) as again,
        pytest.raises(openai.RateLimitError, match="slow down"),
    ):
        again.chat.completions.create(model="m-1", messages=messages)


def test_a_recorded_conversation_is_left_out_since_its_turns_are_not_in_the_fixture(
    start_aimock: StartAimock, tmp_path: Path
) -> None:
    turns: Any = [
        *HELLO,
        {"role": "assistant", "content": "Hi"},
        {"role": "user", "content": "and now?"},
    ]
    system: Any = [{"role": "system", "content": "Be brief."}, *HELLO]
    with provider(answer) as at:
        url = start_aimock(tmp_path, "--record", "--provider-openai", at.url)
        with client(url) as through:
            through.chat.completions.create(model="m-1", messages=turns)
            through.chat.completions.create(model="m-1", messages=system)
    readings = recorded(tmp_path)
    assert not any(reading.found for reading in readings)
    reasons = sorted(note.text for reading in readings for note in reading.notes)
    assert reasons == [
        "of its system message only a hash is in the fixture",
        "the earlier turns of its conversation are not in the fixture",
    ]


@pytest.mark.row("N02")
def test_recording_with_the_fixtures_served_by_aimock_loses_nothing(
    start_aimock: StartAimock, tmp_path: Path
) -> None:
    fixtures = [
        {"match": {"userMessage": "now?"}, "response": {"content": "Later."}},
        {
            "match": {"toolName": "clock"},
            "response": {"toolCalls": [{"name": "clock", "arguments": {"zone": "UTC"}}]},
        },
    ]
    (tmp_path / "f.json").write_text(json.dumps({"fixtures": fixtures}))
    url = start_aimock(tmp_path)
    tool = {"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}
    turns = [*HELLO, {"role": "assistant", "content": "Hi"}, {"role": "user", "content": "now?"}]
    bodies = [
        {"model": "m-1", "messages": turns, "stream": True},
        {"model": "m-1", "messages": HELLO, "tools": [tool]},
    ]
    requests = [
        Request(
            "POST",
            url + "/v1/chat/completions",
            (("content-type", "application/json"),),
            json.dumps(body).encode(),
        )
        for body in bodies
    ]
    tape = open_tape(tmp_path / "t.jsonl")
    came = [ask(Cassette(tape, "record", latch=True), request) for request in requests]
    assert [ask(Cassette(tape, "replay"), request) for request in requests] == came
    assert b"Later." in came[0]
    assert b"clock" in came[1]


def ask(cassette: Cassette, request: Request) -> bytes:
    verdict = cassette.decide(request)
    if isinstance(verdict, Permit):
        send(verdict)
        response = verdict.preview().response
        verdict.finish()
    else:
        assert isinstance(verdict, Play), verdict
        response = verdict.exchange.response
    assert isinstance(response, Response)
    return response.body


# --- files alone ------------------------------------------------------------------------------


def read(match: dict[str, Any], response: dict[str, Any], **members: Any) -> Reading:
    fixture = {"match": match, "response": response, **members}
    return aimock.read(json.dumps({"fixtures": [fixture]}).encode())


HI = {"userMessage": "hi", "model": "m-1"}


@pytest.mark.parametrize(
    ("match", "response", "members", "reason"),
    [
        ({}, {"content": "x"}, {}, "no user text"),
        ({"userMessage": "hi"}, {"content": "x"}, {}, "names no model"),
        ({"inputText": "a"}, {"embedding": [0.1]}, {}, "embedding"),
        ({**HI, "turnIndex": 1}, {"content": "x"}, {}, "earlier turns"),
        ({**HI, "hasToolResult": True}, {"content": "x"}, {}, "tool results"),
        ({**HI, "toolCallId": "c"}, {"content": "x"}, {}, "tool results"),
        ({**HI, "toolName": "t"}, {"content": "x"}, {}, "tools of its request"),
        ({**HI, "systemMessage": "s"}, {"content": "x"}, {}, "only a part"),
        ({**HI, "responseFormat": "json_schema"}, {"content": "x"}, {}, "response format"),
        ({**HI, "endpoint": "image"}, {"content": "x"}, {}, "endpoint"),
        ({**HI, "context": "c"}, {"content": "x"}, {}, "X-AIMock-Context"),
        (HI, {"image": {"url": "u"}}, {}, "(image) is no chat message"),
        (HI, {"content": "x"}, {"truncateAfterChunks": 1}, "cut stream"),
        (HI, {"content": "x"}, {"chaos": {"dropRate": 0.1}}, "by chance"),
        (HI, {"content": "x"}, {"metadata": {"toolsHash": "1"}}, "only a hash"),
    ],
)
def test_a_fixture_that_does_not_say_its_whole_request_is_left_out_with_the_reason(
    match: dict[str, Any], response: dict[str, Any], members: dict[str, Any], reason: str
) -> None:
    reading = read(match, response, **members)
    assert not reading.found
    (note,) = reading.notes
    assert note.left_out
    assert reason in note.text


def test_a_fixture_becomes_a_plain_and_a_streamed_exchange_always_the_same() -> None:
    first, second = read(HI, {"content": "x"}), read(HI, {"content": "x"})
    assert first == second
    bodies = [json.loads(found.request.body) for found in first.found]
    assert [body.get("stream") for body in bodies] == [None, True]
    assert [note.place for note in first.notes] == ["all", "all"]


def test_answers_in_a_sequence_are_samples() -> None:
    fixtures = [
        {"match": {**HI, "sequenceIndex": number}, "response": {"content": str(number)}}
        for number in (1, 0)
    ]
    reading = aimock.read(json.dumps({"fixtures": fixtures}).encode())
    exchanges = brought(reading, Redactor()).exchanges
    assert [exchange.sample for exchange in exchanges] == [1, 1, 0, 0]


def test_tool_calls_reasoning_and_usage_are_in_both_forms() -> None:
    call = {"name": "clock", "arguments": {"zone": "UTC"}, "id": "call_1"}
    reading = read(HI, {"blocks": [{"type": "toolCall", **call}, {"type": "text", "text": "so"}],
                        "reasoning": "hm", "usage": USAGE})  # fmt: skip
    plain, streamed = (found.response.body for found in reading.found)
    message = json.loads(plain)["choices"][0]["message"]
    assert message["content"] == "so"
    assert message["reasoning_content"] == "hm"
    assert message["tool_calls"][0]["function"] == {"name": "clock", "arguments": '{"zone":"UTC"}'}
    for part in (b'"so"', b'"hm"', b'"call_1"', b'{\\"zone\\":\\"UTC\\"}', b'"tool_calls"'):
        assert part in streamed
    for kind, body in (("application/json", plain), ("text/event-stream", streamed)):
        usage = usage_of(kind, body)
        assert usage is not None
        assert usage.total == 8


def test_recorded_times_are_kept_from_the_first_to_the_last_event() -> None:
    timings = {"ttftMs": 250, "interChunkDelaysMs": [50, 50], "totalDurationMs": 350}
    streamed = read(HI, {"content": "x" * 50}, recordedTimings=timings).found[1].response
    assert streamed.pieces[0].at == 0.25
    assert streamed.pieces[-1].at == 0.35
    assert sorted(p.at for p in streamed.pieces) == [p.at for p in streamed.pieces]


@pytest.mark.parametrize(
    ("name", "provider_", "recorded_at"),
    [
        ("a/openai-2026-03-01T10-20-30-123Z-0a1b2c3d.json", 2, "2026-03-01T10:20:30.123+00:00"),
        ("anthropic-2026-03-01T10-20-30-123Z-0a1b2c3d.json", 0, None),
        ("some-test/openai.json", 2, None),
        ("my-own-fixtures.json", 2, None),
    ],
)
def test_the_name_of_a_recording_says_its_provider_and_date(
    name: str, provider_: int, recorded_at: str | None
) -> None:
    fixture = {"match": HI, "response": {"content": "x"}}
    found = aimock.read(json.dumps({"fixtures": [fixture]}).encode(), name).found
    assert len(found) == provider_
    assert {one.recorded_at for one in found} <= {recorded_at}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"{", "not JSON"),
        (b"[]", "no list of fixtures"),
        (b'{"fixtures": [{}]}', "fixture 1 is none of aimock's"),
        (b'{"fixtures": [{"match": {}, "response": 1}]}', "fixture 1"),
    ],
)
def test_what_is_no_fixture_file_is_an_error_that_says_why(data: bytes, message: str) -> None:
    with pytest.raises(ForeignFile, match=message):
        aimock.read(data)
