"""A real aimock, from its own package, for as long as a test needs it."""

import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.npm import PROGRAM, PROVIDER, node_modules_of

PATIENCE_S = 60

StartAimock = Callable[..., str]


@pytest.fixture(scope="session")
def aimock_program() -> Path:
    """The program, installed once by npm."""
    node_modules_of(PROVIDER)
    return PROGRAM


@pytest.fixture
def start_aimock(aimock_program: Path) -> Iterator[StartAimock]:
    """Starts aimock on a folder of fixtures; gives its address."""
    with ExitStack() as running:
        yield lambda folder, *options: running.enter_context(
            _running(aimock_program, folder, *options)
        )


@contextmanager
def _running(program: Path, folder: Path, *options: str) -> Iterator[str]:
    process = subprocess.Popen(
        ["node", str(program), "-p", "0", "-f", str(folder), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert process.stdout is not None
    giving_up = threading.Timer(PATIENCE_S, process.kill)
    giving_up.start()
    # What it says once it listens is for nobody, and must not fill the pipe.
    rest = threading.Thread(target=process.stdout.read)
    try:
        said = ""
        for line in process.stdout:
            said += line
            match = re.search(r"listening on (http://\S+)", line)
            if match:
                rest.start()
                yield match[1]
                return
        pytest.fail(f"aimock did not start:\n{said}")
    finally:
        giving_up.cancel()
        process.terminate()
        process.wait(PATIENCE_S)
        if rest.ident is not None:
            rest.join()
        process.stdout.close()
