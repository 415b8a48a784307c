"""Spans that came over OTLP, as one session of them is derived."""

from tapes.derive.deriver import derive
from tapes.jsontext import Json
from tapes.rows import RawTurn, Source
from tests.steps import steps_of

TRACE = "a" * 32
AGENT: dict[str, Json] = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "deep"}
CALL: dict[str, Json] = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt-test"}


def told(number: int, parent: int, attributes: dict[str, Json]) -> RawTurn:
    """One span in the log; a parent of 0 is none."""
    form: dict[str, Json] = {
        "trace_id": TRACE,
        "span_id": f"{number:016x}",
        "parent_id": f"{parent:016x}" if parent else "",
        "name": f"span {number}",
        "started": number,
        "ended": 10_000 - number,
        "attributes": attributes,
        "events": [],
        "status": 1,
        "message": "",
    }
    return RawTurn(
        request_id=f"otlp:{number}",
        source=Source.OTLP,
        id=number,
        records=form,
        meta={},
        started_at=number,
        ended_at=10_000 - number,
        received_at=number,
    )


def nested(count: int) -> list[RawTurn]:
    """Agents in agents, and a call inside all."""
    return [told(n, n - 1, AGENT if n < count else CALL) for n in range(1, count + 1)]


def test_spans_in_spans_take_no_more_work_each_the_deeper_they_lie() -> None:
    few, many = steps_of(lambda: derive(nested(100))), steps_of(lambda: derive(nested(400)))
    assert many < 5 * few


def test_of_agents_in_agents_the_inner_one_is_the_thread_and_the_outer_ones_are_none() -> None:
    made = derive([told(1, 0, AGENT), told(2, 1, AGENT), told(3, 2, AGENT), told(4, 3, CALL)])
    assert [span.thread_id[-1:] for span in made.spans] == ["", "", "2", "3"]


def test_of_calls_around_calls_only_the_innermost_counts_also_over_steps_between() -> None:
    made = derive([told(1, 0, CALL), told(2, 1, {}), told(3, 2, CALL), told(4, 3, CALL)])
    assert [span.kind.value for span in made.spans] == ["step", "step", "step", "llm"]


def test_of_spans_that_name_each_other_as_parents_one_is_the_call() -> None:
    made = derive([told(1, 2, CALL), told(2, 1, CALL)])
    assert sorted(span.kind.value for span in made.spans) == ["llm", "step"]


def test_a_call_that_has_no_content_leaves_it_to_the_span_of_the_same_answer_around_it() -> None:
    answered = CALL | {"gen_ai.response.id": "msg_1", "gen_ai.usage.input_tokens": 76}
    content: dict[str, Json] = {
        "gen_ai.input.messages": '[{"role":"user","parts":[{"type":"text","content":"Rain?"}]}]',
        "gen_ai.output.messages": '[{"parts":[{"type":"text","content":"Yes"}]}]',
    }
    made = derive([told(1, 0, AGENT), told(2, 1, answered | content), told(3, 2, answered)])
    assert [span.kind.value for span in made.spans] == ["agent", "llm", "step"]
    assert made.traces[0].user_prompt == "Rain?"
    assert made.traces[0].response_preview == "Yes"


def test_a_call_without_content_and_of_another_answer_is_a_call() -> None:
    one, other = (CALL | {"gen_ai.response.id": name} for name in ("msg_1", "msg_2"))
    made = derive([told(1, 0, one), told(2, 1, other)])
    assert [span.kind.value for span in made.spans] == ["step", "llm"]


def test_the_input_of_a_tool_counts_before_the_schema_that_openinference_puts_beside_it() -> None:
    tool: dict[str, Json] = {
        "openinference.span.kind": "TOOL",
        "tool.name": "get_weather",
        "input.value": '{"city": "Oslo"}',
        "tool.parameters": '{"properties": {"city": {"type": "string"}}, "type": "object"}',
    }
    (span,) = derive([told(1, 0, tool)]).spans
    assert span.input[0]["tool_input"] == {"city": "Oslo"}


def test_what_a_tool_of_the_agent_development_kit_was_given_and_gave() -> None:
    tool: dict[str, Json] = {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "get_weather",
        "gcp.vertex.agent.tool_call_args": '{"city": "Oslo"}',
        "gcp.vertex.agent.tool_response": '{"weather": "rain in Oslo"}',
    }
    (span,) = derive([told(1, 0, tool)]).spans
    assert span.input[0]["tool_input"] == {"city": "Oslo"}
    assert "rain in Oslo" in str(span.output)


def test_arguments_by_name_are_those_of_the_tool() -> None:
    given = '{"args": [], "sanitize_inputs_outputs": true, "kwargs": {"city": "Oslo"}}'
    tool: dict[str, Json] = {"openinference.span.kind": "TOOL", "input.value": given}
    (span,) = derive([told(1, 0, tool)]).spans
    assert span.input[0]["tool_input"] == {"city": "Oslo"}
