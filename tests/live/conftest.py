"""Real parts for the tests in this folder: a provider in Node, and the SDKs that talk to it."""

import contextlib
import fcntl
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PROVIDER = Path(__file__).parent.parent / "provider"
ANSWERS = {
    "fixtures": [
        {
            "match": {"userMessage": "weather"},
            "response": {"toolCalls": [{"name": "get_weather", "arguments": '{"city":"Paris"}'}]},
        },
        {"match": {"endpoint": "embedding"}, "response": {"embedding": [0.25, -1.5e-3, 1]}},
        {"match": {"endpoint": "image"}, "response": {"image": {"b64Json": "iVBORw0KGgo="}}},
        {"match": {"endpoint": "speech"}, "response": {"audio": "//uQxAAAAAAAAAAAAAA="}},
        {
            "match": {},
            "response": {"content": "Naïve café: a longer answer, cut into several pieces. 🎞️"},
        },
    ]
}


@dataclass(frozen=True)
class Provider:
    """A provider that listens on loopback."""

    url: str
    process: "subprocess.Popen[str]"

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(10)


@pytest.fixture(scope="session")
def node_modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of Node packages, installed where it is not there yet."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        pytest.skip("node and npm are not installed")
    modules = PROVIDER / "node_modules"
    with (tmp_path_factory.getbasetemp().parent / "provider.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several workers may come at once
        if not (modules / ".package-lock.json").exists():
            install = ["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--silent"]
            done = subprocess.run(install, cwd=PROVIDER, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"the Node packages cannot be installed: {done.stderr[-300:]}")
    return modules


@contextlib.contextmanager
def started(modules: Path, answers: Path) -> Iterator[Provider]:
    cli = modules / "@copilotkit" / "aimock" / "dist" / "cli.js"
    process = subprocess.Popen(
        ["node", str(cli), "-p", "0", "-f", str(answers), "--log-level", "info"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    said = ""
    while "listening on" not in said:
        line = process.stdout.readline()
        assert line, f"the provider ended: {said}"
        said += line
    found = re.search(r"listening on (\S+)", said)
    assert found is not None
    # Whatever it says later must not fill the pipe.
    reader = threading.Thread(target=process.stdout.read, daemon=True)
    reader.start()
    try:
        yield Provider(found[1], process)
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(10)
        reader.join(10)
        process.stdout.close()


@pytest.fixture(scope="session")
def provider(node_modules: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    """A provider that speaks the APIs of OpenAI, Anthropic, Gemini, Ollama and more."""
    answers = tmp_path_factory.mktemp("provider") / "answers.json"
    answers.write_text(json.dumps(ANSWERS))
    with started(node_modules, answers) as running:
        yield running
