"""`x-tapes-mcp` → tool: what an operation offers to agents, and what a call of it means.

Rule 1: a tool is a POST with a JSON object in its body and in its answer, and nothing else. What
        is declared and is not that refuses the document.
Rule 2: a tool's name is `<service>.<tool>`. Its alias is made of that name alone, so it is the
        same after a restart, in any order, and beside any other tool.
Rule 3: where the operator allows the lenient lane, a tool may also be a GET, and have arguments in
        its path and query (see placing). Nothing else changes.
Rule 4: arguments are judged before a service is asked, and never changed but for the defaults of
        the schema's own members.

Knows nothing of HTTP or of MCP's messages.  Pure.
"""

import hashlib
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus

from tapes.errors import BadArguments
from tapes.jsontext import Json
from tapes.services.compiling import METHODS, is_response_key, members
from tapes.services.fitting import Allowance, Undecided
from tapes.services.manifest import Manifest
from tapes.services.placing import BODY, Places, Placing
from tapes.services.placing import METHODS as LENIENT_METHODS
from tapes.services.problems import Findings, Stage, Where
from tapes.services.spelling import (
    MAX_DEPTH,
    Number,
    Unreadable,
    compact,
    integer,
    plain,
    read,
    text_of,
)
from tapes.services.toml import float_text
from tapes.services.toolschema import Bundle, Bundles, resolves_to_object

EXTENSION = "x-tapes-mcp"
MAX_TOOLS = 128
MAX_NAME = 128
MAX_ALIAS = 64
MAX_ANSWER = 8 * 1024 * 1024
MAX_QUOTED = 4096

_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
# Hints whose default in MCP is false say nothing new where they are false.
_ONLY_TRUE = ("readOnlyHint", "idempotentHint")


@dataclass(frozen=True, slots=True)
class Tool:
    """An operation that agents may call: how it is listed, and where it is called."""

    service: str
    name: str
    title: str
    description: str
    input: Bundle
    annotations: dict[str, bool]
    local_path: str
    public_path: str
    placing: Placing | None = None

    @property
    def full_name(self) -> str:
        """The name under which it is listed: `<service>.<tool>`."""
        return f"{self.service}.{self.name}"

    @property
    def input_schema(self) -> dict[str, Json]:
        """The JSON Schema of its arguments, self-contained."""
        return self.input.schema

    @property
    def alias(self) -> str:
        """The name for model APIs that take fewer characters."""
        return alias_of(self.full_name)

    def form(self, *, alias: bool = False) -> dict[str, Json]:
        """The tool as MCP lists it, under its name or its alias."""
        form: dict[str, Json] = {"name": self.alias if alias else self.full_name}
        if self.title:
            form["title"] = self.title
        if self.description:
            form["description"] = self.description
        return {**form, "inputSchema": self.input_schema, "annotations": self.annotations}


def alias_of(full_name: str) -> str:
    """A name of at most 64 characters from `[A-Za-z0-9_-]` that no other tool has.

    The suffix is a hash of the full name: two names that become one when shortened stay apart.
    """
    suffix = "_" + hashlib.sha256(full_name.encode()).hexdigest()[:10]
    readable = re.sub(r"[^A-Za-z0-9_-]", "_", full_name)
    return readable[: MAX_ALIAS - len(suffix)] + suffix


# --- declarations -----------------------------------------------------------------------------


def tools_of(
    document: dict[str, Json], declared: Manifest, findings: Findings, *, lenient: bool = False
) -> tuple[Tool, ...]:
    """The tools that a document declares; what is wrong with them goes into the findings."""
    schemas = members(members(document.get("components")).get("schemas"))
    places = Places(document, findings) if lenient else None
    reader = _Reader(document, declared, Bundles(schemas, findings), findings, places)
    tools = tuple(tool for tool in map(reader.tool, reader.declarations()) if tool is not None)
    reader.check_names()
    return tools


@dataclass(frozen=True, slots=True)
class _Declaration:
    path: str
    method: str
    item: dict[str, Json]
    operation: dict[str, Json]
    where: Where


