"""Python programs in processes of their own."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent
TIMEOUT_S = 60


def environment(**settings: str) -> dict[str, str]:
    """The environment of a child: this project's sources first, and these settings."""
    path = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**os.environ, "PYTHONPATH": path, **settings}


def start(code: str, cwd: Path, **settings: str) -> subprocess.Popen[str]:
    """A child that runs this code; the caller waits for it."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=cwd,
        env=environment(**settings),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(code: str, cwd: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """A child that ran this code to its end, with nothing to read."""
    return _run(["-c", textwrap.dedent(code)], cwd, settings)


def run_file(file: Path, cwd: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """A child that ran this file to its end."""
    return _run([str(file)], cwd, settings)


def _run(
    arguments: list[str], cwd: Path, settings: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    # A pipe that nobody writes to: the child may wait for it.
    reading, writing = os.pipe()
    try:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=cwd,
            env=environment(**settings),
            stdin=reading,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    finally:
        os.close(reading)
        os.close(writing)


def run_together(count: int, code: str, cwd: Path, **settings: str) -> list[str]:
    """What so many children print that run this code up to a line, and go on from it at once.

    The code has to `print("ready", flush=True)` and then `sys.stdin.readline()`.
    """
    children = [start(code, cwd, **settings) for _ in range(count)]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    outputs = [child.communicate(timeout=TIMEOUT_S) for child in children]
    assert [child.returncode for child in children] == [0] * count, outputs
    return [out for out, _ in outputs]
