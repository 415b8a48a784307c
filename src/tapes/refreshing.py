"""Recordings held against the provider of today, and made again where they have to be.

Rule 1: nothing is sent unless the operator opened the latch or set a budget; the mode alone, which
        is `live` here, does not count. Every call is paid from the tape's own budget.
Rule 2: only what is missing, expired or changed is recorded anew. An old answer stays until a new
        one is whole and no error, and nothing else on the tape is touched.
Rule 3: a request goes out as it was recorded, with credentials from the environment, or not at
        all. One that cannot go out is reported with its reason.
Rule 4: a refusal (a budget that is spent) ends the round; what was done until then holds.

Knows nothing of commands or formats.
"""

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import assert_never

from tapes.budget import CALLS, LATCH
from tapes.canonical import key_of_exchange_request, sample_key
from tapes.cassette import Busy, Cassette, Play, Refusal
from tapes.drift import TELLING, Change, Kind, changes
from tapes.errors import (
    BadSetting,
    CassetteError,
    LatchClosed,
    NotAnswered,
    NotSendable,
    TapesError,
)
from tapes.exchange import Exchange, Request, Response, State
from tapes.expiry import expired, how_old
from tapes.host_keys import with_credentials
from tapes.jsontext import Json
from tapes.modes import Mode
from tapes.permit import Permit, is_passing
from tapes.project import Declared, declared_for
from tapes.sending import send as send_over_http
from tapes.tape.base import Tape

# Sends the permit's request and feeds the answer to it; raises NotSendable or NotAnswered.
Send = Callable[[Permit], None]


class Outcome(StrEnum):
    """What came of one recording."""

    SAME = "same"
    CHANGED = "changed"
    RECORDED = "recorded"
    KEPT = "kept"  # an error that was kept by choice is not made again
    NOT_SENDABLE = "not sendable"
    FAILED = "failed"
    LEFT = "left"  # not reached before a refusal ended the round


class Why(StrEnum):
    """Why a recording is to be made again, or looked at."""

    ASKED = "asked"
    MISSING = "missing"
    EXPIRED = "expired"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class Item:
    """A request to send again, and why. `recorded` is None where the tape has no answer to it."""

    key: str
    request: Request | Json
    sample: int
    why: Why
    recorded: Exchange | None = None

    @property
    def title(self) -> str:
        """What a person calls it."""
        if isinstance(self.request, Request):
            return f"{self.request.method} {self.request.url}"
        return "a call with a dict"


@dataclass(frozen=True, slots=True)
class Checked:
    """What came of an item: the changes that were seen, or the reason why there are none."""

    item: Item
    outcome: Outcome
    changes: tuple[Change, ...] = ()
    reason: str = ""
    remedy: str = ""


@dataclass(slots=True)
class Round:
    """One round over a tape, in its order."""

    checked: list[Checked] = field(default_factory=list)
    refusal: CassetteError | None = None

    def with_outcome(self, outcome: Outcome) -> list[Checked]:
        """The items that had this outcome."""
        return [one for one in self.checked if one.outcome is outcome]


def _nobody(_: Checked) -> None:
    pass


# --- which ------------------------------------------------------------------------------------


def answers(tape: Tape) -> list[Exchange]:
    """The exchanges that answer: of several under one key the last, in the order of the tape."""
    last: dict[str, Exchange] = {}
    for exchange in tape.exchanges():
        if exchange.state is State.COMPLETE:
            last.pop(exchange.key, None)
            last[exchange.key] = exchange
    return list(last.values())


def missing(
    tape: Tape, wanted: Iterable[Exchange] = (), declared: Declared | None = None
) -> Iterator[Item]:
    """What has no answer on the tape: streams that were cut, and those that are wanted besides."""
    declared = declared_for(tape.path) if declared is None else declared
    seen = set[str]()
    cut = (exchange for exchange in tape.exchanges() if exchange.state is not State.COMPLETE)
    for exchange in (*cut, *wanted):
        key = present_key(exchange, declared)
        if key is not None and key not in seen and tape.find(key) is None:
            seen.add(key)
            yield Item(key, exchange.request, exchange.sample, Why.MISSING)


