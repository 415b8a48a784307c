"""What an older deriver made, given out to be derived anew: which turns were looked at so far.

Rule 1: the log is gone through once, from the last turn to the first; a session comes with its last
        turn. Where it has got to is kept with what was given out, so whoever comes next goes on.
Rule 2: only few sessions are given out ahead. A turn that comes for one of them makes it as urgent
        as any other.
Rule 3: what a newer deriver made, or makes just now, is left alone.

Knows nothing of what a deriver's number stands for.
"""

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, func, select, update

from tapes.store.appending import mark_dirty
from tapes.store.base import Derivation
from tapes.store.database import Database
from tapes.store.migrate import DERIVED, said_about
from tapes.store.tables import BACKGROUND, about, dirty, raw_turns

# So many sessions are given out ahead, and so many turns looked at for them at once.
_AHEAD = 16
_LOOKED_AT = 1_000


class Renewing:
    """Gives out what is to be derived anew, to the workers of one database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def derivation(self) -> Derivation:
        """By which deriver the log was derived, and how far it is derived anew."""
        with self._database.reading() as connection:
            return _read(said_about(connection, DERIVED))

    def renew(self, number: int) -> Derivation:
        """Give out what is next to be derived anew, until all of it is of this number."""
        known = self.derivation()
        if not known.leaves(number):
            return known
        with self._database.writing() as connection:
            mine = self._mine(connection)
            if mine is None or not mine.leaves(number):
                return mine or known
            begun = mine if mine.newest == number else self._begun(connection, mine, number)
            further = self._further(connection, begun)
            if further != mine:
                _write(connection, further)
            return further

    def derived(self, number: int) -> None:
        """All of it was derived by this number."""
        with self._database.writing() as connection:
            self._made(connection)
            _write(connection, Derivation(number, number))

    def _made(self, connection: Connection) -> None:
        """Have the row there that workers lock."""
        insert = self._database.insert(about).values(name=DERIVED, value="")
        connection.execute(insert.on_conflict_do_nothing())

    def _mine(self, connection: Connection) -> Derivation | None:
        """What is known, locked; None where another worker is at it."""
        self._made(connection)
        ask = select(about.c.value).where(about.c.name == DERIVED)
        value = connection.execute(ask.with_for_update(skip_locked=True)).scalar()
        return None if value is None else _read(value)

    def _begun(self, connection: Connection, known: Derivation, number: int) -> Derivation:
        last = connection.execute(select(func.max(raw_turns.c.id))).scalar() or 0
        return Derivation(known.version, number, last + 1, last + 1)

    def _further(self, connection: Connection, known: Derivation) -> Derivation:
        ahead = select(func.count()).where(
            dirty.c.first_dirtied_at >= BACKGROUND, dirty.c.failed.is_(None)
        )
        waiting = connection.execute(ahead).scalar() or 0
        if known.below and waiting < _AHEAD:
            sessions, below = self._next(connection, known.below)
            mark_dirty(self._database, connection, sorted(set(sessions)), BACKGROUND)
            return replace(known, below=below)
        if not known.below and not waiting:
            return Derivation(known.newest, known.newest)
        return known

    def _next(self, connection: Connection, below: int) -> tuple[Sequence[tuple[str, str]], int]:
        """The sessions whose last turns are the next ones, and where to go on."""
        later = raw_turns.alias("later")
        lowest = max(below - _LOOKED_AT, 0)
        ask = (
            select(raw_turns.c.id, raw_turns.c.org_id, raw_turns.c.session_id)
            .where(
                raw_turns.c.id < below,
                raw_turns.c.id >= lowest,
                raw_turns.c.session_id.is_not(None),
                ~select(later.c.id)
                .where(
                    later.c.org_id == raw_turns.c.org_id,
                    later.c.session_id == raw_turns.c.session_id,
                    later.c.id > raw_turns.c.id,
                )
                .exists(),
            )
            .order_by(raw_turns.c.id.desc())
            .limit(_AHEAD)
        )
        rows = connection.execute(ask).all()
        found = [(row.org_id, row.session_id) for row in rows]
        if len(rows) == _AHEAD:
            return found, rows[-1].id
        before = select(func.max(raw_turns.c.id)).where(raw_turns.c.id < lowest)
        before_that = connection.execute(before).scalar()
        return found, 0 if before_that is None else before_that + 1


def _read(value: str) -> Derivation:
    """What the database says of it: a number, or from which to which, and how far."""
    numbers = [int(part) for part in value.split()] or [0]
    return Derivation(*numbers) if len(numbers) > 1 else Derivation(numbers[0], numbers[0])


def _write(connection: Connection, known: Derivation) -> None:
    numbers = (known.version, known.newest, known.below, known.top)
    value = " ".join(map(str, numbers)) if known.lasts else str(known.version)
    connection.execute(update(about).where(about.c.name == DERIVED).values(value=value))
