"""The process beside a host: admits and merges what it is given, until nothing more comes.

Rule 1: whatever it imports, each host waits for: no loop, no threads.

Knows nothing of who gives it work: see `sidework`.
"""

import pickle
import resource
import signal
import struct
import sys
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, BinaryIO

from tapes.errors import Unacceptable
from tapes.services import admission, openapi
from tapes.services.admission import Service

LENGTH = struct.Struct(">Q")
_MEMORY = 3 * 1024 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Named:
    """A document under the name of its service, for merging."""

    name: str
    document: bytes


def _admit(document: bytes, source: str, contracts: Collection[str], lenient: bool) -> Service:
    return admission.admit(document, source, contracts, lenient=lenient)


_WORK: dict[str, Callable[..., Service | bytes]] = {"admit": _admit, "merge": openapi.aggregate}


def _work() -> None:
    """Do what comes until no more comes."""
    # The host ends on Ctrl-C, and this with it, in its own time.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    given, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing but answers goes there
    while head := given.read(LENGTH.size):
        task, arguments = pickle.loads(given.read(LENGTH.unpack(head)[0]))
        answer: tuple[str, Any]
        try:
            answer = ("done", _WORK[task](*arguments))
        except Unacceptable as error:
            answer = ("refused", error)
        except MemoryError:
            answer = ("memory", None)
        _give(answers, answer)


def _give(answers: BinaryIO, answer: tuple[str, Any]) -> None:
    data = pickle.dumps(answer, pickle.HIGHEST_PROTOCOL)
    answers.write(LENGTH.pack(len(data)))
    answers.write(data)
    answers.flush()


if __name__ == "__main__":
    _work()
