"""How long a miss takes to explain itself on a large tape of every home, and what that costs.

Each request of 20 KB shares three quarters with all others. The peer of a miss is the limit; that
of what recording pays is the recording itself.
"""

import json
import os
import random
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks import Measurement, in_fresh_process
from tapes import Cassette
from tapes.canonical import TAPE, key_of
from tapes.exchange import Exchange, row_of
from tapes.explain import find_nearest
from tapes.places import leaves
from tapes.sketches import Sketches
from tapes.sketches import row_of as sketch_row_of
from tapes.tape.base import Tape
from tapes.tape.directory import DirectoryTape
from tapes.tape.jsonl import JsonlTape
from tapes.tape.rowtext import write_row
from tapes.tape.sqlite import SqliteTape

_SYSTEM = "You are a careful assistant, and follow the rules of the house to the letter. " * 190
_WORDS = [f"word{number}" for number in range(20_000)]
_LIMIT_S = 0.2

_MISS = """
import json, resource, sys, time
from benchmarks.explain import asked, opened
from tapes import Cassette

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3

home, path, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
tape = opened(home, path)
cassette = Cassette(tape, canonicalizer="tape/1")
request = asked(number, "one more word")
before, start, cpu = peak(), time.perf_counter(), time.process_time()
verdict = cassette.decide(request)
seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
told = verdict.error.diagnosis
print(json.dumps(
    {"seconds": seconds, "cpu": cpu, "MB": peak() - before, "nearest": told["nearest"]}
))
"""


def measurements(quick: bool) -> Iterator[Measurement]:
    """All of them; minutes, or half a minute."""
    count = 10_000 if quick else 100_000
    for home in ("JSONL", "SQLite", "directory"):
        with tempfile.TemporaryDirectory(prefix="tapes-bench-") as folder:
            yield from _misses(home, Path(folder), count)
    yield _without_sketches(1_000 if quick else 5_000)
    yield _recording(200 if quick else 1_000)


def asked(number: int, more: str = "") -> dict[str, Any]:
    """The request with this number."""
    chosen = random.Random(number).choices(_WORDS, k=550)
    text = f"{' '.join(chosen)} {more}"
    messages = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": text}]
    return {"model": "m", "messages": messages, "temperature": 0}


def opened(home: str, path: str) -> Tape:
    """The tape of a home."""
    homes = {"JSONL": JsonlTape, "SQLite": SqliteTape, "directory": DirectoryTape}
    tape: Tape = homes[home](path)
    return tape


def _misses(home: str, folder: Path, count: int) -> Iterator[Measurement]:
    path = folder / {"JSONL": "t.jsonl", "SQLite": "t.db", "directory": "t"}[home]
    keys = _write(home, path, count)
    numbers = [7, count // 2, count - 3]
    runs = [in_fresh_process(_MISS, home, str(path), str(number)) for number in numbers]
    right = [run["nearest"] == keys[number] for run, number in zip(runs, numbers, strict=True)]
    assert all(right), right
    what = f"{home}: explain a miss among {count:,} of 20 KB"
    worst = max(run["seconds"] for run in runs)
    yield Measurement(what, worst, _LIMIT_S, "limit, the slowest of three", "s", 1.0)
    used = max(run["cpu"] for run in runs)
    yield Measurement(f"{home}: processor time of it", used, _LIMIT_S, "limit", "s", 1.0)
    memory = max(run["MB"] for run in runs)
    yield Measurement(f"{home}: memory for it", memory, 80.0, "limit", "MB", 1.0)


def _write(home: str, path: Path, count: int) -> list[str]:
    """A tape with its sketches, written as fast as it can be; gives its keys."""
    tape = opened(home, str(path))
    first = _exchange(0)
    sketches, keys = Sketches(tape), [first.key]
    tape.append(first)
    sketches.add_rows([_sketch(first)])
    made, rows = [], []
    for number in range(1, count):
        exchange = _exchange(number)
        keys.append(exchange.key)
        made.append(_sketch(exchange))
        rows.append(exchange)
        if len(rows) == 1_000 or number == count - 1:
            _put(home, path, rows)
            sketches.add_rows(made)
            made, rows = [], []
    tape.close()
    then = time.time() - 100  # a file that changed just now gets no index
    os.utime(path, (then, then))
    again = opened(home, str(path))
    again.find("0" * 64)  # as of a tape that was recorded here, the file is known to its end
    again.close()
    sketches.settle()
    return keys


def _put(home: str, path: Path, exchanges: list[Exchange]) -> None:
    if home == "JSONL":
        with path.open("ab") as file:
            file.writelines(write_row(row_of(each)) + b"\n" for each in exchanges)
    elif home == "SQLite":
        with closing(sqlite3.connect(path)) as database:
            database.executemany(
                "INSERT INTO exchanges (key, state, canonicalizer, row)"
                " VALUES (?, 'complete', ?, ?)",
                ((e.key, e.canonicalizer, write_row(row_of(e)).decode()) for e in exchanges),
            )
            database.commit()
    else:
        for each in exchanges:
            row = row_of(each)
            (path / f"{each.key}.json").write_text(json.dumps(row.pop("response")))
            del row["hash"]
            (path / ".requests" / f"{each.key}.json").write_bytes(write_row(row))


def _exchange(number: int) -> Exchange:
    request = asked(number)
    return Exchange(key_of(TAPE.text(request)), "tape/1", request, {"text": "x"})


def _sketch(exchange: Exchange) -> bytes:
    return sketch_row_of(exchange.key, dict(leaves(exchange.request)))


def _without_sketches(count: int) -> Measurement:
    """The first miss on a tape that came from elsewhere: it ends when its patience does."""
    with tempfile.TemporaryDirectory(prefix="tapes-bench-") as folder:
        path = Path(folder) / "t.jsonl"
        _write("JSONL", path, count)
        tape = JsonlTape(path)
        for file in path.parent.glob(".tapes/*sketches*"):
            file.unlink()
        start = time.perf_counter()
        near = find_nearest(tape, asked(3, "one more word"))
        seconds = time.perf_counter() - start
        tape.close()
    assert near is not None
    what = f"JSONL: a first miss among {count:,} that have no sketches"
    return Measurement(what, seconds, _LIMIT_S, "limit", "s", 1.0)


def _recording(count: int) -> Measurement:
    """What sketches add to recording, in processor time of this process."""
    requests = [asked(number) for number in range(count)]
    with tempfile.TemporaryDirectory(prefix="tapes-bench-") as folder:

        def recorded(name: str, *, sketches: bool) -> float:
            path = Path(folder) / f"{name}.jsonl"
            with Cassette(path, "record", lambda _: "x", latch=True) as cassette:
                kept = Sketches(cassette.tape)
                start = time.process_time()
                for request in requests:
                    cassette.call(request)
                    if sketches:
                        kept.add("0" * 64, lambda request=request: dict(leaves(request)))
                kept.settle()
                return time.process_time() - start

        plain = min(recorded(f"plain{n}", sketches=False) for n in range(2))
        twice = min(recorded(f"more{n}", sketches=True) for n in range(2))
    # Recording makes each sketch once already; a second one costs the same again.
    ours = max(twice - plain, 0.0) / count * 1e6
    peer = plain / count * 1e6 - ours
    return Measurement("a sketch for a recording of 20 KB", ours, peer, "the rest of it", "µs CPU")
