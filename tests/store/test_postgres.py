"""What PostgreSQL does in its own way."""

from contextlib import ExitStack, suppress

import psycopg

from tapes.errors import UnavailableStore
from tapes.store.base import Kept
from tapes.store.postgres import open_postgres
from tests.turns import chat, said

END_ALL = """
    SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity
    WHERE datname = current_database() AND application_name = 'tapes'
"""


def test_whoever_was_cut_off_is_told_once_at_most_and_goes_on(database: str) -> None:
    store = open_postgres(database)
    store.append([chat(1, [said("user", "one")], "yes")])
    with ExitStack() as several:
        for _ in range(4):
            several.enter_context(store.database.reading())
    with psycopg.connect(database) as other:
        assert other.execute(END_ALL).fetchall()
    turn = chat(2, [said("user", "two")], "yes")
    with suppress(UnavailableStore):  # of a connection that worked a moment ago nobody asks
        store.append([turn])
    assert store.append([turn])[0].kept in (Kept.NEW, Kept.KNOWN)
    assert len(list(store.project().stream_turns())) == 2
    store.close()
