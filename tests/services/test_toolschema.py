from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry

from tapes.services.fitting import Allowance
from tapes.services.problems import Findings, Stage
from tapes.services.spelling import Number
from tapes.services.toolschema import MAX_BUNDLES, Bundle, Bundles, resolves_to_object

Json = Any
REF = "#/components/schemas/"


def bundled(schema: Json, **components: Json) -> Bundle:
    findings = Findings()
    bundle = Bundles(components, findings).bundle(schema, (None, "schema"))
    assert bundle is not None, findings.problems(lambda _: {})
    assert not findings.any()
    return bundle


def faults(schema: Json, **components: Json) -> list[tuple[str, str]]:
    findings = Findings()
    assert Bundles(components, findings).bundle(schema, (None, "schema")) is None
    problems = findings.problems(lambda _: {})
    assert {problem.stage for problem in problems} == {Stage.MCP}
    return [(problem.field, problem.code) for problem in problems]


NODE = {"type": "object", "properties": {"children": {"items": {"$ref": REF + "Node"}}}}


@pytest.mark.row("C9")
def test_what_a_schema_refers_to_comes_along_cycles_and_all() -> None:
    pet = {"type": "object", "properties": {"owner": {"$ref": REF + "Owner"}}}
    owner = {"properties": {"address": {"$ref": REF + "Address", "description": "where"}}}
    schema = {
        "type": "object",
        "properties": {"pet": {"$ref": REF + "Pet"}, "n": {"$ref": REF + "Node"}},
    }
    bundle = bundled(schema, Pet=pet, Owner=owner, Address={"type": "string"}, Node=NODE, Other={})
    assert list(bundle.schema["$defs"]) == ["Address", "Node", "Owner", "Pet"]
    assert bundle.schema["$defs"]["Owner"]["properties"]["address"] == {
        "$ref": "#/$defs/Address",
        "description": "where",
    }
    validator = Draft202012Validator(bundle.schema, registry=Registry())
    Draft202012Validator.check_schema(bundle.schema)
    assert validator.is_valid({"n": {"children": [{"children": []}]}})
    assert not validator.is_valid({"pet": {"owner": {"address": 1}}})


@pytest.mark.row("C9")
def test_the_root_says_that_it_is_an_object_in_the_standards_own_dialect() -> None:
    bundle = bundled({"type": ["object", "null"], "$schema": "x", "maxProperties": Number("2.0")})
    assert bundle.schema == {
        "type": "object",
        "maxProperties": 2,
        "$schema": "https://json-schema.org/draft/2020-12/schema",
    }


def test_a_component_is_rewritten_once_for_all_tools() -> None:
    bundles = Bundles({"Node": NODE}, Findings())
    schema = {"type": "object", "properties": {"n": {"$ref": REF + "Node"}}}
    first, second = (bundles.bundle(schema, (None, n)) for n in range(2))
    assert first is not None
    assert second is not None
    assert first.schema["$defs"]["Node"] is second.schema["$defs"]["Node"]


@pytest.mark.row("C9")
@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({"$defs": {}}, ("#/schema/$defs", "reserved")),
        ({"$ref": REF + "No"}, ("#/schema/$ref", "dangling")),
        ({"$ref": REF + "A~x"}, ("#/schema/$ref", "dangling")),
        ({"$ref": "https://x/y"}, ("#/schema/$ref", "bad_reference")),
        ({"if": {"$ref": "#"}}, ("#/schema/if/$ref", "bad_reference")),
        ({"not": {"$ref": 5}}, ("#/schema/not/$ref", "bad_reference")),
        ({"properties": {"a": None}}, ("#/schema/properties/a", "wrong_type")),
        ({"allOf": {}}, ("#/schema/allOf", "wrong_type")),
        ({"anyOf": []}, ("#/schema/anyOf", "wrong_type")),
        ({"$vocabulary": {"a": 1}}, ("#/schema/$vocabulary", "wrong_type")),
        ({"prefixItems": 5}, ("#/schema/prefixItems", "wrong_type")),
        ({"minimum": "1"}, ("#/schema/minimum", "wrong_type")),
        ({"exclusiveMinimum": True}, ("#/schema/exclusiveMinimum", "wrong_type")),
        ({"minLength": 2**31}, ("#/schema/minLength", "wrong_type")),
        ({"type": "text"}, ("#/schema/type", "wrong_type")),
        ({"type": ["object", "object"]}, ("#/schema/type", "wrong_type")),
        ({"required": ["a", "a"]}, ("#/schema/required", "wrong_type")),
        ({"$id": "urn:x y"}, ("#/schema/$id", "wrong_type")),
        ({"$id": "s"}, ("#/schema/$id", "wrong_type")),
        ({"$id": "http://x/#y"}, ("#/schema/$id", "wrong_type")),
        ({"$comment": 5}, ("#/schema/$comment", "wrong_type")),
        ({"$anchor": "1"}, ("#/schema/$anchor", "wrong_type")),
        ({"pattern": "(?=a)"}, ("#/schema/pattern", "bad_pattern")),
        ({"patternProperties": {"[": {}}}, ("#/schema/patternProperties/[", "bad_pattern")),
        ({"$dynamicRef": "#x"}, ("#/schema/$dynamicRef", "dangling")),
        ({"$dynamicRef": "http://x"}, ("#/schema/$dynamicRef", "bad_reference")),
        ({"default": 5}, ("#/schema/default", "bad_default")),
        ({"items": {"type": "string", "default": 1}}, ("#/schema/items/default", "bad_default")),
        ({"multipleOf": Number("0.0")}, ("#/schema/multipleOf", "wrong_type")),
        ({"maximum": Number("1e999")}, ("#/schema/maximum", "number_too_large")),
    ],
)  # fmt: skip
def test_what_is_not_well_formed_is_refused_at_its_place(
    schema: Json, fault: tuple[str, str]
) -> None:
    assert fault in faults({"type": "object", **schema})


