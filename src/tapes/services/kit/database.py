"""A service's database: its own role and schema, the contract's views that it declared, migrations.

Rule 1: names are quoted, always: a service's name may have a dash.
Rule 2: a view that the manifest does not declare is an error here, before the database says so.
Rule 3: migrations run in their order, each once, all in one transaction, one process at a time. One
        that was applied and has changed since is an error.

    database = Database(service)
    database.migrate(["CREATE TABLE notes (id bigserial PRIMARY KEY, text text NOT NULL)"])
    with database.connect() as connection:
        connection.execute(f"SELECT count(*) FROM {database.view('spans')}")
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

from tapes.errors import BadSetting
from tapes.services.grants import quoted
from tapes.services.kit.service import Service

VARIABLE = "TAPES_DATABASE_URL"
_HISTORY = "tapes_migrations"


class Database:
    """The database of a service. `is_given` says whether there is a credential for one."""

    def __init__(self, service: Service) -> None:
        self._manifest = service.manifest
        self._url = service.environ.get(VARIABLE) or None
        self.schema = service.name

    @property
    def is_given(self) -> bool:
        """Whether the deployment gave a credential."""
        return self._url is not None

    @contextmanager
    def connect(self) -> Iterator["psycopg.Connection[Any]"]:
        """A connection in which the service's own schema comes first; committed at its end.

        Raises BadSetting where there is no credential.
        """
        if self._url is None:
            raise BadSetting(
                "the service has no database",
                f"{VARIABLE}=postgresql://cassette_{self.schema}:…@host/database",
            )
        with psycopg.connect(self._url) as connection:
            connection.execute(f"SET search_path TO {quoted(self.schema)}")
            yield connection

    def table(self, name: str) -> str:
        """A table of the service, quoted. Raises BadSetting for one that is not declared."""
        if name not in self._manifest.tables:
            raise BadSetting(
                f"{name!r} is no table of the manifest", f"[[tables]]\nname = {name!r}"
            )
        return f"{quoted(self.schema)}.{quoted(name)}"

    def view(self, name: str) -> str:
        """A view of the contract, quoted. Raises BadSetting for one that is not declared."""
        if name not in self._manifest.views:
            raise BadSetting(
                f"{name!r} is no view of the manifest", f"[depends]\nviews = [{name!r}]"
            )
        return f"{quoted(f'tapes_{self._manifest.core}')}.{quoted(name)}"

    def migrate(self, migrations: Sequence[str]) -> int:
        """Bring the schema up to date; how many migrations were new (rule 3)."""
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (self.schema,))
            cursor.execute(
                f"CREATE TABLE IF NOT EXISTS {_HISTORY} (number integer PRIMARY KEY,"
                " digest text NOT NULL, at timestamptz NOT NULL DEFAULT now())"
            )
            cursor.execute(f"SELECT digest FROM {_HISTORY} ORDER BY number")
            applied = [row[0] for row in cursor.fetchall()]
            digests = [hashlib.sha256(sql.encode()).hexdigest() for sql in migrations]
            if applied != digests[: len(applied)]:
                raise BadSetting(
                    f"the schema {self.schema} was made by other migrations than these",
                    "put a change into a new migration at the end; never change one that ran",
                )
            for number in range(len(applied), len(digests)):
                cursor.execute(migrations[number])
                cursor.execute(
                    f"INSERT INTO {_HISTORY} (number, digest) VALUES (%s, %s)",
                    (number, digests[number]),
                )
            return len(digests) - len(applied)
