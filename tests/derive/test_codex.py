"""Codex 0.171.0 as it talks: its requests and its own logs, recorded against a scripted model.

Instructions of the harness and definitions of tools are cut; ids and the folder are made up.
"""

import json
from dataclasses import replace
from pathlib import Path

from tapes.capture.noticed import KEPT_HEADERS, turn_of
from tapes.derive.deriver import derive
from tapes.jsontext import Json
from tapes.providers.openai_responses import RESPONSES
from tapes.providers.turn import no_memo
from tapes.redact import Redactor
from tapes.rows import Projection, RawTurn, Span, SpanKind, Status
from tests.derive.talks import span
from tests.noticing import noticed

CALLS = Path(__file__).parent.parent / "data" / "codex-0.171" / "calls.jsonl"
SECOND = 10**9


def recorded() -> list[dict[str, Json]]:
    return [json.loads(line) for line in CALLS.read_text().splitlines()]


def answer(number: int, output: Json) -> bytes:
    usage = {"input_tokens": 100, "output_tokens": 7, "total_tokens": 107}
    whole = {"id": f"resp_{number}", "object": "response", "status": "completed", "output": output}
    event = {"type": "response.completed", "response": {**whole, "model": "m", "usage": usage}}
    return f"event: response.completed\ndata: {json.dumps(event)}\n\n".encode()


def turn(number: int, call: dict[str, Json]) -> RawTurn:
    body = {"model": "m", "stream": True, "tool_choice": "auto", "input": call["input"]}
    seen = noticed(
        url="https://api.openai.com/v1/responses",
        headers=tuple(call["headers"].items()),
        body=json.dumps(body).encode(),
        answer=answer(number, call["output"]),
        answer_headers=(("content-type", "text/event-stream"),),
    )
    at = number * 10 * SECOND
    seen = replace(seen, started_at=at, ended_at=at + SECOND)
    made, reason = turn_of(
        seen, Redactor(keep=KEPT_HEADERS), received_at=at, new_id=f"r{number}"
    )  # fmt: skip
    assert reason is None
    return replace(made, id=number)


def derived() -> Projection:
    return derive([turn(number, call) for number, call in enumerate(recorded(), 1)])


def agent(made: Projection) -> Span:
    (found,) = (s for s in made.spans if s.name == "subagent")
    return found


def test_what_an_agent_reports_is_no_prompt_of_a_person() -> None:
    made = derived()
    (trace,) = made.traces
    assert (trace.user_prompt, trace.response_preview) == (
        "DELEGATE this", "The sub-agent counted.",
    )  # fmt: skip


def test_an_agent_hangs_under_the_call_that_named_the_path_that_its_task_goes_to() -> None:
    made = derived()
    found, spawn = agent(made), span(made, "call_0020")
    assert (found.parent_span_id, found.anchor) == (spawn.span_id, "task_name")
    assert spawn.input[0]["tool_input"]["description"] == "/root/count_words"


def test_a_result_that_an_agent_found_missing_is_not_the_result() -> None:
    agents_first, mains_next = recorded()[1:3]
    outputs = [
        item["output"]
        for call in (agents_first, mains_next)
        for item in call["input"]
        if item["type"] == "function_call_output"
    ]
    assert outputs[0] == "aborted"  # the agent's request came first
    spawn = span(derived(), "call_0020")
    assert spawn.status is Status.OK
    assert [block["tool_output"] for block in spawn.output] == [outputs[1]]


def test_the_task_is_what_the_agents_first_call_says_first() -> None:
    made = derived()
    first = next(s for s in made.spans if s.kind is SpanKind.LLM and s.thread_id)
    assert [block["type"] for block in first.input] == [
        "agent_message",
        "text",
        "encrypted_content",
    ]
    assert first.input[0]["content"] == {"author": "/root", "recipient": "/root/count_words"}


def test_what_sets_the_model_up_is_no_message_and_its_tools_are_tools() -> None:
    asked = RESPONSES.asked({"input": recorded()[0]["input"]}, "/v1/responses", no_memo)
    assert [tool.name for tool in asked.tools] == ["exec", "spawn_agent", "wait_agent"]
    assert [message.role for message in asked.messages] == ["developer"] * 4 + ["user"] * 2
