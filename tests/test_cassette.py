"""The fail-closed decision, and calls with dicts on top of it."""

import asyncio
import json
import logging
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tapes import (
    BudgetExhausted,
    Cassette,
    CassetteMiss,
    LatchClosed,
    canonicalize,
    open_tape,
    ordered,
    req_hash,
    sample,
)
from tapes.budget import CALLS, LATCH, Limits
from tapes.canonical import DIRECTORY, evidence_key, key_of, key_of_exchange_request
from tapes.cassette import Busy, Play, Refusal, Verdict
from tapes.errors import (
    AsyncLive,
    BadSetting,
    ClosedTape,
    DamagedTape,
    IncompleteRecording,
    LedgerFailed,
    MissingLive,
    NotCanonical,
    SecretFound,
    TapeFailed,
    UnboundedCall,
    WrongCanonicalizer,
)
from tapes.exchange import Exchange, Request, Response, State
from tapes.modes import MODE, MODE_TABLE, Cell, Mode
from tapes.permit import Permit
from tapes.project import Declared
from tapes.redact import user_patterns
from tapes.tape.base import MemoryTape
from tapes.tape.directory import DirectoryTape
from tapes.varying import Rule
from tests.planted import A36, KEY
from tests.running import run, run_together

ASK = {"prompt": "hi"}


class Upstream:
    """A model that counts how often it was asked."""

    def __init__(self, answer: Any = None) -> None:
        self.calls: list[Any] = []
        self.answer = answer

    def __call__(self, request: dict[str, Any]) -> Any:
        self.calls.append(request)
        return {"n": len(self.calls)} if self.answer is None else self.answer


def post(value: Any, *headers: tuple[str, str], url: str = "http://h/v1") -> Request:
    body = json.dumps(value).encode()
    return Request("POST", url, (("content-type", "application/json"), *headers), body)


def recorded(*requests: Any, **options: Any) -> MemoryTape:
    """A tape on which each of these requests is answered with its number."""
    tape, upstream = MemoryTape(), Upstream()
    with Cassette(tape, "record", upstream, latch=True, **options) as cassette:
        for request in requests:
            if isinstance(request, Request):
                permit = cassette.decide(request)
                assert isinstance(permit, Permit)
                permit.answered(200, (("content-type", "application/json"),))
                permit.feed(b'{"n":1}')
                permit.finish()
            else:
                cassette.call(request)
    return tape


# --- the mode table, cell by cell

PERMISSIONS: dict[str, dict[str, str]] = {
    "nothing": {},
    "the latch": {LATCH: "1"},
    "a budget": {CALLS: "5"},
    "latch and budget": {LATCH: "1", CALLS: "5"},
    "a budget of zero": {CALLS: "0"},
    "a latch and a budget of zero": {LATCH: "1", CALLS: "0"},
}
PERMITTING = {
    Mode.REPLAY: (),
    Mode.RECORD: ("the latch", "a budget", "latch and budget"),
    Mode.LIVE: ("nothing", "the latch", "a budget", "latch and budget"),
}


@pytest.mark.row("A5", "B4", "B6")
@pytest.mark.parametrize("permission", PERMISSIONS)
@pytest.mark.parametrize("on_tape", [True, False], ids=["on tape", "absent"])
@pytest.mark.parametrize("mode", Mode)
def test_every_cell_of_the_mode_table(mode: Mode, on_tape: bool, permission: str) -> None:
    tape = recorded(ASK) if on_tape else MemoryTape()
    upstream = Upstream({"from": "live"})
    cassette = Cassette(tape, mode, upstream, environ=PERMISSIONS[permission])
    cell = MODE_TABLE[mode, on_tape, permission in PERMITTING[mode]]
    match cell:
        case Cell.ANSWER:
            assert cassette.call(ASK) == {"n": 1}
        case Cell.CALL:
            assert cassette.call(ASK) == {"from": "live"}
        case Cell.MISS:
            with pytest.raises(CassetteMiss):
                cassette.call(ASK)
        case Cell.REFUSE:
            refusal = BudgetExhausted if CALLS in PERMISSIONS[permission] else LatchClosed
            with pytest.raises(refusal) as caught:
                cassette.call(ASK)
            assert not isinstance(caught.value, CassetteMiss)
    assert len(upstream.calls) == (cell is Cell.CALL)
    assert len(list(tape.exchanges())) == on_tape + (cell is Cell.CALL)


