"""The fail-closed decision: a tape, a mode, a latch and a budget give one verdict per request.

Rule 1: only `decide` makes a Permit, and whoever sends upstream needs one.
Rule 2: replay never goes live, whatever else is set.
Rule 3: the tape is asked with the request as it is; if it has no answer, with the request as it
        would be kept: redacted first, then with what a user declared to vary. A recorded request
        holds no secret, so the first question can only be answered rightly.
Rule 4: `decide` raises no refusal and waits for nobody; its caller does both.

    match cassette.decide(request):
        case Play(exchange):    answer from the tape
        case Permit() as p:     send, p.answered(…), p.feed(each piece), p.finish()
        case Refusal(error):    raise_refusal(error)
        case Busy() as b:       somebody makes the same call: b.wait(), or await b.wait_async()

Knows nothing of HTTP clients, proxies or providers' APIs.
"""

import logging
import os
import re
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tapes import refusals, repeats
from tapes.budget import RUN, AnyLedger, Ledger, Limits, Spent, Unit, latch_is_on
from tapes.calling import Live, made, made_async
from tapes.canonical import (
    DIRECTORY,
    HTTP_1,
    TAPE,
    DictCanonicalizer,
    dict_canonicalizer,
    http_identity,
    http_text,
    key_of,
    key_of_exchange_request,
    sample_key,
)
from tapes.cost import Price, json_of, reserve_for
from tapes.errors import (
    BadSetting,
    CassetteError,
    LedgerFailed,
    NotCanonical,
    TapeFailed,
    TapesError,
    UnboundedCall,
    UnreadableTape,
)
from tapes.exchange import Exchange, Request, Response, State
from tapes.expiry import OnExpiry, expired
from tapes.flights import PATIENCE_S, Flight, Flights, flights_of
from tapes.halt import listen, raise_refusal
from tapes.hot import NOT_HOT, HotAnswers
from tapes.jsontext import Copies, Json
from tapes.modes import MODE, MODE_TABLE, Cell, Mode, live_is_permitted
from tapes.origin import Origins
from tapes.permit import KEPT_FOR_LATER, Clean, Permit, Question, Recorder, is_passing
from tapes.prices import price_of
from tapes.project import Declared, declared_for
from tapes.providers.bounds import hides_variance
from tapes.redact import SECRET_PATTERNS, Redactor
from tapes.repeats import Errors, Order
from tapes.report import Report, keep_report
from tapes.sketches import Sketches
from tapes.state import STATE
from tapes.tape.base import RestingTape, SharedTape, Tape
from tapes.tape.beside import make_local
from tapes.tape.directory import DirectoryTape
from tapes.tape.kinds import open_tape
from tapes.varying import vary_json
from tapes.waiting import at_once
from tapes.witness import Sight, Witness

log = logging.getLogger(__name__)

# No variance is hidden by these, and nobody has to read the whole request to see them.
_ZERO_TEMPERATURE = re.compile(rb'emperature":[ ]?(?:0(?:\.0)?|null)[,}]')


@dataclass(frozen=True, slots=True)
class Play:
    """The answer is on the tape."""

    exchange: Exchange


@dataclass(frozen=True, slots=True)
class Refusal:
    """There is no answer, and no permission to get one."""

    error: CassetteError


@dataclass(frozen=True, slots=True)
class Busy:
    """The same call, for `key`, is under way: wait for its answer.

    `again` asks anew. `alone` asks without regard to the other call, which a thread has to do
    whose own task made it: while it waits, that task cannot go on.
    """

    again: "Callable[[], Verdict]"
    alone: "Callable[[], Verdict] | None" = None
    pause: float = 0.005
    key: str = ""

    def wait(self) -> "Verdict":
        """Plain code waits here, and asks again."""
        if self.alone is not None:
            return self.alone()
        time.sleep(self.pause)
        return self.again()

    async def wait_async(self) -> "Verdict":
        """Async code waits here, and asks again."""
        import asyncio

        await asyncio.sleep(self.pause)
        return self.again()


