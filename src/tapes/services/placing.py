"""Where the arguments of a tool go in its request, where they are not all its body.

Rule 1: this is the lenient lane, and only for an operator who allows it: GET beside POST, with
        parameters of the path and of the query. A body is the argument `body`.
Rule 2: an argument stays in its place. Every character that means something in a URL is escaped,
        and what no escape keeps in place (an empty segment, `.`, `..`) is refused. No argument
        becomes a header, a host or another path.
Rule 3: arguments in a URL are texts, numbers, flags and lists of them. A null in a query is an
        argument that is not given: frameworks declare what may be left out as what may be null.

Knows nothing of MCP or connections.  Pure.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from tapes.errors import BadArguments
from tapes.jsontext import Json
from tapes.services.compiling import members
from tapes.services.openapi import leads_out
from tapes.services.problems import Findings, Stage, Where
from tapes.services.spelling import Number, compact
from tapes.services.toml import float_text

METHODS = ("get", "post")
BODY = "body"

_STEPS = 9
_PARAMETERS = "#/components/parameters/"
_BETWEEN = {"spaceDelimited": "%20", "pipeDelimited": "%7C"}
_IN_TEMPLATE = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Placing:
    """The method of a tool, and the places of its arguments."""

    method: str
    path: tuple[str, ...]
    query: tuple[
        tuple[str, str], ...
    ]  # each with what stands between a list's items; else repeated
    has_body: bool

    def request(
        self, template: str, arguments: dict[str, Json]
    ) -> tuple[str, str, str, bytes | None]:
        """Method, path, query and body of a call. Raises BadArguments (rule 2)."""
        path = _IN_TEMPLATE.sub(lambda m: _segment(m[1], arguments.get(m[1])), template)
        if leads_out(path):  # escaped it may still: some servers read `..;x` and `..\\x` as `..`
            raise BadArguments("an argument that stands in the path would lead out of its place")
        query = "&".join(
            f"{quote(name, safe='')}={text}"
            for name, between in self.query
            if arguments.get(name) is not None
            for text in _in_query(name, arguments[name], between)
        )
        body = None
        if self.has_body and BODY in arguments:
            body = compact(arguments[BODY])
        return self.method.upper(), path, query, body


def _text(name: str, value: Json) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return value
        case int():
            return str(value)
        case float():
            return float_text(value)
        case Number():
            return value.text
        case _:
            raise BadArguments(f"{name} must be a text, a number, true or false")


def _segment(name: str, value: Json) -> str:
    """A path argument, which fills one segment or a part of one and never ends it."""
    items = value if type(value) is list else [value]
    text = ",".join(quote(_text(name, item), safe="") for item in items)
    if text.strip(".") == "":
        raise BadArguments(f"{name} must not be empty, nor dots alone: it stands in a path")
    return text


def _in_query(name: str, value: Json, between: str) -> Iterator[str]:
    if type(value) is list:
        texts = [quote(_text(name, item), safe="") for item in value]
        yield from [between.join(texts)] if between and texts else texts
    else:
        yield quote(_text(name, value), safe="")


# --- declarations -----------------------------------------------------------------------------


class Places:
    """Reads parameters of operations as places of arguments, into the findings."""

    def __init__(self, document: dict[str, Json], findings: Findings) -> None:
        self._known = members(members(document.get("components")).get("parameters"))
        self._findings = findings

    def _add(self, where: Where, code: str, message: str) -> None:
        self._findings.add(Stage.MCP, code, where, message)

    def placing(
        self, method: str, item: dict[str, Json], operation: dict[str, Json], where: Where
    ) -> tuple[Placing, dict[str, Json]] | None:
        """The places, and the schema of the arguments; None where something is wrong."""
        properties: dict[str, Json] = {}
        required: list[str] = []
        path: list[str] = []
        query: list[tuple[str, str]] = []
        for value in [*(item.get("parameters") or ()), *(operation.get("parameters") or ())]:
            parameter = self._seen_through(value)
            place, name = parameter.get("in"), parameter.get("name")
            if place in ("header", "cookie") and not parameter.get("required"):
                continue  # a service that can do without it does
            if place not in ("path", "query") or type(name) is not str:
                self._add(where, "not_placed", "only arguments of path and query have a place")
                return None
            if name in properties or name == BODY:
                self._add(where, "repeated_argument", f"two arguments are named {name!r}")
                return None
            properties[name] = _described(parameter)
            if place == "path" or parameter.get("required") is True:
                required.append(name)
            if place == "path":
                path.append(name)
            else:
                style = parameter.get("style") or "form"
                repeated = parameter.get("explode", style == "form") is not False
                query.append((name, "" if repeated else _BETWEEN.get(style, ",")))
        body = operation.get("requestBody")
        if body is not None:
            properties[BODY] = {}  # its schema is put here by whoever reads bodies
            if members(body).get("required") is True:
                required.append(BODY)
        placing = Placing(method, tuple(path), tuple(query), body is not None)
        return placing, {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }

    def _seen_through(self, value: Json) -> dict[str, Json]:
        for _ in range(_STEPS):
            target = members(value).get("$ref")
            if type(target) is not str or not target.startswith(_PARAMETERS):
                break
            value = self._known.get(target.removeprefix(_PARAMETERS))
        return members(value)


def _described(parameter: dict[str, Json]) -> dict[str, Any]:
    schema = members(parameter.get("schema"))
    text = parameter.get("description")
    # Beside a reference a description says what the argument means here.
    return {**schema, "description": text} if text and "description" not in schema else dict(schema)
