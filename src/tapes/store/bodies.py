"""Request bodies in the log: each against the one before, and how it is read again.

Rule 1: a body is packed against a turn that lies in the log already, of the same tenant. The turn
        that shares most is taken, of those that were kept last and are likely to share something.
Rule 2: chains are short. Every 256th body of a chain is packed against the 256th before, so that
        the way to any body has at most 256 steps and one for each 256 before.
Rule 3: every body carries a check. A chain that gives other bytes is damage, and says where.
"""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, select

from tapes.errors import DamagedStore
from tapes.store.cuts import Cut, cut, joined, with_cuts, without_cuts
from tapes.store.database import Database
from tapes.store.packing import (
    NewerWay,
    NotPacked,
    Packed,
    Way,
    check_of,
    common_prefix,
    pack,
    pack_against,
    unpack,
    way_of,
)
from tapes.store.tables import blobs, raw_turns
from tapes.store.turnforms import Prepared

# Every so many bodies of a chain.
STEP = 256
# How many bodies of a lineage are remembered, and how many bytes of all.
_REMEMBERED = 24
_BYTES = 64 * 1024 * 1024
# What one takes beside its bytes: most lineages of a log are of one short body.
_OF_A_BASE = 400
# How many are read where none is remembered.
_READ = 3
_CHAIN = 1 << 20

_CHAIN_COLUMNS = (
    raw_turns.c.id,
    raw_turns.c.base_id,
    raw_turns.c.depth,
    raw_turns.c.way,
    raw_turns.c.prefix,
    raw_turns.c.suffix,
    raw_turns.c.body_check,
    raw_turns.c.request,
)


@dataclass(frozen=True, slots=True)
class Base:
    """A body in the log that others can be packed against."""

    id: int
    depth: int
    body: bytes


@dataclass(frozen=True, slots=True)
class PackedBody:
    """A body as it goes into its row, and the parts that were cut out of it."""

    columns: Mapping[str, Any]
    cuts: tuple[Cut, ...]
    base: Base | None


@dataclass(frozen=True, slots=True)
class Ahead:
    """A turn whose body was packed before it is written: against what was the best at that time.

    That holds as long as `last` is the last that is remembered of its lineage.
    """

    turn: Prepared
    last: Base | None = None
    packed: PackedBody | None = None


class Recent:
    """The bodies that were kept last, by lineage: what the next ones are packed against."""

    def __init__(self) -> None:
        self._lineages: OrderedDict[tuple[str, int], list[Base]] = OrderedDict()
        self._size = 0

    def find(self, org_id: str, lineage: int) -> list[Base] | None:
        """The bodies of a lineage, or None where none is remembered."""
        key = (org_id, lineage)
        if key not in self._lineages:
            return None
        self._lineages.move_to_end(key)
        return self._lineages[key]

    def seen(self, org_id: str, lineage: int) -> tuple[Base, ...]:
        """The bodies of a lineage as they are just now, whoever may be adding some."""
        return tuple(self._lineages.get((org_id, lineage), ()))

    def add(self, org_id: str, lineage: int, base: Base, *, instead_of: Base | None = None) -> None:
        """Remember a body; the one that it goes on from need not be remembered any more."""
        known = self._lineages.setdefault((org_id, lineage), [])
        if instead_of is not None and instead_of in known:
            self._drop(known, known.index(instead_of))
        known.append(base)
        self._size += len(base.body) + _OF_A_BASE
        if len(known) > _REMEMBERED:
            self._drop(known, 0)
        while self._size > _BYTES and len(self._lineages) > 1:
            _, oldest = self._lineages.popitem(last=False)
            self._size -= sum(len(each.body) + _OF_A_BASE for each in oldest)

    def _drop(self, known: list[Base], at: int) -> None:
        self._size -= len(known.pop(at).body) + _OF_A_BASE

    def forget(self) -> None:
        """Forget everything: what is remembered may not be in the log."""
        self._lineages.clear()
        self._size = 0


# --- packing ----------------------------------------------------------------------------------


def best_base(body: bytes, known: Sequence[Base]) -> Base | None:
    """The base that shares the longest beginning; of several the last."""
    best, length = None, 0
    for base in reversed(known):
        # A longer beginning has this byte in common as well.
        if best is not None and base.body[length : length + 1] != body[length : length + 1]:
            continue
        shared = common_prefix(body, base.body)
        if best is None or shared > length:
            best, length = base, shared
    return best


