from dataclasses import replace
from pathlib import Path

import pytest

from tapes.comparing import (
    answer_differences,
    answer_leaves,
    compare_tapes,
    exchange_differences,
)
from tapes.exchange import Piece, Response
from tapes.tape.kinds import open_tape
from tests.making import KINDS, assorted, call, chat, tape_in


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_answers_in_two_kinds_are_no_difference(tmp_path: Path, kind: str) -> None:
    one = tape_in(tmp_path, "jsonl", assorted(), "one")
    other = tape_in(tmp_path, kind, reversed(assorted()), "other")
    found = compare_tapes(one, other)
    assert found.are_none
    assert found.same == len(assorted()) - 1


def test_keys_on_one_side_and_answers_that_differ(tmp_path: Path) -> None:
    one = tape_in(tmp_path, "jsonl", [call("both"), call("mine"), call("x", "1")], "one")
    other = tape_in(tmp_path, "sqlite", [call("x", "2"), call("both"), call("theirs")], "other")
    found = compare_tapes(one, other)
    assert found.only_ours == (call("mine").key,)
    assert found.only_theirs == (call("theirs").key,)
    assert found.differing == (call("x").key,)
    (difference,) = answer_differences(open_tape(one), open_tape(other), call("x").key)
    assert (difference.place, difference.asked, difference.recorded) == ("text", "1", "2")


def test_one_other_word_in_a_stream_is_one_difference() -> None:
    one, other = chat("x", "Hel", "lo", "!"), chat("x", "Hel", "p", "!")
    found = exchange_differences(one, other)
    assert [(d.place, d.asked, d.recorded) for d in found] == [
        ("response.choices[0].delta.content", "Hello!", "Help!")
    ]


def test_a_stream_with_one_event_less_differs_though_its_events_are_alike() -> None:
    found = exchange_differences(chat("x", "na", "na"), chat("x", "na", "na", "na"))
    assert "response.events" in {difference.place for difference in found}


def test_request_and_response_are_told_apart() -> None:
    found = exchange_differences(chat("one", "a"), chat("two", "b"))
    assert [difference.place for difference in found][:1] == ["request.messages[0].content"]
    assert "response.headers.x-request-id" in {difference.place for difference in found}


def test_an_answer_that_is_no_json_is_one_leaf() -> None:
    found = chat("x")
    response = Response(500, (("a", "1"), ("A", "2")), (Piece(0.1, b"\xffoops"),))
    leaves = answer_leaves(replace(found, response=response))
    assert leaves == {"status": 500, "headers.a": "1, 2", "body": "\\xffoops"}
