"""What every test starts from: a clean environment, and the network closed but for loopback."""

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tapes.store.postgres import open_postgres
from tapes.store.sql import SqlStore
from tapes.store.sqlite import open_sqlite
from tests.postgres import Postgres, running
from tests.suites import Suite

collect_ignore = ["data"]  # suites that tests run in a pytest of their own
_numbers = itertools.count()
SETTINGS = ("CASSETTE_", "TAPES_", "DEMO_LIVE")


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith(SETTINGS) and name != "TAPES_REFERENCE_DATA":
            monkeypatch.delenv(name)


@pytest.fixture
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test runs in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def reference_data() -> Path:
    """The folder of golden cases that the project is checked against where it is at hand."""
    path = os.environ.get("TAPES_REFERENCE_DATA")
    if not path or not Path(path).is_dir():
        pytest.skip("TAPES_REFERENCE_DATA names no folder of reference data")
    return Path(path)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL of our own; skipped where none is installed."""
    with running() as server:
        yield server


@pytest.fixture
def database(postgres: Postgres) -> str:
    """The address of a database that this test alone uses."""
    return postgres.new_database(f"test_{next(_numbers)}")


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """An empty folder for a test suite, with a pytest of its own."""
    return Suite(pytester, monkeypatch)


OpenStore = Callable[[], SqlStore]


@pytest.fixture(params=["sqlite", "postgres"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    """Opens one and the same store, as often as it is called: each database in turn."""
    dsn = request.getfixturevalue("database") if request.param == "postgres" else ""
    opened: list[SqlStore] = []

    def open_once_more() -> SqlStore:
        if request.param == "postgres":
            opened.append(open_postgres(dsn))
        else:
            opened.append(open_sqlite(tmp_path / ".tapes" / "tapes.db"))
        return opened[-1]

    yield open_once_more
    for each in opened:
        each.close()


@pytest.fixture
def store(open_store: OpenStore) -> SqlStore:
    """A store, on each database in turn."""
    return open_store()
