"""What is known of earlier runs of a server on this machine: when each began, and how it ended.

A server that ends in order says so; one that was killed leaves its last sign of life. From a
folder that holds lives from before the machine's last start, one can tell that its disk survives a
restart.
"""

import fcntl
import json
import os
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tapes.tape.beside import make_local

FILE = "lives.json"
BEAT_S = 60.0
# The start of the machine, and its first process: in a container that is the container's.
_OF_MACHINE = (Path("/proc/sys/kernel/random/boot_id"), Path("/proc/1/stat"))
_KEPT = 20


@dataclass(frozen=True, slots=True)
class Life:
    """One run of a server. `machine` tells one start of the machine from another."""

    pid: int
    machine: str
    began: float
    seen: float
    ended: float | None = None

    @property
    def seconds(self) -> float:
        """How long it is known to have lived."""
        return (self.ended or self.seen) - self.began

    @property
    def is_over(self) -> bool:
        """Whether its process is gone."""
        if self.ended is not None or self.machine != machine_start():
            return True
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # somebody else's process now, or a server of another user
        return False


def machine_start() -> str:
    """What differs after every start of the machine or the container."""
    boot, stat = map(_said_in, _OF_MACHINE)
    began = stat.rpartition(")")[2].split()  # the name of the process may hold blanks
    return f"{boot}/{began[19] if len(began) > 19 else ''}"


def _said_in(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


def lives_in(folder: Path) -> list[Life]:
    """The lives that a folder remembers, the oldest first; none where it cannot be read."""
    try:
        return [Life(**life) for life in json.loads((folder / FILE).read_text())]
    except (OSError, ValueError, TypeError):
        return []


class Living:
    """The life of this very server, kept up to date in its folder. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        now = time.time()
        self._life = Life(os.getpid(), machine_start(), now, now)
        self._keep()

    def beat(self) -> None:
        """It still lives."""
        self._life = replace(self._life, seen=time.time())
        self._keep()

    def end(self) -> None:
        """It ends in order."""
        now = time.time()
        self._life = replace(self._life, seen=now, ended=now)
        self._keep()

    def _keep(self) -> None:
        file = make_local(self._folder) / FILE
        with file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # several servers may share a folder
            me = (self._life.pid, self._life.began)
            others = [life for life in lives_in(self._folder) if (life.pid, life.began) != me]
            lives = [asdict(life) for life in (*others, self._life)][-_KEPT:]
            temporary = file.with_suffix(".tmp")
            temporary.write_text(json.dumps(lives))
            temporary.replace(file)
