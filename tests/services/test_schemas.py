from typing import Any

import pytest

from .making import admitted, codes, refused, text, with_schema

Json = Any
AT = "#/paths/~1api~1summary~1x/get/responses/200/content/application~1json/schema"


@pytest.mark.row("C3")
@pytest.mark.parametrize(
    "schema",
    [
        {},
        None,
        {"type": ["string", "null"]},
        {"type": []},
        {"type": "string", "default": 1},
        {"exclusiveMinimum": 5},
        {"exclusiveMinimum": True, "minimum": 1},
        {"additionalProperties": False},
        {"properties": {"a": None}, "oneOf": [None]},
        {"const": None, "enum": [], "examples": []},
        {"prefixItems": 5, "if": {"$ref": "#/components/schemas/No"}, "$defs": True},
        {"$ref": "#"},
        {"$ref": "other.json#/x"},
        {
            "$ref": "#/components/schemas/Yes",
            "minLength": 9,
            "maxLength": 1,
            "x-a": {"$ref": "#/no"},
        },
        {"discriminator": {"propertyName": "k", "mapping": {"a": "Foo"}}, "oneOf": [{}]},
        {"pattern": r"\p{L}+"},
    ],
)
def test_schemas_that_are_admitted(schema: Json) -> None:
    admitted(with_schema(schema, Yes={"type": "object"}))


@pytest.mark.row("C3")
@pytest.mark.parametrize(
    ("schema", "stage", "fault"),
    [
        (True, "shape", ("", "wrong_type")),
        ({"items": [{}]}, "shape", ("/items", "wrong_type")),
        ({"items": True}, "shape", ("/items", "wrong_type")),
        ({"allOf": {}}, "shape", ("/allOf", "wrong_type")),
        ({"allOf": [True]}, "shape", ("/allOf/0", "wrong_type")),
        ({"properties": []}, "shape", ("/properties", "wrong_type")),
        ({"properties": {"a": 1}}, "shape", ("/properties/a", "wrong_type")),
        ({"additionalProperties": 1}, "shape", ("/additionalProperties", "wrong_type")),
        ({"type": ["string", "integer"]}, "shape", ("/type", "wrong_type")),
        ({"type": 5}, "shape", ("/type", "wrong_type")),
        ({"minLength": -1}, "shape", ("/minLength", "wrong_type")),
        ({"minLength": 1.5}, "shape", ("/minLength", "wrong_type")),
        ({"minimum": "1"}, "shape", ("/minimum", "wrong_type")),
        ({"nullable": 1}, "shape", ("/nullable", "wrong_type")),
        ({"exclusiveMaximum": True}, "shape", ("/exclusiveMaximum", "wrong_type")),
        ({"enum": "x"}, "shape", ("/enum", "wrong_type")),
        ({"required": True}, "shape", ("/required", "wrong_type")),
        ({"discriminator": {"mapping": []}}, "shape", ("/discriminator", "wrong_type")),
        ({"$ref": 5}, "shape", ("/$ref", "wrong_type")),
        ({"$ref": "#/components/schemas/Yes", "type": 5}, "shape", ("/type", "wrong_type")),
        ({"$ref": "#/components/schemas/No"}, "references", ("/$ref", "dangling")),
        ({"$ref": "#/components/schemas/Yes/x"}, "references", ("/$ref", "dangling")),
        ({"not": {"$ref": "#/$defs/x"}}, "references", ("/not/$ref", "dangling")),
        ({"x-a": [{"$ref": "#/no"}]}, "references", ("/x-a/0/$ref", "dangling")),
        (
            {"discriminator": {"propertyName": "k", "mapping": {"a": "#/no"}}, "oneOf": [{}]},
            "references",
            ("/discriminator/mapping/a", "dangling"),
        ),
        ({"type": "text"}, "structure", ("/type", "unknown_type")),
        ({"multipleOf": 0}, "structure", ("/multipleOf", "not_positive")),
        ({"minimum": 5, "maximum": 1.5}, "structure", ("/minimum", "crossed")),
        (
            {"anyOf": [{"minItems": 2, "maxItems": 1}]},
            "structure",
            ("/anyOf/0/minItems", "crossed"),
        ),
        ({"pattern": "(a)\\1"}, "structure", ("/pattern", "bad_pattern")),
        ({"discriminator": {}, "oneOf": [{}]}, "structure", ("/discriminator", "missing")),
        (
            {"discriminator": {"propertyName": "k"}},
            "structure",
            ("/discriminator", "nothing_to_choose"),
        ),
    ],
)  # fmt: skip
def test_schemas_that_are_refused(schema: Json, stage: str, fault: tuple[str, str]) -> None:
    error = refused(with_schema(schema, Yes={"type": "object"}))
    assert error.stage == stage
    assert codes(error) == [(AT + fault[0], fault[1])]


def test_numbers_of_any_spelling_are_compared_as_numbers() -> None:
    schema = b'{"minimum": 1E2, "maximum": 99.5}'
    data = text(with_schema("SCHEMA")).replace(b'"SCHEMA"', schema)
    assert codes(refused(data)) == [(f"{AT}/minimum", "crossed")]
