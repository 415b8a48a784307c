"""Where turns wait whose store is slow or gone: files in one folder, each whole and on the disk.

Rule 1: a file that is there is whole: it is written beside its place, flushed to the disk, and
        moved there. Whoever is killed in between leaves nothing that counts.
Rule 2: files are taken in by the order of their names, which is the order of writing, by one
        process at a time; whichever process comes next takes in what a killed one left.
Rule 3: a file goes when the store has what is in it. A turn that is delivered twice is kept once,
        because every turn here has an identity.
Rule 4: what is damaged is set aside under another name, never thrown away and never in the way.

What comes here is clean: it holds no secrets. Knows nothing of stores.
"""

import json
import logging
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tapes.exchange import Response
from tapes.rows import NO_ORG, RawTurn, session_id_of
from tapes.store.packing import NotPacked
from tapes.store.turnforms import prepare, restored
from tapes.store.turnstile import first_of_all

log = logging.getLogger(__name__)

_MARK = b"tapes spool 1\n"
_NAME = ".turns"
_DAMAGED = ".damaged"
_REFUSED = ".refused"
_PART = ".part"
# A part that nobody has touched for so long was left by a process that was killed.
_LEFT_S = 3600.0


class DamagedFile(Exception):
    """A file of the spool is not what was written."""