def present_key(exchange: Exchange, declared: Declared) -> str | None:
    """The key under which a recorded request is found today; None where it is not known."""
    if exchange.request is None:
        return None
    try:
        key = key_of_exchange_request(
            exchange.canonicalizer, exchange.request, declared.rules, declared.headers
        )
    except TapesError:
        return None
    return sample_key(key, exchange.sample)


def stale(
    tape: Tape,
    *,
    max_age: timedelta | None = None,
    changed: bool = False,
    wanted: Iterable[Exchange] | None = None,
    now: datetime | None = None,
    declared: Declared | None = None,
) -> list[Item]:
    """What a refresh would send, in the order of the tape, the missing first.

    `wanted` (not None) adds what is missing, `max_age` what is older, `changed` all others, since
    only the provider knows. A recording whose request has another key by now, under which there is
    an answer, is nobody's any more.
    """
    now = now or datetime.now(UTC)
    declared = declared_for(tape.path) if declared is None else declared
    items = [] if wanted is None else list(missing(tape, wanted, declared))
    for exchange in answers(tape):
        key = present_key(exchange, declared)
        if key not in (None, exchange.key) and tape.find(key or "") is not None:
            continue
        if max_age is not None and expired(exchange, max_age, now):
            items.append(_item(exchange, Why.EXPIRED))
        elif changed:
            items.append(_item(exchange, Why.CHANGED))
    return items


def _item(exchange: Exchange, why: Why) -> Item:
    return Item(exchange.key, exchange.request, exchange.sample, why, exchange)


# --- rounds -----------------------------------------------------------------------------------


def verify_live(
    cassette: Cassette,
    send: Send = send_over_http,
    *,
    items: Iterable[Item] | None = None,
    environ: Mapping[str, str] = os.environ,
    counts: frozenset[Kind] = TELLING,
    watch: Callable[[Checked], None] = _nobody,
) -> Round:
    """Send the recorded requests again and report what changed; the tape stays as it is.

    The cassette is in mode `live`. `counts` are the kinds of change that make a difference; all
    are reported. Raises LatchClosed, BadSetting.
    """
    if items is None:
        items = [_item(exchange, Why.ASKED) for exchange in answers(cassette.tape)]
    return _round(_Caller(cassette, send, environ, counts, keeps=False), items, watch)


def refresh(
    cassette: Cassette,
    items: Iterable[Item],
    send: Send = send_over_http,
    *,
    environ: Mapping[str, str] = os.environ,
    counts: frozenset[Kind] = TELLING,
    watch: Callable[[Checked], None] = _nobody,
) -> Round:
    """Record the items (see `stale`) again; of those that may have changed, only those that have.

    The cassette is in mode `live`. Raises LatchClosed, BadSetting.
    """
    return _round(_Caller(cassette, send, environ, counts, keeps=True), items, watch)


def _round(caller: "_Caller", items: Iterable[Item], watch: Callable[[Checked], None]) -> Round:
    caller.require_permission()
    done = Round()
    for item in items:
        if done.refusal is not None:
            checked = Checked(item, Outcome.LEFT)
        else:
            try:
                checked = caller.check(item)
            except _RefusedError as refused:
                done.refusal = refused.error
                checked = Checked(item, Outcome.LEFT, reason=refused.error.message)
        done.checked.append(checked)
        watch(checked)
    return done


class _RefusedError(Exception):
    def __init__(self, error: CassetteError) -> None:
        super().__init__(error.message)
        self.error = error


