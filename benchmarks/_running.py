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
        return memory_of(self.process.pid, "VmRSS")

    def children(self) -> list[int]:
        """The processes that it started and that live, in the order of their start."""
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/children")
        return sorted(int(child) for thread in threads for child in thread.read_text().split())

    def worked(self) -> float:
        """The seconds of processor time that it has had."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_of(pid: int, kind: str) -> int:
    """The bytes of memory of a process, as its status names them: `VmRSS`, or `VmHWM` at most."""
    found = re.search(rf"{kind}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


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
