"""Which cassette a request in this process belongs to, and what every shell does with its verdict.

Rule 1: the innermost open lane of the asking context comes first, so that tests that run at once
        have their own; else the one that was opened last in the process, so that no thread or
        task is left out.
Rule 2: a refusal is raised so that no client can swallow it; so is whatever fails in a cassette's
        own work, because a client would take it for a fault of the network and try again.
Rule 3: in a worker thread nothing is raised: the error comes back as a value.
Rule 4: a destructor does no work of a cassette: it may run where locks are held.

Knows nothing of HTTP clients.
"""

import atexit
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from tapes.cassette import Busy, Cassette, Play, Refusal, Verdict
from tapes.errors import BadSetting, CassetteError, TapeFailed, TapesError
from tapes.exchange import Exchange, Headers, Piece, Request, Response, header
from tapes.guarding.rules import Allowed
from tapes.halt import raise_refusal
from tapes.permit import Permit
from tapes.telemetry import NOT_SENT, is_telemetry

SAMPLE_HEADER = "x-tapes-sample"
_PACES = {"at once": 0.0, "as recorded": 1.0}


@dataclass(slots=True, eq=False)
class Lane:
    """A cassette, and how its answers are given: at which pace, and which hosts pass it by.

    `pace` is a factor on the recorded times: 0 gives everything at once.
    """

    cassette: Cassette
    pace: float = 0.0
    allowed: Allowed = field(default_factory=Allowed)
    guarded: bool = False
    is_open: bool = True


def pace_of(pace: str | float) -> float:
    """The factor that a pace means. Raises BadSetting."""
    factor = _PACES.get(pace) if isinstance(pace, str) else pace
    if factor is None or not 0 <= factor < float("inf"):
        raise BadSetting(
            f"pace={pace!r} is neither 'at once' nor 'as recorded' nor a factor",
            "pace=0.5 answers in half the recorded time",
        )
    return float(factor)


def allowed_of(entries: Iterable[str]) -> Allowed:
    """The hosts that a list allows. Raises BadSetting."""
    try:
        # A text would be a list of its letters.
        return Allowed((entries,) if isinstance(entries, str) else entries)
    except ValueError as error:
        raise BadSetting(f"allow: {error}", 'allow=["db.internal:5432"]') from None


def explicit_lane(cassette: Cassette, pace: str | float) -> Lane:
    """The lane of a transport that was given its cassette. Raises BadSetting."""
    return Lane(cassette, pace_of(pace), allowed_of(cassette.declared.allow))


# --- which lane -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Entered:
    """A lane that a context is in, None for none, and the one around it."""

    lane: Lane | None
    outer: "_Entered | None"


_of_context: ContextVar[_Entered | None] = ContextVar("tapes_lane", default=None)
_of_process: list[Lane] = []
_lock = threading.Lock()


def _in_child() -> None:
    """After a fork: whoever held it is the parent's."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_in_child)


def current() -> Lane | None:
    """The lane of this moment, or None."""
    entered = _still_open(_of_context.get())
    if entered is not None:
        return entered.lane
    return _of_process[-1] if _of_process else None


def _still_open(entered: _Entered | None) -> _Entered | None:
    """The innermost that was not left meanwhile, by whomever."""
    while entered is not None and entered.lane is not None and not entered.lane.is_open:
        entered = entered.outer
    return entered


def opened() -> tuple[Lane, ...]:
    """Every lane that is open for the whole process, the innermost last."""
    return tuple(_of_process)


def enter(lane: Lane) -> None:
    """Open a lane for this context and for the process."""
    with _lock:
        _of_process.append(lane)
    # Those that were left in another order, or by others, are not kept below it for ever.
    _of_context.set(_Entered(lane, _still_open(_of_context.get())))


def leave(lane: Lane) -> None:
    """Close a lane, from whichever context. Contexts that still name it pass it by."""
    end_forgotten()
    lane.is_open = False
    with _lock:
        if lane in _of_process:
            _of_process.remove(lane)
    _of_context.set(_still_open(_of_context.get()))


@contextmanager
def for_this_call(lane: Lane | None) -> Iterator[None]:
    """In this context alone, requests belong to this lane; None leaves them alone."""
    token = _of_context.set(_Entered(lane, _of_context.get()))
    try:
        yield
    finally:
        _of_context.reset(token)


# --- what a shell does with a request ---------------------------------------------------------

_own_work = threading.local()


def is_own_work() -> bool:
    """Whether this thread is inside a cassette's own work, whose store may lie on a network."""
    return getattr(_own_work, "depth", 0) > 0


