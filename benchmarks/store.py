"""The log: appending by many, its space, how soon a turn is seen, deriving from scratch.

Times are for one turn, beside what the same database does at best with rows of that size: flushed
in batches of fifty, without packing, without indexes, without a read model.
"""

import asyncio
import gc
import random
import sqlite3
import statistics
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path

import psycopg
import zstandard
from tests.postgres import found_binaries, running

from benchmarks import Measurement, seconds_of
from benchmarks.derive import agent, chat, raw_turn, with_reduced
from tapes.derive.deriver import derive
from tapes.exchange import Piece, Response
from tapes.ingest.keeping import Keeper
from tapes.jsontext import compact
from tapes.projector import Projector
from tapes.rows import RawTurn, session_id_of
from tapes.server import run_loop, settle
from tapes.store.packing import common_prefix
from tapes.store.postgres import open_postgres
from tapes.store.sql import SqlStore
from tapes.store.sqlite import open_sqlite

WRITERS = 16
SIZE = 8 * 1024
_CHANCE = random.Random(7)
_VOCABULARY = ["".join(_CHANCE.choices("abcdefghijklmnopqrstuvwxyz", k=7)) for _ in range(4000)]


def measurements(quick: bool) -> Iterator[Measurement]:
    """All of them; about two minutes, or half of one."""
    settle()  # as every server does
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tapes-bench-")))
        yield from _appending(
            "SQLite", open_sqlite(folder / "append.db"), _raw_sqlite(folder), 1.0 / 0.19, quick
        )
        if found_binaries() is not None:
            # A server that flushes: what is measured is what is acknowledged.
            server = stack.enter_context(running(flushes=True))
            url = server.new_database("append")
            raw = _raw_postgres(server.new_database("raw"))
            yield from _appending("PostgreSQL", open_postgres(url), raw, 1.0 / 0.19, quick)
        yield _space(folder)
        yield from _seen(open_sqlite(folder / "seen.db"), 2 if quick else 10)
        yield from _derived(open_sqlite(folder / "derive.db"), 20 if quick else 100)


def prose(size: int) -> str:
    """Text that packs as text does."""
    words: list[str] = []
    while sum(map(len, words)) + len(words) < size:
        words += _CHANCE.choices(_VOCABULARY, k=50)
    return " ".join(words)[:size]


# --- appending --------------------------------------------------------------------------------


