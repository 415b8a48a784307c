"""The host's own routes as OpenAPI describes them.

Knows nothing of who answers them.  Pure.
"""

from tapes.jsontext import Json

_OBJECT: Json = {"type": "object", "additionalProperties": True}
_ERROR: Json = {
    "type": "object",
    "required": ["error", "message"],
    "properties": {"error": {"type": "string"}, "message": {"type": "string"}},
}


def _answer(what: str, schema: Json, kind: str = "application/json") -> Json:
    return {"description": what, "content": {kind: {"schema": schema}}}


def _list_of(name: str, *members: str) -> Json:
    return {
        name: {
            "type": "array",
            "items": {
                "type": "object",
                "required": list(members),
                "properties": {member: {"type": "string"} for member in members},
            },
        }
    }


def _query(name: str, what: str) -> Json:
    return {"name": name, "in": "query", "description": what, "schema": {"type": "string"}}


_REFUSED: Json = {
    "401": _answer("The host has a token, and it was not sent", _ERROR),
    "403": _answer("A web page of somebody else asked", _ERROR),
    "421": _answer("The host is not known by this name", _ERROR),
}
_DISCOVERY: Json = {
    "type": "object",
    "required": ["contract_version", "cassettes", "problems"],
    "properties": {
        "contract_version": {"type": "string"},
        **_list_of("cassettes", "name", "route_prefix", "openapi_status", "manifest_digest"),
        **_list_of("problems", "subject", "reason"),
    },
}
_TOOLS: Json = {
    "type": "object",
    "required": ["tools"],
    "properties": _list_of("tools", "name", "alias", "cassette"),
}
_TAGS = ["cassettes"]

OWN_PATHS: dict[str, Json] = {
    "/openapi": {
        "get": {
            "operationId": "getOpenApi",
            "summary": "This document: the host's and all services'",
            "tags": _TAGS,
            "responses": {"200": _answer("An OpenAPI document", _OBJECT), **_REFUSED},
        }
    },
    "/v1/cassettes": {
        "get": {
            "operationId": "listCassettes",
            "summary": "The services that are admitted, and what is wrong with which source",
            "tags": _TAGS,
            "responses": {"200": _answer("The services", _DISCOVERY), **_REFUSED},
        }
    },
    "/v1/cassettes/-/tools": {
        "get": {
            "operationId": "listCassetteTools",
            "summary": "The tools of all services, without their schemas",
            "tags": _TAGS,
            "parameters": [
                _query("cassette", "One service's alone"),
                _query("q", "Words that its name, title or description has to have"),
            ],
            "responses": {"200": _answer("The tools", _TOOLS), **_REFUSED},
        }
    },
    "/v1/cassettes/-/recheck": {
        "post": {
            "operationId": "recheckCassettes",
            "summary": "Ask services now, and say what was found",
            "tags": _TAGS,
            "parameters": [
                _query("cassette", "The name of a service; all, if nothing is named"),
                _query("source", "The id or the subject of a source"),
            ],
            "responses": {
                "200": _answer("The services", _DISCOVERY),
                "404": _answer("No such source is configured", _ERROR),
                **_REFUSED,
            },
        }
    },
    "/v1/cassettes/-/metrics": {
        "get": {
            "operationId": "getCassetteMetrics",
            "summary": "Counters of each service",
            "tags": _TAGS,
            "responses": {
                "200": _answer("Counters", {"type": "string"}, "text/plain"),
                **_REFUSED,
            },
        }
    },
    "/v1/cassettes/{name}/openapi.json": {
        "get": {
            "operationId": "getCassetteOpenApi",
            "summary": "The document of one service as it is published",
            "tags": _TAGS,
            "parameters": [
                {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
            ],
            "responses": {
                "200": _answer("An OpenAPI document", _OBJECT),
                "304": {"description": "It has not changed"},
                "404": _answer("No service is published under this name", _ERROR),
                **_REFUSED,
            },
        }
    },
    "/v1/mcp": {
        "post": {
            "operationId": "callMcp",
            "summary": "The tools of all services over MCP: streamable HTTP, stateless",
            "description": "One JSON-RPC message. Requests are answered as an event stream, "
            "notices with 202. GET is answered 405: there is no standing stream.",
            "tags": _TAGS,
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": _OBJECT}},
            },
            "responses": {
                "200": _answer("An event for each reply", {"type": "string"}, "text/event-stream"),
                "202": {"description": "A notice was taken"},
                "400": {
                    "description": "This is no message: a JSON-RPC error, or plain text",
                    "content": {
                        "application/json": {"schema": _OBJECT},
                        "text/plain": {"schema": {"type": "string"}},
                    },
                },
                "413": _answer("The message is too large", {"type": "string"}, "text/plain"),
                **_REFUSED,
            },
        }
    },
}