@contextmanager
def own_work() -> Iterator[None]:
    """What happens inside is a cassette's own work."""
    _own_work.depth = getattr(_own_work, "depth", 0) + 1
    try:
        yield
    finally:
        _own_work.depth -= 1


def settle(lane: Lane, request: Request, sample: int | None) -> Play | Permit:
    """The verdict that is no refusal; waits, by `time.sleep`, for somebody else's same call."""
    verdict = decided(lane, request, sample)
    while isinstance(verdict, Busy):
        verdict = asked(verdict.wait)
    return verdict


def decided(lane: Lane, request: Request, sample: int | None) -> Play | Permit | Busy:
    """The verdict on a request that did not pass by; telemetry is answered, and not sent."""
    if is_telemetry(request):
        return Play(Exchange("", "", request, NOT_SENT))
    return asked(lambda: lane.cassette.decide(request, sample=sample))


def asked(ask: Callable[[], Verdict]) -> Play | Permit | Busy:
    """The verdict that is no refusal, without waiting: for shells that wait in their own way."""
    end_forgotten()
    try:
        with own_work():
            verdict = ask()
    except Exception as error:  # noqa: BLE001  # a client would try again, and hide it
        raise_refusal(as_refusal(error))
    if isinstance(verdict, Refusal):
        raise_refusal(verdict.error)
    return verdict


def outcome(keep: Callable[[], object]) -> CassetteError | None:
    """Let a permit end, with `finish` or its like; the refusal where that fails."""
    if is_own_work():  # a collector closed something in the middle of it, and locks may be held
        forget(keep)
        return None
    try:
        with own_work():
            keep()
    except (Exception, CassetteError) as error:  # noqa: BLE001  # as above
        return as_refusal(error)
    return None


def end(keep: Callable[[], object]) -> None:
    """Let a permit end, and raise the refusal where that fails."""
    raise_any(outcome(keep))


def raise_any(error: CassetteError | None) -> None:
    """Raise the refusal that came of a permit's end in a worker thread."""
    if error is not None:
        raise_refusal(error)


def as_refusal(error: Exception | CassetteError) -> CassetteError:
    """The refusal that a failure in a cassette's own work becomes."""
    match error:
        case CassetteError():
            return error
        case TapesError():
            refusal: CassetteError = TapeFailed(error.message, error.remedy)
        case _:
            refusal = TapeFailed(f"{type(error).__name__}: {error}")
    refusal.__cause__ = error
    return refusal


_forgotten: deque[Callable[[], object]] = deque()


def forget(keep: Callable[[], object]) -> None:
    """Let a permit end soon: what a collector found has no caller, and must not wait for locks."""
    _forgotten.append(keep)


@atexit.register
def end_forgotten() -> None:
    """Let the permits end whose responses were dropped without having been closed."""
    try:
        while True:
            outcome(_forgotten.popleft())
    except IndexError:
        pass


def without_sample(headers: Headers) -> tuple[Headers, int | None]:
    """The headers as they are sent, and the number of the sample that they asked for."""
    for name, value in headers:
        if name.lower() == SAMPLE_HEADER:
            if not value.strip().isdecimal():
                raise_refusal(
                    TapeFailed(
                        f"{SAMPLE_HEADER}: {value!r} is not a number from 0 up",
                        f"for the second answer to one request: {SAMPLE_HEADER}: 1",
                    )
                )
            kept = tuple(pair for pair in headers if pair[0].lower() != SAMPLE_HEADER)
            return kept, int(value)
    return headers, None


# --- what a shell does with an answer ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Answer:
    """A recorded response on its way to the caller, at the pace of its lane."""

    response: Response
    pace: float
    asked_at: float = field(default_factory=time.perf_counter)

    def wait(self, piece: Piece) -> float:
        """The seconds until a piece is due."""
        if not self.pace:
            return 0.0
        return max(0.0, self.asked_at + piece.at * self.pace - time.perf_counter())


def answer(lane: Lane, play: Play) -> Answer:
    """The response of a verdict. `decide` answers HTTP requests with HTTP responses only."""
    response = play.exchange.response
    assert isinstance(response, Response)
    return Answer(_with_its_length(response), lane.pace)


def _with_its_length(response: Response) -> Response:
    """Whoever edits a recorded body by hand seldom edits the length that is said of it.

    Without a body the length may be of one that was not asked for (HEAD), and stays.
    """
    said = header(response.headers, "content-length")
    length = sum(len(piece.data) for piece in response.pieces) if said else 0
    if not length or said == str(length):
        return response
    headers = tuple(
        (name, str(length) if name.lower() == "content-length" else value)
        for name, value in response.headers
    )
    return replace(response, headers=headers)
