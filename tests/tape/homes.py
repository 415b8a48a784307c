"""What the tests of all tapes share: the homes, and exchanges that anyone can check."""

import hashlib
import os
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from tapes.exchange import Exchange, Piece, Request, Response
from tapes.jsontext import Json
from tapes.tape.base import Tape
from tapes.tape.directory import DirectoryTape
from tapes.tape.jsonl import JsonlTape
from tapes.tape.sqlite import SqliteTape

# Each home on disk: how it is opened, and what a tape of that kind is called.
ON_DISK: dict[str, tuple[Callable[[str], Tape], str]] = {
    "jsonl": (JsonlTape, "t.jsonl"),
    "directory": (DirectoryTape, "t"),
    "sqlite": (SqliteTape, "t.db"),
}
all_on_disk = pytest.mark.parametrize("home", list(ON_DISK))


def path_of(home: str, folder: Path) -> str:
    return str(folder / ON_DISK[home][1])


def opened(home: str, path: str) -> Tape:
    return ON_DISK[home][0](path)


def key(name: object) -> str:
    return hashlib.sha256(str(name).encode()).hexdigest()


def plain(name: object, response: Json = None, **more: object) -> Exchange:
    """An exchange of dicts."""
    answer = {"text": f"answer to {name}"} if response is None else response
    return Exchange(key(name), "tape/1", {"prompt": str(name)}, answer, **more)  # type: ignore[arg-type]


def over_http(name: object, *bodies: bytes, request: bytes = b"", **more: object) -> Exchange:
    """An exchange over HTTP; more than one body are the pieces of a stream."""
    return Exchange(
        key(name),
        "http/1",
        Request("POST", "https://model.test/v1", (("Content-Type", "text/x"),), request),
        Response(
            200,
            (("X-One", "1"), ("X-One", "2")),
            tuple(Piece(0.25 * n, body) for n, body in enumerate(bodies)),
            "Fine",
        ),
        **more,  # type: ignore[arg-type]
    )


def files_in(folder: Path) -> dict[str, bytes]:
    """Every file below a folder but those of this machine alone."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".tapes" not in path.parts
    }


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition, for a minute at most."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.001)


def fork() -> int:
    """As `os.fork`, also where other threads run: that is what is to be tested."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()
