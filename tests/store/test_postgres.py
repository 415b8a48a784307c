"""What PostgreSQL does in its own way."""

from collections.abc import Callable
from contextlib import ExitStack, closing

import psycopg
import pytest

from tapes.store.base import Kept
from tapes.store.postgres import open_postgres
from tapes.store.sql import SqlStore
from tests.postgres import Postgres
from tests.turns import chat, said

END_ALL = """
    SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'tapes'
"""


def cut_off(store: SqlStore, server: Postgres, database: str) -> None:
    """End connections that rest since a moment ago."""
    with psycopg.connect(database) as other:
        assert other.execute(END_ALL).fetchall()


def restarted(store: SqlStore, server: Postgres, database: str) -> None:
    """The same for all of them, by a server that goes and comes."""
    server.stop()
    server.start()


@pytest.mark.parametrize("broken", [cut_off, restarted])
@pytest.mark.parametrize("is_read_first", [True, False], ids=["read", "append"])
def test_whoever_was_cut_off_goes_on(
    postgres: Postgres,
    database: str,
    broken: Callable[[SqlStore, Postgres, str], None],
    *,
    is_read_first: bool,
) -> None:
    with closing(open_postgres(database)) as store:
        store.append([chat(1, [said("user", "one")], "yes")])
        with ExitStack() as several:
            for _ in range(4):
                connection = several.enter_context(store.database.reading())
                connection.exec_driver_sql("SELECT 1")
        broken(store, postgres, database)
        if is_read_first:
            assert len(list(store.project().stream_turns())) == 1
        assert store.append([chat(2, [said("user", "two")], "yes")])[0].kept is Kept.NEW
        assert len(list(store.project().stream_turns())) == 2


def cost_of_a_page(dsn: str) -> str:
    with closing(open_postgres(dsn)) as store, store.database.reading() as connection:
        return str(connection.exec_driver_sql("SHOW random_page_cost").scalar_one())


def test_a_page_costs_what_disks_take_today_but_where_an_operator_said_otherwise(
    database: str,
) -> None:
    assert cost_of_a_page(database) == "1.1"
    with psycopg.connect(database) as other:
        name = other.info.dbname
        other.execute(f'ALTER DATABASE "{name}" SET random_page_cost = 3')
    assert cost_of_a_page(database) == "3"


def test_a_connection_that_was_in_use_as_the_log_closed_is_closed_after_that(
    database: str,
) -> None:
    store = open_postgres(database)
    for begin in (store.database.writing, store.database.reading):
        with begin() as connection:
            held = connection.connection.driver_connection
            assert isinstance(held, psycopg.Connection)
            store.close()
            assert not held.closed
        assert held.closed
