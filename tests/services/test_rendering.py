from typing import Any

import pytest

from tapes.services.compiling import SECTIONS
from tapes.services.rendering import Rendering
from tapes.services.spelling import Number

Json = Any
REF = "#/components/schemas/"


def rendering(**components: Json) -> Rendering:
    names = {s: {n: f"ns_{n}" for n in components.get(s, ())} for s in SECTIONS}
    return Rendering({"components": components}, names, lambda path, method: f"{method}{path}")


def schema(value: Json, **schemas: Json) -> Json:
    return rendering(schemas=schemas).schema(value)


@pytest.mark.row("C4")
@pytest.mark.parametrize(
    ("given", "rendered"),
    [
        ({"type": ["integer", "null"]}, {"type": "integer", "nullable": True}),
        ({"type": "null"}, {"nullable": True}),
        ({"type": "array"}, {"type": "array", "items": {}}),
        ({"const": "a"}, {"enum": ["a"]}),
        ({"const": "a", "enum": ["a", "b"]}, {"enum": ["a", "b"]}),
        ({"enum": []}, {"not": {}}),
        ({"required": ["b", "a", "b"]}, {"required": ["a", "b"]}),
        ({"required": []}, {}),
        ({"exclusiveMinimum": 3}, {"minimum": 3, "exclusiveMinimum": True}),
        ({"exclusiveMinimum": 3, "minimum": 5}, {"minimum": 5}),
        ({"exclusiveMaximum": 3, "maximum": 5}, {"maximum": 3, "exclusiveMaximum": True}),
        ({"exclusiveMaximum": True, "maximum": 5}, {"maximum": 5, "exclusiveMaximum": True}),
        ({"maximum": Number("1.50")}, {"maximum": Number("1.50")}),
        ({"examples": [1], "if": {}, "patternProperties": {}, "$comment": "x"}, {}),
        ({"properties": {"a": None}, "additionalProperties": False},
         {"properties": {"a": {}}, "additionalProperties": False}),
        ({"oneOf": [], "allOf": [None]}, {"allOf": [{}]}),
        ({"type": "string", "default": 1}, {"type": "string"}),
        ({"type": "number", "default": Number("1.0")},
         {"type": "number", "default": Number("1.0")}),
        ({"type": "integer", "default": Number("1.5")}, {"type": "integer"}),
        ({"type": ["string", "null"], "default": None},
         {"type": "string", "nullable": True, "default": None}),
        ({"anyOf": [{"type": "string"}, {"type": "null"}], "title": "T"},
         {"type": "string", "nullable": True, "title": "T"}),
        ({"anyOf": [{"$ref": REF + "A"}, {"type": "null"}]},
         {"anyOf": [{"$ref": REF + "ns_A"}], "nullable": True}),
        ({"type": ["string", "integer"]}, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        ({"type": "text", "multipleOf": 0}, {}),
        (True, {}),
        (False, {"not": {}}),
        (None, {}),
    ],
)  # fmt: skip
def test_what_3_1_says_is_said_in_3_0_3(given: Json, rendered: Json) -> None:
    assert schema(given, A={}) == rendered


@pytest.mark.row("C4")
def test_references_are_renamed_wherever_they_stand() -> None:
    given = {
        "items": {"$ref": REF + "A", "description": "sibling"},
        "not": {"x-a": {"b": [{"$ref": REF + "A"}]}},
        "discriminator": {
            "propertyName": "k",
            "mapping": {"full": REF + "A", "bare": "A", "z": "Z"},
        },
        "oneOf": [{"$ref": REF + "A"}],
    }
    assert schema(given, A={}) == {
        "items": {"$ref": REF + "ns_A"},
        "not": {"x-a": {"b": [{"$ref": REF + "ns_A"}]}},
        "discriminator": {
            "propertyName": "k",
            "mapping": {"full": REF + "ns_A", "bare": REF + "ns_A", "z": "Z"},
        },
        "oneOf": [{"$ref": REF + "ns_A"}],
    }


@pytest.mark.row("C4")
def test_names_that_were_values_are_written_down_when_they_change() -> None:
    given = {"discriminator": {"propertyName": "k"}, "oneOf": [{"$ref": REF + "Cat"}]}
    mapping = schema(given, Cat={})["discriminator"]["mapping"]
    assert mapping == {"Cat": REF + "ns_Cat"}


@pytest.mark.row("C4")
@pytest.mark.parametrize("target", ["https://x/y", "other.json#/a", "#", REF + "No", REF + "Loop"])
def test_a_reference_that_leads_out_or_round_becomes_an_open_schema(target: str) -> None:
    loop = {"Loop": {"$ref": REF + "Pool"}, "Pool": {"$ref": REF + "Loop"}}
    assert schema({"$ref": target}, **loop) == {"x-tapes-unresolved": target}


def test_references_of_all_kinds_that_lead_nowhere_leave_something_valid() -> None:
    nowhere = {"$ref": "#/components/headers/No"}
    components = rendering(
        headers={"H": nowhere},
        examples={"E": {"$ref": "#/components/examples/E"}, "V": 1},
        parameters={"P": nowhere},
        responses={"R": nowhere},
        requestBodies={"B": nowhere},
    ).components()
    assert components == {
        "examples": {"ns_V": {"value": 1}},
        "responses": {"ns_R": {"description": "response"}},
    }


@pytest.mark.row("C4")
def test_an_operation_is_rendered_with_all_its_parts() -> None:
    operation = {
        "operationId": "x",
        "tags": ["t"],
        "parameters": [
            {"name": "q", "in": "query", "style": "simple", "example": 1, "content": {}},
            {"$ref": "https://x/p"},
        ],
        "requestBody": {"content": {"a/b": {"example": 1, "examples": {"e": 2}}}},
        "responses": {"0200": {"description": ""}, "fooXX": {}, "404": None},
        "externalDocs": {"description": "without a url"},
        "callbacks": {},
        "x-op": 1,
    }
    item = rendering().path_item("/a/{id}", {"get": operation, "query": 5, "x-item": 1})
    assert item == {
        "x-item": 1,
        "get": {
            "operationId": "get/a/{id}",
            "tags": ["t"],
            "parameters": [
                {"name": "q", "in": "query", "example": 1, "schema": {}},
                {"name": "id", "in": "path", "required": True, "schema": {}},
            ],
            "requestBody": {"content": {"a/b": {"examples": {"e": {"value": 2}}}}},
            "responses": {"200": {"description": "response"}, "404": {"description": "response"}},
            "x-op": 1,
        },
    }


def test_an_operation_with_no_response_that_counts_gets_one() -> None:
    item = rendering().path_item("/a", {"get": {"responses": {"fooXX": {}}}})
    assert item["get"]["responses"] == {"default": {"description": "response"}}


@pytest.mark.row("C4")
@pytest.mark.parametrize(
    ("scheme", "rendered"),
    [
        ({"type": "http", "scheme": "basic", "bearerFormat": "x", "in": "y"},
         {"type": "http", "scheme": "basic"}),
        ({"type": "oauth2", "flows": {"implicit": {}, "other": 5}},
         {"type": "oauth2", "flows": {"implicit": {"authorizationUrl": "", "scopes": {}}}}),
        ({"type": "openIdConnect", "openIdConnectUrl": "u", "x-a": 1},
         {"type": "openIdConnect", "openIdConnectUrl": "u", "x-a": 1}),
    ],
)  # fmt: skip
def test_a_security_scheme_has_the_members_of_its_type(scheme: Json, rendered: Json) -> None:
    assert rendering(securitySchemes={"S": scheme}).components()["securitySchemes"] == {
        "ns_S": rendered
    }
