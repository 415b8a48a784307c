"""A tape as one append-only file: an exchange a line, made for git and for reviewers.

Rule 1: every line is a JSON object with `hash`, `request` and `response`; no line that has its
        end is ever changed or taken away, and a later line with the same hash wins.
Rule 2: a line counts once it has its line end, which is durable before `append` returns. A torn
        last line was never acknowledged: readers pass over it, the next writer sets it aside.
Rule 3: writers exclude each other by a lock on the file itself, and check that the name still
        leads to the file they locked. Whoever puts another file in its place holds that lock.

Knows nothing of modes or keys beyond their form.
"""

import fcntl
import logging
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tapes.errors import ClosedTape, UnreadableTape, UnwritableTape
from tapes.exchange import (
    SCHEMA_VERSION,
    Exchange,
    ReadRow,
    State,
    answer_of,
    bytes_form,
    bytes_of,
    damaged,
    exchange_of,
)
from tapes.forks import bring_through_forks
from tapes.tape.base import (
    blob_hash,
    is_key,
    is_of_bytes,
    row_and_bodies,
    unwritable,
)
from tapes.tape.beside import identity, make_folder, make_local, sync_file, sync_folder
from tapes.tape.commit import GroupCommit
from tapes.tape.descriptors import Descriptor
from tapes.tape.lines import BODY, LineFile, Place, is_body, key_of_line
from tapes.tape.named import file_status, local_of, patiently, unreadable
from tapes.tape.rowtext import line_of, read_row, write_row

log = logging.getLogger(__name__)

# How often a file may turn out to be another one while it is read or written.
_TRIES = 100

_Line = tuple[bytes, bool, bytes]  # key, whether it answers, the line with its end


@dataclass(slots=True)
class _Item:
    """An exchange on its way to the file: its line, and the bodies that the line names."""

    line: _Line
    bodies: dict[str, bytes]


def file_of(exchanges: Iterable[Exchange]) -> bytes:
    """The file that holds these exchanges, as a tape writes it, for who writes none here."""
    lines: list[bytes] = []
    known: set[str] = set()
    for exchange in exchanges:
        row, bodies = row_and_bodies(exchange)
        for name, data in bodies.items():
            if name not in known:
                known.add(name)
                lines.append(_body_line(name, data))
        lines.append(line_of(write_row(row, of_bytes=is_of_bytes(exchange))))
    return b"".join(lines)


