"""A service that reads and writes: PostgreSQL when it has a credential, memory when it has none.

    python examples/hello-world/service.py
    curl 127.0.0.1:9999/api/hello-world/hello

With a database, made ready by an administrator:

    tapes cassette grants --sql examples/hello-world/cassette.toml | psql mydatabase
    TAPES_DATABASE_URL=postgresql://cassette_hello-world:…@localhost/mydatabase \
        python examples/hello-world/service.py
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

from fastapi import Response
from pydantic import BaseModel

from tapes.services.kit import Service
from tapes.services.kit.database import Database

MIGRATIONS = [
    "CREATE TABLE hello (id bigserial PRIMARY KEY, hello text NOT NULL, world text NOT NULL,"
    " created_at timestamptz NOT NULL DEFAULT now())",
]

service = Service(Path(__file__).with_name("cassette.toml"))
database = Database(service)


class Greeting(BaseModel):
    hello: str = "hello"
    world: str = "world"


class Kept(Greeting):
    id: int
    created_at: datetime


class Said(BaseModel):
    message: str
    greeting: str
    cassette: str
    store: str
    rows: list[Kept] | None


class Memory:
    """The rows, for as long as the process lasts."""

    name = "memory"

    def __init__(self) -> None:
        self._rows: list[Kept] = []
        self._ids = count(1)

    def rows(self) -> list[Kept] | None:
        return list(self._rows) or None

    def keep(self, greeting: Greeting) -> Kept:
        kept = Kept(id=next(self._ids), created_at=datetime.now(UTC), **greeting.model_dump())
        self._rows.append(kept)
        return kept


class Postgres:
    """The rows in the service's own schema."""

    name = "postgres"

    def rows(self) -> list[Kept]:
        with self._connection() as connection:
            found = connection.execute(
                f"SELECT id, hello, world, created_at FROM {database.table('hello')} ORDER BY id"
            )
            return [Kept(id=row[0], hello=row[1], world=row[2], created_at=row[3]) for row in found]

    def keep(self, greeting: Greeting) -> Kept:
        with self._connection() as connection:
            row = connection.execute(
                f"INSERT INTO {database.table('hello')} (hello, world) VALUES (%s, %s)"
                " RETURNING id, hello, world, created_at",
                (greeting.hello, greeting.world),
            ).fetchone()
            assert row is not None
            return Kept(id=row[0], hello=row[1], world=row[2], created_at=row[3])

    @contextmanager
    def _connection(self) -> Iterator[Any]:
        with database.connect() as connection:
            yield connection


store = Postgres() if database.is_given else Memory()


@service.on_start
def prepare() -> None:
    if database.is_given:
        database.migrate(MIGRATIONS)
    print(f"{service.name} keeps its rows in {store.name}", flush=True)


@service.get("/hello")
def say() -> Said:
    """Say hello, and whom it was said to before."""
    greeting = service.settings["greeting"]
    return Said(
        message=f"{greeting} world",
        greeting=greeting,
        cassette=service.name,
        store=store.name,
        rows=store.rows(),
    )


@service.post("/hello", status_code=201)
def keep(response: Response, greeting: Greeting | None = None) -> Kept:
    """Keep a greeting."""
    kept = store.keep(greeting or Greeting())
    response.headers["Location"] = f"{service.prefix}/hello"
    return kept


if __name__ == "__main__":
    service.run()
