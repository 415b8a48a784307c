"""Where turns belong that name no session, and by what they find each other.

A turn leaves marks; one that goes on from it seeks them, and belongs to the session of the last
turn before it that left one. What the marks are, derivers know.

Rule 1: turns are looked at by one worker at a time, those that began first first.
Rule 2: the order of arrival does not matter: when a turn comes late, or moves, those that go on
        from it are looked at again.

Knows nothing of words or providers.
"""

import hashlib
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, and_, bindparam, delete, insert, null, select, tuple_, update

from tapes.errors import DamagedStore
from tapes.rows import RawTurn, moments
from tapes.store.appending import mark_dirty
from tapes.store.base import Placement
from tapes.store.database import Database
from tapes.store.logreading import TurnReader
from tapes.store.migrate import PLACING
from tapes.store.tables import about, raw_turns, skips, turn_marks

Moment = tuple[int, int]  # when a turn began, and its id


@dataclass(slots=True)
class PlacingWork:
    """Turns to be placed; where they belong is written when the work is over."""

    database: Database
    connection: Connection
    turns: tuple[tuple[str, RawTurn], ...] = ()
    damaged: list[tuple[str, int, str]] = field(default_factory=list)
    _placed: list[tuple[str, Placement]] = field(default_factory=list)
    _left: dict[tuple[str, bytes], list[tuple[Moment, str]]] = field(default_factory=dict)

    def left_by(self, org_id: str, mark: str, before: Moment) -> str | None:
        """The session of the last turn before that moment that left a mark, or None.

        One that is itself to be placed is not counted: when it is, this one is looked at again.
        """
        key = mark_key(mark)
        values = {"org": org_id, "mark": key, "started": before[0], "turn": before[1]}
        row = self.connection.execute(_LAST_THAT_LEFT, values).first()
        found = None if row is None else ((row.started_at, row.raw_turn_id), row.placed)
        here = [known for known in self._left.get((org_id, key), ()) if known[0] < before]
        both = (*here, *([found] if found else []))
        latest = max(both, key=lambda known: known[0], default=None)
        return None if latest is None else latest[1]

    def put(self, org_id: str, placement: Placement) -> None:
        """Where a turn belongs."""
        self._placed.append((org_id, placement))
        moment = (placement.started_at, placement.raw_turn_id)
        if placement.session_id is not None:
            for mark in placement.left:
                known = self._left.setdefault((org_id, mark_key(mark)), [])
                known.append((moment, placement.harness_session_id))

    def write(self, connection: Connection) -> None:
        """Write all that was put."""
        for org_id in sorted({org for org, _ in self._placed}):
            _write(
                self.database, connection, org_id, [p for org, p in self._placed if org == org_id]
            )

    @property
    def is_done(self) -> bool:
        """Whether nothing is to be written."""
        return not self._placed


