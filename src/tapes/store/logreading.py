"""Raw turns out of the log: single ones, those of a session, all of them one by one.

Knows nothing of deriving.
"""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, func, select, true

from tapes.errors import DamagedStore
from tapes.rows import RawTurn
from tapes.store.base import Correction, TurnHead
from tapes.store.bodies import body_of
from tapes.store.database import Database
from tapes.store.packing import NotPacked
from tapes.store.tables import corrections, raw_turns, skips
from tapes.store.turnforms import restored

# How many bytes of bodies a reader of many turns remembers: the next ones go on from them.
_REMEMBERED = 48 * 1024 * 1024
# What one takes beside its bytes.
_OF_A_BODY = 200
_AT_ONCE = 64


class Bodies(Mapping[int, bytes]):
    """The bodies that were read last, by the ids of their turns; for several threads."""

    def __init__(self, most: int = _REMEMBERED) -> None:
        self._most = most
        self._bodies: OrderedDict[int, bytes] = OrderedDict()
        self._size = 0
        self._mutex = threading.Lock()

    def __getitem__(self, turn_id: int) -> bytes:
        with self._mutex:
            body = self._bodies[turn_id]
            self._bodies.move_to_end(turn_id)
            return body

    def __len__(self) -> int:
        return len(self._bodies)

    def __iter__(self) -> Iterator[int]:
        return iter(tuple(self._bodies))

    def add(self, turn_id: int, body: bytes) -> None:
        """Remember a body, and let go of what was not used for longest."""
        with self._mutex:
            before = self._bodies.pop(turn_id, None)
            self._size += len(body) - (-_OF_A_BODY if before is None else len(before))
            self._bodies[turn_id] = body
            while self._size > self._most and len(self._bodies) > 1:
                self._size -= len(self._bodies.popitem(last=False)[1]) + _OF_A_BODY

    def forget(self) -> None:
        """Forget everything: something was erased."""
        with self._mutex:
            self._bodies.clear()
            self._size = 0


class TurnReader:
    """Reads turns of one tenant, best in the order of their ids."""

    def __init__(self, connection: Connection, org_id: str, bodies: Bodies | None = None) -> None:
        self._connection, self._org = connection, org_id
        self.bodies = Bodies() if bodies is None else bodies

    def read(self, row: Mapping[Any, Any], *, as_captured: bool = False) -> RawTurn:
        """The turn of a row, corrected unless it is wanted as captured. Raises DamagedStore."""
        body = body_of(self._connection, self._org, row, self.bodies)
        self.bodies.add(row["id"], body)
        try:
            turn = restored(row, body)
        except NotPacked as error:
            raise DamagedStore(
                f"damaged log: turn {row['id']}: {error}",
                "the others are untouched; restore it from a backup",
            ) from error
        return self._corrected(turn) if row["corrected"] and not as_captured else turn

    def _corrected(self, turn: RawTurn) -> RawTurn:
        said = self._connection.execute(_CORRECTION, {"id": turn.id, "org": self._org}).first()
        if said is None:
            return turn
        envelope = replace(
            turn.envelope,
            harness_id=said.harness_id,
            harness_session_id=said.harness_session_id,
            parent_harness_session_id=said.parent_harness_session_id,
        )
        return replace(turn, envelope=envelope, thread_id=said.thread_id)

    def by_ids(self, ids: Sequence[int]) -> Iterator[RawTurn]:
        """The turns of these ids, in their order."""
        for row in self.rows(ids):
            yield self.read(row)

    def rows(self, ids: Sequence[int]) -> Iterator[Mapping[Any, Any]]:
        """The rows of these ids, in their order."""
        ordered = sorted(ids)
        for start in range(0, len(ordered), _AT_ONCE):
            values = {"ids": ordered[start : start + _AT_ONCE], "org": self._org}
            yield from self._connection.execute(_BY_IDS, values).mappings().all()


class SessionTurns:
    """Reads the turns of several sessions of one tenant, with few questions to the database."""

    def __init__(
        self, reader: TurnReader, connection: Connection, known: Mapping[str, frozenset[int]],
        org_id: str,
    ) -> None:  # fmt: skip
        self._reader = reader
        self._ids: dict[str, list[int]] = {session_id: [] for session_id in known}
        self._missing: dict[str, list[int]] = {session_id: [] for session_id in known}
        values = {"org": org_id, "sessions": list(known)}
        for session_id, turn_id, corrected in connection.execute(_IDS, values).all():
            self._ids[session_id].append(turn_id)
            # A correction may be newer than what is known.
            if corrected or turn_id not in known[session_id]:
                self._missing[session_id].append(turn_id)
        few = [n for ids in self._missing.values() if len(ids) <= _FEW for n in ids]
        self._rows = {row["id"]: row for row in reader.rows(few)}

    def of(self, session_id: str) -> tuple[frozenset[int], list[RawTurn]]:
        """The ids of a session's turns, and those of its turns that are not known.

        Raises DamagedStore.
        """
        missing = self._missing[session_id]
        if len(missing) <= _FEW:
            turns = [self._reader.read(self._rows.pop(turn_id)) for turn_id in missing]
        else:
            turns = list(self._reader.by_ids(missing))
        return frozenset(self._ids[session_id]), turns


