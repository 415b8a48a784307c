"""The tools of services through clients of the protocol that are not Python's."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.commands import environment
from tests.npm import node_modules_of
from tests.parts import absent
from tests.servers import Received, Wire, answer
from tests.services.hosting import Hosting, hosting, serving_service
from tests.services.making import document, tool_operation

Json = Any
HOME = Path(__file__).parent.parent / "node-clients"
OLDEST_NODE = 20
INSPECTOR = "@modelcontextprotocol/inspector"
PATIENCE_S = 60
SCHEMA: Json = {
    "type": "object",
    "properties": {"text": {"type": "string"}, "node": {"$ref": "#/components/schemas/Node"}},
    "required": ["text"],
}
NODE: Json = {
    "type": "object",
    "properties": {
        "children": {"type": "array", "items": {"$ref": "#/components/schemas/Node"}},
    },
}
PROGRAM = """
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport }
  from "@modelcontextprotocol/sdk/client/streamableHttp.js";
const client = new Client({ name: "test", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(process.argv[2])));
const said = { server: client.getServerVersion().name };
said.tools = (await client.listTools()).tools;
const name = process.argv[3];
said.result = await client.callTool({ name, arguments: { text: "one two" } });
said.bad = await client.callTool({ name, arguments: { text: 5 } }).catch((e) => e.code);
said.failed = await client.callTool({ name, arguments: { text: "fail" } });
await client.close();
console.log(JSON.stringify(said));
"""


@pytest.fixture(scope="module")
def packages() -> Path:
    found = node_modules_of(HOME)
    version = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    if int(version.lstrip("v").partition(".")[0]) < OLDEST_NODE:
        absent(f"the clients need node {OLDEST_NODE}, and this is {version.strip()}")
    return found


def counts(received: Received, wire: Wire) -> None:
    text = json.loads(received.body)["text"]
    if text == "fail":
        answer(b'{"error":"no"}', status=500)(received, wire)
    else:
        answer(json.dumps({"words": len(text.split())}).encode())(received, wire)


def service_tree() -> Json:
    operation = tool_operation(SCHEMA, summary="Count words")
    paths = {"/api/summary/run": {"post": operation}}
    return document(paths, components={"schemas": {"Node": NODE}})


def node(*args: str, host: Hosting) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        ["node", *args], cwd=HOME, env=environment(), capture_output=True, text=True,
        timeout=PATIENCE_S,
    )  # fmt: skip


@pytest.mark.row("C9")
@pytest.mark.parametrize("query", ["", "?names=alias"])
def test_the_typescript_client_lists_and_calls(query: str, packages: Path, tmp_path: Path) -> None:
    program = HOME / "node_modules" / "client.mjs"  # where its imports are found
    program.write_text(PROGRAM)
    with (
        serving_service(service_tree(), counts) as service,
        hosting(service.source, ready=("summary",)) as host,
    ):
        (tool,) = host.json("/v1/cassettes/-/tools")["tools"]
        name = tool["alias"] if query else "summary.run"
        done = node(str(program), f"{host.address}/v1/mcp{query}", name, host=host)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["server"] == "tapes"
    (listed,) = said["tools"]
    assert (listed["name"], listed["title"]) == (name, "Count words")
    assert listed["inputSchema"]["properties"]["node"] == {"$ref": "#/$defs/Node"}
    assert said["result"]["structuredContent"] == {"words": 2}
    assert said["bad"] == -32602
    assert said["failed"]["isError"] is True


@pytest.mark.row("C9")
def test_the_inspectors_command_line_lists_and_calls(packages: Path) -> None:
    program = json.loads((packages / INSPECTOR / "package.json").read_text())["bin"]
    cli = packages / INSPECTOR / next(iter(program.values()))
    with (
        serving_service(service_tree(), counts) as service,
        hosting(service.source, ready=("summary",)) as host,
    ):
        way = ("--cli", f"{host.address}/v1/mcp", "--transport", "http", "--method")
        listed = node(str(cli), *way, "tools/list", host=host)
        arguments = ("--tool-name", "summary.run", "--tool-arg", "text=one two")
        called = node(str(cli), *way, "tools/call", *arguments, host=host)
    assert listed.returncode == 0, listed.stderr
    assert [tool["name"] for tool in json.loads(listed.stdout)["tools"]] == ["summary.run"]
    assert called.returncode == 0, called.stderr
    assert json.loads(called.stdout)["structuredContent"] == {"words": 2}
