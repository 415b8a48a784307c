"""Which turns a fork holds, by the order in which calls were made."""

from dataclasses import replace

from tapes.forking import turns_until
from tests.turns import chat, said


def test_a_fork_ends_with_its_turn() -> None:
    turns = [chat(n, [said("user", f"part {n}")], "done") for n in (1, 2, 3)]
    assert [turn.id for turn in turns_until(turns, turns[1])] == [1, 2]


def test_what_began_before_is_on_the_tape_however_late_it_came_into_the_log() -> None:
    early, chosen, late = (chat(n, [said("user", f"part {n}")], "done") for n in (1, 2, 3))
    early = replace(early, id=9)
    assert [turn.id for turn in turns_until([chosen, late, early], chosen)] == [2, 9]


def test_calls_that_began_at_once_are_told_apart_by_their_place_in_the_log() -> None:
    turns = [chat(n, [said("user", f"part {n}")], "done", begins=5) for n in (1, 2, 3)]
    assert [turn.id for turn in turns_until(turns, turns[1])] == [1, 2]
