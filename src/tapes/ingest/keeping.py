"""Turns of many senders into the log, together: one transaction for all that wait.

Rule 1: a sender has its receipts when its turns are durable, and an error where they are not.
Rule 2: what one sender's turns break does not break the others'.
Rule 3: what waits is bounded. Beyond the bound a sender is told to come again.

Knows nothing of HTTP.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from tapes.errors import StoreBusy, TapesError
from tapes.rows import RawTurn
from tapes.store.base import Receipt, Store

log = logging.getLogger(__name__)

# Bytes of bodies that are being read, judged and kept at one time.
UNDER_WAY = 256 * 1024 * 1024
_AT_ONCE = 1000
# What is waited for senders whose turns were just kept: most of them send again at once.
_MOMENT_S = 0.001

_Waiting = tuple[Sequence[RawTurn], "asyncio.Future[list[Receipt]]"]


class Keeper:
    """Keeps turns. To be used on one loop."""

    def __init__(
        self,
        store: Store,
        *,
        under_way: int = UNDER_WAY,
        kept: Callable[[], object] | None = None,
    ) -> None:
        self.store = store
        self._limit = under_way
        self._kept = kept
        self._held = 0
        self._waiting: list[_Waiting] = []
        self._work: asyncio.Task[None] | None = None
        self._expected = 0  # senders: as many as sent lately
        self._all_came = asyncio.Event()

    # --- what is under way

    @property
    def depth(self) -> int:
        """How many turns wait to be kept."""
        return sum(len(turns) for turns, _ in self._waiting)

    @contextmanager
    def room(self) -> Iterator[Callable[[int], None]]:
        """Room for a body: call with each number of bytes more. Raises StoreBusy."""
        mine = 0

        def more(size: int) -> None:
            nonlocal mine
            if self._held + size > self._limit and self._held > mine:
                raise StoreBusy(
                    "more is being sent than can be kept at once", "send it again in a second"
                )
            mine += size
            self._held += size

        try:
            yield more
        finally:
            self._held -= mine

    # --- keeping

    async def keep(self, turns: Sequence[RawTurn]) -> list[Receipt]:
        """Keep turns, all or none; they are durable on return. Raises UnavailableStore."""
        if not turns:
            return []
        loop = asyncio.get_running_loop()
        receipts: asyncio.Future[list[Receipt]] = loop.create_future()
        self._waiting.append((turns, receipts))
        if len(self._waiting) >= self._expected:
            self._all_came.set()
        if self._work is None or self._work.done():
            self._work = loop.create_task(self._run())
        # A sender that leaves takes nothing back: its turns may be in the middle of a transaction.
        return await receipts

    async def _run(self) -> None:
        while self._waiting:
            taken, count = list[_Waiting](), 0
            while self._waiting and (not taken or count + len(self._waiting[0][0]) <= _AT_ONCE):
                taken.append(self._waiting.pop(0))
                count += len(taken[-1][0])
            outcomes = await asyncio.to_thread(self._append, [turns for turns, _ in taken])
            for (_, receipts), outcome in zip(taken, outcomes, strict=True):
                if receipts.cancelled():
                    continue
                if isinstance(outcome, BaseException):
                    receipts.set_exception(outcome)
                    receipts.exception()  # its sender may have left
                else:
                    receipts.set_result(outcome)
            if self._kept is not None:
                self._kept()
            await self._wait_for_others(len(taken))

    async def _wait_for_others(self, kept: int) -> None:
        """Wait a moment for those who were told, so that they share a transaction with the rest."""
        self._expected = kept + len(self._waiting)
        self._all_came.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(_MOMENT_S):
                await self._all_came.wait()

    def _append(self, groups: Sequence[Sequence[RawTurn]]) -> list[list[Receipt] | Exception]:
        try:
            receipts = iter(self.store.append([turn for turns in groups for turn in turns]))
            return [[next(receipts) for _ in turns] for turns in groups]
        except TapesError as error:
            return [error] * len(groups)
        except Exception as error:  # noqa: BLE001  # some turn of these; found by trying each
            if len(groups) == 1:
                log.error("turns could not be kept: %s", type(error).__name__)
                return [error]
        return [self._append([turns])[0] for turns in groups]

    async def finish(self) -> None:
        """Wait until all that waits is kept."""
        while self._work is not None and not self._work.done():
            await asyncio.wait([self._work])
