"""The ends of answers, put on their tapes in threads: those that come together share one commit.

Rule 1: whoever gives an end is told on the loop, once the tape has it or could not take it.
Rule 2: what takes no waiting and little time is done on the loop: a small answer is made ready
        there, and what follows from its being kept. A thread that did this would take turns with
        the loop at one interpreter, which costs more than the work.
Rule 3: a tape has one thread that waits for its disk. It puts there together all that is ready, and
        is back for what came meanwhile. Where answers are to be made ready that take their time,
        a second one does so while the first waits.
Rule 4: a tape that hangs holds two threads, so that other tapes have theirs.
Rule 5: what was given is kept, also when the proxy is stopped.

Knows nothing of connections.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from tapes.capture.workers import Result, Workers, outcome_of
from tapes.errors import CassetteError
from tapes.exchange import Exchange
from tapes.permit import Permit, Unstored
from tapes.tape.base import SharedTape, Tape, append_all, takes_many

Kept = Exchange | CassetteError | Exception | None
_Ending = Callable[[], Unstored | None]

_THREADS = 2
# So many at most are put on the tape together.
_TOGETHER = 32


@dataclass(slots=True)
class _Given:
    """One end, and who is told what came of it."""

    ending: _Ending
    then: Callable[[Kept], None]
    is_quick: bool
    end: Unstored | CassetteError | Exception | None = None
    kept: Kept = None

    def make_ready(self) -> None:
        """Let the permit end, up to what is to be put on the tape."""
        self.end = outcome_of(self.ending)
        self.kept = None if isinstance(self.end, Unstored) else self.end

    def settle(self, error: Exception | None) -> None:
        """Draw the consequences of what the tape said."""
        end = self.end
        if isinstance(end, Unstored):
            self.kept = outcome_of(partial(end.stored, error))

    def tell(self) -> None:
        """Tell what came of it."""
        self.then(self.kept)


@dataclass(slots=True)
class _Lane:
    """What waits for one tape, and how many threads are at it; the latter is the loop's own."""

    tape: Tape
    is_quick: bool  # what is to be done before and after takes no waiting
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

    def keep(self, permit: Permit, ending: _Ending, then: Callable[[Kept], None]) -> None:
        """Have a permit ended, and what it ends with put on its tape; `then` is told."""
        lane = self._lane(permit.tape)
        given = _Given(ending, then, lane.is_quick and permit.ends_quickly)
        if not takes_many(lane.tape):
            self._workers.do(partial(self._keep, lane.tape, [given]), _nothing)
            return
        if given.is_quick:
            given.make_ready()
            if not isinstance(given.end, Unstored):
                given.tell()
                return
        lane.waiting.append(given)
        self._staff(lane, 1 if given.is_quick else _THREADS)

    def _lane(self, tape: Tape) -> _Lane:
        lane = self._lanes.get(id(tape))
        if lane is None:
            lane = self._lanes[id(tape)] = _Lane(tape, not isinstance(tape, SharedTape))
        return lane

    def _staff(self, lane: _Lane, threads: int) -> None:
        if lane.waiting and lane.threads < threads:
            lane.threads += 1
            self._workers.do(partial(self._keep_all, lane), partial(self._is_done, lane))

    def _is_done(self, lane: _Lane, _result: object) -> None:
        lane.threads -= 1
        self._staff(lane, 1)  # what came after its last look

    # --- in a thread

    def _keep_all(self, lane: _Lane) -> None:
        while some := _some_of(lane.waiting):
            self._keep(lane.tape, some)

    def _keep(self, tape: Tape, some: list[_Given]) -> None:
        for given in some:
            if given.end is None:
                given.make_ready()
        ends = [given.end for given in some if isinstance(given.end, Unstored)]
        errors = iter(append_all(tape, [end.exchange for end in ends]))
        outcomes = [(g, next(errors) if isinstance(g.end, Unstored) else None) for g in some]
        for given, error in outcomes:
            if not given.is_quick:
                given.settle(error)
        self._workers.tell(partial(_tell, outcomes))
        for given, error in outcomes:
            if error is None and isinstance(given.end, Unstored):
                given.end.sketch()

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


def _tell(outcomes: list[tuple[_Given, Exception | None]]) -> None:
    for given, error in outcomes:
        if given.is_quick:
            given.settle(error)
        given.tell()


def _nothing(_result: object) -> None:
    """Who waits for it was told already."""
