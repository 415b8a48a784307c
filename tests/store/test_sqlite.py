"""What SQLite does with its files."""

import base64
import os
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tapes.errors import UnavailableStore
from tapes.projector import Projector
from tapes.rows import DERIVATION
from tapes.store.sqlite import open_sqlite
from tests.openfiles import open_below
from tests.proxies import PATIENCE_S
from tests.tape.faults import without_rights
from tests.turns import chat, said


def test_a_log_that_grew_while_somebody_read_is_given_back_to_the_disk(tmp_path: Path) -> None:
    file = tmp_path / "t.db"
    store = open_sqlite(file)
    with closing(sqlite3.connect(file, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM raw_turns").fetchone()
        for number in range(1, 7):
            text = base64.b64encode(os.urandom(4_000_000)).decode()
            store.append([chat(number, [said("user", text)], "ok")])
    assert os.path.getsize(f"{file}-wal") > 20_000_000
    for number in range(7, 10):
        store.append([chat(number, [said("user", "short")], "ok")])
    assert os.path.getsize(f"{file}-wal") <= 17_000_000
    store.close()


READ_AND_CLOSE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
print(connection.execute("SELECT count(*) FROM raw_turns").fetchone()[0])
connection.close()
"""


def turns_that_another_process_sees(file: Path) -> int:
    """It closes the file as well, and takes the write-ahead log away where it is the last."""
    told = subprocess.run(
        [sys.executable, "-I", "-S", "-c", READ_AND_CLOSE, file],
        capture_output=True,
        check=True,
        timeout=PATIENCE_S,
    )
    return int(told.stdout)


@pytest.mark.row("D2", "D7")
def test_a_log_that_one_process_opens_twice_stays_open_for_all_others(tmp_path: Path) -> None:
    file = tmp_path / "t.db"
    with closing(open_sqlite(file)) as store:
        store.append([chat(1, [said("user", "first")], "ok")])
        open_sqlite(file).close()
        with closing(open_sqlite(file)):
            assert turns_that_another_process_sees(file) == 1
            store.append([chat(2, [said("user", "second")], "ok")])
            assert turns_that_another_process_sees(file) == 2


def test_a_new_log_is_its_owners_alone_and_leaves_no_file_beside(tmp_path: Path) -> None:
    (tmp_path / "linked.db").symlink_to(tmp_path / "t.db")
    open_sqlite(tmp_path / "linked.db").close()
    assert (tmp_path / "t.db").stat().st_mode & 0o777 == 0o600
    names = {each.name for each in tmp_path.iterdir()}
    assert names == {"linked.db", "linked.db.lock", "t.db"}


@pytest.mark.parametrize("instead", [False, True], ids=["deleted", "replaced"])
def test_nothing_is_acknowledged_into_a_file_that_is_gone(tmp_path: Path, instead: bool) -> None:
    file = tmp_path / "t.db"
    other = open_sqlite(tmp_path / "other.db")
    other.close()
    store = open_sqlite(file)
    store.append([chat(1, [said("user", "first")], "ok")])
    for name in (file, *tmp_path.glob("t.db-*")):
        name.unlink()
    if instead:
        os.replace(tmp_path / "other.db", file)
    for use in (
        lambda: store.append([chat(2, [said("user", "second")], "ok")]),
        lambda: store.project().sessions(),
        store.database.wipe,
    ):
        with pytest.raises(UnavailableStore, match="deleted or replaced") as told:
            use()
        assert told.value.remedy.startswith("start this again")
    assert file.exists() is instead
    store.close()


def test_a_file_that_goes_while_it_is_written_to_keeps_no_turn(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "t.db")
    with pytest.raises(UnavailableStore, match="deleted"), store.database.writing():
        (tmp_path / "t.db").unlink()
    store.close()


def test_whoever_writes_as_the_log_closes_writes_to_the_end(tmp_path: Path) -> None:
    """SQLite itself ends the whole process where a connection closes in the middle of its work."""
    database = open_sqlite(tmp_path / "t.db").database
    inside, closed = threading.Event(), threading.Event()

    def wait() -> bool:
        inside.set()
        return closed.wait(PATIENCE_S)

    def write() -> bool:
        with database.writing() as connection:
            held: Any = connection.connection.driver_connection
            held.create_function("wait", 0, wait)
            waited = bool(connection.exec_driver_sql("SELECT wait()").scalar())
            connection.exec_driver_sql("CREATE TABLE written (x)")
            return waited

    with ThreadPoolExecutor(1) as writer:
        written = writer.submit(write)
        assert inside.wait(PATIENCE_S)
        database.close()
        closed.set()
        assert written.result(PATIENCE_S)
    with closing(sqlite3.connect(tmp_path / "t.db")) as reader:
        assert reader.execute("SELECT count(*) FROM written").fetchone() == (0,)
    assert open_below(tmp_path) == 0


def test_whoever_reads_for_long_makes_no_writer_wait_for_the_wiping_of_the_file(
    tmp_path: Path,
) -> None:
    file = tmp_path / "t.db"
    store = open_sqlite(file)
    store.append([chat(1, [said("user", "one")], "ok")])
    with (
        closing(sqlite3.connect(file, isolation_level=None)) as reader,
        ThreadPoolExecutor() as two,
    ):
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM raw_turns").fetchone()
        store.append([chat(2, [said("user", "two")], "ok")])
        wiped = two.submit(store.database.wipe)
        assert wiped.result(PATIENCE_S) is False  # not yet: it is tried again later
        reader.execute("COMMIT")
    assert store.database.wipe() is True
    store.close()


def test_a_new_log_is_for_its_owner_alone_and_one_that_is_there_stays_as_it_is(
    tmp_path: Path,
) -> None:
    for shared in (False, True):
        store = open_sqlite(tmp_path / "t.db")
        store.append([chat(1, [said("user", "hello")], "ok")])
        modes = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.glob("t.db*")}
        assert {"t.db", "t.db-wal"} <= set(modes)
        allowed = 0o644 if shared else 0o600
        assert {modes[name] for name in ("t.db", "t.db-wal", "t.db-shm")} == {allowed}
        store.close()
        (tmp_path / "t.db").chmod(0o644)


# --- where nobody may write -------------------------------------------------------------------


def kept_in(folder: Path) -> Path:
    """A log of one session, closed, that from now on may only be read."""
    file = folder / "t.db"
    store = open_sqlite(file)
    store.append([chat(1, [said("user", "hello")], "ok")])
    Projector(store).drain()
    store.close()
    shut(folder)
    return file


def shut(folder: Path) -> None:
    for place in (*folder.iterdir(), folder):
        place.chmod(0o500 if place.is_dir() else 0o400)


def test_a_log_that_may_only_be_read_is_read_and_leaves_nothing_beside_it() -> None:
    with without_rights() as folder:
        store = open_sqlite(kept_in(folder))
        (found,) = store.project().sessions().items
        assert found.session.preview == "hello"
        assert not list(Projector(store).check())
        assert store.check() == ()
        store.project().note("export", by="me")
        with pytest.raises(UnavailableStore, match="may only be read"):
            store.append([chat(2, [said("user", "more")], "ok")])
        with pytest.raises(UnavailableStore, match="may only be read"):
            store.project().erase([found.session.id], reason="")
        with store.leading() as leads:
            assert not leads
        assert store.derivation().done(DERIVATION + 1) == 0.0
        store.close()
        assert sorted(os.listdir(folder)) == ["t.db", "t.db.lock"]


def test_what_waits_in_the_write_ahead_log_is_read_also_where_one_may_only_read() -> None:
    with without_rights() as folder:
        writer = open_sqlite(folder / "t.db")
        writer.append([chat(1, [said("user", "hello")], "ok")])
        Projector(writer).drain()
        shut(folder)
        reader = open_sqlite(folder / "t.db")
        assert len(reader.project().sessions().items) == 1
        writer.append([chat(2, [said("user", "again")], "ok", session="other")])
        Projector(writer).drain()
        assert len(reader.project().sessions().items) == 2
        for store in (reader, writer):
            store.close()
