"""The SQLite tape: one file when it is closed, logs that a kill left, other people's databases."""

import gc
import os
import signal
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from tapes.errors import DamagedTape, NewerTape, UnreadableTape, UnwritableTape
from tapes.tape.sqlite import SqliteTape, is_database
from tests.running import run
from tests.tape.faults import mounted, remount_read_only
from tests.tape.homes import fork, key, over_http, plain


def files(folder: Path) -> set[str]:
    return {name for name in os.listdir(folder) if not name.startswith(".")}


def test_a_closed_tape_is_one_file_that_reading_leaves_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    tapes = [SqliteTape(path) for _ in range(3)]
    for n, tape in enumerate(tapes):
        tape.append(plain(n))
        assert tape.keys() == {key(m) for m in range(n + 1)}
    for tape in tapes:
        tape.close()
    assert files(tmp_path) == {"t.db"}
    before = path.read_bytes()
    reader = SqliteTape(path)
    assert len(list(reader.exchanges())) == 3
    assert files(tmp_path) == {"t.db"}
    reader.close()
    assert path.read_bytes() == before


def test_a_tape_that_nobody_closed_is_one_file_when_it_is_forgotten(tmp_path: Path) -> None:
    tape = SqliteTape(tmp_path / "t.db")
    tape.append(plain(1))
    assert "t.db-wal" in files(tmp_path)
    del tape
    gc.collect()
    assert files(tmp_path) == {"t.db"}


AT_WORK = """
    import atexit, threading

    inside, go_on = threading.Event(), threading.Event()

    def end():
        go_on.set()
        thread.join(20)

    atexit.register(end)  # the first to be registered is the last to be called

    from tapes.exchange import Exchange
    from tapes.tape.sqlite import SqliteTape

    def append(number):
        tape.append(Exchange(f"{{number:064}}", "tape/1", {{}}, {{}}))

    def wait():
        inside.set()
        print(go_on.wait(20))

    def read():
        tape._reader().create_function("wait", 0, wait)
        tape._read("SELECT wait()")
        print(len(tape.keys()))

    def write():
        tape._writer().create_function("wait", 0, wait)
        then = "AFTER INSERT ON exchanges BEGIN SELECT wait(); END"
        tape._writer().execute(f"CREATE TEMP TRIGGER slow {{then}}")
        append(2)
        print(len(tape.keys()))

    tape = SqliteTape("t.db")
    append(1)
    thread = threading.Thread(target={work}, daemon=True)
    thread.start()
    inside.wait(20)
"""


@pytest.mark.parametrize(("work", "done"), [("read", "1"), ("write", "2")])
def test_a_program_may_end_in_the_middle_of_what_a_thread_does(
    work: str, done: str, tmp_path: Path
) -> None:
    """SQLite itself ends the whole process where a connection closes in the middle of its work."""
    ended = run(AT_WORK.format(work=work), tmp_path)
    assert (ended.returncode, ended.stdout.split()) == (0, ["True", done]), ended.stderr


def killed_in_the_middle(path: Path) -> None:
    """A process that appended, and was killed with its log beside the tape."""
    pid = fork()
    if pid == 0:
        SqliteTape(path).append(plain(1))
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert (path.parent / "t.db-wal").stat().st_size > 0


