"""What a reducer relies on to know how far a stream has come."""

import pytest

from tapes.jsontext import Json
from tapes.providers.ending import Course, Ending
from tapes.wire import Frame

CHOICE = {"index": 0, "delta": {"content": "a"}, "finish_reason": None}


def course(*values: dict[str, Json]) -> Course:
    made = Course()
    for value in values:
        made.take_value(value)
    return made


def test_nothing_undoes_a_last_word_or_an_error() -> None:
    for last in (Frame("", "[DONE]"), Frame("", '{"error":"x"}'), Frame("message_stop", "{}")):
        made = Course()
        made.take(last)
        assert made.is_over
        reached = made.ending
        made.take_value({"choices": [CHOICE]})
        made.take(Frame("", "[DONE]"))
        made.take(Frame("", '{"error":"x"}'))
        assert made.ending is reached


def test_a_prompt_that_was_blocked_is_finished_without_an_answer() -> None:
    assert course({"promptFeedback": {"blockReason": "SAFETY"}}).ending is Ending.FINISHED
    begun = course({"candidates": [{"content": {}}]}, {"promptFeedback": {}})
    assert begun.ending is Ending.OPEN


@pytest.mark.parametrize("value", [{"type": []}, {"type": {}}, {"choices": 1}, {"candidates": [1]}])
def test_what_makes_no_sense_says_nothing(value: dict[str, Json]) -> None:
    assert course(value).ending is Ending.UNKNOWN
