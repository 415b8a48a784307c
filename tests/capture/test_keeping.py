"""Ends of answers: kept together, each told of its own, none lost."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tapes.budget import Limits, spends
from tapes.capture.keeping import Keepers
from tapes.capture.workers import Workers
from tapes.cassette import Cassette
from tapes.errors import TapeFailed, UnwritableTape
from tapes.exchange import Exchange, Request
from tapes.permit import Permit, Unstored
from tapes.tape.base import MemoryTape, Ready, Tape
from tapes.tape.jsonl import JsonlTape
from tests.tape.homes import until

JSON_TYPE = (("content-type", "application/json"),)


SMALL, LARGE = b"{}", b'{"text":"%b"}' % (b"x" * 40_000)


def answered(cassette: Cassette, number: int, answer: bytes = SMALL) -> Permit:
    body = b'{"n":%d}' % number
    verdict = cassette.decide(Request("POST", "http://h/v1/x", JSON_TYPE, body), owner=object())
    assert isinstance(verdict, Permit)
    verdict.answered(200, JSON_TYPE, "OK")
    verdict.feed(answer)
    return verdict


def keep(keepers: Keepers, permit: Permit, then: Callable[[object], None]) -> None:
    keepers.keep(permit, permit.finishing, then)


def keep_all(
    tape: Tape,
    number: int,
    meanwhile: Callable[[], None] = lambda: None,
    answer: bytes = SMALL,
    limits: Limits | None = None,
) -> list[object]:
    """Keep so many answers at once, and close; what was told."""
    told: list[object] = []

    async def main() -> None:
        keepers = Keepers(Workers(8, "test"))
        with Cassette(tape, "record", latch=True, limits=limits or Limits()) as cassette:
            for n in range(number):
                keep(keepers, answered(cassette, n, answer), told.append)
            await asyncio.to_thread(meanwhile)
            await asyncio.to_thread(keepers.close, 30)
            await asyncio.sleep(0)  # what was told last
            await asyncio.sleep(0)

    asyncio.run(main())
    return told


class Counting(JsonlTape):
    """A tape that waits, and notes how many exchanges were made ready and came together."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.go_on = threading.Event()
        self.came: list[int] = []
        self.made = 0

    def ready(self, exchange: Exchange) -> Any:
        self.made += 1
        return super().ready(exchange)

    def append_ready(self, items: Sequence[Ready]) -> list[Exception | None]:
        self.came.append(len(items))
        self.go_on.wait(60)
        return super().append_ready(items)


@pytest.mark.parametrize("answer", [SMALL, LARGE], ids=["small", "large"])
def test_answers_that_come_while_one_is_written_share_the_next_commit(
    tmp_path: Path, answer: bytes
) -> None:
    tape = Counting(tmp_path / "t.jsonl")

    def meanwhile() -> None:
        until(lambda: len(tape.came) == 1)
        until(lambda: tape.made == 100)
        tape.go_on.set()

    told = keep_all(tape, 100, meanwhile, answer)
    assert len(told) == sum(tape.came) == 100
    assert all(isinstance(result, Exchange) for result in told)
    # All but those that were made ready and had not come yet when it went on.
    assert len(tape.came) < 10
    assert len(JsonlTape(tape.path).keys()) == 100


def test_a_small_answer_is_made_ready_on_the_loop_and_a_large_one_beside_it(
    tmp_path: Path,
) -> None:
    on_loop: list[bool] = []

    async def main() -> None:
        keepers = Keepers(Workers(8, "test"))
        with Cassette(tmp_path / "t.jsonl", "record", latch=True) as cassette:
            for n, answer in enumerate((SMALL, LARGE)):
                permit = answered(cassette, n, answer)

                def ending(permit: Permit = permit) -> Unstored | None:
                    on_loop.append(threading.current_thread() is threading.main_thread())
                    return permit.finishing()

                keepers.keep(permit, ending, lambda _: None)
            await asyncio.to_thread(keepers.close, 30)

    asyncio.run(main())
    assert on_loop == [True, False]


