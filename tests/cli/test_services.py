"""`tapes serve services`, and the way from nothing to a tool that an agent calls."""

import contextlib
import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.commands import PATIENCE_S, Serving, environment, started, typed
from tests.servers import closed_port
from tests.services.hosting import ask, serving_service, until
from tests.services.making import document

Json = Any


@contextlib.contextmanager
def serving_host(*args: str, cwd: Path, env: Mapping[str, str] | None = None) -> Iterator[Serving]:
    """`tapes serve services` on a free port, from the moment at which it listens."""
    process = started(
        "serve",
        "services",
        "--listen",
        "127.0.0.1:0",
        *args,
        cwd=cwd,
        env=env,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    try:
        said = ""
        while "over MCP" not in said:
            line = process.stderr.readline().decode()
            assert line, f"the host ended before it listened: {said}"
            said += line
        found = re.search(r"tapes services: (http://\S+)", said)
        assert found is not None
        yield Serving(process, found[1], said)
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=PATIENCE_S)


def get(url: str, **headers: str) -> Json:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as answer:
        return json.load(answer)


def names(host: str) -> list[str]:
    return [entry["name"] for entry in get(f"{host}/v1/cassettes")["cassettes"]]


@pytest.mark.row("C9", "C13", "C14")
def test_the_way_of_the_documentation_leads_to_a_tool_that_a_client_calls(tmp_path: Path) -> None:
    port = closed_port()
    assert typed("cassette", "new", "word-count", cwd=tmp_path).status == 0
    service = subprocess.Popen(
        [sys.executable, "word-count/service.py"],
        cwd=tmp_path,
        env=environment({"CASSETTE_LISTEN": f"127.0.0.1:{port}"}),
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}/openapi"
        assert typed("cassette", "add", url, cwd=tmp_path).status == 0
        with serving_host(cwd=tmp_path) as host:
            until(lambda: names(host.address) == ["word-count"])
            assert _called(host.address) == {"words": 3}
            toml = "word-count/cassette.toml"
            done = typed("cassette", "validate", url, "--toml", toml, cwd=tmp_path)
            assert done.status == 0, done.out
            assert "✘" not in done.out
    finally:
        service.terminate()
        service.wait(PATIENCE_S)


def _called(host: str) -> Json:
    """What the official client gets, as a program of its own."""
    program = (
        "import asyncio, json, sys\n"
        "from mcp import Client\n"
        "async def main():\n"
        "    async with Client(sys.argv[1] + '/v1/mcp') as client:\n"
        "        result = await client.call_tool('word-count.count_words', {'text': 'one two 3'})\n"
        "        print(json.dumps(result.structured_content))\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, host], env=environment(), capture_output=True, text=True,
        timeout=PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.long
@pytest.mark.row("C1", "C8")
def test_the_list_is_taken_from_flag_variable_or_file_and_the_file_may_change(
    tmp_path: Path,
) -> None:
    with serving_service() as service:
        with serving_host("--cassettes", service.source, cwd=tmp_path) as host:
            until(lambda: names(host.address) == ["summary"])
            assert "1 sources (--cassettes)" in host.said
        with serving_host(cwd=tmp_path, env={"TAPES_CASSETTES": service.source}) as host:
            until(lambda: names(host.address) == ["summary"])
        with serving_host(cwd=tmp_path) as host:
            assert names(host.address) == []
            assert typed("cassette", "add", service.source, cwd=tmp_path).status == 0
            until(lambda: names(host.address) == ["summary"])
            assert typed("cassette", "remove", service.source, cwd=tmp_path).status == 0
            until(lambda: names(host.address) == [])


def test_it_ends_in_order_when_it_is_told_to(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        with serving_host(cwd=tmp_path) as host:
            assert host.stop(number) == 0


@pytest.mark.parametrize(
    ("args", "what"),
    [
        (("--cassettes", "tcp://h/x"), "cassettes[0]"),
        (("--cassette-refresh", "soon"), "no duration"),
        (("--cassette-host", "http://x"), "name of a host"),
        (("--listen", "0.0.0.0:0"), "no token is set"),
    ],
)
def test_what_cannot_be_is_told_before_it_listens(
    args: tuple[str, ...], what: str, tmp_path: Path
) -> None:
    ended = typed("serve", "services", *args, cwd=tmp_path)
    assert ended.status == 2
    assert what in ended.err
    assert "Traceback" not in ended.err


@pytest.mark.row("C7")
def test_limits_in_the_file_hold_for_all_or_for_one(tmp_path: Path) -> None:
    file = tmp_path / ".tapes" / "config.toml"
    file.parent.mkdir()
    with serving_service() as one, serving_service(document(name="other")) as two:
        sources = json.dumps([one.source, two.source])
        limits = (
            "[cassette_limits]\nrequest_bytes = 3\n[cassette_limits.other]\nrequest_bytes = 5\n"
        )
        file.write_text(f"cassettes = {sources}\n{limits}")
        with serving_host(cwd=tmp_path) as host:
            until(lambda: names(host.address) == ["other", "summary"])
            port = int(host.address.rpartition(":")[2])
            for name, status in (("summary", 413), ("other", 200)):
                sent = ask(port, "POST", f"/v1/cassettes/{name}/x", body=b"four")
                assert sent.status == status
    file.write_text("[cassette_limits]\nrequests = 3\n")
    ended = typed("serve", "services", cwd=tmp_path)
    assert (ended.status, "cassette_limits.requests" in ended.err) == (2, True)


def test_strangers_need_the_token(tmp_path: Path) -> None:
    with serving_host(cwd=tmp_path, env={"TAPES_SERVICES_TOKEN": "sesame"}) as host:
        with pytest.raises(urllib.error.HTTPError) as refused:
            names(host.address)
        refused.value.close()
        assert refused.value.code == 401
        found = get(f"{host.address}/v1/cassettes", Authorization="Bearer sesame")
        assert found["cassettes"] == []
        env = {"TAPES_SERVICES_TOKEN": "sesame"}
        listed = typed("cassette", "list", "--host", host.address, cwd=tmp_path, env=env)
        assert listed.status == 0, listed.err
