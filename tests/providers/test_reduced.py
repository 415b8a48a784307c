"""The JSON form of answers and parts."""

import json

import pytest

from tapes.providers.ending import Ending
from tapes.providers.reduced import (
    VERSION,
    answer_of,
    block_of,
    is_current,
    part_of,
    reduced,
    usage_form,
    usage_of_form,
)
from tapes.providers.turn import (
    Answer,
    Failure,
    Media,
    Other,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    said,
)
from tapes.providers.usage import Usage

BLOCKS: list[tuple[Part, dict[str, object]]] = [
    (Text("a"), {"type": "text", "text": "a"}),
    (Text(""), {"type": "text"}),
    (Text("a", {"citations": [1]}), {"type": "text", "text": "a", "extra": {"citations": [1]}}),
    (
        Reasoning("hm", "sig"),
        {"type": "thinking", "thinking": "hm", "thinking_signature": "sig"},
    ),
    (
        ToolCall("t", "n", {"a": 1}),
        {"type": "tool_use", "tool_use_id": "t", "tool_name": "n", "tool_input": {"a": 1}},
    ),
    (ToolCall("t", "n", {}), {"type": "tool_use", "tool_use_id": "t", "tool_name": "n"}),
    (
        ToolCall("t", "n", None, "{bro", server=True),
        {"type": "server_tool_use", "tool_use_id": "t", "tool_name": "n", "content": "{bro"},
    ),
    (
        ToolCall("t", "n", [1, 2]),
        {"type": "tool_use", "tool_use_id": "t", "tool_name": "n", "content": [1, 2]},
    ),
    (
        ToolResult("t", "out", True),
        {"type": "tool_result", "tool_result_id": "t", "tool_output": "out", "is_error": True},
    ),
    (
        ToolResult("t", content=[{"title": "x"}], kind="web_search_tool_result"),
        {
            "type": "web_search_tool_result",
            "tool_result_id": "t",
            "content": [{"title": "x"}],
        },
    ),
    (Media("image", url="u"), {"type": "image", "image_url": "u"}),
    (
        Media("image", "image/png", data="d"),
        {"type": "image", "media_type": "image/png", "image_base64": "d"},
    ),
    (Media("audio", "wav", data="d"), {"type": "audio", "media_type": "wav", "data": "d"}),
    (Media("file", file_id="f"), {"type": "file", "file_id": "f"}),
    (Refusal("no"), {"type": "refusal", "text": "no"}),
    (
        Other("redacted_thinking", {"data": "x"}),
        {"type": "redacted_thinking", "content": {"data": "x"}},
    ),
]


@pytest.mark.parametrize(("part", "block"), BLOCKS, ids=lambda value: type(value).__name__)
def test_each_part_has_one_block_and_comes_back_from_it(
    part: Part, block: dict[str, object]
) -> None:
    assert block_of(part) == block
    assert part_of(json.loads(json.dumps(block))) == part


ANSWER = Answer(
    choices=(said((Text("a"), ToolCall("t", "n", {})), "tool_use"), said((Refusal("b"),), None)),
    ending=Ending.FINISHED,
    model="m",
    id="msg_1",
    created=1785000000,
    usage=Usage(10, 2, 4, 3, 1, "m", 2),
    extra={"type": "message", "service_tier": "standard"},
    problems=("something was odd",),
)


def test_an_answer_comes_back_from_its_form() -> None:
    assert answer_of(json.loads(json.dumps(reduced(ANSWER)))) == ANSWER


def test_the_contracts_names_hold_and_what_it_has_none_for_stands_apart() -> None:
    form = reduced(ANSWER, duration_ns=5)
    assert set(form) == {
        "model", "created_at", "message", "done", "stop_reason", "usage", "extra", "tapes",
    }  # fmt: skip
    assert form["usage"] == {
        "prompt_tokens": 10,
        "completion_tokens": 2,
        "total_tokens": 12,
        "cache_creation_input_tokens": 3,
        "cache_read_input_tokens": 4,
        "total_duration_ns": 5,
    }
    assert form["extra"] == {"id": "msg_1", "type": "message"}
    assert form["created_at"] == "2026-07-25T17:20:00+00:00"


def test_an_answer_that_was_cut_or_failed_says_so_in_the_contracts_words() -> None:
    cut = Answer(choices=(said((Text("a"),)),))
    assert reduced(cut)["stop_reason"] == "incomplete"
    assert reduced(cut)["extra"] == {"incomplete": True}
    assert reduced(cut, "responses")["stop_reason"] == ""
    assert reduced(cut, "responses")["extra"]["partial"] is True
    failed = Answer(failure=Failure("overloaded_error", "busy", 529))
    assert reduced(failed)["stop_reason"] == "error"
    error = {"type": "overloaded_error", "message": "busy", "status": 529}
    assert reduced(failed)["extra"] == {"error": error}


def test_those_words_are_not_taken_for_the_providers() -> None:
    for answer in (Answer(choices=(said(()),)), Answer(choices=(said(()),), failure=Failure("x"))):
        told = answer_of(reduced(answer))
        assert told is not None
        assert told.finish_reason is None
        assert told.state is answer.state


def test_unknown_counts_stay_unknown() -> None:
    assert usage_form(None) == {}
    assert usage_form(Usage(12, None)) == {"prompt_tokens": 12, "total_tokens": 12}
    assert usage_of_form({"prompt_tokens": 12}, "m") == Usage(12, None, model="m")
    assert usage_of_form({"total_duration_ns": 5}) is None


def test_a_form_that_others_made_is_read_and_is_not_current() -> None:
    form = {
        "model": "m",
        "message": {"role": "assistant", "content": [{"type": "text", "text": "a"}]},
        "done": True,
        "stop_reason": "end_turn",
        "usage": {"prompt_tokens": 1, "completion_tokens": 2},
    }
    answer = answer_of(form)
    assert answer is not None
    assert (answer.parts, answer.finish_reason) == ((Text("a"),), "end_turn")
    assert answer.usage == Usage(1, 2, model="m")
    assert not is_current(form)
    assert is_current(form | {"tapes": {"reducer": VERSION}})
    assert answer_of({"model": "m"}) is None
