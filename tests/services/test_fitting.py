"""The judge of arguments, held against a library that knows the standard and no bounds."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from jsonschema.exceptions import _WrappedReferencingError
from referencing import Registry

from tapes.services.fitting import Allowance, Undecided, misfit
from tapes.services.patterns import program_of
from tests.strategies import examples

Json = Any


def fault(schema: Json, value: Json, **defs: Json) -> str | None:
    found = misfit(schema, value, defs, {"": schema}, Allowance(100_000))
    return None if found is None else str(found)


@pytest.mark.row("C9")
@pytest.mark.parametrize(
    ("schema", "value", "message"),
    [
        ({"type": "integer"}, 1.5, "the value: must be integer"),
        ({"type": ["string", "null"]}, 1, "the value: must be string or null"),
        (
            {"properties": {"a": {"items": {"minimum": 2}}}},
            {"a": [2, 1]},
            "a[1]: must be at least 2",
        ),
        ({"required": ["a", "b"]}, {"a": 1}, "b: is required"),
        ({"additionalProperties": False}, {"z": 1}, "z: is not allowed here"),
        ({"enum": [1, "a"]}, True, "the value: must be one of the listed values"),
        ({"maxLength": 1}, "é\U0001f600", "the value: must have at most 1 characters"),
        ({"pattern": "^a"}, "b", "the value: must match the pattern ^a"),
        ({"anyOf": [{"type": "null"}]}, 1, "the value: must be null"),
        ({"oneOf": [{}, {}]}, 1, "the value: must fit one of the choices, and fits 2"),
        (
            {"contains": {"const": 1}, "minContains": 2},
            [1, 2],
            "the value: must contain at least 2",
        ),
        ({"multipleOf": 0.1}, 0.35, "the value: must be a multiple of 0.1"),
        ({"unevaluatedProperties": False}, {"a": 1}, "a: is not allowed here"),
        ({"$ref": "#/$defs/A"}, 1, "the value: must be string"),
    ],
)
def test_a_misfit_says_where_and_what_is_wanted(schema: Json, value: Json, message: str) -> None:
    assert str(fault(schema, value, A={"type": "string"})).startswith(message)


@pytest.mark.row("C9")
def test_numbers_are_what_they_mean() -> None:
    assert fault({"type": "integer"}, 1.0) is None
    assert fault({"const": 1}, 1.0) is None
    assert fault({"const": 1}, True) is not None
    assert fault({"multipleOf": 0.1}, 0.3) is None
    assert fault({"multipleOf": 1e-300}, 1e300) is None
    assert fault({"format": "date"}, "no date") is None


def test_a_tree_fits_a_schema_that_contains_itself() -> None:
    node = {"type": "object", "properties": {"children": {"items": {"$ref": "#/$defs/Node"}}}}
    tree: Json = {"children": []}
    for _ in range(40):
        tree = {"children": [tree, {}]}
    assert fault({"$ref": "#/$defs/Node"}, tree, Node=node) is None
    assert fault({"$ref": "#/$defs/Node"}, {"children": [{"children": [1]}]}, Node=node) is not None


def test_a_dynamic_reference_leads_to_its_anchor() -> None:
    schema = {
        "$dynamicAnchor": "node",
        "properties": {"next": {"$dynamicRef": "#node"}},
        "type": "object",
    }
    anchors = {"": schema, "node": schema}
    assert misfit(schema, {"next": {"next": {}}}, {}, anchors, Allowance()) is None
    assert misfit(schema, {"next": {"next": 1}}, {}, anchors, Allowance()) is not None


def test_schemas_that_double_at_every_level_cost_no_more_than_their_size() -> None:
    for word in ("allOf", "anyOf"):
        defs = {f"A{n}": {word: [{"$ref": f"#/$defs/A{n + 1}"}] * 2} for n in range(60)}
        assert fault({"$ref": "#/$defs/A0"}, {}, A60={"type": "object"}, **defs) is None
        assert fault({"$ref": "#/$defs/A0"}, 1, A60={"type": "object"}, **defs) is not None


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"$ref": "#/$defs/A"}, 1),
        ({"items": {"enum": list(range(5_000))}}, [float(n) for n in range(4_900, 5_000)]),
        ({"items": {"anyOf": [{"minLength": n} for n in range(1_000)]}}, [[]] * 100_000),
        ({"uniqueItems": True}, [[n] for n in range(100_000)]),
        (
            {"patternProperties": {f"a{n}": {} for n in range(500)}},
            {f"b{n}": 1 for n in range(500)},
        ),
        ({"additionalProperties": {"$ref": "#/$defs/A"}}, {"a": 1}),
    ],
    ids=["circle", "enum", "choices", "unique", "patterns", "inner-circle"],
)
def test_what_costs_too_much_is_left_undecided(schema: Json, value: Json) -> None:
    with pytest.raises(Undecided):
        fault(schema, value, A={"allOf": [{"$ref": "#/$defs/A"}]})


@pytest.mark.parametrize("pattern", ["(a|b)*a(a|b){900}c", r"^\p{L}[\p{L}\p{N}]{0,60}$"])
def test_a_long_text_is_not_held_against_a_large_pattern(pattern: str) -> None:
    assert misfit({"pattern": pattern}, "ab", {}, {}, Allowance()) is None or pattern[0] == "("
    with pytest.raises(Undecided):
        misfit({"pattern": pattern}, "ab" * 1_000_000, {}, {}, Allowance())
    assert misfit({"pattern": "^[ab]+$"}, "ab" * 1_000_000, {}, {}, Allowance()) is None


def test_a_pattern_is_made_ready_once_and_at_its_price() -> None:
    patterns: Json = {f"x{n}(?:[a-c]|gg){{1,500}}z": {} for n in range(200)}
    schema = {"patternProperties": patterns, "additionalProperties": {}}

    def cost(names: int) -> int:
        allowance = Allowance(10**9)
        misfit(schema, {f"k{n}": n for n in range(names)}, {}, {}, allowance)
        return 10**9 - allowance.left

    sizes = sum(program_of(pattern).size for pattern in patterns)
    assert sizes < cost(1)
    assert cost(3) - cost(2) < sizes / 2


def test_deep_values_are_left_undecided_and_never_break() -> None:
    value: Json = 1
    for _ in range(5_000):
        value = [value]
    for schema in ({"items": {"$ref": "#/$defs/A"}}, {"const": value}, {"uniqueItems": True}):
        with pytest.raises(Undecided):
            fault(schema, [value], A={"items": {"$ref": "#/$defs/A"}})


# --- beside the library -----------------------------------------------------------------------

_NAMES = st.sampled_from(["a", "b", "ab"])
_ATOMS = st.sampled_from([None, True, False, 0, 1, 2, 1.0, 1.5, "", "a", "ab", "b"])
_VALUES = st.recursive(
    _ATOMS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=6,
)
_SMALL = st.integers(0, 3)
_KINDS = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
_PATTERNS = st.sampled_from(["^a", "b$", "a.", "^$"])


def _schemas(inner: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    several = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(_NAMES, inner, max_size=3)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": _KINDS | st.lists(_KINDS, min_size=1, max_size=2, unique=True),
            "enum": st.lists(_VALUES, min_size=1, max_size=3),
            "const": _VALUES,
            "minimum": _SMALL,
            "exclusiveMaximum": _SMALL,
            "multipleOf": st.sampled_from([1, 2, 0.5]),
            "minLength": _SMALL,
            "maxItems": _SMALL,
            "maxProperties": _SMALL,
            "pattern": _PATTERNS,
            "uniqueItems": st.booleans(),
            "required": st.lists(_NAMES, max_size=2, unique=True),
            "dependentRequired": st.dictionaries(_NAMES, st.lists(_NAMES, unique=True), max_size=2),
            "properties": named,
            "patternProperties": st.dictionaries(_PATTERNS, inner, max_size=2),
            "additionalProperties": inner,
            "propertyNames": inner,
            "dependentSchemas": named,
            "prefixItems": several,
            "items": inner,
            "contains": inner,
            "minContains": _SMALL,
            "maxContains": _SMALL,
            "unevaluatedItems": inner,
            "unevaluatedProperties": inner,
            "allOf": several,
            "anyOf": several,
            "oneOf": several,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "$ref": st.sampled_from(["#/$defs/A", "#/$defs/B"]),
        },
    )


_SCHEMAS = st.recursive(st.booleans() | _schemas(st.booleans()), _schemas, max_leaves=6)


@settings(max_examples=examples(80), deadline=None)
@given(schema=_SCHEMAS, a=_SCHEMAS, b=_SCHEMAS, values=st.lists(_VALUES, min_size=1, max_size=5))
def test_it_judges_as_a_standard_validator_does(
    schema: Json, a: Json, b: Json, values: list[Json]
) -> None:
    root = {"$defs": {"A": a, "B": b}, "allOf": [schema]}
    validator = Draft202012Validator(root, registry=Registry())
    for value in values:
        try:
            mine = fault(schema, value, A=a, B=b) is None
        except Undecided:
            continue
        try:
            theirs = validator.is_valid(value)
        except (RecursionError, _WrappedReferencingError):
            continue
        assert mine is theirs, (root, value)
