"""Whether a value fits a JSON Schema (2020-12), decided within a bound of work.

Rule 1: schemas come from services and values from agents, so neither may cost more than the
        allowance: every step is counted, and what exceeds it is refused, not waited for.
Rule 2: a pair of schema and value is judged once. That makes schemas that double themselves at
        every level cheap, and a reference that leads back to itself an error.
Rule 3: patterns are RE2's. `format` is not asserted. `1.0` is an integer.
Rule 4: references are those of a bundle: `#/$defs/<name>`, and anchors.

The schema is taken to be well formed, and free of `spelling.Number`.  Pure.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from tapes.jsontext import Json
from tapes.services.patterns import Program, program_of
from tapes.services.spelling import Path

MAX_STEPS = 1_000_000
MAX_DEPTH = 250
# A match costs about as much as so many other steps, and one more for so many characters, each
# times the size of the pattern's program: where RE2 has to follow all of it, that is two
# microseconds.
_MATCH = 8
_MATCHED_IN_A_STEP = 512


@dataclass(frozen=True, slots=True)
class Misfit:
    """Where in the value something does not fit, and what was wanted there."""

    place: Path
    message: str

    def __str__(self) -> str:
        at = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in self.place)
        return f"{at.removeprefix('.') or 'the value'}: {self.message}"


class Undecided(Exception):
    """The allowance of work is spent, or the schema leads back to itself without an end."""


class Allowance:
    """Steps of work that may still be done; several judgements may share one."""

    __slots__ = ("_programs", "left")

    def __init__(self, steps: int = MAX_STEPS) -> None:
        self.left = steps
        self._programs: dict[str, Program] = {}

    def program(self, pattern: str) -> Program:
        """A pattern made ready to run: once, and at the price of that. Raises Undecided."""
        program = self._programs.get(pattern)
        if program is None:
            program = self._programs[pattern] = program_of(pattern)
            self.spend(program.size)
        return program

    def spend(self, steps: int) -> None:
        """Take steps off. Raises Undecided where there are not so many."""
        self.left -= steps
        if self.left < 0:
            raise Undecided("takes too long to judge")


def misfit(
    schema: Json,
    value: Json,
    defs: Mapping[str, Json],
    anchors: Mapping[str, Json],
    allowance: Allowance,
) -> Misfit | None:
    """Why the value does not fit the schema, or None where it does. Raises Undecided."""
    judge = _Judge(defs, anchors, allowance)
    try:
        return judge.check(schema, value, ())
    except RecursionError:
        raise Undecided("is nested too deeply to judge") from None


_OPEN = Misfit((), "is judged already, further up")
_Pair = tuple[int, int]


class _Judge:
    def __init__(
        self, defs: Mapping[str, Json], anchors: Mapping[str, Json], allowance: Allowance
    ) -> None:
        self._defs = defs
        self._anchors = anchors
        self._allowance = allowance
        self._judged: dict[_Pair, Misfit | None] = {}
        self._depth = 0

    def check(self, schema: Json, value: Json, at: Path) -> Misfit | None:
        if schema is True:
            return None
        if schema is False:
            return Misfit(at, "is not allowed here")
        pair = (id(schema), id(value))
        if pair in self._judged:
            known = self._judged[pair]
            if known is _OPEN:
                raise Undecided("is judged by a schema that leads back to itself")
            return known
        self._allowance.spend(1 + len(schema))
        if self._depth >= MAX_DEPTH:
            raise Undecided("is nested too deeply to judge")
        self._judged[pair] = _OPEN
        self._depth += 1
        found = self._assertions(schema, value, at)
        if found is None:
            for part, item, place in self._obligations(schema, value, at):
                found = self.check(part, item, place)
                if found is not None:
                    break
        self._depth -= 1
        self._judged[pair] = found
        return found

    def _assertions(self, schema: dict[str, Json], value: Json, at: Path) -> Misfit | None:
        for name, wanted in schema.items():
            if name in _ASSERTIONS:
                found = _ASSERTIONS[name](self, wanted, value, at, schema)
                if found is not None:
                    return found
        return None

    def _obligations(self, schema: dict[str, Json], value: Json, at: Path) -> "_Obligations":
        for name, wanted in schema.items():
            if name in _APPLICATORS:
                yield from _APPLICATORS[name](self, wanted, value, at, schema)
        # These judge what the others have left, so they come last.
        for name in _LAST:
            if name in schema:
                yield from _LAST[name](self, schema[name], value, at, schema)

    def fits(self, schema: Json, value: Json) -> bool:
        return self.check(schema, value, ()) is None

    def target(self, reference: str) -> Json:
        name = reference.removeprefix("#/$defs/")
        if name != reference:
            return self._defs[name]
        return self._anchors[reference.removeprefix("#")]

    def spend(self, steps: int) -> None:
        self._allowance.spend(steps)

    # --- what has been evaluated --------------------------------------------------------------

    def names_seen(self, schema: Json, value: dict[str, Json]) -> set[str]:
        """The members of an object that a schema that fits it has judged."""
        if type(schema) is not dict:
            return set()
        self.spend(1 + len(value))
        seen = {name for name in schema.get("properties", ()) if name in value}
        for pattern in schema.get("patternProperties", ()):
            seen.update(name for name in value if self.matches(pattern, name))
        if "additionalProperties" in schema or "unevaluatedProperties" in schema:
            return set(value)
        for part in self._parts(schema, value):
            seen |= self.names_seen(part, value)
        return seen

    def items_seen(self, schema: Json, value: list[Json]) -> set[int]:
        """The elements of a list that a schema that fits it has judged."""
        if type(schema) is not dict:
            return set()
        self.spend(1 + len(value))
        if "items" in schema or "unevaluatedItems" in schema:
            return set(range(len(value)))
        seen = set(range(min(len(schema.get("prefixItems", ())), len(value))))
        if "contains" in schema:
            wanted = schema["contains"]
            seen.update(n for n, item in enumerate(value) if self.fits(wanted, item))
        for part in self._parts(schema, value):
            seen |= self.items_seen(part, value)
        return seen

    def _parts(self, schema: dict[str, Json], value: Json) -> Iterator[Json]:
        """The schemas beside this one that fit the value and so have judged it too."""
        for name in ("$ref", "$dynamicRef"):
            if name in schema:
                yield self.target(schema[name])
        for name in ("allOf", "anyOf", "oneOf"):
            yield from (part for part in schema.get(name, ()) if self.fits(part, value))
        if "if" in schema:
            fits = self.fits(schema["if"], value)
            if fits:
                yield schema["if"]
            yield schema.get("then" if fits else "else", True)
        if type(value) is dict:
            for name, part in schema.get("dependentSchemas", {}).items():
                if name in value:
                    yield part

    def matches(self, pattern: str, text: str) -> bool:
        program = self._allowance.program(pattern)
        length = len(text) if text.isascii() else 4 * len(text)  # it runs over UTF-8
        self.spend(_MATCH + length * program.size // _MATCHED_IN_A_STEP)
        return program.is_found_in(text)


# What must hold of parts of the value: a schema, the part, and where that is.
_Obligations = Iterator[tuple[Json, Json, Path]]
# A keyword says at once what does not fit, or which parts must fit which schemas. The second
# kind is resumed by `check`, so that a level of nesting costs a single Python call.
_Assertion = Callable[[_Judge, Json, Json, Path, dict[str, Json]], Misfit | None]
_Applicator = Callable[[_Judge, Json, Json, Path, dict[str, Json]], _Obligations]


# --- any value --------------------------------------------------------------------------------


def _is_type(kind: str, value: Json) -> bool:
    match kind:
        case "null":
            return value is None
        case "boolean":
            return type(value) is bool
        case "integer":
            return type(value) is int or (type(value) is float and value.is_integer())
        case "number":
            return _is_number(value)
        case "string":
            return type(value) is str
        case "array":
            return type(value) is list
        case _:
            return type(value) is dict


def _is_number(value: Json) -> bool:
    return type(value) is int or type(value) is float


def _type(_j: _Judge, wanted: Json, value: Json, at: Path, _: Json) -> Misfit | None:
    kinds = [wanted] if type(wanted) is str else wanted
    if any(_is_type(kind, value) for kind in kinds):
        return None
    return Misfit(at, f"must be {' or '.join(kinds)}")


def _key(judge: _Judge, value: Json) -> object:
    """Something that is equal for values that JSON Schema holds equal."""
    judge.spend(1)
    if type(value) is list:
        return ("list", *(_key(judge, item) for item in value))
    if type(value) is dict:
        return ("object", frozenset((name, _key(judge, item)) for name, item in value.items()))
    return (type(value) is bool, value)


def _enum(judge: _Judge, wanted: Json, value: Json, at: Path, _: Json) -> Misfit | None:
    key = _key(judge, value)
    if any(_key(judge, choice) == key for choice in wanted):
        return None
    return Misfit(at, "must be one of the listed values")


def _const(judge: _Judge, wanted: Json, value: Json, at: Path, _: Json) -> Misfit | None:
    same = _key(judge, wanted) == _key(judge, value)
    return None if same else Misfit(at, "must be the one allowed value")


# --- numbers and strings ----------------------------------------------------------------------


def _bound(test: Callable[[Json, Json], bool], words: str) -> _Assertion:
    def judge_bound(_j: _Judge, wanted: Json, value: Json, at: Path, _: Json) -> Misfit | None:
        if not _is_number(value) or test(value, wanted):
            return None
        return Misfit(at, f"must be {words} {wanted}")

    return judge_bound


def _multiple(_j: _Judge, wanted: Json, value: Json, at: Path, _: Json) -> Misfit | None:
    if not _is_number(value):
        return None
    if type(value) is int and type(wanted) is int:
        fits = value % wanted == 0
    else:  # as they are written, so that 0.3 is a multiple of 0.1
        fits = (Fraction(repr(value)) / Fraction(repr(wanted))).denominator == 1
    return None if fits else Misfit(at, f"must be a multiple of {wanted}")


def _size(
    kind: type[str] | type[list[Json]] | type[dict[str, Json]], word: str, words: str
) -> _Assertion:
    def judge_size(_j: _Judge, wanted: Json, value: Json, at: Path, _: Json) -> Misfit | None:
        if not isinstance(value, kind):
            return None
        fits = len(value) <= wanted if word == "most" else len(value) >= wanted
        return None if fits else Misfit(at, f"must have at {word} {wanted} {words}")

    return judge_size


def _pattern(judge: _Judge, wanted: Json, value: Json, at: Path, _: Json) -> Misfit | None:
    if type(value) is not str or judge.matches(wanted, value):
        return None
    return Misfit(at, f"must match the pattern {wanted[:80]}")


# --- lists ------------------------------------------------------------------------------------


def _prefix_items(_j: _Judge, wanted: Json, value: Json, at: Path, _: Json) -> _Obligations:
    if type(value) is list:
        for n, (part, item) in enumerate(zip(wanted, value, strict=False)):
            yield part, item, (*at, n)


def _items(judge: _Judge, wanted: Json, value: Json, at: Path, schema: Json) -> _Obligations:
    if type(value) is list:
        start = len(schema.get("prefixItems", ()))
        judge.spend(len(value))
        for n in range(start, len(value)):
            yield wanted, value[n], (*at, n)


def _contains(judge: _Judge, wanted: Json, value: Json, at: Path, schema: Json) -> Misfit | None:
    if type(value) is not list:
        return None
    judge.spend(len(value))
    count = sum(judge.fits(wanted, item) for item in value)
    least, most = schema.get("minContains", 1), schema.get("maxContains")
    if count < least:
        return Misfit(at, f"must contain at least {least} elements of the wanted kind")
    if most is not None and count > most:
        return Misfit(at, f"must contain at most {most} elements of the wanted kind")
    return None


def _unique(judge: _Judge, wanted: Json, value: Json, at: Path, _: Json) -> Misfit | None:
    if not wanted or type(value) is not list:
        return None
    keys = {_key(judge, item) for item in value}
    return None if len(keys) == len(value) else Misfit(at, "must not hold one element twice")


def _unevaluated_items(
    judge: _Judge, wanted: Json, value: Json, at: Path, schema: Json
) -> _Obligations:
    if type(value) is list:
        seen = judge.items_seen(_without(schema, "unevaluatedItems"), value)
        for n, item in enumerate(value):
            if n not in seen:
                yield wanted, item, (*at, n)


# --- objects ----------------------------------------------------------------------------------


def _properties(judge: _Judge, wanted: Json, value: Json, at: Path, _: Json) -> _Obligations:
    if type(value) is dict:
        # Whichever of the two is smaller: a large schema and a small value are the common case.
        judge.spend(min(len(wanted), len(value)))
        for name in value if len(value) < len(wanted) else wanted:
            if name in wanted and name in value:
                yield wanted[name], value[name], (*at, name)


def _pattern_properties(
    judge: _Judge, wanted: Json, value: Json, at: Path, _: Json
) -> _Obligations:
    if type(value) is dict:
        for pattern, part in wanted.items():
            for name, item in value.items():
                if judge.matches(pattern, name):
                    yield part, item, (*at, name)


def _additional(judge: _Judge, wanted: Json, value: Json, at: Path, schema: Json) -> _Obligations:
    if type(value) is dict:
        known, patterns = schema.get("properties", ()), schema.get("patternProperties", ())
        judge.spend(len(value))
        for name, item in value.items():
            if name in known or any(judge.matches(pattern, name) for pattern in patterns):
                continue
            yield wanted, item, (*at, name)


def _unevaluated_properties(
    judge: _Judge, wanted: Json, value: Json, at: Path, schema: Json
) -> _Obligations:
    if type(value) is dict:
        seen = judge.names_seen(_without(schema, "unevaluatedProperties"), value)
        for name, item in value.items():
            if name not in seen:
                yield wanted, item, (*at, name)


def _property_names(judge: _Judge, wanted: Json, value: Json, at: Path, _: Json) -> Misfit | None:
    if type(value) is not dict:
        return None
    for name in value:
        if not judge.fits(wanted, name):
            return Misfit((*at, name), "has a name that is not allowed")
    return None


def _required(judge: _Judge, wanted: Json, value: Json, at: Path, _: Json) -> Misfit | None:
    if type(value) is not dict:
        return None
    judge.spend(len(wanted))
    missing = next((name for name in wanted if name not in value), None)
    return None if missing is None else Misfit((*at, missing), "is required")


def _dependent_required(
    judge: _Judge, wanted: Json, value: Json, at: Path, _: Json
) -> Misfit | None:
    if type(value) is not dict:
        return None
    for name, needed in wanted.items():
        if name in value:
            found = _required(judge, needed, value, at, {})
            if found is not None:
                return Misfit(found.place, f"is required beside {name}")
    return None


def _dependent_schemas(_j: _Judge, wanted: Json, value: Json, at: Path, _: Json) -> _Obligations:
    if type(value) is dict:
        for name, part in wanted.items():
            if name in value:
                yield part, value, at


# --- composition ------------------------------------------------------------------------------


def _reference(judge: _Judge, wanted: Json, value: Json, at: Path, _: Json) -> _Obligations:
    yield judge.target(wanted), value, at


def _all_of(_j: _Judge, wanted: Json, value: Json, at: Path, _: Json) -> _Obligations:
    for part in wanted:
        yield part, value, at


def _any_of(judge: _Judge, wanted: Json, value: Json, at: Path, _: Json) -> Misfit | None:
    found = [judge.check(part, value, at) for part in wanted]
    if any(one is None for one in found):
        return None
    # With a single choice its own complaint says more.
    return found[0] if len(found) == 1 else Misfit(at, "fits none of the choices")


def _one_of(judge: _Judge, wanted: Json, value: Json, at: Path, _: Json) -> Misfit | None:
    count = sum(judge.fits(part, value) for part in wanted)
    return None if count == 1 else Misfit(at, f"must fit one of the choices, and fits {count}")


def _not(judge: _Judge, wanted: Json, value: Json, at: Path, _: Json) -> Misfit | None:
    return Misfit(at, "is what it must not be") if judge.fits(wanted, value) else None


def _if(judge: _Judge, wanted: Json, value: Json, at: Path, schema: Json) -> _Obligations:
    branch = "then" if judge.fits(wanted, value) else "else"
    if branch in schema:
        yield schema[branch], value, at


def _without(schema: dict[str, Json], keyword: str) -> dict[str, Json]:
    return {name: value for name, value in schema.items() if name != keyword}


_ASSERTIONS: dict[str, _Assertion] = {
    "type": _type,
    "enum": _enum,
    "const": _const,
    "minimum": _bound(lambda value, bound: value >= bound, "at least"),
    "maximum": _bound(lambda value, bound: value <= bound, "at most"),
    "exclusiveMinimum": _bound(lambda value, bound: value > bound, "above"),
    "exclusiveMaximum": _bound(lambda value, bound: value < bound, "below"),
    "multipleOf": _multiple,
    "minLength": _size(str, "least", "characters"),
    "maxLength": _size(str, "most", "characters"),
    "minItems": _size(list, "least", "elements"),
    "maxItems": _size(list, "most", "elements"),
    "minProperties": _size(dict, "least", "members"),
    "maxProperties": _size(dict, "most", "members"),
    "pattern": _pattern,
    "contains": _contains,
    "uniqueItems": _unique,
    "propertyNames": _property_names,
    "required": _required,
    "dependentRequired": _dependent_required,
    "anyOf": _any_of,
    "oneOf": _one_of,
    "not": _not,
}
_APPLICATORS: dict[str, _Applicator] = {
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional,
    "prefixItems": _prefix_items,
    "items": _items,
    "dependentSchemas": _dependent_schemas,
    "$ref": _reference,
    "$dynamicRef": _reference,
    "allOf": _all_of,
    "if": _if,
}
_LAST: dict[str, _Applicator] = {
    "unevaluatedItems": _unevaluated_items,
    "unevaluatedProperties": _unevaluated_properties,
}