def test_what_was_spent_is_settled_for_every_answer_that_is_kept(tmp_path: Path) -> None:
    told = keep_all(JsonlTape(tmp_path / "t.jsonl"), 20, limits=Limits(calls=20))
    assert all(isinstance(result, Exchange) for result in told)
    lines = spends(tmp_path / ".tapes" / "state.db")
    assert [line.state for line in lines] == ["spent"] * 20


class Full(MemoryTape):
    """A tape on a disk that is full."""

    def append(self, exchange: Exchange) -> None:
        raise UnwritableTape("no space left", "free space")


class FullOfMany(Full):
    def ready(self, exchange: Exchange) -> Ready:
        return exchange

    def append_ready(self, items: Sequence[Ready]) -> list[Exception | None]:
        return [UnwritableTape("no space left", "free space") for _ in items]


class Broken(FullOfMany):
    def append_ready(self, items: Sequence[Ready]) -> list[Exception | None]:
        raise ZeroDivisionError


class RefusesAll(FullOfMany):
    def ready(self, exchange: Exchange) -> Ready:
        raise UnwritableTape("not this one", "try another")


@pytest.mark.parametrize("answer", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("tape", [Full(), FullOfMany(), RefusesAll(), Broken()], ids=type)
def test_whoever_cannot_be_kept_is_told_so(tape: Tape, answer: bytes) -> None:
    told = keep_all(tape, 5, answer=answer)
    assert len(told) == 5
    wrong = ZeroDivisionError if isinstance(tape, Broken) else TapeFailed
    assert all(isinstance(result, wrong) for result in told)


def test_a_tape_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    hanging = Counting(tmp_path / "hanging.jsonl")

    async def main() -> None:
        keepers, told = Keepers(Workers(8, "test")), asyncio.Event()
        with (
            Cassette(hanging, "record", latch=True) as one,
            Cassette(tmp_path / "other.jsonl", "record", latch=True) as other,
        ):
            for n in range(50):
                keep(keepers, answered(one, n), lambda _: None)
            keep(keepers, answered(other, 0), lambda _: told.set())
            await asyncio.wait_for(told.wait(), 30)
            hanging.go_on.set()
            await asyncio.to_thread(keepers.close, 30)

    asyncio.run(main())
    assert len(JsonlTape(hanging.path).keys()) == 50


def test_what_fails_for_no_reason_that_is_known_is_told_and_the_others_are_kept(
    tmp_path: Path,
) -> None:
    told: list[object] = []

    async def main() -> None:
        keepers = Keepers(Workers(8, "test"))
        with Cassette(tmp_path / "t.jsonl", "record", latch=True) as cassette:
            permit = answered(cassette, 1)
            keepers.keep(permit, lambda: 1 // 0, told.append)  # type: ignore[arg-type,return-value]
            keep(keepers, permit, told.append)
            keep(keepers, permit, told.append)  # it is over: nothing
            await asyncio.to_thread(keepers.close, 30)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    asyncio.run(main())
    assert sorted(type(result).__name__ for result in told) == [
        "Exchange", "NoneType", "ZeroDivisionError"
    ]  # fmt: skip


def test_a_tape_that_was_let_go_is_not_held_for_what_was_kept_on_it(tmp_path: Path) -> None:
    class Own(JsonlTape):
        """A tape that can be seen to go."""

    told: list[object] = []

    async def main() -> None:
        keepers, tape = Keepers(Workers(2, "test")), Own(tmp_path / "t.jsonl")
        kept: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        with Cassette(tape, "record", latch=True) as cassette:
            keep(keepers, answered(cassette, 1), kept.set_result)
            keepers.forget()  # not yet: somebody is at it
            told.append(await asyncio.wait_for(kept, 30))
        keepers.forget()
        seen = weakref.ref(tape)
        await asyncio.to_thread(keepers.close, 30)
        del tape, cassette
        gc.collect()
        assert seen() is None

    asyncio.run(main())
    assert isinstance(told[0], Exchange)
