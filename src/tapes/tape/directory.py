"""A tape as a directory of answers: `<key>.json` holds the response as plain JSON.

Rule 1: an answer is there whole or not at all: a temporary file in the same folder, fsync,
        rename, fsync of the folder. Temporary files are ignored, and cleaned when they are old.
Rule 2: what an answer does not say about itself lies in hidden folders, so that the directory
        holds one visible file per answer: `.requests/<key>.json`, `.blobs/<hash>`, and
        `.incomplete/<key>.json` for streams that did not end. They are written before the answer.
Rule 3: an answer without its request is one of the directory document's own.

Knows nothing of modes or keys beyond their form.
"""

import contextlib
import os
import re
import secrets
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from tapes.errors import ClosedTape
from tapes.exchange import Exchange, ReadRow, State, answer_of, damaged, exchange_of
from tapes.jsontext import Json
from tapes.tape.base import (
    blob_hash,
    is_key,
    is_of_bytes,
    row_and_bodies,
    unwritable,
)
from tapes.tape.beside import FOLDER, make_folder, sync_file, sync_folder
from tapes.tape.named import require_folder_or_nothing, unreadable
from tapes.tape.rowtext import read_row, write_file

_ANSWER = re.compile(r"[0-9a-f]{64}\.json")
_REQUESTS, _BLOBS, _INCOMPLETE = ".requests", ".blobs", ".incomplete"
# Ours, and those of the document's own `save`.
_TEMPORARY = re.compile(r"\.[0-9a-f]{16}\.tmp|tmp[a-z0-9_]{8}\.tmp")
_OLD_S = 600.0
# No file, as opposed to one that says null.
_ABSENT: Json = object()


