"""One live call: what becomes of its answer."""

import gzip
import json
import os
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tapes.budget import Limits
from tapes.cassette import Cassette, Play, Refusal
from tapes.errors import NotAnAnswer, TapeFailed, UnwritableTape
from tapes.exchange import Exchange, Request, Response, State
from tapes.permit import PASSING_STATUSES, Permit
from tapes.project import Declared
from tapes.tape.base import MemoryTape
from tapes.tape.jsonl import JsonlTape
from tests.tape.homes import fork

SSE = (("content-type", "text/event-stream"),)
JSON_TYPE = (("content-type", "application/json"),)
WHOLE = (
    b'data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":"a"}}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n',
    b"data: [DONE]\n\n",
)
FAILED = (WHOLE[0], b'data: {"error":{"message":"overloaded"}}\n\n', b"data: [DONE]\n\n")


def post(value: Any) -> Request:
    body = json.dumps(value).encode()
    return Request("POST", "http://h/v1/chat/completions", JSON_TYPE, body)


ASK = post({"stream": True, "max_tokens": 10})


def recording(tape: Any = None, **options: Any) -> Cassette:
    return Cassette(MemoryTape() if tape is None else tape, "record", latch=True, **options)


def permit_for(cassette: Cassette, request: Any = ASK) -> Permit:
    verdict = cassette.decide(request)
    assert isinstance(verdict, Permit)
    return verdict


def answered(cassette: Cassette, *pieces: bytes, status: int = 200, headers: Any = SSE) -> Permit:
    permit = permit_for(cassette)
    permit.answered(status, headers, "OK")
    for piece in pieces:
        permit.feed(piece)
    return permit


def played(cassette: Cassette, request: Any = ASK) -> Response:
    verdict = cassette.decide(request)
    assert isinstance(verdict, Play)
    assert isinstance(verdict.exchange.response, Response)
    return verdict.exchange.response


def replaying(cassette: Cassette) -> Cassette:
    """Another run, on the same tape."""
    return Cassette(cassette.tape, "replay", declared=Declared())


def kept(cassette: Cassette) -> list[Exchange]:
    return list(cassette.tape.exchanges())


# --- whole answers


@pytest.mark.row("N06")
def test_a_whole_answer_replays_in_the_pieces_in_which_it_came() -> None:
    cassette = recording()
    exchange = answered(cassette, *WHOLE).finish()
    assert exchange is not None
    response = played(cassette)
    assert [piece.data for piece in response.pieces] == list(WHOLE)
    assert [piece.at for piece in response.pieces] == sorted(p.at for p in response.pieces)
    assert (response.status, response.reason, response.headers) == (200, "OK", SSE)


def test_a_second_end_does_nothing() -> None:
    cassette = recording()
    permit = answered(cassette, *WHOLE)
    permit.finish()
    assert permit.finish() is None
    assert permit.abandon(State.ABORTED_BY_CLIENT) is None
    permit.failed(we_left=False)
    assert len(kept(cassette)) == 1


# --- a cassette that is closed before


@pytest.mark.row("B8", "N08")
def test_what_nobody_ended_is_evidence_when_the_tape_is_closed(tmp_path: Path) -> None:
    with recording(tmp_path / "t.jsonl") as cassette:
        permit = answered(cassette, WHOLE[0])
    permit.abandon(State.ABORTED_BY_CLIENT)  # whoever collects it comes late, and is left in peace
    with Cassette(tmp_path / "t.jsonl") as replaying:
        verdict = replaying.decide(ASK)
    assert isinstance(verdict, Refusal)
    assert verdict.error.slug == "incomplete"
    assert cassette.report.as_dict()["incomplete"] == 1


def test_what_had_said_its_last_word_is_whole_when_the_tape_is_closed(tmp_path: Path) -> None:
    with recording(tmp_path / "t.jsonl") as cassette:
        permit = answered(cassette, *WHOLE)
    assert not permit.abandon(State.ABORTED_BY_CLIENT)
    with Cassette(tmp_path / "t.jsonl") as replaying:
        assert played(replaying).body == b"".join(WHOLE)


