import json
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tapes.errors import BadArguments, RefusedService
from tapes.services.admission import Service, admit
from tapes.services.openapi import is_inside, leads_out
from tapes.services.tools import Tool, call_of
from tests.strategies import examples

from .making import OBJECT_ANSWER, SOURCE, document, text

Json = Any
TEXT = {"type": "string"}


def path(name: str, schema: Json = TEXT) -> Json:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def query(name: str, schema: Json = TEXT, **more: Json) -> Json:
    return {"name": name, "in": "query", "schema": schema, **more}


def lenient(route: str, method: str, operation: Json, **components: Json) -> Service:
    whole = {"x-tapes-mcp": {"name": "get"}, "responses": OBJECT_ANSWER, **operation}
    tree = document({f"/api/summary{route}": {method: whole}}, components=components)
    with pytest.raises(RefusedService):
        admit(text(tree), SOURCE, ["v1"])
    return admit(text(tree), SOURCE, ["v1"], lenient=True)


def tool(route: str, method: str = "get", **operation: Json) -> Tool:
    (found,) = lenient(route, method, operation).tools
    return found


@pytest.mark.row("C9")
def test_path_and_query_arguments_go_to_their_places() -> None:
    found = tool(
        "/reports/{id}/v{n}",
        parameters=[path("id"), path("n", {"type": "integer"}), query("q"), query("tag", {
            "type": "array", "items": TEXT})],
    )  # fmt: skip
    assert found.input_schema["required"] == ["id", "n"]
    made = call_of(found, {"id": "a b/ü", "n": 7, "q": "x&y=z", "tag": ["one", "t,wo"]})
    assert made.method == "GET"
    assert made.path == "/api/summary/reports/a%20b%2F%C3%BC/v7"
    assert made.query == "q=x%26y%3Dz&tag=one&tag=t%2Cwo"
    assert made.body is None


def test_a_list_that_does_not_explode_is_joined_and_defaults_are_filled_in() -> None:
    found = tool(
        "/x",
        parameters=[
            query("ids", {"type": "array"}, explode=False),
            query("limit", {"type": "integer", "default": 10}),
        ],
    )
    assert call_of(found, {"ids": [1, 2.5, True]}).query == "ids=1,2.5,true&limit=10"


@pytest.mark.row("C9")
@pytest.mark.row("C9")
@pytest.mark.parametrize(
    ("style", "asked"), [("form", "a,b"), ("spaceDelimited", "a%20b"), ("pipeDelimited", "a%7Cb")]
)
def test_a_list_is_joined_as_its_style_says(style: str, asked: str) -> None:
    of_texts = {"type": "array", "items": TEXT}
    found = tool("/x", parameters=[query("q", of_texts, style=style, explode=False)])
    assert call_of(found, {"q": ["a", "b"]}).query == f"q={asked}"
    assert call_of(found, {"q": []}).query == ""


@pytest.mark.row("C9")
def test_a_null_in_a_query_is_an_argument_that_is_not_given() -> None:
    may_be_null = {"anyOf": [TEXT, {"type": "null"}]}
    found = tool("/x", parameters=[query("q", may_be_null), query("n", {"type": "integer"})])
    assert call_of(found, {"q": None, "n": 1}).query == "n=1"
    with pytest.raises(BadArguments):
        call_of(found, {"n": None})


@pytest.mark.row("C9")
def test_a_list_in_a_path_fills_one_segment() -> None:
    found = tool("/x/{ids}", parameters=[path("ids", {"type": "array", "items": TEXT})])
    assert call_of(found, {"ids": ["a/b", "c,d", ".."]}).path == "/api/summary/x/a%2Fb,c%2Cd,.."
    for leads_out_of_it in ([], [".."], [""], [None]):
        with pytest.raises(BadArguments):
            call_of(found, {"ids": leads_out_of_it})