class Placements:
    """Hands out turns to be placed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @contextmanager
    def placing(self, limit: int) -> Iterator[PlacingWork | None]:
        """Turns that name no session and were not looked at; None where another worker is at it."""
        if self._database.is_postgres:
            with self._database.writing() as connection:
                lock = select(about.c.name).where(about.c.name == PLACING)
                lock = lock.with_for_update(skip_locked=True)
                if connection.execute(lock).first() is None:
                    yield None
                    return
                work = self._work(connection, limit)
                yield work
                work.write(connection)
            return
        with self._database.reading() as connection:
            work = self._work(connection, limit)
            yield work
        if not work.is_done:
            with self._database.writing() as connection:
                work.write(connection)

    def _work(self, connection: Connection, limit: int) -> PlacingWork:
        work = PlacingWork(self._database, connection)
        rows = connection.execute(_UNPLACED.limit(limit)).mappings().all()
        readers: dict[str, TurnReader] = {}
        turns: list[tuple[str, RawTurn]] = []
        for row in rows:
            org_id = row["org_id"]
            reader = readers.setdefault(org_id, TurnReader(connection, org_id))
            try:
                turns.append((org_id, reader.read(row)))
            except DamagedStore as error:
                moment = row["started_at"] or row["received_at"]
                work.put(org_id, Placement(row["id"], "", None, moment, skipped="damaged"))
                work.damaged.append((org_id, row["id"], error.message))
        turns.sort(key=lambda each: (moments(each[1])[0], each[1].id))
        work.turns = tuple(turns)
        return work


_UNPLACED = (
    select(raw_turns)
    .where(raw_turns.c.session_id.is_(None), raw_turns.c.placed.is_(None))
    .order_by(raw_turns.c.id)
)
_LAST_THAT_LEFT = (
    select(turn_marks.c.started_at, turn_marks.c.raw_turn_id, raw_turns.c.placed)
    .join(raw_turns, raw_turns.c.id == turn_marks.c.raw_turn_id)
    .where(
        turn_marks.c.org_id == bindparam("org"),
        turn_marks.c.mark == bindparam("mark"),
        turn_marks.c.sought == 0,
        raw_turns.c.placed.is_not(None),
        tuple_(turn_marks.c.started_at, turn_marks.c.raw_turn_id)
        < tuple_(bindparam("started"), bindparam("turn")),
    )
    .order_by(turn_marks.c.started_at.desc(), turn_marks.c.raw_turn_id.desc())
    .limit(1)
)


def _write(
    database: Database, connection: Connection, org_id: str, placements: Sequence[Placement]
) -> None:
    ids = [placement.raw_turn_id for placement in placements]
    own = and_(raw_turns.c.org_id == org_id, raw_turns.c.id.in_(ids))
    there = set(connection.execute(select(raw_turns.c.id).where(own)).scalars())
    mine = [p for p in placements if p.raw_turn_id in there]  # others were erased meanwhile
    if not mine:
        return
    for table in (turn_marks, skips):
        gone = and_(table.c.org_id == org_id, table.c.raw_turn_id.in_(ids))
        connection.execute(delete(table).where(gone))
    connection.execute(_PLACE, [_placed(org_id, placement) for placement in mine])
    for placement in mine:
        unplace_followers(database, connection, org_id, placement, set(ids))
    marks = [row for placement in mine for row in _marks(org_id, placement)]
    if marks:
        connection.execute(insert(turn_marks), marks)
    skipped = [
        {"org_id": org_id, "raw_turn_id": p.raw_turn_id, "reason": p.skipped}
        for p in mine
        if p.skipped
    ]
    if skipped:
        connection.execute(insert(skips), skipped)
    dirtied = sorted({(org_id, p.session_id) for p in mine if p.session_id is not None})
    mark_dirty(database, connection, dirtied, time.time_ns())


_PLACE = (
    update(raw_turns)
    .where(raw_turns.c.id == bindparam("turn"), raw_turns.c.org_id == bindparam("org"))
    .values(session_id=bindparam("session"), placed=bindparam("called"))
)


def _placed(org_id: str, placement: Placement) -> dict[str, Any]:
    return {
        "turn": placement.raw_turn_id,
        "org": org_id,
        "session": placement.session_id,
        "called": placement.harness_session_id,
    }


def _marks(org_id: str, placement: Placement) -> Iterator[dict[str, Any]]:
    owned = {
        "org_id": org_id,
        "started_at": placement.started_at,
        "raw_turn_id": placement.raw_turn_id,
    }
    for mark in dict.fromkeys(placement.left):
        yield owned | {"mark": mark_key(mark), "sought": 0}
    for number, mark in enumerate(dict.fromkeys(placement.sought), 1):
        yield owned | {"mark": mark_key(mark), "sought": number}


def mark_key(mark: str) -> bytes:
    """A mark as a column keeps it."""
    return hashlib.blake2b(mark.encode("utf-8", "replace"), digest_size=16).digest()


# --- looking again ----------------------------------------------------------------------------


def unplace_followers(
    database: Database,
    connection: Connection,
    org_id: str,
    placement: Placement,
    but: set[int],
) -> None:
    """Later turns that go on from this one and are elsewhere are looked at again."""
    keys = [mark_key(mark) for mark in placement.left]
    if not keys:
        return
    later = tuple_(turn_marks.c.started_at, turn_marks.c.raw_turn_id) > tuple_(
        placement.started_at, placement.raw_turn_id
    )
    ask = select(turn_marks.c.raw_turn_id).where(
        turn_marks.c.org_id == org_id,
        turn_marks.c.mark.in_(keys),
        turn_marks.c.sought > 0,
        later,
    )
    followers = set(connection.execute(ask).scalars()) - but
    _unplace(database, connection, org_id, followers, but_in=placement.session_id)


def unplace_dependents(
    database: Database, connection: Connection, org_id: str, ids: Sequence[int]
) -> None:
    """Turns that went on from these, which go, are looked at again."""
    left = select(turn_marks.c.mark).where(
        turn_marks.c.org_id == org_id,
        turn_marks.c.raw_turn_id.in_(ids),
        turn_marks.c.sought == 0,
    )
    seeking = select(turn_marks.c.raw_turn_id).where(
        turn_marks.c.org_id == org_id, turn_marks.c.sought > 0, turn_marks.c.mark.in_(left)
    )
    followers = set(connection.execute(seeking).scalars()) - set(ids)
    _unplace(database, connection, org_id, followers)


def _unplace(
    database: Database,
    connection: Connection,
    org_id: str,
    ids: set[int],
    but_in: str | None = None,
) -> None:
    """Those of these turns are looked at again that were placed by what they say."""
    found = sorted(ids)
    values = {"org": org_id, "but": but_in or _NO_SESSION}
    rows = database.rows_among(connection, _PLACED_IN, raw_turns.c.id, found, **values)
    left = {row[0] for row in rows if row[0] is not None}
    database.run_among(connection, _UNPLACE, raw_turns.c.id, found, **values)
    mark_dirty(database, connection, sorted((org_id, s) for s in left), time.time_ns())


_NO_SESSION = str(UUID(int=0))
_ELSEWHERE = and_(
    raw_turns.c.org_id == bindparam("org"),
    raw_turns.c.harness_session_id == "",
    raw_turns.c.corrected.is_(False),
    raw_turns.c.session_id != bindparam("but"),
)
# A turn may be gone on from by any number of others: a part of their ids at a time.
_PLACED_IN = select(raw_turns.c.session_id).where(_ELSEWHERE).distinct()
_UNPLACE = update(raw_turns).where(_ELSEWHERE).values(session_id=null(), placed=null())
