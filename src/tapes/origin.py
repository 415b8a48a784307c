"""Where a cassette's answers came from, so that effects know whether a decision is fresh.

Rule 1: a decision counts as live where no answer from the tape can have taken part in it: the
        last answer in this context was live and nothing came from the tape since, or nothing came
        from the tape at all.
Rule 2: when in doubt, it came from the tape. Threads and tasks that share a cassette can make
        each other's decisions doubtful, never fresh.
Rule 3: a context knows the last live answers of so many cassettes; of others it is in doubt.

Knows nothing of effects or tapes.
"""

from contextvars import ContextVar
from itertools import count

# In one variable for all: a context never lets go of a variable that was set in it.
_KNOWN = 64
_here: ContextVar[tuple["LiveAnswer", ...]] = ContextVar("tapes_origin", default=())


class LiveAnswer:
    """A live answer on its way: `came` when it is whole."""

    __slots__ = ("at", "origins")

    def __init__(self, origins: "Origins") -> None:
        self.origins = origins
        self.at = 0

    def came(self) -> None:
        """The answer is whole, in whichever thread it ended."""
        self.at = self.origins.next_tick()
        self.origins.is_live = True


class Origins:
    """The order in which one cassette's answers came from the tape and from upstream."""

    def __init__(self) -> None:
        self.is_live = False
        self._ticks = count(1)
        self._last_from_tape = 0

    def next_tick(self) -> int:
        """A number greater than all before, in whichever thread."""
        return next(self._ticks)

    def from_tape(self) -> None:
        """An answer came from the tape."""
        self._last_from_tape = self.next_tick()

    def begin_live(self) -> LiveAnswer:
        """A live call begins in this context."""
        answer = LiveAnswer(self)
        # Each cassette has its own: an answer on one tape says nothing about decisions on another.
        others = tuple(each for each in _here.get() if each.origins is not self)
        _here.set((*others[1 - _KNOWN :], answer))
        return answer

    @property
    def decision_is_live(self) -> bool:
        """Whether what this context decides now can only stem from a live answer."""
        if not self._last_from_tape:
            return self.is_live
        here = next((each for each in _here.get() if each.origins is self), None)
        return here is not None and here.at > self._last_from_tape
