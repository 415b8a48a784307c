"""What a refusal says: what happened, on what, and what to type.

Knows nothing of how the decision fell.
"""

from datetime import UTC, datetime, timedelta
from decimal import Decimal

from tapes.budget import CALLS, LATCH, TOKENS, USD, Limits, Reserve, Spent
from tapes.canonical import (
    DICT_CANONICALIZERS,
    DictCanonicalizer,
    evidence_key,
    key_of,
    key_of_exchange_request,
    sample_key,
)
from tapes.diagnosis import diagnose
from tapes.errors import (
    BudgetExhausted,
    CassetteMiss,
    ExpiredRecording,
    IncompleteRecording,
    LatchClosed,
    TapeFailed,
    TapesError,
    WrongCanonicalizer,
    as_typed,
)
from tapes.exchange import Exchange, Request, Response
from tapes.expiry import age_in_words, how_old
from tapes.explain import find_nearest
from tapes.modes import MODE
from tapes.permit import Clean, Question
from tapes.project import Declared
from tapes.tape.base import Tape

# Stands for the command that was run, with its mode; who knows the command puts it in its place.
RECORD = f"{MODE}=record …"
_TO_RECORD = f"to record it: {LATCH}=1 {RECORD}"
_LOOKED_FOR = 1000  # samples of one request that a miss counts
_NOTHING = Reserve()
_EXAMPLES = {CALLS: "20", TOKENS: "100000", USD: "0.50"}


def latch_closed(key: str, path: str) -> LatchClosed:
    """Nobody permitted a live call."""
    return LatchClosed(
        f"the latch is closed: {key[:12]} is not on {path}, and no live call is permitted",
        f"{_TO_RECORD}, or with a limit: {CALLS}=20 {RECORD}",
    )


def exhausted(
    key: str, path: str, limits: Limits, spent: Spent | None, reserve: Reserve = _NOTHING
) -> BudgetExhausted:
    """The budget has no room for this call, or is zero (`spent` is None)."""
    what = f"budget exhausted: key={key[:12]} budget={limits} on {path}"
    if spent is None:
        values = {CALLS: limits.calls, TOKENS: limits.tokens, USD: limits.usd}
        settings = " ".join(f"{n}={_EXAMPLES[n]}" for n, value in values.items() if value == 0)
        return BudgetExhausted(what, f"to permit live calls: {settings} {RECORD}")
    gone = "nothing"
    if spent.since is not None:
        since = datetime.fromtimestamp(spent.since, UTC).strftime("%Y-%m-%d %H:%M UTC")
        gone = f"{_cost(spent.calls, spent.tokens, spent.usd)} since {since}"
    what += f"; spent: {gone}"
    if reserve.tokens:
        what += f"; this call may use {_cost(None, reserve.tokens, reserve.usd)}"
    passed = spent.passed_by(reserve, limits)
    more = f"raise {' and '.join(passed)}" if passed else "try again"
    if reserve.tokens and passed != [CALLS]:
        more += ", or bound the call closer (max_tokens)"
    if spent.since is None:
        return BudgetExhausted(what, more)
    return BudgetExhausted(
        what,
        f"who spent it: tapes budget show {as_typed(path)};"
        f" to begin anew: tapes budget reset {as_typed(path)}; or {more}",
    )


def _cost(calls: int | None, tokens: int, usd: Decimal) -> str:
    parts = [] if calls is None else [f"{calls} calls"]
    parts.append(f"{tokens} tokens")
    if usd:
        parts.append(f"{usd} USD")
    return ", ".join(parts)


def wrong_kind(exchange: Exchange, path: str) -> TapeFailed:
    """An answer over HTTP lies where plain JSON was asked for, or the other way round."""
    kinds = ("an HTTP response", "plain JSON")
    got, wanted = kinds if isinstance(exchange.response, Response) else kinds[::-1]
    return TapeFailed(
        f"the answer to {exchange.key[:12]} on {path} is {got}, not {wanted}",
        "HTTP recordings replay with tapes.use(…), plain JSON with Cassette.call(…)",
    )


def too_old(exchange: Exchange, path: str, max_age: timedelta | None) -> ExpiredRecording:
    """The recording is older than the project permits."""
    return ExpiredRecording(
        f"expired: {exchange.key[:12]} on {path} is {how_old(exchange, datetime.now(UTC))},"
        f" and max_age is {age_in_words(max_age) if max_age else 'unknown'}",
        f"to record it again: {LATCH}=1 tapes tape refresh {as_typed(path)} --expired",
    )


def miss(
    tape: Tape,
    question: Question,
    clean: Clean,
    canonicalizer: DictCanonicalizer,
    declared: Declared,
) -> CassetteMiss:
    """Replay has no answer: why, and what is nearest to the request. Raises UnreadableTape."""
    key = sample_key(clean.key, question.sample)
    what = f"cassette miss: {key[:12]} on {tape.path}"
    if tape.find(evidence_key(key)) is not None:
        return IncompleteRecording(f"{what}: the only recording was left incomplete", _TO_RECORD)
    other = _recorded_under(tape, question, canonicalizer)
    if other is not None:
        return WrongCanonicalizer(
            f"{what}: it was recorded under {other}, and this cassette uses {canonicalizer.name}",
            f'open it with canonicalizer="{other}"',
        )
    if question.sample:
        what += f" (sample {question.sample})"
        there = _answers_before(tape, question, clean.key)
        if there:
            answers = "1 answer" if there == 1 else f"{there} answers"
            return CassetteMiss(
                f"{what}: this request has {answers} there, and one more was asked for"
                if there == question.sample
                else f"{what}: of this request's samples {there} are there, but not this one",
                _TO_RECORD,
            )
    near = find_nearest(tape, clean.request, declared.rules, declared.headers)
    if near is None:
        return CassetteMiss(what, _TO_RECORD)
    if not near.differences and _does_not_fit(near.exchange, declared):
        return CassetteMiss(
            f"{what}: the recording {near.exchange.key[:12]} says this request and has the key of"
            " another, as after an edit by hand",
            f"to see it: tapes tape verify {as_typed(tape.path)}\n{_TO_RECORD}",
        )
    rule = near.exchange.canonicalizer
    found = diagnose(near, clean.request, declared.rules, declared.headers, rule)
    error = CassetteMiss(what, "\n".join((*found.lines(), _TO_RECORD)))
    error.diagnosis = {"key": key, "tape": tape.path, **found.as_dict()}
    return error


def _does_not_fit(exchange: Exchange, declared: Declared) -> bool:
    """Whether a recording has not the key of its request. False where rules may be the reason."""
    if exchange.rules or exchange.sample or declared.rules or exchange.request is None:
        return False
    try:
        return exchange.key != key_of_exchange_request(
            exchange.canonicalizer, exchange.request, (), declared.headers
        )
    except TapesError:
        return False


def _answers_before(tape: Tape, question: Question, key: str) -> int:
    """How many of this request's earlier samples have an answer."""
    samples = range(min(question.sample, _LOOKED_FOR))
    keys = {sample_key(key, number) for number in samples}
    return sum(tape.answer(one) is not None for one in keys)


def _recorded_under(tape: Tape, question: Question, mine: DictCanonicalizer) -> str | None:
    """Another canonicalizer under whose key this request has an answer."""
    if isinstance(question.request, Request):
        return None
    for rule in DICT_CANONICALIZERS.values():
        if rule is mine:
            continue
        try:
            key = key_of(rule.text(question.request))
        except TapesError:
            continue
        if tape.find(sample_key(key, question.sample)) is not None:
            return rule.name
    return None
