"""Services for the benchmarks, as quick as Python can be: `python -m benchmarks._services`.

One server that is many services: `/s/N/TOOLS/openapi` is the document of the service `s-N` with so
many tools, and asking for `/s/N/TOOLS/change` changes it. `/big/openapi` is one of 8 MiB with 2,000
operations, `/hostile/KIND/openapi` one of 8 MiB that means harm (`HOSTILE`), both only between
`/begin` and `/end`. Below their prefixes `/json` answers 1.5 KB, `/paced` 50 events 5 ms apart,
each with the time at which it was sent. Prints its port.
"""

import asyncio
import functools
import json
from collections import Counter

import httptools
import uvloop

from benchmarks import _upstream

OPERATIONS = 2_000
BIG = 8 * 1024 * 1024 - 4096
CHANGES: Counter[str] = Counter()


def answered(body: bytes) -> bytes:
    """A whole answer."""
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


def document(name: str, paths: dict[str, object]) -> bytes:
    """A document that is admitted."""
    manifest = {
        "kind": "cassette/v1alpha1",
        "cassette": {"name": name, "version": "1"},
        "depends": {"core": "v1"},
    }
    tree = {"openapi": "3.1.0", "x-tapes-cassette": manifest, "paths": paths}
    return json.dumps(tree).encode()


@functools.cache
def of_tools(name: str, tools: int, changes: int) -> bytes:
    """The document of a service with so many tools, after so many changes."""
    media = {"application/json": {"schema": {"$ref": "#/components/schemas/Asked"}}}
    said = f"1.5 KB, {changes}"
    paths: dict[str, object] = {
        f"/api/{name}/json": {"get": {"responses": {"200": {"description": said}}}},
        **{
            f"/api/{name}/t{n}": {
                "post": {
                    "summary": f"Tool {n}",
                    "description": "Does what a tool of its kind does. " * 4,
                    "x-tapes-mcp": {"name": f"t{n}", "annotations": {"readOnlyHint": True}},
                    "requestBody": {"required": True, "content": media},
                    "responses": {"200": {"description": "done", "content": media}},
                }
            }
            for n in range(tools)
        },
    }
    asked = {
        "type": "object",
        "properties": {
            "session_id": {"type": "string", "description": "The session"},
            "limit": {"type": "integer", "minimum": 1, "maximum": 500},
        },
        "required": ["session_id"],
    }
    tree = json.loads(document(name, paths))
    return json.dumps({**tree, "components": {"schemas": {"Asked": asked}}}).encode()


@functools.cache
def big() -> bytes:
    """A document of 8 MiB with 2,000 operations."""
    properties = {
        f"field_{n}": {"type": "string", "description": "What the field says."} for n in range(24)
    }
    schema = {"type": "object", "properties": properties, "required": ["field_1"]}
    answer = {"description": "ok", "content": {"application/json": {"schema": schema}}}
    bare = json.dumps(
        {
            "parameters": [
                {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
            ],
            "responses": {"200": answer},
        }
    )
    filler = "x" * (BIG // OPERATIONS - len(bare) - 80)
    paths: dict[str, object] = {
        f"/api/big/{n}/{{id}}": {
            "get": {
                "operationId": f"read{n}",
                "description": filler,
                "parameters": [
                    {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
                ],
                "responses": {"200": answer},
            }
        }
        for n in range(OPERATIONS)
    }
    return document("big", paths)


HOSTILE = {
    # What each schema, of so many as fit, says of the next; None is no schemas but nesting.
    "refs": lambda n, last: {"$ref": f"#/components/schemas/c{n + 1}"} if n < last else {},
    "cycle": lambda n, last: {"$ref": f"#/components/schemas/c{n + 1 if n < last else 0}"},
    "deep": None,
}


@functools.cache
def hostile(kind: str) -> bytes:
    """A document of 8 MiB that is hard to read: references in a chain or a ring, or nesting."""
    media = {"application/json": {"schema": {"$ref": "#/components/schemas/c0"}}}
    answered = {"200": {"description": "ok", "content": media}}
    head = document(kind, {f"/api/{kind}/x": {"get": {"responses": answered}}})[:-1]
    said = HOSTILE[kind]
    if said is None:
        return head + b',"x-a":' + b"[" * (BIG // 2) + b"]" * (BIG // 2) + b"}"
    count = BIG // len(f'"c100000": {json.dumps(said(100_000, 200_000))}, ')
    schemas = {f"c{n}": said(n, count - 1) for n in range(count)}
    return head + b',"components":' + json.dumps({"schemas": schemas}).encode() + b"}"


class Connection(_upstream.Connection):
    """One client, that asks services."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._parser = httptools.HttpRequestParser(self)

    def on_message_complete(self) -> None:
        parts = self._target.decode().split("/")[1:]
        match parts:
            case ["s", number, tools, what]:
                key = f"s-{number}"
                if what == "change":
                    CHANGES[key] += 1
                self._answer(of_tools(key, int(tools), CHANGES[key]))
            case ["begin"]:
                CHANGES["begun"] = 1
                self._answer(b"{}")
            case ["end"]:
                CHANGES["begun"] = 0
                self._answer(b"{}")
            case ["big", "openapi"]:
                self._answer(big() if CHANGES["begun"] else b"{}")
            case ["hostile", kind, "openapi"]:
                self._answer(hostile(kind) if CHANGES["begun"] else b"{}")
            case _:
                super().on_message_complete()

    def _answer(self, body: bytes) -> None:
        self._target = b""
        self._transport.write(answered(body))


async def main() -> None:
    big()
    for kind in HOSTILE:
        hostile(kind)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Connection, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main())