@pytest.mark.row("A5")
@pytest.mark.parametrize("permission", PERMISSIONS)
def test_replay_never_permits_a_live_call(permission: str) -> None:
    cassette = Cassette(MemoryTape(), "replay", environ=PERMISSIONS[permission])
    assert not cassette.live_is_permitted
    for request in (ASK, post(ASK), {"another": 1}):
        assert isinstance(cassette.decide(request), Refusal)


def test_latch_and_budget_are_read_at_each_decision() -> None:
    environ: dict[str, str] = {}
    cassette = Cassette(MemoryTape(), "record", Upstream(), environ=environ)
    with pytest.raises(LatchClosed):
        cassette.call(ASK)
    environ[LATCH] = "1"
    assert cassette.call(ASK) == {"n": 1}
    environ[CALLS] = "0"
    with pytest.raises(BudgetExhausted):
        cassette.call({"another": 1})


def test_the_mode_comes_from_the_environment_where_none_is_given() -> None:
    assert Cassette(MemoryTape(), environ={MODE: "live"}).mode is Mode.LIVE
    assert Cassette(MemoryTape(), environ={}).mode is Mode.REPLAY


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"mode": "reply"}, "'reply' is not a mode"),
        ({"environ": {CALLS: "many"}}, f"{CALLS}='many'"),
        ({"repeated": "sometimes"}, "neither 'reuse' nor 'ordered'"),
    ],
)
def test_a_setting_that_cannot_be_read_fails_at_once(options: dict[str, Any], what: str) -> None:
    with pytest.raises(BadSetting, match=what):
        Cassette(MemoryTape(), **options)


# --- refusals as values


@pytest.mark.row("A6")
def test_a_miss_says_what_is_missing_and_what_to_type() -> None:
    cassette = Cassette(recorded({"prompt": "hello"}), "replay")
    verdict = cassette.decide({"prompt": "hallo"})
    assert isinstance(verdict, Refusal)
    key = req_hash({"prompt": "hallo"})[:12]
    assert verdict.error.message == f"cassette miss: {key} on memory"
    assert verdict.error.remedy.startswith("nearest: ")
    assert "differs at prompt" in verdict.error.remedy
    assert "DEMO_LIVE=1 CASSETTE_MODE=record" in verdict.error.remedy


@pytest.mark.row("A6")
def test_a_closed_latch_names_the_key_and_the_ways_to_open_it() -> None:
    verdict = Cassette(MemoryTape(), "record", environ={}).decide(ASK)
    assert isinstance(verdict, Refusal)
    assert verdict.error.message.startswith(f"the latch is closed: {req_hash(ASK)[:12]} ")
    assert "CASSETTE_LIVE_BUDGET=20" in verdict.error.remedy


@pytest.mark.row("B4")
def test_a_spent_budget_names_key_budget_and_what_is_gone() -> None:
    cassette = Cassette(MemoryTape(), "record", Upstream(), limits=Limits(calls=1))
    cassette.call(ASK)
    with pytest.raises(BudgetExhausted) as caught:
        cassette.call({"another": 1})
    text = str(caught.value.code)
    assert f"key={req_hash({'another': 1})[:12]} budget=1 calls" in text
    assert "spent: 1 calls" in text
    assert "tapes budget reset" in text
    assert "or raise CASSETTE_LIVE_BUDGET" in text


@pytest.mark.row("N17")
def test_a_limit_that_a_call_alone_would_pass_says_so_and_what_helps() -> None:
    limits = Limits(calls=5, tokens=40)
    cassette = Cassette(MemoryTape(), "record", Upstream(), limits=limits)
    verdict = cassette.decide({"prompt": "x" * 100, "max_tokens": 10})
    assert isinstance(verdict, Refusal)
    message, remedy = verdict.error.message, verdict.error.remedy
    assert "spent: nothing; this call may use 139 tokens" in message
    assert remedy == "raise CASSETTE_LIVE_BUDGET_TOKENS, or bound the call closer (max_tokens)"


@pytest.mark.row("N17")
def test_a_limit_of_zero_names_the_limit_that_is_zero() -> None:
    verdict = Cassette(MemoryTape(), "record", limits=Limits(calls=5, tokens=0)).decide(ASK)
    assert isinstance(verdict, Refusal)
    assert "live calls: CASSETTE_LIVE_BUDGET_TOKENS=100000 CASSETTE_MODE" in verdict.error.remedy


