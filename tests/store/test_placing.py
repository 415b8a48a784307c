"""Turns that name no session find their conversation, in whatever order they come."""

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest
from sqlalchemy import Engine, event

from tapes.projector import Projector
from tapes.rows import RawTurn
from tapes.store.sql import SqlStore
from tests.conftest import OpenStore
from tests.turns import chat, said


def talk(name: str, length: int = 3, *, first: int = 1) -> list[RawTurn]:
    """Calls of one conversation that say no session."""
    history = [said("user", f"hello {name}")]
    turns = []
    for number in range(first, first + length):
        answer = f"{name} {number}"
        turns.append(chat(number, list(history), answer, session="", harness="unknown"))
        history += [said("assistant", answer), said("user", "more")]
    return turns


def conversations(store: SqlStore) -> list[int]:
    """How many calls each conversation has."""
    return sorted(listed.session.llm_calls for listed in store.project().sessions().items)


@pytest.mark.row("D3", "D7")
@pytest.mark.parametrize("eager", [True, False], ids=["placed at once", "placed at the end"])
def test_the_order_of_arrival_makes_no_difference(open_store: OpenStore, eager: bool) -> None:
    store = open_store()
    projector = Projector(store)
    for number, order in enumerate(permutations(range(3))):
        turns = talk(f"talk {number}")
        for index in order:
            name = f"{number}-{index}"
            store.append([replace(turns[index], request_id=name)])
            if eager:
                projector.drain()
    projector.drain()
    assert conversations(store) == [3] * 6
    assert list(Projector(store).check()) == []


def test_conversations_that_open_alike_stay_two(store: SqlStore) -> None:
    one, other = talk("same"), talk("same", first=21)
    store.append([*one, *other])
    projector = Projector(store)
    projector.drain()
    assert conversations(store) == [3, 3]
    assert list(projector.check()) == []


def test_the_call_that_was_gone_on_from_may_come_last(store: SqlStore) -> None:
    first, second, third = talk("late")
    projector = Projector(store)
    for turn in (third, second, first):
        store.append([turn])
        projector.drain()
    assert conversations(store) == [3]
    assert list(projector.check()) == []


def test_a_late_turn_may_be_gone_on_from_by_any_number_of_others(store: SqlStore) -> None:
    opening = [said("user", "hello"), said("assistant", "late 1")]
    others = [
        chat(n, [*opening, said("user", f"and {n}?")], f"so {n}", session="", harness="unknown")
        for n in range(2, 302)
    ]
    store.append(others)
    projector = Projector(store)
    projector.drain()
    assert store.counts()["waiting"]["unplaced"] == 0
    sizes: list[int] = []

    def note(_: Any, __: Any, ___: str, values: Any, ____: Any, many: bool) -> None:
        sizes.append(0 if many else len(values))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        store.append([chat(1, opening[:1], "late 1", session="", harness="unknown")])
        projector.drain()
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    assert conversations(store) == [301]
    assert max(sizes) < 300