def test_a_body_beside_parameters_is_the_argument_body() -> None:
    body = {
        "required": True,
        "content": {"application/json": {"schema": {"type": "object", "properties": {"a": TEXT}}}},
    }
    found = tool("/{id}", "post", parameters=[path("id")], requestBody=body)
    made = call_of(found, {"id": "1", "body": {"a": "x"}})
    assert (made.method, made.path) == ("POST", "/api/summary/1")
    assert json.loads(made.body or b"") == {"a": "x"}
    with pytest.raises(BadArguments):
        call_of(found, {"id": "1"})
    with pytest.raises(BadArguments):
        call_of(found, {"id": "1", "body": {"a": 5}})


@pytest.mark.parametrize(
    "parameter",
    [
        {"name": "X-Key", "in": "header", "required": True, "schema": TEXT},
        {"name": "session", "in": "cookie", "required": True, "schema": TEXT},
        {"name": "body", "in": "query", "schema": TEXT},
    ],
)
def test_no_argument_becomes_a_header_a_cookie_or_two_things(parameter: Json) -> None:
    operation = {
        "x-tapes-mcp": {"name": "get"}, "responses": OBJECT_ANSWER, "parameters": [parameter],
    }  # fmt: skip
    with pytest.raises(RefusedService) as caught:
        admit(text(document({"/api/summary/x": {"get": operation}})), SOURCE, ["v1"], lenient=True)
    assert caught.value.stage == "mcp"


def test_parameters_are_seen_through_references_and_optional_headers_left_out() -> None:
    header = {"name": "X-Trace", "in": "header", "schema": TEXT}
    service = lenient(
        "/x",
        "get",
        {"parameters": [{"$ref": "#/components/parameters/page"}, header]},
        parameters={"page": query("page", {"type": "integer"})},
    )
    assert list(service.tools[0].input_schema["properties"]) == ["page"]


@pytest.mark.parametrize("method", ["put", "delete", "patch"])
def test_other_methods_are_no_tools_in_either_lane(method: str) -> None:
    operation = {"x-tapes-mcp": {"name": "get"}, "responses": OBJECT_ANSWER}
    with pytest.raises(RefusedService):
        admit(text(document({"/api/summary/x": {method: operation}})), SOURCE, ["v1"], lenient=True)


@pytest.mark.parametrize("value", ["", ".", "..", "..."])
def test_what_no_escape_keeps_in_its_segment_is_refused(value: str) -> None:
    with pytest.raises(BadArguments, match="stands in a path"):
        call_of(tool("/{id}", parameters=[path("id")]), {"id": value})


@pytest.mark.row("C9")
@pytest.mark.parametrize("value", ["..;x", ".;", "..\\x", "a\\..", "../x\\.."])
def test_what_some_server_reads_as_the_parent_is_refused(value: str) -> None:
    with pytest.raises(BadArguments, match="lead out of its place"):
        call_of(tool("/{id}/x", parameters=[path("id")]), {"id": value})


@pytest.mark.parametrize("value", [None, {}, []])
def test_only_texts_numbers_and_flags_stand_in_a_url(value: Json) -> None:
    with pytest.raises(BadArguments):
        call_of(tool("/{id}", parameters=[path("id", {})]), {"id": value})


ANYTHING = tool("/a/{id}/b", parameters=[path("id", {}), query("q", {})])


@settings(max_examples=examples(500))
@given(
    st.text()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.lists(st.text() | st.sampled_from([".", "..", "..;"]), max_size=3),
    st.text(),
)
def test_no_argument_leaves_its_place(value: Json, asked: str) -> None:
    try:
        made = call_of(ANYTHING, {"id": value, "q": asked})
    except BadArguments:
        return
    assert made.path.count("/") == 5
    assert is_inside(made.path, "/api/summary/a")
    assert not leads_out(made.path)
    assert made.path.isascii()
    assert set("?#\r\n ").isdisjoint(made.path + made.query)
    (pair,) = parse_qsl(made.query, keep_blank_values=True)
    assert pair[0] == "q"
