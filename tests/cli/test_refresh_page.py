"""The recipes on the page about refreshing, run as they stand, against a provider on loopback."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import yaml

import tapes
from tests.loopback import Provider, provider
from tests.test_refreshing import Changing, ask, record

PAGE = (Path(__file__).parents[2] / "docs" / "refreshing.md").read_text()
OLD = "2020-01-01T00:00:00.000+00:00"
TAPE = "tests/tapes/weather.jsonl"


def block(language: str, begins: str) -> str:
    found = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    (only,) = [text for text in found if text.startswith(begins)]
    return str(only)


def git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ("git", *words), cwd=folder, check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture
def at() -> Iterator[Provider]:
    with provider(Changing()) as where:
        yield where


@pytest.fixture
def repository(tmp_path: Path, at: Provider, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A clone with a tape of two recordings, one of them old, and the commands on the path."""
    for name in ("author", "committer"):
        monkeypatch.setenv(f"GIT_{name.upper()}_NAME", "t")
        monkeypatch.setenv(f"GIT_{name.upper()}_EMAIL", "t@example.org")
    folder, origin, bin_ = tmp_path / "clone", tmp_path / "origin.git", tmp_path / "bin"
    git(tmp_path, "init", "-q", "--bare", str(origin))
    git(tmp_path, "init", "-q", "-b", "main", str(folder))
    git(folder, "remote", "add", "origin", str(origin))
    (folder / ".gitignore").write_text(".tapes/\nlive.env\n")
    with closing(tapes.open_tape(folder / TAPE)) as tape:
        record(tape, ask(at, "old"), ask(at, "young"))
    old, young = (folder / TAPE).read_text().splitlines()
    old = re.sub(r'(?<="recorded_at":")[^"]+', OLD, old)
    (folder / TAPE).write_text(f"{old}\n{young}\n")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "Record")
    bin_.mkdir()
    source = Path(tapes.__file__).parents[1]
    run = f'exec {shlex.quote(sys.executable)} -c "from tapes.cli.main import main; main()" "$@"'
    for name, line in (("tapes", f"PYTHONPATH={shlex.quote(str(source))} {run}"), ("pip", "true")):
        (bin_ / name).write_text(f"#!/bin/sh\n{line}\n")
        (bin_ / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{bin_}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("OPENAI_BASE_URL", at.url + "/v1")
    at.requests.clear()
    return folder


def run_workflow(folder: Path, secrets: dict[str, str], without: str = "") -> str:
    """Run each shell step of the workflow as the runner does: bash, ending at the first error."""
    workflow: Any = yaml.safe_load(block("yaml", "name: Refresh tapes"))
    said = ""
    for step in workflow["jobs"]["refresh"]["steps"]:
        if "run" not in step:
            continue
        env = {
            name: re.sub(r"\$\{\{ secrets\.(\w+) \}\}", lambda m: secrets[m[1]], value)
            for name, value in step.get("env", {}).items()
            if name != without
        }
        done = subprocess.run(
            ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]),
            cwd=folder, env={**os.environ, **env}, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        said += done.stdout + done.stderr
        assert done.returncode == 0, said
    return said


@pytest.mark.row("A12-refresh")
def test_the_workflow_refreshes_what_is_old_and_offers_it_as_a_branch(
    repository: Path, at: Provider
) -> None:
    before = (repository / TAPE).read_bytes()
    said = run_workflow(repository, {"OPENAI_API_KEY": "sk-of-today"})
    assert f"{TAPE}: 1 recorded" in said
    assert len(at.requests) == 1
    assert ("authorization", "Bearer sk-of-today") in at.requests[0].headers
    offered = git(repository, "show", f"origin/refresh-tapes:{TAPE}").encode()
    assert offered.startswith(before)
    assert offered.count(b"\n") == 3
    assert b"sk-of-today" not in offered
    assert git(repository, "show", f"main:{TAPE}").encode() == before


@pytest.mark.row("A12-refresh")
def test_the_workflow_stays_behind_the_latch(repository: Path, at: Provider) -> None:
    with_budget = "CASSETTE_LIVE_BUDGET"
    workflow = block("yaml", "name: Refresh tapes")
    assert workflow.count("DEMO_LIVE") == workflow.count(with_budget) == 1
    for step in yaml.safe_load(workflow)["jobs"]["refresh"]["steps"]:
        for name in ("DEMO_LIVE", with_budget):
            step.get("env", {}).pop(name, None)
        if "run" in step:
            subprocess.run(("bash", "-e", "-c", step["run"]), cwd=repository, check=True)
    assert not at.requests
    assert "refresh-tapes" not in git(repository, "branch", "--remotes")


@pytest.mark.row("A12-refresh")
def test_the_script_for_cron_refreshes_and_commits(repository: Path, at: Provider) -> None:
    script = repository / "refresh-tapes.sh"
    script.write_text(block("sh", "#!/bin/sh"))
    script.chmod(0o755)
    (repository / "live.env").write_text("OPENAI_API_KEY=sk-of-today\n")
    line = block("cron", "17 4 * * 1").strip().split("  ", 1)[1]
    line = line.replace("/srv/agent", str(repository))
    for _ in range(2):
        subprocess.run(("sh", "-c", line), check=True, timeout=60)
    said = (repository / "refresh.log").read_text()
    assert said.count(f"{TAPE}: 1 recorded") == 1
    assert len(at.requests) == 1
    assert git(repository, "log", "--format=%s") == "Refresh tapes\nRecord\n"