class _Reader:
    def __init__(
        self,
        document: dict[str, Json],
        declared: Manifest,
        bundles: Bundles,
        findings: Findings,
        places: Places | None,
    ) -> None:
        self._document = document
        self._places = places
        self._manifest = declared
        self._bundles = bundles
        self._findings = findings
        self._schemas = members(members(document.get("components")).get("schemas"))
        self._names: dict[str, list[Where]] = {}
        self._count = 0

    def _add(self, where: Where, code: str, message: str) -> None:
        self._findings.add(Stage.MCP, code, where, message)

    def declarations(self) -> Iterator[_Declaration]:
        """Every operation that declares a tool, paths in the order of their bytes."""
        if EXTENSION in self._document:
            self._add((None, EXTENSION), "misplaced", "belongs on an operation")
        for path, item in sorted(members(self._document.get("paths")).items()):
            where: Where = ((None, "paths"), path)
            if EXTENSION in members(item):
                self._add((where, EXTENSION), "misplaced", "belongs on an operation")
            for method in sorted(METHODS):
                operation = members(members(item).get(method))
                if EXTENSION in operation:
                    yield _Declaration(path, method, members(item), operation, (where, method))

    def check_names(self) -> None:
        """Names are unique within a service, and there are not too many of them."""
        for name, places in self._names.items():
            for where in places[1:]:
                self._add(where, "repeated_name", f"another tool is named {name!r} already")
        if self._count > MAX_TOOLS:
            self._add(None, "too_many_tools", f"a service declares at most {MAX_TOOLS} tools")

    def tool(self, declaration: _Declaration) -> Tool | None:
        """The tool of a declaration, or None where it is none."""
        self._count += 1
        if self._count > MAX_TOOLS:
            return None
        self._check_operation(declaration)
        name, annotations = self._extension(declaration)
        placing, schema = self._arguments(declaration)
        self._check_answers(declaration)
        if schema is None or name is None or annotations is None:
            return None
        # White space around a path is no part of the path of a request.
        operation, local = declaration.operation, declaration.path.strip()
        title = operation.get("summary") or ""
        return Tool(
            service=self._manifest.name,
            name=name,
            title=title,
            description=operation.get("description") or title,
            input=schema,
            annotations=annotations,
            local_path=local,
            public_path=self._manifest.public_prefix + local[len(self._manifest.local_prefix) :],
            placing=placing,
        )

    def _check_operation(self, declaration: _Declaration) -> None:
        where = declaration.where
        if declaration.method != "post" and (
            self._places is None or declaration.method not in LENIENT_METHODS
        ):
            self._add(where, "not_post", "a tool is a POST")
        version = self._document.get("openapi")
        if not (version == "3.1" or str(version).startswith("3.1.")):
            self._add(where, "not_3_1", f"a tool needs OpenAPI 3.1; the document says {version}")
        parameters = [declaration.item.get("parameters"), declaration.operation.get("parameters")]
        if self._places is None and ("{" in declaration.path or any(parameters)):
            message = "a tool has no parameters; its arguments are the JSON body"
            self._add(where, "has_parameters", message)

    def _extension(self, declaration: _Declaration) -> tuple[str | None, dict[str, bool] | None]:
        where: Where = (declaration.where, EXTENSION)
        extension = declaration.operation[EXTENSION]
        if extension is not None and type(extension) is not dict:
            self._add(where, "wrong_type", "must be an object")
            return None, None
        extension = extension or {}
        return (
            self._name(extension.get("name"), (where, "name")),
            self._annotations(extension.get("annotations"), (where, "annotations")),
        )

    def _name(self, name: Json, where: Where) -> str | None:
        full = f"{self._manifest.name}.{name}"
        if name is None or name == "":
            self._add(where, "missing", "a tool needs a name")
        elif type(name) is not str or not _NAME.fullmatch(name):
            message = "must be a string of letters, digits, underscores, dots and dashes"
            self._add(where, "bad_name", message)
        elif len(full) > MAX_NAME:
            message = f"{full[:40]}… has more than {MAX_NAME} bytes, the service's name included"
            self._add(where, "bad_name", message)
        else:
            self._names.setdefault(name, []).append(where)
            return name
        return None

    def _annotations(self, given: Json, where: Where) -> dict[str, bool] | None:
        if given is not None and type(given) is not dict:
            self._add(where, "wrong_type", "must be an object")
            return None
        hints = {name: members(given).get(name) for name in _HINTS}
        wrong = [
            name for name, hint in hints.items() if hint is not None and type(hint) is not bool
        ]
        for name in wrong:
            self._add((where, name), "wrong_type", "must be true or false")
        return {
            name: hint
            for name, hint in hints.items()
            if type(hint) is bool and (hint or name not in _ONLY_TRUE)
        }

    def _arguments(self, declaration: _Declaration) -> tuple[Placing | None, Bundle | None]:
        """Where the arguments go, unless they are all the body, and their schema."""
        operation, item = declaration.operation, declaration.item
        parameters = [*(item.get("parameters") or ()), *(operation.get("parameters") or ())]
        if self._places is None or (declaration.method == "post" and not parameters):
            schema = self._body_schema(declaration)
            return None, None if schema is None else self._bundles.bundle(*schema)
        found = self._places.placing(declaration.method, item, operation, declaration.where)
        if found is None:
            return None, None
        placing, arguments = found
        if placing.has_body:
            schema = self._body_schema(declaration)
            if schema is None:
                return None, None
            arguments["properties"][BODY] = schema[0]
        return placing, self._bundles.bundle(arguments, declaration.where)

    def _body_schema(self, declaration: _Declaration) -> tuple[dict[str, Json], Where] | None:
        where: Where = (declaration.where, "requestBody")
        body = declaration.operation.get("requestBody")
        if type(body) is not dict or body.get("$ref") or body.get("required") is not True:
            message = "a tool has a request body that is inline and says required: true"
            self._add(where, "bad_body", message)
            return None
        media_type, key = _json_content(body)
        schema = members(media_type).get("schema")
        at: Where = (((where, "content"), key or "application/json"), "schema")
        if type(schema) is not dict:
            self._add(at, "no_schema", "a tool needs a schema of an application/json body")
            return None
        if not resolves_to_object(schema, self._schemas):
            message = "must say type: object, itself or through references to components"
            self._add(at, "not_object", message)
            return None
        return schema, at

    def _check_answers(self, declaration: _Declaration) -> None:
        where: Where = (declaration.where, "responses")
        responses = members(declaration.operation.get("responses"))
        successes = {key: value for key, value in responses.items() if _is_success(key)}
        if not successes:
            self._add(where, "no_success", "a tool declares an answer of 200 to 299, or 2XX")
        for key, response in successes.items():
            media_type, _ = _json_content(members(response))
            schema = members(media_type).get("schema")
            if members(response).get("$ref") or not resolves_to_object(schema, self._schemas):
                message = "is inline and has an application/json schema that says type: object"
                self._add((where, key), "not_object", f"a successful answer of a tool {message}")


