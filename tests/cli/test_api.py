"""`tapes serve` and `tapes serve api` as real processes."""

import contextlib
import json
import signal
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.commands import PATIENCE_S, started, typed
from tests.servers import answer, serving
from tests.services.hosting import serving_service, until


@dataclass(frozen=True)
class Up:
    """A server that is up, and what it said."""

    process: "subprocess.Popen[str]"
    said: Any

    def url(self, door: str, path: str) -> str:
        return str(self.said["addresses"][door]) + path


@contextlib.contextmanager
def up(*args: str, cwd: Path, env: dict[str, str] | None = None) -> Iterator[Up]:
    process = started(
        "serve",
        *args,
        "--json",
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=env,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    text = ""
    try:
        while line := process.stdout.readline():
            text += line
            if line.startswith("}"):
                break
        assert text, process.stderr.read()
        yield Up(process, json.loads(text))
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)


ALL = ("--api-listen", "0", "--proxy-listen", "0", "--ingest-listen", "0")


@pytest.mark.row("D1", "D4", "D5")
def test_what_the_proxy_sees_is_a_session_in_the_api(tmp_path: Path) -> None:
    said = {"id": "chatcmpl-1", "model": "m", "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "hello there"},
         "finish_reason": "stop"}]}  # fmt: skip
    with (
        serving(answer(json.dumps(said).encode())) as upstream,
        up(*ALL, "--upstream", upstream.url, cwd=tmp_path) as server,
    ):
        asked = {"model": "m", "messages": [{"role": "user", "content": "greet me"}]}
        client = httpx.post(server.url("proxy", "/v1/chat/completions"), json=asked)
        assert client.json() == said
        stream = httpx.stream("GET", server.url("api", "/v1/changes/stream?after=0"), timeout=20)
        with stream as changes:
            next(line for line in changes.iter_lines() if line.startswith("data:"))
        hits = httpx.get(server.url("api", "/v1/search?q=greet")).json()["items"]
        assert hits[0]["span"]["outcome"] == "live"
        numbers = httpx.get(server.url("api", "/metrics")).text
        assert 'tapes_capture{what="noticed"} 1\n' in numbers
        assert 'tapes_capture{what="waiting on disk"} 0\n' in numbers
        told = httpx.get(server.url("api", "/v1/ingest"))
        assert server.said["addresses"]["ingest"] in told.json()["detail"]
        assert httpx.get(server.url("ingest", "/ping")).status_code == 200
        server.process.send_signal(signal.SIGINT)
        assert server.process.wait(PATIENCE_S) == 0


def test_the_proxy_knows_where_the_other_servers_are(tmp_path: Path) -> None:
    with up(*ALL, cwd=tmp_path) as server:
        for door, path in (("api", "/v1/sessions"), ("ingest", "/v1/ingest")):
            told = httpx.get(server.url("proxy", path), headers={"authorization": "Bearer t"})
            assert told.status_code == 400
            assert server.url(door, path) in told.text


def test_the_api_alone_answers_for_a_log(tmp_path: Path) -> None:
    assert typed("seed", cwd=tmp_path).status == 0
    with up("api", "--listen", "127.0.0.1:0", cwd=tmp_path) as server:
        page = httpx.get(server.url("api", "/v1/sessions")).json()
        assert len(page["items"]) == 6
        assert set(server.said["addresses"]) == {"api"}


@pytest.mark.row("B10")
def test_open_to_strangers_it_needs_a_token_to_read_and_another_to_change(tmp_path: Path) -> None:
    assert typed("seed", cwd=tmp_path).status == 0
    with up("api", "--listen", "0.0.0.0:0", cwd=tmp_path) as server:
        tokens = server.said["tokens"]
        where = server.url("api", "/v1/sessions")
        assert httpx.get(where).status_code == 401
        reads = {"x-tapes-token": tokens["api.token"]}
        assert httpx.get(where, headers=reads).status_code == 200
        seeds = server.url("api", "/v1/admin/seed/demo")
        assert httpx.post(seeds, headers=reads).status_code == 403
        changes = {"x-tapes-token": tokens["api.admin_token"]}
        assert httpx.post(seeds, headers=changes).status_code == 200
    for name in ("api-token", "api-admin-token"):
        file = tmp_path / ".tapes" / name
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.read_text().strip() not in tokens.values()
    with up("api", "--listen", "0.0.0.0:0", cwd=tmp_path) as server:
        assert server.said["tokens"] == {}
        assert httpx.get(server.url("api", "/v1/sessions"), headers=reads).status_code == 200


def test_where_one_door_is_refused_no_token_is_made_that_nobody_sees(tmp_path: Path) -> None:
    open_doors = ("--api-listen", "0.0.0.0:0", "--ingest-listen", "0.0.0.0:0")
    ended = typed("serve", *open_doors, "--proxy-listen", "127.0.0.1:0", cwd=tmp_path)
    assert (ended.status, "TAPES_INGEST_TOKEN" in ended.err) == (2, True)
    assert not list(tmp_path.rglob("*-token"))


def test_an_address_that_is_taken_is_said(tmp_path: Path) -> None:
    with up("api", "--listen", "127.0.0.1:0", cwd=tmp_path) as server:
        taken = server.said["addresses"]["api"].removeprefix("http://")
        ended = typed("serve", "api", "--listen", taken, cwd=tmp_path)
        assert ended.status == 2
        assert "cannot listen" in ended.err


@pytest.mark.row("C7", "C8")
def test_services_stand_behind_the_gate_of_the_api_and_never_see_its_tokens(
    tmp_path: Path,
) -> None:
    (tmp_path / ".tapes").mkdir()
    (tmp_path / ".tapes" / "config.toml").write_text("")
    env = {"TAPES_API_TOKEN": "read-me", "TAPES_API_ADMIN_TOKEN": "change-me"}
    with (
        serving_service() as service,
        up("api", "--listen", "0.0.0.0:0", cwd=tmp_path, env=env) as api,
    ):
        added = typed("cassette", "add", service.source, cwd=tmp_path)
        assert added.status == 0
        where = api.url("api", "/v1/cassettes")
        asked = {"Authorization": "Bearer read-me", "Host": "tapes.example"}
        until(lambda: httpx.get(where, headers=asked).json()["cassettes"], "the added service")
        assert httpx.get(f"{where}/summary/x").status_code == 401
        lists = ("cassette", "list", "--host", api.url("api", "").rstrip("/"))
        assert "summary" in typed(*lists, cwd=tmp_path, env=env).out
        refused = typed(*lists, cwd=tmp_path)
        assert (refused.status, "needs a token" in refused.err) == (2, True)
        for token, sent in (("read-me", None), ("change-me", None), ("its own", "Bearer its own")):
            asked["Authorization"] = f"Bearer {token}"
            if sent is not None:
                asked["X-Tapes-Token"] = "read-me"
            answered = httpx.get(f"{where}/summary/x", headers=asked)
            assert answered.status_code == 200
            last = service.last
            assert (last.header("authorization"), last.header("x-tapes-token")) == (sent, None)
            assert last.header("x-request-id") == answered.headers["x-request-id"]
            assert answered.headers.get_list("x-content-type-options") == ["nosniff"]
            assert len(answered.headers.get_list("date")) == 1
