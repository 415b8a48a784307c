"""An OpenAPI 3.0 or 3.1 document as part of the aggregate: OpenAPI 3.0.3, under new names.

Rule 1: every definition and every reference to it is renamed by one table. A reference that
        leads out of the document, or round in a circle, is replaced by what it stood for at
        least: an open schema, a plain response, nothing. The aggregate refers to itself only.
Rule 2: what is said in 3.1 is said in 3.0.3 where it can be said there, and left out where not.
Rule 3: what comes out is valid, whatever was admitted: no document can break the aggregate.

Knows nothing of other documents.  Pure.
"""

import re
from collections.abc import Callable, Iterator, Mapping

from tapes.jsontext import Json
from tapes.services.compiling import (
    METHODS,
    SECTIONS,
    is_reference,
    is_response_key,
    members,
    template_names,
)
from tapes.services.schemas import TYPES
from tapes.services.spelling import Number, number_of

UNRESOLVED = "x-tapes-unresolved"
_NO_DESCRIPTION = "response"

_STYLES = {
    "path": ("matrix", "label", "simple"),
    "query": ("form", "spaceDelimited", "pipeDelimited", "deepObject"),
    "header": ("simple",),
    "cookie": ("form",),
}
# Members of a schema that mean the same in 3.0.3.
_SAME = (
    "title",
    "description",
    "format",
    "pattern",
    "nullable",
    "uniqueItems",
    "readOnly",
    "writeOnly",
    "deprecated",
    "multipleOf",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "example",
)
_FLOWS = {
    "implicit": ("authorizationUrl",),
    "password": ("tokenUrl",),
    "clientCredentials": ("tokenUrl",),
    "authorizationCode": ("authorizationUrl", "tokenUrl"),
}
_SCHEME_MEMBERS = {
    "apiKey": ("name", "in"),
    "http": ("scheme", "bearerFormat"),
    "oauth2": ("flows",),
    "openIdConnect": ("openIdConnectUrl",),
}

Names = Mapping[str, Mapping[str, str]]


