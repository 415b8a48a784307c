"""The three tapes: opening, finding and appending, beside what the machine can do at best."""

import hashlib
import json
import os
import sqlite3
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path

from benchmarks import Measurement, best_of, in_fresh_process, seconds_of, side_by_side
from tapes.exchange import Exchange, row_of
from tapes.tape.base import Tape
from tapes.tape.directory import DirectoryTape
from tapes.tape.jsonl import JsonlTape
from tapes.tape.rowtext import write_row
from tapes.tape.sqlite import SqliteTape

_TEXT = "What a model is asked, and what it says, is text of some length. " * 27


def measurements(quick: bool) -> Iterator[Measurement]:
    """All of them; about half a minute, or a few seconds."""
    with tempfile.TemporaryDirectory(prefix="tapes-bench-") as name:
        folder = Path(name)
        yield from _opening(folder, 20_000 if quick else 200_000)
        yield from _finding(folder, 50_000 if quick else 1_000_000)
        yield from _appending(folder, 100 if quick else 600)
        yield from _appending_together(folder, 50 if quick else 150)


def exchange(n: int, text: str = _TEXT) -> Exchange:
    """The n-th exchange."""
    key = hashlib.sha256(b"%d" % n).hexdigest()
    return Exchange(key, "tape/1", {"n": n, "prompt": text}, {"text": text})


def write_jsonl(path: Path, count: int, text: str = _TEXT) -> None:
    """A tape of so many exchanges, as fast as a file can be written."""
    line = write_row(row_of(exchange(0, text))).decode()
    begin, middle, end = line.partition(exchange(0).key)[0], *line.split(exchange(0).key)[1].split(
        '"n":0', 1
    )  # fmt: skip
    with path.open("w") as file:
        for n in range(count):
            key = hashlib.sha256(b"%d" % n).hexdigest()
            file.write(f'{begin}{key}{middle}"n":{n}{end}\n')
    # As if it had been there for a while: a file that just changed gets no index.
    os.utime(path, (path.stat().st_mtime - 100,) * 2)


# --- opening ----------------------------------------------------------------------------------

_OPEN = """
import json, sys, time
from tapes.tape.jsonl import JsonlTape

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6

before, start = resident(), time.perf_counter()
tape = JsonlTape(sys.argv[1])
opened = time.perf_counter() - start
assert tape.find(sys.argv[2]) is not None
answered = time.perf_counter() - start
grown = resident() - before
count = sum(1 for _ in tape.exchanges()) if sys.argv[3] == "read" else 0
print(json.dumps({"opened": opened, "answered": answered, "MB": grown,
                  "count": count, "MB read": resident() - before}))
"""


def _opening(folder: Path, count: int) -> Iterator[Measurement]:
    path = folder / "large.jsonl"
    write_jsonl(path, count)
    index = folder / ".tapes" / "large.jsonl.index"
    key, what = (
        exchange(count - 1).key,
        f"JSONL, {count:,} exchanges, {path.stat().st_size / 1e6:.0f} MB",
    )
    by_lines = best_of(3, lambda: _offsets_by_lines(path))
    by_blocks = best_of(3, lambda: _offsets_by_blocks(path))
    first = []
    for _ in range(3):
        index.unlink(missing_ok=True)
        first.append(in_fresh_process(_OPEN, str(path), key, ""))
    opened = min(run["opened"] for run in first)
    yield Measurement(
        f"{what}: open the first time", opened, by_lines, "offsets: for line in file", "s", 1.0
    )
    yield Measurement(
        f"{what}: open the first time", opened, by_blocks, "offsets: find in blocks", "s", 3.0
    )
    grown = max(run["MB"] for run in first)
    yield Measurement(f"{what}: memory when open", grown, 80.0, "limit", "MB", 1.0)
    again = [in_fresh_process(_OPEN, str(path), key, "read" * (n == 0)) for n in range(3)]
    answered = min(run["answered"] for run in again)
    yield Measurement(f"{what}: open again and find", answered, 0.020, "limit", "s", 1.0)
    yield Measurement(
        f"{what}: memory to go through all", again[0]["MB read"], 80.0, "limit", "MB", 1.0
    )
    assert again[0]["count"] == count
    path.unlink()


def _offsets_by_lines(path: Path) -> list[int]:
    offsets, at = [], 0
    with path.open("rb") as file:
        for line in file:
            offsets.append(at)
            at += len(line)
    return offsets


def _offsets_by_blocks(path: Path) -> list[int]:
    offsets = [0]
    buffer, base = bytearray(1024 * 1024), 0
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(buffer):
            at = buffer.find(b"\n", 0, count)
            while at >= 0:
                offsets.append(base + at + 1)
                at = buffer.find(b"\n", at + 1, count)
            base += count
    return offsets


# --- finding ----------------------------------------------------------------------------------


def _finding(folder: Path, many: int) -> Iterator[Measurement]:
    text = "x" * 200
    row = write_row(row_of(exchange(7, text)))
    parse = best_of(5, lambda: [json.loads(row) for _ in range(2000)]) / 2000
    for home, make in (("JSONL", _jsonl_of), ("SQLite", _sqlite_of), ("directory", _directory_of)):
        large_count = min(many, 5_000) if home == "directory" else many
        small, large = (make(folder, count, text) for count in (1_000, large_count))
        seconds = [_find_seconds(tape, n) for tape, n in ((small, 1_000), (large, large_count))]
        yield Measurement(f"{home}: find one of 1,000", seconds[0], 0.002, "limit", "s", 0.1)
        yield Measurement(
            f"{home}: find one of {large_count:,}", seconds[1], seconds[0], "one of 1,000", "s", 1.5
        )
        missing = [hashlib.sha256(b"no %d" % n).hexdigest() for n in range(2000)]
        large.find(missing[0])
        missed = best_of(3, partial(_find_all, large, missing)) / 2000
        yield Measurement(
            f"{home}: find nothing in {large_count:,}", missed, parse, "parse one row", "s"
        )
        small.close()
        large.close()


