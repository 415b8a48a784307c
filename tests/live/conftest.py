"""A real provider on loopback, installed once and started once for all live tests."""

import contextlib
import re
import subprocess
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.npm import node_modules_of

HOME = Path(__file__).parent.parent / "provider"
PROGRAM = HOME / "node_modules" / "@copilotkit" / "aimock" / "dist" / "cli.js"
PATIENCE_S = 300


@dataclass(frozen=True)
class Provider:
    """Where the provider listens."""

    url: str

    @property
    def requests(self) -> int:
        """How many requests for models it has had so far."""
        with urllib.request.urlopen(f"{self.url}/__aimock/journal?limit=1") as response:
            return int(response.headers["X-Total-Count"])


@pytest.fixture(scope="session")
def node_modules() -> Path:
    """The folder of the packages that `package.json` names."""
    return node_modules_of(HOME)


@pytest.fixture(scope="session")
def provider(node_modules: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Provider]:
    log = tmp_path_factory.mktemp("provider") / "log"
    with log.open("w") as file:
        process = subprocess.Popen(
            ["node", str(PROGRAM), "-p", "0", "-f", str(HOME / "fixtures"), "--strict"],
            stdout=file,
            stderr=subprocess.STDOUT,
        )
    try:
        yield Provider(_address(process, log))
    finally:
        process.terminate()
        process.wait(10)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    """The address that the provider says it listens on. It writes to a file, so: look again."""
    for _ in range(PATIENCE_S * 10):
        found = re.search(r"listening on (http://[\d.]+:\d+)", log.read_text())
        if found:
            return found[1]
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.1)
            break
    pytest.fail(f"the provider did not start: {log.read_text()}")