def leads_back(base: Base) -> bool:
    """Whether what is packed against this base is packed against one that was long before."""
    return (base.depth + 1) % STEP == 0


def packed_ahead(turn: Prepared, known: Sequence[Base]) -> Ahead:
    """A turn with its body packed, but where a body from long before has to be read for it."""
    base = best_base(turn.body, known)
    if base is None:
        return Ahead(turn, None, _packed(turn.body, None, 0))
    if leads_back(base):
        return Ahead(turn)
    return Ahead(turn, known[-1], _packed(turn.body, base, base.depth + 1))


def packed_body(connection: Connection, prepared: Prepared, base: Base | None) -> PackedBody:
    """The body of a turn, packed against a base where that helps."""
    body = prepared.body
    if base is not None and leads_back(base):
        return _packed(body, _keyframe(connection, prepared.org_id, base), base.depth + 1)
    return _packed(body, base, 0 if base is None else base.depth + 1)


def _packed(body: bytes, base: Base | None, depth: int) -> PackedBody:
    cuts: tuple[Cut, ...] = ()
    packed = None if base is None else pack_against(body, base.body)
    if packed is None:
        base, depth = None, 0
        left, cuts = cut(body)
        packed = pack(left)
    columns = {
        "way": packed.way.value,
        "base_id": None if base is None else base.id,
        "depth": depth,
        "prefix": packed.prefix,
        "suffix": packed.suffix,
        "body_check": check_of(body),
        "request": with_cuts(packed.data, cuts),
    }
    return PackedBody(columns, cuts, base)


def _keyframe(connection: Connection, org_id: str, base: Base) -> Base:
    """The nearest body before, in a base's chain, that stands at a multiple of the step."""
    links = _chain(connection, org_id, base.id)
    for number, link in enumerate(links):
        if link["depth"] % STEP == 0:
            return Base(link["id"], link["depth"], _followed(connection, org_id, links[number:]))
    return base


# --- reading ----------------------------------------------------------------------------------


def read_body(connection: Connection, org_id: str, turn_id: int) -> bytes:
    """The body of a turn's request. Raises DamagedStore."""
    return _followed(connection, org_id, _chain(connection, org_id, turn_id))


def body_of(
    connection: Connection, org_id: str, row: Mapping[Any, Any], known: Mapping[int, bytes]
) -> bytes:
    """The body of a row that was read. `known` are bodies that were read before.

    Raises DamagedStore.
    """
    base_id = row["base_id"]
    if base_id is None or base_id in known:
        return unpacked(connection, org_id, row, known.get(base_id))
    return _followed(connection, org_id, _chain(connection, org_id, row["id"]), known)


_ONE = select(*_CHAIN_COLUMNS).where(
    raw_turns.c.id == bindparam("id"), raw_turns.c.org_id == bindparam("org")
)


def _whole_chain() -> Any:
    start = (
        select(raw_turns.c.id, raw_turns.c.base_id)
        .where(raw_turns.c.id == bindparam("id"), raw_turns.c.org_id == bindparam("org"))
        .cte("chain", recursive=True)
    )
    # `UNION`, not `UNION ALL`: a chain that bites its own tail ends all the same.
    chain = start.union(
        select(raw_turns.c.id, raw_turns.c.base_id).join(start, raw_turns.c.id == start.c.base_id)
    )
    return (
        select(*_CHAIN_COLUMNS)
        .join(chain, raw_turns.c.id == chain.c.id)
        .where(raw_turns.c.org_id == bindparam("org"))
        .order_by(raw_turns.c.id.desc())
    )


_ALL = _whole_chain()


def _chain(connection: Connection, org_id: str, turn_id: int) -> list[Mapping[Any, Any]]:
    """The rows from a turn down to a whole body."""
    values = {"id": turn_id, "org": org_id}
    first = connection.execute(_ONE, values).mappings().first()
    if first is None:
        raise _damaged(turn_id, "it is missing, and another turn is packed against it")
    if first["base_id"] is None:
        return [first]
    rows = {row["id"]: row for row in connection.execute(_ALL, values).mappings()}
    links, at = list[Mapping[Any, Any]](), rows.get(turn_id)
    while at is not None and len(links) <= len(rows):
        links.append(at)
        at = rows.get(at["base_id"])
    return links