def test_faults_of_a_component_stand_at_the_component() -> None:
    schema = {"type": "object", "properties": {"a": {"$ref": REF + "A"}}}
    assert faults(schema, A={"items": {"minimum": "1"}}) == [
        ("#/components/schemas/A/items/minimum", "wrong_type")
    ]
    assert faults(schema, A={"type": "string", "default": 1}) == [
        ("#/components/schemas/A/default", "bad_default")
    ]


def test_a_discriminator_refers_to_where_the_schemas_stand_now() -> None:
    mapping = {"a": REF + "A", "b": REF + "No", "c": "A"}
    schema = {"type": "object", "discriminator": {"propertyName": "k", "mapping": mapping}}
    bundle = bundled(schema, A={"type": "object"})
    assert bundle.schema["discriminator"]["mapping"] == mapping | {"a": "#/$defs/A"}
    assert list(bundle.schema["$defs"]) == ["A"]
    bundled({"type": "object", "discriminator": 5, "$id": "urn:a:b"})


def test_definitions_cannot_stand_beside_what_is_bundled() -> None:
    schema = {"type": "object", "definitions": {}}
    assert bundled(schema).schema["definitions"] == {}
    assert faults({**schema, "items": {"$ref": REF + "A"}}, A={}) == [
        ("#/schema/definitions", "reserved")
    ]


def test_an_anchor_is_found_in_the_whole_bundle_and_stands_once() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$dynamicRef": "#n"}, "b": {"$ref": REF + "A"}},
    }
    bundle = bundled(schema, A={"$dynamicAnchor": "n", "type": "string"})
    assert bundle.misfit({"a": "x", "b": "x"}, Allowance()) is None
    assert bundle.misfit({"a": 1}, Allowance()) is not None
    twice = faults({**schema, "$anchor": "n"}, A={"$dynamicAnchor": "n"})
    assert twice == [("#/components/schemas/A", "repeated_anchor")]


def test_a_reference_below_another_base_would_lead_nowhere() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"$id": "http://x/y", "items": {"$ref": REF + "A"}}},
    }
    assert [code for _, code in faults(schema, A={})] == ["foreign_base"]
    bundled({"type": "object", "$id": "http://x/y", "items": {"$ref": REF + "A"}}, A={})


def test_defaults_may_be_those_of_a_schema_that_contains_itself() -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"$ref": REF + "Node", "default": {"children": []}}},
    }
    bundled(schema, Node=NODE)
    assert faults(schema, Node={**NODE, "required": ["x"]}) == [
        ("#/schema/properties/n/default", "bad_default")
    ]


def test_bundles_are_no_larger_than_a_list_of_tools_can_carry() -> None:
    size = MAX_BUNDLES // 3
    bundles = Bundles({"A": {"description": "x" * size}}, findings := Findings())
    schema = {"type": "object", "items": {"$ref": REF + "A"}}
    made = [bundles.bundle(schema, (None, n)) is not None for n in range(5)]
    assert made == [True, True, False, False, False]
    assert findings.problems(lambda _: {})[0].code == "schemas_too_large"


@pytest.mark.parametrize(
    ("schema", "resolves"),
    [
        ({"type": "object"}, True),
        ({"type": ["null", "object"]}, True),
        ({"$ref": REF + "Alias"}, True),
        ({"type": ["object", "string"]}, False),
        ({"properties": {}}, False),
        ({"allOf": [{"type": "object"}]}, False),
        ({"$ref": REF + "Loop"}, False),
        ({"$ref": REF + "No"}, False),
        ({"$ref": "https://x"}, False),
        (True, False),
        (None, False),
    ],
)
def test_only_what_says_that_it_is_an_object_is_one(schema: Json, resolves: bool) -> None:
    components = {
        "Alias": {"$ref": REF + "Object"},
        "Object": {"type": "object"},
        "Loop": {"$ref": REF + "Pool"},
        "Pool": {"$ref": REF + "Loop"},
    }
    assert resolves_to_object(schema, components) is resolves
