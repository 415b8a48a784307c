"""Turns into the log: each once, in its place, with its session marked for deriving.

Knows nothing of secrets: what comes here is clean.
"""

import hashlib
import os
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from sqlalchemy import Connection, bindparam, literal_column, null, select, tuple_

from tapes.errors import UnavailableStore
from tapes.rows import RawTurn, Source, moments
from tapes.store.base import Kept, Receipt
from tapes.store.bodies import (
    Base,
    PackedBody,
    Recent,
    best_base,
    last_bases,
    leads_back,
    packed_body,
)
from tapes.store.database import Database, insert_into
from tapes.store.packing import squeezed
from tapes.store.tables import (
    blobs,
    claims,
    dirty,
    drops,
    erased_turns,
    raw_turns,
    tombstones,
    turn_blobs,
)
from tapes.store.turnforms import Prepared, prepare

# So many turns of threads that wait for each other go into one transaction.
_TOGETHER = 200


@dataclass(slots=True, eq=False)
class _Wanted:
    """What one caller wants to have kept, and what came of it."""

    turns: Sequence[Prepared]
    receipts: list[Receipt] | None = None
    error: BaseException | None = None
    # Held until he is told: a lock costs a tenth of an event.
    told: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_over(self) -> bool:
        return self.receipts is not None or self.error is not None


class Appending:
    """Writes `raw_turns`.

    One of the callers writes at a time, for all who wait: one flush of the disk serves them all.
    When his own turns are kept he hands on to the first who waits.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._mutex = threading.Lock()  # for what is remembered
        self._recent = Recent()
        self._repeats = False  # whether turns came lately that were known
        self._gate = threading.Lock()  # for who writes, and who waits
        self._is_written = False
        self._wanted: deque[_Wanted] = deque()
        os.register_at_fork(after_in_child=self._in_child)

    def append(self, turns: Sequence[RawTurn]) -> list[Receipt]:
        """Keep turns, all or none."""
        return self.append_prepared([prepare(turn) for turn in turns])

    def append_prepared(self, turns: Sequence[Prepared]) -> list[Receipt]:
        """Keep turns whose parts are ready."""
        mine = _Wanted(turns)
        mine.told.acquire()
        with self._gate:
            self._wanted.append(mine)
            writes, self._is_written = not self._is_written, True
        if not writes:
            mine.told.acquire()
        if not mine.is_over:
            self._write_for_all(mine)
        if mine.error is not None:
            raise mine.error
        return mine.receipts or []

    def _write_for_all(self, mine: _Wanted) -> None:
        while not mine.is_over:
            with self._gate:
                some = self._some()
            self._write(some)
            for each in some:
                each.told.release()
        with self._gate:
            self._is_written = bool(self._wanted)
            if self._wanted:
                self._wanted[0].told.release()  # it is not over: he is the one to write

    def _some(self) -> list[_Wanted]:
        """Those who wait longest, as many as go together."""
        some = [self._wanted.popleft()]
        size = len(some[0].turns)
        while self._wanted and size + len(self._wanted[0].turns) <= _TOGETHER:
            some.append(self._wanted.popleft())
            size += len(some[-1].turns)
        return some

    def _write(self, some: Sequence[_Wanted]) -> None:
        try:
            receipts = iter(self._kept([turn for each in some for turn in each.turns]))
        except BaseException as error:  # noqa: BLE001  # raised where it is waited for
            self._write_each(some, error)
            return
        for each in some:
            each.receipts = [next(receipts) for _ in each.turns]

    def _write_each(self, some: Sequence[_Wanted], error: BaseException) -> None:
        """One of them may be what is wrong: each is kept, or fails, by itself."""
        for each in some:
            if len(some) == 1:
                each.error = error
                continue
            if isinstance(error, UnavailableStore):  # then it is so for all
                each.error = UnavailableStore(error.message, error.remedy)
                continue
            try:
                each.receipts = self._kept(each.turns)
            except BaseException as its:  # noqa: BLE001  # raised where it is waited for
                each.error = its

    def _kept(self, turns: Sequence[Prepared]) -> list[Receipt]:
        with self._mutex:
            # To ask takes long, and writing finds out by itself.
            asks = self._repeats
            while True:
                batch = _Batch(self._database, self._recent, turns, asks=asks)
                try:
                    with self._database.writing() as connection:
                        receipts = batch.write(connection)
                    self._repeats = any(receipt.kept is Kept.KNOWN for receipt in receipts)
                    return receipts
                except _LookAgain:
                    self._recent.forget()
                    asks = True
                except BaseException:
                    self._recent.forget()
                    raise

    def _in_child(self) -> None:
        """After a fork: whoever was writing is the parent's."""
        self._mutex, self._gate = threading.Lock(), threading.Lock()
        self._is_written = False
        self._wanted.clear()

    def forget(self) -> None:
        """Something was erased: nothing may be packed against it."""
        with self._mutex:
            self._recent.forget()


