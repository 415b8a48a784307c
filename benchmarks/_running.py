"""Servers of benchmarks as processes of their own."""

import contextlib
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Running:
    """A server and its port."""

    process: "subprocess.Popen[str]"
    port: int

    def resident(self) -> int:
        """The bytes of memory that it has."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmRSS:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024

    def worked(self) -> float:
        """The seconds of processor time that it has had."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running(command: list[str], said: str, env: dict[str, str] | None = None) -> Iterator[Running]:
    """A server, from the moment at which it says its port: the first group of `said`."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    # An installation is compiled; here it may not be, or not allowed to write beside the sources.
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    compiled = Path(tempfile.gettempdir()) / f"tapes-benchmarks-{os.getuid()}"
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={
            **kept,
            "PYTHONPATH": path,
            "PYTHONPYCACHEPREFIX": str(compiled),
            "PYTHONUNBUFFERED": "1",
            **(env or {}),
        },
    )
    assert process.stdout is not None
    try:
        text = ""
        while (found := re.search(said, text)) is None:
            line = process.stdout.readline()
            assert line, text
            text += line
        yield Running(process, int(found[1]))
    finally:
        process.terminate()
        process.communicate()
