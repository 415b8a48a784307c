"""Moves what the log has into the read model: dirty sessions → deriver → rows, within a second.

Rule 1: what is derived is a function of the log alone. Whether a projector remembers a session or
        reads it for the first time, it writes the same rows; `check` proves it.
Rule 2: a session is derived when its turns have come to rest, or when it has waited long enough.
        One that takes long to derive rests between, so that it leaves time for the others.
Rule 3: what cannot be derived harms no other session; it is logged, counted and set aside.
Rule 4: what an older deriver derived is derived anew beside, a few sessions at a time; what comes
        meanwhile does not wait for it.

Several projectors may work on one store, in threads or processes; the store hands out sessions.
"""

import logging
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from tapes.derive.belonging import goes_on_from, marks_of, session_by, session_of
from tapes.derive.deriver import Memory, derive
from tapes.derive.rollups import Pricing, unpriced
from tapes.errors import DamagedStore, TapesError
from tapes.exchange import Exchange, Piece, Request, Response
from tapes.providers.reading import DropReason
from tapes.providers.turn import Turn
from tapes.rows import DERIVATION, Projection, RawTurn, Source, moments, session_id_of
from tapes.store.base import Derivation, Dirty, Placement, Placing, Store, Work
from tapes.store.modelforms import as_kept

log = logging.getLogger(__name__)

_MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Pace:
    """How long sessions wait: until they are quiet, and at most; how often to look; how many are
    derived together, and how many where more than those wait."""

    quiet_ms: int = 40
    longest_ms: int = 250
    idle_ms: int = 250
    at_once: int = 32
    at_most: int = 128


@dataclass(slots=True)
class Progress:
    """What a projector has done."""

    placed: int = 0
    derived: int = 0
    changed: int = 0
    failed: int = 0

    @property
    def worked(self) -> bool:
        """Whether there was anything to do."""
        return bool(self.placed or self.derived or self.failed)


# Gives the ids of a session's turns, and those of its turns that were not known.
_TurnsOf = Callable[[str], tuple[frozenset[int], list[RawTurn]]]
# When a turn began, its id, its call's id, the marks that it seeks and leaves, where it was placed.
_Marked = tuple[int, int, str, tuple[str, ...], tuple[str, ...], str]


@dataclass(slots=True)
class _Live:
    """A session that goes on: its turns without their bytes, and what was read from them."""

    memory: Memory = field(default_factory=Memory)
    turns: dict[int, RawTurn] = field(default_factory=dict)
    longest: int = 0  # of its requests, in bytes
    size: int = 0
    used_at: float = 0.0
    rest_until: float = 0.0


# A session that is derived in less time need not rest; a slow one rests so many times as long.
_QUICK_S = 0.02
_REST = 4
_LONGEST_REST_S = 0.6
# A step that takes longer has enough of them.
_LONG_S = 0.2
# A session is remembered so long after its last turn, and all of them together in so much memory.
_KEPT_S = 60.0
_REMEMBERED = 256 * 1024 * 1024
# What is remembered of a turn beside its text, which the next one says again: measured.
_OF_A_TURN = 35_000


