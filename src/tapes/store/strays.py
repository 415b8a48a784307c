"""Rows of the read model that should not be there, and placeholders that should.

Knows nothing of deriving.
"""

from collections.abc import Iterator

from sqlalchemy import Connection, select, true

from tapes.store.tables import links, raw_turns, session_parents, sessions, spans, traces


def strays(connection: Connection, org_id: str) -> Iterator[str]:
    """Rows with no turn behind them, and placeholders of what is not named or is there."""
    of_log = select(raw_turns.c.session_id).where(
        raw_turns.c.org_id == org_id, raw_turns.c.session_id.is_not(None)
    )
    real = sessions.c.placeholder.is_(False)
    for table, column, more in (
        (sessions, sessions.c.id, real),
        (traces, traces.c.session_id, true()),
        (spans, spans.c.session_id, true()),
        (links, links.c.session_id, true()),
        (session_parents, session_parents.c.session_id, true()),
    ):
        ask = select(column).where(table.c.org_id == org_id, more, column.not_in(of_log))
        for session_id in connection.execute(ask.distinct()).scalars():
            yield f"{table.name} of {session_id}: no turn is behind it"
    named = select(session_parents.c.parent_id).where(session_parents.c.org_id == org_id)
    mine = sessions.c.org_id == org_id
    there = select(sessions.c.id).where(mine)
    unnamed = select(sessions.c.id).where(mine, sessions.c.placeholder, sessions.c.id.not_in(named))
    for session_id in connection.execute(unnamed).scalars():
        yield f"session {session_id}: nobody names the placeholder"
    for session_id in connection.execute(
        named.distinct().where(session_parents.c.parent_id.not_in(there))
    ).scalars():
        yield f"session {session_id}: is named and has no placeholder"
