"""Gemini's generateContent in the project's own words."""

import json

from tapes.providers.gemini import GEMINI, GeminiReducer
from tapes.providers.reading import answer_of_body
from tapes.providers.turn import (
    AnswerState,
    Media,
    Message,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    no_memo,
)
from tapes.providers.usage import Usage
from tapes.wire import Frame
from tests.cases import case

CASE = case("gemini/tools-and-thoughts")


def test_a_request_is_understood_and_its_path_names_the_model() -> None:
    asked = GEMINI.asked(CASE.request, CASE.path, no_memo)
    assert (asked.model, asked.stream, asked.system) == ("gemini-test", True, "Short.")
    assert asked.messages == (
        Message("user", (Text("How do I get there?"), Media("image", "image/png", data="aW1n"))),
        Message("assistant", (ToolCall("", "find_way", {"to": "there"}),)),
        Message("user", (ToolResult("", "by boat", name="find_way"),)),
    )
    assert [tool.name for tool in asked.tools] == ["find_way", "get_tide", "googleSearch"]
    assert asked.settings["max_tokens"] == 128


def test_snake_case_means_the_same() -> None:
    body = {
        "system_instruction": {"parts": [{"text": "Short."}]},
        "generation_config": {"max_output_tokens": 128},
        "contents": [{"parts": [{"inline_data": {"mime_type": "image/png", "data": "aW1n"}}]}],
    }
    asked = GEMINI.asked(body, "/v1beta/models/m:generateContent", no_memo)
    assert asked.system == "Short."
    assert asked.settings == {"max_tokens": 128}
    assert asked.messages == (Message("user", (Media("image", "image/png", data="aW1n"),)),)


def test_an_answer_has_thoughts_text_and_calls_and_counts_thoughts_as_output() -> None:
    answer = answer_of_body(CASE.content_type, CASE.stream, whole=True, provider=GEMINI)
    assert answer.parts == (
        Reasoning("A boat goes."),
        Text("Take the boat, über das Meer."),
        ToolCall("", "get_tide", {"at": "noon"}, extra={"signature": "c2ln"}),
    )
    assert answer.usage == Usage(40, 12, 16, None, 5, "gemini-test")


def test_a_stream_in_the_form_of_one_list_is_read_whole_or_cut() -> None:
    bodies = [json.loads(line[6:]) for line in CASE.stream.split(b"\n") if line]
    listed = json.dumps(bodies, indent=1).encode()
    whole = answer_of_body("application/json", listed, whole=True, provider=GEMINI)
    assert whole == answer_of_body(CASE.content_type, CASE.stream, whole=True, provider=GEMINI)
    cut = answer_of_body("application/json", listed[:-200], whole=False, provider=GEMINI)
    assert cut.parts == whole.parts[:2]
    assert cut.state is AnswerState.TRUNCATED


def test_a_blocked_prompt_is_finished_with_its_reason() -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}}
    reducer = GeminiReducer()
    reducer.feed(Frame("", json.dumps(blocked)))
    for answer in (GEMINI.answer(blocked), reducer.finish()):
        assert answer.state is AnswerState.COMPLETE
        assert answer.finish_reason == "SAFETY"


def test_a_failed_function_says_so() -> None:
    failed = {"functionResponse": {"name": "f", "response": {"error": "no way"}}}
    message = GEMINI.asked({"contents": [{"parts": [failed]}]}, "", no_memo).messages[0]
    assert message.parts == (ToolResult("", "no way", True, name="f"),)
