"""What a lane saw becomes a turn: clean, with its caller and an identity."""

import gzip
import json
from typing import Any

import pytest

from tapes.capture.noticed import KEPT_HEADERS, Noticed, turn_of
from tapes.exchange import Request, Response, State
from tapes.providers.reading import DropReason
from tapes.redact import Redactor
from tapes.rows import Outcome, RawTurn
from tests.noticing import answered, asked, noticed

KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"


def made(seen: Noticed, new_id: str = "new") -> tuple[RawTurn, DropReason | None]:
    return turn_of(seen, Redactor(keep=KEPT_HEADERS), received_at=7, new_id=new_id)


def test_a_call_becomes_a_turn_with_its_bytes_its_times_and_its_reduced_form() -> None:
    seen = noticed("question", "answer")
    turn, reason = made(seen)
    assert reason is None
    assert turn.exchange is not None
    assert isinstance(seen.request, Request)
    assert turn.exchange.request.body == seen.request.body
    assert turn.exchange.response.pieces == seen.response.pieces
    assert (turn.started_at, turn.ended_at) == (seen.started_at, seen.ended_at)
    assert turn.reduced["message"]["content"] == [{"type": "text", "text": "answer"}]


@pytest.mark.row("D2")
def test_no_credential_comes_to_rest_wherever_it_stood() -> None:
    headers = (
        ("Authorization", "Bearer test-bearer-abcdef"),
        ("x-api-key", "test-header-0001"),
        ("x-tapes-session-name", f"with%20{KEY}"),
    )
    url = "https://g.test/v1beta/models/m:generateContent?key=TEST-QUERY-0123456789"
    body = json.dumps({"contents": [{"parts": [{"text": f"my key is {KEY}"}]}]}).encode()
    seen = noticed(headers=headers, url=url, body=body, answer=answered(f"so it is {KEY}"))
    text = repr(made(seen)[0])
    for secret in ("test-bearer-abcdef", "test-header-0001", "TEST-QUERY-0123456789", KEY):
        assert secret not in text


def test_a_compressed_answer_keeps_its_bytes_and_is_read() -> None:
    data = gzip.compress(answered("packed"))
    how = (("content-type", "application/json"), ("content-encoding", "gzip"))
    turn, reason = made(noticed(answer=data, answer_headers=how))
    assert reason is None
    assert turn.exchange is not None
    assert turn.exchange.response.body == data
    assert turn.reduced["message"]["content"][0]["text"] == "packed"


CASES: dict[str, tuple[dict[str, Any], DropReason | None]] = {
    "refused by the provider": ({"status": 429}, DropReason.UPSTREAM_STATUS),
    "no answer": (
        {"answer": None, "state": State.UPSTREAM_ERROR},
        DropReason.UPSTREAM_NO_RESPONSE,
    ),
    "left by the client": (
        {"answer": None, "state": State.ABORTED_BY_CLIENT},
        DropReason.CLIENT_DISCONNECT,
    ),
    "empty": ({"answer": b""}, DropReason.EMPTY_RESPONSE),
    "no JSON": ({"answer": b"<html>"}, DropReason.REDUCER_ERROR),
    "a call that nobody reads": (
        {"url": "https://bedrock.test/model/m/converse"},
        DropReason.UNKNOWN_PROVIDER,
    ),
    "refused here": ({"answer": None, "outcome": Outcome.REFUSED}, None),
}


@pytest.mark.parametrize(("how", "reason"), CASES.values(), ids=CASES.keys())
def test_what_was_not_answered_is_a_turn_all_the_same_and_says_why(
    how: dict[str, Any], reason: DropReason | None
) -> None:
    turn, why = made(noticed(**how))
    assert why == reason
    assert turn.exchange is not None
    assert turn.exchange.state is how.get("state", State.COMPLETE)


# --- identity ---------------------------------------------------------------------------------

CALLED = (("content-type", "application/json"), ("x-request-id", "req_1"))


def test_one_call_that_two_lanes_see_has_one_identity() -> None:
    proxy = noticed("q", answer_headers=CALLED, headers=(("authorization", "Bearer x"),))
    inside = noticed("q", answer_headers=CALLED, lane="process", outcome=Outcome.RECORDED)
    assert made(proxy, "a")[0].request_id == made(inside, "b")[0].request_id


def test_other_calls_have_others() -> None:
    ids = {
        made(noticed(text, answer_headers=CALLED, answer=answered("x", call)), "new")[0].request_id
        for text, call in (("q", "c-1"), ("p", "c-1"), ("q", "c-2"))
    }
    assert len(ids) == 3


@pytest.mark.parametrize(
    "how",
    [{}, {"answer_headers": CALLED, "outcome": Outcome.REPLAYED}],
    ids=["unnamed", "replayed"],
)
def test_a_call_that_its_provider_did_not_name_is_a_call_of_its_own(how: dict[str, Any]) -> None:
    assert made(noticed("q", **how), "new-1")[0].request_id == "new-1"


# --- whose it is ------------------------------------------------------------------------------


def test_the_caller_says_its_session_and_not_its_tenant() -> None:
    headers = (
        ("x-tapes-harness-id", "mine"),
        ("x-tapes-harness-session-id", "s-1"),
        ("x-paper-auth-org-id", "11111111-1111-4111-8111-111111111111"),
        ("x-tapes-agent-name", "planner"),
        ("x-claude-code-agent-id", "sub-1"),
    )
    turn, _ = made(noticed(headers=headers))
    envelope = turn.envelope
    assert (envelope.harness_id, envelope.harness_session_id, envelope.org_id) == (
        "mine",
        "s-1",
        "",
    )
    assert (turn.agent_name, turn.thread_id, turn.session_by) == ("planner", "sub-1", "header")


def test_a_session_that_only_the_body_names_is_found_there() -> None:
    turn, _ = made(noticed(body=asked("hi", metadata={"session_id": "from-body"})))
    assert (turn.envelope.harness_session_id, turn.session_by) == ("from-body", "body")


def test_an_answer_that_was_too_large_leaves_what_was_read_of_it() -> None:
    turn, _ = made(noticed(answer="long", cut=True))
    assert turn.dropped
    assert turn.exchange is not None
    assert isinstance(turn.exchange.response, Response)
    assert turn.exchange.response.pieces == ()
    assert turn.reduced["message"]["content"][0]["text"] == "long"


@pytest.mark.parametrize(
    "name", ["session-id", "x-claude-code-session-id", "x-tapes-harness-session-id"]
)
def test_an_id_that_no_index_can_hold_is_told_by_its_beginning_and_hash(name: str) -> None:
    ids = [f"{'s' * 4000}{number}" for number in (1, 2, 1)]
    turns = [made(noticed(headers=((name, each), ("thread-id", each * 2))))[0] for each in ids]
    named = [(turn.envelope.harness_session_id, turn.thread_id) for turn in turns]
    assert named[0] == named[2] != named[1]
    assert all(len(session) < 200 and len(thread) < 200 for session, thread in named)