@pytest.mark.row("N08")
def test_a_recording_that_was_left_incomplete_says_so() -> None:
    key = req_hash(ASK)
    evidence = Exchange(evidence_key(key), "tape/1", ASK, {}, state=State.UPSTREAM_ERROR)
    verdict = Cassette(MemoryTape((evidence,)), "replay").decide(ASK)
    assert isinstance(verdict, Refusal)
    assert isinstance(verdict.error, IncompleteRecording)


def test_what_did_not_end_answers_nothing_wherever_it_lies() -> None:
    cut = Exchange(req_hash(ASK), "tape/1", ASK, {"n": 1}, state=State.ABORTED_BY_CLIENT)
    assert isinstance(Cassette(MemoryTape((cut,)), "replay").decide(ASK), Refusal)


def test_a_recording_under_another_rule_is_named() -> None:
    request = {"prompt": "é", "created": 1}
    answer = Exchange(key_of(DIRECTORY.text(request)), "directory/1", None, {"n": 1})
    verdict = Cassette(MemoryTape((answer,)), "replay").decide(request)
    assert isinstance(verdict, Refusal)
    assert isinstance(verdict.error, WrongCanonicalizer)
    assert verdict.error.remedy == 'open it with canonicalizer="directory/1"'
    cassette = Cassette(MemoryTape((answer,)), "replay", canonicalizer="directory/1")
    assert cassette.call(request) == {"n": 1}


def test_an_answer_of_the_other_kind_is_no_answer() -> None:
    over_http = Exchange(req_hash(ASK), "http/1", None, Response(200))
    verdict = Cassette(MemoryTape((over_http,)), "replay").decide(ASK)
    assert isinstance(verdict, Refusal)
    assert isinstance(verdict.error, TapeFailed)
    assert "is an HTTP response, not plain JSON" in verdict.error.message


class Damaged(MemoryTape):
    def find(self, key: str) -> Exchange | None:
        raise DamagedTape("line 7 is broken", "mend it")


@pytest.mark.parametrize("mode", [Mode.REPLAY, Mode.RECORD])
def test_a_tape_that_cannot_be_read_is_a_refusal_and_never_a_live_call(mode: Mode) -> None:
    upstream = Upstream()
    cassette = Cassette(Damaged(), mode, upstream, latch=True)
    with pytest.raises(TapeFailed, match="line 7 is broken\nmend it"):
        cassette.call(ASK)
    assert upstream.calls == []


def test_a_budget_that_cannot_be_counted_permits_nothing(tmp_path: Path) -> None:
    (tmp_path / ".tapes").write_text("in the way")
    upstream = Upstream()
    cassette = Cassette(tmp_path / "t.jsonl", "record", upstream, limits=Limits(calls=3))
    with pytest.raises(LedgerFailed):
        cassette.call(ASK)
    assert upstream.calls == []
    cassette.close()


@pytest.mark.row("N17")
def test_a_call_that_nothing_bounds_is_refused_under_a_limit_of_tokens() -> None:
    upstream = Upstream()
    cassette = Cassette(MemoryTape(), "record", upstream, limits=Limits(tokens=1000))
    with pytest.raises(UnboundedCall):
        cassette.call(ASK)
    assert cassette.call({**ASK, "max_tokens": 5}) == {"n": 1}


@pytest.mark.parametrize("request_", [{"a": float("nan")}, {"a": object()}, {1: 2}, ["list"]])
def test_a_request_without_a_key_is_an_error_and_never_a_live_call(request_: Any) -> None:
    upstream = Upstream()
    cassette = Cassette(MemoryTape(), "live", upstream)
    with pytest.raises(NotCanonical):
        cassette.call(request_)
    assert upstream.calls == []


# --- calls with dicts


@pytest.mark.row("A4")
def test_a_plain_callable_gets_the_request_and_its_answer_is_kept() -> None:
    upstream = Upstream()
    cassette = Cassette(MemoryTape(), "record", upstream, latch=True)
    request = {"prompt": "hi", "timestamp": "now"}
    assert cassette.call(request) == {"n": 1}
    assert cassette.call({"prompt": "hi", "timestamp": "later"}) == {"n": 1}
    assert upstream.calls == [request]


