"""A tape as one append-only file: an exchange a line, made for git and for reviewers.

Rule 1: every line is a JSON object with `hash`, `request` and `response`; earlier lines are never
        rewritten, and a later line with the same hash wins.
Rule 2: a line counts once it has its line end, which is durable before `append` returns. A torn
        last line was never acknowledged: readers pass over it, the next writer sets it aside.
Rule 3: writers exclude each other by a lock on the file itself, and check that the name still
        leads to the file they locked.

Knows nothing of modes or keys beyond their form.
"""

import errno
import fcntl
import json
import logging
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tapes.errors import ClosedTape, DamagedTape, UnreadableTape, UnwritableTape
from tapes.exchange import (
    SCHEMA_VERSION,
    Exchange,
    bytes_form,
    bytes_of,
    damaged,
    exchange_of,
    newer,
    row_of,
)
from tapes.jsontext import Json, compact
from tapes.tape.base import BLOB_SIZE, blob_hash
from tapes.tape.beside import FOLDER, make_local, sync_folder
from tapes.tape.commit import GroupCommit
from tapes.tape.index import HEAD_SIZE, FileStamp, FlatIndex, entry, load_index, scan_lines

log = logging.getLogger(__name__)

_BOM = b"\xef\xbb\xbf"
_OWN = b'{"hash":"'
_FOREIGN = b'{"hash": "'
_OWN_VERSION = b'","v":%d,' % SCHEMA_VERSION
_STATE = b'"state":"'
_BLOB = b'"canonicalizer":"blob/1"'
_KEY_AT = len(_OWN)
_VERSION_AT = _KEY_AT + 64
_NEXT_AT = _VERSION_AT + len(_OWN_VERSION)
# A file smaller than this is read faster than a table beside it.
_INDEX_FROM = 1024 * 1024
# A file that changed just now may change again without a trace in its time stamp.
_SETTLED_NS = 1_000_000_000
_READ = 16 * 1024

_Line = tuple[str, bool, bytes]  # key, answers, the line with its end


