"""A database of sample sessions, on each kind of store, read by many tests and changed by none."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tapes.store.postgres import open_postgres
from tapes.store.sqlite import open_sqlite
from tests.api.serving import seeded, served


@pytest.fixture(scope="session", params=["sqlite", "postgres"])
def client(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[httpx.Client]:
    """A client of an API over the sample sessions. Nothing is changed through it."""
    if request.param == "postgres":
        postgres = request.getfixturevalue("postgres")
        store = open_postgres(postgres.new_database("api_samples"))
    else:
        folder: Path = tmp_path_factory.mktemp("samples")
        store = open_sqlite(folder / "tapes.db")
    try:
        with served(seeded(store)) as reader:
            yield reader
    finally:
        store.close()
