"""Ends of answers: kept together, each told of its own, none lost."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tapes.capture.keeping import Keepers
from tapes.capture.workers import Workers
from tapes.cassette import Cassette
from tapes.errors import TapeFailed, UnwritableTape
from tapes.exchange import Exchange, Request
from tapes.permit import Permit
from tapes.tape.base import MemoryTape, Tape
from tapes.tape.jsonl import JsonlTape
from tests.tape.homes import until

JSON_TYPE = (("content-type", "application/json"),)


def answered(cassette: Cassette, number: int) -> Permit:
    body = b'{"n":%d}' % number
    verdict = cassette.decide(Request("POST", "http://h/v1/x", JSON_TYPE, body), owner=object())
    assert isinstance(verdict, Permit)
    verdict.answered(200, JSON_TYPE, "OK")
    verdict.feed(b"{}")
    return verdict


def keep_all(tape: Tape, number: int, meanwhile: Callable[[], None] = lambda: None) -> list[object]:
    """Keep so many answers at once, and close; what was told."""
    told: list[object] = []

    async def main() -> None:
        keepers = Keepers(Workers(8, "test"))
        with Cassette(tape, "record", latch=True) as cassette:
            for n in range(number):
                keepers.keep(tape, answered(cassette, n).finishing, told.append)
            await asyncio.to_thread(meanwhile)
            await asyncio.to_thread(keepers.close, 30)
            await asyncio.sleep(0)  # what was told last
            await asyncio.sleep(0)

    asyncio.run(main())
    return told


class Counting(JsonlTape):
    """A tape that waits, and notes how many exchanges came together, in how many threads."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.go_on = threading.Event()
        self.came: list[int] = []
        self.threads: set[int] = set()

    def append_all(self, exchanges: Sequence[Exchange]) -> list[Exception | None]:
        self.came.append(len(exchanges))
        self.threads.add(threading.get_ident())
        self.go_on.wait(60)
        return super().append_all(exchanges)


def test_answers_that_come_together_share_commits_and_two_threads(tmp_path: Path) -> None:
    tape = Counting(tmp_path / "t.jsonl")

    def meanwhile() -> None:
        until(lambda: len(tape.came) == 2)
        tape.go_on.set()

    told = keep_all(tape, 100, meanwhile)
    assert len(told) == sum(tape.came) == 100
    assert all(isinstance(result, Exchange) for result in told)
    assert len(tape.came) < 20
    assert len(tape.threads) <= 2
    assert len(JsonlTape(tape.path).keys()) == 100


class Full(MemoryTape):
    """A tape on a disk that is full; `append_all` is what a tape has that takes many at once."""

    def append(self, exchange: Exchange) -> None:
        raise UnwritableTape("no space left", "free space")


class FullOfMany(Full):
    def append_all(self, exchanges: Sequence[Exchange]) -> list[Exception | None]:
        return [UnwritableTape("no space left", "free space") for _ in exchanges]


@pytest.mark.parametrize("tape", [Full(), FullOfMany()], ids=["one by one", "together"])
def test_whoever_cannot_be_kept_is_told_so(tape: Tape) -> None:
    told = keep_all(tape, 5)
    assert len(told) == 5
    assert all(isinstance(result, TapeFailed) for result in told)


def test_a_tape_that_hangs_holds_up_no_other(tmp_path: Path) -> None:
    hanging = Counting(tmp_path / "hanging.jsonl")

    async def main() -> None:
        keepers, told = Keepers(Workers(8, "test")), asyncio.Event()
        with (
            Cassette(hanging, "record", latch=True) as one,
            Cassette(tmp_path / "other.jsonl", "record", latch=True) as other,
        ):
            for n in range(50):
                keepers.keep(one.tape, answered(one, n).finishing, lambda _: None)
            keepers.keep(other.tape, answered(other, 0).finishing, lambda _: told.set())
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
            keepers.keep(cassette.tape, lambda: 1 // 0, told.append)  # type: ignore[arg-type,return-value]
            keepers.keep(cassette.tape, permit.finishing, told.append)
            keepers.keep(cassette.tape, permit.finishing, told.append)  # it is over: nothing
            await asyncio.to_thread(keepers.close, 30)
            await asyncio.sleep(0)
            await asyncio.sleep(0)

    asyncio.run(main())
    assert sorted(type(result).__name__ for result in told) == [
        "Exchange", "NoneType", "ZeroDivisionError"
    ]  # fmt: skip
