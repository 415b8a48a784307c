"""The right to make one live call, and the recorder of its answer.

Rule 1: a permit is spent before anything is sent, and ends in exactly one of `finish`, `keep`,
        `abandon`, `discard` and `failed`; in `forsake`, where its cassette is closed before.
Rule 2: only what ended is an answer. What was cut short is kept as evidence under a key that no
        request has.
Rule 3: a tape that cannot be written fails the call.

Knows nothing of how permission came about.
"""

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal

from tapes.budget import AnyLedger, Unit
from tapes.canonical import HTTP_1, evidence_key, http_identity, sample_key
from tapes.errors import NotAnAnswer, TapeFailed, TapesError
from tapes.exchange import Exchange, Headers, Piece, Request, Response, State, header
from tapes.flights import Flight
from tapes.jsontext import Copies, Json, require_json
from tapes.origin import LiveAnswer
from tapes.places import leaves, leaves_of_identity
from tapes.providers.ending import Ending, ending_of
from tapes.providers.usage import Usage, usage_of, usage_of_value
from tapes.redact import Redactor
from tapes.repeats import Errors, Order
from tapes.report import Report
from tapes.sketches import Sketches
from tapes.tape.base import Tape
from tapes.varying import Rule
from tapes.wire import decoded, framer
from tapes.witness import Sight, Witness

_STREAM_IS_TRUE = re.compile(rb'"stream"\s*:\s*true')
# A request that is larger is not kept in memory for what can be done later.
KEPT_FOR_LATER = 64 * 1024
# An exchange of that size is made ready in a fraction of a millisecond.
_FEW, _SMALL = 16, 32 * 1024
# An error answer has no price.
_NOTHING_USED = Usage(0, 0)

# Answers that are a state of the provider rather than an answer to the request: keeping one would
# answer the client's retry, and everyone after it, with the same refusal.
PASSING_STATUSES = frozenset({401, 403, 407, 408, 409, 425, 429, *range(500, 600)})


def is_passing(response: Response | Json) -> bool:
    """Whether an answer is such a state of the provider, said at once or at a stream's end."""
    if not isinstance(response, Response):
        return False
    if response.status in PASSING_STATUSES:
        return True
    content_type = header(response.headers, "content-type")
    if framer(content_type) is None:
        return False
    body = _plain(response)
    return b"error" in body and ending_of(content_type, body) is Ending.FAILED


@dataclass(frozen=True, slots=True)
class Question:
    """A request on its way through one decision, and the key that it has as it is.

    `text` is the canonical text of a request that is a dict, `identity` what the key of a small
    one over HTTP was made of; `since` when it was asked. `sample`
    was chosen, or is its place in the group `order`, or counts the kept `errors` that this request
    was given before.
    """

    request: Request | dict[str, Json]
    raw_key: str
    text: str | None = None
    sample: int = 0
    order: Order | None = None
    owner: object = None
    errors: Errors | None = None
    identity: Json = None
    since: float = field(default_factory=time.monotonic)

    def give_back_sample(self) -> None:
        """The call came to nothing: free its place in an ordered group for the next try."""
        if self.order is not None:
            self.order.give_back(self.raw_key, self.sample)

    def was_given_an_error(self) -> None:
        """The answer is a kept error: the next try gets what came after it."""
        if self.errors is not None:
            self.errors.gave(self.raw_key, self.sample)


@dataclass(frozen=True, slots=True)
class Clean:
    """The request as it may come to rest, and the key that it has.

    `identity` is what the key was made of. None for a large request over HTTP: it is made again
    where somebody asks for it, with the headers that count.
    """

    request: Request | dict[str, Json]
    key: str
    rules: tuple[Rule, ...] = ()
    identity: Json = None
    headers: frozenset[str] = frozenset()

    def leaves_later(self) -> Callable[[], dict[str, Json]]:
        """What gives its leaves whenever it is asked: bytes stay as they are, a dict may change."""
        if isinstance(self.request, Request) and len(self.request.body) <= KEPT_FOR_LATER:
            return self.leaves
        now = self.leaves()
        return lambda: now

    def leaves(self) -> dict[str, Json]:
        """The leaves of its identity, by their places."""
        if not isinstance(self.request, Request):
            return dict(leaves(self.identity))
        identity = self.identity or http_identity(self.request, (), self.headers)[0]
        return leaves_of_identity(identity)


