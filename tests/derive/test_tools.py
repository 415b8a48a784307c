"""Tool calls of every harness, and what became of them."""

from tapes.derive.deriver import derive
from tapes.jsontext import Json
from tapes.rows import LinkKind, RawTurn, SpanKind, Status
from tests.derive.talks import span
from tests.turns import (
    chat,
    raw_turn,
    said,
)


def test_shells_of_other_harnesses_are_shown_as_what_people_know_and_fail_as_they_say() -> None:
    tools = [
        {"id": "c1", "function": {"name": "shell", "arguments": '{"command":["ls","x"]}'}},
        {"id": "c2", "function": {"name": "exec_command", "arguments": '{"cmd":"ls"}'}},
        {"id": "c3", "function": {"name": "shell", "arguments": "{}"}},
    ]
    ask, asks = said("user", "go"), said("assistant", None, tool_calls=tools)
    outputs = ['{"output":"x","metadata":{"exit_code":2}}', "Process exited with code 0\nok", "1"]
    back = [said("tool", out, tool_call_id=f"c{n}") for n, out in enumerate(outputs, 1)]
    made = derive([chat(1, [ask], asks), chat(2, [ask, asks, *back], "done")])
    shown = [(span(made, f"c{n}").name, span(made, f"c{n}").status) for n in (1, 2, 3)]
    assert shown == [("Bash", Status.ERROR), ("Bash", Status.OK), ("shell", Status.OK)]


def test_a_line_that_tells_no_exit_status_is_no_failure() -> None:
    tools = [{"id": "c1", "function": {"name": "shell", "arguments": '{"command":["ls"]}'}}]
    ask, asks = said("user", "go"), said("assistant", None, tool_calls=tools)
    back = said("tool", "Exit code: \u00b2\nExit code: --5", tool_call_id="c1")
    made = derive([chat(1, [ask], asks), chat(2, [ask, asks, back], "done")])
    assert span(made, "c1").status is Status.OK


def generated(number: int, contents: list[Json], *parts: Json) -> RawTurn:
    """A call of Gemini's generateContent."""
    answer = {"candidates": [{"content": model(*parts), "finishReason": "STOP"}]}
    return raw_turn(number, "/v1beta/models/m:generateContent", {"contents": contents}, answer)


def model(*parts: Json) -> dict[str, Json]:
    return {"role": "model", "parts": list(parts)}


def asked(command: str, **more: Json) -> Json:
    return {"functionCall": {"name": "shell", "args": {"command": command}, **more}}


def came(tool_id: str, output: str) -> Json:
    return {"functionResponse": {"id": tool_id, "name": "shell", "response": {"output": output}}}


def test_a_result_finds_the_call_that_an_agent_gave_an_id_after_it_was_answered() -> None:
    user: Json = {"role": "user", "parts": [{"text": "go"}]}
    history: list[Json] = [user]
    turns = [generated(1, list(history), asked("one"), asked("two"), asked("one"))]
    history += [
        model(asked("one", id="x_0"), asked("two", id="x_1"), asked("one", id="x_2")),
        {"role": "user", "parts": [came("x_1", "2"), came("x_0", "1"), came("x_2", "3")]},
    ]
    turns.append(generated(2, list(history), asked("one")))
    history += [
        model(asked("one", id="x_3")),
        {"role": "user", "parts": [came("x_3", "4")]},
    ]
    turns.append(generated(3, history, {"text": "done"}))
    made = derive(turns)
    tools = [one for one in made.spans if one.kind is SpanKind.TOOL]
    outputs = [block["tool_output"] for one in tools for block in one.output]
    assert outputs == ["1", "2", "3", "4"]
    assert all(one.status is Status.OK for one in tools)
    assert sum(link.kind is LinkKind.FEEDS for link in made.links) == 4