class Spool:
    """See above. Safe to use from many threads; many processes may share the folder."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._mutex = threading.Lock()
        self._number = 0
        self._last = 0

    # --- writing

    def put(self, turns: Sequence[RawTurn]) -> Path:
        """Keep turns; on return they are on the disk. Raises OSError."""
        return self._put(turns, _NAME)

    def put_aside(self, turns: Sequence[RawTurn]) -> Path:
        """Keep turns that the store refused, for people to look at. Raises OSError."""
        return self._put(turns, _REFUSED)

    def _put(self, turns: Sequence[RawTurn], suffix: str) -> Path:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        file = self.folder / f"{self._next_name()}{suffix}"
        _write(file, [_record(turn) for turn in turns])
        return file

    def _next_name(self) -> str:
        with self._mutex:
            self._last = max(time.time_ns(), self._last + 1)
            self._number += 1
            return f"{self._last:020d}-{os.getpid()}-{self._number}"

    # --- reading

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return next(self._waiting(), None) is None

    def counts(self) -> dict[str, int]:
        """How much waits, and what was set aside."""
        names = [entry.name for entry in _entries(self.folder)]
        files = [name for name in names if name.endswith(_NAME)]
        return {
            "files": len(files),
            "turns": sum(_turns_in(self.folder / name) for name in files),
            "refused": sum(name.endswith(_REFUSED) for name in names),
            "damaged": sum(name.endswith(_DAMAGED) for name in names),
        }

    def _waiting(self) -> Iterator[Path]:
        names = sorted(e.name for e in _entries(self.folder) if e.name.endswith(_NAME))
        return (self.folder / name for name in names)

    @contextmanager
    def draining(self) -> Iterator[Iterator[tuple[Path, list[RawTurn]]] | None]:
        """Files with their turns, in order, none of which another process takes; None where one is
        at it. `taken` takes a file away."""
        if not self.folder.is_dir():
            yield iter(())
            return
        with first_of_all(str(self.folder / ".lock")) as is_first:
            if is_first:
                self._sweep()
            yield self._readable() if is_first else None

    def _readable(self) -> Iterator[tuple[Path, list[RawTurn]]]:
        for file in self._waiting():
            try:
                turns = list(_read(file))
            except FileNotFoundError:
                continue  # purged meanwhile
            except (DamagedFile, OSError) as error:
                log.error("a file of the spool cannot be read: %s", error)
                with suppress(OSError):
                    file.rename(file.with_suffix(_DAMAGED))
                continue
            yield file, turns

    def taken(self, file: Path) -> None:
        """The store has what is in this file."""
        file.unlink(missing_ok=True)

    def _sweep(self) -> None:
        """Take away what killed processes had begun to write."""
        for entry in _entries(self.folder):
            with suppress(OSError):
                if entry.name.endswith(_PART) and time.time() - entry.stat().st_mtime > _LEFT_S:
                    os.unlink(entry.path)

    # --- erasing

    def purge(self, org_id: str, session_ids: Iterable[str]) -> int:
        """Erase the turns of these sessions, and give their number."""
        sessions = frozenset(session_ids)

        def belongs(turn: RawTurn) -> bool:
            mine = (turn.envelope.org_id or NO_ORG) == org_id
            return mine and session_id_of(turn.envelope) in sessions

        return sum(self._without(file, belongs) for file in (*self._waiting(), *self._aside()))

    def _aside(self) -> Iterator[Path]:
        return (Path(e.path) for e in _entries(self.folder) if e.name.endswith(_REFUSED))

    def _without(self, file: Path, belongs: Callable[[RawTurn], bool]) -> int:
        try:
            turns = list(_read(file))
        except (DamagedFile, OSError):
            return 0
        left = [turn for turn in turns if not belongs(turn)]
        if len(left) == len(turns):
            return 0
        if left:
            _write(file, [_record(turn) for turn in left])
        else:
            file.unlink(missing_ok=True)
        return len(turns) - len(left)


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except FileNotFoundError:
        return []


# --- one file: a mark, the number of turns, then records, each with its length and its sum -----


def _write(file: Path, records: Sequence[bytes]) -> None:
    part = file.with_name(f"{file.name}{_PART}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as out:
            out.write(_MARK + len(records).to_bytes(4, "big"))
            for record in records:
                out.write(len(record).to_bytes(8, "big"))
                out.write(zlib.crc32(record).to_bytes(4, "big"))
                out.write(record)
            out.flush()
            os.fsync(out.fileno())
        os.replace(part, file)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    _sync_folder(file.parent)


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _turns_in(file: Path) -> int:
    with suppress(OSError), file.open("rb") as data:
        head = data.read(len(_MARK) + 4)
        return int.from_bytes(head[len(_MARK) :], "big")
    return 0


def _read(file: Path) -> Iterator[RawTurn]:
    with file.open("rb") as data:
        if data.read(len(_MARK)) != _MARK:
            raise DamagedFile(f"{file}: it does not begin as a file of the spool")
        for number in range(int.from_bytes(data.read(4), "big")):
            size, check = int.from_bytes(data.read(8), "big"), int.from_bytes(data.read(4), "big")
            record = data.read(size)
            if len(record) != size or zlib.crc32(record) != check:
                raise DamagedFile(f"{file}: turn {number + 1} is not what was written")
            yield _turn(file, record)


def _record(turn: RawTurn) -> bytes:
    """Its columns as JSON, the body of its request, and the rest as the store packs it."""
    ready = prepare(turn)
    text = json.dumps(dict(ready.columns)).encode()
    head = b"".join(len(part).to_bytes(8, "big") for part in (text, ready.body))
    return b"".join((head, text, ready.body, ready.rest))


def _turn(file: Path, record: bytes) -> RawTurn:
    size, length = int.from_bytes(record[:8], "big"), int.from_bytes(record[8:16], "big")
    body_at = 16 + size
    try:
        columns = json.loads(record[16:body_at])
        row = {**columns, "id": 0, "placed": None, "rest": record[body_at + length :]}
        turn = restored(row, record[body_at : body_at + length])
    except (ValueError, NotPacked) as error:
        raise DamagedFile(f"{file}: {error}") from error
    return turn


def size_of(turn: RawTurn) -> int:
    """About how many bytes a turn takes while it waits."""
    exchange = turn.exchange
    if exchange is None:
        return 4096
    request = getattr(exchange.request, "body", b"")
    response = exchange.response
    pieces = response.pieces if isinstance(response, Response) else ()
    return 2048 + len(request) + sum(len(piece.data) + 64 for piece in pieces)