def _followed(
    connection: Connection,
    org_id: str,
    links: Sequence[Mapping[Any, Any]],
    known: Mapping[int, bytes] | None = None,
) -> bytes:
    """The body at the beginning of a chain."""
    body = (known or {}).get(links[-1]["base_id"]) if links[-1]["base_id"] is not None else None
    for link in reversed(links):
        body = unpacked(connection, org_id, link, body)
    assert body is not None
    return body


def unpacked(
    connection: Connection, org_id: str, row: Mapping[Any, Any], base: bytes | None
) -> bytes:
    """The body of a row, its base's body given. Raises DamagedStore."""
    try:
        data, cuts = without_cuts(row["request"])
        packed = Packed(way_of(row["way"]), data, row["prefix"], row["suffix"])
        body = unpack(packed, base)
        if cuts:
            body = joined(body, cuts, lambda hash_: _blob(connection, org_id, hash_))
    except NewerWay as error:
        raise DamagedStore(
            f"turn {row['id']} cannot be read: {error}",
            "upgrade with: pip install --upgrade tapes-py",
        ) from error
    except (NotPacked, ValueError) as error:
        raise _damaged(row["id"], str(error)) from error
    if check_of(body) != row["body_check"]:
        raise _damaged(row["id"], "its request is not the one that was kept")
    return body


_BLOB = select(blobs.c.data).where(
    blobs.c.org_id == bindparam("org"), blobs.c.hash == bindparam("hash")
)


def _blob(connection: Connection, org_id: str, hash_: bytes) -> bytes:
    data = connection.execute(_BLOB, {"org": org_id, "hash": hash_}).scalar()
    if data is None:
        raise NotPacked(f"a part of it is missing ({hash_.hex()[:12]})")
    return unpack(Packed(Way.WHOLE, bytes(data)))


def _damaged(turn_id: int, what: str) -> DamagedStore:
    return DamagedStore(
        f"damaged log: turn {turn_id}: {what}", "the others are untouched; restore it from a backup"
    )


_IN_ORG = raw_turns.c.org_id == bindparam("org")
_UNNAMED = raw_turns.c.session_id.is_(None)
_SESSIONS = select(raw_turns.c.session_id).where(_IN_ORG).distinct()
_LINEAGES = select(raw_turns.c.lineage).where(_IN_ORG, _UNNAMED).distinct()
_LAST = (
    select(raw_turns.c.id, raw_turns.c.depth)
    .where(_IN_ORG, raw_turns.c.lineage == bindparam("lineage"))
    .order_by(raw_turns.c.id.desc())
    .limit(_READ)
)
_LAST_UNNAMED = _LAST.where(_UNNAMED)
_LAST_OF_SESSION = _LAST.where(raw_turns.c.session_id == bindparam("session"))

# The session that turns name, or None where they name none, and their lineage.
Line = tuple[str | None, int]


def last_bases(
    database: Database, connection: Connection, org_id: str, lines: Collection[Line]
) -> dict[int, list[Base]]:
    """The bodies of each lineage that were kept last, the latest at the end."""
    sessions = sorted({session for session, _ in lines if session is not None})
    column = raw_turns.c.session_id
    found = database.rows_among(connection, _SESSIONS, column, sessions, org=org_id)
    known = {session for (session,) in found}
    unnamed = sorted(lineage for session, lineage in lines if session is None)
    column = raw_turns.c.lineage
    found = database.rows_among(connection, _LINEAGES, column, unnamed, org=org_id)
    there = [line for line in lines if line[0] in known] + [(None, lineage) for (lineage,) in found]
    return {lineage: _last_bases(connection, org_id, (of, lineage)) for of, lineage in there}


def _last_bases(connection: Connection, org_id: str, line: Line) -> list[Base]:
    session, lineage = line
    last = _LAST_UNNAMED if session is None else _LAST_OF_SESSION
    values = {"org": org_id, "lineage": lineage, "session": session}
    if session is None:
        del values["session"]
    rows = connection.execute(last, values).all()
    bases = []
    for turn_id, depth in reversed(rows):
        try:
            bases.append(Base(turn_id, depth, read_body(connection, org_id, turn_id)))
        except DamagedStore:
            continue  # what is damaged is no base for others
    return bases
