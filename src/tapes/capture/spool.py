"""Where turns wait whose store is slow or gone: files in one folder, each whole and on the disk.

Rule 1: a file that is there is whole: it is written beside its place, flushed to the disk, and
        moved there. Whoever is killed in between leaves nothing that counts.
Rule 2: files are taken in by the order of their names, which is the order of writing, by one
        process at a time; whichever process comes next takes in what a killed one left.
Rule 3: a file goes when the store has what is in it. A turn that is delivered twice is kept once,
        or set aside once, because every turn here has an identity.
Rule 4: what is damaged is set aside under another name, never thrown away and never in the way.
Rule 5: whoever takes a file away, renames it or writes it anew holds the lock of the files for that
        moment, so that nothing erased comes back under another name.
Rule 6: erasing goes through all of it, also through what was set aside, turn by turn. What cannot
        be read stays, for nobody can say whose it is, and its file is named.

What comes here is clean: it holds no secrets. Knows nothing of stores.
"""

import fcntl
import hashlib
import json
import logging
import os
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
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

    def put_aside(self, turn: RawTurn) -> bool:
        """Keep a turn that the store refused, for people to look at; False where it is kept so
        already, because it was delivered twice. Raises OSError."""
        name = f"-{_identity_of(turn)}{_REFUSED}"
        if any(entry.name.endswith(name) for entry in _entries(self.folder)):
            return False
        self._put([turn], name)
        return True

    def _put(self, turns: Sequence[RawTurn], ending: str) -> Path:
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        file = self.folder / f"{self._next_name()}{ending}"
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
                with self._files_held():
                    turns = self._turns_or_aside(file)
            except OSError as error:
                log.error("a file of the spool cannot be read: %s", error)
                continue
            if turns is not None:
                yield file, turns

    def _turns_or_aside(self, file: Path) -> list[RawTurn] | None:
        """What a file holds; None where it was purged meanwhile, or had to be set aside."""
        try:
            return list(_read(file))
        except FileNotFoundError:
            return None
        except (DamagedFile, OSError) as error:
            log.error("a file of the spool cannot be read: %s", error)
            file.rename(file.with_suffix(_DAMAGED))
            return None

    def taken(self, file: Path) -> None:
        """The store has what is in this file."""
        with self._files_held():
            file.unlink(missing_ok=True)

    @contextmanager
    def _files_held(self) -> Iterator[None]:
        """Nobody else takes a file away, renames it or writes it anew (rule 5)."""
        try:
            lock = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            yield  # then there are no files
            return
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _sweep(self) -> None:
        """Take away what killed processes had begun to write."""
        for entry in _entries(self.folder):
            with suppress(OSError):
                if entry.name.endswith(_PART) and time.time() - entry.stat().st_mtime > _LEFT_S:
                    os.unlink(entry.path)

    # --- erasing

    def purge(self, org_id: str, session_ids: Iterable[str]) -> int:
        """Erase the turns of these sessions, and give their number (rule 6). Raises OSError."""
        sessions = frozenset(session_ids)

        def belongs(turn: RawTurn) -> bool:
            mine = (turn.envelope.org_id or NO_ORG) == org_id
            return mine and session_id_of(turn.envelope) in sessions

        self._sweep_abandoned()
        with self._files_held():
            return sum(self._without(file, belongs) for file in self._files())

    def unsearched(self) -> tuple[str, ...]:
        """Files with something in them that cannot be read, and may be anybody's."""
        found = (file for file in self._files() if any(p.turn is None for p in _parts_of(file)))
        return tuple(map(str, found))

    def _files(self) -> Iterator[Path]:
        kinds = (_NAME, _REFUSED, _DAMAGED)
        names = sorted(e.name for e in _entries(self.folder) if e.name.endswith(kinds))
        return (self.folder / name for name in names)

    def _without(self, file: Path, belongs: Callable[[RawTurn], bool]) -> int:
        parts = _parts_of(file)
        left = [part for part in parts if part.turn is None or not belongs(part.turn)]
        if len(left) == len(parts):
            return 0
        if left:
            _write_parts(file, left)
        else:
            file.unlink(missing_ok=True)
        return len(parts) - len(left)

    def _sweep_abandoned(self) -> None:
        """Take away what processes that are gone had begun to write."""
        for entry in _entries(self.folder):
            if entry.name.endswith(_PART) and not _is_being_written(entry.name):
                with suppress(OSError):
                    os.unlink(entry.path)


def _is_being_written(name: str) -> bool:
    pid = name.split("-")[1] if name.count("-") >= 2 else ""
    try:
        os.kill(int(pid), 0)
    except (ValueError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True


def _entries(folder: Path) -> list["os.DirEntry[str]"]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except FileNotFoundError:
        return []


# --- one file: a mark, the number of turns, then records, each with its length and its sum -----


def _write(file: Path, records: Sequence[bytes]) -> None:
    framed = [b"".join((_head_of(record), record)) for record in records]
    _write_bytes(file, [_MARK + len(records).to_bytes(4, "big"), *framed])


def _head_of(record: bytes) -> bytes:
    return len(record).to_bytes(8, "big") + zlib.crc32(record).to_bytes(4, "big")


def _write_bytes(file: Path, pieces: Iterable[bytes]) -> None:
    part = file.with_name(f"{file.name}{_PART}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as out:
            for piece in pieces:
                out.write(piece)
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


@dataclass(frozen=True, slots=True)
class _Part:
    """A turn of a file with its bytes there; None where it cannot be read."""

    data: bytes
    turn: RawTurn | None


def _parts_of(file: Path) -> list[_Part]:
    """All of a file, also of a damaged one: each turn that can be read, and what lies between."""
    try:
        data = file.read_bytes()
    except FileNotFoundError:
        return []
    at, parts = len(_MARK) + 4, list[_Part]()
    if len(data) < at:
        return [_Part(data, None)] if data else []
    while at < len(data):
        begin = at + 12
        end = begin + int.from_bytes(data[at : at + 8], "big")
        if begin > len(data) or end > len(data):
            return [*parts, _Part(data[at:], None)]  # where the next one begins, nobody knows
        parts.append(_Part(data[at:end], _readable(file, data[at:end])))
        at = end
    return parts


def _readable(file: Path, framed: bytes) -> RawTurn | None:
    record = framed[12:]
    if _head_of(record) != framed[:12]:
        return None
    with suppress(DamagedFile):
        return _turn(file, record)
    return None


def _write_parts(file: Path, parts: Sequence[_Part]) -> None:
    """What is left of a file, as it was; what cannot be read stays where it can be looked at."""
    head = _MARK + len(parts).to_bytes(4, "big")
    _write_bytes(file, [head, *(part.data for part in parts)])


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


def _identity_of(turn: RawTurn) -> str:
    """What tells a turn from others, in a form that a file's name takes."""
    said = f"{turn.envelope.org_id or NO_ORG}\0{turn.request_id}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(said).hexdigest()[:16]


def size_of(turn: RawTurn) -> int:
    """About how many bytes a turn takes while it waits."""
    exchange = turn.exchange
    if exchange is None:
        return 4096
    request = getattr(exchange.request, "body", b"")
    response = exchange.response
    pieces = response.pieces if isinstance(response, Response) else ()
    return 2048 + len(request) + sum(len(piece.data) + 64 for piece in pieces)
