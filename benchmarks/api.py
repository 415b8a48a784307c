"""How fast the read API answers over HTTP: the latest sessions, a search, and ten times the rows.

The database is made from a few derived sessions, whose rows are multiplied by SQL: a million of
them are there in a minute. TAPES_BENCH_ROWS says how many rows; the full run has 1,000,000.
"""

import http.client
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from benchmarks import Measurement
from benchmarks._running import running
from benchmarks.derive import chat
from tapes.projector import Projector
from tapes.store.sqlite import open_sqlite

CODE = "from tapes.cli.main import main; main()"
QUICK, FULL = 20_000, 1_000_000
TEMPLATES = 20
WORD = "marker7"


def measurements(quick: bool) -> Iterator[Measurement]:
    rows = int(os.environ.get("TAPES_BENCH_ROWS", QUICK if quick else FULL))
    calls = 100 if quick else 400
    with tempfile.TemporaryDirectory() as folder:
        small, large = Path(folder) / "small.db", Path(folder) / "large.db"
        fill(small, rows // 10)
        fill(large, rows)
        few, many = answered(small, calls), answered(large, calls)
    named = f"{rows:,} sessions and as many spans"
    for what, path, goals in (
        ("the latest 50 sessions", SESSIONS, (0.003, 0.015)),
        ("a search, first page", SEARCH, (0.050, None)),
    ):
        for quantile, goal in zip((50, 99), goals, strict=True):
            if goal is not None:
                ours = many[path][quantile]
                yield Measurement(f"{what} of {named}, p{quantile}", ours, goal, "limit", "s", 1.0)
        grown = f"{what}: ten times the rows, p50"
        yield Measurement(grown, many[path][50], few[path][50], "a tenth of them", "s", 1.5)
    for what, path in FILTERS.items():
        yield Measurement(f"{what}, p50", many[path][50], 0.200, "limit", "s", 1.0)


SESSIONS, SEARCH = "/v1/sessions?limit=50", f"/v1/search?q={WORD}"
FILTERS = {
    "spans under a filter that three fit": "/v1/spans?q=agent:rare",
    "spans under a filter that nothing fits": "/v1/spans?q=duration:%3E9h",
    "spans of a model that nobody asked": "/v1/spans?q=model:nobody",
    "spans, the longest first": "/v1/spans?sort=duration_ns",
    "the histogram of what three fit": "/v1/histogram/spans?q=agent:rare",
    "the histogram of all spans": "/v1/histogram/spans",
}


def answered(store: Path, calls: int) -> dict[str, dict[int, float]]:
    """The seconds of answers to each question, by quantile, from a server of its own."""
    listen = ("--listen", "127.0.0.1:0", "--no-derive", "--store", str(store))
    command = [sys.executable, "-c", CODE, "serve", "api", *listen]
    with running(command, r"http://127\.0\.0\.1:(\d+)", {"TAPES_API_RATE": "0"}) as server:
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        found = {path: quantiles(connection, path, calls) for path in (SESSIONS, SEARCH)}
        return found | {path: quantiles(connection, path, 20) for path in FILTERS.values()}


def quantiles(connection: http.client.HTTPConnection, path: str, calls: int) -> dict[int, float]:
    took = []
    for number in range(calls + 20):
        began = time.perf_counter()
        connection.request("GET", path)
        answer = connection.getresponse()
        size = len(answer.read())
        if number >= 20:  # the first ones find nothing in memory
            took.append(time.perf_counter() - began)
        assert answer.status == 200
        assert size > 1000 or path in FILTERS.values()
    cut = statistics.quantiles(took, n=100)
    return {50: cut[49], 99: cut[98]}


# --- a large database -------------------------------------------------------------------------


def fill(path: Path, rows: int) -> None:
    """A log with a few derived sessions, and their rows multiplied."""
    store = open_sqlite(path)
    turns = list(chat(TEMPLATES, 1))
    for number, turn in enumerate(turns):
        assert turn.exchange is not None
        request = turn.exchange.request
        body = request.body.replace(b"deriver", f"marker{number}".encode())
        exchange = replace(turn.exchange, request=replace(request, body=body))
        store.append([replace(turn, exchange=exchange)])
    Projector(store).drain()
    store.close()
    connection = sqlite3.connect(path)
    with connection:
        multiply(connection, "sessions", rows, {
            "id": "randomblob(16)",
            "harness_session_id": "'many-' || n",
            "last_seen_at": "last_seen_at - n * 1000000000",
            "started_at": "started_at - n * 1000000000",
        })  # fmt: skip
        multiply(connection, "spans", rows, {
            "trace_id": "'many-' || n",
            "started_at": "started_at - n * 1000000000",
        }, "WHERE kind = 'llm'")  # fmt: skip
        connection.execute(
            "INSERT INTO span_words(rowid, prompt, rest) SELECT place,"
            " 'ask marker' || (place % 20), 'answer word' || (place % 5000) FROM spans"
            " WHERE trace_id LIKE 'many-%'"
        )
        rarely(connection)
    connection.execute("ANALYZE")
    connection.close()


def rarely(connection: sqlite3.Connection) -> None:
    """An agent that made three of the spans, and no other."""
    three = "SELECT place FROM spans WHERE trace_id LIKE 'many-%' ORDER BY place DESC LIMIT 3"
    connection.execute(f"UPDATE spans SET agent = 'rare' WHERE place IN ({three})")
    connection.execute(
        "INSERT OR IGNORE INTO session_facets (org_id, name, value, session_id)"
        " SELECT org_id, 'agent', agent, session_id FROM spans WHERE agent = 'rare'"
    )


def multiply(
    connection: sqlite3.Connection, table: str, rows: int, made: dict[str, str], where: str = ""
) -> None:
    """Rows like those that are there, with other ids and times, at places of their own."""
    columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    made = {**made, "place": "1000000 + n"}
    values = ", ".join(made.get(column, column) for column in columns)
    connection.execute(
        f"WITH RECURSIVE series(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM series"
        f" WHERE n < {rows}), some AS (SELECT *, row_number() OVER () - 1 AS r FROM {table}"
        f" {where}) INSERT INTO {table} ({', '.join(columns)})"
        f" SELECT {values} FROM series JOIN some ON some.r = n % (SELECT count(*) FROM some)"
    )
