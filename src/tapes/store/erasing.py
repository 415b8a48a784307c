"""Erasing sessions for good: from the log, the read model, the index, and the file's bytes.

Rule 1: what is erased is gone from every table in one transaction, and from the bytes of the file
        when the erasure is done. A tombstone says that there was something, when it went and why.
Rule 2: turns of others that were packed against erased ones are packed anew before.
Rule 3: neither deriving again nor a late delivery brings it back: turns from before the erasure are
        refused by their session and by their request ids.
Rule 4: pinned sessions are exempt from retention. Whoever names them erases them all the same.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, func, insert, select, update

from tapes.loosejson import storable
from tapes.store.appending import request_hash
from tapes.store.base import Erasure, Policy
from tapes.store.bodies import read_body
from tapes.store.cuts import cut, with_cuts
from tapes.store.database import Database
from tapes.store.model import ModelWriter, chunks
from tapes.store.packing import check_of, squeezed
from tapes.store.people import note_in_audit, unknown
from tapes.store.placing import unplace_dependents
from tapes.store.tables import (
    audit,
    blobs,
    claims,
    corrections,
    dirty,
    erased_turns,
    erasures,
    notes,
    raw_turns,
    sessions,
    skips,
    tags,
    tapes,
    tombstones,
    turn_blobs,
    turn_marks,
)

# Takes a tenant and sessions, and purges what waits elsewhere; gives the number of turns.
Purge = Callable[[str, Sequence[str]], int]
# So many sessions are erased in one transaction.
_AT_ONCE = 50
# What in the audit has words that people wrote.
_WITH_WORDS = ("tag", "correct")
_BY_TURN: tuple[Table, ...] = (turn_marks, skips, corrections)
_BY_SESSION: tuple[Table, ...] = (notes, tags, tapes, dirty, claims)


class Erasing:
    """Erases what belongs to a tenant."""

    def __init__(self, database: Database, forget: Callable[[], None]) -> None:
        self._database = database
        self._forget = forget
        self.purges: list[tuple[Purge, Callable[[], Sequence[str]]]] = []

    def erase(
        self, org_id: str, session_ids: Sequence[str], *, reason: str, by: str, dry_run: bool
    ) -> Erasure:
        """Erase sessions. Raises UnknownId before anything is erased."""
        wanted = tuple(dict.fromkeys(session_ids))
        with self._database.reading() as connection:
            missing = [s for s in wanted if not _is_known(connection, org_id, s)]
            if missing:
                raise unknown("session", *missing)
            plan = self._plan(connection, org_id, wanted)
        plan = replace(plan, reason=storable(reason), by=storable(by), asked_at=time.time_ns())
        return plan if dry_run else self._carry_out(org_id, plan)

    def retain(self, org_id: str, policy: Policy, *, now: int, by: str, dry_run: bool) -> Erasure:
        """Erase what is beyond a policy."""
        with self._database.reading() as connection:
            beyond, loose = _beyond(connection, org_id, policy, now)
            plan = self._plan(connection, org_id, beyond)
        plan = replace(plan, reason="retention", by=by, asked_at=now, turns=plan.turns + len(loose))
        if dry_run or not (beyond or loose):
            return plan
        return self._carry_out(org_id, plan, loose)

    def _plan(self, connection: Connection, org_id: str, session_ids: Sequence[str]) -> Erasure:
        turns = size = 0
        made: list[str] = []
        for some in chunks(session_ids):
            ask = select(func.count(), func.sum(raw_turns.c.stored_bytes)).where(
                raw_turns.c.org_id == org_id, raw_turns.c.session_id.in_(some)
            )
            number, stored = connection.execute(ask).one()
            turns, size = turns + number, size + int(stored or 0)
            paths = select(tapes.c.path).where(
                tapes.c.org_id == org_id, tapes.c.session_id.in_(some)
            )
            made += connection.execute(paths.order_by(tapes.c.path)).scalars()
        return Erasure(
            id=0,
            sessions=len(session_ids),
            turns=turns,
            bytes=size,
            reason="",
            by="",
            asked_at=0,
            session_ids=tuple(session_ids),
            tapes=tuple(dict.fromkeys(made)),
            backups=self._database.backups(),
            unsearched=tuple(path for _, unsearched in self.purges for path in unsearched()),
        )

    def _carry_out(self, org_id: str, plan: Erasure, loose: Sequence[int] = ()) -> Erasure:
        with self._database.writing() as connection:
            erasure_id = _noted(connection, org_id, plan)
        self._erase_sessions(org_id, erasure_id, plan.session_ids)
        for ids in chunks(loose):
            with self._database.writing() as connection:
                batch = _Batch(self._database, connection, org_id, erasure_id)
                batch.count(*batch.erase_turns(batch.still_loose(ids)))
        self._forget()
        if self._database.is_small():
            self.finish()
        return self.find(org_id, erasure_id) or replace(plan, id=erasure_id)

    def _erase_sessions(self, org_id: str, erasure_id: int, session_ids: Sequence[str]) -> None:
        for some in chunks(session_ids, _AT_ONCE):
            waited = sum(purge(org_id, some) for purge, _ in self.purges)
            with self._database.writing() as connection:
                batch = _Batch(self._database, connection, org_id, erasure_id)
                turns, size = batch.erase_sessions(some)
                batch.count(waited + turns, size)

    # --- the bytes

    def finish(self) -> int:
        """Take what was erased out of the file's bytes; gives the number of erasures done.

        Of an erasure that was broken off, what is left of it is erased first.
        """
        ask = select(erasures.c.id, erasures.c.org_id, erasures.c.details)
        with self._database.reading() as connection:
            waiting = connection.execute(ask.where(erasures.c.done_at.is_(None))).all()
            left = [_left(connection, *row) for row in waiting]
        for (erasure_id, org_id, _), session_ids in zip(waiting, left, strict=True):
            self._erase_sessions(org_id, erasure_id, session_ids)
        if any(left):
            self._forget()
        if not waiting or not self._database.wipe():
            return 0
        ids = [row.id for row in waiting]
        with self._database.writing() as connection:
            done = update(erasures).where(erasures.c.id.in_(ids)).values(done_at=time.time_ns())
            connection.execute(done)
        return len(ids)

    def find_of(self, org_id: str, session_id: str) -> Erasure | None:
        """The erasure by which a session went."""
        with self._database.reading() as connection:
            erasure_id = _erasure_of(connection, org_id, session_id)
        return None if erasure_id is None else self.find(org_id, erasure_id)

    def find(self, org_id: str, erasure_id: int) -> Erasure | None:
        """An erasure."""
        ask = select(erasures).where(erasures.c.org_id == org_id, erasures.c.id == erasure_id)
        with self._database.reading() as connection:
            row = connection.execute(ask).first()
        if row is None:
            return None
        told: Mapping[str, Any] = row.details or {}
        return Erasure(
            id=row.id,
            sessions=row.sessions,
            turns=row.turns,
            bytes=row.bytes,
            reason=row.reason,
            by=row.by,
            asked_at=row.asked_at,
            done_at=row.done_at,
            session_ids=tuple(told.get("sessions", ())),
            tapes=tuple(told.get("tapes", ())),
            backups=tuple(told.get("backups", ())),
            unsearched=tuple(told.get("unsearched", ())),
        )


def _erasure_of(connection: Connection, org_id: str, session_id: str) -> int | None:
    ask = select(tombstones.c.erasure_id).where(
        tombstones.c.org_id == org_id, tombstones.c.session_id == session_id
    )
    found: int | None = connection.execute(ask).scalar()
    return found


def _left(
    connection: Connection, erasure_id: int, org_id: str, details: Mapping[str, Any] | None
) -> list[str]:
    """The sessions of an erasure that are not erased yet."""
    wanted, gone = list[str]((details or {}).get("sessions", ())), set[str]()
    for some in chunks(wanted):
        ask = select(tombstones.c.session_id).where(
            tombstones.c.org_id == org_id,
            tombstones.c.session_id.in_(some),
            tombstones.c.erasure_id >= erasure_id,
        )
        gone |= set(connection.execute(ask).scalars())
    return [session_id for session_id in wanted if session_id not in gone]


def _is_known(connection: Connection, org_id: str, session_id: str) -> bool:
    own = select(sessions.c.id).where(sessions.c.org_id == org_id, sessions.c.id == session_id)
    turn = select(raw_turns.c.id).where(
        raw_turns.c.org_id == org_id, raw_turns.c.session_id == session_id
    )
    return any(connection.execute(ask.limit(1)).first() is not None for ask in (own, turn))


def _noted(connection: Connection, org_id: str, plan: Erasure) -> int:
    details = {
        "sessions": list(plan.session_ids), "tapes": list(plan.tapes),
        "backups": list(plan.backups), "unsearched": list(plan.unsearched),
    }  # fmt: skip
    values = {
        "org_id": org_id, "sessions": plan.sessions, "reason": plan.reason, "by": plan.by,
        "asked_at": plan.asked_at, "details": details,
    }  # fmt: skip
    erasure_id = connection.execute(insert(erasures).returning(erasures.c.id), values).scalar_one()
    told = {"erasure": erasure_id, "sessions": plan.sessions, "reason": plan.reason}
    note_in_audit(connection, org_id, "erase", plan.by, told)
    return int(erasure_id)


# --- one transaction --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Batch:
    database: Database
    connection: Connection
    org_id: str
    erasure_id: int

    def erase_sessions(self, session_ids: Sequence[str]) -> tuple[int, int]:
        """Erase sessions; gives the number of turns that went, and of their bytes."""
        self._wait_for_workers(session_ids)
        writer = ModelWriter(self.database, self.connection, self.org_id)
        for session_id in sorted(session_ids):
            writer.erase(session_id)
        went = self.erase_turns(self._turns_of(session_ids))
        now = time.time_ns()
        for table in _BY_SESSION:
            mine = and_(table.c.org_id == self.org_id, table.c.session_id.in_(session_ids))
            self.connection.execute(delete(table).where(mine))
        self._forget_words_in_audit(session_ids)
        tombs = [
            {
                "org_id": self.org_id, "session_id": session_id, "erased_at": now,
                "erasure_id": self.erasure_id,
            }
            for session_id in session_ids
        ]  # fmt: skip
        self.connection.execute(
            self.database.insert(tombstones).on_conflict_do_update(
                index_elements=[tombstones.c.org_id, tombstones.c.session_id],
                set_={"erased_at": now, "erasure_id": self.erasure_id},
            ),
            tombs,
        )
        for session_id in sorted(session_ids):
            writer.settle(session_id)
        return went

    def _wait_for_workers(self, session_ids: Sequence[str]) -> None:
        """Before anything else is locked: a worker that has one of them needs some of it too."""
        mine = and_(claims.c.org_id == self.org_id, claims.c.session_id.in_(session_ids))
        ask = select(claims.c.session_id).where(mine).order_by(claims.c.session_id)
        self.connection.execute(ask.with_for_update()).all()

    def _forget_words_in_audit(self, session_ids: Sequence[str]) -> None:
        """That a session was tagged or corrected stays known, but not with which words."""
        session = self.database.json_text(audit.c.details, ("session",))
        ask = select(audit.c.id, session.label("session")).where(
            audit.c.org_id == self.org_id, audit.c.action.in_(_WITH_WORDS), session.in_(session_ids)
        )
        for entry in self.connection.execute(ask).all():
            less = {"session": entry.session}
            mine = and_(audit.c.org_id == self.org_id, audit.c.id == entry.id)
            self.connection.execute(update(audit).where(mine).values(details=less))

    def count(self, turns: int, size: int) -> None:
        """Have the erasure say that so much went."""
        more = {"turns": erasures.c.turns + turns, "bytes": erasures.c.bytes + size}
        mine = erasures.c.id == self.erasure_id
        self.connection.execute(update(erasures).where(mine).values(more))

    def _turns_of(self, session_ids: Sequence[str]) -> list[int]:
        return self._held(raw_turns.c.session_id.in_(session_ids))

    def still_loose(self, ids: Sequence[int]) -> list[int]:
        """Those of the turns that were not placed in a session since."""
        return self._held(and_(raw_turns.c.id.in_(ids), raw_turns.c.session_id.is_(None)))

    def _held(self, where: ColumnElement[bool]) -> list[int]:
        """Turns that are ours to erase: nobody packs another against them from here on."""
        ask = select(raw_turns.c.id).where(raw_turns.c.org_id == self.org_id, where)
        return list(
            self.connection.execute(ask.order_by(raw_turns.c.id).with_for_update()).scalars()
        )

    def erase_turns(self, ids: Sequence[int]) -> tuple[int, int]:
        """Erase turns; gives their number and their bytes."""
        gone, size = set(ids), 0
        for some in chunks(ids):
            for turn_id in self._leaning_on(some):
                if turn_id not in gone:
                    self._stand_alone(turn_id)
        for some in chunks(ids):
            mine = and_(raw_turns.c.org_id == self.org_id, raw_turns.c.id.in_(some))
            told = select(raw_turns.c.request_id, raw_turns.c.stored_bytes).where(mine)
            rows = self.connection.execute(told).all()
            size += sum(row.stored_bytes for row in rows)
            self._remember_requests([row.request_id for row in rows if row.request_id])
            unplace_dependents(self.database, self.connection, self.org_id, some)
            self._drop_parts(some)
            for table in _BY_TURN:
                of_turn = and_(table.c.org_id == self.org_id, table.c.raw_turn_id.in_(some))
                self.connection.execute(delete(table).where(of_turn))
            self.connection.execute(delete(raw_turns).where(mine))
        return len(gone), size

    def _remember_requests(self, request_ids: Sequence[str]) -> None:
        rows = [{"org_id": self.org_id, "request_hash": request_hash(r)} for r in request_ids]
        if rows:
            self.connection.execute(
                self.database.insert(erased_turns).on_conflict_do_nothing(), rows
            )

    def _leaning_on(self, ids: Sequence[int]) -> list[int]:
        ask = select(raw_turns.c.id).where(
            raw_turns.c.base_id.in_(ids), raw_turns.c.org_id == self.org_id
        )
        return list(self.connection.execute(ask).scalars())

    def _stand_alone(self, turn_id: int) -> None:
        """Pack a turn anew, without the one that it was packed against."""
        body = read_body(self.connection, self.org_id, turn_id)
        left, cuts = cut(body)
        request = with_cuts(squeezed(left), cuts)
        values = {
            "way": 0, "base_id": None, "depth": 0, "prefix": 0, "suffix": 0,
            "body_check": check_of(body), "request": request,
            "stored_bytes": len(request) + func.length(raw_turns.c.rest),
        }  # fmt: skip
        mine = and_(raw_turns.c.org_id == self.org_id, raw_turns.c.id == turn_id)
        self.connection.execute(update(raw_turns).where(mine).values(values))
        parts = {each.hash: each.data for each in cuts}
        for hash_, data in sorted(parts.items()):
            owned = {"org_id": self.org_id, "hash": hash_}
            self.connection.execute(
                self.database.insert(blobs).on_conflict_do_nothing(),
                owned | {"data": squeezed(data)},
            )
            self.connection.execute(
                self.database.insert(turn_blobs).on_conflict_do_nothing(),
                owned | {"raw_turn_id": turn_id},
            )

    def _drop_parts(self, ids: Sequence[int]) -> None:
        """Parts that no other turn has."""
        mine = and_(turn_blobs.c.org_id == self.org_id, turn_blobs.c.raw_turn_id.in_(ids))
        hashes = set(self.connection.execute(select(turn_blobs.c.hash).where(mine)).scalars())
        self.connection.execute(delete(turn_blobs).where(mine))
        for some in chunks(sorted(hashes)):
            those = and_(blobs.c.org_id == self.org_id, blobs.c.hash.in_(some))
            # Locked first, and looked at in a statement of its own: whoever keeps a turn with such
            # a part either has said so by now, or waits and sees that it is gone.
            self.connection.execute(
                select(blobs.c.hash).where(those).order_by(blobs.c.hash).with_for_update()
            ).all()
            used = select(turn_blobs.c.hash).where(
                turn_blobs.c.org_id == self.org_id, turn_blobs.c.hash.in_(some)
            )
            self.connection.execute(delete(blobs).where(those, blobs.c.hash.not_in(used)))


# --- retention --------------------------------------------------------------------------------


def _beyond(
    connection: Connection, org_id: str, policy: Policy, now: int
) -> tuple[list[str], list[int]]:
    """The sessions that are beyond a policy, oldest last, and turns without a session that are."""
    if policy == Policy():  # nothing is, and to look at all turns takes long
        return [], []
    of_log = (
        select(
            raw_turns.c.session_id.label("session_id"),
            func.max(raw_turns.c.received_at).label("received"),
            func.sum(raw_turns.c.stored_bytes).label("size"),
        )
        .where(raw_turns.c.org_id == org_id, raw_turns.c.session_id.is_not(None))
        .group_by(raw_turns.c.session_id)
        .subquery()
    )
    seen = func.coalesce(sessions.c.last_seen_at, of_log.c.received)
    is_own = and_(sessions.c.org_id == org_id, sessions.c.id == of_log.c.session_id)
    is_pinned = and_(
        notes.c.org_id == org_id, notes.c.session_id == of_log.c.session_id, notes.c.pinned
    )
    ask = (
        select(of_log.c.session_id, seen.label("seen"), of_log.c.size)
        .select_from(of_log.outerjoin(sessions, is_own).outerjoin(notes, is_pinned))
        .where(notes.c.session_id.is_(None))
        .order_by(seen.desc(), of_log.c.session_id)
    )
    beyond, kept, size = list[str](), 0, 0
    cutoff = None if policy.max_age_ns is None else now - policy.max_age_ns
    for session_id, last, stored in connection.execute(ask):
        too_old = cutoff is not None and last < cutoff
        too_many = policy.max_sessions is not None and kept >= policy.max_sessions
        too_large = policy.max_bytes is not None and size + int(stored) > policy.max_bytes
        if too_old or too_many or too_large:
            beyond.append(session_id)
            if too_large:
                size = policy.max_bytes or 0  # older ones do not fill the gap
            continue
        kept, size = kept + 1, size + int(stored)
    loose: list[int] = []
    if cutoff is not None:
        unplaced = select(raw_turns.c.id).where(
            raw_turns.c.org_id == org_id,
            raw_turns.c.session_id.is_(None),
            raw_turns.c.received_at < cutoff,
        )
        loose = list(connection.execute(unplaced).scalars())
    return beyond, loose
