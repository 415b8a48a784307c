"""The ends of answers, put on their tapes in threads: those that come together share one commit.

Rule 1: whoever gives an end is told on the loop, once the tape has it or could not take it.
Rule 2: what takes no waiting and little time is done on the loop: a small answer is made ready
        there, and what follows from its being kept. A thread that did this would take turns with
        the loop at one interpreter, which costs more than the work.
Rule 3: two threads at most are at one tape, however it hangs, so that other tapes have theirs. One
        makes large answers ready, one by one. One puts what is ready on the tape, all together. It
        is sent at the end of the loop's turn, so that a commit is for all that came with a turn:
        before its end nobody could be told anyway.
        A tape that keeps one by one has a thread for each.
Rule 4: what was given is kept, also when the proxy is stopped.

Knows nothing of connections.
"""

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tapes.capture.workers import Result, Workers, outcome_of
from tapes.errors import CassetteError
from tapes.exchange import Exchange
from tapes.permit import Permit, Unstored
from tapes.tape.base import Ready, SharedTape, Tape, append_ready, ready, takes_many

Kept = Exchange | CassetteError | Exception | None
_Ending = Callable[[], Unstored | None]

# So many at most are put on the tape together.
_TOGETHER = 256


@dataclass(slots=True)
class _Given:
    """One end, and who is told what came of it."""

    ending: _Ending
    then: Callable[[Kept], None]
    is_quick: bool
    end: Unstored | None = None
    item: Ready = None
    kept: Kept = None

    def make_ready(self, tape: Tape) -> None:
        """Let the permit end, and make ready what is to be put on the tape."""
        end = outcome_of(self.ending)
        if not isinstance(end, Unstored):
            self.kept = end
            return
        self.item = outcome_of(partial(ready, tape, end.exchange))
        if isinstance(self.item, Exception):
            self.kept = outcome_of(partial(end.stored, self.item))
        else:
            self.end = end

    def settle(self, error: Exception | None) -> None:
        """Draw the consequences of what the tape said."""
        assert self.end is not None
        self.kept = outcome_of(partial(self.end.stored, error))

    def sketch(self, error: Exception | None) -> None:
        """Let it be found by what it is like, if the tape has it."""
        if self.end is not None and error is None:
            self.end.sketch()

    def keep_sketches(self) -> None:
        """Bring sketches to the disk, once there are enough."""
        if self.end is not None:
            self.end.keep_sketches()


@dataclass(slots=True)
class _Lane:
    """What waits for one tape. Threads take from the queues; all else is the loop's own."""

    tape: Tape
    is_local: bool
    shares: bool  # commits
    unready: deque[_Given] = field(default_factory=deque)
    ready: deque[_Given] = field(default_factory=deque)
    is_looked_after: bool = False  # at the end of this turn
    is_making: bool = False
    is_putting: bool = False

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits, and nobody is at it."""
        is_at_it = self.is_looked_after or self.is_making or self.is_putting
        return not (self.unready or self.ready or is_at_it)


class Keepers:
    """See above. To be made and used on the loop."""

    def __init__(self, workers: Workers) -> None:
        self._loop = asyncio.get_running_loop()
        self._workers = workers
        self._lanes: dict[int, _Lane] = {}
        self._closing = threading.Lock()
        self._is_closed = False

    def do(
        self,
        work: Callable[[], Result],
        then: Callable[[Result | CassetteError | Exception], None],
    ) -> None:
        """Have something else done that may take its time."""
        self._workers.do(work, then)

    def keep(self, permit: Permit, ending: _Ending, then: Callable[[Kept], None]) -> None:
        """Have a permit ended, and what it ends with put on its tape; `then` is told."""
        lane = self._lane(permit.tape)
        given = _Given(ending, then, lane.shares and lane.is_local and permit.ends_quickly)
        if not lane.shares:
            self._workers.do(partial(self._keep_alone, lane, given), _nothing)
            return
        if given.is_quick:
            given.make_ready(lane.tape)
            if given.end is None:
                then(given.kept)
                return
            lane.ready.append(given)
        else:
            lane.unready.append(given)
        if not lane.is_looked_after:
            lane.is_looked_after = True
            self._loop.call_soon(self._look_after, lane)

    def _lane(self, tape: Tape) -> _Lane:
        lane = self._lanes.get(id(tape))
        if lane is None:
            lane = self._lanes[id(tape)] = _Lane(
                tape, not isinstance(tape, SharedTape), takes_many(tape)
            )
        return lane

    def forget(self) -> None:
        """Tapes were let go: those at which nothing is done are not held any more."""
        self._lanes = {at: lane for at, lane in self._lanes.items() if not lane.is_idle}

    def _look_after(self, lane: _Lane) -> None:
        lane.is_looked_after = False
        with self._closing:
            if not self._is_closed:
                self._send(lane)

    def _send(self, lane: _Lane) -> None:
        if lane.unready and not lane.is_making:
            lane.is_making = True
            self._workers.do(partial(self._make_ready, lane), partial(self._is_made, lane))
        if lane.ready and not lane.is_putting:
            lane.is_putting = True
            self._workers.do(partial(self._put_all, lane), _nothing)

    def _is_made(self, lane: _Lane, _result: object) -> None:
        lane.is_making = False
        self._look_after(lane)

    def _are_put(self, lane: _Lane, some: list[_Given], errors: list[Exception | None]) -> None:
        lane.is_putting = False
        for given, error in zip(some, errors, strict=True):
            if given.is_quick:
                given.settle(error)
            given.then(given.kept)
        self._look_after(lane)
        for given, error in zip(some, errors, strict=True):  # nobody waits any more
            if given.is_quick:
                given.sketch(error)

    # --- in a thread

    def _make_ready(self, lane: _Lane) -> None:
        for given in _some_of(lane.unready, 1):
            given.make_ready(lane.tape)
            if given.end is None:
                self._workers.tell(partial(given.then, given.kept))
            else:
                lane.ready.append(given)

    def _put_all(self, lane: _Lane) -> None:
        self._put(lane, _some_of(lane.ready, _TOGETHER))

    def _put(self, lane: _Lane, some: list[_Given]) -> None:
        said: Any = outcome_of(lambda: append_ready(lane.tape, [given.item for given in some]))
        errors = said if isinstance(said, list) else [said] * len(some)
        for given, error in zip(some, errors, strict=True):
            if not given.is_quick:
                given.settle(error)
        self._workers.tell(partial(self._are_put, lane, some, errors))
        for given, error in zip(some, errors, strict=True):
            if not given.is_quick:
                given.sketch(error)
        for given in some[-1:]:
            given.keep_sketches()

    def _keep_alone(self, lane: _Lane, given: _Given) -> None:
        given.make_ready(lane.tape)
        if given.end is None:
            self._workers.tell(partial(given.then, given.kept))
        else:
            self._put(lane, [given])

    def close(self, patience_s: float) -> None:
        """Let the threads finish what they were given, and go. Not for the loop: it waits."""
        with self._closing:
            self._is_closed = True
        if self._workers.close(patience_s):
            for lane in self._lanes.values():  # what nobody was sent for any more
                while lane.unready:
                    self._make_ready(lane)
                while lane.ready:
                    self._put_all(lane)


def _some_of(waiting: deque[_Given], most: int) -> list[_Given]:
    some: list[_Given] = []
    while len(some) < most:
        try:
            some.append(waiting.popleft())
        except IndexError:
            break
    return some


def _nothing(_result: object) -> None:
    """Who waits for it was told already."""
