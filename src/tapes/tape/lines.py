"""An open JSONL file for reading: where each key's last line begins, kept up with who appends.

Rule 1: a line counts once it has its line end. What follows the last line end is looked at every
        time: a row whose end an editor left out answers, a torn one is passed over.
Rule 2: lines in this project's own form are read when they are asked for, all others at once. A
        broken line is an error that names its number.
Rule 3: whatever a writer appends comes behind the last line end. A file that does not go on where
        it ended was rewritten, and has to be opened anew.

Knows nothing of locks or writing.
"""

import binascii
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tapes.errors import DamagedTape
from tapes.exchange import SCHEMA_VERSION, damaged, newer
from tapes.jsontext import Json
from tapes.tape.beside import identity, make_local
from tapes.tape.descriptors import Descriptor
from tapes.tape.index import BrokenIndex, FileStamp, KeyTable, load_index, place_of
from tapes.tape.rowtext import BOM, read_row
from tapes.tape.scan import BLOCK, OWN, Entry, NoKey, scan_lines

log = logging.getLogger(__name__)

BODY = "blob/1"
_BLANK = BOM + b" \t\r"
_BLANKS = (b"", b"\r")
_FOREIGN = b'{"hash": "'
_ROW = b'{"hash":'
_NEEDED = ("hash", "request", "response")

_READ = 32 * 1024
_NOTHING = FileStamp(-1, 0, 0, 0)
_MARK = 128
# A file smaller than this is read faster than a table beside it.
INDEX_FROM = 1024 * 1024
# A file that changed just now may change again without a trace in its times.
_SETTLED_NS = 1_000_000_000


