"""Whether the rewritten document of a service can be published: shape, references, rules, lint.

Rule 1: a document is judged alone. No other service and no part of the host changes the outcome.
Rule 2: the tables say which members are read and what they must be; the rest is ignored.
Rule 3: references are never followed out of the document, and never fetched.
Rule 4: places are named in the author's document, by its own local paths.
Rule 5: work is bounded by the number of paths, operations and objects, far above what people
        write, so that no document keeps the host busy.

Knows nothing of manifests, tools or the aggregate.  Pure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tapes.jsontext import Json
from tapes.services.problems import Findings, Stage, Where
from tapes.services.schemas import (
    ALL,
    FLAG,
    OBJECT,
    ONLY_REFERENCES,
    ONLY_TYPES,
    TEXT,
    TEXTS,
    Check,
    Schemas,
    Scope,
    is_texts,
)

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
SECTIONS = (
    "schemas",
    "responses",
    "parameters",
    "requestBodies",
    "headers",
    "examples",
    "securitySchemes",
)

_INFO: dict[str, Check] = {
    **dict.fromkeys(("title", "description", "termsOfService", "version"), TEXT),
    **dict.fromkeys(("contact", "license"), OBJECT),
}
_CONTACT = dict.fromkeys(("name", "url", "email", "identifier"), TEXT)
_EXTERNAL_DOCS = dict.fromkeys(("description", "url"), TEXT)
_TAG = dict.fromkeys(("name", "description"), TEXT)
_PATH_ITEM = dict.fromkeys(("$ref", "summary", "description"), TEXT)
_OPERATION: dict[str, Check] = {
    **dict.fromkeys(("operationId", "summary", "description"), TEXT),
    "tags": TEXTS,
    "deprecated": FLAG,
}
_PARAMETER: dict[str, Check] = {
    **dict.fromkeys(("$ref", "name", "in", "description", "style"), TEXT),
    **dict.fromkeys(("required", "deprecated", "explode"), FLAG),
}
_BODY: dict[str, Check] = {**dict.fromkeys(("$ref", "description"), TEXT), "required": FLAG}
_RESPONSE = dict.fromkeys(("$ref", "description"), TEXT)
_HEADER: dict[str, Check] = {
    **dict.fromkeys(("$ref", "description"), TEXT),
    **dict.fromkeys(("required", "deprecated"), FLAG),
}
_MEDIA_TYPE: dict[str, Check] = {"examples": OBJECT}
_ENCODING: dict[str, Check] = {
    **dict.fromkeys(("contentType", "style"), TEXT),
    "explode": FLAG,
}
_SCHEME: dict[str, Check] = {
    **dict.fromkeys(
        ("type", "description", "name", "in", "scheme", "bearerFormat", "openIdConnectUrl"), TEXT
    ),
    "flows": OBJECT,
}

_VERSION = re.compile(r"3\.[01](\..*)?", re.DOTALL)
_TEMPLATE = re.compile(r"\{([^{}]*)\}")
_NOT_IN_PATH = re.compile(r"[\s?#\x00-\x1f\x7f]")
_COMPONENT_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_STATUS = re.compile(r"[+-]?[0-9]+")
_PLACES = ("path", "query", "header", "cookie")
_STEPS = 9
MAX_OPERATIONS = 10_000
MAX_OBJECTS = 200_000


def template_names(path: str) -> list[str]:
    """The names between braces in a path."""
    return _TEMPLATE.findall(path)


def normal_path(path: str) -> str:
    """A path as the aggregate names it: without outer white space and one slash at its end."""
    return path.strip().removesuffix("/")


def is_response_key(key: str) -> bool:
    """Whether a key of `responses` is one: `default`, a range such as `2XX`, or a status."""
    if key == "default" or key.endswith("XX"):
        return True
    # A status has three digits; a few more may be zeros in front of it.
    return len(key) < 20 and _STATUS.fullmatch(key) is not None and 100 <= int(key) <= 599


def members(value: Json) -> dict[str, Json]:
    """The members of an object; none for anything else."""
    return value if type(value) is dict else {}


def targets_of(document: dict[str, Json]) -> frozenset[str]:
    """Every reference that leads to a component of the document."""
    components = members(document.get("components"))
    return frozenset(
        f"#/components/{section}/{name}"
        for section in SECTIONS
        for name in members(components.get(section))
    )


def operations_of(item: Json) -> Iterator[tuple[str, dict[str, Json]]]:
    """The operations of a path item with their methods."""
    for method in METHODS:
        operation = members(item).get(method)
        if type(operation) is dict:
            yield method, operation


def check(document: dict[str, Json], findings: Findings) -> None:
    """Judge a document whose paths are an object, into the findings."""
    paths = members(document.get("paths"))
    operations = sum(len(members(item).keys() & _METHODS) for item in paths.values())
    if max(len(paths), operations) > MAX_OPERATIONS:
        message = f"there are more than {MAX_OPERATIONS:,} paths or operations"
        findings.add(Stage.SHAPE, "too_many_operations", (None, "paths"), message)
        return
    try:
        _Compiler(document, findings).run()
    except _TooManyObjects:
        message = f"the document has more than {MAX_OBJECTS:,} parameters, responses and the like"
        findings.add(Stage.SHAPE, "too_many_objects", None, message)


class _TooManyObjects(Exception):
    """The document has more objects than are worth judging."""


@dataclass(slots=True)
class _Parameters:
    """The parameters of one list, as far as they can be seen through."""

    seen: dict[tuple[str, str], dict[str, Json]] = field(default_factory=dict)
    hidden: bool = False


class _Compiler:
    def __init__(self, document: dict[str, Json], findings: Findings) -> None:
        self._document = document
        self._components = members(document.get("components"))
        self._findings = findings
        self._schemas = Schemas(findings, targets_of(document))
        self._left = MAX_OBJECTS

    def run(self) -> None:
        document = self._document
        self._version(document.get("openapi"))
        self._info(document.get("info"), (None, "info"))
        for tag, where in self._list(document, "tags", None):
            self._tag(tag, where)
        self._requirements(document, None, ALL)
        self._paths(members(document.get("paths")))
        for item, where in self._map(document, "webhooks", None):
            self._path_item(item, where, ONLY_TYPES)
        self._all_components()
        self._ids(members(document.get("paths")))

    # --- values of the right type -------------------------------------------------------------

    def _shape(self, where: Where, message: str) -> None:
        self._findings.add(Stage.SHAPE, "wrong_type", where, message)

    def _rule(self, where: Where, code: str, message: str) -> None:
        self._findings.add(Stage.STRUCTURE, code, where, message)

    def _object(
        self, value: Json, where: Where, table: dict[str, Check], *, nullable: bool = True
    ) -> dict[str, Json]:
        """The value with its members' types judged; an empty one for what is no object."""
        self._left -= 1
        if self._left < 0:
            raise _TooManyObjects
        if type(value) is dict:
            for name, (holds, what) in table.items():
                member = value.get(name)
                if member is not None and not holds(member):
                    self._shape((where, name), f"must be {what}")
            return value
        if value is not None or not nullable:
            self._shape(where, "must be an object")
        return {}

    def _list(
        self, owner: dict[str, Json], name: str, where: Where
    ) -> Iterator[tuple[Json, Where]]:
        value, where = owner.get(name), (where, name)
        if type(value) is list:
            for index, item in enumerate(value):
                yield item, (where, index)
        elif value is not None:
            self._shape(where, "must be a list")

    def _map(
        self, owner: dict[str, Json], name: str, where: Where
    ) -> Iterator[tuple[Json, tuple[Where, str]]]:
        value, where = owner.get(name), (where, name)
        if type(value) is dict:
            for key, item in value.items():
                yield item, (where, key)
        elif value is not None:
            self._shape(where, "must be an object")

    def _external_docs(self, owner: dict[str, Json], where: Where) -> None:
        if owner.get("externalDocs") is not None:
            self._object(owner.get("externalDocs"), (where, "externalDocs"), _EXTERNAL_DOCS)

    def _resolved(self, value: Json, section: str) -> dict[str, Json] | None:
        """What a value is behind local references, or None where it cannot be seen through."""
        for _ in range(_STEPS + 1):
            if type(value) is not dict:
                return None
            target = value.get("$ref")
            if not target:
                return value
            prefix = f"#/components/{section}/"
            if type(target) is not str or not target.startswith(prefix):
                return None
            value = members(self._components.get(section)).get(target.removeprefix(prefix))
        return None

    # --- the root -----------------------------------------------------------------------------

    def _version(self, version: Json) -> None:
        if type(version) is not str or not _VERSION.fullmatch(version):
            self._findings.add(
                Stage.SHAPE, "bad_version", (None, "openapi"), "must be 3.0, 3.1, or one of theirs"
            )

    def _info(self, info: Json, where: Where) -> None:
        found = self._object(info, where, _INFO)
        for name in ("contact", "license"):
            if type(found.get(name)) is dict:
                self._object(found[name], (where, name), _CONTACT)

    def _tag(self, tag: Json, where: Where) -> None:
        found = self._object(tag, where, _TAG)
        self._external_docs(found, where)
        name = found.get("name")
        if (name is None or type(name) is str) and not (name or "").strip():
            self._rule(where, "missing", "a tag needs a name")

    def _requirements(self, owner: dict[str, Json], where: Where, scope: Scope) -> None:
        schemes = members(self._components.get("securitySchemes"))
        for requirement, at in self._list(owner, "security", where):
            if type(requirement) is not dict or not all(
                scopes is None or is_texts(scopes) for scopes in requirement.values()
            ):
                self._shape(at, "must be an object of lists of strings")
                continue
            for name in requirement:
                if scope.rules and name not in schemes:
                    self._rule((at, name), "unknown_scheme", "is defined by no security scheme")

    # --- paths --------------------------------------------------------------------------------

    def _paths(self, paths: dict[str, Json]) -> None:
        normal: dict[str, str] = {}
        for path, item in sorted(paths.items()):
            where: Where = ((None, "paths"), path)
            self._path(path, where)
            first = normal.setdefault(normal_path(path), path)
            if first != path:
                self._findings.add(
                    Stage.SHAPE, "repeated_path", where, f"is the same path as {first!r}"
                )
            self._path_item(item, where, ALL, path)

    def _path(self, path: str, where: Where) -> None:
        text = normal_path(path)
        fault = None
        if _NOT_IN_PATH.search(text):
            fault = "a path has no white space, no control characters, no ? and no #"
        elif text.count("{") != text.count("}"):
            fault = "the braces of a path must balance"
        elif "{}" in text:
            fault = "a parameter in braces needs a name"
        if fault is not None:
            self._findings.add(Stage.SHAPE, "bad_path", where, fault)
        names = template_names(text)
        if len(set(names)) != len(names):
            self._rule(where, "repeated", "names one parameter twice")

    def _path_item(self, item: Json, where: Where, scope: Scope, path: str = "") -> None:
        found = self._object(item, where, _PATH_ITEM)
        shared = self._parameters(found, where, scope)
        for method in METHODS:
            operation = found.get(method)
            if operation is not None:
                self._operation(operation, (where, method), scope, path, shared)

    def _operation(
        self, value: Json, where: Where, scope: Scope, path: str, shared: _Parameters
    ) -> None:
        operation = self._object(value, where, _OPERATION)
        self._external_docs(operation, where)
        own = self._parameters(operation, where, scope, shared)
        self._requirements(operation, where, scope)
        if scope.rules:
            self._template(path, where, shared, own)
        self._body(operation.get("requestBody"), (where, "requestBody"), scope)
        keys = 0
        for response, at in self._map(operation, "responses", where):
            keys += 1
            self._response(response, at, scope)
            if scope.rules and not is_response_key(at[1]):
                message = "must be default, a status from 100 to 599, or a range such as 2XX"
                self._findings.add(Stage.LINT, "bad_response_key", at, message)
        if scope.rules and not keys and type(value) is dict:
            self._findings.add(
                Stage.LINT, "no_response", where, "an operation declares at least one response"
            )

    def _template(self, path: str, where: Where, shared: _Parameters, own: _Parameters) -> None:
        described = {
            name: parameter
            for (place, name), parameter in (shared.seen | own.seen).items()
            if place == "path"
        }
        for name, parameter in sorted(described.items()):
            if parameter.get("required") is not True:
                self._rule(where, "not_required", f"the path parameter {name!r} is required: true")
        if shared.hidden or own.hidden:
            return
        names = set(template_names(normal_path(path)))
        for name in sorted(names - described.keys()):
            self._rule(where, "undescribed", f"no path parameter describes {{{name}}}")
        for name in sorted(described.keys() - names):
            self._rule(where, "not_in_path", f"the path parameter {name!r} is not in the path")

    # --- parts of operations ------------------------------------------------------------------

    def _parameters(
        self,
        owner: dict[str, Json],
        where: Where,
        scope: Scope,
        shared: _Parameters | None = None,
    ) -> _Parameters:
        found = _Parameters()
        for value, at in self._list(owner, "parameters", where):
            self._parameter(value, at, scope)
            if not scope.rules:
                continue
            parameter = self._resolved(value, "parameters")
            if parameter is None:
                found.hidden = True
                continue
            place, name = parameter.get("in"), parameter.get("name")
            if type(place) is not str or type(name) is not str:
                continue
            if (place, name) in found.seen or (shared and (place, name) in shared.seen):
                self._rule(at, "repeated", f"{name!r} in {place} is described already")
            found.seen[place, name] = parameter
        return found

    def _parameter(self, value: Json, where: Where, scope: Scope) -> None:
        parameter = self._object(value, where, _PARAMETER, nullable=False)
        if parameter.get("$ref"):
            if scope.references:
                self._schemas.reference(parameter["$ref"], (where, "$ref"))
            self._schemas.check(parameter.get("schema"), (where, "schema"), ONLY_TYPES)
            return
        self._extensions(parameter, where, scope)
        self._schemas.check(parameter.get("schema"), (where, "schema"), scope)
        if not scope.rules or type(value) is not dict:
            return
        name, place = parameter.get("name"), parameter.get("in")
        if name is None or (type(name) is str and not name.strip()):
            self._rule(where, "missing", "a parameter needs a name")
        if place is None or (type(place) is str and place not in _PLACES):
            self._rule(where, "bad_place", f"in must be one of {', '.join(_PLACES)}")

    def _extensions(self, owner: dict[str, Json], where: Where, scope: Scope) -> None:
        if scope.references:
            for name, value in owner.items():
                if name.startswith("x-"):
                    self._schemas.extension(value, (where, name))

    def _body(self, value: Json, where: Where, scope: Scope, *, nullable: bool = True) -> None:
        body = self._object(value, where, _BODY, nullable=nullable)
        if not body and type(value) is not dict:
            return
        if body.get("$ref"):
            if scope.references:
                self._schemas.reference(body["$ref"], (where, "$ref"))
            scope = ONLY_TYPES
        elif scope.rules and body.get("content") in (None, {}):
            self._rule(where, "no_content", "a request body has content")
        self._extensions(body, where, scope)
        self._content(body, where, scope)

    def _response(
        self, value: Json, where: Where, scope: Scope, header_scope: Scope | None = None
    ) -> None:
        response = self._object(value, where, _RESPONSE)
        if response.get("$ref"):
            if scope.references:
                self._schemas.reference(response["$ref"], (where, "$ref"))
            scope = header_scope = ONLY_TYPES
        self._extensions(response, where, scope)
        self._content(response, where, scope)
        for header, at in self._map(response, "headers", where):
            self._header(header, at, header_scope or scope)

    def _header(self, value: Json, where: Where, scope: Scope) -> None:
        header = self._object(value, where, _HEADER, nullable=False)
        if header.get("$ref"):
            if scope.references:
                self._schemas.reference(header["$ref"], (where, "$ref"))
            scope = ONLY_TYPES
        self._schemas.check(header.get("schema"), (where, "schema"), scope)

    def _content(self, owner: dict[str, Json], where: Where, scope: Scope) -> None:
        for value, at in self._map(owner, "content", where):
            media_type = self._object(value, at, _MEDIA_TYPE)
            if scope.rules and "/" not in at[1]:
                self._rule(at, "bad_media_type", "a media type contains a slash")
            self._extensions(media_type, at, scope)
            self._schemas.check(media_type.get("schema"), (at, "schema"), scope)
            if scope.references:
                for name, example in members(media_type.get("examples")).items():
                    if is_reference(example):
                        place: Where = (((at, "examples"), name), "$ref")
                        self._schemas.reference(example["$ref"], place)
            for encoding, place in self._map(media_type, "encoding", at):
                found = self._object(encoding, place, _ENCODING, nullable=False)
                for header, spot in self._map(found, "headers", place):
                    self._header(header, spot, ONLY_TYPES)

    # --- components ---------------------------------------------------------------------------

    def _all_components(self) -> None:
        root: Where = (None, "components")
        components = self._object(self._document.get("components"), root, {})
        for section in SECTIONS:
            for value, where in self._map(components, section, root):
                if not _COMPONENT_NAME.fullmatch(where[1]):
                    message = "a component's name has letters, digits, dots, dashes, underscores"
                    self._rule(where, "bad_name", message)
                self._component(section, value, where)

    def _component(self, section: str, value: Json, where: Where) -> None:
        match section:
            case "schemas":
                self._schemas.check(value, where, ALL)
            case "responses":
                self._response(value, where, ALL, ONLY_REFERENCES)
            case "parameters":
                self._parameter(value, where, ALL)
            case "requestBodies":
                self._body(value, where, ALL, nullable=False)
            case "headers":
                self._header(value, where, ONLY_TYPES)
            case "securitySchemes":
                self._scheme(value, where)

    def _scheme(self, value: Json, where: Where) -> None:
        scheme = self._object(value, where, _SCHEME, nullable=False)
        if type(value) is not dict:
            return
        kind = scheme.get("type")
        if kind == "apiKey":
            if not scheme.get("name") or scheme.get("in") not in ("query", "header", "cookie"):
                message = "an apiKey needs a name, and in: query, header or cookie"
                self._rule(where, "incomplete_scheme", message)
        elif type(kind) is str and kind in _NEEDED:
            if not scheme.get(_NEEDED[kind]):
                self._rule(where, "incomplete_scheme", f"{kind} needs {_NEEDED[kind]}")
        elif kind is None or type(kind) is str:
            known = ", ".join(("apiKey", *_NEEDED))
            self._rule(where, "unknown_scheme_type", f"its type is one of {known}")

    # --- lint ---------------------------------------------------------------------------------

    def _ids(self, paths: dict[str, Json]) -> None:
        seen: dict[str, str] = {}
        for path, item in sorted(paths.items()):
            for method, operation in operations_of(item):
                given = operation.get("operationId")
                if type(given) is not str or not given:
                    continue
                place = f"{method.upper()} {path}"
                first = seen.setdefault(given, place)
                if first != place:
                    self._findings.add(
                        Stage.LINT,
                        "repeated_operation_id",
                        ((((None, "paths"), path), method), "operationId"),
                        f"{given!r} is the id of {first} already",
                    )


_METHODS = frozenset(METHODS)
_NEEDED = {"http": "scheme", "oauth2": "flows", "openIdConnect": "openIdConnectUrl"}


def is_reference(value: Json) -> bool:
    """Whether a value is a reference and nothing else."""
    return type(value) is dict and type(value.get("$ref")) is str and len(value) == 1