class _LookAgain(Exception):
    """What we built on is not so any more: somebody kept one of these turns, or erased another."""


# The tenant of a part, its hash, and the turn that it was cut out of.
_Part = tuple[str, bytes, int]


def request_hash(request_id: str) -> bytes:
    """What is left of the request id of a turn that was erased."""
    return hashlib.sha256(b"erased " + request_id.encode("utf-8", "surrogatepass")).digest()[:16]


_KNOWN = select(raw_turns.c.id, raw_turns.c.request_id).where(
    raw_turns.c.request_id != literal_column("''"),  # so that the index without these is used
    raw_turns.c.org_id == bindparam("org"),
)
_ERASED = select(erased_turns.c.request_hash).where(
    erased_turns.c.request_hash.in_(bindparam("hashes", expanding=True)),
    erased_turns.c.org_id == bindparam("org"),
)
_ANY_TOMB = select(tombstones.c.org_id).limit(1)
_TOMBS = select(tombstones.c.session_id, tombstones.c.erased_at).where(
    tombstones.c.session_id.in_(bindparam("sessions", expanding=True)),
    tombstones.c.org_id == bindparam("org"),
)


_HELD = select(raw_turns.c.id)
_HELD_FAST = _HELD.with_for_update(read=True, key_share=True)


@dataclass(slots=True)
class _Batch:
    """Turns that are kept in one transaction."""

    database: Database
    recent: Recent
    turns: Sequence[Prepared]
    asks: bool = True  # for turns that are known, before writing any

    def write(self, connection: Connection) -> list[Receipt]:
        receipts: dict[int, Receipt] = {}
        fresh: list[tuple[int, Prepared]] = []
        seen: dict[tuple[str, str], int] = {}
        known = self._known(connection) if self.asks else {}
        erased = self._erased(connection)
        for number, turn in enumerate(self.turns):
            key = (turn.org_id, turn.turn.request_id)
            if number in erased:
                receipts[number] = Receipt(0, Kept.ERASED)
            elif key[1] and key in known:
                receipts[number] = Receipt(known[key], Kept.KNOWN)
            elif key[1] and key in seen:
                continue  # its receipt follows from the first one's
            else:
                seen[key] = number
                fresh.append((number, turn))
        ids = self.database.new_turn_ids(connection, len(fresh)) if fresh else ()
        for (number, _), turn_id in zip(fresh, ids, strict=True):
            receipts[number] = Receipt(turn_id, Kept.NEW)
        self._insert(connection, [turn for _, turn in fresh], list(ids))
        self._mark_dirty(connection, receipts)
        return [
            receipts.get(n) or self._repeated(n, seen, receipts) for n in range(len(self.turns))
        ]

    def _repeated(
        self, number: int, seen: Mapping[tuple[str, str], int], receipts: Mapping[int, Receipt]
    ) -> Receipt:
        turn = self.turns[number]
        return Receipt(receipts[seen[turn.org_id, turn.turn.request_id]].id, Kept.KNOWN)

    # --- what is there

    def _by_org(self) -> Mapping[str, list[tuple[int, Prepared]]]:
        found: dict[str, list[tuple[int, Prepared]]] = {}
        for number, turn in enumerate(self.turns):
            found.setdefault(turn.org_id, []).append((number, turn))
        return found

    def _known(self, connection: Connection) -> dict[tuple[str, str], int]:
        found: dict[tuple[str, str], int] = {}
        for org, turns in self._by_org().items():
            requests = [t.turn.request_id for _, t in turns if t.turn.request_id]
            column = raw_turns.c.request_id
            rows = self.database.rows_among(connection, _KNOWN, column, requests, org=org)
            found |= {(org, request_id): turn_id for turn_id, request_id in rows}
        return found

    def _erased(self, connection: Connection) -> set[int]:
        """The numbers of turns that were erased, or whose session was erased after they began."""
        out: set[int] = set()
        for org, turns in self._by_org().items():
            column = tombstones.c.org_id
            if not self.database.rows_among(connection, _ANY_TOMB, column, [org]):
                continue
            hashes = {request_hash(t.turn.request_id): n for n, t in turns if t.turn.request_id}
            rows = connection.execute(_ERASED, {"hashes": list(hashes), "org": org}).scalars()
            out |= {hashes[bytes(row)] for row in rows}
            named = {t.session_id for _, t in turns if t.session_id is not None}
            tombs = connection.execute(_TOMBS, {"sessions": list(named), "org": org})
            erased_at = {row.session_id: row.erased_at for row in tombs}
            out |= {
                n
                for n, t in turns
                if t.session_id in erased_at and _is_late(t.turn, erased_at[t.session_id])
            }
        return out

    # --- what is new

    def _insert(
        self, connection: Connection, turns: Sequence[Prepared], ids: Sequence[int]
    ) -> None:
        if not turns:
            return
        self._recall(connection, turns)
        rows, parts, used = list[dict[str, Any]](), dict[_Part, bytes](), set[int]()
        for turn, turn_id in zip(turns, ids, strict=True):
            base = best_base(turn.body, self.recent.find(turn.org_id, turn.lineage) or ())
            if base is not None and leads_back(base) and base.id in ids:
                # What it leads back to is read from the log, and must be there.
                self._insert_now(connection, rows, parts)
            packed = packed_body(connection, turn, base)
            rows.append(_row(turn, turn_id, packed))
            parts |= {(turn.org_id, c.hash, turn_id): c.data for c in packed.cuts}
            if packed.base is not None:
                used.add(packed.base.id)
            if len(turn.body) >= _WORTH:
                kept = Base(turn_id, packed.columns["depth"], turn.body)
                self.recent.add(turn.org_id, turn.lineage, kept, instead_of=packed.base)
        if not self._are_held(connection, used - set(ids)):
            raise _LookAgain
        self._insert_now(connection, rows, parts)

    def _insert_now(
        self, connection: Connection, rows: list[dict[str, Any]], parts: dict[_Part, bytes]
    ) -> None:
        if rows:
            self._insert_rows(connection, rows)
            self._insert_parts(connection, parts)
        rows.clear()
        parts.clear()

    def _recall(self, connection: Connection, turns: Sequence[Prepared]) -> None:
        """Read what turns may be packed against, of lineages of which nothing is remembered."""
        unknown: dict[str, set[int]] = {}
        for turn in turns:
            if self.recent.find(turn.org_id, turn.lineage) is None:
                unknown.setdefault(turn.org_id, set()).add(turn.lineage)
        for org_id, lineages in unknown.items():
            for lineage, bases in last_bases(
                self.database, connection, org_id, sorted(lineages)
            ).items():
                for base in bases:
                    self.recent.add(org_id, lineage, base)

    def _are_held(self, connection: Connection, ids: set[int]) -> bool:
        """Whether all these turns are in the log, and will be until we are done."""
        if not ids:
            return True
        ask = _HELD_FAST if self.database.is_postgres else _HELD
        rows = self.database.rows_among(connection, ask, raw_turns.c.id, sorted(ids))
        return len(rows) == len(ids)

    def _insert_parts(self, connection: Connection, parts: Mapping[_Part, bytes]) -> None:
        if not parts:
            return
        by_hash = {(org_id, hash_): data for (org_id, hash_, _), data in parts.items()}
        # In the order of their hashes: whoever locks them does so in the same order.
        rows = [
            {"org_id": org_id, "hash": hash_, "data": squeezed(data)}
            for (org_id, hash_), data in sorted(by_hash.items())
        ]
        connection.execute(self.database.insert(blobs).on_conflict_do_nothing(), rows)
        if self.database.is_postgres and not self._have_parts(connection, by_hash):
            raise _LookAgain
        users = [{"org_id": o, "hash": h, "raw_turn_id": turn_id} for o, h, turn_id in parts]
        connection.execute(turn_blobs.insert(), users)

    def _have_parts(self, connection: Connection, parts: Iterable[tuple[str, bytes]]) -> bool:
        """Whether all these parts are there, and will be until we are done."""
        wanted = list(parts)
        statement = (
            select(blobs.c.hash)
            .where(tuple_(blobs.c.org_id, blobs.c.hash).in_(wanted))
            .order_by(blobs.c.hash)
            .with_for_update(read=True, key_share=True)
        )
        return len(connection.execute(statement).all()) == len(wanted)

    def _insert_rows(self, connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        if self.database.insert_new_rows(connection, raw_turns, rows) < len(rows):
            raise _LookAgain

    # --- what is to be derived

    def _mark_dirty(self, connection: Connection, receipts: Mapping[int, Receipt]) -> None:
        marked = sorted(
            {
                (turn.org_id, turn.session_id)
                for number, turn in enumerate(self.turns)
                if turn.session_id is not None
                and number in receipts
                and receipts[number].kept is Kept.NEW
            }
        )
        mark_dirty(self.database, connection, marked, time.time_ns())


# Shorter bodies are not worth a base.
_WORTH = 256


def _row(turn: Prepared, turn_id: int, packed: PackedBody) -> dict[str, Any]:
    stored = len(packed.columns["request"]) + len(turn.rest)
    return {
        **turn.columns,
        **packed.columns,
        "id": turn_id,
        "org_id": turn.org_id,
        "session_id": turn.session_id,
        "lineage": turn.lineage,
        "stored_bytes": stored,
        "rest": turn.rest,
    }


def _is_late(turn: RawTurn, erased_at: int) -> bool:
    """Whether a turn is from before its session was erased. A transcript tells of it again."""
    return turn.source is Source.TRANSCRIPT or moments(turn)[0] < erased_at


def mark_dirty(
    database: Database, connection: Connection, sessions: Sequence[tuple[str, str]], now: int
) -> None:
    """Have sessions derived, in an order that all writers keep."""
    if not sessions:
        return
    rows = [
        {"org_id": o, "session_id": s, "version": 1, "dirtied_at": now, "first_dirtied_at": now}
        for o, s in sessions
    ]
    database.run_many(connection, _marking(database.is_postgres), rows)
    if database.is_postgres:
        claimed = [{"org_id": o, "session_id": s} for o, s in sessions]
        database.run_many(connection, _CLAIMING, claimed)


@cache
def _marking(is_postgres: bool) -> Any:
    names = ("org_id", "session_id", "version", "dirtied_at", "first_dirtied_at")
    statement = insert_into(dirty, is_postgres=is_postgres)
    statement = statement.values({name: bindparam(name) for name in names})
    return statement.on_conflict_do_update(
        index_elements=[dirty.c.org_id, dirty.c.session_id],
        set_={
            "version": dirty.c.version + 1,
            "dirtied_at": statement.excluded.dirtied_at,
            "failed": null(),
        },
    )


_CLAIMING = (
    insert_into(claims, is_postgres=True)
    .values(org_id=bindparam("org_id"), session_id=bindparam("session_id"))
    .on_conflict_do_nothing()
)


def count_drops(
    database: Database, connection: Connection, numbers: Mapping[tuple[str, str, str], int]
) -> None:
    """Add to the numbers of exchanges that became no turn."""
    rows = [
        {"org_id": org, "provider": provider, "reason": reason, "number": number}
        for (org, provider, reason), number in sorted(numbers.items())
    ]
    statement = database.insert(drops)
    added = drops.c.number + statement.excluded.number
    connection.execute(
        statement.on_conflict_do_update(
            index_elements=[drops.c.org_id, drops.c.provider, drops.c.reason],
            set_={"number": added},
        ),
        rows,
    )