class Projector:
    """Derives what is dirty."""

    def __init__(
        self,
        store: Store,
        price: Pricing = unpriced,
        pace: Pace | None = None,
        *,
        number: int = DERIVATION,
    ) -> None:
        self._store = store
        self._number = number
        self.price = price
        self._pace = pace or Pace()
        self._live: OrderedDict[tuple[str, str], _Live] = OrderedDict()
        self._size = 0
        self._many = self._pace.at_once
        self._woken = threading.Event()
        self.of_tenants: defaultdict[str, Progress] = defaultdict(Progress)

    @property
    def total(self) -> Progress:
        """What it has done, of all tenants."""
        total = Progress()
        for progress in list(self.of_tenants.values()):
            _add(total, progress)
        return total

    @property
    def remembered(self) -> int:
        """How many sessions go on, as far as it knows."""
        return len(self._live)

    # --- running

    def run(self, stop: threading.Event) -> None:
        """Derive until told to stop; errors of the store are logged, and tried again."""
        pause, trouble = self._pace.idle_ms / 1000, _Trouble()
        while not stop.is_set():
            try:
                with self._store.leading() as leads, self._renewing(leads=leads):
                    while leads and not stop.is_set():
                        try:
                            progress = self.step()
                            pause = self._pace.idle_ms / 1000
                            trouble.over()
                        except Exception as error:  # noqa: BLE001  # it goes on, whatever it was
                            trouble.tell(error)
                            progress, pause = Progress(), min(pause * 2, 10.0)
                        if not progress.worked:
                            self._woken.wait(pause)
                            self._woken.clear()
            except OSError as error:  # there are no descriptors, or there is no folder
                trouble.tell(error)
            stop.wait(pause)

    @contextmanager
    def _renewing(self, *, leads: bool) -> Iterator[None]:
        """Derive anew what an older deriver derived, beside, as long as this lasts."""
        if not leads:
            yield
            return
        renewer, ended = Renewer(self._store, self.price, self._number), threading.Event()
        beside = threading.Thread(
            target=renewer.run, args=(ended,), name="tapes renewer", daemon=True
        )
        beside.start()
        try:
            yield
        finally:
            ended.set()
            beside.join()

    def wake(self) -> None:
        """Something came: look now, not at the next regular time."""
        self._woken.set()

    def drain(self) -> Progress:
        """Derive until nothing is dirty, without waiting for anything to come to rest."""
        total = Progress()
        while True:
            progress = self.step(eager=True)
            _add(total, progress)
            if not progress.worked:
                return total

    def step(self, *, eager: bool = False) -> Progress:
        """Place turns and derive sessions once. `eager`: those too that have not come to rest."""
        done: defaultdict[str, Progress] = defaultdict(Progress)
        began = time.monotonic()
        self._place(done)
        now = time.time_ns()
        quiet = now if eager else now - self._pace.quiet_ms * _MS
        overdue = now if eager else now - self._pace.longest_ms * _MS
        resting = () if eager else self._resting()
        with self._store.take(self._many, ready_at=quiet, overdue_at=overdue, but=resting) as work:
            self._derive_taken(work, done)
        self._many = self._next_many(len(work.taken), time.monotonic() - began)
        self._bound()
        return self._counted(work, done)

    def renew(self, limit: int) -> Progress:
        """Derive some sessions that an older deriver derived, and remember none of them."""
        done: defaultdict[str, Progress] = defaultdict(Progress)
        with self._store.take_renewed(limit) as work:
            self._derive_taken(work, done)
        self._live.clear()
        self._size = 0
        return self._counted(work, done)

    def _derive_taken(self, work: Work, done: defaultdict[str, Progress]) -> None:
        for org_id in dict.fromkeys(session.org_id for session in work.taken):
            mine = [session for session in work.taken if session.org_id == org_id]
            self._derive(org_id, mine, work, done[org_id])

    def _counted(self, work: Work, done: defaultdict[str, Progress]) -> Progress:
        for org_id, changed in work.changed.items():
            done[org_id].changed += changed
        for session in work.refused:
            done[session.org_id].derived -= 1
            done[session.org_id].failed += 1
        progress = Progress()
        for org_id, its in done.items():
            _add(self.of_tenants[org_id], its)
            _add(progress, its)
        return progress

    def _next_many(self, taken: int, took: float) -> int:
        """How many sessions to take next: together they cost less, but others wait for them."""
        if taken < self._many or took > _LONG_S:
            return max(self._many // 2, self._pace.at_once)
        return min(self._many * 2, max(self._pace.at_most, self._pace.at_once))

    def _derive(self, org_id: str, taken: Sequence[Dirty], work: Work, progress: Progress) -> None:
        live = {session.session_id: self._recalled(session) for session in taken}
        known = {session_id: frozenset(each.turns) for session_id, each in live.items()}
        with self._store.turns_of_many(org_id, known) as turns_of:
            for session in taken:
                try:
                    its = live[session.session_id]
                    work.write(session, self._derived(its, session.session_id, turns_of))
                    progress.derived += 1
                except DamagedStore as error:
                    log.error("a session cannot be derived: %s", error.message)
                    work.fail(session, error.message)
                    progress.failed += 1
                except Exception as error:  # one session must not stop the others
                    log.exception("a session cannot be derived")
                    work.fail(session, f"{type(error).__name__}: {error}")
                    progress.failed += 1

    # --- one session

    def _resting(self) -> tuple[tuple[str, str], ...]:
        """Sessions that took long to derive and were derived just now."""
        now = time.monotonic()
        return tuple(key for key, live in self._live.items() if now < live.rest_until)

    def _derived(self, live: _Live, session_id: str, turns_of: _TurnsOf) -> Projection:
        began = time.monotonic()
        self._catch_up(live, *turns_of(session_id))
        rows = derive(live.turns.values(), self.price, live.memory)
        now = time.monotonic()
        if now - began > _QUICK_S:
            live.rest_until = now + min((now - began) * _REST, _LONGEST_REST_S)
        return rows

    def _recalled(self, session: Dirty) -> _Live:
        key = (session.org_id, session.session_id)
        live = self._live.pop(key, None) or _Live()
        self._live[key] = live
        live.used_at = time.monotonic()
        return live

    def _catch_up(self, live: _Live, ids: frozenset[int], new: Sequence[RawTurn]) -> None:
        for raw in new:
            if raw.source is Source.WIRE:
                live.memory.read(raw)
            live.turns[raw.id] = light(raw)
        if len(ids) != len(live.turns):
            live.turns = {turn_id: live.turns[turn_id] for turn_id in sorted(ids)}
        live.longest = max((live.longest, *map(_size, new)))
        before, live.size = live.size, live.longest + len(live.turns) * _OF_A_TURN
        self._size += live.size - before

    def _bound(self) -> None:
        """Let sessions go that rest long enough, and the oldest of them where that is too much."""
        rested = time.monotonic() - _KEPT_S
        while self._live:
            key, oldest = next(iter(self._live.items()))
            is_too_much = self._size > _REMEMBERED and len(self._live) > 1
            if not is_too_much and oldest.used_at > rested:
                return
            del self._live[key]
            self._size -= oldest.size

    # --- turns without a session

    def _place(self, done: Mapping[str, Progress]) -> None:
        with self._store.placing(200) as work:
            if work is None:
                return
            for org_id, raw in work.turns:
                work.put(org_id, _placed(raw, work, org_id))
                done[org_id].placed += 1

    # --- proving

    def check(self) -> Iterator[str]:
        """What a rebuild from nothing would change, a line for each; derive all before."""
        for org_id in self._store.orgs():
            yield from self._wrong_places(org_id)
            project = self._store.project(org_id)
            for session_id in self._store.sessions_of_log(org_id):
                _, turns = self._store.turns_of(org_id, session_id)
                made = derive(turns, self.price).of_session(session_id)
                kept = project.rows_of_session(session_id)
                yield from as_kept(made).differences(kept)
            yield from self._store.strays(org_id)

    def _wrong_places(self, org_id: str) -> Iterator[str]:
        """Turns without a session of their own that belong elsewhere."""
        known: dict[str, str] = {}
        for _, turn_id, call_id, sought, left, placed in sorted(self._unnamed(org_id)):
            session = session_by(sought, call_id, known.get)
            known |= dict.fromkeys(left, session)
            if placed != session:
                yield f"turn {turn_id}: belongs to conversation {session}, not {placed or 'any'}"

    def _unnamed(self, org_id: str) -> Iterator[_Marked]:
        for raw, placed in self._store.unnamed(org_id):
            turn = Memory().read(raw)
            if not isinstance(turn, DropReason) and raw.source is Source.WIRE:
                call_id, began = raw.request_id or str(raw.id), moments(raw)[0]
                yield began, raw.id, call_id, goes_on_from(turn), marks_of(turn), placed


# Who wakes it may come a thousand times a second: the same trouble is told so often.
_TOLD_EVERY_S = 60.0


class _Trouble:
    """What keeps a projector from its work, told once and now and then, and when it is over."""

    def __init__(self) -> None:
        self._last = ""
        self._told_at = 0.0

    def tell(self, error: Exception) -> None:
        said = error.message if isinstance(error, TapesError) else repr(error)
        now = time.monotonic()
        if said == self._last and now - self._told_at < _TOLD_EVERY_S:
            return
        self._last, self._told_at = said, now
        if isinstance(error, TapesError):
            log.warning("the projector goes on later: %s", said)
        else:
            log.error("the projector goes on later", exc_info=error)

    def over(self) -> None:
        if self._last:
            log.warning("the projector goes on")
            self._last = ""


# So many sessions are derived anew together: fewer where it takes long, as others wait meanwhile.
_MOST_RENEWED = 8
_LONG_TO_RENEW_S = 0.1
# Where others have what is left, look again so much later.
_NOTHING_TO_RENEW_S = 0.05


class Renewer:
    """Derives anew what a deriver of a lower number derived, and rests as long as it worked."""

    def __init__(self, store: Store, price: Pricing, number: int) -> None:
        self._store = store
        self._number = number
        self._projector = Projector(store, price, number=number)
        self._many = 1
        self._took = 0.0
        self._told_at: float | None = None

    @property
    def derived(self) -> int:
        """How many sessions it has derived."""
        return self._projector.total.derived

    def run(self, stop: threading.Event) -> None:
        """Derive anew until nothing is left, or told to stop; errors are logged and tried again."""
        pause, trouble = 0.0, _Trouble()
        while not stop.wait(pause):
            try:
                if not self.step():
                    return
                pause = self._took
                trouble.over()
            except Exception as error:  # noqa: BLE001  # it goes on, whatever it was
                trouble.tell(error)
                pause = min(pause * 2 + 0.1, 10.0)

    def step(self) -> bool:
        """Derive some sessions anew; False where none are left to this deriver."""
        known = self._store.renew(self._number)
        self._tell(known)
        if not known.leaves(self._number):
            return False
        began = time.monotonic()
        worked = self._projector.renew(self._many).worked
        self._took = time.monotonic() - began if worked else _NOTHING_TO_RENEW_S
        self._many = 1 if self._took > _LONG_TO_RENEW_S else min(self._many * 2, _MOST_RENEWED)
        return True

    def _tell(self, known: Derivation) -> None:
        """Say what is done now and then, and when it is over."""
        name, now = self._store.name, time.monotonic()
        if known.newest > self._number:
            log.warning("%s: derived by a newer version of Tapes, and not derived anew", name)
        elif not known.leaves(self._number):
            if self._told_at is not None:
                log.warning("%s: all of it is derived anew", name)
        elif self._told_at is None or now - self._told_at > _TOLD_EVERY_S:
            self._told_at = now
            log.warning(
                "%s: an older version of Tapes derived it; it is derived anew: %.0f %%",
                name,
                known.done(self._number) * 100,
            )


def _add(total: Progress, more: Progress) -> None:
    total.placed += more.placed
    total.derived += more.derived
    total.changed += more.changed
    total.failed += more.failed


def _size(raw: RawTurn) -> int:
    request = raw.exchange.request if raw.exchange is not None else None
    return len(request.body) if isinstance(request, Request) else 1000


def _placed(raw: RawTurn, work: Placing, org_id: str) -> Placement:
    """Where a turn belongs; one that nobody can read shows nowhere, and stops no other (rule 3)."""
    try:
        return placement_of(raw, Memory().read(raw), work, org_id)
    except TapesError:
        raise
    except Exception:
        log.exception("a turn cannot be placed")
        reason = DropReason.REDUCER_ERROR
        return Placement(raw.id, "", None, raw.started_at or raw.received_at, skipped=reason.value)


def placement_of(raw: RawTurn, turn: Turn | DropReason, work: Placing, org_id: str) -> Placement:
    """Where a turn that names no session belongs, or why it shows nowhere."""
    started = moments(raw)[0]
    if raw.source is not Source.WIRE:
        return Placement(raw.id, "", None, started, skipped="no_session")
    if isinstance(turn, DropReason):
        return Placement(raw.id, "", None, started, skipped=turn.value)
    before = (started, raw.id)
    call_id = raw.request_id or str(raw.id)
    session = session_of(turn, call_id, lambda mark: work.left_by(org_id, mark, before))
    envelope = replace(raw.envelope, harness_session_id=session)
    return Placement(
        raw.id, session, session_id_of(envelope), started, marks_of(turn), goes_on_from(turn)
    )


def light(raw: RawTurn) -> RawTurn:
    """A turn that was read, without what is not needed any more: bytes, headers, most of its form.

    What is left is all that deriving looks at beside what was read.
    """
    usage = raw.reduced.get("usage") if isinstance(raw.reduced, dict) else None
    if raw.exchange is None:
        return replace(raw, reduced={"usage": usage})
    return replace(raw, exchange=_light_exchange(raw.exchange), reduced={"usage": usage})


def _light_exchange(exchange: Exchange) -> Exchange:
    response = exchange.response
    if isinstance(response, Response):
        ends = response.pieces[:1] + response.pieces[-1:] if len(response.pieces) > 1 else ()
        pieces = tuple(Piece(piece.at, b"") for piece in ends or response.pieces)
        response = replace(response, headers=(), pieces=pieces)
    elif response is not None:
        response = True
    return replace(exchange, request=None, response=response)
