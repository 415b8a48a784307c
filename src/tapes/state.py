"""The SQLite file in a tape's local folder: the ledger of live calls, and the reports of runs.

Rule: many processes may come at once, also while the file is made. SQLite waits for a lock, but
not while a file turns to its write-ahead log; so this waits.

Knows nothing of what is kept there.
"""

import sqlite3
import time
from contextlib import closing
from pathlib import Path

STATE = "state.db"
_WAIT_S = 60.0
_PAUSE_S = 0.005


def connect(path: Path | None, schema: str) -> sqlite3.Connection:
    """A connection to the file, made if it is not there; None is a file in memory.

    Every statement is a transaction of its own unless it stands in one. Raises sqlite3.Error.
    """
    connection = sqlite3.connect(
        path or ":memory:", timeout=_WAIT_S, isolation_level=None, check_same_thread=False
    )
    try:
        _use_log(connection)
        # A killed process loses nothing in this mode; only a power cut may lose the last lines.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.executescript(schema)
    except BaseException:
        connection.close()
        raise
    return connection


def connect_to_read(path: Path, schema: str) -> sqlite3.Connection:
    """A connection to a file that is there. Where nobody may write, it is read as it lies.

    What a writer left in the log beside such a file is not in it. Raises sqlite3.Error.
    """
    try:
        return connect(path, schema)
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF not in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN):
            raise
    whole = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    try:
        lying = sqlite3.connect(f"{path.resolve().as_uri()}?immutable=1", uri=True)
        with closing(lying):
            lying.backup(whole)
        whole.executescript(schema)
    except BaseException:
        whole.close()
        raise
    return whole


def _use_log(connection: sqlite3.Connection) -> None:
    until = time.monotonic() + _WAIT_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(_PAUSE_S)
        else:
            return
