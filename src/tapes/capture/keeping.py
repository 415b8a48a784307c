"""The ends of answers, kept in threads: those that come together share one commit.

Rule 1: whoever gives an end is told on the loop, once the tape has it or could not take it.
Rule 2: no thread waits for one answer alone. A thread makes ready what has come for a tape, puts
        it there together and is back for what came meanwhile; a second one makes ready while the
        first waits for the disk.
Rule 3: a tape that hangs holds two threads, so that other tapes have theirs.
Rule 4: what was given is kept, also when the proxy is stopped.

Knows nothing of connections.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tapes.capture.workers import Result, Workers, outcome_of
from tapes.errors import CassetteError
from tapes.exchange import Exchange
from tapes.permit import Unstored, put_all
from tapes.tape.base import Tape, takes_many

Kept = Exchange | CassetteError | Exception | None
_Ending = Callable[[], Unstored | None]
_Given = tuple[_Ending, Callable[[Kept], None]]

_THREADS = 2
# So many at most are made ready before the first of them is on the disk.
_TOGETHER = 32


@dataclass(slots=True)
class _Lane:
    """What waits for one tape, and how many threads are at it; the latter is the loop's own."""

    waiting: deque[_Given] = field(default_factory=deque)
    threads: int = 0


class Keepers:
    """See above. To be used on the loop."""

    def __init__(self, workers: Workers) -> None:
        self._workers = workers
        self._lanes: dict[int, _Lane] = {}

    def do(
        self,
        work: Callable[[], Result],
        then: Callable[[Result | CassetteError | Exception], None],
    ) -> None:
        """Have something else done that may take its time."""
        self._workers.do(work, then)

    def keep(self, tape: Tape, ending: _Ending, then: Callable[[Kept], None]) -> None:
        """Have a permit of this tape ended, and what it ends with put there; `then` is told."""
        if not takes_many(tape):
            self._workers.do(partial(_keep_one, ending), then)
            return
        lane = self._lanes.get(id(tape))
        if lane is None:
            lane = self._lanes[id(tape)] = _Lane()
        lane.waiting.append((ending, then))
        self._staff(lane)

    def _staff(self, lane: _Lane) -> None:
        if lane.waiting and lane.threads < _THREADS:
            lane.threads += 1
            self._workers.do(partial(self._keep_all, lane), partial(self._is_done, lane))

    def _is_done(self, lane: _Lane, _result: object) -> None:
        lane.threads -= 1
        self._staff(lane)  # what came after its last look

    # --- in a thread

    def _keep_all(self, lane: _Lane) -> None:
        while some := _some_of(lane.waiting):
            results, ends = _kept([ending for ending, _ in some])
            for (_, then), result in zip(some, results, strict=True):
                self._workers.tell(partial(then, result))
            for end in ends:
                end.sketch()

    def close(self, patience_s: float) -> None:
        """Let the threads finish what they were given, and go. Not for the loop: it waits."""
        if self._workers.close(patience_s):
            for lane in self._lanes.values():
                self._keep_all(lane)  # what came when they were about to go


def _some_of(waiting: deque[_Given]) -> list[_Given]:
    some: list[_Given] = []
    while len(some) < _TOGETHER:
        try:
            some.append(waiting.popleft())
        except IndexError:
            break
    return some


def _keep_one(ending: _Ending) -> Kept:
    (result,), ends = _kept([ending])
    for end in ends:
        end.sketch()
    return result


def _kept(endings: list[_Ending]) -> tuple[list[Kept], list[Unstored]]:
    """What each end comes to, and those that the tape has."""
    results: list[Any] = [outcome_of(ending) for ending in endings]
    places = [n for n, result in enumerate(results) if isinstance(result, Unstored)]
    ends = [results[n] for n in places]
    for place, kept in zip(places, put_all(ends), strict=True):
        results[place] = kept
    return results, [e for e, n in zip(ends, places, strict=True) if results[n] is e.exchange]
