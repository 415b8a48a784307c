"""A tape on a server: the promises of every tape, over connections that can be lost."""

import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tapes.errors import (
    BadSetting,
    ClosedTape,
    DamagedTape,
    NewerTape,
    UnreadableTape,
    UnwritableTape,
)
from tapes.exchange import Exchange
from tapes.tape.base import SharedTape
from tapes.tape.kinds import kind_of, open_tape
from tapes.tape.postgres import PostgresTape
from tests.postgres import Postgres
from tests.servers import closed_port
from tests.tape.homes import key, over_http, plain


@pytest.mark.row("F15")
def test_an_absent_tape_is_empty_and_is_made_with_the_first_exchange(database: str) -> None:
    tape = open_tape(database)
    assert isinstance(tape, SharedTape)
    assert (tape.find(key(1)), tape.keys(), list(tape.exchanges())) == (None, set(), [])
    tape.append(plain(1))
    again = open_tape(database)
    assert again.find(key(1)) == plain(1)
    tape.close()
    again.close()


def test_one_database_holds_several_tapes(database: str) -> None:
    one, two = open_tape(f"{database}#one"), open_tape(f"{database}#two")
    one.append(plain("x", 1))
    two.append(plain("x", 2))
    assert [t.find(key("x")).response for t in (one, two)] == [1, 2]  # type: ignore[union-attr]
    assert [len(list(t.exchanges())) for t in (one, two)] == [1, 1]
    one.close()
    two.close()


@pytest.mark.row("N13")
def test_the_password_is_never_shown(database: str) -> None:
    assert "secret-password" in database
    tape = open_tape(f"{database}?password=secret-password&connect_timeout=5#demo")
    assert tape.path.endswith("?connect_timeout=5#demo")
    tape.append(plain(1, version=2))
    with pytest.raises(NewerTape) as caught:
        tape.find(key(1))
    tape.close()
    nobody = f"postgresql://tester:secret-password@127.0.0.1:{closed_port()}/x"
    with pytest.raises(UnreadableTape) as unreadable:
        open_tape(nobody)
    for text in (tape.path, tape.name, str(caught.value), str(unreadable.value)):
        assert "secret-password" not in text
    assert "psql 'postgresql://tester@127.0.0.1" in unreadable.value.remedy


@pytest.mark.parametrize("where", ["postgres://h/d#a b", "postgresql://h/d#" + "x" * 200])
def test_what_is_no_address_of_a_tape_is_refused(where: str) -> None:
    with pytest.raises(BadSetting):
        open_tape(where)


def test_the_kind_is_told_by_how_the_name_begins() -> None:
    assert kind_of("postgres://h/d") == kind_of("postgresql://h/d.db#x") == "postgres"


@pytest.mark.row("F16")
def test_a_repeated_large_body_is_stored_once(database: str) -> None:
    body = os.urandom(50_000)
    one, two = open_tape(f"{database}#one"), open_tape(f"{database}#two")
    for n, tape in enumerate((one, one, two)):
        tape.append(over_http(n, body, request=body))
    assert two.find(key(2)) == over_http(2, body, request=body)
    with psycopg.connect(database) as connection:
        assert connection.execute("SELECT count(*) FROM tapes_bodies").fetchone() == (1,)
    one.close()
    two.close()


def test_a_missing_or_changed_body_is_damage_with_its_place(database: str) -> None:
    tape = open_tape(database)
    tape.append(over_http(1, b"x" * 20_000))
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE tapes_bodies SET bytes = 'other'")
    with pytest.raises(DamagedTape, match="not the one that was kept"):
        tape.find(key(1))
    with psycopg.connect(database) as connection:
        connection.execute("DELETE FROM tapes_bodies")
    with pytest.raises(DamagedTape, match="missing") as caught:
        tape.find(key(1))
    assert tape.path in str(caught.value)
    tape.close()


def test_a_row_that_is_no_exchange_is_damage(database: str) -> None:
    tape = open_tape(database)
    tape.append(plain(1))
    with psycopg.connect(database) as connection:
        connection.execute("UPDATE tapes_exchanges SET row = '{'")
    with pytest.raises(DamagedTape, match="exchange 1"):
        tape.find(key(1))
    tape.close()


def test_a_closed_tape_says_so(database: str) -> None:
    tape = open_tape(database)
    tape.append(plain(1))
    tape.close()
    tape.close()
    for use in (lambda: tape.find(key(1)), lambda: tape.append(plain(1)), lambda: tape.keys()):
        with pytest.raises(ClosedTape):
            use()


def test_whoever_may_only_read_can_replay_and_is_told_when_it_writes(database: str) -> None:
    tape = open_tape(database)
    tape.append(plain(1))
    tape.close()
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE ROLE reader LOGIN PASSWORD 'r'")
        connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader")
    reading = open_tape(database.replace("tester:secret-password", "reader:r"))
    assert reading.find(key(1)) == plain(1)
    with pytest.raises(UnwritableTape, match="permission denied"):
        reading.append(plain(2))
    assert reading.find(key(2)) is None
    reading.close()