# So many turns of a session are read together with those of others.
_FEW = 8
_IDS = (
    select(raw_turns.c.session_id, raw_turns.c.id, raw_turns.c.corrected)
    .where(
        raw_turns.c.org_id == bindparam("org"),
        raw_turns.c.session_id.in_(bindparam("sessions", expanding=True)),
    )
    .order_by(raw_turns.c.session_id, raw_turns.c.id)
)
_BY_IDS = (
    select(raw_turns)
    .where(
        raw_turns.c.id.in_(bindparam("ids", expanding=True)), raw_turns.c.org_id == bindparam("org")
    )
    .order_by(raw_turns.c.id)
)
_CORRECTION = (
    select(corrections)
    .where(corrections.c.raw_turn_id == bindparam("id"), corrections.c.org_id == bindparam("org"))
    .order_by(corrections.c.id.desc())
    .limit(1)
)


def stream_turns(
    database: Database,
    org_id: str,
    *,
    session_id: str | None = None,
    after: int = 0,
    as_captured: bool = False,
) -> Iterator[RawTurn]:
    """Turns in the order of arrival; no transaction is held while the caller works."""
    where = true() if session_id is None else raw_turns.c.session_id == session_id
    for turn, _ in _stream(database, org_id, where, after, as_captured=as_captured):
        yield turn


def all_corrections(database: Database, org_id: str) -> Iterator[Correction]:
    """The correction that holds of each turn that has one."""
    newest = select(func.max(corrections.c.id)).where(corrections.c.org_id == org_id)
    ask = select(corrections).where(
        corrections.c.id.in_(newest.group_by(corrections.c.raw_turn_id))
    )
    with database.reading() as connection:
        rows = connection.execute(ask.order_by(corrections.c.raw_turn_id)).mappings().all()
    for row in rows:
        yield Correction(**{name: row[name] for name in Correction.__slots__})


def unnamed_turns(
    database: Database, org_id: str, where: ColumnElement[bool]
) -> Iterator[tuple[RawTurn, str]]:
    """Turns as they were captured, each with the conversation that it was placed in."""
    for turn, placed in _stream(database, org_id, where, 0):
        yield replace(turn, envelope=replace(turn.envelope, harness_session_id="")), placed or ""


def _stream(
    database: Database,
    org_id: str,
    where: ColumnElement[bool],
    after: int,
    *,
    as_captured: bool = False,
) -> Iterator[tuple[RawTurn, str | None]]:
    reader: TurnReader | None = None
    ask = select(raw_turns).where(raw_turns.c.org_id == org_id, where).order_by(raw_turns.c.id)
    while True:
        with database.reading() as connection:
            reader = _moved(reader, connection, org_id)
            some = ask.where(raw_turns.c.id > after).limit(_AT_ONCE)
            rows = connection.execute(some).mappings().all()
            turns = [(reader.read(row, as_captured=as_captured), row["placed"]) for row in rows]
        if not turns:
            return
        yield from turns
        after = turns[-1][0].id


def _moved(reader: TurnReader | None, connection: Connection, org_id: str) -> TurnReader:
    """A reader in another transaction, with what it remembers."""
    return TurnReader(connection, org_id, None if reader is None else reader.bodies)


# --- heads ------------------------------------------------------------------------------------

_BULKY = {"request", "rest"}
HEAD_COLUMNS = tuple(c for c in raw_turns.c if c.name not in _BULKY)
HEADS = select(*HEAD_COLUMNS, skips.c.reason.label("skipped")).select_from(
    raw_turns.outerjoin(
        skips, (skips.c.raw_turn_id == raw_turns.c.id) & (skips.c.org_id == raw_turns.c.org_id)
    )
)


def head_of(row: Mapping[Any, Any]) -> TurnHead:
    """What a row says without its content."""
    return TurnHead(
        id=row["id"],
        request_id=row["request_id"],
        session_id=row["session_id"],
        source=row["source"],
        provider=row["provider"],
        agent_name=row["agent_name"],
        thread_id=row["thread_id"],
        outcome=row["outcome"],
        state=row["state"],
        status=row["status"],
        method=row["method"],
        url=row["url"],
        meta=row["meta"],
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        received_at=row["received_at"],
        request_bytes=row["request_bytes"],
        response_bytes=row["response_bytes"],
        dropped=bool(row["dropped"]),
        skipped=row["skipped"] or "",
    )