class DirectoryTape:
    """A directory as a tape. An absent directory is an empty tape."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path).rstrip(os.sep) or os.sep
        self._folder = os.path.abspath(self.path)  # whatever the working folder is later
        self.local = Path(os.path.realpath(self._folder)) / FOLDER
        self.name = "."
        self._closed = False
        require_folder_or_nothing(self._folder, self.path)
        self._clean()

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedTape(f"the tape {self.path} is closed", "open it again to use it")

    # --- finding

    def find(self, key: str) -> Exchange | None:
        """The exchange that answers under this key, or the evidence that lies there."""
        self._require_open()
        if not is_key(key):
            return None
        answer = self._read(f"{key}.json")
        if answer is not _ABSENT:
            return self._with_answer(key, answer, exchange_of)
        return self._evidence(key)

    def answer(self, key: str) -> Exchange | None:
        """As `find`, without the request."""
        self._require_open()
        answer = self._read(f"{key}.json") if is_key(key) else _ABSENT
        return None if answer is _ABSENT else self._with_answer(key, answer, answer_of)

    def _evidence(self, key: str) -> Exchange | None:
        name = f"{_INCOMPLETE}/{key}.json"
        row = self._read(name)
        return None if row is _ABSENT else self._of_row(row, name)

    def _with_answer(self, key: str, answer: Json, read: ReadRow) -> Exchange:
        name = f"{_REQUESTS}/{key}.json"
        about = self._read(name)
        if about is _ABSENT:
            return Exchange(key, "directory/1", None, answer, version=0)
        if not isinstance(about, dict):
            raise damaged(self.path, name, "not an object")
        row = {"hash": key, **about, "response": answer}
        return read(row, self.path, f"{key}.json", self._blob)

    def _of_row(self, row: Json, name: str) -> Exchange:
        return exchange_of(row, self.path, name, self._blob)

    def _read(self, name: str) -> Json:
        try:
            with open(f"{self._folder}/{name}", "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return _ABSENT
        except OSError as error:
            raise unreadable(self.path, error, name) from error
        return read_row(data, self.path, name)

    def _blob(self, blob: str) -> bytes:
        name = f"{_BLOBS}/{blob}"
        try:
            with open(f"{self._folder}/{name}", "rb") as file:
                data = file.read()
        except OSError as error:
            raise damaged(self.path, name, f"a body is missing ({error.strerror})") from error
        if blob_hash(data) != blob:
            raise damaged(self.path, name, "the body is not the one that was kept")
        return data

    def exchanges(self) -> Iterator[Exchange]:
        """All exchanges in the order of recording. Raises DamagedTape at the first broken file."""
        self._require_open()
        return self._exchanges()

    def _exchanges(self) -> Iterator[Exchange]:
        places = [(self._recorded_at(_REQUESTS, key), key, False) for key in self.keys()]
        for key in self._keys_in(_INCOMPLETE):
            places.append((self._recorded_at(_INCOMPLETE, key), key, True))
        for _, key, is_evidence in sorted(places):
            exchange = self._evidence(key) if is_evidence else self.find(key)
            if exchange is not None:  # removed meanwhile
                yield exchange

    def _recorded_at(self, folder: str, key: str) -> str:
        """When an exchange was recorded; what does not say comes first."""
        about = self._read(f"{folder}/{key}.json")
        return str(about.get("recorded_at") or "") if isinstance(about, dict) else ""

    def keys(self) -> set[str]:
        """The keys that have an answer."""
        self._require_open()
        return set(self._keys_in(""))

    def _keys_in(self, sub: str) -> list[str]:
        try:
            names = os.listdir(f"{self._folder}/{sub}")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unreadable(self.path, error, sub) from error
        return [name[:64] for name in names if _ANSWER.fullmatch(name)]

    # --- appending

    def append(self, exchange: Exchange) -> None:
        """Keep an exchange; on return its answer is durable.

        Raises UnwritableTape, NotAnAnswer.
        """
        self._require_open()
        row, bodies = row_and_bodies(exchange)
        files = self._files_of(exchange, row)
        try:
            make_folder(self._folder)
            fresh = [
                (f"{_BLOBS}/{name}", data)
                for name, data in bodies.items()
                if not os.path.exists(f"{self._folder}/{_BLOBS}/{name}")
            ]
            self._put([*fresh, *files])
        except OSError as error:
            raise unwritable(self.path, error) from error

    @staticmethod
    def _files_of(exchange: Exchange, row: dict[str, Json]) -> list[tuple[str, bytes]]:
        """The files of an exchange in the order in which they come to be: the answer last."""
        name = f"{exchange.key}.json"
        of_bytes = is_of_bytes(exchange)
        if exchange.state is not State.COMPLETE:
            return [(f"{_INCOMPLETE}/{name}", write_file(row, of_bytes=of_bytes))]
        answer = write_file(row.pop("response"), of_bytes=of_bytes)
        del row["hash"]
        # The document's own answers have no request to keep.
        if exchange.request is None and not exchange.version:
            return [(name, answer)]
        return [(f"{_REQUESTS}/{name}", write_file(row, of_bytes=of_bytes)), (name, answer)]

    def _put(self, files: Sequence[tuple[str, bytes]]) -> None:
        """Let files be there whole or not at all (rule 1): all are written before one is named."""
        written: list[tuple[str, str]] = []
        try:
            for name, data in files:
                path = f"{self._folder}/{name}"
                temporary = f"{os.path.dirname(path)}/.{secrets.token_hex(8)}.tmp"
                written.append((temporary, path))
                make_folder(os.path.dirname(path))
                _write(temporary, data)
            for temporary, path in written:
                os.replace(temporary, path)
                sync_folder(os.path.dirname(path))
        except BaseException:
            for temporary, _ in written:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)
            raise

    def _clean(self) -> None:
        """Remove what writers that were killed left behind."""
        for sub in ("", _REQUESTS, _BLOBS, _INCOMPLETE):
            folder = f"{self._folder}/{sub}"
            with contextlib.suppress(OSError):  # nothing there, or not ours to clean
                for name in filter(_TEMPORARY.fullmatch, os.listdir(folder)):
                    if time.time() - os.stat(f"{folder}/{name}").st_mtime > _OLD_S:
                        os.unlink(f"{folder}/{name}")

    def close(self) -> None:
        """Nothing is held open."""
        self._closed = True


def _write(path: str, data: bytes) -> None:
    """A new file, durably."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    with open(fd, "wb", buffering=0) as file:
        view = memoryview(data)
        while view:
            view = view[file.write(view) :]
        sync_file(fd)
