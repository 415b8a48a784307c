"""What every test starts from: a clean environment, and the network closed but for loopback."""

import gc
import itertools
import os
import shutil
import signal
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tapes.store.postgres import open_postgres
from tapes.store.sql import SqlStore
from tapes.store.sqlite import open_sqlite
from tests import strategies as strategies  # the settings of every property, whoever draws from it
from tests.postgres import Postgres, running
from tests.suites import Suite

collect_ignore = ["data"]  # suites that tests run in a pytest of their own
_numbers = itertools.count()
SETTINGS = ("CASSETTE_", "TAPES_", "DEMO_LIVE")


def pytest_configure() -> None:
    """What a shell starts in the background is deaf to an interrupt, and so would all it starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Which process runs which test."""
    from tests.grouping import Grouped

    return Grouped(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """What is imported once and stays is never looked through for garbage: a sixth of it all."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


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
    if not path:
        pytest.skip("no reference data here: TAPES_REFERENCE_DATA is not set")
    if not Path(path).is_dir():
        pytest.fail(f"TAPES_REFERENCE_DATA is no folder: {path}")
    return Path(path)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL of our own; skipped where none is installed."""
    with running() as server:
        yield server


@pytest.fixture
def database(postgres: Postgres) -> Iterator[str]:
    """The address of a database that this test alone uses."""
    name = f"test_{next(_numbers)}"
    yield postgres.new_database(name)
    postgres.drop_database(name)


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Suite:
    """An empty folder for a test suite, with a pytest of its own."""
    return Suite(pytester, monkeypatch)


OpenStore = Callable[[], SqlStore]


@pytest.fixture(scope="session")
def empty_store_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database file with the tables of a store: copied faster than made."""
    path = tmp_path_factory.mktemp("empty") / "tapes.db"
    open_sqlite(path).close()
    return path


@pytest.fixture(scope="session")
def empty_store_database(postgres: Postgres) -> str:
    """The name of a database with the tables of a store: copied faster than made."""
    open_postgres(postgres.new_database("empty_store")).close()
    return "empty_store"


@pytest.fixture(params=["sqlite", "postgres"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    """Opens one and the same store, as often as it is called: each database in turn."""
    dsn, path = "", tmp_path / ".tapes" / "tapes.db"
    name = f"test_{next(_numbers)}"
    if request.param == "postgres":
        template = request.getfixturevalue("empty_store_database")
        dsn = request.getfixturevalue("postgres").new_database(name, template)
    else:
        path.parent.mkdir()
        shutil.copy(request.getfixturevalue("empty_store_file"), path)
    opened: list[SqlStore] = []

    def open_once_more() -> SqlStore:
        opened.append(open_postgres(dsn) if dsn else open_sqlite(path))
        return opened[-1]

    yield open_once_more
    for each in opened:
        each.close()
    if dsn:
        request.getfixturevalue("postgres").drop_database(name)


@pytest.fixture
def store(open_store: OpenStore) -> SqlStore:
    """A store, on each database in turn."""
    return open_store()
