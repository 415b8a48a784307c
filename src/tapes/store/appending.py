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
from typing import Any

from sqlalchemy import Connection, bindparam, func, literal_column, null, select, tuple_

from tapes.errors import UnavailableStore
from tapes.rows import RawTurn, Source, moments
from tapes.store.base import Kept, Receipt
from tapes.store.bodies import (
    Ahead,
    Base,
    Line,
    PackedBody,
    Recent,
    best_base,
    last_bases,
    leads_back,
    packed_ahead,
    packed_body,
)
from tapes.store.database import Database, insert_into
from tapes.store.packing import squeezed
from tapes.store.tables import (
    blobs,
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
# What is waited for those who came before: longer than they take to come again.
_MOMENT_S = 0.001


@dataclass(slots=True, eq=False)
class _Wanted:
    """What one caller wants to have kept, and what came of it."""

    turns: Sequence[RawTurn]
    ready: Sequence[Ahead] = ()
    receipts: list[Receipt] | None = None
    error: BaseException | None = None
    is_next: bool = False  # to write
    # Held until he is told: a lock costs a tenth of an event.
    told: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_over(self) -> bool:
        return self.receipts is not None or self.error is not None


class Appending:
    """Writes `raw_turns`.

    One of the callers writes at a time, for all who wait: one transaction and one flush of the
    disk serve them all, and but one thread is awake. Whoever is to write waits a moment for those
    whom the write before let go, since most of them come again; whoever is alone waits for nobody.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._mutex = threading.Lock()  # for what is remembered
        self._recent = Recent()
        self._repeats = False  # whether turns came lately that were known
        self._gate = threading.Lock()  # for all that follows
        self._is_written = False
        self._wanted: deque[_Wanted] = deque()
        self._expected = 1  # callers: as many as came lately
        self._all_came: threading.Lock | None = None  # held until they are there
        os.register_at_fork(after_in_child=self._in_child)

    def append(self, turns: Sequence[RawTurn]) -> list[Receipt]:
        """Keep turns, all or none."""
        mine = _Wanted(turns)
        mine.told.acquire()
        with self._gate:
            self._wanted.append(mine)
            mine.is_next, self._is_written = not self._is_written, True
            if self._all_came is not None and len(self._wanted) == self._expected:
                self._all_came.release()
                self._all_came = None
        try:
            if not mine.is_next:
                mine.told.acquire()
            if not mine.is_over:
                self._keep_for_all(mine)
        except BaseException:
            self._leave(mine)
            raise
        if mine.error is not None:
            raise mine.error
        return mine.receipts or []

    def _leave(self, mine: _Wanted) -> None:
        """Interrupted while he waits: the others go on without him, whoever was to write."""
        with self._gate:
            if mine in self._wanted:
                self._wanted.remove(mine)
                if mine.is_next:
                    self._hand_on()

    def _hand_on(self) -> None:
        self._is_written = bool(self._wanted)
        if self._wanted:
            self._wanted[0].is_next = True
            self._wanted[0].told.release()  # it is not over: he is the next

    def _keep_for_all(self, mine: _Wanted) -> None:
        """Write what is wanted, and hand on to the first who wants more.

        An interrupt is this thread's alone: the others' turns are written by whoever is next.
        """
        some, interrupt = [mine], None
        try:
            self._wait_for_others()
            with self._gate:
                some = self._some()
            with self._mutex:
                self._make_ready(some)
                self._write([each for each in some if not each.is_over])
        except Exception as error:  # noqa: BLE001  # raised where it is waited for
            for each in some:
                if not each.is_over:
                    each.error = error
        except BaseException as error:  # noqa: BLE001  # raised below, once the others can go on
            interrupt = error
        left = [each for each in some if each is not mine and not each.is_over]
        with self._gate:
            if mine in self._wanted:  # it failed before it was taken out
                self._wanted.remove(mine)
            self._wanted.extendleft(reversed(left))
            self._expected = len(some) + len(self._wanted)
            self._hand_on()
        for each in some:
            if each is not mine and each not in left:
                each.told.release()
        if interrupt is not None:
            raise interrupt

    def _wait_for_others(self) -> None:
        with self._gate:
            if len(self._wanted) >= self._expected:
                return
            all_came = self._all_came = threading.Lock()
            all_came.acquire()
        all_came.acquire(timeout=_MOMENT_S)

    def _make_ready(self, some: Sequence[_Wanted]) -> None:
        lineages = set[tuple[str, int]]()
        for each in some:
            try:
                each.ready = self._ready(each.turns, lineages)
            except Exception as error:  # noqa: BLE001  # raised where it is waited for
                each.error = error

    def _some(self) -> list[_Wanted]:
        """Those who wait longest, as many as go together."""
        some = [self._wanted.popleft()]
        size = len(some[0].turns)
        while self._wanted and size + len(self._wanted[0].turns) <= _TOGETHER:
            some.append(self._wanted.popleft())
            size += len(some[-1].turns)
        return some

    def _ready(self, turns: Sequence[RawTurn], lineages: set[tuple[str, int]]) -> list[Ahead]:
        """Turns as they are written, as far as that needs no transaction."""
        out = list[Ahead]()
        for turn in map(prepare, turns):
            key = (turn.org_id, turn.lineage)
            # Of several that go on from each other only the first knows what it goes on from.
            is_first = key not in lineages
            lineages.add(key)
            out.append(packed_ahead(turn, self._recent.seen(*key)) if is_first else Ahead(turn))
        return out

    def _write(self, some: Sequence[_Wanted]) -> None:
        if not some:
            return
        try:
            receipts = iter(self._kept([turn for each in some for turn in each.ready]))
        except Exception as error:  # noqa: BLE001  # raised where it is waited for
            self._write_each(some, error)
            return
        for each in some:
            each.receipts = [next(receipts) for _ in each.ready]

    def _write_each(self, some: Sequence[_Wanted], error: Exception) -> None:
        """One of them may be what is wrong: each is kept, or fails, by itself."""
        for each in some:
            if len(some) == 1:
                each.error = error
                continue
            if isinstance(error, UnavailableStore):  # then it is so for all
                each.error = UnavailableStore(error.message, error.remedy)
                continue
            try:
                each.receipts = self._kept(each.ready)
            except Exception as its:  # noqa: BLE001  # raised where it is waited for
                each.error = its

    def _kept(self, turns: Sequence[Ahead]) -> list[Receipt]:
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
        self._is_written, self._expected, self._all_came = False, 1, None
        self._wanted.clear()

    def forget(self) -> None:
        """Something was erased: nothing may be packed against it."""
        with self._mutex:
            self._recent.forget()


class _LookAgain(Exception):
    """What we built on is not so any more: somebody kept one of these turns, or erased another."""


# Turns with their number in the batch.
_Numbered = list[tuple[int, Prepared]]
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
    ahead: Sequence[Ahead]
    asks: bool = True  # for turns that are known, before writing any

    def write(self, connection: Connection) -> list[Receipt]:
        receipts: dict[int, Receipt] = {}
        fresh: list[tuple[int, Ahead]] = []
        seen: dict[tuple[str, str], int] = {}
        by_org = self._by_org()
        ids, erasers = self.database.new_turn_ids(connection, len(self.ahead), list(by_org))
        known = self._known(connection, by_org) if self.asks else {}
        erased = self._erased(connection, {org_id: by_org[org_id] for org_id in erasers})
        for number, ahead in enumerate(self.ahead):
            turn = ahead.turn
            key = (turn.org_id, turn.turn.request_id)
            if number in erased:
                receipts[number] = Receipt(0, Kept.ERASED)
            elif key[1] and key in known:
                receipts[number] = Receipt(known[key], Kept.KNOWN)
            elif key[1] and key in seen:
                continue  # its receipt follows from the first one's
            else:
                seen[key] = number
                fresh.append((number, ahead))
        ids = ids[: len(fresh)]
        for (number, _), turn_id in zip(fresh, ids, strict=True):
            receipts[number] = Receipt(turn_id, Kept.NEW)
        self._insert(connection, [ahead for _, ahead in fresh], list(ids))
        self._mark_dirty(connection, receipts)
        return [
            receipts.get(n) or self._repeated(n, seen, receipts) for n in range(len(self.ahead))
        ]

    def _repeated(
        self, number: int, seen: Mapping[tuple[str, str], int], receipts: Mapping[int, Receipt]
    ) -> Receipt:
        turn = self.ahead[number].turn
        return Receipt(receipts[seen[turn.org_id, turn.turn.request_id]].id, Kept.KNOWN)

    # --- what is there

    def _by_org(self) -> Mapping[str, _Numbered]:
        found: dict[str, _Numbered] = {}
        for number, ahead in enumerate(self.ahead):
            found.setdefault(ahead.turn.org_id, []).append((number, ahead.turn))
        return found

    def _known(
        self, connection: Connection, by_org: Mapping[str, _Numbered]
    ) -> dict[tuple[str, str], int]:
        found: dict[tuple[str, str], int] = {}
        for org, turns in by_org.items():
            requests = [t.turn.request_id for _, t in turns if t.turn.request_id]
            column = raw_turns.c.request_id
            rows = self.database.rows_among(connection, _KNOWN, column, requests, org=org)
            found |= {(org, request_id): turn_id for turn_id, request_id in rows}
        return found

    def _erased(self, connection: Connection, by_org: Mapping[str, _Numbered]) -> set[int]:
        """The numbers of turns that were erased, or whose session was erased after they began."""
        out: set[int] = set()
        for org, turns in by_org.items():
            hashes = {n: request_hash(t.turn.request_id) for n, t in turns if t.turn.request_id}
            asked = {"hashes": list(set(hashes.values())), "org": org}
            gone = set(map(bytes, connection.execute(_ERASED, asked).scalars()))
            out |= {n for n, hashed in hashes.items() if hashed in gone}
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

    def _insert(self, connection: Connection, fresh: Sequence[Ahead], ids: Sequence[int]) -> None:
        if not fresh:
            return
        self._recall(connection, [ahead.turn for ahead in fresh])
        rows, parts, used = list[dict[str, Any]](), dict[_Part, bytes](), set[int]()
        for ahead, turn_id in zip(fresh, ids, strict=True):
            turn = ahead.turn
            known = self.recent.find(turn.org_id, turn.lineage) or ()
            packed = ahead.packed
            if packed is None or ahead.last is not (known[-1] if known else None):
                base = best_base(turn.body, known)
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
        unknown: dict[str, set[Line]] = {}
        for turn in turns:
            if self.recent.find(turn.org_id, turn.lineage) is None:
                unknown.setdefault(turn.org_id, set()).add((turn.session_id, turn.lineage))
        for org_id, lines in unknown.items():
            for lineage, bases in last_bases(self.database, connection, org_id, lines).items():
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
        if not self.database.insert_only_new(connection, raw_turns, rows):
            raise _LookAgain

    # --- what is to be derived

    def _mark_dirty(self, connection: Connection, receipts: Mapping[int, Receipt]) -> None:
        marked = sorted(
            {
                (ahead.turn.org_id, ahead.turn.session_id)
                for number, ahead in enumerate(self.ahead)
                if ahead.turn.session_id is not None
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
    if database.is_postgres:
        ids = [",".join(column) for column in zip(*sessions, strict=True)]
        told = {"orgs": f"{{{ids[0]}}}", "sessions": f"{{{ids[1]}}}", "now": now}
        database.rows_of(connection, _MARK_ALL, told)
        return
    rows = [
        {"org_id": o, "session_id": s, "version": 1, "dirtied_at": now, "first_dirtied_at": now}
        for o, s in sessions
    ]
    database.run_many(connection, _MARK, rows)


def _marking() -> Any:
    names = ("org_id", "session_id", "version", "dirtied_at", "first_dirtied_at")
    statement = insert_into(dirty, is_postgres=False)
    statement = statement.values({name: bindparam(name) for name in names})
    return statement.on_conflict_do_update(
        index_elements=[dirty.c.org_id, dirty.c.session_id],
        set_={
            "version": dirty.c.version + 1,
            "dirtied_at": statement.excluded.dirtied_at,
            "first_dirtied_at": func.min(
                dirty.c.first_dirtied_at, statement.excluded.first_dirtied_at
            ),
            "failed": null(),
        },
    )


_MARK = _marking()
# The same, and what workers lock, for all sessions with one question.
_MARK_ALL = """
    WITH marked AS MATERIALIZED (
        SELECT *
        FROM unnest(%(orgs)s::text::uuid[], %(sessions)s::text::uuid[]) AS it (org, session)
    ), claimed AS (
        INSERT INTO derive_claims (org_id, session_id) SELECT org, session FROM marked
        ON CONFLICT DO NOTHING
    )
    INSERT INTO derive_queue AS known (org_id, session_id, version, dirtied_at, first_dirtied_at)
    SELECT org, session, 1, %(now)s, %(now)s FROM marked
    ON CONFLICT (org_id, session_id) DO UPDATE
    SET version = known.version + 1, dirtied_at = excluded.dirtied_at, failed = NULL,
        first_dirtied_at = least(known.first_dirtied_at, excluded.first_dirtied_at)
    RETURNING 1
"""


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