class JsonlTape:
    """A JSONL file as a tape. An absent file is an empty tape; it is made on the first append."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)
        self._file = os.path.abspath(self.path)  # whatever the working folder is later
        self.local, self.name = local_of(self._file)
        self._closed = False
        self._writer: Descriptor | None = None
        self._begin()
        try:
            os.makedirs(os.path.dirname(self._file), exist_ok=True)
        except OSError as error:
            log.debug("folder of the tape not made", extra={"path": self.path, "error": str(error)})
        self._lines = self._opened()
        bring_through_forks(self)

    def _begin(self) -> None:
        self._mutex = threading.RLock()  # for `_lines`, `_writer`, `_closed`
        self._commits = GroupCommit(self._write)

    # --- finding

    def find(self, key: str) -> Exchange | None:
        """The exchange appended last under this key; also what others appended meanwhile."""
        found = self._last_line(bytes.fromhex(key)) if is_key(key) else None
        return None if found is None else self._exchange(*found, exchange_of)

    def answer(self, key: str) -> Exchange | None:
        """As `find`, without the request."""
        found = self._last_line(bytes.fromhex(key)) if is_key(key) else None
        return None if found is None else self._exchange(*found, answer_of)

    def _last_line(self, key: bytes) -> tuple[LineFile, int, bytes] | None:
        for _ in range(_TRIES):
            with self._mutex:
                lines = self._current()
                offset = None if lines is None else lines.find(key)
                if lines is not None and offset is None:
                    lines.require_whole_lines()
            if lines is None or offset is None:
                return None
            line = lines.read(offset)
            if key_of_line(line) == key:
                return lines, offset, line
            with self._mutex:  # edited in place, or the table beside it is another file's
                if self._lines is lines:
                    self._lines = self._opened(trust_index=False)
        raise UnreadableTape(
            f"the tape {self.path} changes while it is read",
            "let the program that rewrites it finish, then try again",
        )

    def _exchange(
        self, lines: LineFile, offset: int, line: bytes, read: ReadRow
    ) -> Exchange | None:
        place = lines.place(offset)
        row = read_row(line, self.path, place)
        if is_body(row):
            return None
        return read(row, self.path, place, partial(self._body, lines, place))

    def _body(self, lines: LineFile, place: Place, name: str) -> bytes:
        """A body that the row at a place names; it is in the same file."""
        with self._mutex:
            offset = lines.find(bytes.fromhex(name)) if is_key(name) else None
        if offset is None:
            raise damaged(self.path, place, f"the body {name[:12]} that it names is missing")
        body_place = lines.place(offset)
        row = read_row(lines.read(offset), self.path, body_place)
        try:
            data = bytes_of(row["response"])
        except (KeyError, TypeError, ValueError) as error:
            raise damaged(self.path, body_place, f"the row keeps no body ({error!r})") from error
        if blob_hash(data) != name:
            raise damaged(self.path, body_place, "the body is not the one that was kept")
        return data

    def exchanges(self) -> Iterator[Exchange]:
        """All exchanges in the order of the file. Raises DamagedTape at the first broken line."""
        with self._mutex:
            lines = self._current()
        return iter(()) if lines is None else self._exchanges_in(lines)

    def _exchanges_in(self, lines: LineFile) -> Iterator[Exchange]:
        for offset, line in lines.rows():
            exchange = self._exchange(lines, offset, line, exchange_of)
            if exchange is not None:
                yield exchange

    def keys(self) -> set[str]:
        """The keys whose last exchange is complete."""
        with self._mutex:
            lines = self._current()
            if lines is None:
                return set()
            lines.require_whole_lines()
            return lines.answers()

    # --- the file that the name leads to

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedTape(f"the tape {self.path} is closed", "open it again to use it")

    def _current(self) -> LineFile | None:
        """The lines of the file as it is now; None where there is none."""
        self._require_open()
        status, lines = file_status(self._file, self.path), self._lines
        if status is None:
            self._lines = None
        elif lines is None or not lines.is_as(status):
            if lines is not None and lines.goes_on(status):
                lines.follow()
            else:
                self._lines = self._opened()
        return self._lines

    def _opened(self, *, trust_index: bool = True) -> LineFile | None:
        if file_status(self._file, self.path) is None:
            return None
        try:
            # Not to wait, if it has become a pipe meanwhile.
            file = Descriptor(os.open(self._file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise unreadable(self.path, error) from error
        index = self.local / f"{self.name}.index"
        lines = LineFile(file, self.path, index, trust_index=trust_index)
        if lines.torn:
            self._warn_of_torn(lines, file.number)
        return lines

    def _warn_of_torn(self, lines: LineFile, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return  # somebody is writing it at this moment
        try:
            lines.follow()
        finally:
            fcntl.flock(fd, fcntl.LOCK_UN)
        if lines.torn:
            place = lines.place(lines.end)
            log.warning(
                "%s, %s: the last line is torn; it is passed over, and the next recording sets"
                " it aside",
                self.path,
                place,
            )

    # --- appending

    def append(self, exchange: Exchange) -> None:
        """Keep an exchange; on return its line is durable.

        Raises UnwritableTape, NotAnAnswer; UnreadableTape where the file is damaged.
        """
        self._commits.submit(self.ready(exchange))

    def ready(self, exchange: Exchange) -> _Item:
        """What `append_ready` keeps of an exchange. Raises NotAnAnswer."""
        self._require_open()
        row, bodies = row_and_bodies(exchange)
        line = line_of(write_row(row, of_bytes=is_of_bytes(exchange)))
        answers = exchange.state is State.COMPLETE
        return _Item((bytes.fromhex(exchange.key), answers, line), bodies)

    def append_ready(self, items: Sequence[_Item]) -> list[Exception | None]:
        """Keep them in order, with one commit; what `append` would have raised for each."""
        return self._commits.submit_all(items)

    def _write(self, batch: Sequence[_Item]) -> int:
        """Append as much of a batch as can be made durable; gives the number of exchanges."""
        try:
            for _ in patiently():
                fd = self._locked()
                try:
                    lines = self._lines_under_lock(fd)
                    if lines is not None:
                        return self._append(fd, lines, batch)
                finally:
                    fcntl.flock(fd, fcntl.LOCK_UN)
                with self._mutex:  # somebody put another file in its place
                    self._close_writer()
        except OSError as error:
            raise unwritable(self.path, error) from error
        raise UnwritableTape(
            f"the tape {self.path} cannot be written: its name leads to one file after another",
            "let the program that replaces it finish, then try again",
        )

    def _locked(self) -> int:
        """The file open for writing and locked; made if it is not there."""
        with self._mutex:
            self._require_open()
            if self._writer is None:
                make_folder(os.path.dirname(self._file))
                flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
                self._writer = Descriptor(os.open(self._file, flags, 0o644))
                sync_folder(os.path.dirname(os.path.realpath(self._file)))
            fd = self._writer.number
        fcntl.flock(fd, fcntl.LOCK_EX)
        return fd

    def _lines_under_lock(self, fd: int) -> LineFile | None:
        """The lines of the locked file to its end; None where the name leads to another one."""
        with self._mutex:
            lines = self._current()
            locked = identity(os.fstat(fd))
            return lines if lines is not None and lines.identity == locked else None

    def _append(self, fd: int, lines: LineFile, batch: Sequence[_Item]) -> int:
        self._end_last_line(fd, lines)
        written, ends = self._new_lines(lines, batch)
        data = b"".join(line for _, _, line in written)
        start = lines.end
        done, failure = _write_lines(fd, data, start)
        durable = [end for end in ends if end <= done]
        if failure is not None and not durable:
            raise failure
        if os.lseek(fd, 0, os.SEEK_CUR) == start + len(data):
            # Before it is durable: whoever looks meanwhile finds the lines, here or in the file.
            with self._mutex:
                lines.appended(written, start)
        try:
            sync_file(fd)
        except OSError:
            # What the disk holds of it is unknown. Taken away, it can be written afresh.
            _cut(fd, start + done, start)
            raise
        return len(durable)

    def _new_lines(self, lines: LineFile, batch: Sequence[_Item]) -> tuple[list[_Line], list[int]]:
        """What is to be written, and where in it each exchange is whole with all it needs."""
        written: list[_Line] = []
        ends: list[int] = []
        size, known = 0, set[str]()
        for item in batch:
            for name, data in item.bodies.items():
                with self._mutex:
                    is_there = name in known or lines.find(bytes.fromhex(name)) is not None
                if not is_there:
                    known.add(name)
                    written.append((bytes.fromhex(name), False, _body_line(name, data)))
                    size += len(written[-1][2])
            written.append(item.line)
            size += len(item.line[2])
            ends.append(size)
        return written, ends

    def _end_last_line(self, fd: int, lines: LineFile) -> None:
        """Let the file end with a line end, so that what comes next is a line of its own."""
        size = os.fstat(fd).st_size
        if size == lines.end:
            return
        if lines.torn:
            self._set_aside(fd, size, lines.end)
        else:  # a last row that an editor left without its end
            os.write(fd, b"\n")
        with self._mutex:
            lines.follow()

    def _set_aside(self, fd: int, size: int, end: int) -> None:
        """Move a torn last line out of the way, into the local folder."""
        torn = os.pread(fd, size - end, end)
        aside = make_local(self.local) / f"{self.name}.torn"
        with aside.open("ab") as file:
            file.write(torn + b"\n")
            file.flush()
            sync_file(file.fileno())
        os.ftruncate(fd, end)
        log.warning("%s: a torn last line was set aside in %s", self.path, aside)

    # --- ending, and going through a fork

    def _close_writer(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def close(self) -> None:
        """Let go of the file, and keep the index for the next time."""
        self._let_go(for_good=True)

    def rest(self) -> None:
        """As `close`; it is opened anew when it is asked again."""
        self._let_go(for_good=False)

    def _let_go(self, *, for_good: bool) -> None:
        with self._commits.at_rest(), self._mutex:
            if self._lines is not None and self._lines.has_news:
                self._lines.save_index()
            self._close_writer()
            self._lines = None
            self._closed = self._closed or for_good

    def before_fork(self) -> None:
        """Let nobody change what is known of the file."""
        self._mutex.acquire()

    def after_fork(self) -> None:
        """Go on."""
        self._mutex.release()

    def in_child(self) -> None:
        """A file lock would be shared with the parent: the child opens the file for itself."""
        self._close_writer()
        self._begin()


def _body_line(name: str, data: bytes) -> bytes:
    row = {
        "hash": name,
        "v": SCHEMA_VERSION,
        "canonicalizer": BODY,
        "request": None,
        "response": bytes_form(data),
    }
    return line_of(write_row(row, of_bytes=True))


def _write_lines(fd: int, data: bytes, start: int) -> tuple[int, OSError | None]:
    """Write lines at the end of a file; gives the size of what is there, in whole lines.

    What ends in the middle of a line is taken away again, whole lines never (rule 1): somebody
    may have read them.
    """
    view = memoryview(data)
    done = 0
    try:
        while done < len(data):
            done += os.write(fd, view[done:])
    except OSError as error:
        whole = data.rfind(b"\n", 0, done) + 1
        _cut(fd, start + done, start + whole)
        return whole, error
    return done, None


def _cut(fd: int, size: int, to: int) -> None:
    """Take away what was just written, unless somebody who knows no locks wrote behind it."""
    if os.fstat(fd).st_size == size:
        os.ftruncate(fd, to)