def test_an_answer_that_is_read_to_its_end_too_late_is_refused(tmp_path: Path) -> None:
    with recording(tmp_path / "t.jsonl", limits=Limits(calls=2)) as cassette:
        permit = answered(cassette, WHOLE[0])
        plain = permit_for(cassette, {"n": 1})
    for end in (permit.finish, lambda: plain.keep({"a": 1})):
        with pytest.raises(TapeFailed, match="closed before the answer was whole"):
            end()
    assert len(JsonlTape(tmp_path / "t.jsonl").keys()) == 0


def test_a_child_that_closes_the_cassette_leaves_the_parents_calls_alone(tmp_path: Path) -> None:
    cassette = recording(tmp_path / "t.jsonl")
    permit = answered(cassette, *WHOLE[:2])
    pid = fork()
    if pid == 0:
        cassette.close()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    permit.feed(WHOLE[2])
    permit.finish()
    assert [exchange.state for exchange in kept(cassette)] == [State.COMPLETE]


def test_a_tape_is_closed_also_where_what_came_cannot_be_kept(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with recording(tmp_path / "t.jsonl") as cassette:
        answered(cassette, WHOLE[0])
        permit = answered(cassette, WHOLE[0])
        cassette.tape.close()
    assert "cannot be kept" in caplog.text
    with pytest.raises(TapeFailed, match="closed before the answer was whole"):
        permit.finish()


# --- answers that are none


@pytest.mark.row("B8", "N08")
@pytest.mark.parametrize("state", [State.ABORTED_BY_CLIENT, State.UPSTREAM_ERROR])
def test_what_was_cut_is_kept_as_evidence_that_never_answers(state: State) -> None:
    cassette = recording()
    exchange = answered(cassette, WHOLE[0]).abandon(state)
    assert exchange is not None
    assert exchange.state is state
    replaying = Cassette(cassette.tape, "replay")
    verdict = replaying.decide(ASK)
    assert isinstance(verdict, Refusal)
    assert verdict.error.slug == "incomplete"
    assert "left incomplete" in verdict.error.message


@pytest.mark.row("B8")
def test_a_stream_that_ends_without_its_last_word_is_no_answer() -> None:
    cassette = recording()
    exchange = answered(cassette, WHOLE[0]).finish()
    assert exchange is not None
    assert exchange.state is State.UPSTREAM_ERROR
    assert isinstance(cassette.decide(ASK), Permit)


def test_a_stream_without_one_event_is_no_answer() -> None:
    exchange = answered(recording(), b": ping\n\n").finish()
    assert exchange is not None
    assert exchange.state is State.UPSTREAM_ERROR


def test_a_stream_that_is_left_after_its_last_word_is_whole() -> None:
    cassette = recording()
    answered(cassette, *WHOLE).abandon(State.ABORTED_BY_CLIENT)
    assert played(cassette).body == b"".join(WHOLE)


def test_a_coded_stream_is_judged_by_what_it_says() -> None:
    headers = (*SSE, ("content-encoding", "gzip"))
    whole, cut = gzip.compress(b"".join(WHOLE)), gzip.compress(WHOLE[0])
    cassette = recording()
    exchange = answered(cassette, cut, headers=headers).finish()
    assert exchange is not None
    assert exchange.state is State.UPSTREAM_ERROR
    answered(cassette, whole, headers=headers).finish()
    assert played(cassette).body == whole


def test_after_evidence_the_next_try_is_kept_as_the_answer() -> None:
    cassette = recording()
    answered(cassette, WHOLE[0]).abandon(State.ABORTED_BY_CLIENT)
    answered(cassette, *WHOLE).finish()
    assert played(cassette).body == b"".join(WHOLE)


@pytest.mark.parametrize("end", ["finish", "abandon"])
def test_a_call_whose_answer_never_began_leaves_nothing(end: str) -> None:
    cassette = recording()
    permit = permit_for(cassette)
    assert (permit.finish() if end == "finish" else permit.abandon(State.UPSTREAM_ERROR)) is None
    assert kept(cassette) == []


# --- errors of the provider


@pytest.mark.parametrize("status", sorted(PASSING_STATUSES)[:9])
def test_a_passing_error_is_not_stored_unless_told(status: int) -> None:
    cassette = recording()
    assert answered(cassette, b"{}", status=status, headers=JSON_TYPE).finish() is None
    assert cassette.report.as_dict()["not_stored"] == 1
    storing = recording(declared=Declared(errors="store"))
    answered(storing, b"{}", status=status, headers=JSON_TYPE).finish()
    assert played(replaying(storing)).status == status


def test_an_error_that_answers_the_request_is_stored() -> None:
    cassette = recording()
    answered(cassette, b'{"error":"bad request"}', status=400, headers=JSON_TYPE).finish()
    assert played(cassette).status == 400


def test_a_stream_that_failed_is_evidence_unless_errors_are_stored() -> None:
    cassette = recording()
    exchange = answered(cassette, *FAILED).finish()
    assert exchange is not None
    assert exchange.state is State.UPSTREAM_ERROR
    storing = recording(declared=Declared(errors="store"))
    answered(storing, *FAILED).finish()
    assert played(replaying(storing)).body == b"".join(FAILED)


# --- what it cost


def budgeted(**limits: Any) -> Cassette:
    return Cassette(MemoryTape(), "record", limits=Limits(**limits), price=price)


def price(usage: Any) -> Decimal:
    return Decimal(usage.total) / 1000


def spent(cassette: Cassette) -> tuple[int, int, Decimal]:
    total = cassette._shared_ledger().spent()
    return total.calls, total.tokens, total.usd


USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}\n\n'


