"""Ollama's own API in the project's own words."""

from tapes.providers.ollama import OLLAMA, OllamaReducer
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

CASE = case("ollama/tools-and-thinking")


def test_a_request_is_understood_and_streams_unless_it_says_otherwise() -> None:
    asked = OLLAMA.asked(CASE.request, "/api/chat", no_memo)
    assert asked.messages == (
        Message("system", (Text("Be kind."),)),
        Message("user", (Text("What time is it?"), Media("image", data="aW1n"))),
        Message("assistant", (ToolCall("", "get_time", {"zone": "CET"}),)),
        Message("tool", (ToolResult("", "12:00", name="get_time"),)),
    )
    assert asked.stream
    assert not OLLAMA.asked({"messages": [], "stream": False}, "/api/chat", no_memo).stream
    assert asked.settings == {"max_tokens": 64, "temperature": 0, "seed": 1, "reasoning": True}


def test_an_answer_keeps_thinking_and_calls_and_counts() -> None:
    answer = answer_of_body(CASE.content_type, CASE.stream, whole=True, provider=OLLAMA)
    assert answer.parts == (
        Reasoning("The tool said noon."),
        Text("Noon — naïvely."),
        ToolCall("", "get_time", {"zone": "UTC"}),
    )
    assert answer.usage == Usage(31, 9, model="llama-test")
    assert answer.created == 1784980800


def test_generate_is_a_prompt_and_its_text() -> None:
    generate = case("ollama/generate")
    asked = OLLAMA.asked(generate.request, "/api/generate", no_memo)
    assert asked.messages == (Message("user", (Text("Tell a tale"),)),)
    assert (asked.system, asked.operation) == ("Old words only.", "text_completion")
    answer = answer_of_body(generate.content_type, generate.stream, whole=True, provider=OLLAMA)
    assert (answer.parts, answer.finish_reason) == ((Text("Once upon"),), "length")


def test_an_error_line_is_a_failure() -> None:
    reducer = OllamaReducer()
    reducer.feed(Frame("", '{"message":{"content":"He"},"done":false}'))
    reducer.feed(Frame("", '{"error":"model runner has stopped"}'))
    answer = reducer.finish()
    assert answer.state is AnswerState.ERROR
    assert answer.failure is not None
    assert answer.failure.message == "model runner has stopped"
    assert answer.parts == (Text("He"),)
