"""Kills a tool at every moment at which it touches the system, and looks at the tape each time.

Usage: python -m tests.killed KIND WORK FOLDER

A process of its own, because it forks: the child sets a hook that kills it before its n-th call
of one of a few functions of the system, then does the work. Prints the number of moments.
"""

import os
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from tapes.exchange import State
from tapes.scanning import scrub
from tapes.tape.copying import merge
from tapes.tape.mending import mend, verify
from tapes.tape.pruning import Choice, prune
from tests.making import answers, call, chat, large, make_tape, tape_in

SECRET = "sk-proj-" + "a1B2" * 8
_TOUCHING = frozenset(
    {
        "open", "write", "pwrite", "flush", "fsync", "fdatasync", "ftruncate", "truncate", "rename",
        "replace", "link", "unlink", "mkdir", "flock", "close", "execute", "executemany", "backup",
    }
)  # fmt: skip

WORK: dict[str, Callable[[str, str], object]] = {
    "prune": lambda path, _: prune(path, Choice(used={call("two").key}, incomplete=True)),
    "merge": lambda path, other: merge(path, [other], "theirs"),
    "scrub": lambda path, _: scrub(path),
    "mend": lambda path, _: mend(path),
}


def kill_at(moment: int) -> Callable[[FrameType, str, object], None]:
    """A hook that ends the process without warning before its n-th touch of the system."""
    seen = 0

    def hook(_frame: FrameType, event: str, what: object) -> None:
        nonlocal seen
        if event == "c_call" and getattr(what, "__name__", "") in _TOUCHING:
            seen += 1
            if seen == moment:
                os.kill(os.getpid(), signal.SIGKILL)

    return hook


def run(work: Callable[[], object], moment: int) -> bool:
    """Do the work in a child; whether it came to its end."""
    child = os.fork()
    if child == 0:
        if moment:
            sys.setprofile(kill_at(moment))
        work()
        sys.setprofile(None)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -signal.SIGKILL), status
    return status == 0


def damage(path: str, kind: str) -> None:
    """Break one answer."""
    if kind == "jsonl":
        lines = Path(path).read_bytes().splitlines(keepends=True)
        Path(path).write_bytes(b"".join([lines[0][:50] + b"\n", *lines[1:]]))
    elif kind == "directory":
        Path(path, f"{call('one').key}.json").write_text("{half")
    else:
        connection = sqlite3.connect(path)
        with connection:
            connection.execute("UPDATE exchanges SET row = '{half' WHERE number = 1")
        connection.close()


def state(path: str) -> dict[str, object]:
    """What a tape answers."""
    return {key: answer.response for key, answer in answers(path).items()}


def main(kind: str, work: str, folder: Path) -> None:
    """Kill at moment after moment until the work is done before the next one."""
    different = [call("one", "differently"), call("new"), large("l")]
    other = make_tape(folder / "other.jsonl", different)

    cut = chat("cut", "half", state=State.ABORTED_BY_CLIENT)

    def make(number: int) -> str:
        (folder / str(number)).mkdir()
        exchanges = [call("one"), call("two"), cut, large("long"), call("secret", SECRET)]
        path = tape_in(folder / str(number), kind, exchanges)
        if work == "mend":
            damage(path, kind)
        return path

    whole = make(0)
    old = {} if work == "mend" else state(whole)
    assert run(lambda: WORK[work](whole, other), 0)
    new, moment, done = state(whole), 0, False
    while not done:
        moment += 1
        path = make(moment)
        done = run(lambda path=path: WORK[work](path, other), moment)  # type: ignore[misc]  # mypy does not see the default
        if work != "mend":  # a damaged tape answers nothing until it is mended
            now = state(path)
            for key, answer in now.items():
                assert answer in (old.get(key), new.get(key)), f"{key} at moment {moment}"
            assert set(now) >= set(old) & set(new), f"answers were lost at moment {moment}"
            assert verify(path).damage in ([], _torn(path)), f"damage at moment {moment}"
        assert run(lambda path=path: WORK[work](path, other), 0)  # type: ignore[misc]
        assert state(path) == new, f"not completed after moment {moment}"
        assert verify(path).damage == []
    print(moment)


def _torn(path: str) -> object:
    """A row that was being added may be torn at the end: nobody was told that it is there."""
    found = verify(path).damage
    return found if [each.fault for each in found] == ["torn"] else None


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))
