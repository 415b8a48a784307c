from typing import Any

import pytest

from tapes.services.compiling import (
    MAX_OBJECTS,
    MAX_OPERATIONS,
    METHODS,
    is_response_key,
    normal_path,
    template_names,
)

from .making import ANSWER, admitted, codes, document, refused

Json = Any
ITEM = "#/paths/~1api~1summary~1x~1{id}"
PATH_ID = {"name": "id", "in": "path", "required": True}


def with_item(**item: Json) -> Json:
    """A document with the path item `/api/summary/x/{id}`, its parameter described for all."""
    return document({"/api/summary/x/{id}": {"parameters": [PATH_ID], **item}})


def with_get(**operation: Json) -> Json:
    return with_item(get={"responses": ANSWER, **operation})


# --- shape ------------------------------------------------------------------------------------


@pytest.mark.row("C3")
@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"openapi": "3.2.0"}, "#/openapi"),
        ({"openapi": 3.1}, "#/openapi"),
        ({"info": []}, "#/info"),
        ({"info": {"title": 1}}, "#/info/title"),
        ({"info": {"contact": {"url": 1}}}, "#/info/contact/url"),
        ({"tags": {}}, "#/tags"),
        ({"tags": ["x"]}, "#/tags/0"),
        ({"security": [{"a": "x"}]}, "#/security/0"),
        ({"webhooks": []}, "#/webhooks"),
        ({"webhooks": {"w": {"post": {"parameters": [None]}}}}, "#/webhooks/w/post/parameters/0"),
        ({"components": "x"}, "#/components"),
        ({"components": {"schemas": []}}, "#/components/schemas"),
        ({"components": {"schemas": {"A": True}}}, "#/components/schemas/A"),
        ({"components": {"parameters": {"A": None}}}, "#/components/parameters/A"),
        ({"components": {"requestBodies": {"A": None}}}, "#/components/requestBodies/A"),
        ({"components": {"securitySchemes": {"A": None}}}, "#/components/securitySchemes/A"),
        ({"components": {"headers": {"A": None}}}, "#/components/headers/A"),
    ],
)
def test_a_member_of_the_wrong_type_is_refused_at_its_place(members: Json, field: str) -> None:
    error = refused(document(**members))
    assert error.stage == "shape"
    assert field in [problem.field for problem in error.problems]


@pytest.mark.row("C3")
@pytest.mark.parametrize(
    ("operation", "place"),
    [
        ({"operationId": 1}, "operationId"),
        ({"tags": "a"}, "tags"),
        ({"deprecated": "no"}, "deprecated"),
        ({"externalDocs": []}, "externalDocs"),
        ({"parameters": {}}, "parameters"),
        ({"requestBody": []}, "requestBody"),
        ({"requestBody": {"content": []}}, "requestBody/content"),
        ({"responses": {"200": "x"}}, "responses/200"),
        ({"responses": {"200": {"headers": {"H": None}}}}, "responses/200/headers/H"),
        (
            {"requestBody": {"content": {"a/b": {"encoding": {"x": None}}}}},
            "requestBody/content/a~1b/encoding/x",
        ),
        (
            {"requestBody": {"content": {"a/b": {"examples": []}}}},
            "requestBody/content/a~1b/examples",
        ),
    ],
)
def test_an_operation_of_the_wrong_shape_is_refused_at_its_place(
    operation: Json, place: str
) -> None:
    error = refused(with_get(**operation))
    assert error.stage == "shape"
    assert f"{ITEM}/get/{place}" in [problem.field for problem in error.problems]


@pytest.mark.row("C3")
@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("/api/summary/a b", "bad_path"),
        ("/api/summary/a?b", "bad_path"),
        ("/api/summary/a#b", "bad_path"),
        ("/api/summary/a\x00b", "bad_path"),
        ("/api/summary/{}", "bad_path"),
        ("/api/summary/{a", "bad_path"),
        ("/api/summary/reports/", "repeated_path"),
    ],
)
def test_a_path_that_no_request_can_have_is_refused(path: str, code: str) -> None:
    error = refused(document({"/api/summary/reports": {}, path: {}}))
    assert error.stage == "shape"
    assert [found for _, found in codes(error)] == [code]


@pytest.mark.row("C3")
def test_what_is_not_read_may_hold_anything() -> None:
    tree = document(
        {"/api/summary/x": {"query": 5, "get": {"responses": ANSWER, "callbacks": 5, "x-a": 5}}},
        components={"links": 5, "callbacks": 5, "pathItems": 5, "x-note": 1},
        servers=5,
        externalDocs=5,
    )
    admitted(tree)


