"""Every way of counting tokens, in one meaning."""

import json

import pytest

from tapes.jsontext import Json
from tapes.providers.usage import Tally, Usage, usage_of, usage_of_value

ANTHROPIC = {
    "input_tokens": 5,
    "cache_read_input_tokens": 128955,
    "cache_creation_input_tokens": 1253,
    "output_tokens": 42,
}
OPENAI = {
    "prompt_tokens": 17903,
    "completion_tokens": 100,
    "total_tokens": 18003,
    "prompt_tokens_details": {"cached_tokens": 17817},
}


def counted(usage: Json, name: str = "usage") -> Usage | None:
    return usage_of_value({name: usage, "model": "m"})


def test_a_cache_that_is_counted_beside_the_input_is_counted_into_it() -> None:
    usage = counted(ANTHROPIC)
    assert usage == Usage(130213, 42, 128955, 1253, model="m")
    assert (usage.uncached, usage.total) == (5, 130255)


def test_a_cache_that_is_counted_inside_the_input_is_counted_once() -> None:
    usage = counted(OPENAI)
    assert usage == Usage(17903, 100, 17817, model="m")
    assert (usage.uncached, usage.total) == (86, 18003)


CASES: dict[str, tuple[Json, Usage]] = {
    "responses": (
        {
            "input_tokens": 50,
            "input_tokens_details": {"cached_tokens": 32},
            "output_tokens": 20,
            "output_tokens_details": {"reasoning_tokens": 8},
        },
        Usage(50, 20, 32, None, 8, "m"),
    ),
    "cache hits at the top": (
        {"prompt_tokens": 9, "completion_tokens": 1, "prompt_cache_hit_tokens": 4},
        Usage(9, 1, 4, model="m"),
    ),
    "reasoning beside the completion": (
        {
            "prompt_tokens": 32,
            "completion_tokens": 9,
            "total_tokens": 135,
            "completion_tokens_details": {"reasoning_tokens": 94},
        },
        Usage(32, 103, None, None, 94, "m"),
    ),
    "reasoning inside the completion": (
        {
            "prompt_tokens": 32,
            "completion_tokens": 103,
            "total_tokens": 135,
            "completion_tokens_details": {"reasoning_tokens": 94},
        },
        Usage(32, 103, None, None, 94, "m"),
    ),
    "a cache that is kept for an hour": (
        ANTHROPIC | {"cache_creation": {"ephemeral_1h_input_tokens": 1000}},
        Usage(130213, 42, 128955, 1253, None, "m", 1000),
    ),
    "thoughts": (
        {"input_tokens": 1, "output_tokens": 9, "output_tokens_details": {"thinking_tokens": 5}},
        Usage(1, 9, None, None, 5, "m"),
    ),
    "embeddings": ({"prompt_tokens": 8, "total_tokens": 8}, Usage(8, None, model="m")),
}


@pytest.mark.parametrize("name", CASES)
def test_each_way_of_counting_has_one_meaning(name: str) -> None:
    reported, usage = CASES[name]
    assert counted(reported) == usage


def test_gemini_counts_thoughts_and_the_prompts_of_tools_apart() -> None:
    reported = {
        "promptTokenCount": 40,
        "toolUsePromptTokenCount": 3,
        "candidatesTokenCount": 7,
        "thoughtsTokenCount": 5,
        "cachedContentTokenCount": 16,
    }
    assert counted(reported, "usageMetadata") == Usage(43, 12, 16, None, 5, "m")


def test_ollama_counts_at_the_top() -> None:
    value = {"model": "m", "prompt_eval_count": 31, "eval_count": 9}
    assert usage_of_value(value) == Usage(31, 9, model="m")


def test_what_is_not_reported_is_unknown_not_zero() -> None:
    assert usage_of_value({"id": "x"}) is None
    assert usage_of_value("text") is None
    assert counted({"output_tokens": 3}) == Usage(None, 3, model="m")
    assert usage_of("application/json", b"{broken") is None


def test_the_opening_count_of_output_is_no_count() -> None:
    tally = Tally()
    opening = {"usage": ANTHROPIC | {"output_tokens": 1}, "model": "m"}
    tally.add({"type": "message_start", "message": opening})
    assert tally.usage() == Usage(130213, None, 128955, 1253, model="m")
    tally.add({"type": "message_delta", "usage": {"output_tokens": 42}})
    assert tally.usage() == Usage(130213, 42, 128955, 1253, model="m")


def test_a_later_count_of_the_input_alone_leaves_the_cache_in() -> None:
    tally = Tally()
    tally.add({"type": "message_start", "message": {"usage": ANTHROPIC}})
    tally.add({"type": "message_delta", "usage": {"input_tokens": 5, "output_tokens": 42}})
    usage = tally.usage()
    assert usage is not None
    assert usage.input == 130213


def test_a_later_zero_undoes_nothing() -> None:
    tally = Tally()
    tally.add({"usage": {"input_tokens": 7, "output_tokens": 2}})
    tally.add({"usage": {"input_tokens": 0, "output_tokens": 3}})
    assert tally.usage() == Usage(7, 3)


def test_usage_is_found_in_streams_lists_and_bodies() -> None:
    chunks = [{"choices": []}, {"choices": [], "model": "m", "usage": OPENAI}]
    stream = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"
    for content_type, body in (
        ("text/event-stream", stream),
        ("application/json", json.dumps(chunks)),
        ("application/json; charset=utf-8", json.dumps(chunks[1])),
    ):
        assert usage_of(content_type, body.encode()) == Usage(17903, 100, 17817, model="m")
