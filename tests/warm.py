"""The command line, started from a process that has imported it before.

Tests start hundreds of commands, and nearly all that one takes is to import. Here a process is
forked from one that has: a child of the test like any other, with its own pipes, folder,
environment and signals. That commands start cold as well is proved in `cli/test_main.py`.
"""

import atexit
import contextlib
import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from functools import cache
from inspect import signature
from pathlib import Path
from typing import Any

_CODE = """
import gc, importlib, json, os, signal, socket, sys
from tapes.cli.main import COMMANDS, main

signal.signal(signal.SIGINT, signal.SIG_IGN)
for name in {module for module, _ in COMMANDS.values()} | {"tapes.keeping", "tapes.serving"}:
    importlib.import_module(name)
gc.collect()
gc.freeze()
door = socket.socket(fileno=int(sys.argv[1]))
while True:
    said, files, _, _ = socket.recv_fds(door, 1 << 20, 3)
    if not said:
        os._exit(0)
    between = os.fork()
    if between:
        for file in files:
            os.close(file)
        os.waitpid(between, 0)  # only then the test is the parent
        door.send(b"started")
    elif child := os.fork():
        door.send(str(child).encode())
        os._exit(0)
    else:
        break
for number, file in enumerate(files):
    os.dup2(file, number)
os.closerange(3, 256)
words, folder, environ = json.loads(said)
os.chdir(folder)
os.environ.clear()
os.environ.update(environ)
sys.argv[1:] = words
signal.signal(signal.SIGINT, signal.default_int_handler)
main()
"""
_SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER: orphans below become children of this process
_GUARD = threading.Lock()


def read_at_the_start(environ: Mapping[str, str]) -> dict[str, str]:
    """What Python reads once, at its very beginning."""
    return {
        name: value
        for name, value in environ.items()
        if name.startswith(("PYTHON", "LC_", "LD_")) or name in ("LANG", "LANGUAGE", "TZ")
    }


class _Imported:
    """The process that has imported all commands, and the door at which it is asked to fork."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._prctl = ctypes.CDLL(None).prctl
        self._door, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _CODE, str(theirs.fileno())],
                cwd=Path(__file__).parent,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
            )
        atexit.register(self._end)

    def fork(self, words: list[str], folder: str, environ: dict[str, str], files: list[int]) -> int:
        """Start a command; gives its process, which is a child of this one."""
        said = json.dumps([words, folder, environ]).encode()
        with _GUARD:
            self._prctl(_SUBREAPER, 1, 0, 0, 0)
            try:
                socket.send_fds(self._door, [said], files)
                child = int(self._door.recv(64))
                assert self._door.recv(64) == b"started"
            finally:
                self._prctl(_SUBREAPER, 0, 0, 0, 0)
        return child

    def _end(self) -> None:
        self._door.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)


@cache
def _imported(_owner: int, environ: tuple[tuple[str, str], ...]) -> _Imported:
    return _Imported(dict(environ))


_CHILD = signature(subprocess.Popen._execute_child)  # type: ignore[attr-defined]
# As `Popen` has them: the read and the write end of a pipe for each stream, or -1.
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
_OURS = ("p2cread", "c2pwrite", "errwrite")


class Warm(subprocess.Popen[Any]):
    """`Popen` of a command of `tapes`: `args` are its words."""

    def _execute_child(self, *given: Any) -> None:
        told = _CHILD.bind(self, *given).arguments
        files = [usual if told[name] == -1 else told[name] for usual, name in enumerate(_OURS)]
        environ = dict(told["env"])
        forks = _imported(os.getpid(), tuple(sorted(read_at_the_start(environ).items()))).fork
        self.pid = forks(list(told["args"]), os.fspath(told["cwd"]), environ, files)
        self._child_created = True
        self._close_pipe_fds(*(told[name] for name in _PIPES))  # type: ignore[attr-defined]