@pytest.mark.row("N17")
def test_a_whole_answer_costs_what_it_reports() -> None:
    cassette = budgeted(tokens=10_000, usd=Decimal(100))
    answered(cassette, *WHOLE[:2], USAGE, WHOLE[2]).finish()
    assert spent(cassette) == (1, 7, Decimal("0.007"))


@pytest.mark.row("N17", "B5")
def test_a_call_that_failed_costs_nothing_and_one_that_we_left_all_that_was_set_aside() -> None:
    cassette = budgeted(tokens=10_000)
    permit_for(cassette).failed(we_left=False)
    assert spent(cassette) == (0, 0, Decimal(0))
    permit_for(cassette).failed(we_left=True)
    assert spent(cassette)[:2] == (1, len(ASK.body) + 10)


@pytest.mark.row("N17")
@pytest.mark.parametrize("status", [400, 429, 500])
def test_an_error_answer_is_a_call_and_costs_no_tokens(status: int) -> None:
    cassette = budgeted(tokens=10_000)
    answered(cassette, b"{}", status=status, headers=JSON_TYPE).finish()
    assert spent(cassette) == (1, 0, Decimal(0))


def test_a_cut_answer_costs_all_that_was_set_aside() -> None:
    cassette = budgeted(tokens=10_000)
    answered(cassette, WHOLE[0]).abandon(State.ABORTED_BY_CLIENT)
    assert spent(cassette)[:2] == (1, len(ASK.body) + 10)


def test_prices_are_not_looked_up_without_a_limit_in_dollars() -> None:
    def no_prices(_: Any) -> Decimal:
        raise AssertionError

    cassette = Cassette(MemoryTape(), "record", limits=Limits(calls=1), price=no_prices)
    answered(cassette, *WHOLE[:2], USAGE, WHOLE[2]).finish()
    assert spent(cassette)[:2] == (1, 7)


# --- plain JSON


@pytest.mark.row("A8")
@pytest.mark.parametrize(
    "response",
    [b"bytes", iter([1]), float("nan"), {"a": float("inf")}, {1: 2}, {"a": {None: 1}}, object()],
    ids=["bytes", "an iterator", "NaN", "infinity", "a number as key", "null as key", "an object"],
)
def test_what_is_not_json_is_refused_before_a_byte_is_written(
    response: Any, tmp_path: Path
) -> None:
    path = tmp_path / "t.jsonl"
    cassette = recording(path)
    with pytest.raises(NotAnAnswer, match="return plain JSON"):
        cassette.call({"a": 1}, live=lambda _: response)
    assert not path.exists()
    cassette.close()