@pytest.mark.row("C3")
def test_nulls_are_absent() -> None:
    admitted(document({"/api/summary/x": None, "/api/summary/y": {"get": None}}))
    admitted(document(info=None, tags=None, components={"schemas": {"A": None}}))
    admitted(with_get(requestBody=None, parameters=None, security=None))


# --- references and structure -----------------------------------------------------------------


@pytest.mark.row("C3")
@pytest.mark.parametrize(
    ("operation", "place"),
    [
        ({"parameters": [{"$ref": "#/components/parameters/No"}]}, "parameters/0/$ref"),
        ({"requestBody": {"$ref": "#/components/requestBodies/No"}}, "requestBody/$ref"),
        ({"responses": {"200": {"$ref": "#/components/responses/No"}}}, "responses/200/$ref"),
        (
            {"responses": {"200": {"headers": {"H": {"$ref": "#/components/headers/No"}}}}},
            "responses/200/headers/H/$ref",
        ),
        ({"responses": {"200": {"x-a": {"b": {"$ref": "#/no"}}}}}, "responses/200/x-a/b/$ref"),
        (
            {"requestBody": {"content": {"a/b": {"examples": {"e": {"$ref": "#/no"}}}}}},
            "requestBody/content/a~1b/examples/e/$ref",
        ),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused(operation: Json, place: str) -> None:
    error = refused(with_get(**operation))
    assert error.stage == "references"
    assert codes(error) == [(f"{ITEM}/get/{place}", "dangling")]


@pytest.mark.row("C3")
def test_references_that_nobody_follows_are_left_alone() -> None:
    admitted(with_get(parameters=[{"$ref": "https://example.com/p"}], **{"x-a": {"$ref": "#/no"}}))
    dangling = {"A": {"$ref": "#/components/headers/No"}}
    admitted(document(components={"headers": dangling, "examples": dangling}))


@pytest.mark.row("C3")
@pytest.mark.parametrize(
    ("operation", "fault"),
    [
        ({"parameters": [{"in": "query"}]}, ("/get/parameters/0", "missing")),
        ({"parameters": [{"name": "a"}]}, ("/get/parameters/0", "bad_place")),
        ({"parameters": [{"name": "a", "in": "body"}]}, ("/get/parameters/0", "bad_place")),
        ({"parameters": [{"name": "a", "in": "query"}] * 2}, ("/get/parameters/1", "repeated")),
        ({"parameters": [PATH_ID]}, ("/get/parameters/0", "repeated")),
        ({"parameters": [PATH_ID | {"name": "b"}]}, ("/get", "not_in_path")),
        ({"requestBody": {}}, ("/get/requestBody", "no_content")),
        (
            {"requestBody": {"content": {"json": {}}}},
            ("/get/requestBody/content/json", "bad_media_type"),
        ),
        ({"security": [{"no": []}]}, ("/get/security/0/no", "unknown_scheme")),
    ],
)  # fmt: skip
def test_an_operation_keeps_the_rules(operation: Json, fault: tuple[str, str]) -> None:
    error = refused(with_get(**operation))
    assert error.stage == "structure"
    assert codes(error) == [(ITEM + fault[0], fault[1])]


@pytest.mark.row("C3")
@pytest.mark.parametrize(
    ("parameters", "code"),
    [([], "undescribed"), ([{"name": "id", "in": "path"}], "not_required")],
)
def test_every_name_in_a_path_is_a_required_parameter(parameters: Json, code: str) -> None:
    error = refused(with_item(parameters=parameters, get={"responses": ANSWER}))
    assert codes(error) == [(f"{ITEM}/get", code)]


@pytest.mark.row("C3")
def test_a_parameter_behind_references_is_seen_and_one_outside_is_not_judged() -> None:
    chain = {f"P{n}": {"$ref": f"#/components/parameters/P{n + 1}"} for n in range(8)}
    tree = with_item(parameters=[{"$ref": "#/components/parameters/P0"}], get={"responses": ANSWER})
    admitted({**tree, "components": {"parameters": {**chain, "P8": PATH_ID}}})
    tree = with_item(parameters=[{"$ref": "https://x/p"}], get={"responses": ANSWER})
    admitted(tree)


@pytest.mark.row("C3")
@pytest.mark.parametrize(
    ("components", "code"),
    [
        ({"schemas": {"a b": {}}}, "bad_name"),
        ({"examples": {"": 1}}, "bad_name"),
        ({"parameters": {"A": {"name": "x"}}}, "bad_place"),
        ({"requestBodies": {"A": {}}}, "no_content"),
        ({"securitySchemes": {"A": {}}}, "unknown_scheme_type"),
        ({"securitySchemes": {"A": {"type": "mutualTLS"}}}, "unknown_scheme_type"),
        ({"securitySchemes": {"A": {"type": "http"}}}, "incomplete_scheme"),
        (
            {"securitySchemes": {"A": {"type": "apiKey", "name": "k", "in": "body"}}},
            "incomplete_scheme",
        ),
        ({"securitySchemes": {"A": {"type": "oauth2", "flows": {}}}}, "incomplete_scheme"),
    ],
)  # fmt: skip
def test_components_keep_the_rules(components: Json, code: str) -> None:
    error = refused(document(components=components))
    assert error.stage == "structure"
    assert [found for _, found in codes(error)] == [code]


@pytest.mark.row("C3")
def test_tags_have_names_and_a_path_names_a_parameter_once() -> None:
    assert codes(refused(document(tags=[{"name": " "}]))) == [("#/tags/0", "missing")]
    error = refused(document({"/api/summary/{a}/{a}": {}}))
    assert [code for _, code in codes(error)] == ["repeated"]


# --- lint -------------------------------------------------------------------------------------


@pytest.mark.row("C4")
@pytest.mark.parametrize("responses", [None, {}, ...])
def test_every_operation_declares_a_response(responses: Json) -> None:
    operation = {} if responses is ... else {"responses": responses}
    error = refused(with_item(get=operation))
    assert (error.stage, codes(error)) == ("lint", [(f"{ITEM}/get", "no_response")])


@pytest.mark.row("C4")
@pytest.mark.parametrize("key", ["default", "2XX", "100", "599", "0200", "+200", "fooXX"])
def test_response_keys(key: str) -> None:
    assert is_response_key(key)


@pytest.mark.row("C4")
@pytest.mark.parametrize("key", ["2xx", "099", "600", "-200", "abc", "x-note", "200 ", "", "٢٠٠"])
def test_what_is_no_response_key_is_refused(key: str) -> None:
    assert not is_response_key(key)
    error = refused(with_get(responses={**ANSWER, key: {}}))
    assert [code for _, code in codes(error)] == ["bad_response_key"]


@pytest.mark.row("C4")
def test_an_operation_id_stands_once() -> None:
    def ids(first: Json, second: Json) -> Json:
        operations = {"get": {"operationId": first}, "put": {"operationId": second}}
        item = {method: {"responses": ANSWER, **given} for method, given in operations.items()}
        return document({"/api/summary/x": item})

    error = refused(ids("a", "a"))
    assert error.stage == "lint"
    assert codes(error) == [("#/paths/~1api~1summary~1x/put/operationId", "repeated_operation_id")]
    for first, second in (("a", "A"), ("", ""), (None, None)):
        admitted(ids(first, second))


def test_webhooks_keep_their_shape_and_nothing_else() -> None:
    hook = {"post": {"parameters": [{"name": ""}], "security": [{"no": []}]}}
    admitted(document(webhooks={"w": hook}))


# --- limits -----------------------------------------------------------------------------------


@pytest.mark.row("C3")
def test_paths_operations_and_objects_are_bounded() -> None:
    paths: Json = {f"/api/summary/{n}": {} for n in range(MAX_OPERATIONS + 1)}
    assert codes(refused(document(paths))) == [("#/paths", "too_many_operations")]
    item = {method: {"responses": ANSWER} for method in METHODS}
    paths = {f"/api/summary/{n}": item for n in range(MAX_OPERATIONS // len(METHODS) + 1)}
    assert codes(refused(document(paths))) == [("#/paths", "too_many_operations")]
    headers: Json = {f"H{n}": {} for n in range(MAX_OBJECTS)}
    error = refused(document(components={"headers": headers}))
    assert codes(error) == [("#", "too_many_objects")]


# --- words ------------------------------------------------------------------------------------


def test_every_problem_of_every_stage_is_named_at_once() -> None:
    schema = {"minLength": "1", "pattern": "[", "$ref": ""}
    tree = document(
        {
            "/ping": {},
            "/api/summary/x": {"get": {"parameters": [{"$ref": "#/no"}]}},
        },
        components={"schemas": {"A": schema}},
    )
    stages = [problem.stage for problem in refused(tree).problems]
    assert stages == ["path_outside", "shape", "references", "structure", "lint"]


def test_paths_are_normalized_and_their_names_read() -> None:
    assert normal_path(" /a/b/ ") == "/a/b"
    assert normal_path("/a//") == "/a/"
    assert template_names("/a/{b}/{c}-{d}") == ["b", "c", "d"]