def _is_success(key: str) -> bool:
    return key == "2XX" or (
        not key.endswith("XX")
        and key != "default"
        and is_response_key(key)
        and 200 <= int(key) <= 299
    )


def _json_content(owner: dict[str, Json]) -> tuple[Json, str | None]:
    """The first media type in the order of bytes that is plain JSON, and its key."""
    for key, media_type in sorted(members(owner.get("content")).items()):
        if key.partition(";")[0].strip().lower() == "application/json":
            return media_type, key
    return None, None


# --- calls ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Call:
    """The request that a call of a tool makes."""

    method: str
    path: str
    query: str
    body: bytes | None


def call_of(tool: Tool, arguments: object) -> Call:
    """The request of a call with these arguments. Raises BadArguments."""
    if tool.placing is None:
        return Call("POST", tool.local_path, "", call_body(tool, arguments))
    value = _judged(tool, arguments)
    return Call(*tool.placing.request(tool.local_path, value))


def call_body(tool: Tool, arguments: object) -> bytes:
    """The body that a call with these arguments sends. Raises BadArguments."""
    return compact(_judged(tool, arguments))


def _judged(tool: Tool, arguments: object) -> dict[str, Json]:
    """The arguments as they are sent. Raises BadArguments.

    Members of the schema's own `properties` that have a default, are not required and are not
    given are filled in; nothing deeper is.
    """
    subject = f"the arguments of {tool.full_name}"
    if arguments is None:
        arguments = {}
    if type(arguments) is not dict:
        raise BadArguments(f"{subject} must be an object")
    try:
        value = _sound(arguments, 0)
        required = tool.input_schema.get("required", ())
        for name, member in tool.input_schema.get("properties", {}).items():
            if type(member) is dict and "default" in member and name not in {*value, *required}:
                value[name] = member["default"]
        found = tool.input.misfit(value, Allowance())
    except (ValueError, Undecided) as error:
        raise BadArguments(f"{subject}: the value {error}") from None
    if found is not None:
        raise BadArguments(f"{subject}: {found}", f"the schema is that of {tool.full_name}")
    spelled: dict[str, Json] = _spelled(value)
    return spelled


