"""Tool calls of every harness, and what became of them."""

from tapes.derive.deriver import derive
from tapes.rows import Status
from tests.derive.talks import span
from tests.turns import (
    chat,
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