class Rendering:
    """One document under the names of the aggregate."""

    def __init__(
        self,
        document: dict[str, Json],
        names: Names,
        operation_id: Callable[[str, str], str | None],
    ) -> None:
        """`names` gives, by section, the new name of each component; `operation_id` by path and
        method the new id of each operation."""
        self._components = members(document.get("components"))
        self._names = names
        self._operation_id = operation_id
        self._ends: dict[tuple[str, str], bool] = {}

    def components(self) -> dict[str, dict[str, Json]]:
        """All components, by section, under their new names."""
        render: dict[str, Callable[[Json], Json]] = {
            "schemas": self.schema,
            "responses": self._response,
            "parameters": self._parameter,
            "requestBodies": self._body,
            "headers": self._header,
            "examples": self._example,
            "securitySchemes": _scheme,
        }
        found: dict[str, dict[str, Json]] = {}
        for section in SECTIONS:
            for name, value in members(self._components.get(section)).items():
                rendered = render[section](value)
                if rendered is not None:
                    found.setdefault(section, {})[self._names[section][name]] = rendered
        return found

    # --- references ---------------------------------------------------------------------------

    def _renamed(self, target: Json, section: str) -> str | None:
        """The new reference to a component of a section, or None where it leads nowhere."""
        prefix = f"#/components/{section}/"
        if type(target) is not str or not target.startswith(prefix):
            return None
        name = target.removeprefix(prefix)
        new = self._names.get(section, {}).get(name)
        return prefix + new if new is not None and self._leads_to_end(section, name) else None

    def _leads_to_end(self, section: str, name: str) -> bool:
        """Whether a chain of references that begins at a component ends at a definition."""
        prefix, known = f"#/components/{section}/", members(self._components.get(section))
        chain: list[tuple[str, str]] = []
        ends = False
        while name in known:
            link = (section, name)
            if link in self._ends:
                ends = self._ends[link]
                break
            self._ends[link] = False  # a chain that comes back here has no end
            chain.append(link)
            target = members(known[name]).get("$ref")
            if not target:
                ends = True
                break
            name = target.removeprefix(prefix) if type(target) is str else ""
        self._ends.update(dict.fromkeys(chain, ends))
        return ends

    def _extension(self, value: Json) -> Json:
        """An extension with the references in it renamed."""
        if type(value) is list:
            return [self._extension(item) for item in value]
        if type(value) is not dict:
            return value
        result = {name: self._extension(item) for name, item in value.items()}
        target = value.get("$ref")
        if type(target) is str:
            parts = target.split("/", 3)
            if len(parts) == 4 and parts[:2] == ["#", "components"]:
                new = self._names.get(parts[2], {}).get(parts[3])
                if new is not None:
                    result["$ref"] = f"#/components/{parts[2]}/{new}"
        return result

    def _extensions(self, owner: dict[str, Json]) -> dict[str, Json]:
        return {
            name: self._extension(value) for name, value in owner.items() if name.startswith("x-")
        }

    # --- schemas ------------------------------------------------------------------------------

    def schema(self, value: Json) -> dict[str, Json]:
        """A schema in 3.0.3."""
        if type(value) is not dict:
            return {"not": {}} if value is False else {}
        if value.get("$ref"):
            new = self._renamed(value["$ref"], "schemas")
            return {"$ref": new} if new else {UNRESOLVED: str(value["$ref"])}
        result = {name: value[name] for name in _SAME if value.get(name) is not None}
        step = number_of(value.get("multipleOf"))
        if step is not None and step <= 0:
            del result["multipleOf"]
        result |= self._extensions(value)
        self._type(value, result)
        _limits(value, result)
        self._parts(value, result)
        _choices(value, result)
        return _collapsed(result)

    def _type(self, value: dict[str, Json], result: dict[str, Json]) -> None:
        kinds = value.get("type")
        kinds = [kinds] if type(kinds) is str else (kinds or [])
        if "null" in kinds:
            result["nullable"] = True
        real = sorted({kind for kind in kinds if kind in TYPES and kind != "null"})
        if len(real) == 1:
            result["type"] = real[0]
        elif real:  # only the host's own document says several
            result["anyOf"] = [{"type": kind} for kind in real]
        default = value.get("default", _NOTHING)
        if default is not _NOTHING and _may_be_default(default, real, result):
            result["default"] = default
        if result.get("type") == "array":
            result["items"] = self.schema(value.get("items"))

    def _parts(self, value: dict[str, Json], result: dict[str, Json]) -> None:
        for name in ("items", "not"):
            if value.get(name) is not None:
                result[name] = self.schema(value[name])
        for name in ("oneOf", "anyOf", "allOf"):
            if type(value.get(name)) is list and value[name]:
                self._several(name, value[name], result)
        if type(value.get("properties")) is dict:
            result["properties"] = {
                name: self.schema(part) for name, part in value["properties"].items()
            }
        more = value.get("additionalProperties")
        if more is not None:
            result["additionalProperties"] = more if type(more) is bool else self.schema(more)
        if type(value.get("discriminator")) is dict:
            discriminator = self._discriminator(value["discriminator"], value)
            if discriminator is not None:
                result["discriminator"] = discriminator

    def _several(self, name: str, parts: list[Json], result: dict[str, Json]) -> None:
        """A list of schemas; among choices, null is said by `nullable`."""
        kept = [part for part in parts if name == "allOf" or not _is_null(part)]
        if len(kept) < len(parts):
            result["nullable"] = True
        if kept:
            result[name] = [self.schema(part) for part in kept]

    def _discriminator(
        self, value: dict[str, Json], owner: dict[str, Json]
    ) -> dict[str, Json] | None:
        """A discriminator whose values still lead to the same schemas under their new names."""
        name = value.get("propertyName")
        if type(name) is not str:
            return None
        prefix = "#/components/schemas/"
        mapping: dict[str, Json] = {}
        for key, target in members(value.get("mapping")).items():
            full = target if str(target).startswith("#") else f"{prefix}{target}"
            mapping[key] = self._renamed(full, "schemas") or str(target)
        if not mapping:  # without one, the names of the schemas are the values
            for part in [*(owner.get("oneOf") or ()), *(owner.get("anyOf") or ())]:
                target = members(part).get("$ref")
                new = self._renamed(target, "schemas")
                if new is not None and new != target:
                    mapping[str(target).removeprefix(prefix)] = new
        return {"propertyName": name, **({"mapping": mapping} if mapping else {})}

    # --- parts of operations ------------------------------------------------------------------

    def _parameter(self, value: Json) -> dict[str, Json] | None:
        parameter = members(value)
        if parameter.get("$ref"):
            new = self._renamed(parameter["$ref"], "parameters")
            return {"$ref": new} if new else None
        place = parameter.get("in")
        result: dict[str, Json] = {
            name: parameter[name]
            for name in ("name", "in", "description", "required", "deprecated", "explode")
            if parameter.get(name) is not None
        }
        if parameter.get("style") in _STYLES.get(str(place), ()):
            result["style"] = parameter["style"]
        if place == "path":
            result["required"] = True
        result["schema"] = self.schema(parameter.get("schema"))
        if parameter.get("example") is not None:
            result["example"] = parameter["example"]
        return result | self._extensions(parameter)

    def _parameters(self, value: Json) -> list[Json]:
        rendered = map(self._parameter, value if type(value) is list else ())
        return [parameter for parameter in rendered if parameter is not None]

    def _body(self, value: Json) -> dict[str, Json] | None:
        body = members(value)
        if body.get("$ref"):
            new = self._renamed(body["$ref"], "requestBodies")
            return {"$ref": new} if new else None
        result: dict[str, Json] = {"content": self._content(body)}
        for name in ("description", "required"):
            if body.get(name) is not None:
                result[name] = body[name]
        return result | self._extensions(body)

    def _response(self, value: Json) -> dict[str, Json]:
        response = members(value)
        if response.get("$ref"):
            new = self._renamed(response["$ref"], "responses")
            return {"$ref": new} if new else {"description": _NO_DESCRIPTION}
        result: dict[str, Json] = {"description": response.get("description") or _NO_DESCRIPTION}
        if type(response.get("content")) is dict:
            result["content"] = self._content(response)
        headers = {
            name: self._header(header) or {"schema": {}}
            for name, header in members(response.get("headers")).items()
        }
        if headers:
            result["headers"] = headers
        return result | self._extensions(response)

    def _header(self, value: Json) -> dict[str, Json] | None:
        header = members(value)
        if header.get("$ref"):
            new = self._renamed(header["$ref"], "headers")
            return {"$ref": new} if new else None
        result: dict[str, Json] = {"schema": self.schema(header.get("schema"))}
        for name in ("description", "required", "deprecated"):
            if header.get(name) is not None:
                result[name] = header[name]
        return result

    def _content(self, owner: dict[str, Json]) -> dict[str, Json]:
        return {
            name: self._media_type(members(value))
            for name, value in members(owner.get("content")).items()
        }

    def _media_type(self, media_type: dict[str, Json]) -> dict[str, Json]:
        result: dict[str, Json] = {}
        if media_type.get("schema") is not None:
            result["schema"] = self.schema(media_type["schema"])
        examples = {
            name: example
            for name, given in members(media_type.get("examples")).items()
            if (example := self._example(given)) is not None
        }
        if examples:
            result["examples"] = examples
        elif media_type.get("example") is not None:
            result["example"] = media_type["example"]
        encoding = {
            name: _encoding(members(value))
            for name, value in members(media_type.get("encoding")).items()
        }
        if encoding:
            result["encoding"] = encoding
        return result | self._extensions(media_type)

    def _example(self, value: Json) -> Json:
        """An example object; a bare value is taken for what it would hold."""
        if is_reference(value):
            new = self._renamed(value["$ref"], "examples")
            return {"$ref": new} if new else None
        if type(value) is dict and all(map(_is_example_member, value.items())):
            return value
        return {"value": value}

    # --- paths --------------------------------------------------------------------------------

    def path_item(self, path: str, value: Json, shared_security: Json = None) -> dict[str, Json]:
        """A path item. Its operations take over the requirement that their document has for all."""
        item = members(value)
        result: dict[str, Json] = {
            name: item[name] for name in ("summary", "description") if item.get(name)
        }
        parameters = self._parameters(item.get("parameters"))
        if parameters:
            result["parameters"] = parameters
        for method in METHODS:
            operation = item.get(method)
            if type(operation) is dict:
                result[method] = self._operation(path, method, operation, item, shared_security)
        return result | self._extensions(item)

    def _operation(
        self,
        path: str,
        method: str,
        operation: dict[str, Json],
        item: dict[str, Json],
        shared_security: Json,
    ) -> dict[str, Json]:
        result: dict[str, Json] = {
            name: operation[name]
            for name in ("summary", "description", "tags", "deprecated")
            if operation.get(name) not in (None, "", [])
        }
        operation_id = self._operation_id(path, method)
        if operation_id:
            result["operationId"] = operation_id
        parameters = self._parameters(operation.get("parameters"))
        parameters += self._undescribed(path, operation, item)
        if parameters:
            result["parameters"] = parameters
        body = self._body(operation["requestBody"]) if operation.get("requestBody") else None
        if body is not None:
            result["requestBody"] = body
        result["responses"] = self._responses(members(operation.get("responses")))
        security = operation.get("security")
        security = shared_security if security is None else security
        if type(security) is list:
            result["security"] = self.security(security)
        docs = external_docs(operation)
        return result | docs | self._extensions(operation)

    def _undescribed(
        self, path: str, operation: dict[str, Json], item: dict[str, Json]
    ) -> Iterator[dict[str, Json]]:
        """Path parameters that only a reference out of the document describes."""
        known = set[Json]()
        for owner in (operation, item):
            for value in owner.get("parameters") or ():
                parameter = self._seen_through(value)
                if parameter is not None and parameter.get("in") == "path":
                    known.add(parameter.get("name"))
        for name in template_names(path):
            if name not in known:
                known.add(name)
                yield {"name": name, "in": "path", "required": True, "schema": {}}

    def _seen_through(self, value: Json) -> dict[str, Json] | None:
        while members(value).get("$ref"):
            if self._renamed(value["$ref"], "parameters") is None:
                return None
            name = value["$ref"].removeprefix("#/components/parameters/")
            value = members(self._components.get("parameters")).get(name)
        return members(value)

    def _responses(self, responses: dict[str, Json]) -> dict[str, Json]:
        found: dict[str, Json] = {}
        for key, response in sorted(responses.items()):
            normal = _response_key(key)
            if normal is not None:
                found.setdefault(normal, self._response(response))
        return found or {"default": {"description": _NO_DESCRIPTION}}

    def security(self, requirements: list[Json]) -> list[Json]:
        """Requirements under the new names of their schemes."""
        names = self._names.get("securitySchemes", {})
        return [
            {names.get(name, name): scopes or [] for name, scopes in members(requirement).items()}
            for requirement in requirements
        ]