@pytest.mark.row("A4")
def test_async_and_plain_callables_serve_async_calls() -> None:
    async def answer(request: dict[str, Any]) -> Any:
        await asyncio.sleep(0)
        return {"echo": request["prompt"]}

    async def main() -> None:
        cassette = Cassette(MemoryTape(), "record", answer, latch=True)
        assert await cassette.acall({"prompt": "a"}) == {"echo": "a"}
        assert await cassette.acall({"prompt": "b"}, live=lambda _: {"plain": 1}) == {"plain": 1}
        assert await cassette.acall({"prompt": "a"}) == {"echo": "a"}
        assert len(list(cassette.tape.exchanges())) == 2
        with pytest.raises(LatchClosed):
            await Cassette(MemoryTape(), "record", answer).acall(ASK)

    asyncio.run(main())


def test_an_async_callable_for_a_plain_call_is_refused_and_costs_nothing() -> None:
    async def answer(_: dict[str, Any]) -> Any:
        return {}

    cassette = Cassette(MemoryTape(), "record", answer, limits=Limits(calls=1))
    for _ in range(2):
        with pytest.raises(AsyncLive, match="use: await cassette"):
            cassette.call(ASK)


def test_without_anything_to_call_the_remedy_is_named() -> None:
    with pytest.raises(MissingLive, match="pass the function"):
        Cassette(MemoryTape(), "record", latch=True).call(ASK)


def test_one_call_may_bring_its_own_upstream() -> None:
    cassette = Cassette(MemoryTape(), "record", Upstream(), latch=True)
    assert cassette.call(ASK, live=lambda _: "own") == "own"


@pytest.mark.row("F07")
@pytest.mark.parametrize("times", [1, 2, 3])
def test_every_answer_is_an_object_of_its_own(times: int) -> None:
    cassette = Cassette(recorded(ASK), "replay")
    for _ in range(times):
        cassette.call(ASK)["n"] = "changed"
    assert cassette.call(ASK) == {"n": 1}


def test_a_closed_cassette_answers_no_more(tmp_path: Path) -> None:
    cassette = Cassette(tmp_path / "t.jsonl", "record", Upstream(), latch=True)
    cassette.call(ASK)
    cassette.call(ASK)
    cassette.close()
    with pytest.raises(ClosedTape):
        cassette.call(ASK)


def test_a_request_that_changes_while_it_is_answered_keeps_its_key() -> None:
    def answer(request: dict[str, Any]) -> Any:
        request["messages"].append("changed")
        return {"ok": True}

    cassette = Cassette(MemoryTape(), "record", answer, latch=True)
    cassette.call({"messages": ["hi"]})
    assert Cassette(cassette.tape, "replay").call({"messages": ["hi"]}) == {"ok": True}


@pytest.mark.row("B11")
def test_one_sample_of_many_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    cassette = Cassette(MemoryTape(), "record", Upstream(), latch=True)
    with caplog.at_level(logging.WARNING):
        cassette.call({"temperature": 0})
        assert caplog.records == []
        cassette.call({"temperature": 0.9})
        cassette.call({"temperature": 0.8})
        cassette.decide(post({"temperature": 0.7}))
    assert [record.getMessage().split(":")[0] for record in caplog.records] == [
        "recording one sample of many"
    ]


# --- several answers to one request


@pytest.mark.row("N03")
def test_by_default_an_answer_is_reused_and_the_report_says_so() -> None:
    upstream = Upstream()
    cassette = Cassette(MemoryTape(), "record", upstream, latch=True)
    assert [cassette.call(ASK)["n"] for _ in range(3)] == [1, 1, 1]
    assert len(upstream.calls) == 1
    assert cassette.report.as_dict()["reused"] == 2
    replaying = Cassette(cassette.tape, "replay")
    assert [replaying.call(ASK)["n"] for _ in range(3)] == [1, 1, 1]
    assert replaying.report.reused == 2


@pytest.mark.row("N03")
def test_samples_are_kept_and_served_by_number() -> None:
    cassette = Cassette(MemoryTape(), "record", Upstream(), latch=True)
    assert [cassette.call(ASK, sample=n)["n"] for n in range(3)] == [1, 2, 3]
    replaying = Cassette(cassette.tape, "replay")
    assert [replaying.call(ASK, sample=n)["n"] for n in (2, 0, 1)] == [3, 1, 2]
    with sample(1):
        assert replaying.call(ASK)["n"] == 2
    assert replaying.call(ASK)["n"] == 1
    with pytest.raises(CassetteMiss, match=r"sample 3.*has 3 answers there, and one more"):
        replaying.call(ASK, sample=3)
    with pytest.raises(CassetteMiss, match=r"sample 7.* 3 are there, but not this one"):
        replaying.call(ASK, sample=7)


