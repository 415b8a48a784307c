"""The Messages API in the project's own words."""

import json

from tapes.providers.anthropic import MESSAGES, MessagesReducer
from tapes.providers.turn import (
    Answer,
    AnswerState,
    Failure,
    Media,
    Message,
    Other,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    no_memo,
)
from tapes.providers.usage import Usage
from tapes.wire import Frame
from tests.cases import case

CASE = case("anthropic/tools-and-thinking")


def reduced(*events: str) -> Answer:
    reducer = MessagesReducer()
    for event in events:
        reducer.feed(Frame("", event))
    return reducer.finish()


def test_a_request_is_understood_with_its_pictures_thoughts_and_failed_results() -> None:
    asked = MESSAGES.asked(CASE.request, "/v1/messages", no_memo)
    assert asked.messages == (
        Message(
            "user",
            (
                Text("Is this the harbour of Bergen, and will it rain?"),
                Media("image", url="https://images.test/harbour.png"),
            ),
        ),
        Message(
            "assistant",
            (
                Reasoning("I should look.", "c2ln"),
                Other("redacted_thinking", {"data": "b3BhcXVl"}),
                ToolCall("toolu_one", "get_weather", {"place": "Bergen"}),
            ),
        ),
        Message("user", (ToolResult("toolu_one", "no such place\ntry again", True),)),
    )


def test_system_tools_and_settings_are_understood() -> None:
    asked = MESSAGES.asked(CASE.request, "/v1/messages", no_memo)
    assert asked.model == "claude-test-1"
    assert asked.system == asked.instructions == "You answer briefly.\nUse the tools."
    assert [tool.name for tool in asked.tools] == ["get_weather"]
    assert asked.settings == {"max_tokens": 1024, "temperature": 0.2}
    assert asked.stream


def test_an_answer_keeps_redacted_thinking_and_citations() -> None:
    answer = MESSAGES.answer(json.loads(CASE.oneshot))
    assert answer.parts[1] == Other("redacted_thinking", {"data": "c2VjcmV0"})
    assert isinstance(answer.parts[2], Text)
    assert answer.parts[2].extra["citations"][0]["cited_text"] == "Bjørgvin"


def test_arguments_that_are_no_json_are_kept_as_text_and_told() -> None:
    answer = reduced(
        '{"type":"content_block_start","index":0,"content_block":'
        '{"type":"tool_use","id":"t","name":"n","input":{}}}',
        '{"type":"content_block_delta","index":0,"delta":'
        '{"type":"input_json_delta","partial_json":"{\\"a\\": "}}',
    )
    assert answer.parts == (ToolCall("t", "n", None, '{"a": '),)
    assert answer.problems == ("input of tool call t is no JSON",)


def test_text_for_a_block_that_was_never_opened_is_text() -> None:
    delta = '{"type":"content_block_delta","index":3,"delta":{"type":"text_delta","text":"hi"}}'
    assert reduced(delta).parts == (Text("hi"),)


def test_an_event_that_is_no_json_is_told_and_reading_goes_on() -> None:
    delta = '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}'
    answer = reduced("{broken", delta, '{"type":"message_stop"}')
    assert answer.parts == (Text("hi"),)
    assert answer.state is AnswerState.COMPLETE
    assert len(answer.problems) == 1


def test_an_error_in_the_middle_keeps_the_text_and_names_the_providers_code() -> None:
    answer = reduced(
        '{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Start"}}',
        '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}',
    )
    assert answer.parts == (Text("Start"),)
    assert answer.failure == Failure("overloaded_error", "Overloaded")
    assert answer.finish_reason is None


def test_a_cut_stream_has_no_finish_reason_and_no_count_of_its_output() -> None:
    opening = CASE.stream[: CASE.stream.index(b"event: content_block_start")]
    reducer = MessagesReducer()
    reducer.feed(Frame("", opening.decode().partition("data: ")[2].strip()))
    answer = reducer.finish()
    assert answer.finish_reason is None
    assert answer.usage == Usage(130213, None, 128955, 1253, model="claude-test-1")


def test_a_provider_run_tool_and_its_result_are_one_pair() -> None:
    answer = MESSAGES.answer(json.loads(case("anthropic/server-tool").oneshot))
    call, result, _ = answer.parts
    assert isinstance(call, ToolCall)
    assert isinstance(result, ToolResult)
    assert (call.server, call.id) == (True, result.id)
    assert result.kind == "web_search_tool_result"
    assert result.content[0]["title"] == "Depths"


def test_the_paths_of_the_cloud_are_claimed_and_token_counts_are_not() -> None:
    assert MESSAGES.claims("/v1/messages")
    assert MESSAGES.claims("/proxy/anthropic/v1/messages")
    assert MESSAGES.claims("/v1/projects/p/publishers/anthropic/models/claude:streamRawPredict")
    assert not MESSAGES.claims("/v1/messages/count_tokens")
    assert not MESSAGES.claims("/v1/threads/t/messages")


def test_citations_are_added_to_those_with_which_a_block_begins() -> None:
    for opened, told in (([{"n": 1}], [{"n": 1}, {"n": 2}]), (5, [{"n": 2}])):
        answer = reduced(
            json.dumps(
                {"type": "content_block_start", "index": 0,
                 "content_block": {"type": "text", "text": "a", "citations": opened}}
            ),
            '{"type": "content_block_delta", "index": 0,'
            ' "delta": {"type": "citations_delta", "citation": {"n": 2}}}',
        )  # fmt: skip
        assert answer.parts == (Text("a", {"citations": told}),)


def test_a_search_of_the_provider_that_failed_says_so() -> None:
    kind = "web_search_tool_result"
    for error, failed in (("web_search_tool_result_error", True), ("web_search_result", False)):
        told = {"type": kind, "tool_use_id": "s1", "content": {"type": error, "error_code": "x"}}
        (part,) = MESSAGES.answer({"content": [told]}).parts
        assert isinstance(part, ToolResult)
        assert (part.id, part.kind, part.is_error) == ("s1", kind, failed)


def test_blocks_stand_by_their_number_however_they_come() -> None:
    texts = [
        {"type": "content_block_delta", "index": n, "delta": {"type": "text_delta", "text": str(n)}}
        for n in (1, 0, 1)
    ]
    assert reduced(*map(json.dumps, texts)).parts == (Text("0"), Text("11"))


def test_what_ended_an_answer_and_how_it_was_served_are_kept_beside_it() -> None:
    usage = {"input_tokens": 1, "output_tokens": 2, "service_tier": "batch"}
    body = {"type": "message", "usage": usage, "stop_reason": "stop_sequence", "stop_sequence": "."}
    answer = MESSAGES.answer(body)
    assert answer.finish_reason == "stop_sequence"
    assert answer.extra == {"type": "message", "stop_sequence": ".", "service_tier": "batch"}
