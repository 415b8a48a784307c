"""From an exchange to its turn, or to the reason why it is none."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from tapes.exchange import Exchange, Piece, Request, Response, State
from tapes.jsontext import Json
from tapes.providers.ending import Ending
from tapes.providers.reading import (
    POLICY,
    DropReason,
    drop_reason,
    is_turn_request,
    plain_path,
    provider_of_path,
    provider_of_value,
    read,
)
from tapes.providers.reduced import reduced
from tapes.providers.turn import AnswerState, Failure, Text, Turn, failure_of, text_of
from tapes.providers.usage import Usage
from tests.cases import CASES, Case, case, exchange
from tests.turns import exchanged

ASKED = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
SAID = json.dumps(
    {"model": "m-1", "choices": [{"message": {"content": "hello"}, "finish_reason": "stop"}]}
).encode()


def chat(body: bytes = SAID, **how: Json) -> Exchange:
    return exchange("/v1/chat/completions?api-version=1", ASKED, body, **how)


def turn_of(made: Exchange) -> Turn:
    turn = read(made)
    assert isinstance(turn, Turn)
    return turn


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_providers_exchange_is_a_turn(case: Case) -> None:
    turn = turn_of(exchange(case.path, case.request, case.stream, content_type=case.content_type))
    assert (turn.provider, turn.api) == (case.provider.name, case.provider.api)
    assert turn.answer.state is AnswerState.COMPLETE
    assert drop_reason(exchange(case.path, case.request, case.oneshot)) is None


def test_bodies_are_read_through_their_content_codings() -> None:
    made = chat(gzip.compress(SAID))
    assert isinstance(made.request, Request)
    assert isinstance(made.response, Response)
    coded = (("content-encoding", "gzip"),)
    request = replace(made.request, headers=coded, body=gzip.compress(made.request.body))
    response = replace(made.response, headers=(*made.response.headers, *coded))
    turn = turn_of(replace(made, request=request, response=response))
    assert turn.answer.parts == (Text("hello"),)
    assert turn.asked.messages[0].parts == (Text("hi"),)


def test_a_stream_that_says_no_type_or_a_wrong_one_is_seen_by_its_look() -> None:
    stream = case("openai_chat/tool-calls").stream
    for content_type in ("", "text/plain", "application/json"):
        assert turn_of(chat(stream, content_type=content_type)).answer.finish_reason == "tool_calls"
    lines = case("ollama/generate").stream
    made = exchange("/api/generate", {"prompt": "x"}, lines, content_type="application/json")
    assert turn_of(made).answer.finish_reason == "length"


def test_the_last_event_counts_though_its_blank_line_was_cut() -> None:
    stream = b'data: {"choices":[{"index":0,"delta":{"content":"Hel"}}]}\n\n'
    cut = b'data: {"choices":[{"index":0,"delta":{"content":"lo"}}]}'
    turn = turn_of(chat(stream + cut, content_type="text/event-stream"))
    assert turn.answer.parts == (Text("Hello"),)
    assert turn_of(chat(stream + cut[:-1], content_type="text/event-stream")).answer.parts == (
        Text("Hel"),
    )


def test_a_client_that_leaves_in_mid_stream_leaves_a_turn_without_reason_and_usage() -> None:
    stream = b"".join(
        b'data: {"choices":[{"index":0,"delta":{"content":"%b"},"finish_reason":null}]}\n\n' % piece
        for piece in (b"Hel", b"lo")
    )
    made = chat(stream, content_type="text/event-stream", state=State.ABORTED_BY_CLIENT)
    answer = turn_of(made).answer
    assert answer.parts == (Text("Hello"),)
    assert answer.state is AnswerState.TRUNCATED
    assert (answer.finish_reason, answer.usage, answer.failure) == (None, None, None)


def test_a_failed_call_is_a_turn_that_shows_what_was_asked_and_how_it_failed() -> None:
    body = b'{"error":{"type":"rate_limit","message":"slow down"}}'
    turn = turn_of(chat(body, status=429))
    assert turn.answer.failure == Failure("rate_limit", "slow down", 429)
    assert turn.asked.messages[0].parts == (Text("hi"),)
    assert turn_of(chat(b"<html>bad gateway", status=502)).answer.failure == Failure(
        "502", "<html>bad gateway", 502
    )


def test_a_call_that_nobody_answered_says_why() -> None:
    made = chat()
    for state, code in (
        (State.UPSTREAM_ERROR, "upstream_no_response"),
        (State.ABORTED_BY_CLIENT, "client_disconnect"),
    ):
        silent = replace(made, response=Response(0), state=state)
        assert turn_of(silent).answer.failure == Failure(code)
        assert drop_reason(silent) == code
    headless = replace(made, response=Response(0, pieces=(Piece(0.1, b"x"),)))
    assert drop_reason(headless) is DropReason.MISSING_STATUS


def test_a_call_with_dicts_is_read_by_the_shape_of_its_answer() -> None:
    made = Exchange("", "tape/1", ASKED, json.loads(SAID))
    assert turn_of(made).api == "chat"
    assert read(Exchange("", "tape/1", {"prompt": "x"}, {"text": "ok"})) is (
        DropReason.UNKNOWN_PROVIDER
    )


def test_a_reduced_form_is_believed_where_it_is_current_or_all_there_is() -> None:
    made = chat()
    form = reduced(turn_of(made).answer)
    form["message"]["content"][0]["text"] = "as kept"
    stale = form | {"tapes": {"reducer": 0}}
    assert read(made, form).answer.parts == (Text("as kept"),)  # type: ignore[union-attr] # a turn
    assert read(made, stale).answer.parts == (Text("hello"),)  # type: ignore[union-attr] # a turn
    told = read(replace(made, response=None), stale)
    assert told.answer.parts == (Text("as kept"),)  # type: ignore[union-attr] # a turn


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_where_nobody_says_a_path_the_providers_name_says_the_shape(case: Case) -> None:
    made = exchange(case.path, case.request, case.stream, content_type=case.content_type)
    assert isinstance(made.request, Request)
    pathless = replace(made, request=replace(made.request, url=""))
    turn = read(pathless, provider_name=case.provider.name)
    assert isinstance(turn, Turn)
    assert turn.api == case.provider.api
    assert turn.state is AnswerState.COMPLETE
    assert read(pathless) is DropReason.UNKNOWN_PROVIDER


def test_a_route_may_give_a_provider_its_own_name() -> None:
    turn = read(chat(), provider_name="groq")
    assert isinstance(turn, Turn)
    assert (turn.provider, turn.api) == ("groq", "chat")


# --- reasons ----------------------------------------------------------------------------------


def test_reasons_come_in_their_order() -> None:
    made = chat()
    assert isinstance(made.request, Request)
    assert isinstance(made.response, Response)
    broken = replace(made.request, body=b"{broken")
    other = replace(made.request, url="https://provider.test/v1/models")
    unread = replace(made.request, url="https://bedrock.test/model/m/converse")
    empty = replace(made.response, pieces=())
    coded = replace(made.response, headers=(("content-encoding", "gzip"),))
    prose = replace(made.response, pieces=(Piece(0.1, b"good morning"),))
    assert [
        drop_reason(replace(made, request=other, response=replace(made.response, status=500))),
        drop_reason(replace(made, request=other)),
        drop_reason(replace(made, request=broken, response=empty)),
        drop_reason(replace(made, request=unread, response=empty)),
        drop_reason(replace(made, request=unread)),
        drop_reason(replace(made, response=coded)),
        drop_reason(replace(made, response=prose)),
    ] == list(POLICY)


def test_the_words_of_the_reasons_are_the_contracts(reference_data: Path) -> None:
    cases = [
        json.loads(file.read_text())
        for file in (reference_data / "tapes-fixtures/drop-reason/cases").glob("*.json")
    ]
    assert {told["name"] for told in cases} == {reason.value for reason in DropReason}
    policy = {told["name"] for told in cases if told["class"] == "policy"}
    assert policy == {reason.value for reason in POLICY}


def test_the_contracts_examples_are_decided_alike(reference_data: Path) -> None:
    decided = 0
    for file in (reference_data / "tapes-fixtures/drop-reason/cases").glob("*.json"):
        told = json.loads(file.read_text())
        for example in told.get("examples", ()):
            asked = example.get("request", {"method": "POST", "path": "/v1/messages"})
            status = example.get("response", {}).get("status", 200)
            reason = drop_reason(_exchange(asked["method"], asked["path"], status))
            dropped = example["expect"] == "dropped"
            assert reason == (told["name"] if dropped else None), example
            decided += 1
    assert decided == 22


def _exchange(method: str, path: str, status: int) -> Exchange:
    """An exchange of that path with an answer that its provider could have given."""
    provider = provider_of_path(path.partition("?")[0].rstrip("/"))
    api = provider.api if provider is not None else "messages"
    body = next(case.oneshot for case in CASES if case.provider.api == api)
    request = Request(method, f"https://provider.test{path}", (), b"{}")
    return Exchange("", "http/1", request, Response(status, (), (Piece(0.1, body),)))


@pytest.mark.parametrize(
    "path",
    [
        "/v1/messages", "/v1/chat/completions", "/v1/responses", "/codex/responses", "/api/chat",
        "/api/generate", "/v1/completions", "/openai/deployments/d/chat/completions",
        "/v1beta/models/m:generateContent", "/v1beta/models/m:streamGenerateContent?alt=sse",
        "/v1/messages?beta=true", "/v1/messages/", "/gateway/anthropic/v1/messages",
    ],
)  # fmt: skip
def test_model_calls_are_known_by_their_path(path: str) -> None:
    for method in ("POST", "post", ""):
        assert is_turn_request(method, f"https://provider.test{path}")
    assert not is_turn_request("GET", f"https://provider.test{path}")


@pytest.mark.parametrize(
    "path", ["/v1/messages/count_tokens", "/v1/models", "/api/hello", "/v1/embeddings", "/"]
)
def test_other_requests_are_no_turns(path: str) -> None:
    assert not is_turn_request("POST", f"https://provider.test{path}")


# --- a real server's bytes --------------------------------------------------------------------


def real(folder: Path, name: str) -> Exchange:
    return exchanged(folder / "real-model" / f"{name}.json")


def test_a_real_servers_answer_is_the_same_streamed_or_not(reference_data: Path) -> None:
    stream = turn_of(real(reference_data, "chat-ticket-stream")).answer
    whole = turn_of(real(reference_data, "chat-ticket")).answer
    assert stream.parts == whole.parts
    assert stream.finish_reason == whole.finish_reason == "length"
    assert (stream.ending, whole.usage) == (
        Ending.SAID,
        Usage(35, 60, model="gemma-3-270m"),
    )
    assert stream.usage is None


def test_a_real_servers_error_is_a_failed_turn(reference_data: Path) -> None:
    turn = turn_of(real(reference_data, "error-bad-body"))
    assert turn.answer.failure is not None
    assert (turn.answer.failure.code, turn.answer.failure.status) == ("internal_server_error", 500)
    assert turn.asked.model == "gemma-3-270m"


def test_a_real_completion_is_read(reference_data: Path) -> None:
    turn = turn_of(real(reference_data, "completion"))
    assert turn.asked.messages[0].parts == (Text("Once upon a time, a cassette"),)
    assert text_of(turn.answer.parts).startswith(" tape was a staple")


def test_a_real_stream_of_many_scripts_is_read_whole(reference_data: Path) -> None:
    turn = turn_of(real(reference_data, "chat-unicode-stream"))
    assert turn.answer.state is AnswerState.COMPLETE
    assert "\ufffd" not in text_of(turn.answer.parts)


def test_what_is_no_url_has_no_path_and_is_no_model_call() -> None:
    assert plain_path("http://[half/v1/messages") == ""
    assert not is_turn_request("POST", "http://[half/v1/messages")


def test_a_type_that_is_no_text_names_no_provider() -> None:
    assert provider_of_value({"type": [], "content": []}) is None
    assert provider_of_value({"choices": [], "type": {}}) is not None


def test_a_body_that_is_nested_too_deeply_is_an_answer_of_nobody() -> None:
    deep = b"[" * 1000 + b"]" * 1000
    turn = turn_of(chat(deep))
    assert turn.answer.failure == Failure("reducer_error", "it is nested too deeply")
    assert failure_of(json.loads(b"[" * 900 + b"]" * 900)) is None