def test_a_tape_that_is_gone_is_empty_again_and_can_be_begun_anew(database: str) -> None:
    tape = open_tape(database)
    tape.append(plain(1))
    with psycopg.connect(database) as connection:
        connection.execute("DROP TABLE tapes_exchanges")
    assert tape.find(key(1)) is None
    tape.append(plain(2))
    assert tape.keys() == {key(2)}
    tape.close()


# --- many at once


@pytest.mark.row("N04")
def test_threads_append_and_find_at_once(database: str) -> None:
    tape = open_tape(database)
    together = threading.Barrier(8)

    def record(worker: int) -> list[Exchange | None]:
        together.wait()
        for n in range(5):
            tape.append(plain((worker, n)))
        return [tape.find(key((worker, n))) for n in range(5)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(record, range(8)))
    assert found == [[plain((worker, n)) for n in range(5)] for worker in range(8)]
    assert len(list(tape.exchanges())) == 40
    tape.close()


def test_first_writers_who_come_together_all_get_in(database: str) -> None:
    together = threading.Barrier(8)

    def record(n: int) -> None:
        tape = open_tape(database)
        together.wait()
        tape.append(over_http(n, b"x" * 20_000))
        tape.close()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(record, range(8)))
    tape = open_tape(database)
    assert tape.keys() == {key(n) for n in range(8)}
    tape.close()


def _record(where: str, worker: int) -> None:
    tape = open_tape(where)
    for n in range(5):
        tape.append(plain((worker, n)))
    tape.close()


@pytest.mark.row("N05", "B7", "F15")
def test_processes_record_into_one_tape_at_once(database: str) -> None:
    spawning = multiprocessing.get_context("spawn")
    workers = [spawning.Process(target=_record, args=(database, n)) for n in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
    tape = open_tape(database)
    assert tape.keys() == {key((worker, n)) for worker in range(4) for n in range(5)}
    tape.close()


def test_both_sides_of_a_fork_go_on(database: str) -> None:
    tape = open_tape(database)
    tape.append(plain("before"))
    child = os.fork()
    if child == 0:
        status = 1
        try:
            assert tape.find(key("before")) == plain("before")
            tape.append(plain("in the child"))
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    tape.append(plain("in the parent"))
    assert tape.keys() == {key(name) for name in ("before", "in the child", "in the parent")}
    tape.close()


# --- connections that are lost


def _break_connections(database: str) -> None:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_a_lost_connection_is_opened_anew(database: str) -> None:
    tape = open_tape(database)
    tape.append(plain(1))
    assert tape.find(key(1)) is not None
    _break_connections(database)
    assert tape.find(key(1)) == plain(1)
    _break_connections(database)
    tape.append(plain(2))
    assert list(tape.exchanges()) == [plain(1), plain(2)]
    tape.close()


def test_a_server_that_is_away_is_an_error_and_its_return_is_noticed(postgres: Postgres) -> None:
    where = postgres.new_database("restarted")
    tape = open_tape(where)
    tape.append(plain(1))
    postgres.stop()
    try:
        with pytest.raises(UnreadableTape):
            tape.find(key(1))
        with pytest.raises(UnwritableTape):
            tape.append(plain(2))
    finally:
        postgres.start()
    assert tape.find(key(1)) == plain(1)
    tape.append(plain(2))
    assert tape.keys() == {key(1), key(2)}
    tape.close()


def test_what_a_commit_was_lost_with_is_never_sent_twice(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows whether it came through; sending it again could put it there twice."""
    tape = PostgresTape(database)
    tape.append(plain(1))
    execute = psycopg.Connection.execute

    def lose_commit(self: Any, statement: Any, *rest: Any) -> Any:
        if statement == "COMMIT":
            _break_connections(database)
        return execute(self, statement, *rest)

    monkeypatch.setattr(psycopg.Connection, "execute", lose_commit)
    with pytest.raises(UnwritableTape):
        tape.append(plain(2))
    monkeypatch.undo()
    assert tape.keys() == {key(1)}
    tape.append(plain(2))
    assert list(tape.exchanges()) == [plain(1), plain(2)]
    tape.close()


def test_a_machines_own_files_lie_in_its_working_folder(database: str, in_tmp_path: Path) -> None:
    tape = open_tape(f"{database}#demo")
    assert tape.local == Path(".tapes")
    assert "/" not in tape.name
    assert tape.name.endswith("demo")
    tape.close()


@pytest.mark.row("N13")
@pytest.mark.parametrize(
    "where",
    [
        "postgresql://me:sec/ret@h/d", "postgresql://me:sec@ret@h/d", "postgresql://me:sec?ret@h/d",
        "postgresql://127.0.0.1:1/d?sslpassword=ret",
    ],
)  # fmt: skip
def test_a_password_is_not_shown_where_an_address_is_wrong(where: str) -> None:
    with pytest.raises((BadSetting, UnreadableTape)) as caught:
        open_tape(where)
    said = str(caught.value.message) + caught.value.remedy
    assert "ret" not in said.replace("secret", "")
