"""A session up to one of its turns, as a tape: an agent replays to there, and goes on live.

Rule 1: calls come in the order in which they were made. The chosen one is on the tape, and so is
        what began before it; all that began later is asked anew.
Rule 2: a turn is named by its number, or by any id that leads to one. A trace means its last call.
Rule 3: what the tape will hold is counted by making it, so that a plan says what then happens.

Knows nothing of terminals or HTTP.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tapes.errors import UnknownId
from tapes.exchange import Exchange
from tapes.freezing import freeze
from tapes.interchange.foreign import Note
from tapes.project import Declared
from tapes.rows import RawTurn, SpanKind, moments
from tapes.store.base import Found, Noun, Project
from tapes.tape.base import MemoryTape

# Stands for the command that runs the agent, which nobody but its user knows.
COMMAND = "COMMAND"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a tape of a session holds, and what is typed to make it and to go on from it."""

    session_id: str
    last: int | None  # the turn with which it ends; None is all of the session
    exchanges: tuple[Exchange, ...]
    left_out: tuple[Note, ...]
    secrets: Counter[str]
    later: int  # calls of the session that are not on it because they came after

    @property
    def name(self) -> str:
        """A name for the tape."""
        end = "" if self.last is None else f"-until-{self.last}"
        return f"{self.session_id[:8]}{end}.jsonl"

    @property
    def tape(self) -> str:
        """Where the tape goes."""
        return f"forks/{self.name}"

    @property
    def freezing(self) -> str:
        """The command that makes the tape."""
        until = () if self.last is None else ("--until", str(self.last))
        words = ("tapes", "freeze", self.session_id, *until, "-o", self.tape, "--no-test")
        return shlex.join(words)

    @property
    def running(self) -> str:
        """The command that runs an agent with the tape: to its end from it, then live.

        As many live calls are permitted as the session made. Where a request came more than once,
        each time gets the answer that it got then.
        """
        ordered = ("--ordered",) if any(exchange.sample for exchange in self.exchanges) else ()
        budget = ("--budget", str(max(self.later, 1)))
        words = ("tapes", "run", "--tape", self.tape, "--mode", "record", *budget, *ordered)
        return shlex.join((*words, "--", COMMAND))


def plan(log: Project, session_id: str, until: str = "", declared: Declared | None = None) -> Plan:
    """What a tape of the session holds. Raises UnknownId, SecretFound."""
    last = turn_named(log, session_id, until) if until else None
    turns = log.stream_turns(session_id=session_id)
    counted = _Counted(turns, last)
    tape = MemoryTape()
    done = freeze(counted, tape, declared)
    return Plan(
        session_id,
        None if last is None else last.id,
        tuple(tape.exchanges()),
        tuple(note for note in done.notes if note.left_out),
        done.secrets,
        counted.later,
    )


def turns_until(turns: Iterable[RawTurn], last: RawTurn) -> Iterator[RawTurn]:
    """The turns that were made up to this one, with it (rule 1)."""
    return iter(_Counted(turns, last))


class _Counted:
    """Turns up to one, and how many came later."""

    def __init__(self, turns: Iterable[RawTurn], last: RawTurn | None) -> None:
        self._turns, self._last = turns, last
        self.later = 0

    def __iter__(self) -> Iterator[RawTurn]:
        for turn in self._turns:
            if self._last is None or _place(turn) <= _place(self._last):
                yield turn
            else:
                self.later += 1


def _place(turn: RawTurn) -> tuple[int, int]:
    return moments(turn)[0], turn.id


def turn_named(log: Project, session_id: str, name: str) -> RawTurn:
    """The turn of a session that a name means (rule 2). Raises UnknownId."""
    number = _number(log, session_id, name.strip())
    turn = None if number is None else log.turn(number)
    if turn is None:
        raise UnknownId(
            f"session {session_id[:8]} has no turn {name.strip()[:80]}",
            "name it by its number, or by the id of a call, a tool or a trace of the session;"
            f" to see them: tapes sessions show {session_id[:8]}",
        )
    return turn


def _number(log: Project, session_id: str, name: str) -> int | None:
    """The one turn that has this id; of several things that have it, the narrowest."""
    found = [each for each in log.find(name) if each.session_id == session_id]
    for noun in (Noun.TURNS, Noun.SPANS, Noun.TRACES):
        mine = [each for each in found if each.noun is noun]
        meant = [each for each in mine if each.whole] or mine
        known = {number for each in meant if (number := _number_of(log, each)) is not None}
        if known:
            return known.pop() if len(known) == 1 else None
    return None


def _number_of(log: Project, found: Found) -> int | None:
    if found.noun is Noun.TURNS:
        return int(found.id)
    if found.noun is Noun.SPANS:
        span = log.span(found.trace_id, found.id)
        return None if span is None else span.raw_turn_id
    if found.noun is Noun.TRACES:
        return _last_call(log, found.session_id or "", found.id)
    return None


def _last_call(log: Project, session_id: str, trace_id: str) -> int | None:
    calls = [
        (span.started_at, span.raw_turn_id)
        for span in log.rows_of_session(session_id, payload=False).spans
        if span.trace_id == trace_id and span.kind is SpanKind.LLM and span.raw_turn_id is not None
    ]
    return max(calls)[1] if calls else None