class JsonlTape:
    """A JSONL file as a tape. An absent file is an empty tape; it is made on the first append."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self.local = Path(self.path).parent / FOLDER
        self.name = os.path.basename(self.path)
        self._mutex = threading.RLock()
        self._closed = False
        self._read_fd = -1
        self._write_fd = -1
        self._forget()
        try:
            os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
        except OSError as error:
            log.debug("folder of the tape not made", extra={"path": self.path, "error": str(error)})
        self._load()

    def _forget(self) -> None:
        self._pid = os.getpid()
        self._stamp = FileStamp(0, 0, 0)
        self._index = FlatIndex(b"")
        self._recent: dict[bytes, int] = {}
        self._recent_entries: list[bytes] = []
        self._covered = 0
        self._commits = GroupCommit(self._write)

    # --- finding

    def find(self, key: str) -> Exchange | None:
        """The exchange that answers under this key; also what others appended meanwhile."""
        line, offset = self._line_of(key)
        return None if line is None else self._exchange(self._row(line, offset), offset)

    def _line_of(self, key: str) -> tuple[bytes | None, int]:
        with self._mutex:
            self._require_open()
            raw = bytes.fromhex(key)
            self._catch_up()  # a later line with the same hash wins, whoever appended it
            for attempt in range(3):
                offset = self._offset_of(raw)
                if offset is None:
                    if not self._catch_up():
                        return None, -1
                    continue
                line = self._read_line(offset)
                if _key_in(line) == raw or attempt == 2:
                    return line, offset
                # The file is not the one that the index was made from.
                self._reload()
            return None, -1

    def _offset_of(self, raw: bytes) -> int | None:
        found = self._recent.get(raw)
        return self._index.find(raw) if found is None else found

    def _exchange(self, row: Json, offset: int) -> Exchange:
        if isinstance(row, dict) and row.get("canonicalizer") == "blob/1":
            raise self._damaged(offset, "a request has the hash of a body")
        return exchange_of(row, self.path, self._place(offset), self._blob)

    def _row(self, line: bytes, offset: int) -> Json:
        try:
            return json.loads(line)
        except (ValueError, RecursionError) as error:
            raise self._damaged(offset, f"not JSON ({error})") from error

    def _blob(self, blob: str) -> bytes:
        line, offset = self._line_of(blob)
        if line is None:
            raise self._damaged(0, f"the body {blob[:12]} that a row names is missing")
        return bytes_of(self._row(line, offset)["response"])

    def _damaged(self, offset: int, what: str) -> DamagedTape:
        return damaged(self.path, self._place(offset), what)

    def _place(self, offset: int) -> str:
        """The line number of an offset, counted only when somebody has to be told."""
        return _LinePlace(self._read_fd, offset)

    def exchanges(self) -> Iterator[Exchange]:
        """All exchanges in the order of the file. Raises DamagedTape at the first broken line."""
        with self._mutex:
            self._require_open()
            self._catch_up()
            lines = self._line_offsets()
        for offset in lines:
            line = self._read_line(offset)
            if not line.strip(_BOM + b" \t\r\n") or _BLOB in line[:HEAD_SIZE]:
                continue
            yield self._exchange(self._row(line.removeprefix(_BOM), offset), offset)

    def _line_offsets(self) -> list[int]:
        offsets: list[int] = []
        if self._read_fd >= 0:
            behind, _ = scan_lines(self._read_fd, 0, lambda at, _length, _head: offsets.append(at))
            if self._covered > behind:
                offsets.append(behind)  # a last row that an editor left without its end
        return offsets

    def keys(self) -> set[str]:
        """The keys that have an answer."""
        with self._mutex:
            self._require_open()
            self._catch_up()
            merged = FlatIndex.of(self._index.entries() + self._recent_entries)
            return {raw.hex() for raw in merged.answers()}

    # --- reading the file

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedTape(f"the tape {self.path} is closed", "open it again to use it")
        if os.getpid() != self._pid:
            # A child made by fork shares locks with its parent unless it opens files of its own.
            self._mutex = threading.RLock()
            self._read_fd = self._write_fd = -1
            self._reload()

    def _load(self) -> None:
        try:
            self._read_fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        except OSError as error:
            raise _unreadable(self.path, error) from error
        status = os.fstat(self._read_fd)
        if os.path.isdir(self.path):
            raise UnreadableTape(
                f"{self.path} is a folder, not a file",
                "a directory tape is opened by its own kind: name it with a trailing /",
            )
        self._stamp = FileStamp.of(status)
        saved = (
            load_index(self._index_path(), self._stamp) if status.st_size > _INDEX_FROM else None
        )
        if saved is not None:
            self._index, self._covered = saved, status.st_size
            return
        entries: list[bytes] = []
        self._scan(0, entries)
        self._index = FlatIndex.of(entries)
        self._save_index()

    def _reload(self) -> None:
        for fd in (self._read_fd, self._write_fd):
            if fd >= 0:
                os.close(fd)
        self._read_fd = self._write_fd = -1
        self._forget()
        self._load()

    def _catch_up(self) -> bool:
        """Take in what others did to the file. False where nothing changed."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            if self._read_fd < 0:
                return False
            self._reload()
            return True
        except OSError as error:
            raise _unreadable(self.path, error) from error
        if (
            self._read_fd < 0
            or status.st_ino != self._stamp.inode
            or status.st_size < self._covered
        ):
            self._reload()
            return True
        if status.st_size == self._covered:
            return False
        entries: list[bytes] = []
        before = self._covered
        self._scan(before, entries)
        for item in sorted(entries, key=lambda e: int.from_bytes(e[32:], "big") & ~(1 << 63)):
            self._remember(item)
        return bool(entries)

    def _remember(self, item: bytes) -> None:
        self._recent[item[:32]] = int.from_bytes(item[32:], "big") & ~(1 << 63)
        self._recent_entries.append(item)

    def _scan(self, start: int, entries: list[bytes]) -> None:
        """Index the lines from an offset on; `_covered` moves behind the last one that counts."""
        fromhex, add = bytes.fromhex, entries.append

        def line(offset: int, length: int, head: bytes | bytearray) -> None:
            if (
                length > _NEXT_AT
                and head.startswith(_OWN)
                and head[_VERSION_AT:_NEXT_AT] == _OWN_VERSION
            ):
                rest = head[_NEXT_AT : _NEXT_AT + len(_BLOB)]
                answers = rest != _BLOB and not rest.startswith(_STATE)
                try:
                    add(entry(fromhex(head[_KEY_AT:_VERSION_AT].decode()), offset, answers))
                except ValueError:
                    raise self._damaged(offset, "the hash is not 64 hex digits") from None
            else:
                self._other_line(offset, length, entries)

        behind, head = scan_lines(self._read_fd, start, line)
        self._covered = behind
        if head:
            self._last_line(behind, entries)

    def _other_line(self, offset: int, length: int, entries: list[bytes]) -> None:
        """A line that is not in this project's own form: of the document's sketch, or by hand."""
        data = os.pread(self._read_fd, length, offset)
        if offset == 0:
            data = data.removeprefix(_BOM)
        if not data.strip():
            return
        row = self._row(data, offset)
        version = row.get("v", 0) if isinstance(row, dict) else None
        if isinstance(version, int) and version > SCHEMA_VERSION:
            raise newer(self.path, self._place(offset), version)
        missing = (
            {"hash", "request", "response"} - row.keys() if isinstance(row, dict) else {"an object"}
        )
        if missing:
            raise self._damaged(offset, f"the row has no {', '.join(sorted(missing))}")
        try:
            raw = bytes.fromhex(row["hash"])
            if len(raw) != 32:
                raise ValueError
        except (TypeError, ValueError):
            raise self._damaged(offset, "the hash is not 64 hex digits") from None
        answers = "state" not in row and row.get("canonicalizer") != "blob/1"
        entries.append(entry(raw, offset, answers))

    def _last_line(self, offset: int, entries: list[bytes]) -> None:
        """A last line without its end: a row that an editor left so, or a torn write."""
        size = os.fstat(self._read_fd).st_size
        try:
            self._other_line(offset, size - offset, entries)
        except DamagedTape:
            log.warning(
                "the tape's last line is torn and was never acknowledged; it is passed over",
                extra={"path": self.path, "offset": offset},
            )
            return
        self._covered = size

    def _read_line(self, offset: int) -> bytes:
        size, parts = _READ, []
        at = offset
        while True:
            data = os.pread(self._read_fd, size, at)
            end = data.find(b"\n")
            if end >= 0 or not data:
                parts.append(data[:end] if end >= 0 else data)
                return b"".join(parts) if len(parts) > 1 else parts[0]
            parts.append(data)
            at, size = at + len(data), size * 4

    # --- the index beside the tape

    def _index_path(self) -> Path:
        return self.local / f"{self.name}.index"

    def _save_index(self) -> None:
        """Keep the table for the next time, where that is possible and pays."""
        try:
            stamp = FileStamp.of(os.fstat(self._read_fd))
            settled = time.time_ns() - stamp.mtime_ns > _SETTLED_NS
            if stamp.size < _INDEX_FROM or stamp.size != self._covered or not settled:
                return
            make_local(self.local)
            self._index.save(self._index_path(), stamp)
        except OSError as error:  # a read-only checkout is scanned every time
            log.debug("index not kept", extra={"path": self.path, "error": str(error)})

    # --- appending

    def append(self, exchange: Exchange) -> None:
        """Keep an exchange; on return its line is durable. Raises UnwritableTape."""
        with self._mutex:
            self._require_open()
        lines: list[_Line] = []

        def put_blob(data: bytes) -> str | None:
            if len(data) < BLOB_SIZE:
                return None
            name = blob_hash(data)
            with self._mutex:
                known = self._offset_of(bytes.fromhex(name)) is not None
            if not known and all(key != name for key, _, _ in lines):
                lines.append((name, False, _encode(_blob_row(name, data))))
            return name

        row = row_of(exchange, put_blob)
        lines.append((exchange.key, "state" not in row, _encode(row)))
        self._commits.submit(lines)

    def _write(self, batch: Sequence[list[_Line]]) -> None:
        with self._mutex:
            try:
                self._lock_file()
                try:
                    self._append_lines([line for lines in batch for line in lines])
                finally:
                    fcntl.flock(self._write_fd, fcntl.LOCK_UN)
            except OSError as error:
                raise _unwritable(self.path, error) from error

    def _lock_file(self) -> None:
        """Lock the file that the name leads to, making it if it is not there."""
        while True:
            if self._write_fd < 0:
                new = not os.path.exists(self.path)
                os.makedirs(os.path.dirname(self.path) or ".", exist_ok=True)
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
                self._write_fd = os.open(self.path, flags, 0o644)
                if new:
                    sync_folder(os.path.dirname(os.path.abspath(self.path)))
            fcntl.flock(self._write_fd, fcntl.LOCK_EX)
            locked = os.fstat(self._write_fd)
            try:
                named = os.stat(self.path)
            except FileNotFoundError:
                named = None
            if named is not None and named.st_ino == locked.st_ino:
                if self._read_fd < 0 or self._stamp.inode != locked.st_ino:
                    self._reload_for_reading()
                return
            os.close(self._write_fd)  # somebody put another file in its place
            self._write_fd = -1

    def _reload_for_reading(self) -> None:
        if self._read_fd >= 0:
            os.close(self._read_fd)
            self._read_fd = -1
        self._index, self._recent, self._recent_entries = FlatIndex(b""), {}, []
        self._covered = 0
        self._load()

    def _append_lines(self, lines: list[_Line]) -> None:
        start = os.fstat(self._write_fd).st_size
        if self._covered != start:
            self._catch_up()
        data = b"".join(line for _, _, line in lines)
        if self._covered != start:
            start = self._set_aside(start)
        elif start and os.pread(self._write_fd, 1, start - 1) != b"\n":
            data = b"\n" + data  # a last row that an editor left without its end
        try:
            _write_all(self._write_fd, data)
            os.fdatasync(self._write_fd)
        except OSError:
            os.ftruncate(self._write_fd, start)
            raise
        at = start + len(data) - sum(len(line) for _, _, line in lines)
        for key, answers, line in lines:
            self._remember(entry(bytes.fromhex(key), at, answers))
            at += len(line)
        self._covered = at

    def _set_aside(self, size: int) -> int:
        """Move a torn last line out of the way; gives the size of the file without it."""
        torn = os.pread(self._write_fd, size - self._covered, self._covered)
        aside = make_local(self.local) / f"{self.name}.torn"
        with aside.open("ab") as file:
            file.write(torn + b"\n")
        os.ftruncate(self._write_fd, self._covered)
        log.warning("a torn last line was set aside", extra={"path": self.path, "to": str(aside)})
        return self._covered

    def close(self) -> None:
        """Let go of the file, and keep the index for the next time."""
        with self._mutex:
            if self._closed:
                return
            if self._read_fd >= 0 and self._recent_entries and self._pid == os.getpid():
                self._index = FlatIndex.of(self._index.entries() + self._recent_entries)
                self._save_index()
            for fd in (self._read_fd, self._write_fd):
                if fd >= 0:
                    os.close(fd)
            self._read_fd = self._write_fd = -1
            self._closed = True