@pytest.mark.row("F07")
def test_what_was_recorded_and_what_is_given_back_are_independent() -> None:
    source = {"list": [1]}
    cassette = recording()
    first = cassette.call({"a": 1}, live=lambda _: source)
    first["list"].append(2)
    source["list"].append(3)
    assert cassette.call({"a": 1}) == {"list": [1]}


class Full(MemoryTape):
    def append(self, exchange: Exchange) -> None:
        raise UnwritableTape("the disk is full", "free some space")


def test_a_tape_that_cannot_be_written_fails_the_call() -> None:
    with pytest.raises(TapeFailed, match="the disk is full\nfree some space"):
        recording(Full()).call({"a": 1}, live=lambda _: {})
    with pytest.raises(TapeFailed):
        answered(recording(Full()), *WHOLE).finish()


def test_a_tape_that_cannot_be_written_does_not_hold_up_the_next_call(tmp_path: Path) -> None:
    cassette = Cassette(Full(), "record", limits=Limits(calls=5))
    for _ in range(2):
        with pytest.raises(TapeFailed):
            cassette.call({"a": 1}, live=lambda _: {})
    assert spent(cassette)[0] == 2


def test_an_end_that_somebody_else_puts_on_the_tape_has_the_outcome_that_he_says() -> None:
    cassette = recording(MemoryTape())
    ends = []
    for n in ("one", "no"):
        permit = permit_for(cassette, post({"n": n}))
        permit.answered(200, JSON_TYPE, "OK")
        permit.feed(b"{}")
        end = permit.finishing()
        assert end is not None
        ends.append(end)
    one, no = ends
    assert one.stored() is one.exchange
    with pytest.raises(TapeFailed, match="the disk is full"):
        no.stored(UnwritableTape("the disk is full", "free some space"))
    assert cassette.report.counts == {"live": 2, "not_stored": 1}
    # Its flight has landed: the call may be tried again.
    assert isinstance(cassette.decide(post({"n": "no"})), Permit)


@pytest.mark.parametrize(
    ("limits", "pieces", "is_quick"),
    [
        (None, [b"{}"], True),
        (Limits(calls=9), [b"{}"], False),
        (None, [b"x" * 40_000], False),
        (None, [b"x"] * 50, False),
    ],
)
def test_an_end_is_quick_where_no_count_is_shared_and_the_answer_is_small(
    limits: Limits | None, pieces: list[bytes], is_quick: bool
) -> None:
    cassette = Cassette(MemoryTape(), "record", latch=True, limits=limits or Limits())
    permit = permit_for(cassette, post({"n": 1}))
    for piece in pieces:
        permit.feed(piece)
    assert permit.ends_quickly is is_quick


def test_a_row_says_when_and_by_which_rule_it_was_made(tmp_path: Path) -> None:
    cassette = recording(tmp_path / "t.jsonl")
    cassette.call({"a": 1}, live=lambda _: {"n": 1})
    (exchange,) = kept(cassette)
    assert exchange.canonicalizer == "tape/1"
    assert exchange.recorded_at is not None
    assert exchange.recorded_at.endswith("+00:00")
    assert isinstance(cassette.tape, JsonlTape)
    cassette.close()


def test_an_answer_that_could_not_be_kept_leaves_its_place_in_the_order() -> None:
    class FullOnce(MemoryTape):
        def append(self, exchange: Exchange) -> None:
            if not self._exchanges and not full:
                full.append(exchange)
                raise UnwritableTape("the disk is full")
            super().append(exchange)

    full = list[Exchange]()
    tape = FullOnce()
    cassette = recording(tape, repeated="ordered")
    with pytest.raises(TapeFailed):
        answered(cassette, *WHOLE).finish()
    answered(cassette, *WHOLE).finish()
    assert isinstance(Cassette(tape, "replay", repeated="ordered").decide(ASK), Play)
