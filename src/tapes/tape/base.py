"""What every tape promises, whichever home it has.

Rule 1: `append` returns when the exchange is durable. What was acknowledged survives a killed
        process, a full disk and a torn write; what was not acknowledged never answers.
Rule 2: of several exchanges under one key the one appended last answers.
Rule 3: many threads and processes may append at once, and nobody's exchange is lost.
Rule 4: what cannot be read is an error that names the place, never an absent answer.
Rule 5: bodies of BLOB_SIZE bytes and more lie on a tape once, however often they occur.

Knows nothing of modes, budgets or clients.
"""

import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from tapes.exchange import Exchange

BLOB_SIZE = 16 * 1024


class Tape(Protocol):
    """A store of exchanges by key. Safe to use from many threads.

    `path` is what a person calls it, `name` its name in the local folder.
    """

    path: str
    name: str

    @property
    def local(self) -> Path | None:
        """The folder for this machine's own files about the tape; None for a tape in memory."""
        ...

    def find(self, key: str) -> Exchange | None:
        """The exchange that answers under this key; also what others appended meanwhile.

        Raises UnreadableTape (DamagedTape, NewerTape) where it is there and cannot be read.
        """
        ...

    def append(self, exchange: Exchange) -> None:
        """Keep an exchange; on return it is durable. Raises UnwritableTape: then nothing is."""
        ...

    def exchanges(self) -> Iterator[Exchange]:
        """All exchanges in the order of appending, those that a later one replaced included."""
        ...

    def keys(self) -> set[str]:
        """The keys that have an answer or evidence."""
        ...

    def close(self) -> None:
        """Let go of files. Appending or finding afterwards raises ClosedTape."""
        ...


def blob_hash(data: bytes) -> str:
    """The name of a body that is kept once. No canonical request has this hash."""
    return hashlib.sha256(b"blob\n" + data).hexdigest()


class MemoryTape:
    """A tape that ends with the process: for tests, and for runs that keep nothing."""

    def __init__(self, exchanges: Iterator[Exchange] | tuple[Exchange, ...] = ()) -> None:
        self.path = self.name = "memory"
        self.local: Path | None = None
        self._lock = threading.Lock()
        self._exchanges: list[Exchange] = list(exchanges)
        self._last = {exchange.key: exchange for exchange in self._exchanges}

    def find(self, key: str) -> Exchange | None:
        """The exchange appended last under this key."""
        return self._last.get(key)

    def append(self, exchange: Exchange) -> None:
        """Keep an exchange until the process ends."""
        with self._lock:
            self._exchanges.append(exchange)
            self._last[exchange.key] = exchange

    def exchanges(self) -> Iterator[Exchange]:
        """All exchanges in the order of appending."""
        return iter(tuple(self._exchanges))

    def keys(self) -> set[str]:
        """The keys that have an exchange."""
        return set(self._last)

    def close(self) -> None:
        """Nothing to let go of."""
