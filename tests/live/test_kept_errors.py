"""Errors kept by choice, recorded from a real server, replayed in their order."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tapes
from tapes.cassette import Cassette, Play
from tapes.exchange import Request, Response, header
from tapes.permit import Permit
from tapes.project import Declared
from tapes.sending import send
from tapes.tape.base import MemoryTape, Tape
from tapes.tape.kinds import open_tape
from tests.late import late
from tests.loopback import Provider, event_answer, json_answer, provider

openai = late("openai")

KEEP = Declared(errors="store")


def script(*statuses: int) -> Iterator[Response]:
    for number, status in enumerate(statuses):
        advice = (("retry-after", "30"),) if status in (429, 503) else ()
        yield json_answer(f'{{"n": {number}}}', status, *advice)


def ask(cassette: Cassette, request: Request) -> tuple[int, str | None]:
    """What a client sees: the status, and how long it is told to wait."""
    verdict = cassette.decide(request)
    if isinstance(verdict, Permit):
        send(verdict)
        response = verdict.preview().response
        verdict.finish()
    else:
        assert isinstance(verdict, Play), verdict
        response = verdict.exchange.response
    assert isinstance(response, Response)
    return response.status, header(response.headers, "retry-after")


def record(tape: Tape, at: Provider, times: int, declared: Declared = KEEP) -> list[int]:
    cassette = Cassette(tape, "record", latch=True, declared=declared)
    return [ask(cassette, Request("GET", at.url + "/"))[0] for _ in range(times)]


def replay(tape: Tape, at: Provider, times: int) -> list[int]:
    cassette = Cassette(tape, "replay", declared=Declared())
    return [ask(cassette, Request("GET", at.url + "/"))[0] for _ in range(times)]


@pytest.mark.parametrize("name", ["t.jsonl", "t.db", "t/"])
def test_a_kept_429_and_the_200_after_it_replay_as_429_and_200(name: str, tmp_path: Path) -> None:
    answers = script(429, 503, 200)
    with provider(lambda _: next(answers)) as at:
        tape = open_tape(f"{tmp_path}/{name}")
        assert record(tape, at, 4) == [429, 503, 200, 200]
        assert len(at.requests) == 3
        for _ in range(2):
            assert replay(tape, at, 5) == [429, 503, 200, 200, 200]
        tape.close()


def test_a_later_run_records_from_where_the_first_one_gave_up() -> None:
    answers = script(429, 200)
    with provider(lambda _: next(answers)) as at:
        tape = MemoryTape()
        assert record(tape, at, 1) == [429]
        assert replay(tape, at, 3) == [429, 429, 429]
        assert record(tape, at, 2) == [429, 200]
        assert replay(tape, at, 2) == [429, 200]


def test_errors_are_not_kept_unless_somebody_chose_so() -> None:
    answers = script(429, 200)
    with provider(lambda _: next(answers)) as at:
        tape = MemoryTape()
        assert record(tape, at, 3, Declared()) == [429, 200, 200]
        assert replay(tape, at, 2) == [200, 200]


def test_a_recorded_wait_is_not_waited_for_unless_somebody_chose_so() -> None:
    answers = script(429, 200)
    with provider(lambda _: next(answers)) as at:
        tape = MemoryTape()
        record(tape, at, 2)
        request = Request("GET", at.url + "/")
        assert ask(Cassette(tape, "replay"), request) == (429, "0")
        as_recorded = Declared(retry_after="recorded")
        assert ask(Cassette(tape, "replay", declared=as_recorded), request) == (429, "30")
        kept = next(tape.exchanges()).response
        assert isinstance(kept, Response)
        assert header(kept.headers, "retry-after") == "30"


@pytest.mark.row("N03")
def test_in_an_ordered_group_kept_errors_have_their_own_place() -> None:
    answers = script(200, 429, 200)
    with provider(lambda _: next(answers)) as at:
        tape = MemoryTape()
        with tapes.ordered():
            assert record(tape, at, 3) == [200, 429, 200]
        with tapes.ordered():
            assert replay(tape, at, 3) == [200, 429, 200]


@pytest.mark.row("N03")
def test_a_chosen_sample_is_asked_again_after_its_error_and_keeps_the_answer() -> None:
    answers = script(429, 200, 200)
    with provider(lambda _: next(answers)) as at:
        tape = MemoryTape()
        cassette = Cassette(tape, "record", latch=True, declared=KEEP)
        request = Request("GET", at.url + "/")
        seen = []
        for number in (0, 0, 1, 0):
            with tapes.sample(number):
                seen.append(ask(cassette, request)[0])
        assert seen == [429, 200, 200, 200]
        assert replay(tape, at, 1) == [200]


def test_the_retry_of_one_request_does_not_move_another() -> None:
    with provider(lambda r: json_answer("{}", 429 if r.url.endswith("a") else 200)) as at:
        tape = MemoryTape()
        cassette = Cassette(tape, "record", latch=True, declared=KEEP)
        one, other = Request("GET", at.url + "/a"), Request("GET", at.url + "/b")
        assert [ask(cassette, r)[0] for r in (one, other, one, other)] == [429, 200, 429, 200]
        assert len(at.requests) == 3


def test_a_stream_that_ended_in_an_error_is_kept_and_passed_like_any_other_error() -> None:
    failed = event_answer('{"type":"message_start"}', '{"type":"error","error":{"type":"over"}}')
    whole = event_answer('{"type":"message_start"}', '{"type":"message_stop"}')
    answers = iter((failed, whole))
    with provider(lambda _: next(answers)) as at:
        tape = MemoryTape()
        request = Request("GET", at.url + "/")
        cassette = Cassette(tape, "record", latch=True, declared=KEEP)
        for _ in range(3):
            ask(cassette, request)
        again = Cassette(tape, "replay", declared=Declared())
        bodies = []
        for _ in range(3):
            verdict = again.decide(request)
            assert isinstance(verdict, Play)
            assert isinstance(verdict.exchange.response, Response)
            bodies.append(verdict.exchange.response.body)
        assert bodies == [failed.body, whole.body, whole.body]


@pytest.mark.timeout(25)  # the recorded advice is to wait for thirty seconds
def test_a_real_client_retries_at_once_and_gets_the_answer() -> None:
    advice = (("retry-after", "30"),)
    body = '{"id":"1","object":"chat.completion","created":1,"model":"m","choices":[]}'
    answers = iter((json_answer('{"error":{"message":"later"}}', 429, *advice), json_answer(body)))
    tape = MemoryTape()
    with provider(lambda _: json_answer("{}", 400)) as at, sdk(at.url) as client:
        with pytest.raises(openai.BadRequestError):
            chat(client)
        (asked,) = at.requests
    with provider(lambda _: next(answers)) as at:
        record_again = Cassette(tape, "record", latch=True, declared=KEEP)
        for _ in range(2):
            ask(record_again, replace(asked, url=at.url + "/v1/chat/completions"))
    cassette = Cassette(tape, "replay", declared=Declared())
    with provider(lambda r: played(cassette, r)) as at, sdk(at.url) as client:
        assert chat(client).model == "m"
        assert len(at.requests) == 2


def sdk(url: str) -> Any:
    return openai.OpenAI(base_url=f"{url}/v1", api_key="sk-test", max_retries=2)


def chat(client: Any) -> Any:
    return client.chat.completions.create(model="m", messages=[{"role": "user", "content": "x"}])


def played(cassette: Cassette, request: Request) -> Response:
    verdict = cassette.decide(request)
    assert isinstance(verdict, Play), verdict
    assert isinstance(verdict.exchange.response, Response)
    return verdict.exchange.response