class LineFile:
    """An open file, and what is known of its lines.

    `shown` is the path that messages name, `index` where its table is kept. Raises DamagedTape,
    NewerTape. Not safe to use from many threads at once, but for `read`, `rows` and `Place`.
    """

    def __init__(
        self, file: Descriptor, shown: str, index: Path, *, trust_index: bool = True
    ) -> None:
        self._file = file
        self._fd = file.number
        self._shown = shown
        self._index = index
        status = os.fstat(self._fd)
        self.identity = identity(status)
        self._seen = FileStamp.of(status)
        self._behind = 0  # the last line end
        self._mark = (0, b"")  # the last line: where it begins, and how
        self._tail: Entry | None = None  # a row without its line end
        self.torn = False
        self.has_news = False  # that the table beside the tape does not have
        self._checked = 0  # up to where it is sure that no line holds two rows
        kept = load_index(index, self._seen) if trust_index and self._is_large else None
        if kept is None:
            self._table = KeyTable()
            self._take_in(self._table.put)
            self.save_index()
        else:
            self._table, last_line, self._checked = kept
            self._behind = self._seen.size
            self._set_mark(last_line)

    @property
    def _is_large(self) -> bool:
        return self._seen.size >= INDEX_FROM

    @property
    def end(self) -> int:
        """The offset behind the last line that counts."""
        return self._behind

    @property
    def has_tail(self) -> bool:
        """Whether a row without its line end stands behind `end`."""
        return self._tail is not None

    # --- asking

    def find(self, key: bytes) -> int | None:
        """The offset of the last line with this key, or None."""
        if self._tail is not None and self._tail[0] == key:
            return self._tail[1] >> 1
        try:
            return self._table.find(key)
        except BrokenIndex:
            self._read_again()
            return self._table.find(key)

    def require_whole_lines(self) -> None:
        """Make sure, before a key is said to be absent, that its row is not hidden in a line.

        A program that appends without looking glues its row to a torn one, and the pass over the
        file does not look into lines. Raises DamagedTape.
        """
        if self._checked >= self._behind:
            return
        for offset, line in self._lines_between(self._checked, self._behind):
            if line.find(_ROW, 1) > 0:  # in a text it would be escaped; in an object it may stand
                read_row(line, self._shown, self.place(offset))
        self._checked = self._behind
        self.has_news = True

    def answers(self) -> set[str]:
        """The keys whose last line is an answer."""
        try:
            found = {key.hex() for key in self._table.answers()}
        except BrokenIndex:
            self._read_again()
            found = {key.hex() for key in self._table.answers()}
        if self._tail is not None:
            key, place = self._tail
            (found.discard if place & 1 else found.add)(key.hex())
        return found

    def read(self, offset: int) -> bytes:
        """The line that begins at an offset, without its end."""
        size, parts = _READ, []
        while True:
            data = os.pread(self._fd, size, offset)
            end = data.find(b"\n")
            if end >= 0 or not data:
                parts.append(data[:end] if end >= 0 else data)
                return b"".join(parts) if len(parts) > 1 else parts[0]
            parts.append(data)
            offset, size = offset + len(data), min(size * 4, BLOCK * 16)

    def rows(self) -> Iterator[tuple[int, bytes]]:
        """Every line that holds something, with the offset at which it begins."""
        behind, tail = self._behind, self._tail
        yield from self._lines_between(0, behind)
        if tail is not None:
            yield tail[1] >> 1, self.read(tail[1] >> 1)

    def _lines_between(self, start: int, end: int) -> Iterator[tuple[int, bytes]]:
        line_at, begun = start, list[bytes]()
        for at in range(start, end, BLOCK):
            first, *others = os.pread(self._fd, min(BLOCK, end - at), at).split(b"\n")
            begun.append(first)
            for other in others:
                line = b"".join(begun)
                if not _is_blank(line):
                    yield line_at, line
                line_at += len(line) + 1
                begun = [other]

    def place(self, offset: int) -> "Place":
        """What messages call an offset."""
        return Place(self, offset)

    def line_number(self, offset: int) -> int:
        """The number of the line that begins at an offset, by counting up to there."""
        count, at = 1, 0
        while at < offset:
            block = os.pread(self._fd, min(BLOCK, offset - at), at)
            if not block:
                break
            count += block.count(b"\n")
            at += len(block)
        return count

    # --- following the file

    def is_as(self, status: os.stat_result) -> bool:
        """Whether nothing happened to the file since it was looked at."""
        seen = self._seen
        return (
            status.st_size == seen.size
            and status.st_mtime_ns == seen.mtime_ns
            and identity(status) == self.identity
        )

    def goes_on(self, status: os.stat_result) -> bool:
        """Whether all that happened to the file is that lines were appended."""
        if identity(status) != self.identity or status.st_size < self._behind:
            return False
        if status.st_size == self._behind == self._seen.size:
            return False  # another time, but the same length: edited in place
        offset, begin = self._mark
        return not begin or (
            os.pread(self._fd, len(begin), offset) == begin
            and os.pread(self._fd, 1, self._behind - 1) == b"\n"
        )

    def follow(self) -> None:
        """Take in what was appended. Raises DamagedTape, NewerTape."""
        seen = FileStamp.of(os.fstat(self._fd))
        self._take_in(self._table.add)
        self._seen = seen  # only now: a broken line is an error every time
        self.has_news = True

    def appended(self, lines: list[tuple[bytes, bool, bytes]], start: int) -> None:
        """Take in lines that this process appended: (key, whether it answers, line) each."""
        places, at = list[int](), start
        for _, answers, line in lines:
            places.append(place_of(at, answers=answers))
            at += len(line)
        self._table.add([key for key, _, _ in lines], places)
        if self._checked == start:
            self._checked = at
        if at > self._behind:
            self._behind, self._tail, self.torn = at, None, False
            self._mark = (at - len(lines[-1][2]), lines[-1][2][:_MARK])
        seen = FileStamp.of(os.fstat(self._fd))
        if seen.size == self._behind:  # else somebody appended without a lock: look again
            self._seen = seen
        self.has_news = True

    def _read_again(self) -> None:
        """The table that was kept beside the tape is broken: make it anew."""
        seen, self._seen = self._seen, _NOTHING
        self._table, self._behind = KeyTable(), 0
        self._take_in(self._table.put)
        self._seen = seen  # only now: whoever is stopped here leaves no half of a table

    def _take_in(self, put: Callable[[list[bytes], list[int]], None]) -> None:
        found = None
        try:
            for found in scan_lines(self._fd, self._behind, self._other_line):
                put(found.keys, found.places)
                self._behind = found.behind
        except NoKey as error:
            raise self._no_key(error.offset) from None
        if found is not None:
            self._set_mark(found.last_line)
        self._look_behind()

    def _set_mark(self, last_line: int) -> None:
        length = min(_MARK, self._behind - last_line)
        self._mark = (last_line, os.pread(self._fd, length, last_line))

    def _look_behind(self) -> None:
        """What follows the last line end (rule 1)."""
        self._tail, self.torn = None, False
        start = self._behind
        data = os.pread(self._fd, max(os.fstat(self._fd).st_size - start, 0), start)
        if _is_blank(data):
            return
        # A row in the middle of being written is not worth reading: nearly none ends like this.
        if not data.rstrip().endswith(b"}"):
            self.torn = True
            return
        try:
            row = read_row(data, self._shown, self.place(start))
        except DamagedTape:
            self.torn = True
        else:
            self._tail = self._entry_of(row, start)

    def _other_line(self, offset: int, length: int) -> Entry | None:
        """A line that is not in this project's own form: of the document's sketch, or by hand."""
        data = os.pread(self._fd, length, offset)
        if _is_blank(data):
            return None
        return self._entry_of(read_row(data, self._shown, self.place(offset)), offset)

    def _entry_of(self, row: Json, offset: int) -> Entry:
        place = self.place(offset)
        if not isinstance(row, dict):
            raise damaged(self._shown, place, "the row is not an object")
        version = row.get("v", 0)
        if not isinstance(version, int):
            raise damaged(self._shown, place, f"the schema version is {version!r}")
        if version > SCHEMA_VERSION:
            raise newer(self._shown, place, version)
        missing = [name for name in _NEEDED if name not in row]
        if missing:
            raise damaged(self._shown, place, f"the row has no {', '.join(missing)}")
        key = key_bytes(row["hash"])
        if key is None:
            raise self._no_key(offset)
        answers = row.get("state", "complete") == "complete" and not is_body(row)
        return key, place_of(offset, answers=answers)

    def _no_key(self, offset: int) -> DamagedTape:
        return damaged(self._shown, self.place(offset), "the hash is not 64 hex digits")

    # --- the table beside the tape

    def save_index(self) -> None:
        """Keep the table for the next time, where that is possible and pays."""
        try:
            stamp = FileStamp.of(os.fstat(self._fd))
            settled = abs(time.time_ns() - stamp.mtime_ns) > _SETTLED_NS
            is_known = stamp == self._seen and stamp.size == self._behind
            if self._is_large and settled and is_known:
                make_local(self._index.parent)
                self._table.save(self._index, stamp, self._mark[0], self._checked)
                self.has_news = False
        except (OSError, BrokenIndex) as error:  # a read-only checkout is scanned every time
            log.debug("index not kept", extra={"path": self._shown, "error": str(error)})


class Place:
    """`line 17`, counted when it is shown: counting reads the file up to there."""

    def __init__(self, lines: LineFile, offset: int) -> None:
        self._lines = lines
        self._offset = offset

    def __str__(self) -> str:
        return f"line {self._lines.line_number(self._offset)}"


def key_bytes(text: Json) -> bytes | None:
    """The 32 bytes of a key, or None for what is none."""
    try:
        return binascii.unhexlify(text) if isinstance(text, str) and len(text) == 64 else None
    except ValueError:
        return None


def key_of_line(line: bytes) -> bytes | None:
    """The key of a line: by its place in the two usual forms, else by reading the line."""
    for begin in (OWN, _FOREIGN):
        if line.startswith(begin):
            return key_bytes(line[len(begin) : len(begin) + 64].decode("latin-1"))
    try:
        return key_bytes(json.loads(line.removeprefix(BOM))["hash"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def is_body(row: Json) -> bool:
    """Whether a row keeps a body that other rows name."""
    return isinstance(row, dict) and row.get("canonicalizer") == BODY


def _is_blank(line: bytes) -> bool:
    return line in _BLANKS or not line.strip(_BLANK)