def _find_seconds(tape: Tape, count: int) -> float:
    keys = [exchange(n % count).key for n in range(7, 7 + 2000 * 31, 31)]
    _find_all(tape, keys)
    return best_of(3, partial(_find_all, tape, keys)) / len(keys)


def _find_all(tape: Tape, keys: list[str]) -> None:
    for key in keys:
        tape.find(key)


def _jsonl_of(folder: Path, count: int, text: str) -> Tape:
    path = folder / f"{count}.jsonl"
    write_jsonl(path, count, text)
    return JsonlTape(path)


def _sqlite_of(folder: Path, count: int, text: str) -> Tape:
    path = folder / f"{count}.db"
    SqliteTape(path).append(exchange(0, text))
    with closing(sqlite3.connect(path)) as database:
        database.executemany(
            "INSERT INTO exchanges (key, state, canonicalizer, row) VALUES (?, 'complete', ?, ?)",
            (
                (each.key, each.canonicalizer, write_row(row_of(each)).decode())
                for each in (exchange(n, text) for n in range(1, count))
            ),
        )
        database.commit()
    return SqliteTape(path)


def _directory_of(folder: Path, count: int, text: str) -> Tape:
    path = folder / str(count)
    tape = DirectoryTape(path)
    tape.append(exchange(0, text))
    for n in range(1, count):
        (path / f"{exchange(n).key}.json").write_bytes(b'{"text": "x"}')
        (path / ".requests" / f"{exchange(n).key}.json").write_bytes(
            b'{"v": 1, "canonicalizer": "tape/1", "request": {}}'
        )
    return tape


# --- appending --------------------------------------------------------------------------------

_HOMES: dict[str, tuple[Callable[[str], Tape], str]] = {
    "JSONL": (JsonlTape, ".jsonl"),
    "SQLite": (SqliteTape, ".db"),
    "directory": (DirectoryTape, ""),
}


def _appending(folder: Path, count: int) -> Iterator[Measurement]:
    exchanges = [exchange(n) for n in range(count)]
    rows = [write_row(row_of(each)) + b"\n" for each in exchanges]
    for home, (make, suffix) in _HOMES.items():
        tape = make(str(folder / f"append{suffix}"))
        tape.append(exchange(-1))
        by_hand, what = _BY_HAND[home](folder)
        ours, limit = side_by_side(
            [partial(tape.append, each) for each in exchanges],
            [partial(by_hand, row) for row in rows],
        )
        tape.close()
        yield Measurement(f"{home}: append durably, one writer", ours, limit, what, "s", 1.5)


def _by_hand_jsonl(folder: Path) -> tuple[Callable[[bytes], None], str]:
    fd = os.open(folder / "by-hand.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(row: bytes) -> None:
        os.write(fd, row)
        os.fdatasync(fd)

    return write, "write + fdatasync"


def _by_hand_sqlite(folder: Path) -> tuple[Callable[[bytes], None], str]:
    database = sqlite3.connect(folder / "by-hand.db", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE t (number INTEGER PRIMARY KEY, key TEXT, row TEXT)")
    database.execute("CREATE INDEX i ON t (key)")

    def write(row: bytes) -> None:
        text = row.decode()
        database.execute("INSERT INTO t (key, row) VALUES (?, ?)", (text[9:73], text))

    return write, "one synced INSERT"


def _by_hand_directory(folder: Path) -> tuple[Callable[[bytes], None], str]:
    folders = [folder / "by-hand", folder / "by-hand" / ".requests"]
    for each in folders:
        each.mkdir()

    def write(row: bytes) -> None:
        half = len(row) // 2
        for each, data in zip(reversed(folders), (row[:half], row[half:]), strict=True):
            temporary = f"{each}/tmp"
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            os.write(fd, data)
            os.fdatasync(fd)
            os.close(fd)
            os.rename(temporary, f"{each}/{row[9:73].decode()}.json")
            above = os.open(each, os.O_RDONLY)
            os.fsync(above)
            os.close(above)

    return write, "two files, synced with names"


_BY_HAND = {"JSONL": _by_hand_jsonl, "SQLite": _by_hand_sqlite, "directory": _by_hand_directory}


def _appending_together(folder: Path, count: int) -> Iterator[Measurement]:
    rows = [write_row(row_of(exchange(n))) + b"\n" for n in range(count)]
    for home, (make, suffix) in _HOMES.items():
        (folder / home).mkdir()
        by_hand, what = _BY_HAND[home](folder / home)
        one = seconds_of(partial(_write_all, by_hand, rows)) / count
        tape = make(str(folder / f"together{suffix}"))
        tape.append(exchange(-1))
        ready = threading.Barrier(16)
        with ThreadPoolExecutor(16) as pool:
            seconds = seconds_of(partial(_in_all, pool, partial(_append_some, tape, ready, count)))
        tape.close()
        # Files that are named one by one share no sync but what the file system shares.
        goal = 1.0 if home == "directory" else 0.5
        each = seconds / (16 * count)
        yield Measurement(f"{home}: append durably, 16 threads", each, one, what, "s", goal)


def _write_all(write: Callable[[bytes], None], rows: list[bytes]) -> None:
    for row in rows:
        write(row)


def _in_all(pool: ThreadPoolExecutor, work: Callable[[int], None]) -> None:
    list(pool.map(work, range(16)))


def _append_some(tape: Tape, ready: threading.Barrier, count: int, worker: int) -> None:
    ready.wait()
    for n in range(count):
        tape.append(exchange(worker * count + n))