@dataclass(frozen=True, slots=True)
class Recorder:
    """Where live answers go: what a permit needs of its cassette."""

    tape: Tape
    canonicalizer: str
    redactor: Redactor
    report: Report
    ledger: Callable[[], AnyLedger]
    price: Callable[[Usage], Decimal | None]
    store_errors: bool
    sketches: Sketches
    witness: Witness | None = None

    def to_keep(
        self,
        clean: Clean,
        key: str,
        sample: int,
        response: Response | Json,
        state: State,
        text: str | None = None,
    ) -> Exchange:
        """An exchange for the tape, without secrets. Raises TapeFailed.

        `text` is the JSON text of the response, where the caller has one already.
        """
        try:
            return self.made(clean, key, sample, response, state, text)
        except TapesError as error:
            raise _tape_failed(error) from error

    def made(
        self,
        clean: Clean,
        key: str,
        sample: int,
        response: Response | Json,
        state: State,
        text: str | None = None,
    ) -> Exchange:
        """An exchange as it may come to rest, made now. Raises SecretFound."""
        return Exchange(
            key=key,
            canonicalizer=HTTP_1 if isinstance(response, Response) else self.canonicalizer,
            request=clean.request,
            response=(
                self.redactor.response(response)
                if isinstance(response, Response)
                else self.redactor.value(response, text)
            ),
            sample=sample,
            state=state,
            recorded_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            rules=tuple(rule.declaration() for rule in clean.rules),
        )

    def settle(self, unit: Unit | None, usage: Usage | None) -> None:
        """Put what a call cost in the place of what was set aside for it."""
        if unit is None:
            return
        tokens = None if usage is None else usage.total
        # Prices are looked up only where a limit in dollars asked for them before.
        dollars = None if usage is None or not unit.reserve.usd else self.price(usage)
        self.ledger().settle(unit, tokens, dollars)


@dataclass(frozen=True, slots=True)
class Unstored:
    """The end of a permit, until the tape has it: whoever puts it there says what came of that."""

    permit: "Permit"
    exchange: Exchange
    response: Response | Json  # as it came, secrets included
    usage: Usage | None

    def stored(self, error: Exception | None = None) -> Exchange:
        """The tape has it; or could not take it, and then TapeFailed is raised."""
        return self.permit._stored(self, error)

    def sketch(self) -> None:
        """Let it be found by what it is like: after `stored`, when nobody waits any more."""
        self.permit._sketch(self.exchange)

    def keep_sketches(self) -> None:
        """Bring sketches to the disk, of this end and of others. Takes its time now and then."""
        self.permit._recorder.sketches.flush_some()


