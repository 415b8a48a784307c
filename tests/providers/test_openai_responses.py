"""The Responses API in the project's own words."""

import json

from tapes.jsontext import Json
from tapes.providers.openai_responses import RESPONSES, ResponsesReducer
from tapes.providers.reading import answer_of_body
from tapes.providers.turn import (
    Answer,
    AnswerState,
    Media,
    Message,
    Other,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    no_memo,
)
from tapes.providers.usage import Usage
from tapes.wire import Frame
from tests.cases import case

CASE = case("openai_responses/tools-and-reasoning")


def reduced(*events: Json) -> Answer:
    reducer = ResponsesReducer()
    for event in events:
        reducer.feed(Frame("", json.dumps(event)))
    return reducer.finish()


def test_a_request_is_understood_and_the_models_items_are_one_message() -> None:
    asked = RESPONSES.asked(CASE.request, "/v1/responses", no_memo)
    assert asked.messages == (
        Message("user", (Text("Add 2 and 40."), Media("image", url="https://images.test/sum.png"))),
        Message(
            "assistant",
            (
                Reasoning("Use the tool.", "ZW5j"),
                ToolCall("call_1", "add", {"a": 2, "b": 40}),
                ToolCall("call_2", "patch", {"input": "*** Begin"}),
            ),
        ),
        Message("tool", (ToolResult("call_1", "42"), ToolResult("call_2", "patched"))),
    )
    assert (asked.system, asked.previous_id) == ("Be exact.", "resp_before")


def test_the_final_event_is_the_answer_and_its_items_fill_an_empty_output() -> None:
    answer = answer_of_body(CASE.content_type, CASE.stream, whole=True, provider=RESPONSES)
    assert answer.parts == (
        Reasoning("It is 42.\nSay so.", "bmV3"),
        Text("The sum is 42."),
        Refusal("No more."),
        ToolCall("call_3", "add", {"a": 42, "b": 0}),
        Other("web_search_call", answer.parts[4].value),  # type: ignore[union-attr] # the item
    )
    assert answer.finish_reason == "stop"
    assert answer.usage == Usage(50, 20, 32, None, 8, "gpt-test-2")


def test_a_cut_stream_keeps_what_its_items_had_and_has_no_reason() -> None:
    events = [json.loads(line[6:]) for line in CASE.stream.split(b"\n") if line[:5] == b"data:"]
    answer = reduced(*events[:8])
    assert answer.parts == (Reasoning("It is 42.\nSay so.", "bmV3"), Text("The sum is 42."))
    assert answer.state is AnswerState.TRUNCATED
    assert answer.finish_reason is None
    assert (answer.id, answer.model) == ("resp_test_1", "gpt-test-2")


def test_a_final_event_without_its_object_is_no_end() -> None:
    assert reduced({"type": "response.completed"}).state is AnswerState.TRUNCATED


def test_an_incomplete_response_says_why() -> None:
    body = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    answer = RESPONSES.answer(body | {"object": "response", "output": []})
    assert answer.finish_reason == "max_output_tokens"
    assert answer.state is AnswerState.COMPLETE


def test_a_failed_response_is_a_failure_with_the_providers_code() -> None:
    error = {"code": "server_error", "message": "try later"}
    final = {"status": "failed", "error": error, "output": []}
    for answer in (
        RESPONSES.answer(final),
        reduced({"type": "response.failed", "response": final}),
    ):
        assert answer.state is AnswerState.ERROR
        assert answer.failure is not None
        assert (answer.failure.code, answer.failure.message) == ("server_error", "try later")


def test_text_alone_is_a_message_of_the_user() -> None:
    asked = RESPONSES.asked({"input": "hello"}, "/v1/responses", no_memo)
    assert asked.messages == (Message("user", (Text("hello"),)),)
