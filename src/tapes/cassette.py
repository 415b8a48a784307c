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
        case Busy() as b:       somebody makes the same call: wait b.pause, then b.again()

Knows nothing of HTTP clients, proxies or providers' APIs.
"""

import asyncio
import inspect
import logging
import os
import time
import weakref
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from tapes import repeats
from tapes.budget import CALLS, LATCH, Ledger, Limits, Reserve, Spent, Unit, latch_is_on
from tapes.canonical import (
    DICT_CANONICALIZERS,
    DIRECTORY,
    TAPE,
    DictCanonicalizer,
    dict_canonicalizer,
    evidence_key,
    http_identity,
    http_text,
    key_of,
    key_of_exchange_request,
    plain_body,
    sample_key,
)
from tapes.errors import (
    AsyncLive,
    BadSetting,
    BudgetExhausted,
    CassetteError,
    CassetteMiss,
    ExpiredRecording,
    IncompleteRecording,
    LatchClosed,
    MissingLive,
    TapeFailed,
    TapesError,
    UnboundedCall,
    UnreadableTape,
    WrongCanonicalizer,
)
from tapes.exchange import Exchange, Request, Response, State
from tapes.expiry import OnExpiry, expired, how_old
from tapes.explain import nearest
from tapes.flights import Flight, Flights, flights_of
from tapes.halt import listen, raise_refusal
from tapes.hot import HotAnswers
from tapes.jsontext import Json, compact, read
from tapes.modes import MODE, MODE_TABLE, Cell, Mode, live_is_permitted
from tapes.permit import Clean, Permit, Question, Recorder, is_passing, last_answer
from tapes.prices import price_of
from tapes.project import Declared, declared_for
from tapes.providers.bounds import hides_variance, output_bound
from tapes.providers.usage import Usage
from tapes.redact import SECRET_PATTERNS, Redactor
from tapes.repeats import Errors, Order
from tapes.report import STATE, Report, keep_report
from tapes.tape.base import Tape
from tapes.tape.beside import make_local
from tapes.tape.directory import DirectoryTape
from tapes.tape.kinds import open_tape
from tapes.varying import vary_json
from tapes.waiting import at_once

log = logging.getLogger(__name__)

Live = Callable[[dict[str, Json]], Json | Awaitable[Json]]


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
    """The same call is under way. Wait `pause` seconds, then ask `again`."""

    again: "Callable[[], Verdict]"
    pause: float = 0.005


Verdict = Play | Permit | Refusal | Busy


class Cassette:
    """A tape plus a mode, a latch and a budget.

    `tape` is a path (`.jsonl`, `.db`, a directory) or a Tape; `mode` is replay, record or live
    (default: `CASSETTE_MODE`, else replay); `live` makes the real call, dict → JSON, plain or
    async. `canonicalizer` names the rule for dicts: `tape/1`, or `directory/1`, which is the
    default for a directory. `repeated="ordered"` makes equal requests different calls. What a
    `tapes.toml` declares for the tape holds unless `declared` is given; latch and limits come
    from `environ` at the moment of each decision unless they are given.
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
        price: Callable[[Usage], Decimal | None] = price_of,
    ) -> None:
        if repeated not in ("reuse", "ordered"):
            raise BadSetting(f"repeated={repeated!r} is neither 'reuse' nor 'ordered'")
        self.mode = Mode.of(mode or environ.get(MODE) or Mode.REPLAY)
        self.tape: Tape = open_tape(tape) if isinstance(tape, str | os.PathLike) else tape
        self.live = live
        self.limits = limits
        self.latch = latch
        self.price = price
        self.declared = declared_for(self.tape.path) if declared is None else declared
        self.canonicalizer = _canonicalizer_for(self.tape, canonicalizer)
        self.report = Report(self.tape, str(self.mode))
        self.redactor = Redactor(
            patterns=(*SECRET_PATTERNS, *self.declared.patterns),
            refuse=self.declared.secrets == "refuse" and self.mode is not Mode.REPLAY,
        )
        self._environ = environ
        self._order = Order() if repeated == "ordered" else None
        self._errors = Errors()
        self._ledger: Ledger | None = None
        self._flights: Flights | None = None
        self._rekeyed: dict[str, str] | None = None
        self._warned_of_variance = False
        self._hot = HotAnswers(self.canonicalizer, self.report)
        self._is_quick = self.mode is not Mode.LIVE and self._order is None
        self._recorder = Recorder(
            tape=self.tape,
            canonicalizer=self.canonicalizer.name,
            redactor=self.redactor,
            report=self.report,
            ledger=self._shared_ledger,
            price=price,
            store_errors=self.declared.errors == "store",
        )
        self._finalizer = weakref.finalize(self, _at_end, self.report, self._hot)
        listen()

    def close(self) -> None:
        """Let go of the tape, and leave the run's report beside it."""
        self._finalizer()
        self.tape.close()
        if self._ledger is not None:
            self._ledger.close()

    def __enter__(self) -> "Cassette":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- the decision

    def decide(self, request: Request | dict[str, Json], *, sample: int | None = None) -> Verdict:
        """The verdict on one request: Play, Permit, Refusal or Busy; anything else is a bug.

        Raises NotCanonical and UnsupportedCoding for a request that cannot have a key, and
        SecretFound where secrets are refused.
        """
        raw_key = self._raw_key(request)
        chosen = repeats.chosen_sample() if sample is None else sample
        order = repeats.chosen_order() or self._order
        if chosen is not None:
            return self._decide(Question(request, raw_key, chosen))
        if order is not None:
            return self._decide(Question(request, raw_key, order.next(raw_key), order))
        return self._decide(
            Question(request, raw_key, self._errors.before(raw_key), errors=self._errors)
        )

    def _raw_key(self, request: Request | dict[str, Json]) -> str:
        if isinstance(request, Request):
            identity, _ = http_identity(request, (), self.declared.headers)
            return key_of(http_text(identity))
        return key_of(self.canonicalizer.text(request))

    def _decide(self, question: Question) -> Verdict:
        try:
            return self._verdict(question)
        except UnreadableTape as error:
            question.give_back_sample()
            return self._refuse(TapeFailed(error.message, error.remedy))

    def _verdict(self, question: Question) -> Verdict:
        if self.mode is not Mode.LIVE:
            found = self.tape.find(sample_key(question.raw_key, question.sample))
            if found is not None and self._holds(found, question):
                return self._play(found, question)
        clean = self._clean(question)
        if self.mode is not Mode.LIVE and (clean.key != question.raw_key or self.declared.rules):
            found = self._find_clean(clean, question)
            if found is not None and self._holds(found, question):
                return self._play(found, question)
        if self.mode is Mode.REPLAY and question.errors is not None and question.sample:
            # Nothing was recorded after the kept error: it is the answer.
            return self._verdict(replace(question, sample=question.sample - 1))
        limits = self._limits_now()
        permitted = live_is_permitted(self.mode, self._latch_now(), limits)
        match MODE_TABLE[self.mode, False, permitted]:
            case Cell.CALL:
                return self._permit(question, clean, limits)
            case Cell.MISS:
                return self._refuse(self._miss(question, clean))
            case _:
                question.give_back_sample()
                return self._refuse(self._not_permitted(clean, limits))

    def _play(self, exchange: Exchange, question: Question) -> Verdict:
        if isinstance(exchange.response, Response) is not isinstance(question.request, Request):
            kinds = ("an HTTP response", "plain JSON")
            got, wanted = kinds if isinstance(exchange.response, Response) else kinds[::-1]
            return self._refuse(
                TapeFailed(
                    f"the answer to {exchange.key[:12]} on {self.tape.path} is {got}, not {wanted}",
                    "HTTP recordings replay with tapes.use(…), plain JSON with Cassette.call(…)",
                )
            )
        if self._is_expired(exchange):
            if self.declared.expired is OnExpiry.FAIL:
                return self._refuse(self._too_old(exchange))
            if self.report.served_expired(exchange.key):
                log.warning("%s", self._too_old(exchange).message)
        self.report.served(exchange.key)
        last_answer.set("tape")
        question.was_given(exchange.response)
        if is_passing(exchange.response) and self.declared.retry_after == "now":
            exchange = replace(exchange, response=at_once(exchange.response))
        return Play(exchange)

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

    def _too_old(self, exchange: Exchange) -> ExpiredRecording:
        age = how_old(exchange, datetime.now(UTC))
        return ExpiredRecording(
            f"expired: {exchange.key[:12]} on {self.tape.path} is {age},"
            f" and max_age is {self.declared.max_age}",
            f"to record it again: {LATCH}=1 tapes tape refresh {self.tape.path} --expired",
        )

    def _refuse(self, error: CassetteError) -> Refusal:
        self.report.refused(error)
        return Refusal(error)

    def _clean(self, question: Question) -> Clean:
        request = question.request
        if isinstance(request, Request):
            kept = self.redactor.request(request)
            http, rules = http_identity(kept, self.declared.rules, self.declared.headers)
            return Clean(kept, key_of(http_text(http)), rules)
        identity = self.canonicalizer.identity(request)
        plain = self.redactor.value(identity)
        varied, rules = vary_json(plain, self.declared.rules)
        if varied is identity:
            return Clean(plain, question.raw_key)
        return Clean(plain, key_of(self.canonicalizer.text(varied)), rules)

    def _find_clean(self, clean: Clean, question: Question) -> Exchange | None:
        key = sample_key(clean.key, question.sample)
        found = self.tape.find(key)
        if found is not None or not self.declared.rules:
            return found
        other = self._keys_under_present_rules().get(key)
        return None if other is None else self.tape.find(other)

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

    def _shared_ledger(self) -> Ledger:
        """The count of live calls, shared with every process that uses this tape."""
        if self._ledger is None:
            local = self.tape.local
            path = None if local is None else make_local(local) / STATE
            self._ledger = Ledger(path, self.tape.name)
        return self._ledger

    def _permit(self, question: Question, clean: Clean, limits: Limits) -> Verdict:
        flight = self._flight(sample_key(clean.key, question.sample))
        if flight is None:
            return Busy(lambda: self._decide(question))
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
            try:
                taken = self._shared_ledger().take(clean.key, limits, self._reserve(clean, limits))
            except UnboundedCall as error:
                question.give_back_sample()
                return self._refuse(error)
            if isinstance(taken, Spent):
                question.give_back_sample()
                return self._refuse(self._exhausted(clean, limits, taken))
            unit = taken
        self._warn_of_variance(clean)
        return Permit(self._recorder, question, clean, flight=flight, unit=unit)

    def _flight(self, key: str) -> Flight | None:
        if self.mode is Mode.LIVE:
            return Flight(key)  # every call is its own
        if self._flights is None:
            local = self.tape.local
            lock = None if local is None else make_local(local) / f"{self.tape.name}.lock"
            self._flights = Flights(None) if lock is None else flights_of(lock)
        return self._flights.take(key)

    def _reserve(self, clean: Clean, limits: Limits) -> Reserve:
        """The most that this call can cost. Raises UnboundedCall where nothing bounds it."""
        if limits.tokens is None and limits.usd is None:
            return Reserve()
        value, size, path = _json_of(clean.request), *_size_and_path(clean.request)
        bound = output_bound(value, path)
        if bound is None:
            raise UnboundedCall(
                f"a budget of {limits} is set, and the request {clean.key[:12]} does not bound"
                " its answer",
                "add max_tokens (or your provider's word for it), or limit calls instead:"
                f" {CALLS}=20",
            )
        if limits.usd is None:
            return Reserve(size + bound)
        model = value.get("model") if isinstance(value, dict) else None
        dollars = self.price(Usage(input=size, output=bound, model=model))
        if dollars is None:
            raise UnboundedCall(
                f"a budget of {limits} is set, and the model {model!r} has no known price",
                f"limit calls instead: {CALLS}=20",
            )
        return Reserve(size + bound, dollars)

    def _warn_of_variance(self, clean: Clean) -> None:
        if not self._warned_of_variance and hides_variance(_json_of(clean.request)):
            self._warned_of_variance = True
            log.warning(
                "recording one sample of many: temperature is above zero without a seed, so the"
                " tape %s hides how answers vary",
                self.tape.path,
            )

    # --- refusals

    def _not_permitted(self, clean: Clean, limits: Limits) -> CassetteError:
        if limits.are_zero:
            return self._exhausted(clean, limits, None)
        return LatchClosed(
            f"the latch is closed: {clean.key[:12]} is not on {self.tape.path}, and no live call"
            " is permitted",
            f"to record it: {LATCH}=1 {MODE}=record …, or with a limit: {CALLS}=20 {MODE}=record …",
        )

    def _exhausted(self, clean: Clean, limits: Limits, spent: Spent | None) -> CassetteError:
        what = f"budget exhausted: key={clean.key[:12]} budget={limits} on {self.tape.path}"
        if spent is None or spent.since is None:
            return BudgetExhausted(what, f"to permit live calls: {CALLS}=20 {MODE}=record …")
        since = datetime.fromtimestamp(spent.since, UTC).strftime("%Y-%m-%d %H:%M UTC")
        return BudgetExhausted(
            f"{what}; spent: {spent.calls} calls, {spent.tokens} tokens since {since}",
            f"who spent it: tapes budget show {self.tape.path}; to begin anew: tapes budget reset"
            f" {self.tape.path}; or raise {CALLS}",
        )

    def _miss(self, question: Question, clean: Clean) -> CassetteMiss:
        question.give_back_sample()
        key = sample_key(clean.key, question.sample)
        what = f"cassette miss: {key[:12]} on {self.tape.path}"
        record = f"to record it: {LATCH}=1 {MODE}=record …"
        if self.tape.find(evidence_key(key)) is not None:
            return IncompleteRecording(f"{what}: the only recording was left incomplete", record)
        other = self._recorded_under(clean, question.sample)
        if other is not None:
            return WrongCanonicalizer(
                f"{what}: it was recorded under {other}, and this cassette uses"
                f" {self.canonicalizer.name}",
                f'open it with canonicalizer="{other}"',
            )
        lines = [line for line in (nearest(self.tape, clean.request), record) if line]
        return CassetteMiss(what, "\n".join(lines))

    def _recorded_under(self, clean: Clean, sample: int) -> str | None:
        """Another canonicalizer under whose key this request has an answer."""
        if isinstance(clean.request, Request):
            return None
        for rule in DICT_CANONICALIZERS.values():
            if rule is self.canonicalizer:
                continue
            try:
                key = key_of(rule.text(clean.request))
            except TapesError:
                continue
            if self.tape.find(sample_key(key, sample)) is not None:
                return rule.name
        return None

    # --- calls with dicts

    def call(
        self, request: dict[str, Json], *, sample: int | None = None, live: Live | None = None
    ) -> Any:
        """The answer to a request that is a dict: from the tape, or by one live call.

        `live` makes this call in place of the cassette's own. Ends the process (CassetteError)
        where there is no answer. Raises NotCanonical, NotAnAnswer, MissingLive, AsyncLive.
        """
        if self._is_quick and sample is None and not repeats.in_use:
            copies = self._hot.find(request)
            if copies is not None:
                return copies.one()
        verdict = self.decide(request, sample=sample)
        while isinstance(verdict, Busy):
            time.sleep(verdict.pause)
            verdict = verdict.again()
        match verdict:
            case Play(exchange):
                return self._hot.add(request, exchange.key, exchange.response).one()
            case Permit() as permit:
                return self._kept(permit, self._made(permit, live or self.live))
            case Refusal(error):
                raise_refusal(error)

    async def acall(
        self, request: dict[str, Json], *, sample: int | None = None, live: Live | None = None
    ) -> Any:
        """As `call`, for async code; `live` may be plain or async."""
        if self._is_quick and sample is None and not repeats.in_use:
            copies = self._hot.find(request)
            if copies is not None:
                return copies.one()
        verdict = self.decide(request, sample=sample)
        while isinstance(verdict, Busy):
            await asyncio.sleep(verdict.pause)
            verdict = verdict.again()
        match verdict:
            case Play(exchange):
                return self._hot.add(request, exchange.key, exchange.response).one()
            case Permit() as permit:
                response = await self._amade(permit, live or self.live)
                return await asyncio.to_thread(self._kept, permit, response)
            case Refusal(error):
                raise_refusal(error)

    def _made(self, permit: Permit, live: Live | None) -> Json:
        """The answer of a plain callable. Raises AsyncLive for an async one."""
        try:
            response = _required(live, permit)(permit.request)
            if inspect.isawaitable(response):
                if inspect.iscoroutine(response):
                    response.close()
                raise AsyncLive(
                    "the live callable is async, and call() is not", "use: await cassette.acall(…)"
                )
        except BaseException as error:
            permit.failed(we_left=_we_left(error))
            raise
        return response

    async def _amade(self, permit: Permit, live: Live | None) -> Json:
        try:
            response = _required(live, permit)(permit.request)
            return await response if inspect.isawaitable(response) else response
        except BaseException as error:
            permit.failed(we_left=_we_left(error))
            raise

    def _kept(self, permit: Permit, response: Json) -> Json:
        try:
            return permit.keep(response)
        except CassetteError as error:
            raise_refusal(error)


def _canonicalizer_for(tape: Tape, name: str | None) -> DictCanonicalizer:
    if name is not None:
        return dict_canonicalizer(name)
    return DIRECTORY if isinstance(tape, DirectoryTape) else TAPE


def _at_end(report: Report, hot: HotAnswers) -> None:
    hot.report_hits()
    keep_report(report)


def _required(live: Live | None, permit: Permit) -> Callable[[Any], Any]:
    if live is None:
        raise MissingLive(
            f"a live call for {permit.key[:12]} is permitted, and the cassette has nothing to call",
            "pass the function that makes the call: Cassette(path, mode, live)",
        )
    return live


def _we_left(error: BaseException) -> bool:
    """Whether a call ended because its caller gave up, not because it failed."""
    return not isinstance(error, Exception) or isinstance(error, TimeoutError)


def _json_of(request: Request | Json) -> Json:
    """What a request says as JSON; None where it is none."""
    if not isinstance(request, Request):
        return request
    try:
        return read(plain_body(request))
    except ValueError:
        return None


def _size_and_path(request: Request | Json) -> tuple[int, str]:
    if not isinstance(request, Request):
        return len(compact(request)), ""
    return len(plain_body(request)), request.url.partition("?")[0]