def _turns(count: int, run: str = "") -> list[RawTurn]:
    """Calls of 8 KB that have nothing in common, with those of other runs neither."""
    body = {"model": "bench-1", "messages": [{"role": "user", "content": ""}]}
    turns = []
    for number in range(count):
        asked = {**body, "messages": [{"role": "user", "content": prose(SIZE * 3 // 4)}]}
        message = {"role": "assistant", "content": prose(SIZE // 4)}
        answer = {"id": f"c{number}", "model": "bench-1", "choices": [{"message": message}]}
        pieces = (Piece(1.0, compact(answer).encode()),)
        response = Response(200, (("content-type", "application/json"),), pieces)
        path = "/v1/chat/completions"
        turn = raw_turn(number + 1, f"s{number % 400}", asked, response, path)
        turns.append(replace(turn, request_id=f"{run}{turn.request_id}"))
    return turns


Append = Callable[[Sequence[bytes]], None]


def _appending(
    name: str, store: SqlStore, raw: Append, goal: float, quick: bool
) -> Iterator[Measurement]:
    turns = _turns(1600 if quick else 8000)
    rows = [turn.exchange.request.body * 4 for turn in turns if turn.exchange is not None]
    rows = [row[:SIZE] for row in rows]
    batches = [rows[at : at + 50] for at in range(0, len(rows), 50)]
    limit = seconds_of(lambda: deque(map(raw, batches), 0))

    def measured(what: str, write: Callable[[], None], goal: float | None = None) -> Measurement:
        each = seconds_of(write) / len(turns)
        beside = "rows in batches of 50, nothing else"
        return Measurement(f"{what}, {name}", each, limit / len(turns), beside, "s", goal)

    what = f"append a turn of 8 KB, {WRITERS} writers, one turn each time"
    yield measured(what, lambda: _by_senders(store, turns), goal)
    others = _turns(len(turns), "threads-")
    yield measured("the same by threads of a program", lambda: _by_threads(store, others))
    others = _turns(len(turns), "batches-")
    what = "the same by one writer in batches of 50"
    yield measured(what, lambda: _in_batches(store, others))
    store.close()


def _by_senders(store: SqlStore, turns: Sequence[RawTurn]) -> None:
    """As a server does it for those who send to it: each sends the next when it was answered."""

    async def send(keeper: Keeper, mine: Sequence[RawTurn]) -> None:
        for turn in mine:
            await keeper.keep([turn])

    async def together() -> None:
        keeper = Keeper(store)
        await asyncio.gather(*(send(keeper, turns[n::WRITERS]) for n in range(WRITERS)))

    run_loop(together())


def _by_threads(store: SqlStore, turns: Sequence[RawTurn]) -> None:
    def write(mine: Sequence[RawTurn]) -> None:
        for turn in mine:
            store.append([turn])

    threads = [threading.Thread(target=write, args=(turns[n::WRITERS],)) for n in range(WRITERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _in_batches(store: SqlStore, turns: Sequence[RawTurn]) -> None:
    for at in range(0, len(turns), 50):
        store.append(turns[at : at + 50])


def _raw_sqlite(folder: Path) -> Append:
    connection = sqlite3.connect(folder / "raw.db", isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, body BLOB)")

    def append(rows: Sequence[bytes]) -> None:
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO t (body) VALUES (?)", [(row,) for row in rows])
        connection.execute("COMMIT")

    return append


def _raw_postgres(url: str) -> Append:
    connection = psycopg.connect(url)
    connection.execute("CREATE TABLE t (id BIGINT GENERATED ALWAYS AS IDENTITY, body BYTEA)")
    connection.commit()

    def append(rows: Sequence[bytes]) -> None:
        with connection.cursor() as cursor:
            cursor.executemany("INSERT INTO t (body) VALUES (%s)", [(row,) for row in rows])
        connection.commit()

    return append


# --- space ------------------------------------------------------------------------------------


def conversation(length: int, last: int) -> list[RawTurn]:
    """An agent's session whose last request has so many bytes."""
    each = last // length
    messages = [{"role": "user", "content": prose(each)}]
    turns = []
    for number in range(length):
        said = prose(each // 3)
        answer = {"id": f"c{number}", "model": "m", "choices": [
            {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
        ]}  # fmt: skip
        body = {"model": "m", "messages": list(messages)}
        pieces = (Piece(1.0, compact(answer).encode()),)
        response = Response(200, (("content-type", "application/json"),), pieces)
        turns.append(raw_turn(number + 1, "long", body, response, "/v1/chat/completions"))
        messages += [
            {"role": "assistant", "content": said},
            {"role": "user", "content": prose(each - len(said) - 80)},
        ]
    return turns


def _space(folder: Path) -> Measurement:
    turns = conversation(150, 429_000)
    bodies = [turn.exchange.request.body for turn in turns if turn.exchange is not None]
    packer, before, limit = zstandard.ZstdCompressor(), b"", 0
    for body in bodies:
        shared = common_prefix(body, before)
        limit, before = limit + len(packer.compress(body[shared:])), body
    path = folder / "space.db"
    with closing(open_sqlite(path)) as store:
        empty = _size(path)
        for turn in turns:
            store.append([turn])
    return Measurement(
        f"space of a session of 150 turns, {sum(map(len, bodies)) / 1e6:.1f} MB of requests"
        f" (the last {len(bodies[-1]) / 1e3:.0f} KB), with answers and rows",
        (_size(path) - empty) / 1e6,
        limit / 1e6,
        "what each request adds to the one before, with zstd",
        "MB",
        1.75,
    )


def _size(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return path.stat().st_size


# --- from a turn to a session -----------------------------------------------------------------


def _seen(store: SqlStore, seconds: int) -> Iterator[Measurement]:
    """Chats come in at 500 turns a second, while a projector works beside."""
    rate, step = 500, 0.02
    turns = with_reduced(list(chat(max(rate * seconds // 10, 1), 10)))
    by_round = sorted(turns, key=lambda turn: ((turn.id - 1) % 10, turn.id))
    came: dict[str, int] = {}
    waits: list[float] = []
    stop = threading.Event()
    projector = Projector(store)
    gc.collect()
    gc.freeze()  # as a server does when it has begun
    deriving = threading.Thread(target=projector.run, args=(stop,))

    def look() -> None:
        # A change has the time at which it was written: looking now and then is enough.
        project, seq = store.project(), 0
        while not stop.is_set():
            for change in project.changes(seq):
                seq = max(seq, change.seq)
                if change.session_id in came:
                    waits.append((change.at - came.pop(change.session_id)) / 1e9)
            stop.wait(0.1)

    looking = threading.Thread(target=look)
    deriving.start()
    looking.start()
    begun = time.perf_counter()
    at = 0
    while at < len(by_round):
        time.sleep(step)
        due = min(int((time.perf_counter() - begun) * rate), at + 100, len(by_round))
        some, at = by_round[at:due], due
        now = time.time_ns()
        for turn in some:
            came.setdefault(session_id_of(turn.envelope), now)
        if some:
            store.append(some)
            projector.wake()
    took = time.perf_counter() - begun
    until = time.monotonic() + 20
    while came and time.monotonic() < until:
        time.sleep(0.01)
    stop.set()
    projector.wake()
    deriving.join()
    looking.join()
    store.close()
    waits += [float("inf")] * len(came)
    yield Measurement(
        f"a turn until its session shows it, p99, at {len(turns) / took:.0f} turns/s",
        statistics.quantiles(waits, n=100)[98],
        1.0,
        "a second",
        "s",
        1.0,
    )


def _derived(store: SqlStore, sessions: int) -> Iterator[Measurement]:
    turns = with_reduced(list(agent(sessions, 10)))
    for at in range(0, len(turns), 100):
        store.append(turns[at : at + 100])
    Projector(store).drain()

    def anew() -> None:
        store.mark_dirty()
        Projector(store).drain()

    # In seconds of this process: what else the machine does does not count.
    ours = min(_work_of(anew) for _ in range(3))
    pure = min(_work_of(lambda: derive(turns)) for _ in range(3))
    store.close()
    yield Measurement(
        f"derive a turn from scratch, {len(turns)} turns of agents, log to read model",
        ours / len(turns),
        1 / 2000,
        "2,000 turns a second of one core",
        "s",
        1.0,
    )
    yield Measurement(
        "the same",
        ours / len(turns),
        pure / len(turns),
        "the deriver alone, in memory",
        "s",
    )


def _work_of(run: Callable[[], object]) -> float:
    """The seconds that this process works on something."""
    begun = time.process_time()
    run()
    return time.process_time() - begun