_NOTHING = object()


def _is_null(part: Json) -> bool:
    return type(part) is dict and part.get("type") in ("null", ["null"])


def _may_be_default(default: Json, kinds: list[str], schema: dict[str, Json]) -> bool:
    """Whether a default is of a type of its schema; one that is not would make it invalid."""
    if default is None:
        return schema.get("nullable") is True or not kinds
    return not kinds or any(_is_of(kind, default) for kind in kinds)


def _is_of(kind: str, value: Json) -> bool:
    match kind:
        case "string":
            return type(value) is str
        case "boolean":
            return type(value) is bool
        case "array":
            return type(value) is list
        case "object":
            return type(value) is dict
        case "integer":
            return type(value) is int or (type(value) is Number and float(value).is_integer())
        case _:
            return type(value) in (int, float, Number)


def _limits(value: dict[str, Json], result: dict[str, Json]) -> None:
    """Bounds: in 3.0.3 whether a bound is exclusive is a flag beside it."""
    for bound, exclusive, tighter in (
        ("minimum", "exclusiveMinimum", max),
        ("maximum", "exclusiveMaximum", min),
    ):
        plain, other = value.get(bound), value.get(exclusive)
        if plain is not None:
            result[bound] = plain
        if type(other) is bool:
            if plain is not None:
                result[exclusive] = other
        elif other is not None and (
            plain is None or tighter(_number(plain), _number(other)) == _number(other)
        ):
            result[bound], result[exclusive] = other, True


