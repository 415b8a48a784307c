"""Work for derivers: which sessions are dirty, who has taken them, and what came of it.

Rule 1: a session is derived by one worker at a time. On PostgreSQL a worker locks a row for each
        session that it has taken; a dead worker's locks go with its connection. On SQLite one
        process derives at a time.
Rule 2: a session stays dirty until a derivation that saw its last turn was written. Writers of
        turns never wait for derivers.
Rule 3: a session that cannot be derived or written harms no other: it is set aside until its next
        turn, with the reason.
Rule 4: what was erased meanwhile is not written. On PostgreSQL whoever erases a session waits for
        the worker that has it.
"""

import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from sqlalchemy import (
    Connection,
    Select,
    and_,
    bindparam,
    delete,
    exc,
    func,
    or_,
    select,
    tuple_,
    update,
)

from tapes.rows import Projection
from tapes.store.appending import mark_dirty
from tapes.store.base import Dirty
from tapes.store.database import Database
from tapes.store.model import ModelWriter
from tapes.store.tables import BACKGROUND, claims, dirty, raw_turns

log = logging.getLogger(__name__)


@dataclass(slots=True)
class TakenWork:
    """Sessions that this worker has; what it made of them is written when the work is over."""

    taken: tuple[Dirty, ...]
    made: list[tuple[Dirty, Projection]] = field(default_factory=list)
    failed: list[tuple[Dirty, str]] = field(default_factory=list)
    changed: Counter[str] = field(default_factory=Counter)
    refused: list[Dirty] = field(default_factory=list)

    def write(self, session: Dirty, rows: Projection) -> None:
        """Put these rows in the place of the session's."""
        self.made.append((session, rows))

    def fail(self, session: Dirty, why: str) -> None:
        """It cannot be derived."""
        self.failed.append((session, why))


_Made = tuple[Dirty, Projection]
# A session, and since when it waits.
_Name = tuple[str, str, int]


