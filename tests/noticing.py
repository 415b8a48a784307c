"""Exchanges as lanes notice them, made from what a test wants to say and nothing more."""

import json
import time

from tapes.capture.noticed import Noticed
from tapes.exchange import Headers, Piece, Request, Response, State
from tapes.rows import Outcome


def asked(text: str, **more: object) -> bytes:
    """The body of a chat completion."""
    said = {"model": "m", "messages": [{"role": "user", "content": text}], **more}
    return json.dumps(said).encode()


def answered(text: str, call: str = "c-1") -> bytes:
    """The body of its answer."""
    message = {"role": "assistant", "content": text}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    return json.dumps({"id": call, "model": "m", "choices": [choice], "usage": usage}).encode()


def noticed(
    text: str = "hi",
    answer: str | bytes | None = "hello",
    *,
    headers: Headers = (),
    answer_headers: Headers = (("Content-Type", "application/json"),),
    url: str = "https://api.openai.com/v1/chat/completions",
    body: bytes | None = None,
    status: int = 200,
    state: State = State.COMPLETE,
    outcome: Outcome = Outcome.LIVE,
    lane: str = "proxy",
    cut: bool = False,
) -> Noticed:
    """A call that began just now and took a second."""
    now = time.time_ns()
    response = None
    if answer is not None:
        data = answered(answer) if isinstance(answer, str) else answer
        response = Response(status, answer_headers, (Piece(0.5, data),), "OK")
    request = Request("POST", url, headers, asked(text) if body is None else body)
    return Noticed(
        request=request,
        response=response,
        state=state,
        outcome=outcome,
        started_at=now,
        ended_at=now + 10**9,
        lane=lane,
        cut=cut,
    )
