"""Turns of many senders: kept together, each told of its own."""

import asyncio
import threading
from collections.abc import Sequence
from typing import cast

from tapes.ingest.keeping import Keeper
from tapes.rows import RawTurn
from tapes.store.base import Kept, Receipt, Store
from tapes.store.sql import SqlStore
from tests.turns import raw_turn

SENDERS = 16


class Counting:
    """A log that notes how many turns came together, and refuses one.

    It is at the first turn until all other senders wait.
    """

    def __init__(self, store: SqlStore, refuses: str = "") -> None:
        self._store = store
        self._refuses = refuses
        self.came: list[int] = []
        self.all_wait = threading.Event()

    def append(self, turns: Sequence[RawTurn]) -> list[Receipt]:
        self.came.append(len(turns))
        self.all_wait.wait(60)
        if any(turn.request_id == self._refuses for turn in turns):
            raise ZeroDivisionError
        return self._store.append(turns)


def sent(log: Counting, rounds: int) -> list[Kept | Exception]:
    """What many senders are told, who each send so many turns, one after the other."""
    told: list[Kept | Exception] = []

    async def send(keeper: Keeper, sender: int) -> None:
        for number in range(rounds):
            name = f"{sender}-{number}"
            turn = raw_turn(sender, "/v1/chat/completions", {"model": "m"}, {}, request_id=name)
            try:
                [receipt] = await keeper.keep([turn])
                told.append(receipt.kept)
            except ZeroDivisionError as error:
                told.append(error)

    async def main() -> None:
        keeper = Keeper(cast(Store, log))
        first = asyncio.create_task(send(keeper, 0))
        while not log.came:
            await asyncio.sleep(0.001)
        others = [asyncio.create_task(send(keeper, n)) for n in range(1, SENDERS)]
        while keeper.depth < len(others):
            await asyncio.sleep(0.001)
        log.all_wait.set()
        await asyncio.gather(first, *others)
        await keeper.finish()

    asyncio.run(main())
    return told


def test_those_who_send_again_at_once_share_the_next_transaction(store: SqlStore) -> None:
    log = Counting(store)
    assert sent(log, 10) == [Kept.NEW] * SENDERS * 10
    # The first one's second turn waits for nobody, and the others wait for it.
    assert log.came[:2] == [1, SENDERS]
    assert len(log.came) < 20


def test_a_turn_that_cannot_be_kept_breaks_no_other(store: SqlStore) -> None:
    told = sent(Counting(store, refuses="3-1"), 2)
    assert len([one for one in told if isinstance(one, ZeroDivisionError)]) == 1
    assert told.count(Kept.NEW) == SENDERS * 2 - 1
    assert len(list(store.project().stream_turns())) == SENDERS * 2 - 1
