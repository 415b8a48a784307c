"""What every tape promises, whichever home it has.

Rule 1: `append` returns when the exchange is durable. What was acknowledged survives a killed
        process, a full disk and a torn write. What was not acknowledged is there whole or not at
        all.
Rule 2: of several exchanges under one key the one appended last answers.
Rule 3: many threads and processes may append at once, and nobody's exchange is lost. A tape that
        is open when the process forks may be used on both sides.
Rule 4: what cannot be read is an error that names the place, never an absent answer.
Rule 5: bodies of BLOB_SIZE bytes and more lie on a tape once, however often they occur.

Knows nothing of modes, budgets or clients.
"""

import errno
import hashlib
import os
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeGuard, runtime_checkable

from tapes.budget import AnyLedger
from tapes.errors import UnwritableTape, as_typed
from tapes.exchange import Exchange, Request, Response, State, row_of
from tapes.flights import Flights
from tapes.jsontext import Json

BLOB_SIZE = 16 * 1024
_KEY = re.compile("[0-9a-f]{64}")


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
        """The exchange appended last under this key; also what others appended meanwhile.

        What was cut off is found too: see its `state`. Text that is no key finds nothing. Raises
        UnreadableTape (DamagedTape, NewerTape) where it is there and cannot be read.
        """
        ...

    def answer(self, key: str) -> Exchange | None:
        """As `find`, without the request, which nobody needs who replays."""
        ...

    def append(self, exchange: Exchange) -> None:
        """Keep an exchange; on return it is durable.

        Raises UnwritableTape, NotAnAnswer for what JSON cannot say, and UnreadableTape where the
        tape is damaged: then nothing is kept.
        """
        ...

    def exchanges(self) -> Iterator[Exchange]:
        """All exchanges in the order of appending, one by one, however large the tape is.

        Those that a later one replaced are among them, where the home keeps such: a directory
        does not. Raises UnreadableTape at the first that cannot be read.
        """
        ...

    def keys(self) -> set[str]:
        """The keys that have an answer: those whose last exchange is complete."""
        ...

    def close(self) -> None:
        """Let go of files. Appending or finding afterwards raises ClosedTape."""
        ...


@runtime_checkable
class SharedTape(Tape, Protocol):
    """A tape on a server that many machines share: it also counts their calls and flights.

    Whatever it is asked may take its time.
    """

    def ledger(self, run: str) -> AnyLedger:
        """The count of live calls of a run."""
        ...

    def flights(self) -> Flights:
        """Which keys have a live call under way, on whichever machine."""
        ...


# What a tape makes of an exchange before it is kept. Each has a form of its own.
Ready = Any


@runtime_checkable
class RestingTape(Tape, Protocol):
    """A tape that can let go of its files and still be asked."""

    def rest(self) -> None:
        """Keep nothing open until it is asked again."""
        ...


class ManyTape(Tape, Protocol):
    """A tape that makes many exchanges durable at the price of one.

    `append` in two steps: all that is work for the processor, and all that waits for the disk.
    """

    def ready(self, exchange: Exchange) -> Ready:
        """What `append_ready` keeps of an exchange; nothing is waited for. Raises as `append`."""
        ...

    def append_ready(self, items: Sequence[Ready]) -> list[Exception | None]:
        """Keep them in order, durably; what `append` would have raised for each, or None."""
        ...


def takes_many(tape: Tape) -> TypeGuard[ManyTape]:
    """Whether a tape keeps many exchanges at once."""
    return hasattr(tape, "append_ready")


def ready(tape: Tape, exchange: Exchange) -> Ready:
    """What `append_ready` takes; the exchange itself where the tape keeps one by one."""
    return tape.ready(exchange) if takes_many(tape) else exchange


def append_ready(tape: Tape, items: Sequence[Ready]) -> list[Exception | None]:
    """Keep what was made ready in order, together where the tape can; what came of each."""
    if takes_many(tape):
        return tape.append_ready(items)
    return [_appended(tape, exchange) for exchange in items]


def _appended(tape: Tape, exchange: Exchange) -> Exception | None:
    try:
        tape.append(exchange)
    except Exception as error:  # noqa: BLE001  # handed on as a value
        return error
    return None


def is_key(text: str) -> bool:
    """Whether a text is a key: 64 lowercase hex digits."""
    return _KEY.fullmatch(text) is not None


def blob_hash(data: bytes) -> str:
    """The name of a body that is kept once. No canonical request has this hash."""
    return hashlib.sha256(b"blob\n" + data).hexdigest()


def row_and_bodies(exchange: Exchange) -> tuple[dict[str, Json], dict[str, bytes]]:
    """The row of an exchange, and by their names the bodies that it does not hold itself.

    Raises ValueError for a key that could never be found: its maker is wrong.
    """
    if not is_key(exchange.key):
        raise ValueError(f"{exchange.key!r} is no key: a key is 64 lowercase hex digits")
    bodies: dict[str, bytes] = {}

    def put_blob(data: bytes) -> str | None:
        if len(data) < BLOB_SIZE:
            return None
        name = blob_hash(data)
        bodies[name] = data
        return name

    return row_of(exchange, put_blob), bodies


_REMEDIES = {
    errno.ENOSPC: "free space on that disk; nothing that was recorded before is lost",
    errno.EDQUOT: "free space within your quota; nothing that was recorded before is lost",
    errno.EFBIG: "raise the limit (ulimit -f); nothing that was recorded before is lost",
    errno.EROFS: "the file system is read-only: record on another one, or use replay",
    errno.ENOLCK: "the file system has no locks: record on a local disk, or into a directory",
    errno.EOPNOTSUPP: "the file system has no locks: record on a local disk, or into a directory",
}


def unwritable(path: str, error: OSError) -> UnwritableTape:
    """The error for a tape that the system does not let us write."""
    folder = os.path.dirname(path) or "."
    return UnwritableTape(
        f"the tape {path} cannot be written: {error.strerror}",
        _REMEDIES.get(
            error.errno or 0,
            f"check who may write there: ls -ld {as_typed(folder)} {as_typed(path)}",
        ),
    )


def is_of_bytes(exchange: Exchange) -> bool:
    """Whether an exchange went over HTTP: all that its row says was made from bytes."""
    return isinstance(exchange.request, Request) and isinstance(exchange.response, Response)


class MemoryTape:
    """A tape that ends with the process: for tests, and for runs that keep nothing.

    It keeps and gives out exchanges as they are; whoever changes one changes the tape.
    """

    def __init__(self, exchanges: Iterable[Exchange] = ()) -> None:
        self.path = self.name = "memory"
        self.local: Path | None = None
        self._lock = threading.Lock()
        self._exchanges: list[Exchange] = list(exchanges)
        self._last = {exchange.key: exchange for exchange in self._exchanges}

    def find(self, key: str) -> Exchange | None:
        """The exchange appended last under this key."""
        return self._last.get(key)

    def answer(self, key: str) -> Exchange | None:
        """As `find`: nothing is saved by leaving the request out."""
        return self.find(key)

    def append(self, exchange: Exchange) -> None:
        """Keep an exchange until the process ends."""
        with self._lock:
            self._exchanges.append(exchange)
            self._last[exchange.key] = exchange

    def exchanges(self) -> Iterator[Exchange]:
        """All exchanges in the order of appending."""
        return iter(tuple(self._exchanges))

    def keys(self) -> set[str]:
        """The keys whose last exchange is complete."""
        with self._lock:
            return {key for key, last in self._last.items() if last.state is State.COMPLETE}

    def close(self) -> None:
        """Nothing to let go of; the tape can go on being used."""
