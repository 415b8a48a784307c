"""Decisions are recorded, effects never."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapes import Cassette, EffectRefused, Effects
from tapes.tape.base import MemoryTape

REQUEST = {"prompt": "refund order 7?"}


def deciding(mode: str, tape: Any = None) -> Cassette:
    return Cassette(
        MemoryTape() if tape is None else tape, mode, lambda _: {"do": "refund"}, latch=True
    )


class Bank:
    """Money that moves, and a double that notes what would have."""

    def __init__(self, cassette: Cassette) -> None:
        self.moved: list[str] = []
        self.noted: list[str] = []
        self.effects = Effects(cassette)
        self.issue_refund: Callable[[str], str] = self.effects.effect(self._named())

    def _named(self) -> Callable[[str], str]:
        def issue_refund(order: str) -> str:
            self.moved.append(order)
            return "paid"

        return issue_refund

    def double(self, order: str) -> str:
        self.noted.append(order)
        return "noted"


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A tape that holds the decision."""
    path = tmp_path / "t.jsonl"
    with deciding("record", path) as cassette:
        cassette.call(REQUEST)
    return path


@pytest.mark.row("B9")
def test_under_replay_an_effect_without_a_double_is_refused(recorded: Path) -> None:
    cassette = deciding("replay", recorded)
    bank = Bank(cassette)
    cassette.call(REQUEST)
    with pytest.raises(EffectRefused, match=r"issue_refund would act.*\n.*effects\.double"):
        bank.issue_refund("7")
    assert bank.moved == []


@pytest.mark.row("B9")
def test_under_replay_an_effect_runs_against_its_named_double(recorded: Path) -> None:
    cassette = deciding("replay", recorded)
    bank = Bank(cassette)
    bank.effects.double("issue_refund", bank.double)
    cassette.call(REQUEST)
    assert bank.issue_refund("7") == "noted"
    assert (bank.moved, bank.noted) == ([], ["7"])


@pytest.mark.row("B9")
def test_while_recording_a_live_decision_acts_for_real_and_a_recorded_one_does_not() -> None:
    cassette = deciding("record")
    bank = Bank(cassette)
    bank.effects.double("issue_refund", bank.double)
    cassette.call(REQUEST)
    bank.issue_refund("live")
    cassette.call(REQUEST)  # from the tape
    bank.issue_refund("recorded")
    cassette.call(REQUEST)  # from memory
    bank.issue_refund("recorded again")
    cassette.call({"prompt": "another"})
    bank.issue_refund("live again")
    assert bank.moved == ["live", "live again"]
    assert bank.noted == ["recorded", "recorded again"]


def test_an_answer_from_memory_is_an_answer_from_the_tape() -> None:
    cassette = deciding("record")
    bank = Bank(cassette)
    cassette.call(REQUEST)
    cassette.call(REQUEST)
    cassette.call({"prompt": "another"})
    cassette.call(REQUEST)
    with pytest.raises(EffectRefused):
        bank.issue_refund("7")


def test_in_live_mode_effects_run_for_real() -> None:
    bank = Bank(deciding("live"))
    assert bank.issue_refund("7") == "paid"


def test_async_effects_and_async_answers_are_bound_to_each_other() -> None:
    cassette = deciding("record")
    effects = Effects(cassette)
    done: list[str] = []

    @effects.effect
    async def send_mail(to: str) -> None:
        done.append(to)

    async def main() -> None:
        await cassette.acall(REQUEST)
        await send_mail("live")
        await cassette.acall(REQUEST)
        await cassette.acall({"prompt": "another"})
        await send_mail("live again")
        await cassette.acall(REQUEST)
        await send_mail("recorded")

    with pytest.raises(EffectRefused, match="send_mail"):
        asyncio.run(main())
    assert done == ["live", "live again"]


def test_a_task_that_asked_the_tape_makes_its_parents_decision_doubtful() -> None:
    cassette = deciding("record")
    bank = Bank(cassette)

    async def main() -> None:
        await cassette.acall(REQUEST)
        await asyncio.gather(cassette.acall(REQUEST), cassette.acall({"prompt": "another"}))
        bank.issue_refund("7")

    with pytest.raises(EffectRefused):
        asyncio.run(main())


def test_a_plain_double_may_stand_for_an_async_effect(recorded: Path) -> None:
    effects = Effects(deciding("replay", recorded))

    @effects.effect
    async def send_mail(to: str) -> str:
        return f"sent to {to}"

    effects.double("send_mail", lambda to: f"would send to {to}")
    assert asyncio.run(send_mail("you")) == "would send to you"


def test_an_effect_keeps_its_name_and_its_words() -> None:
    effects = Effects(deciding("live"))

    @effects.effect
    def pay(cents: int) -> int:
        """Pay so many cents."""
        return cents

    assert (pay.__name__, pay.__doc__) == ("pay", "Pay so many cents.")
