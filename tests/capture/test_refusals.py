"""Refusals in the shape in which each provider reports errors."""

import json
from typing import Annotated, Any

import pytest
from pydantic import BaseModel, Strict

from tapes.capture.refusals import answer, closes, refusal, without_body
from tapes.capture.routes import Dialect
from tapes.errors import (
    BudgetExhausted,
    CassetteError,
    CassetteMiss,
    LatchClosed,
    OversizeBody,
    TapeFailed,
    TapesError,
)
from tests.capture.llhttp import read_responses


def body_of(data: bytes) -> Any:
    read = read_responses(data)
    assert (read.error, read.messages) == (None, 1)
    return json.loads(read.body)


@pytest.mark.row("N15")
@pytest.mark.parametrize(
    ("dialect", "message"),
    [
        (Dialect.OPENAI, lambda body: body["error"]["message"]),
        (Dialect.ANTHROPIC, lambda body: body["error"]["message"]),
        (Dialect.GEMINI, lambda body: body["error"]["message"]),
        (Dialect.OLLAMA, lambda body: body["error"]),
        (Dialect.COHERE, lambda body: body["message"]),
        (Dialect.OPENROUTER, lambda body: body["error"]["message"]),
        (None, lambda body: body["error"]["message"]),
    ],
)
def test_the_diagnosis_is_where_the_provider_puts_its_message(
    dialect: Dialect | None, message: Any
) -> None:
    body = body_of(refusal(CassetteMiss("what happened", "what to type"), dialect))
    assert message(body) == "what happened\nwhat to type"


@pytest.mark.parametrize("error", [CassetteMiss, BudgetExhausted, LatchClosed, TapeFailed])
def test_a_refusal_has_a_status_that_nobody_retries_or_rewords(error: type[CassetteError]) -> None:
    read = read_responses(refusal(error("x"), Dialect.OPENAI))
    headers = dict(read.headers)
    assert read.status == 400
    assert headers[b"x-should-retry"] == b"false"
    assert headers[b"x-tapes-error"].decode() == error.slug


def every(base: type[Any]) -> dict[str, type[Any]]:
    below = (every(kind) for kind in base.__subclasses__())
    return {base.__name__: base, **{name: kind for kinds in below for name, kind in kinds.items()}}


REFUSALS = {**every(CassetteError), **every(TapesError)}


@pytest.mark.row("N15")
@pytest.mark.parametrize("name", sorted(REFUSALS))
def test_no_refusal_has_a_status_that_an_sdk_tries_again(name: str) -> None:
    # As Cohere's SDK decides, which looks at no header.
    error = REFUSALS[name]
    refused: Any = BaseException.__new__(error)
    TapesError.__init__(refused, "x") if issubclass(error, TapesError) else None
    refused.message, refused.remedy = "x", ""
    status = read_responses(refusal(refused, Dialect.COHERE)).status
    assert status < 500
    assert status not in (429, 408, 409)


class OfOpenRouter(BaseModel):
    """What its SDK takes for an error: anything else it calls a broken answer."""

    class Data(BaseModel):
        code: Annotated[int, Strict()]
        message: str
        metadata: dict[str, Any] | None = None

    error: Data
    user_id: str | None = None


def test_the_sdk_of_openrouter_reads_the_refusal_as_an_error_of_its_own() -> None:
    body = body_of(refusal(CassetteMiss("what", "remedy"), Dialect.OPENROUTER))
    read = OfOpenRouter.model_validate(body).error
    assert (read.code, read.message) == (400, "what\nremedy")


def test_another_error_keeps_its_status() -> None:
    assert read_responses(refusal(OversizeBody("x"), None)).status == 413


def test_an_upstream_that_failed_may_be_tried_again() -> None:
    headers = dict(read_responses(answer(502, "upstream-failed", "x", None, retry=True)).headers)
    assert b"x-should-retry" not in headers


def test_any_text_can_be_said() -> None:
    text = 'é\u2028"\n\udcff\x00'
    body = body_of(answer(400, "x", text, Dialect.OPENAI))
    assert body["error"]["message"].startswith('é\u2028"\n')


def test_an_answer_to_head_has_no_body() -> None:
    data = without_body(answer(400, "x", "message", None))
    assert data.endswith(b"\r\n\r\n")
    assert b"message" not in data


def test_whether_an_answer_ends_the_connection_can_be_read_in_it() -> None:
    assert closes(answer(400, "x", "m", None, close=True))
    assert not closes(answer(400, "x", "connection: close", None))
