"""The schema object of an OpenAPI document: types of its members, references, sound bounds.

Rule 1: only the members in these tables are read. Others are ignored, whatever they hold.
Rule 2: `null` is the same as absent. A boolean is no schema, except for `additionalProperties`.
Rule 3: beside a `$ref` nothing is judged but the types.

Schemas are walked with a list of what is left to do, never by recursion: a document may be as
deep as the reader lets it be.  Pure.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tapes.jsontext import Json
from tapes.services.patterns import Patterns
from tapes.services.problems import Findings, Stage, Where
from tapes.services.spelling import Number, number_of

TYPES = frozenset({"string", "number", "integer", "boolean", "array", "object", "null"})


def is_text(value: Json) -> bool:
    """A string."""
    return type(value) is str


def is_flag(value: Json) -> bool:
    """True or false."""
    return type(value) is bool


def is_number(value: Json) -> bool:
    """A number of any spelling."""
    return type(value) is int or type(value) is Number


def is_list(value: Json) -> bool:
    """A list of anything."""
    return type(value) is list


def is_object(value: Json) -> bool:
    """An object of anything."""
    return type(value) is dict


def is_texts(value: Json) -> bool:
    """A list of strings."""
    return type(value) is list and all(type(item) is str for item in value)


def is_text_map(value: Json) -> bool:
    """An object whose members are strings."""
    return type(value) is dict and all(type(item) is str for item in value.values())


def _is_size(value: Json) -> bool:
    return type(value) is int and value >= 0


def _is_number_or_flag(value: Json) -> bool:
    return is_number(value) or is_flag(value)


def _is_type(value: Json) -> bool:
    if type(value) is str:
        return True
    return is_texts(value) and len({item for item in value if item != "null"}) < 2


def _is_discriminator(value: Json) -> bool:
    if type(value) is not dict:
        return False
    name, mapping = value.get("propertyName"), value.get("mapping")
    return (name is None or is_text(name)) and (mapping is None or is_text_map(mapping))


# What a member must be, and how the message says so.
Check = tuple[Callable[[Json], bool], str]
TEXT: Check = (is_text, "a string")
FLAG: Check = (is_flag, "true or false")
OBJECT: Check = (is_object, "an object")
LIST: Check = (is_list, "a list")
TEXTS: Check = (is_texts, "a list of strings")
_NUMBER: Check = (is_number, "a number")
_SIZE: Check = (_is_size, "a whole number, not negative")
_NUMBER_OR_FLAG: Check = (_is_number_or_flag, "a number, true or false")

SCHEMA: dict[str, Check] = {
    **dict.fromkeys(("$ref", "format", "title", "description", "pattern"), TEXT),
    **dict.fromkeys(("nullable", "uniqueItems", "readOnly", "writeOnly", "deprecated"), FLAG),
    **dict.fromkeys(("minimum", "maximum", "multipleOf"), _NUMBER),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _SIZE),
    **dict.fromkeys(("minProperties", "maxProperties"), _SIZE),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), _NUMBER_OR_FLAG),
    **dict.fromkeys(("examples", "enum"), LIST),
    "type": (_is_type, "one type, or one type and null"),
    "required": TEXTS,
    "discriminator": (_is_discriminator, "an object with a propertyName and a mapping of strings"),
}
# The members that hold schemas, and in what form.
_ONE = ("items", "not")
_SEVERAL = ("oneOf", "anyOf", "allOf")
HOLDS_SCHEMAS = {
    **dict.fromkeys(_ONE, "one"),
    **dict.fromkeys(_SEVERAL, "list"),
    "properties": "map",
    "additionalProperties": "one or flag",
}
_BOUNDS = (
    ("minimum", "maximum"),
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
)
_EXCLUSIVE = (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum"))
# A schema that has none of these has no rule to break beyond its types.
_RULED = frozenset(
    {"multipleOf", "pattern", "discriminator", "exclusiveMinimum", "exclusiveMaximum"}
    | {name for bounds in _BOUNDS for name in bounds}
)


@dataclass(frozen=True, slots=True)
class Scope:
    """Which of the checks hold for a part of the document, beside those of types."""

    references: bool
    rules: bool


ALL = Scope(references=True, rules=True)
ONLY_REFERENCES = Scope(references=True, rules=False)
ONLY_TYPES = Scope(references=False, rules=False)


class Schemas:
    """Checks schemas of one document into its findings."""

    def __init__(self, findings: Findings, targets: frozenset[str]) -> None:
        self._findings = findings
        self._targets = targets
        self._patterns = Patterns()

    def check(self, schema: Json, where: Where, scope: Scope) -> None:
        """Check a schema and all that it holds, in one pass."""
        todo: list[tuple[Json, Where, Scope]] = [(schema, where, scope)]
        while todo:
            schema, where, scope = todo.pop()
            if schema is None:
                continue
            if type(schema) is not dict:
                self._shape(where, "must be a schema, which is an object")
                continue
            if scope is not ONLY_TYPES and schema.get("$ref"):
                if scope.references:
                    self.reference(schema["$ref"], (where, "$ref"))
                scope = ONLY_TYPES
            self._members(schema, where, scope, todo)

    def _members(
        self,
        schema: dict[str, Json],
        where: Where,
        scope: Scope,
        todo: list[tuple[Json, Where, Scope]],
    ) -> None:
        ruled = False
        for name, value in schema.items():
            if value is None:
                continue
            check = SCHEMA.get(name)
            if check is not None:
                if not check[0](value):
                    self._shape((where, name), f"must be {check[1]}")
                elif name in _RULED:
                    ruled = True
                elif name == "type" and scope.rules:
                    self._type(value, (where, name))
            elif name in HOLDS_SCHEMAS:
                todo.extend(self._held(HOLDS_SCHEMAS[name], value, (where, name), scope))
            elif scope.references and name.startswith("x-"):
                self.extension(value, (where, name))
        if ruled:
            self._ruled(schema, where, scope)

    def _held(
        self, form: str, value: Json, where: Where, scope: Scope
    ) -> Iterator[tuple[Json, Where, Scope]]:
        if form == "one" or (form == "one or flag" and type(value) is not bool):
            yield value, where, scope
        elif form == "list":
            if type(value) is not list:
                self._shape(where, "must be a list of schemas")
                return
            for index, item in enumerate(value):
                yield item, (where, index), scope
        elif form == "map":
            if type(value) is not dict:
                self._shape(where, "must be an object of schemas")
                return
            for name, item in value.items():
                yield item, (where, name), scope

    def _shape(self, where: Where, message: str) -> None:
        self._findings.add(Stage.SHAPE, "wrong_type", where, message)

    def _rule(self, where: Where, code: str, message: str) -> None:
        self._findings.add(Stage.STRUCTURE, code, where, message)

    # --- references ---------------------------------------------------------------------------

    def reference(self, target: Json, where: Where) -> None:
        """Check that a reference into this document leads to a component of it."""
        if type(target) is str and target.startswith("#/") and target not in self._targets:
            self._findings.add(
                Stage.REFERENCES,
                "dangling",
                where,
                f"leads to {target!r}; only #/components/<section>/<name> can be a target, "
                "and only where it is defined",
            )

    def extension(self, value: Json, where: Where) -> None:
        """Check every `$ref` at any depth of an extension."""
        todo = [(value, where)]
        while todo:
            value, where = todo.pop()
            if type(value) is dict:
                if "$ref" in value:
                    self.reference(value["$ref"], (where, "$ref"))
                todo.extend((item, (where, name)) for name, item in value.items())
            elif type(value) is list:
                todo.extend((item, (where, index)) for index, item in enumerate(value))

    # --- rules --------------------------------------------------------------------------------

    def _type(self, value: Json, where: Where) -> None:
        for kind in [value] if type(value) is str else value:
            if kind not in TYPES:
                self._rule(where, "unknown_type", f"{kind!r} is no type; types: {_TYPE_LIST}")

    def _ruled(self, schema: dict[str, Json], where: Where, scope: Scope) -> None:
        for flag, bound in _EXCLUSIVE:
            if schema.get(flag) is True and schema.get(bound) is None:
                self._shape((where, flag), f"needs {bound} beside it, or a number of its own")
        given = schema.get("discriminator")
        discriminator: dict[str, Json] | None = given if _is_discriminator(given) else None
        if discriminator is not None and scope.references:
            for name, target in (discriminator.get("mapping") or {}).items():
                self.reference(target, (((where, "discriminator"), "mapping"), name))
        if scope.rules:
            self._bounds(schema, where)
            self._pattern(schema.get("pattern"), (where, "pattern"))
            if discriminator is not None:
                self._discriminator(schema, discriminator, (where, "discriminator"))

    def _bounds(self, schema: dict[str, Json], where: Where) -> None:
        step = number_of(schema.get("multipleOf"))
        if step is not None and step <= 0:
            self._rule((where, "multipleOf"), "not_positive", "must be above zero")
        for low_name, high_name in _BOUNDS:
            low, high = number_of(schema.get(low_name)), number_of(schema.get(high_name))
            if low is not None and high is not None and low > high:
                self._rule((where, low_name), "crossed", f"is above {high_name}: nothing fits")

    def _pattern(self, pattern: Json, where: Where) -> None:
        fault = self._patterns.fault(pattern) if type(pattern) is str else None
        if fault is not None:
            self._rule(where, "bad_pattern", fault)

    def _discriminator(
        self, schema: dict[str, Json], discriminator: dict[str, Json], where: Where
    ) -> None:
        if not (discriminator.get("propertyName") or "").strip():
            self._rule(where, "missing", "needs a propertyName")
        if not any(schema.get(name) for name in _SEVERAL):
            self._rule(where, "nothing_to_choose", "needs oneOf, anyOf or allOf beside it")


_TYPE_LIST = ", ".join(sorted(TYPES))