def _sound(value: object, depth: int) -> Json:
    """A value that came as Python objects, as JSON that can be sent. Raises ValueError."""
    if depth > MAX_DEPTH:
        raise ValueError("is nested too deeply")
    match value:
        case None | bool() | int():
            return value
        case str():
            return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        case float() if math.isfinite(value):
            return value
        case dict() if all(type(name) is str for name in value):
            return {_sound(n, 0): _sound(member, depth + 1) for n, member in value.items()}
        case list() | tuple():
            return [_sound(item, depth + 1) for item in value]
        case _:
            raise ValueError(f"holds {str(value)[:40]!r}, which JSON cannot say")


def _spelled(value: Json) -> Json:
    """The value with its floats in their shortest spelling: `1.0` is sent as `1`."""
    if type(value) is dict:
        return {name: _spelled(member) for name, member in value.items()}
    if type(value) is list:
        return [_spelled(item) for item in value]
    if type(value) is float:
        return Number(float_text(value))
    return integer(str(value)) if type(value) is int else value


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call came to, for the agent: its text, and the same as an object where it is one."""

    text: str
    structured: Json = None
    is_error: bool = False

    def form(self) -> dict[str, Json]:
        """The result as MCP has it."""
        form: dict[str, Json] = {"content": [{"type": "text", "text": self.text}]}
        if self.is_error:
            return {**form, "isError": True}
        return form if self.structured is None else {**form, "structuredContent": self.structured}


def failure(tool: Tool, what: str) -> ToolResult:
    """The result of a call that has no answer; `what` says why."""
    return ToolResult(f"{tool.full_name} of cassette {tool.service}: {what}", is_error=True)


def result_of(tool: Tool, status: int, body: bytes, reason: str = "") -> ToolResult:
    """The result of a call that was answered. Redirects are answers like any other: errors."""
    if len(body) > MAX_ANSWER:
        return failure(tool, f"the answer has more than {MAX_ANSWER:,} bytes")
    if not 200 <= status <= 299:
        return failure(tool, _status_line(status, reason) + _quoted(body))
    try:
        answer = read(text_of(body), repeated=[])
    except Unreadable as error:
        return failure(tool, f"the answer is no JSON object: {error}")
    if type(answer) is not dict:
        what = "null" if answer is None else f"a {_KINDS.get(type(answer), 'number')}"
        return failure(tool, f"the answer is no JSON object but {what}")
    try:
        structured = plain(answer)
    except ValueError:  # a number that only its spelling can say
        structured = None
    return ToolResult(compact(answer).decode(), structured)


_KINDS: dict[type, str] = {list: "list", str: "string", bool: "boolean"}


def _status_line(status: int, reason: str) -> str:
    phrase = reason or _PHRASES.get(status, "")
    return f"the answer is {status} {phrase}".rstrip()


_PHRASES = {status.value: status.phrase for status in HTTPStatus}


def _quoted(body: bytes) -> str:
    """The body of a failed answer, trimmed and cut."""
    text = body.strip()
    if not text:
        return ""
    cut = text[:MAX_QUOTED].decode("utf-8", "replace" if len(text) <= MAX_QUOTED else "ignore")
    return f": {cut}{' … (cut)' if len(text) > MAX_QUOTED else ''}"
