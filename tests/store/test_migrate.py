"""Databases of other versions and of strangers."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from tapes.errors import DamagedStore, NewerStore, UnreadableStore
from tapes.projector import Projector
from tapes.store.base import Ask
from tapes.store.filters import parse
from tapes.store.migrate import HEAD, REVISIONS, upgrade
from tapes.store.packing import Way
from tapes.store.postgres import PostgresDatabase, open_postgres
from tapes.store.sql import SqlStore
from tapes.store.sqlite import SqliteDatabase, open_sqlite
from tapes.store.tables import raw_turns, spans
from tests.contracts.test_store import fill, many
from tests.postgres import Postgres
from tests.turns import chat, said


def older(path: Path, revision: str = REVISIONS[0]) -> None:
    """A database as that revision left it, the first if none is named."""
    database = SqliteDatabase(path)
    with database.migrating() as connection:
        upgrade(connection, revision)
    database.close()


def indexes_of(store: SqlStore) -> dict[str, str]:
    """The columns of each of spans and turns, as the database tells them."""
    tables = "('spans', 'raw_turns')"
    ask = f"SELECT name, sql FROM sqlite_master WHERE tbl_name IN {tables} AND sql LIKE '%INDEX%'"
    if store.database.is_postgres:
        ask = f"SELECT indexname, indexdef FROM pg_indexes WHERE tablename IN {tables}"
    with store.database.reading() as connection:
        told = connection.exec_driver_sql(ask).all()
    return {name: made.partition("(")[2].partition(")")[0] for name, made in told}


@pytest.mark.row("D7")
def test_an_older_file_is_brought_up_to_date_and_kept_beside(tmp_path: Path) -> None:
    older(tmp_path / "tapes.db")
    store = open_sqlite(tmp_path / "tapes.db")
    store.append([chat(1, [said("user", "hi")], "yes")])
    store.close()
    (copy,) = tmp_path.glob("tapes.db.before-*")
    with sqlite3.connect(copy) as connection:
        versions = connection.execute("SELECT version_num FROM alembic_version").fetchall()
    assert versions == [(REVISIONS[0],)]
    assert HEAD in copy.name


@pytest.mark.row("D7")
def test_an_older_server_is_brought_up_to_date(database: str) -> None:
    old = PostgresDatabase(database)
    with old.migrating() as connection:
        upgrade(connection, REVISIONS[0])
    old.close()
    store = open_postgres(database)
    assert store.append([chat(1, [said("user", "hi")], "yes")])[0].id == 1
    store.close()


def test_a_newer_one_is_refused_and_left_alone(tmp_path: Path, database: str) -> None:
    open_sqlite(tmp_path / "tapes.db").close()
    open_postgres(database).close()
    newer = "UPDATE alembic_version SET version_num = '9999'"
    with sqlite3.connect(tmp_path / "tapes.db") as connection:
        connection.execute(newer)
    with psycopg.connect(database) as other:
        other.execute(newer)
    with pytest.raises(NewerStore, match="9999"):
        open_sqlite(tmp_path / "tapes.db")
    with pytest.raises(NewerStore, match="9999"):
        open_postgres(database)


def test_each_way_of_packing_came_with_a_revision() -> None:
    came = {"0001": {Way.WHOLE, Way.SPLICED, Way.PATCHED}, "0003": {Way.CONTINUED}}
    assert set().union(*came.values()) == set(Way)
    assert came.keys() <= set(REVISIONS)


def test_a_file_from_before_bodies_were_continued_is_read_and_written(tmp_path: Path) -> None:
    turns = [chat(n, [said("user", f"{n} " + "so it goes on " * n)], "yes") for n in (1, 2)]
    with closing(open_sqlite(tmp_path / "now.db")) as store:
        store.append(turns[:1])
    older(tmp_path / "tapes.db", "0002")
    with closing(sqlite3.connect(tmp_path / "tapes.db")) as connection:
        connection.execute("ATTACH ? AS now", [str(tmp_path / "now.db")])
        connection.execute("INSERT INTO raw_turns SELECT * FROM now.raw_turns")
        connection.commit()
    with closing(open_sqlite(tmp_path / "tapes.db")) as store:
        store.append(turns)
        kept = list(store.project().stream_turns())
    assert [turn.exchange for turn in kept] == [turn.exchange for turn in turns]
    assert list(tmp_path.glob(f"tapes.db.before-{HEAD}-from-0002"))


def moved_file(new: Path, old: Path) -> None:
    """The rows of a log into one of an older version, but for words, which are taken in anew."""
    with closing(sqlite3.connect(old)) as connection:
        connection.execute("ATTACH ? AS now", [str(new)])
        for (table,) in connection.execute(TABLES).fetchall():
            names = [row[1] for row in connection.execute(f"PRAGMA main.table_info({table})")]
            columns = ", ".join(names)
            connection.execute(f"INSERT INTO {table} ({columns}) SELECT {columns} FROM now.{table}")
        connection.commit()


def moved_database(new: str, old: str) -> None:
    """The same on a server."""
    with psycopg.connect(new) as one, psycopg.connect(old) as other:
        for (table,) in other.execute(SERVER_TABLES).fetchall():
            names = [c.name for c in other.execute(f"SELECT * FROM {table}").description or ()]
            columns = f"({', '.join(names)})"
            with (
                one.cursor().copy(f"COPY {table} {columns} TO STDOUT") as rows,
                other.cursor().copy(f"COPY {table} {columns} FROM STDIN") as into,
            ):
                for row in rows:
                    into.write(row)


TABLES = """SELECT name FROM main.sqlite_master WHERE type = 'table' AND name NOT LIKE '%_words%'
    AND name NOT IN ('about', 'alembic_version', 'sqlite_sequence', 'sqlite_stat1')"""
SERVER_TABLES = """SELECT tablename FROM pg_tables WHERE schemaname = 'public'
    AND tablename NOT LIKE '%_words' AND tablename NOT IN ('about', 'alembic_version')"""


def all_of(store: SqlStore) -> list[object]:
    """What a log answers."""
    project, every = store.project(), Ask(limit=200)
    found = [project.spans(replace(every, where=parse(asked))).items for asked in ASKED]
    turns = [turn.exchange for turn in project.stream_turns()]
    assert all(found)
    return [project.sessions().items, project.traces(every).items, found, turns, store.check()]


ASKED = ("id:llm*", "question", "request:1-*", "model:gpt-test", "parent:agent_main_1-2")


@pytest.mark.row("D7")
def test_a_file_of_the_first_version_is_all_there_in_this_one(tmp_path: Path) -> None:
    with closing(open_sqlite(tmp_path / "new.db")) as new:
        fill(new, many(3, 3))
        before = all_of(new)
    older(tmp_path / "old.db")
    moved_file(tmp_path / "new.db", tmp_path / "old.db")
    with closing(open_sqlite(tmp_path / "old.db")) as old:
        assert all_of(old) == before
        assert list(Projector(old).check()) == []


@pytest.mark.row("D7")
def test_a_server_of_the_first_version_is_all_there_in_this_one(
    postgres: Postgres, database: str
) -> None:
    with closing(open_postgres(database)) as new:
        fill(new, many(3, 3))
        before = all_of(new)
    url = postgres.new_database("first_version")
    with closing(PostgresDatabase(url)) as first, first.migrating() as connection:
        upgrade(connection, REVISIONS[0])
    moved_database(database, url)
    with closing(open_postgres(url)) as old:
        assert all_of(old) == before
        assert list(Projector(old).check()) == []
    postgres.drop_database("first_version")


def test_an_older_log_gets_the_indexes_that_a_new_one_has(tmp_path: Path, database: str) -> None:
    older(tmp_path / "old.db", "0003")
    old = PostgresDatabase(database)
    with old.migrating() as connection:
        upgrade(connection, "0003")
    old.close()
    indexes = spans.indexes | raw_turns.indexes
    wanted = {str(one.name): ", ".join(c.name for c in one.columns) for one in indexes}
    for open_it in (
        lambda: open_sqlite(tmp_path / "old.db"),
        lambda: open_sqlite(tmp_path / "new.db"),
        lambda: open_postgres(database),
    ):
        with closing(open_it()) as store:
            assert wanted.items() <= indexes_of(store).items()


def test_a_strangers_database_is_refused_and_left_alone(tmp_path: Path, database: str) -> None:
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("CREATE TABLE theirs (id)")
    with psycopg.connect(database) as other:
        other.execute("CREATE TABLE theirs (id INT)")
    with pytest.raises(UnreadableStore):
        open_sqlite(tmp_path / "other.db")
    with pytest.raises(UnreadableStore):
        open_postgres(database)
    with psycopg.connect(database) as other:
        tables = other.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        assert tables.fetchall() == [("theirs",)]


def test_what_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("to do: nothing\n" * 1000)
    with pytest.raises(UnreadableStore, match=r"notes\.txt is no database"):
        open_sqlite(file)
    assert file.read_text() == "to do: nothing\n" * 1000
    assert [each.name for each in tmp_path.iterdir()] == ["notes.txt"]


def test_a_damaged_older_file_is_not_migrated(tmp_path: Path) -> None:
    file = tmp_path / "tapes.db"
    older(file)
    data = bytearray(file.read_bytes())
    for at in range(5 * 8192, len(data), 8192):
        data[at : at + 200] = b"\xff" * 200
    file.write_bytes(data)
    with pytest.raises(DamagedStore):
        open_sqlite(file)
    assert not list(tmp_path.glob("*.before-*"))
