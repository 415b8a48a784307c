"""The input schema of a tool: self-contained JSON Schema 2020-12, made from an OpenAPI schema.

Rule 1: a bundle holds all that it refers to. `#/components/schemas/X` becomes `#/$defs/X`, each
        component once, cycles and all; nothing is fetched and nothing else can be referred to.
Rule 2: a bundle is well formed: known keywords have their types, patterns compile and are small
        enough to be run here, sizes fit 32 bits, anchors resolve, and every default fits the
        schema in which it stands.
Rule 3: a component is rewritten and judged once, however many tools use it, and all bundles of
        a document together stay within what a list of tools can carry.

Knows nothing of operations or calls.  Pure.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tapes.jsontext import Json
from tapes.services.fitting import Allowance, Misfit, Undecided, misfit
from tapes.services.patterns import Patterns
from tapes.services.problems import Findings, Stage, Where
from tapes.services.schemas import (
    FLAG,
    LIST,
    TEXT,
    TYPES,
    Check,
    is_flag,
    is_number,
    is_text,
    is_texts,
)
from tapes.services.spelling import compact, number_of, plain

DIALECT = "https://json-schema.org/draft/2020-12/schema"
MAX_BUNDLES = 2 * 1024 * 1024
MAX_DEFAULT_STEPS = 600_000  # all patterns of a document, once each, and as much again
_MAX_SIZE = 2**31 - 1
_COMPONENT = "#/components/schemas/"

_ONE = (
    "additionalItems",
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_SEVERAL = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
_HOLDS: dict[str, str] = {
    **dict.fromkeys(_ONE, "one"),
    **dict.fromkeys(_SEVERAL, "list"),
    **dict.fromkeys(_NAMED, "map"),
}


def _is_size(value: Json) -> bool:
    number = number_of(value)
    return number is not None and 0 <= number <= _MAX_SIZE and number == int(number)


def _is_type(value: Json) -> bool:
    kinds = [value] if is_text(value) else value
    return is_texts(kinds) and bool(kinds) and TYPES.issuperset(kinds) and _unique(kinds)


def _unique(items: list[str]) -> bool:
    return len(set(items)) == len(items)


def _is_text_lists(value: Json) -> bool:
    return type(value) is dict and all(is_texts(v) and _unique(v) for v in value.values())


_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^#\s]+")
_ANCHOR = re.compile(r"[A-Za-z_][-A-Za-z0-9._]*")
_NUMBER: Check = (is_number, "a number")
_SIZE: Check = (_is_size, "a whole number from 0 to 2147483647")
_ANCHORED: Check = (lambda v: is_text(v) and bool(_ANCHOR.fullmatch(v)), "the name of an anchor")
_KEYWORDS: dict[str, Check] = {
    **dict.fromkeys(("$schema", "$comment", "title", "description", "format", "pattern"), TEXT),
    **dict.fromkeys(("contentMediaType", "contentEncoding", "$dynamicRef"), TEXT),
    **dict.fromkeys(("deprecated", "readOnly", "writeOnly", "uniqueItems"), FLAG),
    **dict.fromkeys(("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"), _NUMBER),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems"), _SIZE),
    **dict.fromkeys(("minContains", "maxContains", "minProperties", "maxProperties"), _SIZE),
    **dict.fromkeys(("examples", "enum"), LIST),
    **dict.fromkeys(("$anchor", "$dynamicAnchor"), _ANCHORED),
    "$id": (
        lambda v: is_text(v) and bool(_ABSOLUTE.fullmatch(v)),
        "an absolute URI without a fragment",
    ),
    "$vocabulary": (
        lambda v: type(v) is dict and all(map(is_flag, v.values())),
        "an object of flags",
    ),
    "type": (_is_type, "a type of JSON Schema, or a list of them"),
    "multipleOf": (lambda v: (number_of(v) or 0) > 0, "a number above zero"),
    "required": (lambda v: is_texts(v) and _unique(v), "a list of different strings"),
    "dependentRequired": (_is_text_lists, "an object of lists of different strings"),
}


@dataclass(frozen=True, slots=True)
class _Part:
    """A schema rewritten for bundles: what it uses, what it defines, and how large it is."""

    schema: dict[str, Json]
    uses: tuple[str, ...]
    inner: tuple[tuple[dict[str, Json], Where], ...]

    def having(self, *keywords: str) -> Iterator[tuple[str, dict[str, Json], Where]]:
        """The schemas inside, itself included, that have one of the keywords."""
        for schema, where in self.inner:
            for keyword in keywords:
                if keyword in schema:
                    yield keyword, schema, where


@dataclass(frozen=True, slots=True)
class Bundle:
    """A self-contained schema, and what its anchors lead to."""

    schema: dict[str, Json]
    anchors: Mapping[str, Json]

    def misfit(self, value: Json, allowance: Allowance) -> Misfit | None:
        """Why a value does not fit, or None where it does. Raises Undecided."""
        return misfit(self.schema, value, self.schema.get("$defs", {}), self.anchors, allowance)


class Bundles:
    """The bundles of one document; what is wrong with them goes into its findings."""

    def __init__(self, components: Mapping[str, Json], findings: Findings) -> None:
        self._components = components
        self._findings = findings
        self._patterns = Patterns()
        self._parts: dict[str, _Part | None] = {}
        self._defs: dict[str, Json] = {}
        self._sizes: dict[str, int] = {}
        self._judged: set[str] = set()
        self._left = MAX_BUNDLES
        self._allowance = Allowance(MAX_DEFAULT_STEPS)

    def bundle(self, schema: dict[str, Json], where: Where) -> Bundle | None:
        """The schema with all that it uses, or None where something is wrong."""
        if "$defs" in schema:
            self._add((where, "$defs"), "reserved", "is reserved for what the schema uses")
            return None
        root = self._part(schema, where) if self._affordable(len(compact(schema)), where) else None
        used = None if root is None else self._used(root, where)
        if root is None or used is None:
            return None
        if used and "definitions" in schema:
            self._add((where, "definitions"), "reserved", "cannot stand beside $defs")
            return None
        parts = [root, *used.values()]
        anchors = self._anchors(parts)
        if anchors is None or not self._defaults_fit(root, used, anchors):
            return None
        defs = {name: part.schema for name, part in sorted(used.items())}
        extra: dict[str, Json] = {"$defs": defs} if defs else {}
        return Bundle({**root.schema, **extra, "$schema": DIALECT, "type": "object"}, anchors)

    def _add(self, where: Where, code: str, message: str) -> None:
        self._findings.add(Stage.MCP, code, where, message)

    # --- one schema ---------------------------------------------------------------------------

    def _part(self, schema: Json, where: Where) -> _Part | None:
        rewriter = _Rewriter(self._components, self._patterns, self._add)
        result = rewriter.rewritten(schema, where, nested=False)
        if rewriter.faulty:
            return None
        return _Part(result, tuple(sorted(rewriter.uses)), tuple(rewriter.inner))

    def _component(self, name: str) -> _Part | None:
        if name not in self._parts:
            where: Where = (((None, "components"), "schemas"), name)
            part = self._part(self._components[name], where)
            self._parts[name] = part
            if part is not None:
                self._defs[name] = part.schema
        return self._parts[name]

    # --- many schemas -------------------------------------------------------------------------

    def _used(self, root: _Part, where: Where) -> dict[str, _Part] | None:
        """Every component that a schema leads to, cycles included."""
        used: dict[str, _Part] = {}
        todo = list(root.uses)
        while todo:
            name = todo.pop()
            if name in used:
                continue
            part = self._component(name) if self._affordable(self._size_of(name), where) else None
            if part is None:
                return None
            used[name] = part
            todo.extend(part.uses)
        return used

    def _size_of(self, name: str) -> int:
        if name not in self._sizes:
            self._sizes[name] = len(compact(self._components[name]))
        return self._sizes[name]

    def _affordable(self, size: int, where: Where) -> bool:
        """Take so many bytes off what is left for bundles, before any work is done on them."""
        self._left -= size
        if self._left < 0:
            message = f"the tools' schemas together take more than {MAX_BUNDLES:,} bytes"
            self._add(where, "schemas_too_large", message)
        return self._left >= 0

    def _anchors(self, parts: list[_Part]) -> dict[str, Json] | None:
        """What the anchors of a bundle lead to, the bundle itself (`#`) included."""
        anchors: dict[str, Json] = {"": parts[0].schema}
        for part in parts:
            for keyword, schema, at in part.having("$anchor", "$dynamicAnchor"):
                name = schema[keyword]
                if anchors.setdefault(name, schema) is not schema:
                    self._add(at, "repeated_anchor", f"the anchor {name!r} stands twice")
                    return None
        for part in parts:
            for keyword, schema, at in part.having("$dynamicRef"):
                if schema[keyword].removeprefix("#") not in anchors:
                    self._add((at, keyword), "dangling", f"{schema[keyword]!r} leads nowhere")
                    return None
        return anchors

    def _defaults_fit(
        self, root: _Part, used: Mapping[str, _Part], anchors: Mapping[str, Json]
    ) -> bool:
        # What an anchor means may differ from bundle to bundle; all else means one thing.
        todo = [root]
        for name, part in sorted(used.items()):
            if name not in self._judged or len(anchors) > 1:
                todo.append(part)
                self._judged.add(name)
        # Every part is judged, so that all that does not fit is named.
        return min([self._fit(part, anchors) for part in todo])

    def _fit(self, part: _Part, anchors: Mapping[str, Json]) -> bool:
        fits = True
        for _, schema, where in part.having("default"):
            try:
                found = misfit(schema, schema["default"], self._defs, anchors, self._allowance)
                fault = None if found is None else f"does not fit its schema: {found}"
            except Undecided as error:
                fault = str(error)
            if fault is not None:
                self._add((where, "default"), "bad_default", fault)
                fits = False
        return fits


_SIMPLE = (str, bool, int, type(None))
# Keywords that are judged together with others, or by what stands around them.
_TOGETHER = frozenset({"$defs", "definitions", "patternProperties", "$dynamicRef"})


class _Rewriter:
    """Rewrites the references of one schema and judges whether it is well formed."""

    def __init__(
        self,
        components: Mapping[str, Json],
        patterns: Patterns,
        add: Callable[[Where, str, str], None],
    ) -> None:
        self._components = components
        self._patterns = patterns
        self._add = add
        self.faulty = False
        self.uses: set[str] = set()
        self.inner: list[tuple[dict[str, Json], Where]] = []

    def _fault(self, where: Where, code: str, message: str) -> None:
        self.faulty = True
        self._add(where, code, message)

    def rewritten(self, schema: Json, where: Where, *, nested: bool, foreign: bool = False) -> Json:
        """A schema with its references rewritten.

        `foreign` says that a schema around it has an `$id` of its own, so that references from
        here would be looked up there, where nothing is.
        """
        if type(schema) is bool:
            return schema
        if type(schema) is not dict:
            self._fault(where, "wrong_type", "must be a schema, which is an object or a boolean")
            return schema
        foreign = foreign or (nested and "$id" in schema)
        result: dict[str, Json] = {}
        for name, value in schema.items():
            at: Where = (where, name)
            if name == "$ref":
                result[name] = self._reference(value, at, foreign=foreign)
            elif name == "discriminator":
                result[name] = self._discriminator(value)
            elif name in _HOLDS:
                result[name] = self._inner(_HOLDS[name], value, at, foreign=foreign)
            else:
                self._keyword(name, value, at)
                result[name] = value if type(value) in _SIMPLE else self._plain(value, at)
        self.inner.append((result, where))
        if not _TOGETHER.isdisjoint(result):
            self._together(result, where, foreign=foreign)
        return result

    def _inner(self, form: str, value: Json, where: Where, *, foreign: bool) -> Json:
        if form == "one":
            return self.rewritten(value, where, nested=True, foreign=foreign)
        if form == "list" and type(value) is list and value:
            return [
                self.rewritten(item, (where, n), nested=True, foreign=foreign)
                for n, item in enumerate(value)
            ]
        if form == "map" and type(value) is dict:
            return {
                name: self.rewritten(item, (where, name), nested=True, foreign=foreign)
                for name, item in value.items()
            }
        wanted = "a list that is not empty" if form == "list" else "an object"
        self._fault(where, "wrong_type", f"must be {wanted}")
        return value

    def _reference(self, target: Json, where: Where, *, foreign: bool) -> Json:
        if type(target) is not str or not target.startswith(_COMPONENT):
            message = f"a tool's schema refers to {_COMPONENT}<name> only"
            self._fault(where, "bad_reference", message)
            return target
        token = target.removeprefix(_COMPONENT)
        name = _unescaped(token)
        if name is None or type(self._components.get(name)) is not dict:
            self._fault(where, "dangling", f"{target!r} leads to no schema")
            return target
        if foreign:
            self._fault(where, "foreign_base", "is looked up below the $id around it")
        self.uses.add(name)
        return f"#/$defs/{token}"

    def _discriminator(self, value: Json) -> Json:
        """The one keyword of OpenAPI that refers to schemas: to where they stand now."""
        mapping = value.get("mapping") if type(value) is dict else None
        if type(mapping) is not dict:
            return value
        moved = {}
        for key, target in mapping.items():
            name = target.removeprefix(_COMPONENT) if type(target) is str else ""
            moved[key] = target
            if name != target and type(self._components.get(name)) is dict:
                self.uses.add(name)
                moved[key] = f"#/$defs/{name}"
        return {**value, "mapping": moved}

    def _plain(self, value: Json, where: Where) -> Json:
        try:
            return plain(value)
        except ValueError as error:
            self._fault(where, "number_too_large", str(error))
            return value

    def _keyword(self, name: str, value: Json, where: Where) -> None:
        check = _KEYWORDS.get(name)
        if check is not None and not check[0](value):
            self._fault(where, "wrong_type", f"must be {check[1]}")
        elif name == "pattern":
            self._pattern(value, where)

    def _pattern(self, pattern: str, where: Where) -> None:
        fault = self._patterns.fault(pattern, runs=True)
        if fault is not None:
            self._fault(where, "bad_pattern", fault)

    def _together(self, schema: dict[str, Json], where: Where, *, foreign: bool) -> None:
        if "$defs" in schema and "definitions" in schema:
            self._fault((where, "definitions"), "reserved", "cannot stand beside $defs")
        patterns = schema.get("patternProperties")
        for pattern in patterns if type(patterns) is dict else ():
            self._pattern(pattern, ((where, "patternProperties"), pattern))
        reference: Json = schema.get("$dynamicRef")
        if type(reference) is str and (foreign or not reference.startswith("#")):
            self._fault((where, "$dynamicRef"), "bad_reference", "must be an anchor from here")


def _unescaped(token: str) -> str | None:
    """The name behind a token of a JSON pointer, or None where an escape is none."""
    if re.search(r"~(?![01])", token):
        return None
    return token.replace("~1", "/").replace("~0", "~")


def resolves_to_object(schema: Json, components: Mapping[str, Json]) -> bool:
    """Whether a schema says that it is an object, itself or through a chain of components."""
    seen = set[str]()
    while type(schema) is dict:
        target = schema.get("$ref")
        if target is None:
            kind = schema.get("type")
            return kind == "object" or (
                type(kind) is list and "object" in kind and {"object", "null"}.issuperset(kind)
            )
        if type(target) is not str or not target.startswith(_COMPONENT) or target in seen:
            return False
        seen.add(target)
        schema = components.get(_unescaped(target.removeprefix(_COMPONENT)) or "")
    return False
