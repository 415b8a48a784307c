"""What people add to sessions, and what they did: names, tags, pins, corrections, the audit.

Rule 1: what people say is kept apart from what is derived; deriving again does not touch it.
Rule 2: whatever somebody changes is noted, with who did it.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, and_, delete, insert, select, update

from tapes.envelope import Envelope
from tapes.errors import UnknownId
from tapes.loosejson import storable
from tapes.rows import session_id_of
from tapes.store.appending import mark_dirty
from tapes.store.base import AuditEntry, Correction, Policy
from tapes.store.database import Database
from tapes.store.model import ModelWriter
from tapes.store.placing import unplace_dependents
from tapes.store.tables import (
    audit,
    corrections,
    notes,
    policies,
    raw_turns,
    sessions,
    tags,
    tapes,
    turn_marks,
)


def unknown(noun: str, *ids: object) -> UnknownId:
    """The error for ids that nothing has."""
    listed = ", ".join(map(str, ids))
    return UnknownId(
        f"there is no {noun} {listed}", "look it up by a part of it: tapes search --id …"
    )


def note_in_audit(
    connection: Connection, org_id: str, action: str, by: str, details: Mapping[str, object]
) -> None:
    """One line of the audit."""
    values = {"org_id": org_id, "at": time.time_ns(), "action": storable(action)}
    connection.execute(insert(audit), values | {"by": storable(by), "details": dict(details)})


class People:
    """What people of one tenant say and do."""

    def __init__(self, database: Database, org_id: str) -> None:
        self._database, self._org = database, org_id

    def _mine(self, table: Any, session_id: str) -> Any:
        return and_(table.c.org_id == self._org, table.c.session_id == session_id)

    def _require(self, connection: Connection, session_id: str) -> None:
        ask = select(sessions.c.id).where(
            sessions.c.org_id == self._org, sessions.c.id == session_id
        )
        if connection.execute(ask).first() is None:
            raise unknown("session", session_id)

    def _set(self, session_id: str, by: str, action: str, **values: Any) -> None:
        with self._database.writing() as connection:
            self._require(connection, session_id)
            writer = ModelWriter(self._database, connection, self._org)
            writer.forget_words(session_id)
            connection.execute(
                self._database.insert(notes).on_conflict_do_update(
                    index_elements=[notes.c.org_id, notes.c.session_id], set_=values
                ),
                {"org_id": self._org, "session_id": session_id, **values},
            )
            writer.remember_words(session_id)
            writer.note_change(session_id, erased=False)
            note_in_audit(connection, self._org, action, by, {"session": session_id})

    def rename(self, session_id: str, display_name: str, by: str) -> None:
        """Give a session a name."""
        self._set(session_id, by, "rename", display_name=storable(display_name))

    def pin(self, session_id: str, by: str, *, pinned: bool) -> None:
        """Exempt it from retention, or no longer."""
        self._set(session_id, by, "pin" if pinned else "unpin", pinned=pinned)

    def tag(self, session_id: str, add: Iterable[str], remove: Iterable[str], by: str) -> None:
        """Add and remove tags."""
        added, removed = (sorted(set(map(storable, some))) for some in (add, remove))
        with self._database.writing() as connection:
            self._require(connection, session_id)
            writer = ModelWriter(self._database, connection, self._org)
            writer.forget_words(session_id)
            connection.execute(
                delete(tags).where(self._mine(tags, session_id), tags.c.tag.in_(removed))
            )
            if added:
                owned = {"org_id": self._org, "session_id": session_id}
                connection.execute(
                    self._database.insert(tags).on_conflict_do_nothing(),
                    [owned | {"tag": tag} for tag in added],
                )
            writer.remember_words(session_id)
            writer.note_change(session_id, erased=False)
            told = {"session": session_id, "added": added, "removed": removed}
            note_in_audit(connection, self._org, "tag", by, told)

    def note_tape(self, session_id: str, path: str) -> None:
        """A tape was made from a session."""
        if self._database.only_read:
            return
        with self._database.writing() as connection:
            self._require(connection, session_id)
            connection.execute(
                self._database.insert(tapes).on_conflict_do_nothing(),
                {"org_id": self._org, "session_id": session_id, "path": storable(path)},
            )

    def correct(self, correction: Correction, by: str) -> None:
        """Say whose turn it really was."""
        correction = Correction(
            **{n: storable(getattr(correction, n)) for n in Correction.__slots__}
        )
        with self._database.writing() as connection:
            ask = select(raw_turns.c.session_id).where(
                raw_turns.c.org_id == self._org, raw_turns.c.id == correction.raw_turn_id
            )
            before = connection.execute(ask).first()
            if before is None:
                raise unknown("turn", correction.raw_turn_id)
            envelope = Envelope(
                org_id=self._org,
                harness_id=correction.harness_id,
                harness_session_id=correction.harness_session_id,
            )
            after = session_id_of(envelope)
            connection.execute(
                insert(corrections),
                {
                    "org_id": self._org,
                    "created_at": time.time_ns(),
                    **{name: getattr(correction, name) for name in Correction.__slots__},
                },
            )
            unplace_dependents(self._database, connection, self._org, [correction.raw_turn_id])
            mine = and_(raw_turns.c.org_id == self._org, raw_turns.c.id == correction.raw_turn_id)
            connection.execute(
                update(raw_turns).where(mine).values(session_id=after, corrected=True)
            )
            gone = turn_marks.c.raw_turn_id == correction.raw_turn_id
            connection.execute(delete(turn_marks).where(turn_marks.c.org_id == self._org, gone))
            touched = {after, before.session_id} - {None}
            dirtied = sorted((self._org, session) for session in touched)
            mark_dirty(self._database, connection, dirtied, time.time_ns())
            told = {"turn": correction.raw_turn_id, "session": after, "reason": correction.reason}
            note_in_audit(connection, self._org, "correct", by, told)

    # --- policy and audit

    def policy(self) -> Policy:
        """How long sessions are kept."""
        with self._database.reading() as connection:
            row = connection.execute(select(policies).where(policies.c.org_id == self._org)).first()
        if row is None:
            return Policy()
        return Policy(row.max_age_ns, row.max_sessions, row.max_bytes)

    def set_policy(self, policy: Policy, by: str) -> None:
        """Change it."""
        values = {name: getattr(policy, name) for name in Policy.__slots__}
        with self._database.writing() as connection:
            connection.execute(
                self._database.insert(policies).on_conflict_do_update(
                    index_elements=[policies.c.org_id], set_=values
                ),
                {"org_id": self._org, **values},
            )
            note_in_audit(connection, self._org, "set_policy", by, values)

    def note(self, action: str, by: str, details: Mapping[str, object]) -> None:
        """Write into the audit, but where one may only read: then it is a copy to look at."""
        if self._database.only_read:
            return
        with self._database.writing() as connection:
            note_in_audit(connection, self._org, action, by, details)

    def audit(self, before: int | None, limit: int) -> tuple[AuditEntry, ...]:
        """What was done, the latest first."""
        ask = select(audit).where(audit.c.org_id == self._org).order_by(audit.c.id.desc())
        if before is not None:
            ask = ask.where(audit.c.id < before)
        with self._database.reading() as connection:
            rows = connection.execute(ask.limit(limit)).all()
        return tuple(AuditEntry(r.id, r.at, r.action, r.by, r.details or {}) for r in rows)