class Working:
    """Hands out sessions and writes what derivers make of them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def take(
        self, limit: int, *, ready_at: int, overdue_at: int, but: Collection[tuple[str, str]]
    ) -> AbstractContextManager[TakenWork]:
        """Sessions that are ready: quiet since `ready_at`, or dirty since before `overdue_at`."""
        return self._taken(_ready(limit, ready_at, overdue_at, but))

    def take_renewed(self, limit: int) -> AbstractContextManager[TakenWork]:
        """Sessions that are in no hurry: an older deriver derived them."""
        return self._taken(_IN_NO_HURRY.limit(limit))

    @contextmanager
    def _taken(self, ready: Select[Any]) -> Iterator[TakenWork]:
        if self._database.is_postgres:
            with self._database.writing() as connection:
                work = TakenWork(self._locked(connection, ready))
                yield work
                self._finish(connection, work)
            return
        with self._database.reading() as connection:
            taken = connection.execute(ready).all()
        work = TakenWork(tuple(Dirty(*row) for row in taken))
        yield work
        if work.made or work.failed:
            with self._database.writing() as connection:
                self._finish(connection, work)

    def _locked(self, connection: Connection, ready: Select[Any]) -> tuple[Dirty, ...]:
        own = claims.c.session_id == dirty.c.session_id
        ask = ready.join(claims, and_(claims.c.org_id == dirty.c.org_id, own)).with_for_update(
            of=claims, skip_locked=True
        )
        keys = [(row.org_id, row.session_id) for row in connection.execute(ask)]
        if not keys:
            return ()
        # As they are now that they are ours: another worker may just have finished one of them.
        again = select(*_DIRTY).where(tuple_(dirty.c.org_id, dirty.c.session_id).in_(keys))
        return tuple(Dirty(*row) for row in connection.execute(again))

    def _finish(self, connection: Connection, work: TakenWork) -> None:
        waits = self._waiting(connection, work)
        made = [each for each in work.made if _name(each[0]) in waits]
        # In one order, so that workers do not wait for each other in a circle.
        made.sort(key=lambda made: (made[0].org_id, made[0].session_id))
        for _, some in groupby(made, key=lambda made: made[0].org_id):
            self._write(connection, work, list(some))
        for session, why in work.failed:
            if _name(session) in waits:
                self._set_aside(connection, session, why)

    def _waiting(self, connection: Connection, work: TakenWork) -> set[_Name]:
        """The sessions that still wait; one that was erased may wait again, since another time."""
        keys = [(session.org_id, session.session_id) for session in work.taken]
        if not keys:
            return set()
        ask = select(dirty.c.org_id, dirty.c.session_id, dirty.c.first_dirtied_at).where(
            tuple_(dirty.c.org_id, dirty.c.session_id).in_(keys)
        )
        return {(row[0], row[1], row[2]) for row in connection.execute(ask)}

    def _write(self, connection: Connection, work: TakenWork, made: Sequence[_Made]) -> None:
        """Write sessions of a tenant together; where one of them is wrong, each by itself."""
        try:
            with connection.begin_nested():
                writer = ModelWriter(self._database, connection, made[0][0].org_id)
                changed = writer.replace({session.session_id: rows for session, rows in made})
                connection.execute(_DERIVED, [_version(session) for session, _ in made])
        except (exc.DataError, exc.IntegrityError, ValueError, TypeError) as error:
            if len(made) == 1:
                log.exception("a session could not be written")
                work.refused.append(made[0][0])
                self._set_aside(connection, made[0][0], f"{type(error).__name__}: {error}")
            else:
                for each in made:
                    self._write(connection, work, [each])
            return
        work.changed[made[0][0].org_id] += changed

    def _set_aside(self, connection: Connection, session: Dirty, why: str) -> None:
        connection.execute(
            update(dirty)
            .where(
                dirty.c.org_id == session.org_id,
                dirty.c.session_id == session.session_id,
                dirty.c.version == session.version,
            )
            .values(failed=why[:500].replace("\0", ""))
        )

    # --- deriving anew

    def mark(self, org_id: str | None, session_ids: Iterable[str]) -> int:
        """Have sessions derived: these, all of a tenant, or all.

        All are also those that were set aside, even where the log has no turn of them any more.
        """
        with self._database.writing() as connection:
            chosen = {(str(org_id), s) for s in session_ids}
            if not chosen:
                of_log = select(raw_turns.c.org_id, raw_turns.c.session_id).distinct()
                of_log = of_log.where(raw_turns.c.session_id.is_not(None))
                aside = select(dirty.c.org_id, dirty.c.session_id).where(
                    dirty.c.failed.is_not(None)
                )
                if org_id is not None:
                    of_log = of_log.where(raw_turns.c.org_id == org_id)
                    aside = aside.where(dirty.c.org_id == org_id)
                for ask in (of_log, aside):
                    chosen |= {(row.org_id, row.session_id) for row in connection.execute(ask)}
            mark_dirty(self._database, connection, sorted(chosen), time.time_ns())
            return len(chosen)

    def waiting(self, org_id: str) -> int:
        """How many sessions of a tenant are dirty and not set aside."""
        ask = select(func.count()).where(dirty.c.org_id == org_id, WAITS)
        with self._database.reading() as connection:
            return int(connection.execute(ask).scalar_one())


def _name(session: Dirty) -> _Name:
    return session.org_id, session.session_id, session.first_dirtied_at


def _version(session: Dirty) -> dict[str, Any]:
    return {"o": session.org_id, "s": session.session_id, "v": session.version}


_DERIVED = delete(dirty).where(
    dirty.c.org_id == bindparam("o"),
    dirty.c.session_id == bindparam("s"),
    dirty.c.version == bindparam("v"),
)
_DIRTY = (
    dirty.c.org_id,
    dirty.c.session_id,
    dirty.c.version,
    dirty.c.dirtied_at,
    dirty.c.first_dirtied_at,
)

# Turns came that nothing was derived from yet.
WAITS = and_(dirty.c.failed.is_(None), dirty.c.first_dirtied_at < BACKGROUND)
_IN_NO_HURRY = select(*_DIRTY).where(
    dirty.c.failed.is_(None), dirty.c.first_dirtied_at >= BACKGROUND
)


def _ready(
    limit: int, ready_at: int, overdue_at: int, but: Collection[tuple[str, str]]
) -> Select[Any]:
    ask = select(*_DIRTY).where(
        dirty.c.failed.is_(None),
        or_(dirty.c.dirtied_at <= ready_at, dirty.c.first_dirtied_at <= overdue_at),
    )
    if but:
        ask = ask.where(tuple_(dirty.c.org_id, dirty.c.session_id).not_in(list(but)))
    return ask.order_by(dirty.c.first_dirtied_at).limit(limit)
