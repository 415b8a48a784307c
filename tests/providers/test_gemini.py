"""Gemini's generateContent in the project's own words."""

import json

import pytest

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


class Counting(str):
    """A text that counts how many characters are copied where something is added to it."""

    copied = 0

    def __add__(self, other: str) -> str:
        Counting.copied += len(self) + len(other)
        return super().__add__(other)

    def __radd__(self, other: str) -> str:
        Counting.copied += len(self) + len(other)
        return other + str(self)


@pytest.mark.parametrize("thought", [False, True])
def test_a_text_in_many_pieces_is_put_together_once(thought: bool) -> None:
    Counting.copied = 0
    pieces = [{"text": Counting("word "), "thought": thought} for _ in range(500)]
    content = {"role": "model", "parts": pieces}
    (part,) = GEMINI.answer({"candidates": [{"content": content}]}).parts
    assert part in (Text("word " * 500), Reasoning("word " * 500))
    assert Counting.copied <= len("word ") * 500


def test_what_pieces_of_a_text_say_beside_it_stays_and_other_parts_stay_apart() -> None:
    parts = [
        {"text": "a", "thought": True, "thoughtSignature": "one"},
        {"text": "b", "thought": True},
        {"text": "c"},
        {"text": "d", "thoughtSignature": "two"},
        {"functionCall": {"name": "f"}},
        {"functionCall": {"name": "g"}},
        {"text": "e"},
    ]
    answer = GEMINI.answer({"candidates": [{"content": {"parts": parts}}]})
    assert answer.parts == (
        Reasoning("ab", "one"),
        Text("cd", {"signature": "two"}),
        ToolCall("", "f", {}),
        ToolCall("", "g", {}),
        Text("e"),
    )
