"""The SQLite file in a tape's local folder."""

import sqlite3
from pathlib import Path

import pytest

from tapes.state import connect
from tests.running import run_together

SCHEMA = "CREATE TABLE IF NOT EXISTS t (n INTEGER)"
OPENER = """
import sys
from contextlib import closing
from pathlib import Path
from tapes.state import connect
print("ready", flush=True)
sys.stdin.readline()
for _ in range(20):
    with closing(connect(Path("state.db"), "CREATE TABLE IF NOT EXISTS t (n INTEGER)")) as state:
        state.execute("INSERT INTO t VALUES (1)")
print("done")
"""


@pytest.mark.row("B5")
@pytest.mark.parametrize("round_", range(3))
def test_processes_that_make_the_file_at_once_all_get_it(round_: int, tmp_path: Path) -> None:
    assert run_together(8, OPENER, tmp_path) == ["done\n"] * 8
    state = connect(tmp_path / "state.db", SCHEMA)
    assert state.execute("SELECT count(*) FROM t").fetchone() == (160,)
    state.close()


def test_a_file_that_is_no_database_is_an_error_and_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_text("no database " * 100)
    with pytest.raises(sqlite3.DatabaseError):
        connect(path, SCHEMA)
    assert path.read_text() == "no database " * 100


def test_without_a_path_it_lies_in_memory() -> None:
    state = connect(None, SCHEMA)
    state.execute("INSERT INTO t VALUES (1)")
    assert state.execute("SELECT n FROM t").fetchall() == [(1,)]
    state.close()
