"""Documents of services, made in a few words."""

import json
from typing import Any

import pytest

from tapes.errors import RefusedService
from tapes.services.admission import Service, admit

Json = Any
SOURCE = "http://127.0.0.1:9999/openapi"
ANSWER: Json = {"200": {"description": "ok"}}
OBJECT_ANSWER: Json = {
    "200": {"description": "ok", "content": {"application/json": {"schema": {"type": "object"}}}}
}


def manifest_tree(name: str = "summary", **members: Json) -> Json:
    return {
        "kind": "cassette/v1alpha1",
        "cassette": {"name": name, "version": "1.0.0"},
        "depends": {"core": "v1"},
        **members,
    }


def document(paths: Json = None, name: Json = "summary", **members: Json) -> Json:
    """A document that is admitted, with these paths or one of its own."""
    own = {f"/api/{name}/reports": {"get": {"operationId": "read", "responses": ANSWER}}}
    return {
        "openapi": "3.1.0",
        "x-tapes-cassette": manifest_tree(name),
        "paths": own if paths is None else paths,
        **members,
    }


def with_schema(schema: Json, **schemas: Json) -> Json:
    """A document with one operation whose answer has this schema."""
    answer = {"200": {"description": "ok", "content": {"application/json": {"schema": schema}}}}
    return document(
        {"/api/summary/x": {"get": {"responses": answer}}}, components={"schemas": schemas}
    )


def tool_operation(schema: Json, name: str = "run", **members: Json) -> Json:
    return {
        "x-tapes-mcp": {"name": name},
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
        "responses": OBJECT_ANSWER,
        **members,
    }


def with_tool(schema: Json, **schemas: Json) -> Json:
    """A document with one tool whose arguments have this schema."""
    paths = {"/api/summary/run": {"post": tool_operation(schema)}}
    return document(paths, components={"schemas": schemas})


def text(tree: Json) -> bytes:
    return json.dumps(tree).encode()


def admitted(tree: Json, source: str = SOURCE) -> Service:
    """The service that a document declares; the test fails where it is refused."""
    return admit(text(tree), source, ["v1"])


def refused(data: Json) -> RefusedService:
    """How a document, as a tree or as bytes, is refused."""
    with pytest.raises(RefusedService) as caught:
        admit(data if isinstance(data, bytes) else text(data), SOURCE, ["v1"])
    return caught.value


def codes(error: RefusedService) -> list[tuple[str, str]]:
    """Where a document was refused and why, each place with its code."""
    return [(problem.field, problem.code) for problem in error.problems]
