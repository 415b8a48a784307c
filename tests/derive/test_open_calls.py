"""A conversation that is to go on from the middle: what in it is open, and what can be done."""

import pytest

from tapes.derive.open_calls import Offer, Trouble, open_tool_calls, summary
from tapes.providers.turn import Message, Text, ToolCall, ToolResult

ASK = Message("user", (Text("Will it rain?"),))
CALL = Message("assistant", (ToolCall("toolu_01", "get_weather", {"place": "Oslo"}),))
RESULT = Message("user", (ToolResult("toolu_01", "rain"),))


def test_an_open_call_is_named_before_anything_is_sent() -> None:
    found = open_tool_calls([ASK, CALL])
    assert summary(found) == "1 tool call has no result: toolu_01 (get_weather)"
    assert found[0].offers == (Offer.GIVEN, Offer.DROP)


def test_the_recorded_result_is_offered_where_a_later_turn_has_it() -> None:
    (found,) = open_tool_calls([ASK, CALL], later=[RESULT])
    assert found.offers == (Offer.RECORDED, Offer.GIVEN, Offer.DROP)
    assert found.recorded == ToolResult("toolu_01", "rain")


def test_the_list_is_machine_readable() -> None:
    (found,) = open_tool_calls([ASK, CALL], later=[RESULT])
    assert found.as_dict() == {
        "trouble": "open_call",
        "id": "toolu_01",
        "name": "get_weather",
        "message": 1,
        "offers": ["use_recorded_result", "give_result", "drop"],
        "recorded": {"type": "tool_result", "tool_result_id": "toolu_01", "tool_output": "rain"},
    }


def test_a_conversation_whose_calls_have_their_results_can_go_on() -> None:
    assert open_tool_calls([ASK, CALL, RESULT]) == ()
    assert summary(()) == ""


@pytest.mark.parametrize(
    ("messages", "trouble", "line"),
    [
        ([ASK, RESULT], Trouble.ORPHAN, "1 result has no tool call: toolu_01"),
        (
            [RESULT, CALL],
            Trouble.EARLY,
            "1 result stands before its tool call: toolu_01 (get_weather)",
        ),
        (
            [CALL, RESULT, CALL],
            Trouble.DUPLICATE_CALL,
            "1 tool call has the id of another: toolu_01 (get_weather)",
        ),
        ([CALL, RESULT, RESULT], Trouble.DUPLICATE_RESULT, "1 result is there twice: toolu_01"),
    ],
)
def test_orphans_early_results_and_duplicates_are_told_the_same_way(
    messages: list[Message], trouble: Trouble, line: str
) -> None:
    (found,) = open_tool_calls(messages)
    assert found.trouble is trouble
    assert summary([found]) == line


def test_several_open_calls_are_told_in_one_line() -> None:
    calls = Message("assistant", (ToolCall("a", "x"), ToolCall("b", "y"), ToolCall("c", "z")))
    found = open_tool_calls([ASK, calls, Message("user", (ToolResult("b"),))])
    assert summary(found) == "2 tool calls have no result: a (x), c (z)"


def test_what_the_provider_runs_itself_is_not_open() -> None:
    search = Message("assistant", (ToolCall("s", "web_search", server=True),))
    assert open_tool_calls([ASK, search]) == ()


def test_calls_without_ids_are_paired_all_the_same() -> None:
    nameless = Message("assistant", (ToolCall("", "get_time", {}),))
    back = Message("tool", (ToolResult("", "12:00", name="get_time"),))
    assert open_tool_calls([ASK, nameless, back]) == ()
    (found,) = open_tool_calls([ASK, nameless], later=[back])
    assert found.recorded is not None
    assert found.recorded.output == "12:00"
