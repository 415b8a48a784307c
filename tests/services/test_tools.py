import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes.errors import BadArguments
from tapes.services.tools import (
    MAX_ANSWER,
    MAX_TOOLS,
    Tool,
    alias_of,
    call_body,
    failure,
    result_of,
)

from .making import OBJECT_ANSWER, admitted, codes, document, refused, tool_operation, with_tool

Json = Any
RUN = "#/paths/~1api~1summary~1run/post"


def tool_of(schema: Json, **components: Json) -> Tool:
    (tool,) = admitted(with_tool(schema, **components)).tools
    return tool


def with_operation(**members: Json) -> Json:
    operation = tool_operation({"type": "object"}) | members
    return document(
        {"/api/summary/run": {"post": {k: v for k, v in operation.items() if v != ...}}}
    )


# --- listing ----------------------------------------------------------------------------------


@pytest.mark.row("C9")
def test_an_operation_becomes_a_tool_under_the_name_of_its_service() -> None:
    hints = {"readOnlyHint": True, "idempotentHint": False, "openWorldHint": False, "title": "x"}
    tree = with_operation(
        **{"x-tapes-mcp": {"name": "run", "annotations": hints, "later": 1}},
        summary="Run it",
    )
    (tool,) = admitted(tree).tools
    assert tool.form() == {
        "name": "summary.run",
        "title": "Run it",
        "description": "Run it",
        "inputSchema": {
            "type": "object",
            "$schema": "https://json-schema.org/draft/2020-12/schema",
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    }
    assert tool.local_path == "/api/summary/run"
    assert tool.public_path == "/v1/cassettes/summary/run"


def test_white_space_around_a_path_is_no_part_of_a_call() -> None:
    (tool,) = admitted(
        document({"/api/summary/run\r\n": {"post": tool_operation({"type": "object"})}})
    ).tools
    assert (tool.local_path, tool.public_path) == ("/api/summary/run", "/v1/cassettes/summary/run")


@pytest.mark.row("C9")
def test_a_tool_without_words_has_neither_title_nor_description() -> None:
    assert sorted(tool_of({"type": "object"}).form()) == ["annotations", "inputSchema", "name"]


@pytest.mark.row("C9")
def test_names_that_share_their_beginning_keep_aliases_apart() -> None:
    first, second = (f"summary.{'x' * 70}{end}" for end in "ab")
    assert alias_of(first) != alias_of(second)
    assert len(alias_of(first)) == 64
    assert alias_of("a.b_c") != alias_of("a.b.c")
    assert alias_of("summary.run").startswith("summary_run_")
    assert tool_of({"type": "object"}).alias == alias_of("summary.run")


@given(st.text())
def test_an_alias_is_what_model_apis_take_and_depends_on_the_name_alone(name: str) -> None:
    name = name.encode("utf-8", "replace").decode()
    assert re.fullmatch(r"[A-Za-z0-9_-]{1,64}", alias_of(name))
    assert alias_of(name) == alias_of(str(name))


# --- declarations -----------------------------------------------------------------------------


@pytest.mark.row("C9")
@pytest.mark.parametrize(
    ("members", "fault"),
    [
        ({"x-tapes-mcp": None}, (f"{RUN}/x-tapes-mcp/name", "missing")),
        ({"x-tapes-mcp": []}, (f"{RUN}/x-tapes-mcp", "wrong_type")),
        ({"x-tapes-mcp": {"name": "a b"}}, (f"{RUN}/x-tapes-mcp/name", "bad_name")),
        ({"x-tapes-mcp": {"name": "run\n"}}, (f"{RUN}/x-tapes-mcp/name", "bad_name")),
        ({"x-tapes-mcp": {"name": "x" * 121}}, (f"{RUN}/x-tapes-mcp/name", "bad_name")),
        (
            {"x-tapes-mcp": {"name": "a", "annotations": {"readOnlyHint": 1}}},
            (f"{RUN}/x-tapes-mcp/annotations/readOnlyHint", "wrong_type"),
        ),
        ({"parameters": [{"name": "q", "in": "query"}]}, (RUN, "has_parameters")),
        ({"requestBody": ...}, (f"{RUN}/requestBody", "bad_body")),
        ({"requestBody": {"content": {"text/plain": {}}}}, (f"{RUN}/requestBody", "bad_body")),
        (
            {"requestBody": {"required": True, "content": {"text/plain": {}}}},
            (f"{RUN}/requestBody/content/application~1json/schema", "no_schema"),
        ),
        (
            {"requestBody": {"required": True, "content": {"application/json": {"schema": {}}}}},
            (f"{RUN}/requestBody/content/application~1json/schema", "not_object"),
        ),
        ({"responses": {"default": {}}}, (f"{RUN}/responses", "no_success")),
        ({"responses": {**OBJECT_ANSWER, "204": {}}}, (f"{RUN}/responses/204", "not_object")),
    ],
)
def test_what_is_declared_and_is_no_tool_refuses_the_document(
    members: Json, fault: tuple[str, str]
) -> None:
    error = refused(with_operation(**members))
    assert error.stage == "mcp"
    assert fault in codes(error)


@pytest.mark.row("C9")
def test_only_a_post_of_a_3_1_document_can_be_a_tool() -> None:
    paths = {"/api/summary/{a}": {"get": tool_operation({"type": "object"})}}
    paths["/api/summary/{a}"]["get"]["parameters"] = [{"name": "a", "in": "path", "required": True}]
    found = {code for _, code in codes(refused(document(paths, openapi="3.0.3")))}
    assert found == {"not_post", "not_3_1", "has_parameters"}


@pytest.mark.row("C9")
def test_a_declaration_anywhere_else_is_refused() -> None:
    paths = {"/api/summary/x": {"x-tapes-mcp": {}, "get": {"responses": OBJECT_ANSWER}}}
    error = refused(document(paths, **{"x-tapes-mcp": {}}))
    assert codes(error) == [
        ("#/paths/~1api~1summary~1x/x-tapes-mcp", "misplaced"),
        ("#/x-tapes-mcp", "misplaced"),
    ]


@pytest.mark.row("C9")
def test_tools_of_one_service_differ_in_name_and_are_not_too_many() -> None:
    def named(names: list[str]) -> Json:
        operations = {
            f"/api/summary/{n}": {"post": tool_operation({"type": "object"}, name)}
            for n, name in enumerate(names)
        }
        return document(operations)

    tools = admitted(named([f"t{n}" for n in range(MAX_TOOLS)])).tools
    assert len(tools) == MAX_TOOLS
    assert codes(refused(named([f"t{n}" for n in range(MAX_TOOLS + 1)])))[0][1] == "too_many_tools"
    assert [code for _, code in codes(refused(named(["a", "b", "a"])))] == ["repeated_name"]
    assert [t.full_name for t in admitted(named(["a", "A"])).tools] == ["summary.a", "summary.A"]


# --- calls ------------------------------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "string", "default": "dd"},
        "b": {"type": "integer", "default": 3},
        "n": {"type": "object", "properties": {"q": {"type": "string", "default": "z"}}},
    },
    "required": ["b"],
    "additionalProperties": False,
}