@dataclass(frozen=True, slots=True)
class _Caller:
    """One item at a time: decide, send, compare, keep or not."""

    cassette: Cassette
    send: Send
    environ: Mapping[str, str]
    counts: frozenset[Kind]
    keeps: bool

    def require_permission(self) -> None:
        if self.cassette.mode is not Mode.LIVE:
            raise BadSetting(
                f"the cassette is in mode {self.cassette.mode}, and this sends live calls",
                'open it with Cassette(path, "live")',
            )
        if not self.cassette.is_unlocked:
            raise LatchClosed(
                f"the latch is closed: this sends what is on {self.cassette.tape.path} again",
                f"to permit it: {LATCH}=1 …, or with a limit: {CALLS}=20 …",
            )

    def check(self, item: Item) -> Checked:
        recorded = item.recorded
        if recorded is not None and is_passing(recorded.response):
            return Checked(item, Outcome.KEPT, reason="an error that was kept by choice")
        try:
            permit = self._permit(self._sendable(item.request), item.sample)
            answer = self._answer(permit)
        except NotSendable as error:
            return Checked(item, Outcome.NOT_SENDABLE, reason=error.message, remedy=error.remedy)
        except NotAnswered as error:
            return Checked(item, Outcome.FAILED, reason=error.message)
        found = () if recorded is None else changes(recorded.response, answer.response)
        failure = _failure(answer, recorded)
        if failure is not None:
            permit.discard()
            return Checked(item, Outcome.FAILED, found, failure)
        is_changed = any(change.kind in self.counts for change in found)
        if self.keeps and (item.why in (Why.MISSING, Why.EXPIRED) or is_changed):
            self._keep(permit, answer)
            return Checked(item, Outcome.RECORDED, found)
        permit.discard()
        return Checked(item, Outcome.CHANGED if is_changed else Outcome.SAME, found)

    def _sendable(self, request: Request | Json) -> Request | Json:
        if request is None:
            raise NotSendable("the tape keeps the answer without its request")
        if isinstance(request, Request):
            return with_credentials(request, self.environ, self.cassette.declared.credentials)
        if self.cassette.live is None:
            raise NotSendable(
                "a call with a dict has no address",
                "record it again from your program: DEMO_LIVE=1 CASSETTE_MODE=live …",
            )
        return request

    def _permit(self, request: Request | Json, sample: int) -> Permit:
        try:
            verdict = self.cassette.decide(request, sample=sample)
        except TapesError as error:
            raise NotSendable(error.message, error.remedy) from error
        match verdict:
            case Permit():
                return verdict
            case Refusal(refusal):
                raise _RefusedError(refusal)
            case Play() | Busy():
                raise AssertionError("in mode live every call is its own")
            case never:
                assert_never(never)

    def _answer(self, permit: Permit) -> Exchange:
        """The answer as it would be kept; the permit is open still."""
        request = permit.request
        if isinstance(request, Request):
            self.send(permit)
            return permit.preview()
        try:
            response = self.cassette.live(request) if self.cassette.live else None
            if inspect.isawaitable(response):
                response = asyncio.run(_awaited(response))
        except Exception as error:  # whatever a user's callable raises
            permit.failed(we_left=False)
            raise NotAnswered(f"the live callable failed: {error!r}") from error
        return permit.preview(response)

    def _keep(self, permit: Permit, answer: Exchange) -> None:
        try:
            if isinstance(answer.response, Response):
                permit.finish()
            else:
                permit.keep(answer.response)
        except CassetteError as error:
            raise _RefusedError(error) from error


async def _awaited(response: Awaitable[Json]) -> Json:
    return await response


def _failure(answer: Exchange, recorded: Exchange | None) -> str | None:
    """Why an answer must not take the place of the recorded one; None where it may."""
    if answer.state is not State.COMPLETE:
        return "the stream did not end, or ended in an error"
    response = answer.response
    if not isinstance(response, Response) or response.status < 400:
        return None
    old = recorded.response if recorded is not None else None
    if isinstance(old, Response) and old.status >= 400 and not is_passing(response):
        return None
    return f"the provider answered {response.status}"


def age_note(item: Item, now: datetime) -> str:
    """Why an item is to be sent, in words."""
    if item.why is Why.EXPIRED and item.recorded is not None:
        return f"expired: {how_old(item.recorded, now)}"
    return str(item.why)
