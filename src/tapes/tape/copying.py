"""Putting tapes together and turning one kind into another, without changing a key or an answer.

Rule 1: two tapes that answer one request differently are a conflict, found before anything is
        written. What counts is what a client reads: status, headers and body, not the times.
Rule 2: samples, the evidence of cut streams and bodies come along. A row that nobody reads any
        more comes along where its key is new, and not where the key is answered already.
Rule 3: doing it again changes nothing.
Rule 4: a converted tape appears whole or not at all. A merge that was killed left whole rows
        only, and doing it again completes it.

Knows nothing of what requests mean.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tapes.errors import BadSetting, MergeConflict, as_typed
from tapes.exchange import Exchange, Response, State, row_of
from tapes.jsontext import canonical
from tapes.tape.base import BLOB_SIZE, blob_hash
from tapes.tape.beside import FOLDER, make_local, sync_folder
from tapes.tape.kinds import kind_of, open_tape
from tapes.tape.raw import Progress, RawRow, Rows, exchanges, open_rows, silent
from tapes.tape.rewriting import NewRow, editing, new_row, unwritable

OURS, THEIRS = "ours", "theirs"


@dataclass(frozen=True, slots=True)
class Conflict:
    """A request that two tapes answer differently."""

    key: str
    ours: str
    theirs: str


@dataclass(frozen=True, slots=True)
class Copied:
    """What came from one tape to another.

    `known` counts keys that were answered in the same way already, `kept_out` those whose other
    answer was not wanted, `left_out` rows that the other kind of tape has no place for.
    """

    source: str
    target: str
    rows: int = 0
    known: int = 0
    kept_out: int = 0
    left_out: int = 0


# --- merge ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Answer:
    """What answers under a key: a digest of what a client reads, and whose it is."""

    digest: bytes
    tape: int


def merge(
    into: str | os.PathLike[str],
    sources: Sequence[str | os.PathLike[str]],
    prefer: str | None = None,
    progress: Progress = silent,
) -> list[Copied]:
    """Put everything of other tapes on one, which is made if it is not there.

    `prefer` decides conflicts: "ours" keeps what comes first, "theirs" takes what comes later.
    Raises MergeConflict naming both tapes, and whatever reading or writing raises.
    """
    if prefer not in (None, OURS, THEIRS):
        raise BadSetting(f"prefer={prefer!r} is neither {OURS!r} nor {THEIRS!r}")
    target = os.fspath(into)
    names = [os.fspath(source) for source in sources]
    is_new = not os.path.exists(target)
    if is_new:
        # A conflict among the sources is found before the tape is made.
        _Merge(target, names, prefer, progress).plan(None)
        _make_empty(target)
    with editing(target) as editor:
        work = _Merge(target, names, prefer, progress)
        work.plan(editor.rows)
        editor.append(work.chosen_rows())
        return work.copied


def _make_empty(path: str) -> None:
    tape = open_tape(path)
    tape.close()
    try:
        if kind_of(path) == "directory":
            os.makedirs(path, exist_ok=True)
        elif not os.path.exists(path):
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
            sync_folder(os.path.dirname(os.path.abspath(path)))
    except OSError as error:
        raise unwritable(path, error) from error


class _Merge:
    def __init__(
        self, target: str, sources: list[str], prefer: str | None, progress: Progress
    ) -> None:
        self._names = [target, *sources]
        self._prefer = prefer
        self._progress = progress
        self._looks = 0
        self._answers: dict[str, _Answer] = {}
        self._evidence: dict[str, int] = {}
        self.copied: list[Copied] = []

    def plan(self, ours: Rows | None) -> None:
        """Decide for every key whose answer it gets. Raises MergeConflict."""
        conflicts = list[Conflict]()
        if ours is not None:
            for key, digest in self._read(ours).items():
                self._answers[key] = _Answer(digest, 0)
        for number, name in enumerate(self._names[1:], 1):
            with open_rows(name) as rows:
                found = self._read(rows, number)
            known = kept_out = 0
            for key, digest in found.items():
                before = self._answers.get(key)
                if before is not None and before.digest == digest:
                    known += 1
                    continue
                if before is not None and self._prefer is None:
                    conflicts.append(Conflict(key, self._names[before.tape], name))
                if before is not None and self._prefer == OURS:
                    kept_out += 1
                    continue
                self._answers[key] = _Answer(digest, number)
            self.copied.append(Copied(name, self._names[0], known=known, kept_out=kept_out))
        if conflicts:
            raise _conflict(conflicts)

    def _looked_through(self, rows: Rows) -> Iterator[tuple[RawRow, Exchange]]:
        """Every row of a tape, with word of how far all of the work has come."""
        looks = 2 * len(self._names) - 1  # all are read, and all but the first once more
        for raw, exchange in exchanges(rows):
            self._progress(min((self._looks + raw.done) / looks, 1.0))
            yield raw, exchange
        self._looks += 1

    def _read(self, rows: Rows, number: int = 0) -> dict[str, bytes]:
        """The digest of what answers under each key."""
        found: dict[str, bytes] = {}
        for _, exchange in self._looked_through(rows):
            if exchange.state is State.COMPLETE:
                found[exchange.key] = answer_digest(exchange)
            else:
                self._evidence.setdefault(exchange.key, number)
        return found

    def chosen_rows(self) -> Iterator[NewRow]:
        """What is to be appended, tape after tape."""
        for number, name in enumerate(self._names[1:], 1):
            count = 0
            with open_rows(name) as rows:
                for raw, exchange in self._looked_through(rows):
                    if self._is_chosen(exchange, number):
                        count += 1
                        yield portable(raw, exchange, rows)
            before = self.copied[number - 1]
            self.copied[number - 1] = Copied(
                before.source, before.target, count, before.known, before.kept_out
            )

    def _is_chosen(self, exchange: Exchange, number: int) -> bool:
        if exchange.state is not State.COMPLETE:
            return self._evidence.get(exchange.key) == number
        answer = self._answers.get(exchange.key)
        return answer is not None and answer.tape == number


def _conflict(conflicts: list[Conflict]) -> MergeConflict:
    first = conflicts[0]
    more = f", and {len(conflicts) - 1} more" if len(conflicts) > 1 else ""
    return MergeConflict(
        f"merge conflict: {first.key[:12]} is answered differently by {first.ours} and"
        f" {first.theirs}{more}; nothing was written",
        f"to see how they differ: tapes tape diff {as_typed(first.ours)} {as_typed(first.theirs)}\n"
        "to decide for one side: add --prefer ours (what comes first) or --prefer theirs",
    )


def answer_digest(exchange: Exchange) -> bytes:
    """A digest of what a client reads of an answer."""
    response = exchange.response
    if not isinstance(response, Response):
        return hashlib.sha256(canonical(response).encode("utf-8", "surrogatepass")).digest()
    head = canonical([response.status, response.reason, [list(h) for h in response.headers]])
    return hashlib.sha256(head.encode("utf-8", "surrogatepass") + b"\n" + response.body).digest()


def portable(raw: RawRow, exchange: Exchange, rows: Rows) -> NewRow:
    """A row for another tape: as it stands where it stood in one text, else made anew."""
    if rows.kind != "directory":
        return new_row(raw.row, rows, raw.text)
    return row_with_bodies(exchange)


def row_with_bodies(exchange: Exchange) -> NewRow:
    """A new row of an exchange, its large bodies kept beside it."""
    bodies: dict[str, bytes] = {}

    def put_blob(data: bytes) -> str | None:
        if len(data) < BLOB_SIZE:
            return None
        name = blob_hash(data)
        bodies[name] = data
        return name

    return NewRow(row_of(exchange, put_blob), bodies)


# --- convert ----------------------------------------------------------------------------------


def convert(
    source: str | os.PathLike[str], target: str | os.PathLike[str], progress: Progress = silent
) -> Copied:
    """Write a tape as another one, of the kind that its name says.

    Raises BadSetting where the target is there already and holds something.
    """
    old, new = os.fspath(source), os.fspath(target)
    kind = kind_of(new)
    _require_absent(old, new)
    unfinished = _unfinished(new, kind)
    with open_rows(old) as rows:
        try:
            _make_empty(unfinished)
            counts = _Counts()
            with editing(unfinished) as editor:
                editor.append(counts.of(rows, progress))
            _put_in_place(unfinished, new)
        except OSError as error:
            raise unwritable(new, error) from error
        finally:
            _remove(Path(unfinished))
            _leave_no_folder(Path(unfinished).parent)
    left_out = counts.rows - counts.keys if kind == "directory" else 0
    return Copied(old, new, counts.rows - left_out, left_out=left_out)


class _Counts:
    """Counts rows and keys on their way."""

    def __init__(self) -> None:
        self.rows = 0
        self._keys: set[bytes] = set()

    @property
    def keys(self) -> int:
        return len(self._keys)

    def of(self, rows: Rows, progress: Progress) -> Iterator[NewRow]:
        for raw, exchange in exchanges(rows):
            progress(raw.done)
            self.rows += 1
            self._keys.add(bytes.fromhex(exchange.key))
            yield portable(raw, exchange, rows)


def _require_absent(old: str, new: str) -> None:
    path = Path(new)
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    raise BadSetting(
        f"{new} is there already",
        "name another target; or, to put one tape on the other:"
        f" tapes tape merge {as_typed(new)} {as_typed(old)}",
    )


def _unfinished(new: str, kind: str) -> str:
    """Where a tape is made until it is whole: on the same disk, out of the sight of git."""
    path = Path(os.path.abspath(new))
    suffix = {"jsonl": ".jsonl", "sqlite": ".db", "directory": ""}[kind]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        folder = make_local(path.parent / FOLDER) / "unfinished"
        folder.mkdir(exist_ok=True)
        (folder / ".gitignore").write_text("*\n")
        _remove_abandoned(folder)
    except OSError as error:
        raise unwritable(new, error) from error
    place = folder / f"{path.name}.{os.getpid()}{suffix}"
    _remove(place)
    return str(place) + ("/" if kind == "directory" else "")


def _remove_abandoned(folder: Path) -> None:
    """What was left by processes that were killed."""
    for path in folder.iterdir():
        pid = re.search(r"\.(\d+)(?:\.\w+)?$", path.name)
        try:
            if pid is not None:
                os.kill(int(pid[1]), 0)
        except ProcessLookupError:
            _remove(path)
        except OSError:
            continue  # somebody else's process


def _put_in_place(unfinished: str, new: str) -> None:
    shutil.rmtree(Path(unfinished) / FOLDER, ignore_errors=True)
    os.rename(unfinished.rstrip("/"), new.rstrip("/"))
    sync_folder(os.path.dirname(os.path.abspath(new.rstrip("/"))))


def _leave_no_folder(folder: Path) -> None:
    """Take the folder of unfinished tapes away, unless somebody else has one there."""
    if {path.name for path in folder.iterdir()} <= {".gitignore"}:
        shutil.rmtree(folder, ignore_errors=True)


def _remove(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place, ignore_errors=True)
        return
    for name in ("", "-journal"):
        Path(f"{place}{name}").unlink(missing_ok=True)
