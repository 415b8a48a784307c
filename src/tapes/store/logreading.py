"""Raw turns out of the log: single ones, those of a session, all of them one by one.

Knows nothing of deriving.
"""

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, select, true

from tapes.errors import DamagedStore
from tapes.rows import RawTurn
from tapes.store.base import TurnHead
from tapes.store.bodies import read_body
from tapes.store.database import Database
from tapes.store.packing import NotPacked
from tapes.store.tables import corrections, raw_turns, skips
from tapes.store.turnforms import restored

# How many bytes of bodies a reader of many turns remembers: the next ones go on from them.
_REMEMBERED = 48 * 1024 * 1024
_AT_ONCE = 64


class TurnReader:
    """Reads turns of one tenant, best in the order of their ids."""

    def __init__(self, connection: Connection, org_id: str) -> None:
        self._connection, self._org = connection, org_id
        self._bodies: OrderedDict[int, bytes] = OrderedDict()
        self._size = 0

    def read(self, row: Mapping[Any, Any]) -> RawTurn:
        """The turn of a row. Raises DamagedStore."""
        body = read_body(self._connection, self._org, row["id"], self._bodies)
        self._remember(row["id"], row["base_id"], body)
        try:
            turn = restored(row, body)
        except NotPacked as error:
            raise DamagedStore(
                f"damaged log: turn {row['id']}: {error}",
                "the others are untouched; restore it from a backup",
            ) from error
        return self._corrected(turn) if row["corrected"] else turn

    def _remember(self, turn_id: int, base_id: int | None, body: bytes) -> None:
        if base_id is not None and base_id in self._bodies:
            self._bodies.move_to_end(base_id)
        self._bodies[turn_id] = body
        self._size += len(body)
        while self._size > _REMEMBERED and len(self._bodies) > 1:
            self._size -= len(self._bodies.popitem(last=False)[1])

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
        for start in range(0, len(ids), _AT_ONCE):
            some = sorted(ids)[start : start + _AT_ONCE]
            values = {"ids": some, "org": self._org}
            for row in self._connection.execute(_BY_IDS, values).mappings().all():
                yield self.read(row)


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
    database: Database, org_id: str, *, session_id: str | None = None, after: int = 0
) -> Iterator[RawTurn]:
    """Turns in the order of arrival; no transaction is held while the caller works."""
    where = true() if session_id is None else raw_turns.c.session_id == session_id
    for turn, _ in _stream(database, org_id, where, after):
        yield turn


def unnamed_turns(
    database: Database, org_id: str, where: ColumnElement[bool]
) -> Iterator[tuple[RawTurn, str]]:
    """Turns as they were captured, each with the conversation that it was placed in."""
    for turn, placed in _stream(database, org_id, where, 0):
        yield replace(turn, envelope=replace(turn.envelope, harness_session_id="")), placed or ""


def _stream(
    database: Database, org_id: str, where: ColumnElement[bool], after: int
) -> Iterator[tuple[RawTurn, str | None]]:
    reader: TurnReader | None = None
    ask = select(raw_turns).where(raw_turns.c.org_id == org_id, where).order_by(raw_turns.c.id)
    while True:
        with database.reading() as connection:
            reader = _moved(reader, connection, org_id)
            some = ask.where(raw_turns.c.id > after).limit(_AT_ONCE)
            rows = connection.execute(some).mappings().all()
            turns = [(reader.read(row), row["placed"]) for row in rows]
        if not turns:
            return
        yield from turns
        after = turns[-1][0].id


def _moved(reader: TurnReader | None, connection: Connection, org_id: str) -> TurnReader:
    """A reader in another transaction, with what it remembers."""
    moved = TurnReader(connection, org_id)
    if reader is not None:
        moved._bodies, moved._size = reader._bodies, reader._size
    return moved


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