def test_what_a_killed_process_acknowledged_is_in_its_log_and_found(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    killed_in_the_middle(path)
    tape = SqliteTape(path)
    assert tape.find(key(1)) == plain(1)
    tape.close()
    assert files(tmp_path) == {"t.db"}
    assert SqliteTape(path).find(key(1)) == plain(1)


def test_a_log_is_read_from_a_read_only_folder_or_is_an_error(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "4m") as folder:
        path = folder / "t.db"
        killed_in_the_middle(path)
        remount_read_only(folder)
        tape = SqliteTape(path)
        assert tape.find(key(1)) == plain(1)
        tape.close()
    with mounted(tmp_path / "other", "4m") as folder:
        path = folder / "t.db"
        killed_in_the_middle(path)
        (folder / "t.db-shm").unlink()
        remount_read_only(folder)
        with pytest.raises(UnreadableTape, match="the log beside it") as refused:
            SqliteTape(path)
        assert f"cp {path} {path}-wal" in refused.value.remedy


def changing(path: Path) -> sqlite3.Connection:
    """Somebody who deletes all exchanges without a log, half of it in the file already."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA cache_size = 1")
    database.execute("BEGIN EXCLUSIVE")
    database.execute("UPDATE exchanges SET row = 'half done', key = 'gone'")
    return database


def with_many(path: Path) -> None:
    tape = SqliteTape(path)
    for number in range(30):
        tape.append(plain(number, "x" * 4000))
    tape.close()


@pytest.mark.row("A12")
def test_a_database_that_somebody_changes_is_not_read_in_the_middle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapes.tape.sqlite.PATIENCE_S", 0.05)
    path = tmp_path / "t.db"
    with_many(path)
    with closing(changing(path)) as other:
        with pytest.raises(UnreadableTape, match="locked") as refused:
            SqliteTape(path)
        assert refused.value.remedy == "wait for the program that holds it"
        other.execute("ROLLBACK")
    assert SqliteTape(path).find(key(1)) == plain(1, "x" * 4000)


def killed_while_changing(path: Path) -> None:
    pid = fork()
    if pid == 0:
        changing(path)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(pid, 0)
    assert (path.parent / "t.db-journal").stat().st_size > 0


@pytest.mark.row("A12")
def test_a_change_that_somebody_killed_left_half_done_is_undone(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with_many(path)
    killed_while_changing(path)
    reading = SqliteTape(path)
    assert reading.find(key(1)) == plain(1, "x" * 4000)
    SqliteTape(path).append(plain(99))
    assert reading.find(key(99)) == plain(99)


@pytest.mark.row("A12")
def test_a_change_left_half_done_is_an_error_where_it_cannot_be_undone(tmp_path: Path) -> None:
    with mounted(tmp_path / "disk", "4m") as folder:
        path = folder / "t.db"
        with_many(path)
        killed_while_changing(path)
        remount_read_only(folder)
        with pytest.raises(UnreadableTape, match="the log beside it") as refused:
            SqliteTape(path)
        assert f"cp {path} {path}-journal" in refused.value.remedy


def test_a_tape_in_the_middle_of_being_written_is_read_from_a_read_only_folder(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode = WAL")
    tape = SqliteTape(path)
    tape.append(plain(1))
    assert SqliteTape(path).find(key(1)) == plain(1)
    tape.close()


@pytest.mark.parametrize("content", ["empty file", "no tables"])
def test_a_database_that_holds_nothing_is_an_empty_tape(tmp_path: Path, content: str) -> None:
    path = tmp_path / "t.db"
    path.touch()
    if content == "no tables":
        with closing(sqlite3.connect(path)) as database:
            database.execute("PRAGMA journal_mode = WAL")
        assert path.stat().st_size > 0
    tape = SqliteTape(path)
    assert tape.find(key(1)) is None
    tape.append(plain(1))
    assert tape.find(key(1)) == plain(1)


def test_somebody_elses_database_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE customers (name TEXT)")
        database.commit()
    before = path.read_bytes()
    with pytest.raises(UnreadableTape, match="not a tape") as refused:
        SqliteTape(path)
    assert refused.value.remedy
    assert path.read_bytes() == before


def test_a_tape_that_is_just_being_made_is_not_taken_for_somebody_elses(tmp_path: Path) -> None:
    for number in range(40):
        path = tmp_path / f"{number}.db"
        begin = threading.Barrier(2)

        def make(path: Path = path, begin: threading.Barrier = begin) -> None:
            with closing(SqliteTape(path)) as tape:
                begin.wait()
                tape.append(plain("x"))

        maker = threading.Thread(target=make)
        maker.start()
        begin.wait()
        while maker.is_alive():
            with closing(SqliteTape(path)) as tape:
                assert len(tape.keys()) <= 1
        maker.join()


def test_a_database_that_becomes_somebody_elses_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    tape = SqliteTape(path)
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE customers (name TEXT)")
        database.commit()
    with pytest.raises(UnreadableTape, match="not a tape"):
        tape.append(plain(1))


def test_a_file_that_is_no_database_is_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    path.write_text('{"hash": "x"}\n' * 1000)
    with pytest.raises(UnreadableTape, match="no SQLite database") as refused:
        SqliteTape(path)
    assert ".jsonl" in refused.value.remedy


def test_a_damaged_database_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    tape = SqliteTape(path)
    for n in range(200):
        tape.append(plain(n, "x" * 500))
    tape.close()
    data = bytearray(path.read_bytes())
    data[4096:] = os.urandom(len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(DamagedTape) as damage:
        list(SqliteTape(path).exchanges())
    assert str(path) in damage.value.message
    assert ".recover" in damage.value.remedy
    with pytest.raises(DamagedTape):
        SqliteTape(path).append(plain(1))


def test_a_broken_row_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    tape = SqliteTape(path)
    for n in range(3):
        tape.append(plain(n))
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE exchanges SET row = CAST(x'22ff22' AS TEXT) WHERE number = 2")
        database.commit()
    assert tape.find(key(2)) == plain(2)
    with pytest.raises(DamagedTape, match="exchange 2: not JSON"):
        tape.find(key(1))


def test_a_body_that_is_not_the_one_that_was_kept_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    tape = SqliteTape(path)
    tape.append(over_http(1, b"x" * 20_000))
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE blobs SET bytes = x'00'")
        database.commit()
    with pytest.raises(DamagedTape, match="not the one that was kept"):
        tape.find(key(1))


def test_a_database_of_a_later_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    SqliteTape(path).append(plain(1))
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA user_version = 2")
    with pytest.raises(NewerTape, match="the database: schema version 2"):
        SqliteTape(path)


def test_appending_waits_for_who_has_the_database_locked(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    tape = SqliteTape(path)
    tape.append(plain(1))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        appending = threading.Thread(target=tape.append, args=(plain(2),))
        appending.start()
        assert tape.find(key(1)) == plain(1)
        assert tape.find(key(2)) is None
        other.execute("ROLLBACK")
        appending.join(60)
    assert tape.find(key(2)) == plain(2)


def test_an_exchange_larger_than_a_database_takes_is_refused_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tape = SqliteTape(tmp_path / "t.db")
    tape.append(plain(1))
    tape._writer().setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 100_000)
    with pytest.raises(UnwritableTape, match="too big"):
        tape.append(plain(2, "x" * 200_000))
    tape.append(plain(3))
    assert tape.keys() == {key(1), key(3)}


def test_looking_whether_a_file_is_a_database_keeps_its_locks(tmp_path: Path) -> None:
    path = tmp_path / "t.db"
    tape = SqliteTape(path)
    tape.append(plain(1))
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode")
        assert is_database(str(path))
        assert not is_database(__file__)
        assert not is_database(str(tmp_path / "none"))
    assert tape.find(key(1)) == plain(1)
