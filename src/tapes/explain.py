"""Why a request has no answer: the nearest recording, and the places where the two differ.

Rule 1: it takes as long as its patience says and no longer, however large the tape is; what was
        not looked at is said.
Rule 2: a large tape is searched by its sketches, a small one is read.

Knows nothing of modes or of what a difference may come from.
"""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tapes.errors import TapesError
from tapes.exchange import Exchange, Request, State
from tapes.jsontext import Json
from tapes.places import Difference, differences, in_words, is_same, leaves_of
from tapes.sketches import Sketches, row_of
from tapes.tape.base import Tape
from tapes.varying import Rule

# What looking for the nearest recording may take before the refusal is raised.
PATIENCE_S = 0.15
_SHOWN_PLACES = 3
# So many recordings are read whole once their sketches say that they are near.
_CANDIDATES = 16
_KEPT_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Near:
    """A recording that is like the request, and how it differs.

    `looked_at` says how many recordings there was time to look at; None where it was all of them.
    """

    exchange: Exchange
    differences: tuple[Difference, ...]
    looked_at: int | None = None

    def line(self) -> str:
        """One line that names the recording and where it differs."""
        key = self.exchange.key[:12]
        places = [difference.place for difference in self.differences[:_SHOWN_PLACES]]
        more = len(self.differences) - len(places)
        if not places:
            return f"nearest: {key}, which differs in what a rule or redaction covers"
        tail = f" and {more} more" if more > 0 else ""
        return f"nearest: {key}, differs at {', '.join(places)}{tail}"


def nearest(
    tape: Tape,
    request: Request | Json,
    rules: tuple[Rule, ...] = (),
    headers: frozenset[str] = frozenset(),
) -> str | None:
    """One line that names the nearest recording and where it differs, or None on an empty tape.

    `rules` and `headers` are what is declared for the tape: a place that may vary is no difference.
    """
    near = find_nearest(tape, request, rules, headers)
    return None if near is None else near.line()


def find_nearest(
    tape: Tape,
    request: Request | Json,
    rules: tuple[Rule, ...] = (),
    headers: frozenset[str] = frozenset(),
    patience: float = PATIENCE_S,
) -> Near | None:
    """The recording that shares most with the request; the latest of equals."""
    search = _Search(tape, rules, headers, time.monotonic() + patience)
    try:
        search.wanted = leaves_of(request, rules, headers)
        search.look()
    except (TapesError, RecursionError):
        pass  # damage or a monster elsewhere must not hide the refusal
    if search.best is None:
        return None
    _, exchange, leaves = search.best
    found = differences(search.wanted, leaves)
    return Near(exchange, in_words(found, request, exchange.request, rules), search.looked_at)


class _Search:
    """One search on one tape."""

    def __init__(
        self, tape: Tape, rules: tuple[Rule, ...], headers: frozenset[str], until: float
    ) -> None:
        self._tape, self._rules, self._headers, self._until = tape, rules, headers, until
        self._sketches = Sketches(tape)
        self._made: list[bytes] = []
        self.wanted: dict[str, Json] = {}
        self.best: tuple[float, Exchange, dict[str, Json]] | None = None
        self.looked_at: int | None = None

    def look(self) -> None:
        if not self._sketches.load():
            self._read(self._tape.exchanges())
            return
        for key in self._sketches.nearest(self.wanted, _CANDIDATES):
            self._hold(self._tape.find(key), wins_ties=False)  # of equals the later comes first
            if time.monotonic() > self._until:  # uploads take their time to read
                break
        if self.best is None:  # it shares nothing with any of them
            self._read(self._tape.exchanges(), keeps=False)
        elif not self._sketches.are_complete:
            missing = self._tape.keys() - self._sketches.keys()
            self._read(filter(None, map(self._tape.find, missing)))

    def _read(self, exchanges: Iterator[Exchange], *, keeps: bool = True) -> None:
        """Compare with one after the other, and keep their sketches for the next time."""
        keeps = keeps and self._sketches.are_kept
        try:
            for number, exchange in enumerate(exchanges, 1):
                self._hold(exchange, keeps=keeps)
                if time.monotonic() > self._until:
                    self.looked_at = number
                    return
        finally:
            self._keep_made()
        if keeps:
            self._sketches.mark_complete()

    def _hold(
        self, exchange: Exchange | None, *, keeps: bool = False, wins_ties: bool = True
    ) -> None:
        """Hold a recording against the request."""
        if exchange is None or exchange.request is None or exchange.state is not State.COMPLETE:
            return
        leaves = leaves_of(exchange.request, self._rules, self._headers)
        score = _likeness(self.wanted, leaves)
        if self.best is None or (score >= self.best[0] if wins_ties else score > self.best[0]):
            self.best = (score, exchange, leaves)
        if keeps:
            self._made.append(row_of(exchange.key, leaves))
            if len(self._made) >= _KEPT_AT_ONCE:
                self._keep_made()

    def _keep_made(self) -> None:
        if self._made:
            self._sketches.add_rows(self._made)
            self._made = []


def _likeness(one: Mapping[str, Json], other: Mapping[str, Json]) -> float:
    """From 0 to 1: shared leaves, a place with another text counting by what begins alike."""
    shared = 0.0
    for place, value in one.items():
        if is_same(place, one, other):
            shared += 1
        elif isinstance(value, str) and isinstance(other.get(place), str):
            shared += 0.9 * _common_ends(value, other[place])
    return shared / max(len(one), len(other), 1)


def _common_ends(one: str, other: str) -> float:
    head = common_start(one, other)
    tail = common_start(one[: head - len(one) - 1 : -1], other[: head - len(other) - 1 : -1])
    return (head + tail) / max(len(one), len(other), 1)


def common_start(one: str, other: str) -> int:
    """How many characters two texts begin with alike, in steps that halve."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