class Permit:
    """The right to make one live call, spent already; and the recorder of its answer.

    HTTP: `answered`, `feed` for every piece, then `finish`. Plain JSON: `keep`. Where it comes to
    nothing: `abandon` after an answer had begun, `failed` before. Whoever only wants to see the
    answer takes `preview` and ends with `discard`.
    """

    def __init__(
        self,
        recorder: Recorder,
        question: Question,
        clean: Clean,
        *,
        flight: Flight,
        unit: Unit | None,
        answer: LiveAnswer,
    ) -> None:
        self._recorder = recorder
        self._question = question
        self._clean = clean
        self._flight = flight
        self._unit = unit
        self._answer = answer
        self._started = time.perf_counter()
        self._began = time.time_ns()
        self._head = Response(0)
        self._pieces: list[Piece] = []
        self._over = False
        self._forsaken = False
        self._process = os.getpid()

    @property
    def key(self) -> str:
        """The key under which the answer will be found."""
        return sample_key(self._clean.key, self._question.sample)

    @property
    def request(self) -> Request | dict[str, Json]:
        """The request to send, as the caller gave it."""
        return self._question.request

    @property
    def tape(self) -> Tape:
        """Where the answer will lie."""
        return self._recorder.tape

    @property
    def ends_quickly(self) -> bool:
        """Whether to end it takes no waiting, for a count that others share, and little time."""
        request = self.request
        size = len(request.body) if isinstance(request, Request) else 0
        return (
            self._unit is None
            and len(self._pieces) <= _FEW
            and size + sum(len(piece.data) for piece in self._pieces) <= _SMALL
        )

    # --- HTTP

    @property
    def has_begun(self) -> bool:
        """Whether the upstream began to answer."""
        return self._head.status != 0

    def answered(self, status: int, headers: Headers, reason: str = "") -> None:
        """The upstream began to answer."""
        self._head = Response(status, headers, reason=reason)

    def feed(self, data: bytes) -> None:
        """A piece of the body, as it came."""
        if data:
            self._pieces.append(Piece(round(time.perf_counter() - self._started, 4), data))

    def finish(self) -> Exchange | None:
        """The body is whole: keep the exchange, durably. None where it is not to be kept.

        Raises TapeFailed where the tape cannot be written.
        """
        return self._put(self.finishing())

    def finishing(self) -> Unstored | None:
        """As `finish`, up to what is to be put on the tape."""
        self._require_not_forsaken()
        if self._over or self._never_began():
            return None
        response, plain, content_type = self._whole()
        ending = ending_of(content_type, plain, was_asked_for=_asks_for_stream(self.request))
        keeps_errors = self._recorder.store_errors
        if ending is Ending.OPEN or (ending is Ending.FAILED and not keeps_errors):
            return self._evidence(response, State.UPSTREAM_ERROR)
        usage = usage_of(content_type, plain) if self._unit else None  # only a budget asks
        if usage is None and response.status >= 400:
            usage = _NOTHING_USED
        if response.status in PASSING_STATUSES and not keeps_errors:
            self._tell(response, State.COMPLETE)
            self._end(usage, "not_stored")
            self._question.give_back_sample()
            return None
        return self._unstored(response, State.COMPLETE, self.key, usage)

    def abandon(self, state: State) -> Exchange | None:
        """The body ended before its end: keep what came as evidence that never answers.

        A stream whose provider had said its last word is whole all the same.
        """
        return self._put(self.abandoning(state))

    def abandoning(self, state: State) -> Unstored | None:
        """As `abandon`, up to what is to be put on the tape."""
        if self._over or self._never_began():
            return None
        response, plain, content_type = self._whole()
        if ending_of(content_type, plain) is Ending.SAID:
            return self.finishing()
        return self._evidence(response, state)

    def forsake(self) -> None:
        """The tape is about to be closed: keep what has come, as `abandon` does.

        Whoever reads to the end all the same is told, by TapeFailed. Does nothing where it is
        over, or where another process, of which this one is a fork, has the call.
        """
        if self._over or self._process != os.getpid():
            return
        try:
            self.abandon(State.ABORTED_BY_CLIENT)
        finally:
            self._forsaken = True

    def _require_not_forsaken(self) -> None:
        if self._forsaken:
            raise TapeFailed(
                f"the tape {self.tape.path} was closed before the answer was whole",
                "read answers to their end before you close it: a stream, or what a thread asked",
            )

    def _never_began(self) -> bool:
        """No answer began: then there is nothing to keep, and the call may have cost something."""
        if not self._head.status:
            self.failed(we_left=True)
        return not self._head.status

    def _evidence(self, response: Response, state: State) -> Unstored:
        self._question.give_back_sample()
        return self._unstored(response, state, evidence_key(self.key), None)

    def failed(self, *, we_left: bool) -> None:
        """No answer came: because the call failed, or because we left it (a time-out, a cancel)."""
        if self._over:
            return
        self._tell(None, State.ABORTED_BY_CLIENT if we_left else State.UPSTREAM_ERROR)
        if we_left:
            self._end(None, None)
        else:
            self._over = True
            self._recorder.report.count("failed")
            try:
                if self._unit is not None:
                    self._recorder.ledger().give_back(self._unit)
            finally:
                self._flight.land()
        self._question.give_back_sample()

    def preview(self, response: Json = None) -> Exchange:
        """The exchange as it would be kept, which decides nothing; `response` for plain JSON.

        Its state says whether the answer is whole. Raises SecretFound.
        """
        sample = self._question.sample
        if not isinstance(self.request, Request):
            return self._recorder.made(self._clean, self.key, sample, response, State.COMPLETE)
        self._recall()
        so_far, plain, content_type = self._whole()
        ending = ending_of(content_type, plain, was_asked_for=_asks_for_stream(self.request))
        is_cut = ending in (Ending.OPEN, Ending.FAILED)
        state = State.UPSTREAM_ERROR if is_cut else State.COMPLETE
        return self._recorder.made(self._clean, self.key, sample, so_far, state)

    def _recall(self) -> None:
        """What was secret in the request is so in its answer, however late that came."""
        request = self._question.request
        if isinstance(request, Request):
            self._recorder.redactor.remember(request)

    def discard(self) -> None:
        """The call was made and is paid; its answer is not kept."""
        if self._over:
            return
        response, plain, content_type = self._whole()
        self._tell(response, State.COMPLETE)
        self._end(usage_of(content_type, plain), "not_stored")
        self._question.give_back_sample()

    def _whole(self) -> tuple[Response, bytes, str | None]:
        """The response so far, its body with the content coding undone, and its content type."""
        head = self._head
        response = Response(head.status, head.headers, tuple(self._pieces), head.reason)
        return response, _plain(response), header(head.headers, "content-type")

    # --- plain JSON

    def keep(self, response: Json) -> Json:
        """Keep an answer that is plain JSON; gives back an independent copy of it.

        Raises NotAnAnswer before a byte is written, and TapeFailed.
        """
        try:
            require_json(response, _not_an_answer)
        except NotAnAnswer:
            self.failed(we_left=True)
            raise
        self._require_not_forsaken()
        copies = Copies(response)
        usage = usage_of_value(response) if self._unit else None
        text = copies.text.decode()
        self._put(self._unstored(copies.one(), State.COMPLETE, self.key, usage, text=text))
        return copies.one()

    def _put(self, unstored: Unstored | None) -> Exchange | None:
        """Put an end on the tape, durably."""
        if unstored is None:
            return None
        try:
            self._recorder.tape.append(unstored.exchange)
        except Exception as error:  # noqa: BLE001  # raised by whom it is told to
            return unstored.stored(error)
        except BaseException:
            self._lost(unstored)
            raise
        exchange = unstored.stored()
        unstored.sketch()
        unstored.keep_sketches()
        return exchange

    def _unstored(
        self,
        response: Response | Json,
        state: State,
        key: str,
        usage: Usage | None,
        text: str | None = None,
    ) -> Unstored:
        try:
            self._recall()
            sample = self._question.sample
            exchange = self._recorder.to_keep(self._clean, key, sample, response, state, text)
        except BaseException:
            self._tell(response, state)
            self._end(usage, "not_stored")
            self._give_back_sample(state)
            raise
        self._over = True
        return Unstored(self, exchange, response, usage)

    def _stored(self, unstored: Unstored, error: Exception | None) -> Exchange:
        exchange, response = unstored.exchange, unstored.response
        if error is not None:
            self._lost(unstored)
            if isinstance(error, TapesError):
                raise _tape_failed(error) from error
            raise error
        is_whole = exchange.state is State.COMPLETE
        self._tell(response, exchange.state, is_kept=is_whole)
        self._end(unstored.usage, None if is_whole else "incomplete")
        if is_whole:
            self._recorder.report.recorded(exchange.key)
            self._answer.came()
            if is_passing(response):
                self._question.was_given_an_error()
        return exchange

    def _sketch(self, exchange: Exchange) -> None:
        if exchange.state is State.COMPLETE:
            self._recorder.sketches.add(exchange.key, self._clean.leaves_later())

    def _lost(self, unstored: Unstored) -> None:
        self._tell(unstored.response, unstored.exchange.state)
        self._end(unstored.usage, "not_stored")
        self._give_back_sample(unstored.exchange.state)

    def _give_back_sample(self, state: State) -> None:
        """Nothing was kept; evidence has given its place back already."""
        if state is State.COMPLETE:
            self._question.give_back_sample()

    def _tell(self, response: Response | Json, state: State, *, is_kept: bool = False) -> None:
        """Tell the witness, where there is one."""
        recorder = self._recorder
        if recorder.witness is None:
            return
        is_http = isinstance(self.request, Request)
        recorder.witness.saw(
            Sight(
                request=self.request,
                response=response,
                outcome="recorded" if is_kept else "live",
                state=state,
                key=self.key,
                canonicalizer=HTTP_1 if is_http else recorder.canonicalizer,
                tape=recorder.tape.path,
                began=self._began,
            )
        )

    def _end(self, usage: Usage | None, outcome: str | None) -> None:
        self._over = True
        try:
            self._recorder.settle(self._unit, usage)
        finally:
            self._flight.land()
            self._recorder.report.count("live")
            if outcome:
                self._recorder.report.count(outcome)


def _tape_failed(error: TapesError) -> TapeFailed:
    return TapeFailed(error.message, error.remedy)


def _plain(response: Response) -> bytes:
    """A body with its content coding undone; as it is where nobody can undo it."""
    try:
        return decoded(response.body, header(response.headers, "content-encoding")).data
    except TapesError:
        return response.body


def _asks_for_stream(request: Request | Json) -> bool:
    """Whether a request asks a model for a stream."""
    return isinstance(request, Request) and (
        ":streamGenerateContent" in request.url or bool(_STREAM_IS_TRUE.search(request.body))
    )


def _not_an_answer(place: str) -> NotAnAnswer:
    return NotAnAnswer(
        f"the response cannot be kept: {place}",
        "return plain JSON: dict, list, str, int, finite float, bool or None",
    )
