"""Chat completions, the older completions, and the dialects of other servers."""

import json

from tapes.jsontext import Json
from tapes.providers.openai_chat import CHAT, ChatReducer
from tapes.providers.reading import answer_of_body
from tapes.providers.turn import (
    Answer,
    AnswerState,
    Failure,
    Media,
    Message,
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

CASE = case("openai_chat/tool-calls")


def reduced(*chunks: Json) -> Answer:
    reducer = ChatReducer()
    for chunk in chunks:
        reducer.feed(Frame("", chunk if isinstance(chunk, str) else json.dumps(chunk)))
    return reducer.finish()


def delta(finish_reason: str | None = None, **members: Json) -> dict[str, Json]:
    return {"choices": [{"index": 0, "delta": members, "finish_reason": finish_reason}]}


def test_a_request_is_understood_with_its_tools_and_their_results() -> None:
    asked = CHAT.asked(CASE.request, "/v1/chat/completions", no_memo)
    assert asked.messages == (
        Message("developer", (Text("Find files."),)),
        Message(
            "user", (Text("Which of these?"), Media("image", url="https://images.test/desk.png"))
        ),
        Message(
            "assistant",
            (
                ToolCall("call_a", "find_file", {"name": "desk"}),
                ToolCall("call_b", "find_file", None, "not json"),
            ),
        ),
        Message("tool", (ToolResult("call_a", "desk.txt"),)),
        Message("tool", (ToolResult("call_b", "nothing\nfound"),)),
    )


def test_leading_instructions_and_settings_are_understood() -> None:
    asked = CHAT.asked(CASE.request, "/v1/chat/completions", no_memo)
    assert asked.instructions == "Find files."
    assert asked.settings == {
        "max_tokens": 300,
        "choices": 1,
        "stop_sequences": ["END"],
        "seed": 7,
        "output_type": "json_object",
    }
    assert [tool.name for tool in asked.tools] == ["find_file"]


def test_calls_are_put_together_by_their_index_beside_text_and_reasoning() -> None:
    answer = answer_of_body(CASE.content_type, CASE.stream, whole=True, provider=CHAT)
    assert answer.parts == (
        Reasoning("Two files to look at."),
        Text("Ich schaue nach: 机"),
        ToolCall("call_c", "find_file", {"name": "机"}),
        ToolCall("call_d", "list_files", {}),
    )
    assert answer.finish_reason == "tool_calls"


def test_cached_tokens_are_inside_the_prompt_and_counted_once() -> None:
    answer = answer_of_body(CASE.content_type, CASE.stream, whole=True, provider=CHAT)
    assert answer.usage == Usage(17903, 100, 17817, None, 12, "gpt-test-1")
    assert answer.usage.uncached == 86


def test_a_stream_without_usage_has_none() -> None:
    answer = reduced(delta(content="Hel"), delta("stop", content="lo"), "[DONE]")
    assert answer.usage is None
    assert answer.parts == (Text("Hello"),)


def test_choices_stand_side_by_side() -> None:
    two = case("openai_chat/two-choices")
    answer = answer_of_body(two.content_type, two.stream, whole=True, provider=CHAT)
    assert [choice.parts for choice in answer.choices] == [
        (Text("Left."),),
        (Refusal("I will not."),),
    ]


def test_a_stream_is_open_until_every_choice_is_finished() -> None:
    first = {"choices": [{"index": 0, "delta": {"content": "a"}, "finish_reason": "stop"}]}
    second = {"choices": [{"index": 1, "delta": {"content": "b"}, "finish_reason": None}]}
    assert reduced(second, first).state is AnswerState.TRUNCATED
    second["choices"][0]["finish_reason"] = "stop"
    assert reduced(second, first).state is AnswerState.COMPLETE


def test_calls_that_a_server_sends_whole_and_unnumbered_stay_apart() -> None:
    call = {"type": "function", "function": {"name": "f", "arguments": "{}"}}
    answer = reduced(delta(tool_calls=[{"id": "a"} | call]), delta(tool_calls=[{"id": "b"} | call]))
    assert answer.parts == (ToolCall("a", "f", {}), ToolCall("b", "f", {}))


def test_the_old_function_call_is_a_tool_call() -> None:
    call = {"name": "f", "arguments": '{"a":'}
    answer = reduced(delta(function_call=call), delta(function_call={"arguments": "1}"}))
    assert answer.parts == (ToolCall("", "f", {"a": 1}),)


def test_reasoning_of_other_servers_is_read_in_both_their_names() -> None:
    for name in ("reasoning", "reasoning_content"):
        answer = reduced(delta(**{name: "hm"}), delta(content="x"))
        assert answer.parts == (Reasoning("hm"), Text("x"))


def test_content_in_parts_with_thinking_is_read() -> None:
    content = [
        {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
        {"type": "text", "text": "x"},
    ]
    body = {"choices": [{"message": {"content": content}, "finish_reason": "stop"}]}
    assert CHAT.answer(body).parts == (Reasoning("hm"), Text("x"))


def test_the_older_completions_are_read_streamed_or_not() -> None:
    asked = CHAT.asked({"model": "m", "prompt": ["Once", "Twice"]}, "/v1/completions", no_memo)
    assert [message.parts for message in asked.messages] == [(Text("Once"),), (Text("Twice"),)]
    assert asked.operation == "text_completion"
    chunk = {"choices": [{"index": 0, "text": "upon", "finish_reason": "length"}]}
    assert reduced(chunk).choices == CHAT.answer(chunk).choices


def test_a_deployment_in_the_path_is_the_model() -> None:
    path = "/openai/deployments/my-gpt/chat/completions"
    assert CHAT.claims(path)
    assert CHAT.asked({"messages": []}, path, no_memo).model == "my-gpt"


def test_a_member_may_be_an_object_and_then_a_list_and_the_other_way_round() -> None:
    sound: Json = {"id": "audio_1", "data": "AA"}
    for first, then in ((sound, [1]), ([1], sound)):
        answer = reduced(delta(audio=first), delta("stop", audio=then, content="hi"))
        assert answer.parts == (Text("hi"), Media("audio", data="AA", file_id="audio_1"))


def test_a_time_that_no_calendar_has_is_unknown() -> None:
    for created in (1_764_500_000_000, 1e300, -1, "soon"):
        assert CHAT.answer({"created": created, "choices": []}).created is None
    assert CHAT.answer({"created": 1_764_500_000, "choices": []}).created == 1_764_500_000


def test_choices_stand_by_their_number_however_they_come() -> None:
    chunks = [
        {"choices": [{"index": n, "delta": {"content": str(n)}, "finish_reason": "stop"}]}
        for n in (1, 0)
    ]
    assert [choice.message.parts for choice in reduced(*chunks).choices] == [
        (Text("0"),), (Text("1"),)
    ]  # fmt: skip


def test_a_finish_reason_stays_though_a_later_chunk_has_none() -> None:
    answer = reduced(delta("length", content="x"), delta(None, content="y"))
    assert (answer.parts, answer.finish_reason) == ((Text("xy"),), "length")


def test_a_stream_whose_last_piece_is_a_whole_message_is_read() -> None:
    last = {"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}]}
    assert reduced(last).parts == (Text("x"),)


def test_sound_is_put_together_with_its_words() -> None:
    one, other = {"id": "audio_1", "data": "AA", "transcript": "he"}, {"transcript": "llo"}
    answer = reduced(delta(audio=one), delta("stop", audio={"data": "BB"} | other))
    assert answer.parts == (Media("audio", data="AABB", file_id="audio_1"), Text("hello"))


def test_content_that_streams_in_parts_is_read() -> None:
    answer = reduced(
        delta(content=[{"type": "text", "text": "x"}]), delta("stop", content="not this")
    )
    assert answer.parts == (Text("x"),)


def test_calls_of_custom_tools_are_put_together() -> None:
    first = {"index": 0, "id": "c1", "type": "custom", "custom": {"name": "f", "input": "a"}}
    answer = reduced(
        delta(tool_calls=[first]),
        delta("tool_calls", tool_calls=[{"index": 0, "custom": {"input": "b"}}]),
    )
    assert answer.parts == (ToolCall("c1", "f", {"input": "ab"}),)


def test_an_error_in_the_middle_keeps_the_text_and_names_the_providers_code() -> None:
    answer = reduced(delta(content="Start"), {"error": {"code": "overloaded", "message": "later"}})
    assert answer.parts == (Text("Start"),)
    assert answer.failure == Failure("overloaded", "later")
    assert answer.state is AnswerState.ERROR


def test_a_signature_of_reasoning_is_kept() -> None:
    details = [{"type": "reasoning.text", "text": "hm"}, {"signature": "s1"}]
    message = {"reasoning": "hm", "reasoning_details": details}
    assert CHAT.answer({"choices": [{"message": message}]}).parts == (Reasoning("hm", "s1"),)


def test_a_stream_says_what_it_is_as_one_body_does() -> None:
    chunk = delta("stop", content="x") | {"object": "chat.completion.chunk"}
    assert reduced(chunk).extra == {"object": "chat.completion"}


def test_a_picture_may_be_named_in_both_forms() -> None:
    url = "https://pictures.test/a.png"
    for form in (url, {"url": url}):
        content = [{"type": "image_url", "image_url": form}]
        asked = CHAT.asked({"messages": [{"role": "user", "content": content}]}, "/", no_memo)
        assert asked.messages[0].parts == (Media("image", url=url),)
