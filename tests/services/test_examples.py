"""The example services, as processes of their own, behind a host."""

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tapes.services import manifest as manifests
from tapes.services.kit.testing import stored_session
from tests.parts import absent
from tests.postgres import Postgres
from tests.servers import closed_port

from .hosting import ask, hosting
from .test_mcp import call, rpc

EXAMPLES = Path(__file__).parents[2] / "examples"


@contextlib.contextmanager
def example(path: str, says: str, **environ: str) -> Iterator[tuple[str, str]]:
    """An example that runs; the URL of its document, and what it said when it started."""
    file = EXAMPLES / path
    command = ["node", str(file)] if file.suffix == ".mjs" else [sys.executable, str(file)]
    port = closed_port()
    source = str(EXAMPLES.parent / "src")
    process = subprocess.Popen(
        command,
        env={
            **os.environ, "PYTHONPATH": source, "PYTHONUNBUFFERED": "1",
            "CASSETTE_LISTEN": f"127.0.0.1:{port}", **environ,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )  # fmt: skip
    assert process.stdout is not None
    said = ""
    try:
        while not re.search(says, said):
            line = process.stdout.readline()
            assert line, f"the example ended: {said}"
            said += line
        reader = threading.Thread(target=process.stdout.read, daemon=True)
        reader.start()
        yield f"http://127.0.0.1:{port}/openapi", said
    finally:
        process.terminate()
        process.wait(20)
        reader.join(10)
        process.stdout.close()


RUNS = "running on"


@pytest.mark.row("C12")
def test_hello_world_keeps_its_rows_in_memory_without_a_credential_and_says_so() -> None:
    with example("hello-world/service.py", RUNS, CASSETTE_GREETING="Ahoy") as (source, said):
        assert "keeps its rows in memory" in said
        with hosting(source, ready=("hello-world",)) as host:
            path = "/v1/cassettes/hello-world/hello"
            assert host.json(path) == {
                "message": "Ahoy world", "greeting": "Ahoy", "cassette": "hello-world",
                "store": "memory", "rows": None,
            }  # fmt: skip
            kept = ask(host.port, "POST", path, {"Content-Type": "application/json"}, b"{}")
            assert kept.status == 201
            assert (kept.json["hello"], kept.json["world"]) == ("hello", "world")
            assert ask(host.port, "POST", path, {}, b"").status == 201
            bad = ask(host.port, "POST", path, {"Content-Type": "application/json"}, b"{")
            assert (bad.status, list(bad.json)) == (400, ["error"])
            assert [row["id"] for row in host.json(path)["rows"]] == [1, 2]
            entry = host.discovery()["cassettes"][0]
            assert entry["tables"] == ["hello-world.hello"]


@pytest.mark.row("C12", "C10")
def test_hello_world_keeps_its_rows_in_postgresql_with_a_credential(postgres: Postgres) -> None:
    declared = manifests.parse_toml((EXAMPLES / "hello-world" / "cassette.toml").read_text())
    with stored_session(postgres.url(), declared, {"spans": [{"id": "a"}]}) as url:
        for times in (1, 2):
            started = example("hello-world/service.py", RUNS, TAPES_DATABASE_URL=url)
            with started as (source, said), hosting(source, ready=("hello-world",)) as host:
                assert "keeps its rows in postgres" in said
                path = "/v1/cassettes/hello-world/hello"
                body = json.dumps({"world": "moon"}).encode()
                ask(host.port, "POST", path, {"Content-Type": "application/json"}, body)
                found = host.json(path)
                assert (found["store"], len(found["rows"])) == ("postgres", times)
                assert found["rows"][-1]["world"] == "moon"


@pytest.mark.row("C12", "C9")
def test_the_example_of_one_tool_answers_an_agent() -> None:
    with (
        example("mcp-tool/service.py", RUNS) as (source, _),
        hosting(source, ready=("mcp-tool",)) as host,
    ):
        (tool,) = rpc(host, "tools/list")["result"]["tools"]
        assert tool["name"] == "mcp-tool.ping"
        assert tool["annotations"] == {
            "readOnlyHint": True, "idempotentHint": True, "openWorldHint": False,
        }  # fmt: skip
        result = call(host, {"ping": "ping"}, name="mcp-tool.ping")["result"]
        assert result["structuredContent"] == {"pong": "pong"}
        assert call(host, {"ping": "pong"}, name="mcp-tool.ping")["error"]["code"] == -32602
        more = call(host, {"ping": "ping", "x": 1}, name="mcp-tool.ping")
        assert more["error"]["code"] == -32602


@pytest.mark.row("C12", "C14")
def test_a_service_in_node_needs_none_of_this_projects_code() -> None:
    if shutil.which("node") is None:
        absent("node is not installed")
    with (
        example("service-in-node/service.mjs", "http://") as (source, _),
        hosting(source, ready=("reverse",)) as host,
    ):
        result = call(host, {"text": "naïve"}, name="reverse.reverse")["result"]
        assert result["structuredContent"] == {"text": "evïan"}
        ticks = host.get("/v1/cassettes/reverse/ticks")
        assert ticks.body == b"data: 1\n\ndata: 2\n\ndata: 3\n\n"