Verdict = Play | Permit | Refusal | Busy


class Cassette:
    """A tape plus a mode, a latch and a budget.

    `tape` is a path (`.jsonl`, `.db`, a directory) or a Tape; `mode` is replay, record or live
    (default: `CASSETTE_MODE`, else replay); `live` makes the real call, dict → JSON, plain or
    async. `canonicalizer` names the rule for dicts: `tape/1`, or `directory/1`, which is the
    default for a directory. `repeated="ordered"` makes equal requests different calls. What a
    `tapes.toml` declares for the tape holds unless `declared` is given; latch and limits come
    from `environ` at the moment of each decision unless they are given. A `witness` is told of
    every call.
    """

    def __init__(
        self,
        tape: str | os.PathLike[str] | Tape,
        mode: str | None = None,
        live: Live | None = None,
        *,
        canonicalizer: str | None = None,
        repeated: str = "reuse",
        declared: Declared | None = None,
        limits: Limits | None = None,
        latch: bool | None = None,
        environ: Mapping[str, str] = os.environ,
        price: Price = price_of,
        witness: Witness | None = None,
    ) -> None:
        if repeated not in ("reuse", "ordered"):
            raise BadSetting(f"repeated={repeated!r} is neither 'reuse' nor 'ordered'")
        self.mode = Mode.of(mode or environ.get(MODE) or Mode.REPLAY)
        self.live = live
        self.limits = limits
        self.latch = latch
        self.price = price
        self._environ = environ
        self._limits_now()  # a setting that cannot be read is an error now, not at the first miss
        if isinstance(tape, bytes) or tape is None:
            raise BadSetting(f"{tape!r} is neither a path nor a tape", 'for example: "demo.jsonl"')
        self.tape: Tape = open_tape(tape) if isinstance(tape, str | os.PathLike) else tape
        self.declared = declared_for(self.tape.path) if declared is None else declared
        self.canonicalizer = _canonicalizer_for(self.tape, canonicalizer)
        self.report = Report(self.tape, str(self.mode))
        self.redactor = Redactor(
            patterns=(*SECRET_PATTERNS, *self.declared.patterns),
            refuse=self.declared.secrets == "refuse" and self.mode is not Mode.REPLAY,
            keep=self.declared.headers,
        )
        self.origins = Origins()
        self._order = Order() if repeated == "ordered" else None
        self._errors = Errors()
        self._ledger: AnyLedger | None = None
        self._flights: Flights | None = None
        self._rekeyed: dict[str, str] | None = None
        self._warned_of_variance = False
        self._under_way: weakref.WeakValueDictionary[int, Permit] = weakref.WeakValueDictionary()
        self._hot = HotAnswers(self.canonicalizer, self.report)
        self._is_recording = self.mode is Mode.RECORD
        self._is_local = not isinstance(self.tape, SharedTape)  # which takes a while to find out
        self._witness = witness
        self._is_quick = self.mode is not Mode.LIVE and self._order is None and witness is None
        self._recorder = Recorder(
            tape=self.tape,
            canonicalizer=self.canonicalizer.name,
            redactor=self.redactor,
            report=self.report,
            ledger=self._shared_ledger,
            price=price,
            store_errors=self.declared.errors == "store",
            sketches=Sketches(self.tape),
            witness=witness,
        )
        self._finalizer = weakref.finalize(self, keep_report, self.report)
        listen()

    def close(self) -> None:
        """Let go of the tape, and leave the run's report beside it.

        Of answers that are still on their way, what has come is kept as evidence.
        """
        self._forsake()
        self._finalizer()
        self._hot.clear()
        self.tape.close()
        self._recorder.sketches.settle()
        if self._ledger is not None:
            self._ledger.close()

    def _forsake(self) -> None:
        """End the calls that nobody ended: who dropped a stream is often told of later."""
        for reference in self._under_way.valuerefs():
            permit = reference()
            try:
                if permit is not None:
                    permit.forsake()
            except (Exception, CassetteError) as error:  # noqa: BLE001  # it was no answer
                log.warning("what came of a call that was left cannot be kept: %s", error)

    def rest(self) -> None:
        """Let go of what the tape has open until it is asked again: others are used more."""
        self._hot.clear()
        self._recorder.sketches.flush()
        if isinstance(self.tape, RestingTape):
            self.tape.rest()

    def __enter__(self) -> "Cassette":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the decision

    def decide(
        self,
        request: Request | dict[str, Json],
        *,
        sample: int | None = None,
        order: Order | None = None,
        owner: object = None,
    ) -> Verdict:
        """The verdict on one request: Play, Permit, Refusal or Busy; anything else is a bug.

        `owner` is who asks, where that is neither a task nor a thread: a server's exchange.
        Raises NotCanonical and UnsupportedCoding for a request that cannot have a key, and
        SecretFound where secrets are refused.
        """
        return self._decide(self._question(request, sample, order, owner))

    def _tell(self, question: Question, verdict: Play | Refusal) -> None:
        """Tell the witness of an answer without a call, where there is one."""
        if self._witness is None:
            return
        exchange = verdict.exchange if isinstance(verdict, Play) else None
        is_http = isinstance(question.request, Request)
        self._witness.saw(
            Sight(
                request=question.request,
                response=None if exchange is None else exchange.response,
                outcome="refused" if exchange is None else "replayed",
                key=question.raw_key if exchange is None else exchange.key,
                canonicalizer=HTTP_1 if is_http else self.canonicalizer.name,
                tape=self.tape.path,
                refused=verdict.error.slug if isinstance(verdict, Refusal) else "",
            )
        )

    def hit(self, request: Request | dict[str, Json]) -> Play | Refusal | None:
        """The answer that lies under the request's own key, else None: then `decide`.

        For servers, which must not wait: it looks at one place and explains nothing.
        """
        if self.mode is Mode.LIVE or self._order is not None:
            return None
        question = self._question(request, None)
        try:
            found = self._find(sample_key(question.raw_key, question.sample))
        except UnreadableTape as error:
            return self._refuse(question, TapeFailed(error.message, error.remedy))
        if found is None or not self._holds(found, question):
            return None
        return self._play(found, question)

    def _question(
        self,
        request: Request | dict[str, Json],
        sample: int | None,
        order: Order | None = None,
        owner: object = None,
    ) -> Question:
        text: str | None = None
        identity: Json = None
        if isinstance(request, Request):
            whole, _ = http_identity(request, (), self.declared.headers)
            raw_key = key_of(http_text(whole))
            identity = whole if len(request.body) <= KEPT_FOR_LATER else None
        else:
            text = self.canonicalizer.text(request)
            raw_key = key_of(text)
        chosen = repeats.chosen_sample() if sample is None else repeats.required_sample(sample)
        if chosen is not None:
            return Question(request, raw_key, text, chosen, owner=owner, identity=identity)
        order = order or repeats.chosen_order() or self._order
        if order is not None:
            sample = order.next(raw_key)
            return Question(request, raw_key, text, sample, order, owner, identity=identity)
        before = self._errors.before(raw_key)
        return Question(request, raw_key, text, before, None, owner, self._errors, identity)

    def _decide(self, question: Question, *, alone: bool = False) -> Verdict:
        try:
            return self._verdict(question, alone=alone)
        except UnreadableTape as error:
            return self._refuse(question, TapeFailed(error.message, error.remedy))
        except (LedgerFailed, UnboundedCall) as error:
            return self._refuse(question, error)
        except RecursionError:
            raise NotCanonical("the request is nested too deeply") from None

    def _verdict(self, question: Question, *, alone: bool) -> Verdict:
        if self.mode is not Mode.LIVE:
            found = self._find(sample_key(question.raw_key, question.sample))
            if found is not None and self._holds(found, question):
                return self._play(found, question)
        clean = self._clean(question)
        if self.mode is not Mode.LIVE and (clean.key != question.raw_key or self.declared.rules):
            found = self._find_clean(clean, question)
            if found is not None and self._holds(found, question):
                return self._play(found, question)
        if self.mode is Mode.REPLAY and question.errors is not None and question.sample:
            # Nothing was recorded after the kept error: it is the answer.
            return self._verdict(replace(question, sample=question.sample - 1), alone=alone)
        limits = self._limits_now()
        permitted = live_is_permitted(self.mode, self._latch_now(), limits)
        match MODE_TABLE[self.mode, False, permitted]:
            case Cell.CALL:
                return self._permit(question, clean, limits, alone=alone)
            case Cell.MISS:
                miss = refusals.miss(self.tape, question, clean, self.canonicalizer, self.declared)
                return self._refuse(question, miss)
            case _ if limits.are_zero:
                error: CassetteError = refusals.exhausted(clean.key, self.tape.path, limits, None)
            case _:
                error = refusals.latch_closed(clean.key, self.tape.path)
        return self._refuse(question, error)

    def _play(self, exchange: Exchange, question: Question) -> Play | Refusal:
        if isinstance(exchange.response, Response) is not isinstance(question.request, Request):
            return self._refuse(question, refusals.wrong_kind(exchange, self.tape.path))
        if self._is_expired(exchange):
            error = refusals.too_old(exchange, self.tape.path, self.declared.max_age)
            if self.declared.expired is OnExpiry.FAIL:
                return self._refuse(question, error)
            if self.report.served_expired(exchange.key):
                log.warning("%s", error.message)
        self.report.served(exchange.key)
        self.origins.from_tape()
        if is_passing(exchange.response):
            question.was_given_an_error()
            if self.declared.retry_after == "now":
                exchange = replace(exchange, response=at_once(exchange.response))
        played = Play(exchange)
        self._tell(question, played)
        return played

    def _holds(self, found: Exchange, question: Question) -> bool:
        """Whether a recording is the answer, or is to be made again while that is permitted."""
        if self.mode is not Mode.RECORD:
            return True
        is_chosen_error = (
            question.errors is None and question.order is None and is_passing(found.response)
        )
        is_old = self.declared.expired is OnExpiry.RECORD and self._is_expired(found)
        return not ((is_chosen_error or is_old) and self.live_is_permitted)

    def _is_expired(self, exchange: Exchange) -> bool:
        max_age = self.declared.max_age
        return max_age is not None and expired(exchange, max_age, datetime.now(UTC))

    def _refuse(self, question: Question, error: CassetteError) -> Refusal:
        question.give_back_sample()
        self.report.refused(error)
        refused = Refusal(error)
        self._tell(question, refused)
        return refused

    def _clean(self, question: Question) -> Clean:
        request = question.request
        if isinstance(request, Request):
            kept = self.redactor.request(request)
            if not self.declared.rules and _is_the_same(kept, request):
                return Clean(kept, question.raw_key, (), question.identity, self.declared.headers)
            http, rules = http_identity(kept, self.declared.rules, self.declared.headers)
            return Clean(kept, key_of(http_text(http)), rules, http)
        identity = self.canonicalizer.identity(request)
        plain = self.redactor.value(identity, question.text)
        varied, rules = vary_json(plain, self.declared.rules)
        if varied is identity:
            return Clean(plain, question.raw_key, (), varied)
        return Clean(plain, key_of(self.canonicalizer.text(varied)), rules, varied)

    def _find(self, key: str) -> Exchange | None:
        """The exchange that answers under a key; what did not end answers nothing."""
        found = self.tape.answer(key)
        return found if found is not None and found.state is State.COMPLETE else None

    def _find_clean(self, clean: Clean, question: Question) -> Exchange | None:
        key = sample_key(clean.key, question.sample)
        found = self._find(key)
        if found is not None or not self.declared.rules:
            return found
        other = self._keys_under_present_rules().get(key)
        return None if other is None else self._find(other)

    def _keys_under_present_rules(self) -> dict[str, str]:
        """Keys under the present rules → keys that recordings made under other rules have."""
        if self._rekeyed is None:
            rekeyed: dict[str, str] = {}
            for exchange in self.tape.exchanges():
                if exchange.request is None or exchange.state is not State.COMPLETE:
                    continue
                try:
                    key = key_of_exchange_request(
                        exchange.canonicalizer,
                        exchange.request,
                        self.declared.rules,
                        self.declared.headers,
                    )
                except TapesError:
                    continue
                rekeyed[sample_key(key, exchange.sample)] = exchange.key
            self._rekeyed = rekeyed
        return self._rekeyed

    # --- permission

    def _limits_now(self) -> Limits:
        return Limits.of(self._environ) if self.limits is None else self.limits

    def _latch_now(self) -> bool:
        return latch_is_on(self._environ) if self.latch is None else self.latch

    @property
    def live_is_permitted(self) -> bool:
        """Whether a live call may be made at this moment."""
        return self.mode is not Mode.REPLAY and live_is_permitted(
            self.mode, self._latch_now(), self._limits_now()
        )

    @property
    def is_unlocked(self) -> bool:
        """Whether the operator opened the latch or set a budget; the mode alone does not count."""
        return live_is_permitted(Mode.RECORD, self._latch_now(), self._limits_now())

    @property
    def counts_calls(self) -> bool:
        """Whether a limit makes every live call wait for a count that others share."""
        return self._limits_now().are_set

    @property
    def gives_again(self) -> bool:
        """Whether a request that was answered once may get the same answer undecided."""
        return self._order is None and self.declared.max_age is None

    @property
    def answers_at_once(self) -> bool:
        """Whether the tape is on this machine, so that looking something up takes no waiting."""
        return self._is_local

    def _shared_ledger(self) -> AnyLedger:
        """The count of live calls, shared with every process that uses this tape."""
        if self._ledger is None and isinstance(self.tape, SharedTape):
            self._ledger = self.tape.ledger(self._environ.get(RUN, ""))
        if self._ledger is None:
            local = self.tape.local
            try:
                path = None if local is None else make_local(local) / STATE
            except OSError as error:
                raise LedgerFailed(
                    f"live calls cannot be counted in {local}: {error.strerror}",
                    f"give yourself the right to write beside {self.tape.path}",
                ) from error
            self._ledger = Ledger(path, self.tape.name, self._environ.get(RUN, ""))
        return self._ledger

    def _permit(self, question: Question, clean: Clean, limits: Limits, *, alone: bool) -> Verdict:
        key = sample_key(clean.key, question.sample)
        flights = self._shared_flights()
        waited = time.monotonic() - question.since
        # In live mode every call is its own.
        is_own = self.mode is Mode.LIVE or alone or waited > PATIENCE_S
        flight = Flight(key) if is_own else flights.take(key, question.owner)
        if flight is None:
            here = flights.is_of_this_thread(key)
            return Busy(
                lambda: self._decide(question),
                (lambda: self._decide(question, alone=True)) if here else None,
                key=key,
            )
        verdict: Verdict | None = None
        try:
            verdict = self._permit_in_flight(question, clean, limits, flight)
            return verdict
        finally:
            if not isinstance(verdict, Permit):
                flight.land()

    def _permit_in_flight(
        self, question: Question, clean: Clean, limits: Limits, flight: Flight
    ) -> Verdict:
        # Whoever had the flight before may have recorded the answer meanwhile.
        found = self._find_clean(clean, question) if self.mode is Mode.RECORD else None
        if found is not None and self._holds(found, question):
            return self._play(found, question)
        unit: Unit | None = None
        if limits.are_set:
            reserve = reserve_for(clean.request, clean.key, limits, self.price)
            taken = self._shared_ledger().take(clean.key, limits, reserve)
            if isinstance(taken, Spent):
                path = self.tape.path
                error = refusals.exhausted(clean.key, path, limits, taken, reserve)
                return self._refuse(question, error)
            unit = taken
        self._warn_of_variance(clean)
        answer = self.origins.begin_live()
        permit = Permit(self._recorder, question, clean, flight=flight, unit=unit, answer=answer)
        self._under_way[id(permit)] = permit
        return permit

    def _shared_flights(self) -> Flights:
        if self._flights is None and isinstance(self.tape, SharedTape):
            self._flights = self.tape.flights()
        if self._flights is None:
            local = self.tape.local
            try:
                lock = None if local is None else make_local(local) / f"{self.tape.name}.lock"
            except OSError:
                lock = None  # within this process one call is one; recording will say what is wrong
            self._flights = Flights(None) if lock is None else flights_of(lock)
        return self._flights

    def _warn_of_variance(self, clean: Clean) -> None:
        if self._warned_of_variance:
            return
        request = clean.request
        if isinstance(request, Request):
            said = request.body.count(b"emperature")
            if said == len(_ZERO_TEMPERATURE.findall(request.body)):
                return
        if hides_variance(json_of(request)):
            self._warned_of_variance = True
            log.warning(
                "recording one sample of many: temperature is above zero without a seed, so the"
                " tape %s hides how answers vary",
                self.tape.path,
            )

    # --- calls with dicts

    def call(
        self, request: dict[str, Json], *, sample: int | None = None, live: Live | None = None
    ) -> Any:
        """The answer to a request that is a dict: from the tape, or by one live call.

        `live` makes this call in place of the cassette's own. Ends the process (CassetteError)
        where there is no answer. Raises NotCanonical, NotAnAnswer, MissingLive, AsyncLive.
        """
        if self._is_quick and sample is None and not repeats.in_use:
            answer = self._hot.answer(request)
            if answer is not NOT_HOT:
                if self._is_recording:  # under replay no effect asks where a decision came from
                    self.origins.from_tape()
                return answer
        question = self._question(request, sample)
        verdict = self._decide(question)
        while isinstance(verdict, Busy):
            verdict = verdict.wait()
        match verdict:
            case Play(exchange):
                return self._played(question, exchange)
            case Permit() as permit:
                return self._kept(permit, made(permit, live or self.live))
            case Refusal(error):
                raise_refusal(error)

    async def acall(
        self, request: dict[str, Json], *, sample: int | None = None, live: Live | None = None
    ) -> Any:
        """As `call`, for async code; `live` may be plain or async."""
        import asyncio

        if self._is_quick and sample is None and not repeats.in_use:
            answer = self._hot.answer(request)
            if answer is not NOT_HOT:
                if self._is_recording:  # under replay no effect asks where a decision came from
                    self.origins.from_tape()
                return answer
        question = self._question(request, sample)
        verdict = self._decide(question)
        while isinstance(verdict, Busy):
            verdict = await verdict.wait_async()
        match verdict:
            case Play(exchange):
                return self._played(question, exchange)
            case Permit() as permit:
                response = await made_async(permit, live or self.live)
                return await asyncio.to_thread(self._kept, permit, response)
            case Refusal(error):
                raise_refusal(error)

    def _played(self, question: Question, exchange: Exchange) -> Json:
        copies = Copies(exchange.response)
        # Where redaction or rules changed the key, the same request may have another one later.
        if isinstance(question.request, dict) and exchange.key == question.raw_key:
            self._hot.add(question.request, exchange.key, copies)
        return copies.one()

    def _kept(self, permit: Permit, response: Json) -> Json:
        try:
            return permit.keep(response)
        except CassetteError as error:
            raise_refusal(error)


def _is_the_same(kept: Request, request: Request) -> bool:
    """Whether nothing that belongs to a request's identity was changed in the kept copy.

    Headers that belong to it are always kept.
    """
    return (
        kept.body == request.body
        and kept.url == request.url
        and all(pair in request.headers for pair in kept.headers)
    )


def _canonicalizer_for(tape: Tape, name: str | None) -> DictCanonicalizer:
    if name is not None:
        return dict_canonicalizer(name)
    return DIRECTORY if isinstance(tape, DirectoryTape) else TAPE
