"""Tokens of one answer, whichever provider counted them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tapes.providers.usage import Usage, usage_of, usage_of_value

SSE = "text/event-stream"

ANSWERS: list[tuple[str, dict[str, Any], Usage | None]] = [
    (
        "chat completions",
        {
            "model": "m",
            "usage": {
                "prompt_tokens": 10,
                "completion_tokens": 7,
                "prompt_tokens_details": {"cached_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
        },
        Usage(10, 7, cache_read=4, reasoning=3, model="m"),
    ),
    ("embeddings", {"usage": {"prompt_tokens": 5, "total_tokens": 5}}, Usage(5)),
    (
        "messages, cache beside the input",
        {
            "model": "m",
            "usage": {
                "input_tokens": 10,
                "cache_read_input_tokens": 100,
                "cache_creation_input_tokens": 1000,
                "output_tokens": 7,
            },
        },
        Usage(1110, 7, cache_read=100, cache_write=1000, model="m"),
    ),
    (
        "responses, cache inside the input",
        {
            "usage": {
                "input_tokens": 10,
                "input_tokens_details": {"cached_tokens": 4},
                "output_tokens": 7,
                "output_tokens_details": {"reasoning_tokens": 2},
            }
        },
        Usage(10, 7, cache_read=4, reasoning=2),
    ),
    (
        "gemini, thoughts beside the answer",
        {
            "modelVersion": "g",
            "usageMetadata": {
                "promptTokenCount": 10,
                "toolUsePromptTokenCount": 5,
                "candidatesTokenCount": 7,
                "thoughtsTokenCount": 2,
                "cachedContentTokenCount": 4,
            },
        },
        Usage(15, 9, cache_read=4, reasoning=2, model="g"),
    ),
    ("ollama", {"model": "o", "prompt_eval_count": 10, "eval_count": 7}, Usage(10, 7, model="o")),
    ("none", {"text": "usage"}, None),
    ("null", {"usage": None}, None),
    ("nonsense", {"usage": {"prompt_tokens": "many", "completion_tokens": True}}, Usage()),
    ("an unheard-of kind", {"usage": {"characters": 3}}, None),
]


@pytest.mark.parametrize(
    ("answer", "usage"), [a[1:] for a in ANSWERS], ids=[answer[0] for answer in ANSWERS]
)
def test_usage_is_read_from_a_body_and_from_a_value(
    answer: dict[str, Any], usage: Usage | None
) -> None:
    assert usage_of("application/json", json.dumps(answer).encode()) == usage
    assert usage_of_value(answer) == usage


def events(*values: Any) -> bytes:
    return b"".join(b"data: %s\n\n" % json.dumps(value).encode() for value in values)


def test_later_counts_of_a_stream_replace_earlier_ones_and_the_rest_stays() -> None:
    body = events(
        {
            "type": "message_start",
            "message": {
                "model": "m",
                "usage": {"input_tokens": 10, "cache_read_input_tokens": 100, "output_tokens": 1},
            },
        },
        {"type": "message_delta", "usage": {"input_tokens": None, "output_tokens": 7}},
    )
    assert usage_of(SSE, body) == Usage(110, 7, cache_read=100, model="m")


def test_a_stream_reports_usage_in_its_last_chunk() -> None:
    body = events(
        {"model": "m", "choices": [{}], "usage": None},
        {"model": "m", "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
    )
    assert usage_of(SSE, body + b"data: [DONE]\n\n") == Usage(1, 2, model="m")


def test_a_response_inside_an_event_is_read() -> None:
    usage = {"input_tokens": 1, "output_tokens": 2}
    body = events({"type": "response.completed", "response": {"model": "m", "usage": usage}})
    assert usage_of(SSE, body) == Usage(1, 2, model="m")


def test_a_list_of_objects_is_read_like_a_stream() -> None:
    body = json.dumps(
        [{"usageMetadata": {"promptTokenCount": 1}}, {"usageMetadata": {"promptTokenCount": 3}}]
    )
    assert usage_of("application/json", body.encode()) == Usage(3)


@pytest.mark.parametrize("body", [b"", b"text", b'{"usage":', b"[1]", b'"usage"'])
def test_a_body_that_says_nothing_has_no_usage(body: bytes) -> None:
    assert usage_of("application/json", body) is None


def test_the_total_takes_what_is_known() -> None:
    assert Usage(3, None).total == 3
    assert Usage().total == 0


def test_reference_answers_report_what_they_should(reference_data: Path) -> None:
    folder = reference_data / "provider-streams"
    expected = json.loads((folder / "expected.json").read_text())["files"]
    for name, case in expected.items():
        counts = case["response"].get("usage", {})
        if "truncated" in name or "error" in name or not counts:
            continue
        usage = usage_of(case["content_type"], (folder / name).read_bytes())
        assert usage is not None, name
        assert (usage.input, usage.output) == (
            counts.get("prompt_tokens", 0),
            counts.get("completion_tokens", 0),
        ), name


@pytest.mark.parametrize("count", [-1, 10**12, 2**63, True])
def test_a_count_that_nobody_can_have_made_is_unknown(count: int) -> None:
    told = {"usage": {"prompt_tokens": count, "completion_tokens": 7}}
    assert usage_of("application/json", json.dumps(told).encode()) == Usage(output=7)


def test_parts_of_a_count_tell_the_whole_where_it_is_left_out() -> None:
    cached = {"ephemeral_1h_input_tokens": 400, "ephemeral_5m_input_tokens": 100}
    usage = usage_of_value(
        {"usage": {"input_tokens": 5, "output_tokens": 1, "cache_creation": cached}}
    )
    assert usage is not None
    assert (usage.input, usage.cache_write, usage.cache_write_1h) == (505, 500, 400)


def test_counts_that_contradict_each_other_are_not_sound() -> None:
    assert Usage(100, 1, 60, 40, cache_write_1h=40).is_sound
    assert not Usage(100, 1, 60, 41).is_sound
    assert not Usage(100, 1, None, 40, cache_write_1h=41).is_sound