def _number(value: Json) -> float:
    number = number_of(value)
    return float(value) if number is None else number


def _choices(value: dict[str, Json], result: dict[str, Json]) -> None:
    """The values that are allowed, and the members that are required."""
    choices = value.get("enum")
    if choices is None and "const" in value:
        choices = [value["const"]]
    if choices:
        result["enum"] = choices
    elif choices is not None:
        result["not"] = {}  # nothing fits
    required = value.get("required")
    if type(required) is list and required:
        result["required"] = sorted(set(required))


def _collapsed(schema: dict[str, Json]) -> dict[str, Json]:
    """`anyOf` of one thing and null is that thing, nullable, where nothing else is in the way."""
    only = schema.get("anyOf")
    if not schema.get("nullable") or only is None or len(only) != 1 or "$ref" in only[0]:
        return schema
    rest = {name: member for name, member in schema.items() if name != "anyOf"}
    return schema if rest.keys() & only[0].keys() else {**only[0], **rest}


def _is_example_member(member: tuple[str, Json]) -> bool:
    name, value = member
    return (
        name == "value"
        or name.startswith("x-")
        or (name in ("summary", "description", "externalValue") and type(value) is str)
    )


def _encoding(encoding: dict[str, Json]) -> dict[str, Json]:
    result = {
        name: encoding[name]
        for name in ("contentType", "explode")
        if encoding.get(name) is not None
    }
    if encoding.get("style") in _STYLES["query"]:
        result["style"] = encoding["style"]
    return result


