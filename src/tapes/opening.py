"""Where the log is kept, as settings or a text → a place, its spool, and what it needs installed.

Knows nothing of databases: that is `keeping`, which is imported when a log is asked for.
"""

import hashlib
import importlib.util
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tapes.errors import BadSetting, MissingExtra
from tapes.tape.beside import FOLDER

DEFAULT_STORE = f"{FOLDER}/tapes.db"
VARIABLE = "TAPES_LOG"
_YES = ("1", "true", "yes", "on")
_NO = ("", "0", "false", "no", "off")
# What the extras of the two stores bring.
_NEEDED = ("sqlalchemy", "alembic", "zstandard")

_PASSWORD = re.compile(r"(?<=[?&])(?:ssl)?password=[^&]*&?")


class Valued(Protocol):
    """Settings, as far as they are read here."""

    def __getitem__(self, key: str) -> Any:
        """The value of a key."""


@dataclass(frozen=True, slots=True)
class Where:
    """The place of a store: a file, or PostgreSQL by its DSN, which wins."""

    path: str = DEFAULT_STORE
    dsn: str | None = None

    @classmethod
    def of(cls, text: str) -> "Where":
        """The place that a text names: a DSN, or the path of a file. Raises BadSetting."""
        is_dsn = text.startswith(("postgresql://", "postgres://")) or "dbname=" in text
        if "://" in text and not is_dsn:
            scheme = text.partition("://")[0]
            raise BadSetting(
                f"no log lies at {scheme}://…", "name a file, or a DSN that begins postgresql://"
            )
        return cls(dsn=text) if is_dsn else cls(path=text)

    @classmethod
    def in_settings(cls, settings: Valued) -> "Where":
        """The place that settings name."""
        return cls(settings["storage.path"], settings["storage.postgres_dsn"])

    def __str__(self) -> str:
        """For people: without a password."""
        if self.dsn is None:
            return self.path
        _, is_url, rest = self.dsn.partition("://")
        shown = _PASSWORD.sub("", rest.rpartition("@")[2]).rstrip("?&")
        return f"postgresql://{shown}" if is_url else "PostgreSQL"

    @property
    def spool(self) -> Path:
        """The folder in which turns for this store wait: no two stores share one."""
        if self.dsn is None:
            return Path(self.path).parent / "spool" / Path(self.path).name
        name = hashlib.sha256(self.dsn.encode()).hexdigest()[:12]
        return Path(FOLDER) / "spool" / f"postgres-{name}"


def require_extra(where: Where) -> None:
    """Raises MissingExtra where the store needs what is not installed."""
    extra = "store" if where.dsn is None else "postgres"
    needed = _NEEDED if where.dsn is None else (*_NEEDED, "psycopg")
    missing = [name for name in needed if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtra(
            f"the log is an extra, and {missing[0]} is not installed",
            f"pip install 'tapes-py[{extra}]'",
        )


def asked_for(log: bool | str | None, environ: Mapping[str, str] = os.environ) -> Where | None:
    """The place of the log that a program is to write its calls to; None for none.

    What the program says holds over the variable `TAPES_LOG`: yes or no, or the place itself. Where
    only "yes" is said it is the place that settings name. Raises BadSetting.
    """
    said = environ.get(VARIABLE, "") if log is None else log
    if isinstance(said, str) and said.lower() not in _YES:
        return None if said.lower() in _NO else Where.of(said)
    if not said:
        return None
    # Most programs are not asked, and need not read files of settings.
    from tapes.config import STORAGE, read_settings

    return Where.in_settings(read_settings(STORAGE, {}, environ=environ))