class _LinePlace(str):
    """`line 17`, counted when it is shown: counting reads the file up to there."""

    __slots__ = ()

    def __new__(cls, fd: int, offset: int) -> "_LinePlace":
        return super().__new__(cls, f"line {_line_number(fd, offset)}")


def _line_number(fd: int, offset: int) -> int:
    count, at = 1, 0
    while at < offset:
        block = os.pread(fd, min(_READ * 64, offset - at), at)
        if not block:
            break
        count += block.count(b"\n")
        at += len(block)
    return count


def _key_in(line: bytes) -> bytes | None:
    """The key of a line in either of the two usual forms, else by reading it whole."""
    for prefix in (_OWN, _FOREIGN):
        if line.startswith(prefix):
            text = line[len(prefix) : len(prefix) + 64]
            break
    else:
        try:
            text = json.loads(line.removeprefix(_BOM))["hash"].encode()
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
    try:
        return bytes.fromhex(text.decode())
    except ValueError:
        return None


def _blob_row(name: str, data: bytes) -> Json:
    return {
        "hash": name,
        "v": SCHEMA_VERSION,
        "canonicalizer": "blob/1",
        "request": None,
        "response": bytes_form(data),
    }


def _encode(row: Json) -> bytes:
    return compact(row).encode() + b"\n"


def _write_all(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _unreadable(path: str, error: OSError) -> UnreadableTape:
    return UnreadableTape(
        f"the tape {path} cannot be read: {error.strerror}", f"check it with: ls -l {path}"
    )


def _unwritable(path: str, error: OSError) -> UnwritableTape:
    remedies = {
        errno.ENOSPC: "free space on that disk; nothing that was recorded before is lost",
        errno.EROFS: "the file system is read-only: record on another one, or use replay",
        errno.EACCES: f"give yourself the right to write: ls -ld {os.path.dirname(path) or '.'}",
    }
    return UnwritableTape(
        f"the tape {path} cannot be written: {error.strerror}",
        remedies.get(error.errno or 0, f"check it with: ls -l {path}"),
    )
