"""Tapes held against a provider on loopback, and refreshed from it."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tapes.budget import Limits
from tapes.cassette import Cassette
from tapes.drift import Kind
from tapes.errors import BadSetting, BudgetExhausted, LatchClosed
from tapes.exchange import Exchange, Piece, Request, Response, State
from tapes.permit import Permit
from tapes.project import Declared
from tapes.refreshing import (
    Checked,
    Outcome,
    Round,
    Why,
    answers,
    present_key,
    refresh,
    stale,
    verify_live,
)
from tapes.sending import send
from tapes.tape.base import MemoryTape, Tape
from tapes.tape.jsonl import JsonlTape
from tests.loopback import Provider, event_answer, json_answer, provider


def chat(text: str, number: int = 1) -> Response:
    """An answer that is another one every time in all but what it says."""
    return json_answer(
        json.dumps(
            {
                "id": f"chatcmpl-{number}",
                "created": 1_700_000_000 + number,
                "choices": [{"message": {"content": text}}],
                "usage": {"total_tokens": number},
            }
        )
    )


def ask(at: Provider, prompt: str) -> Request:
    body = json.dumps({"messages": [{"role": "user", "content": prompt}]}).encode()
    headers = (("content-type", "application/json"), ("authorization", "Bearer sk-at-record"))
    return Request("POST", at.url + "/v1/chat/completions", headers, body)


def record(tape: Tape, *requests: Request, sample: int = 0) -> None:
    with_latch = Cassette(tape, "record", latch=True, declared=Declared())
    for request in requests:
        permit = with_latch.decide(request, sample=sample)
        assert isinstance(permit, Permit)
        send(permit)
        permit.finish()


def live(tape: Tape, **options: Any) -> Cassette:
    usual: dict[str, Any] = {"latch": True, "environ": {}, "declared": Declared()}
    return Cassette(tape, "live", **usual | options)


def environ(at: Provider) -> dict[str, str]:
    return {"OPENAI_BASE_URL": at.url + "/v1", "OPENAI_API_KEY": "sk-of-today"}


def outcomes(round_: Round) -> list[str]:
    return [str(one.outcome) for one in round_.checked]


def said(request: Request) -> str:
    return str(json.loads(request.body)["messages"][0]["content"])


class Changing:
    """A provider whose answers are new every time, and may say something else from now on."""

    def __init__(self) -> None:
        self.now: dict[str, Response] = {}
        self.count = 0

    def __call__(self, request: Request) -> Response:
        self.count += 1
        return self.now.get(said(request)) or chat(f"about {said(request)}", self.count)


# --- verify -----------------------------------------------------------------------------------


@pytest.mark.row("A12-refresh")
def test_verify_tells_what_changed_and_leaves_the_tape_alone(tmp_path: Path) -> None:
    answer = Changing()
    with provider(answer) as at:
        tape = JsonlTape(tmp_path / "t.jsonl")
        record(tape, ask(at, "a"), ask(at, "b"), ask(at, "c"))
        before = (tmp_path / "t.jsonl").read_bytes()
        answer.now = {"b": chat("something else", 9)}
        found = verify_live(live(tape), environ=environ(at))
    assert outcomes(found) == ["same", "changed", "same"]
    assert {str(c.kind) for c in found.checked[1].changes} == {"id", "time", "usage", "content"}
    assert (tmp_path / "t.jsonl").read_bytes() == before


@pytest.mark.row("N13")
def test_what_is_sent_is_what_was_recorded_with_the_credential_of_today() -> None:
    with provider(Changing()) as at:
        tape = MemoryTape()
        record(tape, ask(at, "a"))
        verify_live(live(tape), environ=environ(at))
    first, again = at.requests
    assert again.body == first.body
    assert ("authorization", "Bearer sk-of-today") in again.headers
    assert "sk-at-record" not in repr(again)
    assert "sk-of-today" not in repr(list(tape.exchanges()))


def test_the_kinds_that_count_are_the_caller_s_choice() -> None:
    answer = Changing()
    with provider(answer) as at:
        tape = MemoryTape()
        record(tape, ask(at, "a"))
        answer.now = {"a": chat("something else")}
        counts = frozenset({Kind.STATUS, Kind.SHAPE})
        assert outcomes(verify_live(live(tape), environ=environ(at), counts=counts)) == ["same"]


def test_samples_are_each_asked_again_and_compared_with_their_own() -> None:
    with provider(Changing()) as at:
        tape = MemoryTape()
        record(tape, ask(at, "a"))
        record(tape, ask(at, "a"), sample=1)
        found = verify_live(live(tape), environ=environ(at))
    assert [one.item.sample for one in found.checked] == [0, 1]
    assert outcomes(found) == ["same", "same"]


@pytest.mark.row("A12-refresh")
@pytest.mark.parametrize("limits", [Limits(), Limits(calls=0)])
def test_nothing_is_sent_behind_a_closed_latch(limits: Limits) -> None:
    with provider(Changing()) as at:
        tape = MemoryTape()
        record(tape, ask(at, "a"))
        for latch in (False, limits.are_zero):
            closed = live(tape, latch=latch, limits=limits)
            with pytest.raises(LatchClosed):
                verify_live(closed, environ=environ(at))
            with pytest.raises(LatchClosed):
                refresh(closed, stale(tape, changed=True), environ=environ(at))
        assert len(at.requests) == 1


@pytest.mark.row("N17")
def test_a_budget_that_is_spent_ends_the_round_and_says_what_is_left() -> None:
    with provider(Changing()) as at:
        tape = MemoryTape()
        record(tape, *(ask(at, prompt) for prompt in "abc"))
        cassette = live(tape, latch=False, limits=Limits(calls=2))
        found = verify_live(cassette, environ=environ(at))
        assert len(at.requests) == 3 + 2
    assert outcomes(found) == ["same", "same", "left"]
    assert isinstance(found.refusal, BudgetExhausted)


def test_another_mode_than_live_is_an_error() -> None:
    with pytest.raises(BadSetting, match="mode replay"):
        verify_live(Cassette(MemoryTape(), "replay"))


# --- what cannot be sent ----------------------------------------------------------------------


def test_what_cannot_be_sent_is_reported_with_its_reason_and_never_sent() -> None:
    secret = b'{"messages":[{"content":"my key is sk-abcdefghijklmnop0123456789"}]}'
    with provider(lambda _: chat("ok")) as at:
        tape = MemoryTape()
        record(tape, replace(ask(at, "x"), body=secret), ask(at, "a"))
        elsewhere = replace(answers(tape)[1], key="1" * 64, request=Request("GET", "https://h/"))
        tape.append(elsewhere)
        tape.append(Exchange("2" * 64, "directory/1", None, {"answer": 1}))
        tape.append(Exchange("3" * 64, "tape/1", {"prompt": "x"}, {"text": "y"}))
        at.requests.clear()
        found = verify_live(live(tape), environ=environ(at))
    reasons = [one.reason for one in found.with_outcome(Outcome.NOT_SENDABLE)]
    assert [reason.partition(" ")[0] for reason in reasons] == ["its", "no", "the", "a"]
    assert "redacted" in reasons[0]
    assert [said(request) for request in at.requests] == ["a"]


def test_without_its_credential_a_request_is_not_sent() -> None:
    with provider(Changing()) as at:
        tape = MemoryTape()
        record(tape, ask(at, "a"))
        (checked,) = verify_live(live(tape), environ={"OPENAI_BASE_URL": at.url}).checked
        assert len(at.requests) == 1
    assert checked.outcome is Outcome.NOT_SENDABLE
    assert "OPENAI_API_KEY is not set" in checked.reason


@pytest.mark.row("A4", "A12-refresh")
def test_calls_with_dicts_are_made_again_through_the_cassette_s_own_callable() -> None:
    tape = MemoryTape()
    Cassette(tape, "record", lambda _: {"text": "old"}, latch=True).call({"prompt": "x"})

    async def now(_: object) -> object:
        return {"text": "new"}

    cassette = live(tape, live=now)
    assert outcomes(verify_live(cassette)) == ["changed"]
    assert outcomes(refresh(cassette, stale(tape, changed=True))) == ["recorded"]
    assert Cassette(tape, "replay").call({"prompt": "x"}) == {"text": "new"}


# --- refresh ----------------------------------------------------------------------------------


NOW = datetime.now(UTC)


def aged(tape: MemoryTape, days: dict[str, int]) -> MemoryTape:
    """The tape as if its recordings were so many days old."""
    made = []
    for exchange in tape.exchanges():
        assert isinstance(exchange.request, Request)
        at = NOW - timedelta(days=days[said(exchange.request)])
        made.append(replace(exchange, recorded_at=at.isoformat()))
    return MemoryTape(tuple(made))


def text_of(tape: Tape, request: Request) -> str:
    verdict = Cassette(tape, "replay", declared=Declared()).decide(request)
    return repr(verdict)


def test_only_what_has_expired_is_recorded_again() -> None:
    with provider(Changing()) as at:
        first = MemoryTape()
        record(first, *(ask(at, prompt) for prompt in "abc"))
        tape = aged(first, {"a": 100, "b": 1, "c": 31})
        before = list(tape.exchanges())
        items = stale(tape, max_age=timedelta(days=30), now=NOW)
        assert [(item.why, said(item.request)) for item in items] == [
            (Why.EXPIRED, "a"),
            (Why.EXPIRED, "c"),
        ]
        assert outcomes(refresh(live(tape), items, environ=environ(at))) == ["recorded"] * 2
        after = list(tape.exchanges())
        assert after[:3] == before
        assert [exchange.key for exchange in after[3:]] == [before[0].key, before[2].key]
        assert not stale(tape, max_age=timedelta(days=30), now=NOW)


def test_only_what_has_changed_is_recorded_again() -> None:
    answer = Changing()
    with provider(answer) as at:
        tape = MemoryTape()
        record(tape, ask(at, "a"), ask(at, "b"))
        answer.now = {"b": chat("something else")}
        found = refresh(live(tape), stale(tape, changed=True), environ=environ(at))
        assert outcomes(found) == ["same", "recorded"]
        assert len(list(tape.exchanges())) == 3
        assert "something else" in text_of(tape, ask(at, "b"))


def delta(text: str | None, reason: str | None = None) -> str:
    choice = {"delta": {"content": text} if text else {}, "finish_reason": reason}
    return json.dumps({"choices": [choice]})


def test_what_is_missing_is_recorded() -> None:
    whole = event_answer(delta("he"), delta("llo"), delta(None, "stop"), "[DONE]")
    with provider(lambda _: event_answer(delta("he"))) as at:
        tape = MemoryTape()
        record(tape, ask(at, "a"))
        other = MemoryTape()
        record(other, ask(at, "b"))
    assert [e.state for e in tape.exchanges()] == [State.UPSTREAM_ERROR]
    wanted = [replace(e, state=State.COMPLETE) for e in other.exchanges()]
    wanted = [replace(e, key="4" * 64) for e in wanted]
    items = stale(tape, wanted=wanted, declared=Declared())
    assert [item.why for item in items] == [Why.MISSING, Why.MISSING]
    with provider(lambda _: whole) as again:
        moved = [
            replace(item, request=replace(item.request, url=again.url + "/v1/chat/completions"))
            for item in items
        ]
        assert outcomes(refresh(live(tape), moved, environ={})) == ["recorded"] * 2
        assert "llo" in text_of(tape, ask(again, "a"))
    assert not stale(tape, wanted=[], declared=Declared())


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        (json_answer('{"error": "retired"}', 404), "answered 404"),
        (json_answer('{"error": "later"}', 429), "answered 429"),
        (event_answer(delta("he")), "did not end"),
    ],
)
@pytest.mark.parametrize("declared", [Declared(), Declared(errors="store")], ids=["skip", "store"])
def test_an_old_answer_stays_until_a_new_one_is_whole(
    now: Response, reason: str, declared: Declared
) -> None:
    answer = Changing()
    with provider(answer) as at:
        tape = MemoryTape()
        record(tape, ask(at, "a"))
        answer.now = {"a": now}
        (checked,) = refresh(
            live(tape, declared=declared), stale(tape, changed=True), environ=environ(at)
        ).checked
        assert checked.outcome is Outcome.FAILED
        assert reason in checked.reason
        assert len(list(tape.exchanges())) == 1


def test_a_provider_that_cannot_be_reached_costs_nothing_and_changes_nothing() -> None:
    with provider(Changing()) as at:
        tape = MemoryTape()
        record(tape, ask(at, "a"))
    cassette = live(tape, latch=False, limits=Limits(calls=1))
    for _ in range(2):
        found = refresh(cassette, stale(tape, changed=True), environ=environ(at))
        assert outcomes(found) == ["failed"]
    assert len(list(tape.exchanges())) == 1


def test_an_error_that_was_kept_by_choice_is_left_alone() -> None:
    statuses = iter((429, 200, 200))
    with provider(lambda _: json_answer("{}", next(statuses))) as at:
        tape = MemoryTape()
        cassette = Cassette(tape, "record", latch=True, declared=Declared(errors="store"))
        for _ in range(2):
            permit = cassette.decide(ask(at, "a"))
            assert isinstance(permit, Permit)
            send(permit)
            permit.finish()
        items = stale(tape, max_age=timedelta(0), now=NOW + timedelta(days=1))
        found = refresh(live(tape), items, environ=environ(at))
    assert outcomes(found) == ["kept", "recorded"]
    assert "kept by choice" in found.checked[0].reason


def test_whoever_watches_is_told_of_each_as_it_comes() -> None:
    seen = list[str]()

    def watch(checked: Checked) -> None:
        seen.append(str(checked.outcome))

    with provider(Changing()) as at:
        tape = MemoryTape()
        record(tape, ask(at, "a"), ask(at, "b"))
        verify_live(live(tape), environ=environ(at), watch=watch)
    assert seen == ["same", "same"]


def test_a_recording_that_nobody_can_find_any_more_is_not_refreshed() -> None:
    body = json.dumps({"messages": [], "run": 1}).encode()
    request = Request("POST", "http://127.0.0.1/x", (("content-type", "application/json"),), body)
    response = Response(200, (), (Piece(0.0, b"{}"),))
    old = Exchange("5" * 64, "http/1", request, response)
    tape = MemoryTape((old,))
    assert len(stale(tape, changed=True)) == 1
    key = present_key(old, Declared())
    assert key is not None
    tape.append(replace(old, key=key))
    assert [item.key for item in stale(tape, changed=True)] == [key]
