from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import errors

from tapes.errors import BadSetting
from tapes.services.kit import Service
from tapes.services.kit.database import Database
from tapes.services.kit.testing import hosted, stored_session
from tapes.services.manifest import Manifest
from tests.postgres import Postgres

DECLARED = Manifest(
    name="daily-summary", version="1", core="v1", views=("spans",), tables=("summaries",)
)
SESSION: dict[str, list[dict[str, Any]]] = {
    "spans": [
        {"id": "a", "tokens": 5, "cost": 0.5, "tags": ["x"], "failed": False},
        {"id": "b", "tokens": None, "cost": None, "tags": None, "failed": True},
    ],
    "sessions": [{"id": "s"}],
}
MIGRATIONS = ["CREATE TABLE summaries (span text PRIMARY KEY, tokens bigint)"]


def service(url: str | None) -> Service:
    return Service(DECLARED, environ={} if url is None else {"TAPES_DATABASE_URL": url})


@pytest.mark.row("C10", "C14")
def test_a_service_reads_what_it_declared_owns_its_schema_and_nothing_else(
    postgres: Postgres,
) -> None:
    with stored_session(postgres.url(), DECLARED, SESSION) as url:
        database = Database(service(url))
        assert database.migrate(MIGRATIONS) == 1
        with database.connect() as connection:
            connection.execute(
                f"INSERT INTO {database.table('summaries')}"
                f" SELECT id, tokens FROM {database.view('spans')}"
            )
        with database.connect() as connection:
            rows = connection.execute("SELECT * FROM summaries ORDER BY span").fetchall()
            assert rows == [("a", 5), ("b", None)]
        for denied in (
            "SELECT * FROM tapes_v1.sessions",
            "SELECT * FROM tapes_v1.stored_spans",
            "INSERT INTO tapes_v1.spans (id) VALUES ('x')",
            "CREATE TABLE tapes_v1.mine (a int)",
            "CREATE TABLE public.mine (a int)",
        ):
            with pytest.raises(errors.InsufficientPrivilege), database.connect() as connection:
                connection.execute(denied)


@pytest.mark.row("C10")
def test_a_view_or_table_that_is_not_declared_is_an_error_before_the_database_says_so() -> None:
    database = Database(service(None))
    assert database.view("spans") == '"tapes_v1"."spans"'
    assert database.table("summaries") == '"daily-summary"."summaries"'
    with pytest.raises(BadSetting, match="no view"):
        database.view("sessions")
    with pytest.raises(BadSetting, match="no table"):
        database.table("x")


def test_without_a_credential_there_is_no_database() -> None:
    database = Database(service(None))
    assert not database.is_given
    with pytest.raises(BadSetting, match="TAPES_DATABASE_URL"), database.connect():
        pass


def test_migrations_run_once_and_one_that_changed_is_refused(postgres: Postgres) -> None:
    with stored_session(postgres.url(), DECLARED, SESSION) as url:
        database = Database(service(url))
        assert database.migrate(MIGRATIONS) == 1
        assert database.migrate(MIGRATIONS) == 0
        more = [*MIGRATIONS, "ALTER TABLE summaries ADD COLUMN note text"]
        assert database.migrate(more) == 1
        with pytest.raises(BadSetting, match="other migrations"):
            database.migrate(["CREATE TABLE summaries (other int)"])
        with pytest.raises(psycopg.Error):
            database.migrate([*more, "CREATE TABLE fine (a int)", "NONSENSE"])
        assert database.migrate(more) == 0
        with pytest.raises(errors.UndefinedTable), database.connect() as connection:
            connection.execute("SELECT * FROM fine")


def test_a_stored_session_is_gone_afterwards(postgres: Postgres) -> None:
    with stored_session(postgres.url(), DECLARED, SESSION) as url:
        name = url.rpartition("/")[2]
    with psycopg.connect(postgres.url()) as connection:
        found = connection.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
        assert found.fetchone() is None
        role = connection.execute(
            "SELECT 1 FROM pg_roles WHERE rolname = %s", ("cassette_daily-summary",)
        )
        assert role.fetchone() is None


@pytest.mark.row("C14")
def test_a_service_runs_against_a_stored_session_behind_a_host(
    postgres: Postgres, tmp_path: Path
) -> None:
    with stored_session(postgres.url(), DECLARED, SESSION) as url:
        made = service(url)
        database = Database(made)
        made.on_start(lambda: database.migrate(MIGRATIONS))

        @made.get("/tokens")
        def tokens() -> dict[str, int]:
            with database.connect() as connection:
                query = f"SELECT coalesce(sum(tokens), 0)::bigint FROM {database.view('spans')}"
                row = connection.execute(query).fetchone()
                return {"tokens": row[0] if row else 0}

        with hosted(made) as host:
            assert host.get("/tokens") == {"tokens": 5}