@pytest.mark.row("C9")
@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        ({"b": 1}, b'{"a":"dd","b":1}'),
        ({"b": 1.0, "n": {}}, b'{"a":"dd","b":1,"n":{}}'),
        ({"b": 2**64, "a": "<&>"}, b'{"a":"\\u003c\\u0026\\u003e","b":18446744073709551616}'),
        ({"b": 1, "a": "x\ud800y"}, '{"a":"x\ufffdy","b":1}'.encode()),
    ],
    ids=["default", "integral-float", "large", "lone-surrogate"],
)
def test_a_body_is_the_arguments_with_the_roots_defaults(arguments: Json, body: bytes) -> None:
    assert call_body(tool_of(SCHEMA), arguments) == body


def test_a_call_leaves_its_arguments_and_its_schema_alone() -> None:
    tool, arguments = tool_of(SCHEMA), {"b": 1}
    call_body(tool, arguments)
    assert arguments == {"b": 1}
    assert tool.input_schema["properties"]["a"] == {"type": "string", "default": "dd"}


@pytest.mark.row("C9")
@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        ([1], "must be an object"),
        ("x", "must be an object"),
        ({}, "b: is required"),
        ({"b": "x"}, "b: must be integer"),
        ({"b": 1, "zz": 2}, "zz: is not allowed"),
        ({"b": 1, "a": None}, "a: must be string"),
        ({"b": float("nan")}, "JSON cannot say"),
        ({"b": {1, 2}}, "JSON cannot say"),
        ({"b": 1, 2: 3}, "JSON cannot say"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_the_reason(arguments: Json, part: str) -> None:
    with pytest.raises(BadArguments, match="the arguments of summary") as caught:
        call_body(tool_of(SCHEMA), arguments)
    assert part in str(caught.value)


def test_arguments_of_any_depth_are_refused_or_sent() -> None:
    for depth in (50, 200, 100_000):
        deep: Json = []
        for _ in range(depth):
            deep = [deep]
        if depth == 50:
            assert call_body(tool_of({"type": "object"}), {"a": deep})
            continue
        with pytest.raises(BadArguments, match="too deeply"):
            call_body(tool_of({"type": "object"}), {"a": deep})


@pytest.mark.row("C9")
def test_no_arguments_are_an_empty_object() -> None:
    assert call_body(tool_of({"type": "object"}), None) == b"{}"


@pytest.mark.row("C9")
def test_an_answer_is_its_object_and_the_same_as_text() -> None:
    result = result_of(tool_of(SCHEMA), 201, b'{"f":1.50,"big":12345678901234567890,"a":1,"a":2}')
    assert result.form() == {
        "content": [{"type": "text", "text": '{"a":2,"big":12345678901234567890,"f":1.50}'}],
        "structuredContent": {"a": 2, "big": 12345678901234567890, "f": 1.5},
    }


def test_a_number_that_only_its_spelling_can_say_stays_in_the_text() -> None:
    result = result_of(tool_of(SCHEMA), 200, b'{"a":1e999}')
    assert (result.text, result.structured, result.is_error) == ('{"a":1e999}', None, False)


@pytest.mark.row("C9")
@pytest.mark.parametrize(
    ("status", "body", "part"),
    [
        (200, b"[1]", "a list"),
        (200, b'"x"', "a string"),
        (200, b"1", "a number"),
        (200, b"null", "null"),
        (200, b"{} {}", "Extra data"),
        (200, b"", "no JSON object"),
        (204, b"", "no JSON object"),
        (302, b"", "302 Found"),
        (503, b"  boom <b>\n", "503 Service Unavailable: boom <b>"),
        (599, b"", "599"),
        (200, b" " * (MAX_ANSWER + 1), "more than"),
        (500, b"x" * (MAX_ANSWER + 1), "more than"),
    ],
)
def test_any_other_answer_is_a_tool_error_that_names_tool_and_reason(
    status: int, body: bytes, part: str
) -> None:
    result = result_of(tool_of(SCHEMA), status, body)
    assert result.is_error
    assert result.structured is None
    assert part in result.text
    assert "summary.run" in result.text
    assert result.form()["isError"] is True


@pytest.mark.row("C9")
def test_a_long_error_is_cut_and_says_so() -> None:
    result = result_of(tool_of(SCHEMA), 500, "é".encode() * 5_000)
    assert result.text.count("é") == 2048
    assert result.text.endswith("… (cut)")


def test_a_call_without_an_answer_says_why() -> None:
    result = failure(tool_of(SCHEMA), "connection refused")
    assert result.is_error
    assert result.text == "summary.run of cassette summary: connection refused"


@pytest.mark.row("C9")
def test_the_known_calls(reference_data: Path) -> None:
    known = json.loads((reference_data / "cassette-tool-calls.json").read_text())
    tool = tool_of(known["arguments"]["input_schema"])
    opened = tool_of({"type": "object"})
    cases = [(tool, case, case["arguments"]) for case in known["arguments"]["cases"]]
    cases += [
        (opened, case, case["params"].get("arguments"))
        for case in known["requests"]["cases"]
        if isinstance(case["params"], dict) and case["params"].get("name") == "summary.open"
    ]
    for called, case, arguments in cases:
        if "sent_body" in case:
            assert call_body(called, arguments).decode() == case["sent_body"], case["name"]
        else:
            with pytest.raises(BadArguments):
                call_body(called, arguments)


@pytest.mark.row("C9")
def test_the_known_answers(reference_data: Path) -> None:
    known = json.loads((reference_data / "cassette-tool-calls.json").read_text())
    for case in known["results"]:
        upstream = case["upstream"]
        if upstream is None:
            continue  # nothing answered: there is no answer to read
        text, times = upstream.get("body_repeat", (upstream.get("body", ""), 1))
        body = b"x" * upstream["bytes"] if "bytes" in upstream else text.encode() * times
        result = result_of(tool_of(SCHEMA), upstream["status"], body)
        assert result.is_error is case["is_error"], case["name"]
        assert result.text == case.get("text", result.text), case["name"]
        assert result.structured == case.get("structured", result.structured), case["name"]
        assert all(part in result.text for part in case.get("text_contains", ())), case["name"]
        if "text_max_body_bytes" in case:
            assert result.text.count("x") <= case["text_max_body_bytes"]
