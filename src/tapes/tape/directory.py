"""A tape as a directory of answers: `<key>.json` holds the response as plain JSON.

Rule 1: an answer is there whole or not at all: a temporary file in the same folder, fsync,
        rename, fsync of the folder. Temporary files are ignored, and cleaned when they are old.
Rule 2: what an answer does not say about itself lies in hidden folders, so that the directory
        holds one visible file per answer: `.requests/<key>.json`, `.blobs/<hash>`, and
        `.incomplete/<key>.json` for streams that did not end. They are written before the answer.
Rule 3: an answer without its request is one of the directory document's own.

Knows nothing of modes or keys beyond their form.
"""

import errno
import json
import os
import re
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from tapes.errors import ClosedTape, DamagedTape, UnreadableTape, UnwritableTape
from tapes.exchange import Exchange, State, damaged, exchange_of, row_of
from tapes.jsontext import Json
from tapes.tape.base import BLOB_SIZE, blob_hash
from tapes.tape.beside import FOLDER, sync_folder

_ANSWER = re.compile(r"^[0-9a-f]{64}\.json$")
_HIDDEN = (".requests", ".blobs", ".incomplete")
_OLD_S = 600.0
# No file, as opposed to one that says null.
_ABSENT: Json = object()


class DirectoryTape:
    """A directory as a tape. An absent directory is an empty tape."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path).rstrip(os.sep) or os.sep
        self._folder = Path(self.path)
        self.local = self._folder / FOLDER
        self.name = "."
        self._closed = False
        if self._folder.exists() and not self._folder.is_dir():
            raise UnreadableTape(
                f"{self.path} is a file, not a directory",
                "name a directory, or end the name with .jsonl",
            )
        self._clean()

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedTape(f"the tape {self.path} is closed", "open it again to use it")

    # --- finding

    def find(self, key: str) -> Exchange | None:
        """The exchange that answers under this key, or the evidence that lies there."""
        self._require_open()
        answer = self._read(f"{key}.json")
        if answer is not _ABSENT:
            return self._exchange(key, answer)
        evidence = self._read(f".incomplete/{key}.json")
        return None if evidence is _ABSENT else self._of_row(evidence, f".incomplete/{key}.json")

    def _exchange(self, key: str, answer: Json) -> Exchange:
        about = self._read(f".requests/{key}.json")
        if about is _ABSENT:
            return Exchange(key, "directory/1", None, answer, version=0)
        if not isinstance(about, dict):
            raise self._damaged(f".requests/{key}.json", "not an object")
        return self._of_row({"hash": key, **about, "response": answer}, f"{key}.json")

    def _of_row(self, row: Json, name: str) -> Exchange:
        return exchange_of(row, self.path, name, self._blob)

    def _read(self, name: str) -> Json:
        try:
            data = (self._folder / name).read_bytes()
        except FileNotFoundError:
            return _ABSENT
        except OSError as error:
            raise UnreadableTape(
                f"the tape {self.path} cannot be read: {name}: {error.strerror}",
                f"check it with: ls -l {self._folder / name}",
            ) from error
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise self._damaged(name, f"not JSON ({error})") from error

    def _blob(self, blob: str) -> bytes:
        try:
            return (self._folder / ".blobs" / blob).read_bytes()
        except OSError as error:
            raise self._damaged(
                f".blobs/{blob}", f"a body is missing ({error.strerror})"
            ) from error

    def _damaged(self, name: str, what: str) -> DamagedTape:
        return damaged(self.path, name, what)

    def exchanges(self) -> Iterator[Exchange]:
        """All exchanges in the order of recording. Raises DamagedTape at the first broken file."""
        self._require_open()
        found = [self.find(key) for key in self._keys_in(self._folder)]
        found += [self.find(key) for key in self._keys_in(self._folder / ".incomplete")]
        known = [exchange for exchange in found if exchange is not None]
        return iter(sorted(known, key=self._recorded))

    def _recorded(self, exchange: Exchange) -> tuple[str, str]:
        return exchange.recorded_at or "", exchange.key

    def keys(self) -> set[str]:
        """The keys that have an answer."""
        self._require_open()
        return set(self._keys_in(self._folder))

    @staticmethod
    def _keys_in(folder: Path) -> list[str]:
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise UnreadableTape(
                f"the tape {folder} cannot be read: {error.strerror}",
                f"check it with: ls -ld {folder}",
            ) from error
        return sorted(name.removesuffix(".json") for name in names if _ANSWER.match(name))

    # --- appending

    def append(self, exchange: Exchange) -> None:
        """Keep an exchange; on return its answer is durable. Raises UnwritableTape."""
        self._require_open()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            row = row_of(exchange, self._put_blob)
            if exchange.state is not State.COMPLETE:
                self._put(f".incomplete/{exchange.key}.json", _text(row))
                return
            answer = row.pop("response")
            del row["hash"]
            # The document's own answers have no request to keep.
            if exchange.request is not None or exchange.version:
                self._put(f".requests/{exchange.key}.json", _text(row))
            self._put(f"{exchange.key}.json", _text(answer))
        except OSError as error:
            raise UnwritableTape(
                f"the tape {self.path} cannot be written: {error.strerror}",
                "free space on that disk; nothing that was recorded before is lost"
                if error.errno == errno.ENOSPC
                else f"check it with: ls -ld {self.path}",
            ) from error

    def _put_blob(self, data: bytes) -> str | None:
        if len(data) < BLOB_SIZE:
            return None
        name = blob_hash(data)
        if not (self._folder / ".blobs" / name).exists():
            self._put(f".blobs/{name}", data)
        return name

    def _put(self, name: str, data: bytes) -> None:
        """Write a file whole or not at all (rule 1)."""
        path = self._folder / name
        path.parent.mkdir(exist_ok=True)
        temporary = path.parent / f".{os.getpid()}.{secrets.token_hex(4)}.tmp"
        try:
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)

    def _clean(self) -> None:
        """Remove what writers that were killed left behind."""
        for folder in (self._folder, *(self._folder / sub for sub in _HIDDEN)):
            try:
                for name in os.listdir(folder):
                    path = folder / name
                    if name.endswith(".tmp") and time.time() - path.stat().st_mtime > _OLD_S:
                        path.unlink(missing_ok=True)
            except OSError:
                continue  # nothing there, or not ours to clean

    def close(self) -> None:
        """Nothing is held open."""
        self._closed = True


def _text(value: Json) -> bytes:
    try:
        return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate has no UTF-8; its escape has
        return json.dumps(value, indent=2, allow_nan=False).encode() + b"\n"
