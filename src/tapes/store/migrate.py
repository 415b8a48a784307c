"""Databases of other versions: a newer one is refused, an older one brought up to date.

Rule 1: before an older database is changed it is checked, and SQLite's file is copied beside it.
Rule 2: all of it happens in one transaction, by one process: what fails leaves the database as it
        was.

Knows nothing of what the revisions do.
"""

import os
from pathlib import Path
from uuid import uuid4

from sqlalchemy import Connection, delete, insert, inspect, select, text

from tapes.errors import DamagedStore, NewerStore, UnreadableStore
from tapes.rows import DERIVATION
from tapes.store.database import Database
from tapes.store.model import index_all
from tapes.store.tables import about
from tapes.store.words import VERSION

# All revisions, the oldest first. The files are in `migrations/versions`.
REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008")
HEAD = REVISIONS[-1]
_TABLE = "alembic_version"


def made_ready(database: Database) -> None:
    """Bring the tables of a database up to date, or make them where there are none.

    Raises NewerStore, DamagedStore, UnreadableStore and UnavailableStore.
    """
    with database.reading() as connection:
        version = version_of(connection, database.name)
        words = said_about(connection, WORDS) if version == HEAD else ""
    if version == HEAD and words == str(VERSION):
        return
    if version is not None:
        _require_undamaged(database)
    with database.migrating() as connection:
        version = version_of(connection, database.name)  # another process may have been faster
        if version != HEAD:
            if version is not None:
                database.keep_copy(version)
            upgrade(connection, HEAD)
        if not said_about(connection, STORE):
            say_about(connection, STORE, str(uuid4()))
            say_about(connection, PLACING, "")
        if version is None:
            say_about(connection, DERIVED, str(DERIVATION))
        if said_about(connection, WORDS) != str(VERSION):
            index_all(database, connection)
            say_about(connection, WORDS, str(VERSION))


# What a database says about itself: its own id, the version of its words; a row to lock; and by
# which deriver it was derived.
STORE, WORDS, PLACING, DERIVED = "store", "words", "placing", "derived"


def said_about(connection: Connection, name: str) -> str:
    """What the database says about itself under a name; "" where nothing."""
    ask = select(about.c.value).where(about.c.name == name)
    return connection.execute(ask).scalar() or ""


def say_about(connection: Connection, name: str, value: str) -> None:
    """Have it say something else."""
    connection.execute(delete(about).where(about.c.name == name))
    connection.execute(insert(about), {"name": name, "value": value})


def version_of(connection: Connection, name: str) -> str | None:
    """The revision of a database, None where it has no tables. Raises NewerStore."""
    tables = set(inspect(connection).get_table_names())
    if _TABLE not in tables:
        if tables:
            raise UnreadableStore(
                f"{name} has tables, and none of them is of Tapes", "name an empty database"
            )
        return None
    version = connection.execute(text(f"SELECT version_num FROM {_TABLE}")).scalar()
    if version not in REVISIONS:
        raise NewerStore(
            f"{name} was made by a newer version of Tapes (revision {version}; this one knows"
            f" up to {HEAD})",
            "upgrade with: pip install --upgrade tapes-py",
        )
    return str(version)


def _require_undamaged(database: Database) -> None:
    damage = database.damage()
    if damage:
        raise DamagedStore(
            f"{database.name} is damaged, so it is not migrated: {damage[0]}",
            "restore it from a backup, or mend it first",
        )


def upgrade(connection: Connection, revision: str) -> None:
    """Run revisions up to one, in the transaction that the connection is in."""
    # Imported where used: most openings find tables that are up to date.
    from alembic import command
    from alembic.config import Config

    config = Config()
    place = str(Path(__file__).parent / "migrations").replace("%", "%%")
    config.set_main_option("script_location", place)
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    command.upgrade(config, revision)


def copy_name(path: str, version: str) -> str:
    """Where the copy of a file goes that is about to be changed: a name that is not taken."""
    number, name = 1, f"{path}.before-{HEAD}-from-{version}"
    while os.path.exists(name):
        number += 1
        name = f"{path}.before-{HEAD}-from-{version}.{number}"
    return name
