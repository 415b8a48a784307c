"""The likely cause of a miss, claimed only from what differs."""

import pytest

from tapes.causes import cause_of
from tapes.explain import Difference

UUIDS = ("5a3c9f1e-7d42-4c08-9b6a-2f8e1d0c7b35", "6b4dae2f-8e53-4d19-8c7b-3a9f2e1d8c46")


@pytest.mark.parametrize(
    ("asked", "recorded", "said"),
    [
        ("It is 2026-11-30T01:02:03Z.", "It is 2026-11-29T18:54:41Z.", "a time"),
        ("Today is 2026-11-30.", "Today is 2026-11-29.", "a date"),
        (f"run {UUIDS[0]}", f"run {UUIDS[1]}", "an id"),
        ("in /tmp/pytest-7/a", "in /tmp/pytest-12/a", "a temporary path"),
        ("http://127.0.0.1:4010/x", "http://127.0.0.1:5123/x", "an address with a port"),
    ],
)
def test_a_value_that_no_two_runs_share_has_a_rule(asked: str, recorded: str, said: str) -> None:
    cause = cause_of([Difference("messages[2].content", asked, recorded)])
    assert cause is not None
    assert cause.said.startswith(said)
    assert cause.rule is not None
    assert 'at = "/messages/2/content"' in cause.rule


def test_a_value_that_differs_in_more_than_that_has_no_rule() -> None:
    cause = cause_of([Difference("messages[0].content", "on 2026-11-30 no", "on 2026-11-29 yes")])
    assert cause is not None
    assert cause.rule is None


@pytest.mark.parametrize(
    ("differences", "said"),
    [
        ([Difference("model", "b", "a")], "another model is asked: b instead of a"),
        ([Difference("tools[0].name", "b", "a")], "the tools that the model is offered"),
        ([Difference("messages[4].content", "b", None)], "it parts at message 5"),
        ([Difference("system", "b", "a")], "the system prompt has changed"),
        ([Difference("messages[1].content", "b", "a")], "from message 2 on"),
    ],
)
def test_what_changed_is_named(differences: list[Difference], said: str) -> None:
    cause = cause_of(differences)
    assert cause is not None
    assert said in cause.said


def test_where_nothing_shows_a_cause_none_is_claimed() -> None:
    assert cause_of([]) is None
    assert cause_of([Difference("temperature", 1, 0)]) is None
