"""The same model call in the words of every instrumentation is one and the same call."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapes.derive.genai import Told, kind_of, left_over, turn_of, usage_of, with_events
from tapes.jsontext import Json
from tapes.providers.turn import (
    Asked,
    Failure,
    Media,
    Message,
    Other,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Turn,
)
from tapes.providers.usage import Usage
from tapes.rows import SpanKind
from tests.strategies import examples

CURRENT: dict[str, Json] = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "openai",
    "gen_ai.request.model": "gpt-test",
    "gen_ai.response.model": "gpt-test-1",
    "gen_ai.response.id": "resp-1",
    "gen_ai.request.temperature": 0.5,
    "gen_ai.usage.input_tokens": 100,
    "gen_ai.usage.output_tokens": 10,
    "gen_ai.usage.cache_read.input_tokens": 80,
    "gen_ai.response.finish_reasons": ["tool_calls"],
    "gen_ai.input.messages": [
        {"role": "system", "parts": [{"type": "text", "content": "Be brief."}]},
        {"role": "user", "parts": [{"type": "text", "content": "How warm?"}]},
    ],
    "gen_ai.output.messages": [
        {
            "role": "assistant",
            "parts": [
                {"type": "text", "content": "I look."},
                {"type": "tool_call", "id": "c1", "name": "weather", "arguments": {"at": "Bonn"}},
            ],
            "finish_reason": "tool_calls",
        }
    ],
}

CALL = {"id": "c1", "function": {"name": "weather", "arguments": '{"at": "Bonn"}'}}


def _without(*names: str, **more: Json) -> dict[str, Json]:
    return {n: v for n, v in CURRENT.items() if n not in names} | more


AS_TEXT = CURRENT | {
    name: json.dumps(CURRENT[name]) for name in ("gen_ai.input.messages", "gen_ai.output.messages")
}
OLDER = _without(
    "gen_ai.provider.name",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
    **{
        "gen_ai.system": "openai",
        "gen_ai.usage.prompt_tokens": 100,
        "gen_ai.usage.completion_tokens": 10,
    },
)
OPENLLMETRY = _without(
    "gen_ai.operation.name",
    "gen_ai.provider.name",
    "gen_ai.input.messages",
    "gen_ai.output.messages",
    "gen_ai.usage.cache_read.input_tokens",
    **{
        "llm.request.type": "chat",
        "gen_ai.system": "openai",
        "gen_ai.usage.cache_read_input_tokens": 80,
        "gen_ai.prompt.0.role": "system",
        "gen_ai.prompt.0.content": "Be brief.",
        "gen_ai.prompt.1.role": "user",
        "gen_ai.prompt.1.content": "How warm?",
        "gen_ai.completion.0.role": "assistant",
        "gen_ai.completion.0.content": "I look.",
        "gen_ai.completion.0.finish_reason": "tool_calls",
        "gen_ai.completion.0.tool_calls.0.id": "c1",
        "gen_ai.completion.0.tool_calls.0.name": "weather",
        "gen_ai.completion.0.tool_calls.0.arguments": '{"at": "Bonn"}',
    },
)
OPENINFERENCE: dict[str, Json] = {
    "openinference.span.kind": "LLM",
    "llm.provider": "openai",
    "llm.request.model": "gpt-test",
    "llm.model_name": "gpt-test-1",
    "llm.response.id": "resp-1",
    "llm.invocation_parameters": '{"temperature": 0.5}',
    "llm.token_count.prompt": 100,
    "llm.token_count.completion": 10,
    "llm.token_count.prompt_details.cache_read": 80,
    "llm.input_messages.0.message.role": "system",
    "llm.input_messages.0.message.content": "Be brief.",
    "llm.input_messages.1.message.role": "user",
    "llm.input_messages.1.message.contents.0.message_content.type": "text",
    "llm.input_messages.1.message.contents.0.message_content.text": "How warm?",
    "llm.output_messages.0.message.role": "assistant",
    "llm.output_messages.0.message.content": "I look.",
    "llm.output_messages.0.message.tool_calls.0.tool_call.id": "c1",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "weather",
    "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"at": "Bonn"}',
    "gen_ai.response.finish_reasons": ["tool_calls"],
}
BARE = _without("gen_ai.input.messages", "gen_ai.output.messages")
IN_DETAILS = with_events(
    BARE,
    [
        (
            "gen_ai.client.inference.operation.details",
            {n: AS_TEXT[n] for n in ("gen_ai.input.messages", "gen_ai.output.messages")},
        )
    ],
)
IN_EVENTS = with_events(
    BARE,
    [
        ("gen_ai.system.message", {"content": "Be brief."}),
        ("gen_ai.user.message", {"content": "How warm?"}),
        (
            "gen_ai.choice",
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
            },
        ),
    ],
)


def parts_of(turn: Turn) -> list[Any]:
    """The call without what only some write: its first choice, its words, its numbers."""
    answer = turn.answer
    return [
        turn.provider, turn.asked.model, turn.asked.messages, turn.asked.settings, turn.model,
        answer.id, answer.choices[0].parts, answer.finish_reason, answer.usage,
    ]  # fmt: skip


@pytest.mark.row("D5")
@pytest.mark.parametrize(
    "attributes",
    [AS_TEXT, OLDER, OPENLLMETRY, OPENINFERENCE, IN_DETAILS, IN_EVENTS],
    ids=["text", "older", "openllmetry", "openinference", "details", "events"],
)
def test_a_call_is_the_same_in_all_words(attributes: dict[str, Json]) -> None:
    assert kind_of(attributes) is SpanKind.LLM
    assert parts_of(turn_of(attributes, Told())) == parts_of(turn_of(CURRENT, Told()))


def test_a_call_is_read_whole() -> None:
    turn = turn_of(CURRENT, Told())
    assert [m.role for m in turn.asked.messages] == ["system", "user"]
    assert turn.answer.parts == (Text("I look."), ToolCall("c1", "weather", {"at": "Bonn"}))
    assert turn.answer.usage == Usage(100, 10, 80, None, None, "gpt-test-1")
    assert turn.asked.settings == {"temperature": 0.5}


@pytest.mark.parametrize(
    ("part", "read"),
    [
        ({"type": "reasoning", "content": "hm"}, Reasoning("hm")),
        ({"type": "tool_call_response", "id": "c", "response": "21"}, ToolResult("c", "21")),
        ({"type": "tool_call_response", "id": "c", "result": "21"}, ToolResult("c", "21")),
        (
            {"type": "blob", "mime_type": "image/png", "modality": "image", "content": "QQ=="},
            Media("image", "image/png", data="QQ=="),
        ),
        ({"type": "uri", "modality": "image", "uri": "http://x"}, Media("image", url="http://x")),
        ({"type": "file", "modality": "audio", "file_id": "f"}, Media("audio", file_id="f")),
        (
            {"type": "server_tool_call", "id": "s", "name": "web", "arguments": {}},
            ToolCall("s", "web", {}, server=True),
        ),
        ({"type": "hologram", "x": 1}, Other("hologram", {"type": "hologram", "x": 1})),
    ],
    ids=lambda value: value["type"] if isinstance(value, dict) else "",
)
def test_every_part_of_a_message_is_read(part: Json, read: Any) -> None:
    attributes = {"gen_ai.input.messages": [{"role": "user", "parts": [part]}]}
    assert turn_of(attributes, Told()).asked.messages == (Message("user", (read,)),)


def test_cached_tokens_that_were_counted_beside_the_input_are_counted_once() -> None:
    beside = {
        "gen_ai.usage.input_tokens": 5,
        "gen_ai.usage.output_tokens": 42,
        "gen_ai.usage.cache_read_input_tokens": 128955,
        "gen_ai.usage.cache_creation_input_tokens": 1253,
    }
    assert usage_of(beside) == Usage(130213, 42, 128955, 1253)
    assert usage_of(beside | {"gen_ai.usage.input_tokens": 130213}) == usage_of(beside)


def test_counts_and_reasons_that_a_tracer_of_texts_alone_sends_are_read() -> None:
    spring = {
        "gen_ai.operation.name": "chat",
        "gen_ai.usage.input_tokens": "17",
        "gen_ai.usage.output_tokens": "5",
        "gen_ai.response.finish_reasons": '["STOP"]',
    }
    answer = turn_of(spring, Told()).answer
    assert answer.usage == Usage(17, 5)
    assert answer.finish_reason == "STOP"
    for odd in ("", "-3", "1.5", "many", "9" * 400, "\u0663"):
        assert usage_of({"gen_ai.usage.input_tokens": odd}) is None


def test_what_is_unknown_is_not_zero() -> None:
    turn = turn_of({"gen_ai.request.model": "m"}, Told())
    assert (turn.answer.usage, turn.answer.choices, turn.asked) == (None, (), Asked(model="m"))


def test_a_failure_has_its_code_from_wherever_it_is_told() -> None:
    told = Told(failed=True, message="slow down", exception="RateLimit")
    assert turn_of({}, told).answer.failure == Failure("RateLimit", "slow down")
    named = turn_of({"error.type": "429"}, told)
    assert named.answer.failure == Failure("429", "slow down")


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ({"gen_ai.operation.name": "embeddings"}, SpanKind.LLM),
        ({"gen_ai.operation.name": "execute_tool"}, SpanKind.TOOL),
        ({"gen_ai.operation.name": "invoke_agent"}, SpanKind.AGENT),
        ({"gen_ai.operation.name": "novelty"}, SpanKind.STEP),
        ({"openinference.span.kind": "AGENT"}, SpanKind.AGENT),
        ({"openinference.span.kind": "CHAIN"}, SpanKind.STEP),
        ({"traceloop.span.kind": "tool"}, SpanKind.TOOL),
        ({"mcp.method.name": "tools/call"}, SpanKind.TOOL),
        ({"gen_ai.system": "x", "gen_ai.request.model": "m"}, SpanKind.LLM),
        ({"http.request.method": "GET"}, SpanKind.STEP),
        ({}, SpanKind.STEP),
    ],
    ids=str,
)
def test_attributes_say_what_a_span_is(attributes: dict[str, Json], kind: SpanKind) -> None:
    assert kind_of(attributes) is kind


def test_only_what_is_shown_elsewhere_is_left_out() -> None:
    attributes = CURRENT | {"acme.cost": 5, "gen_ai.prompt.0.role": "user"}
    assert left_over(attributes, SpanKind.LLM) == {"acme.cost": 5}
    assert left_over({"gen_ai.request.model": "m"}, SpanKind.STEP) == {"gen_ai.request.model": "m"}


NAMES = st.sampled_from(
    [
        *CURRENT, *OPENINFERENCE, *OPENLLMETRY, "gen_ai.prompt", "gen_ai.completion", "input.value",
        "gen_ai.prompt.7.content", "gen_ai.prompt.x.y", "gen_ai.prompt.0", "gen_ai.prompt..",
        "llm.tools.0.tool.json_schema", "gen_ai.tool.definitions", "gen_ai.system_instructions",
    ]
)  # fmt: skip
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["[", "{", "[1]", '{"role": 5}', '[{"parts": "x"}]', "[[[]]]"]),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(
        st.sampled_from(["role", "parts", "content", "type", "tool_calls", "id", "function"]),
        inner,
        max_size=4,
    ),
    max_leaves=8,
)  # fmt: skip


@settings(max_examples=examples(300), deadline=None)
@given(st.dictionaries(NAMES, VALUES, max_size=8), st.lists(st.tuples(NAMES, VALUES), max_size=3))
def test_no_attributes_break_the_reader(
    attributes: dict[str, Json], events: list[tuple[str, Json]]
) -> None:
    together = with_events(attributes, events)
    kind = kind_of(together)
    left_over(together, kind)
    turn_of(together, Told(failed=True))


def test_a_sum_of_tokens_alone_is_no_usage_and_is_shown_as_it_came() -> None:
    given: dict[str, Json] = {"gen_ai.request.model": "m", "gen_ai.usage.total_tokens": 9}
    assert usage_of(given) is None
    assert left_over(given, SpanKind.LLM) == {"gen_ai.usage.total_tokens": 9}
    assert left_over(given | {"gen_ai.usage.input_tokens": 9}, SpanKind.LLM) == {}


def test_a_text_without_words_says_nothing_and_instructions_may_be_one_part() -> None:
    given: dict[str, Json] = {
        "gen_ai.system_instructions": {"type": "text", "content": "Be brief."},
        "gen_ai.input.messages": [{"role": "user", "parts": [{"type": "text"}]}],
    }
    asked = turn_of(given, Told()).asked
    assert asked.system == "Be brief."
    assert asked.messages == (Message("user", (Text(""),)),)
