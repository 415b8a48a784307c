"""The command line as a real process: what a person types, what comes back."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.warm import Warm, read_at_the_start

PATIENCE_S = 30.0
_CODE = "from tapes.cli.main import main; main()"


@dataclass(frozen=True)
class Ended:
    """A command that has ended."""

    status: int
    out: str
    err: str


def command(*args: str) -> list[str]:
    return [sys.executable, "-c", _CODE, *args]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The test's environment without settings and keys, with the sources that are tested."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TAPES_", "CASSETTE_", "DEMO_LIVE"))
        and not name.endswith(("_API_KEY", "_BASE_URL", "_API_BASE", "_PROXY", "_proxy"))
        and name != "OLLAMA_HOST"
    }
    source = str(Path(__file__).parent.parent / "src")
    return {**kept, "PYTHONPATH": source, "PYTHONUNBUFFERED": "1", **(extra or {})}


def started(
    *args: str, cwd: Path, env: Mapping[str, str] | None = None, **pipes: Any
) -> "subprocess.Popen[Any]":
    """A command that has begun; its environment is this test's, and `env`."""
    environ = environment(env)
    usual = read_at_the_start(environ) == read_at_the_start(environment())
    if usual and sys.platform == "linux":
        return Warm(args, cwd=cwd, env=environ, **pipes)
    return subprocess.Popen(command(*args), cwd=cwd, env=environ, **pipes)


def typed(
    *args: str, cwd: Path, env: Mapping[str, str] | None = None, timeout: float = PATIENCE_S
) -> Ended:
    """Run a command to its end."""
    pipe = subprocess.PIPE
    with started(*args, cwd=cwd, env=env, stdout=pipe, stderr=pipe) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return Ended(process.returncode, out.decode(), err.decode())


@dataclass
class Serving:
    """A server as a process of its own."""

    process: "subprocess.Popen[bytes]"
    address: str
    said: str

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def stop(self, number: int = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@contextlib.contextmanager
def started_proxy(
    *args: str, cwd: Path, env: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """`tapes serve proxy`, on any free port where no other is said."""
    arguments: Sequence[str] = args
    if "--listen" not in args:
        arguments = ["--listen", "127.0.0.1:0", *args]
    process = started(
        "serve",
        "proxy",
        *arguments,
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=PATIENCE_S)


@contextlib.contextmanager
def serving_proxy(*args: str, cwd: Path, env: Mapping[str, str] | None = None) -> Iterator[Serving]:
    """`tapes serve proxy`, from the moment at which it listens."""
    with started_proxy(*args, cwd=cwd, env=env) as process:
        assert process.stderr is not None
        said = ""
        while "report:" not in said:
            line = process.stderr.readline().decode()
            assert line, f"the server ended before it listened: {said}"
            said += line
        found = re.search(r"tapes proxy: (http://\S+)", said)
        assert found is not None
        yield Serving(process, found[1], said)