@pytest.mark.row("N15")
def test_a_miss_says_that_the_request_on_the_tape_was_edited(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with Cassette(path, "record", Upstream(), latch=True) as cassette:
        cassette.call({"prompt": "before"})
    path.write_text(path.read_text().replace("before", "after"))
    with Cassette(path) as replaying, pytest.raises(CassetteMiss, match="key of another") as miss:
        replaying.call({"prompt": "after"})
    assert f"tapes tape verify {path}" in miss.value.remedy


@pytest.mark.parametrize("number", [-1, True, "1", 1.0])
def test_what_is_no_sample_number_is_refused(number: Any) -> None:
    cassette = Cassette(MemoryTape(), "record", Upstream(), latch=True)
    with pytest.raises(BadSetting, match="a sample number is 0 or more"):
        cassette.call(ASK, sample=number)
    assert not list(cassette.tape.exchanges())


@pytest.mark.row("N03")
def test_an_ordered_group_serves_answers_in_their_recorded_order() -> None:
    cassette = Cassette(MemoryTape(), "record", Upstream(), latch=True)
    with ordered():
        assert [cassette.call(ASK)["n"] for _ in range(3)] == [1, 2, 3]
    replaying = Cassette(cassette.tape, "replay", repeated="ordered")
    assert [replaying.call(ASK)["n"] for _ in range(3)] == [1, 2, 3]
    with pytest.raises(CassetteMiss):
        replaying.call(ASK)
    with ordered():
        assert replaying.call(ASK)["n"] == 1


def test_a_call_that_came_to_nothing_keeps_its_place_in_the_order() -> None:
    tape = MemoryTape()
    failing = Cassette(tape, "record", latch=True, repeated="ordered")

    def fails(_: dict[str, Any]) -> Any:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        failing.call(ASK, live=fails)
    assert failing.call(ASK, live=lambda _: "first") == "first"
    assert Cassette(tape, "replay", repeated="ordered").call(ASK) == "first"


# --- over HTTP


@pytest.mark.row("N14")
def test_a_recording_with_one_key_replays_for_another_or_none() -> None:
    tape = recorded(post(ASK, ("authorization", "Bearer AAA-1"), url="http://h/v1?key=AAA"))
    cassette = Cassette(tape, "replay")
    for request in (
        post(ASK, ("authorization", f"Bearer {KEY}"), url="http://h/v1?key=BBB"),
        post(ASK),
        post(ASK, url="http://other/v1?key=C"),
    ):
        assert isinstance(cassette.decide(request), Play)
    assert "AAA" not in str(list(tape.exchanges()))


@pytest.mark.row("N14")
def test_the_program_sends_and_sees_the_real_values() -> None:
    cassette = Cassette(MemoryTape(), "record", latch=True)
    request = post({"api_key": KEY})
    permit = cassette.decide(request)
    assert isinstance(permit, Permit)
    assert permit.request is request


def test_a_declared_header_belongs_to_the_identity_while_recording_too() -> None:
    declared = Declared(headers=frozenset({"x-variant"}))
    tape = recorded(post(ASK, ("x-variant", "a")), declared=declared)
    cassette = Cassette(tape, "record", latch=True, declared=declared)
    assert isinstance(cassette.decide(post(ASK, ("x-variant", "a"))), Play)
    assert isinstance(cassette.decide(post(ASK, ("x-variant", "b"))), Permit)


def test_secrets_are_refused_where_that_is_declared_and_not_under_replay() -> None:
    declared = Declared(secrets="refuse")
    with pytest.raises(SecretFound):
        Cassette(MemoryTape(), "record", latch=True, declared=declared).decide(post({"t": KEY}))
    verdict = Cassette(MemoryTape(), "replay", declared=declared).decide(post({"t": KEY}))
    assert isinstance(verdict, Refusal)


# --- secrets and rules in calls with dicts


@pytest.mark.row("N13")
def test_no_secret_of_a_call_reaches_the_tape(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    upstream = Upstream({"echo": KEY, "access_token": "t0ken-of-the-day"})
    with Cassette(path, "record", upstream, latch=True) as cassette:
        request = {"prompt": f"my key is {KEY}", "api_key": "s3cret-value", "timestamp": 1}
        assert cassette.call(request)["echo"] == KEY
        assert cassette.call(request)["echo"] != KEY  # as it lies on the tape
    with Cassette(path, "replay") as replaying:
        assert replaying.call({**request, "api_key": "another"})["echo"].startswith("REDACTED.")
    everything = b"".join(f.read_bytes() for f in tmp_path.rglob("*") if f.is_file())
    for secret in (KEY, "s3cret-value", "t0ken-of-the-day"):
        assert secret.encode() not in everything


def test_a_users_pattern_holds_for_calls_with_dicts() -> None:
    patterns = tuple(user_patterns([{"name": "customer", "pattern": r"C-\d{4}"}], "f"))
    tape = recorded({"text": "for C-1234"}, declared=Declared(patterns=patterns))
    assert "C-1234" not in str(list(tape.exchanges()))


RULE = Rule.of({"at": "/prompt", "pattern": r"\d+:\d\d"})


@pytest.mark.row("N12")
def test_what_is_declared_to_vary_does_not_count() -> None:
    declared = Declared(rules=(RULE,))
    tape = recorded({"prompt": "it is 9:15"}, declared=declared)
    (exchange,) = tape.exchanges()
    assert exchange.request == {"prompt": "it is 9:15"}
    assert exchange.rules == (RULE.declaration(),)
    assert Cassette(tape, "replay", declared=declared).call({"prompt": "it is 9:16"}) == {"n": 1}
    with pytest.raises(CassetteMiss):
        Cassette(tape, "replay", declared=Declared()).call({"prompt": "it is 9:16"})


@pytest.mark.row("N12")
def test_a_rule_declared_later_holds_for_older_recordings() -> None:
    tape = recorded({"prompt": "it is 9:15"}, {"prompt": "it was 9:15"})
    cassette = Cassette(tape, "replay", declared=Declared(rules=(RULE,)))
    assert cassette.call({"prompt": "it was 12:00"}) == {"n": 2}


# --- one live call for all who ask


def waits_for(event: threading.Event, upstream: Upstream) -> Callable[[dict[str, Any]], Any]:
    def answer(request: dict[str, Any]) -> Any:
        assert event.wait(20)
        return upstream(request)

    return answer


@pytest.mark.row("N04")
def test_threads_that_ask_the_same_share_one_live_call() -> None:
    upstream, go, asked = Upstream(), threading.Event(), threading.Barrier(9)
    cassette = Cassette(MemoryTape(), "record", waits_for(go, upstream), latch=True)

    def ask(_: int) -> Any:
        asked.wait(20)
        return cassette.call(ASK)

    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(ask, n) for n in range(8)]
        asked.wait(20)
        go.set()
        assert [answer.result() for answer in answers] == [{"n": 1}] * 8
    assert len(upstream.calls) == 1
    assert cassette.report.as_dict()["live"] == 1


@pytest.mark.row("N04")
def test_tasks_that_ask_the_same_share_one_live_call() -> None:
    upstream = Upstream()

    async def main() -> list[Any]:
        async def answer(request: dict[str, Any]) -> Any:
            await asyncio.sleep(0)
            return upstream(request)

        cassette = Cassette(MemoryTape(), "record", answer, latch=True)
        return await asyncio.gather(*(cassette.acall(ASK) for _ in range(8)))

    assert asyncio.run(main()) == [{"n": 1}] * 8
    assert len(upstream.calls) == 1


def test_a_plain_call_does_not_wait_for_a_task_of_its_own_thread() -> None:
    async def main() -> tuple[Any, Any]:
        begun, go = asyncio.Event(), asyncio.Event()

        async def answer(_: dict[str, Any]) -> Any:
            begun.set()
            await go.wait()
            return "async"

        cassette = Cassette(MemoryTape(), "record", latch=True)
        task = asyncio.create_task(cassette.acall(ASK, live=answer))
        await begun.wait()
        plain = cassette.call(ASK, live=lambda _: "plain")
        go.set()
        return plain, await task

    assert asyncio.run(main()) == ("plain", "async")


def test_an_upstream_that_asks_the_same_does_not_wait_for_itself() -> None:
    cassette = Cassette(MemoryTape(), "record", latch=True)
    answer = cassette.call(ASK, live=lambda r: cassette.call(r, live=lambda _: "inner"))
    assert answer == "inner"


def test_an_async_upstream_that_asks_the_same_does_not_wait_for_itself() -> None:
    cassette = Cassette(MemoryTape(), "record", latch=True)

    async def outer(request: dict[str, Any]) -> Any:
        return await cassette.acall(request, live=lambda _: "inner")

    assert asyncio.run(asyncio.wait_for(cassette.acall(ASK, live=outer), 20)) == "inner"


class Racing(MemoryTape):
    """Somebody else records the answer just after we looked for it."""

    def find(self, key: str) -> Exchange | None:
        found = super().find(key)
        if found is None:
            self.append(Exchange(key, "tape/1", ASK, {"by": "another"}))
        return found


def test_an_answer_that_came_between_looking_and_calling_is_used() -> None:
    upstream = Upstream()
    assert Cassette(Racing(), "record", upstream, latch=True).call(ASK) == {"by": "another"}
    assert upstream.calls == []


def test_who_waited_takes_over_where_the_call_failed() -> None:
    cassette = Cassette(MemoryTape(), "record", latch=True)
    first = cassette.decide(ASK)
    assert isinstance(first, Permit)

    def other() -> Verdict:
        verdict = cassette.decide(ASK)
        assert isinstance(verdict, Busy)
        first.failed(we_left=False)
        return verdict.wait()

    with ThreadPoolExecutor(1) as pool:
        assert isinstance(pool.submit(other).result(), Permit)


@pytest.mark.row("N04")
def test_nothing_is_lost_and_nothing_is_mixed_up_by_many_threads(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    requests = [{"prompt": f"number {n}"} for n in range(40)]
    with (
        Cassette(path, "record", lambda r: {"echo": r["prompt"]}, latch=True) as cassette,
        ThreadPoolExecutor(8) as pool,
    ):
        list(pool.map(cassette.call, requests))
    with Cassette(path, "replay") as cassette, ThreadPoolExecutor(3) as pool:
        answers = list(pool.map(cassette.call, reversed(requests)))
    assert answers == [{"echo": r["prompt"]} for r in reversed(requests)]
    assert len(path.read_text().splitlines()) == 40


# --- processes

CALLER = """
import os, sys
from pathlib import Path
from tapes import BudgetExhausted, Cassette

def upstream(request):
    log = os.open("calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(log, b"call\\n")
    os.close(log)
    return {{"text": "x", "usage": {{"prompt_tokens": 10, "completion_tokens": 20}}}}

cassette = Cassette("t.jsonl", "record", upstream)
print("ready", flush=True)
sys.stdin.readline()
refused = 0
for n in range({times}):
    try:
        cassette.call({request})
    except BudgetExhausted as error:
        refused += 1
        print(error.message, file=sys.stderr)
cassette.close()
print(refused)
"""


def calls_by_processes(
    count: int, cwd: Path, request: str, times: int = 1, **settings: str
) -> tuple[int, int]:
    """How many live calls so many processes made that started at once; how many were refused."""
    code = CALLER.format(request=request, times=times)
    outputs = run_together(count, code, cwd, **settings)
    log = cwd / "calls"
    made = len(log.read_text().splitlines()) if log.exists() else 0
    return made, sum(map(int, outputs))


@pytest.mark.row("N04", "N05", "A12")
def test_processes_that_ask_the_same_share_one_live_call(tmp_path: Path) -> None:
    assert calls_by_processes(6, tmp_path, '{"prompt": "same"}', DEMO_LIVE="1") == (1, 0)


@pytest.mark.row("B5", "N17")
def test_of_eight_processes_at_once_exactly_three_get_a_live_call(tmp_path: Path) -> None:
    made = calls_by_processes(
        8, tmp_path, '{"pid": os.getpid()}', DEMO_LIVE="1", CASSETTE_LIVE_BUDGET="3"
    )
    assert made == (3, 5)


@pytest.mark.row("N17")
def test_a_limit_of_tokens_holds_over_processes(tmp_path: Path) -> None:
    # Each call sets aside up to 200 tokens and uses 30 of them: never more than 300 in all.
    request = '{"pid": os.getpid(), "n": n, "max_tokens": 100}'
    made, refused = calls_by_processes(
        4, tmp_path, request, times=5, CASSETTE_LIVE_BUDGET_TOKENS="300"
    )
    assert made + refused == 20
    assert 1 <= made <= 10
    with Cassette(tmp_path / "t.jsonl", "replay") as cassette:
        assert cassette._shared_ledger().spent().tokens == 30 * made


@pytest.mark.row("N17")
def test_a_limit_of_dollars_holds_over_processes(tmp_path: Path) -> None:
    request = '{"pid": os.getpid(), "n": n, "max_tokens": 100, "model": "gpt-4o-mini"}'
    made, refused = calls_by_processes(
        3, tmp_path, request, times=4, CASSETTE_LIVE_BUDGET_USD="0.0001"
    )
    assert made + refused == 12
    assert made >= 1
    assert refused >= 1
    with Cassette(tmp_path / "t.jsonl", "replay") as cassette:
        assert Decimal(0) < cassette._shared_ledger().spent().usd <= Decimal("0.0001")


@pytest.mark.row("B5")
def test_a_process_that_is_killed_in_its_call_has_spent_its_unit(tmp_path: Path) -> None:
    result = run(
        """
        import os, signal
        from tapes import Cassette
        def upstream(request):
            os.kill(os.getpid(), signal.SIGKILL)
        Cassette("t.jsonl", "record", upstream).call({"prompt": "hi"})
        """,
        tmp_path,
        CASSETTE_LIVE_BUDGET="1",
    )
    assert result.returncode == -9
    upstream = Upstream()
    with (
        Cassette(tmp_path / "t.jsonl", "record", upstream, limits=Limits(calls=1)) as cassette,
        pytest.raises(BudgetExhausted),
    ):
        cassette.call(ASK)
    assert upstream.calls == []


# --- calls that are left


def test_a_task_that_is_cancelled_in_its_call_has_spent_its_unit_and_lets_others_go_on() -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def hangs(_: dict[str, Any]) -> Any:
            begun.set()
            await asyncio.sleep(60)

        cassette = Cassette(MemoryTape(), "record", limits=Limits(calls=2))
        task = asyncio.create_task(cassette.acall(ASK, live=hangs))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert cassette._shared_ledger().spent().calls == 1
        assert await cassette.acall(ASK, live=lambda _: "second") == "second"

    asyncio.run(main())


# --- kinds of tape


def test_a_directory_is_keyed_by_its_own_documents_rule(tmp_path: Path) -> None:
    with Cassette(
        DirectoryTape(tmp_path / "answers"), "record", Upstream(), latch=True
    ) as cassette:
        cassette.call({"prompt": "é", "trace_id": 1})
        key = key_of(DIRECTORY.text({"prompt": "é"}))
        assert (tmp_path / "answers" / f"{key}.json").exists()
        assert cassette.canonicalizer is DIRECTORY


@pytest.mark.row("A2")
@pytest.mark.parametrize("name", ["t.jsonl", "t.db"])
def test_the_request_lies_on_the_tape_in_its_canonical_form(name: str, tmp_path: Path) -> None:
    request = {"b": 1, "a": "ü", "cwd": "/home"}
    with Cassette(tmp_path / name, "record", Upstream(), latch=True) as cassette:
        cassette.call(request)
        (exchange,) = cassette.tape.exchanges()
    assert exchange.key == req_hash(request)
    assert isinstance(exchange.request, dict)
    assert canonicalize(exchange.request) == canonicalize(request)
    assert "cwd" not in exchange.request


@pytest.mark.row("B13")
@pytest.mark.parametrize("other", ["u.jsonl", "u.db", "answers/"])
def test_recordings_move_between_kinds_of_tape_with_their_keys(other: str, tmp_path: Path) -> None:
    requests: list[Any] = [{"prompt": "é", "n": 1.0}, {"prompt": KEY}, post(ASK)]
    source = recorded(*requests)
    target = open_tape(tmp_path / other)
    for exchange in source.exchanges():
        target.append(exchange)
    for exchange in target.exchanges():
        again = key_of_exchange_request(exchange.canonicalizer, exchange.request)
        assert exchange.key == again
    with Cassette(target, "replay", canonicalizer="tape/1") as cassette:
        for request in requests:
            verdict, original = cassette.decide(request), Cassette(source).decide(request)
            assert isinstance(verdict, Play)
            assert isinstance(original, Play)
            assert verdict.exchange.response == original.exchange.response


def test_a_long_secret_in_a_path_is_gone_as_well() -> None:
    tape = recorded(post({}, url=f"http://h/v1/sk-{A36}/x"))
    assert A36 not in str(list(tape.exchanges()))
