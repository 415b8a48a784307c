"""The SQLite file in a tape's local folder."""

import sqlite3
from pathlib import Path

import pytest

from tapes.state import connect, connect_to_read
from tests.running import run_together
from tests.tape.faults import without_rights

SCHEMA = "CREATE TABLE IF NOT EXISTS t (n INTEGER)"
OPENER = """
import sys
from contextlib import closing
from pathlib import Path
from tapes.state import connect, connect_to_read
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


def test_what_nobody_may_write_is_read_as_it_lies() -> None:
    with without_rights() as folder:
        connection = connect(folder / "state.db", SCHEMA)
        connection.execute("INSERT INTO t VALUES (7)")
        connection.close()
        (folder / "state.db").chmod(0o400)
        folder.chmod(0o500)
        read = connect_to_read(folder / "state.db", SCHEMA + "; CREATE TABLE IF NOT EXISTS u (n)")
        assert read.execute("SELECT n FROM t").fetchall() == [(7,)]
        assert read.execute("SELECT n FROM u").fetchall() == []
        read.close()
        assert [file.name for file in folder.iterdir()] == ["state.db"]


def test_what_cannot_be_read_is_an_error_also_where_nobody_may_write() -> None:
    with without_rights() as folder:
        path = folder / "state.db"
        path.write_text("no database " * 100)
        path.chmod(0o400)
        folder.chmod(0o500)
        with pytest.raises(sqlite3.DatabaseError):
            connect_to_read(path, SCHEMA)