def _response_key(key: str) -> str | None:
    """A key as 3.0.3 takes it, or None for one that only was admitted."""
    if re.fullmatch(r"default|[1-5]XX", key):
        return key
    return str(int(key)) if not key.endswith("XX") and is_response_key(key) else None


def external_docs(owner: dict[str, Json]) -> dict[str, Json]:
    """The external documentation of an object, where it leads somewhere."""
    docs = members(owner.get("externalDocs"))
    if type(docs.get("url")) is not str:
        return {}
    kept = {name: docs[name] for name in ("url", "description") if docs.get(name) is not None}
    return {"externalDocs": kept}


def _scheme(value: Json) -> dict[str, Json]:
    """A security scheme with the members of its type, and those that its type needs."""
    scheme = members(value)
    kind = str(scheme.get("type"))
    result = {
        name: scheme[name]
        for name in ("type", "description", *_SCHEME_MEMBERS.get(kind, ()))
        if scheme.get(name) is not None
    }
    if kind == "http" and str(scheme.get("scheme")).lower() != "bearer":
        result.pop("bearerFormat", None)
    if kind == "oauth2":
        result["flows"] = {
            name: _flow(members(flow), _FLOWS[name])
            for name, flow in members(scheme.get("flows")).items()
            if name in _FLOWS
        }
    return result | {name: v for name, v in scheme.items() if name.startswith("x-")}


def _flow(flow: dict[str, Json], needed: tuple[str, ...]) -> dict[str, Json]:
    scopes = {name: text for name, text in members(flow.get("scopes")).items() if type(text) is str}
    result: dict[str, Json] = {"scopes": scopes}
    for name in (*needed, "refreshUrl"):
        if type(flow.get(name)) is str:
            result[name] = flow[name]
    return {**dict.fromkeys(needed, ""), **result}
