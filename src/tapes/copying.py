"""A log copied into another database, of either kind.

Rule 1: what was erased is erased there too, before any turn goes over. Turns go over as they are,
        tenant by tenant, in the order of arrival. What is derived is derived anew there, with the
        same ids.
Rule 2: a turn that is there already is not kept a second time; one without a request id is known
        by a mark that copying gives it, so that copying again adds nothing; ids that were made
        from its number are made from the mark there.
Rule 3: whose turn it really was goes over too, whenever it was said: the turn goes as it was
        captured, and the correction is made there as here.
Rule 4: names, tags and pins go over once the sessions are there. The audit, erasures, how long
        things are kept and which tapes were made go over as they are, once.

Knows nothing of the command line.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice

from tapes.rows import OF_COPY, RawTurn
from tapes.store.base import MOST, Ask, Correction, Kept, Listed, Project, Record, Records, Store
from tapes.turnlines import line_of

_AT_ONCE = 100
_BY = "copy"


@dataclass(slots=True)
class Copied:
    """How many turns there are, and how many were new: of them, and of the audit and the like."""

    turns: int = 0
    new: int = 0
    records: int = 0


def copy_log(source: Store, target: Store, derive: Callable[[], object]) -> Copied:
    """Copy all tenants' records and turns, have them derived, then copy what people said."""
    done = Copied()
    for org_id in source.orgs_of_records():
        done.records += _copy_records(source.project(org_id), target.project(org_id))
    for org_id in source.orgs():
        _copy_turns(source.project(org_id), target, done)
    derive()
    for org_id in source.orgs():
        _copy_notes(source.project(org_id), target.project(org_id))
    return done


def _copy_turns(source: Project, target: Store, done: Copied) -> None:
    corrections = {each.raw_turn_id: each for each in source.corrections()}
    turns = source.stream_turns(as_captured=True)
    while some := list(islice(turns, _AT_ONCE)):
        receipts = target.append([_marked(turn) for turn in some])
        done.turns += len(some)
        for turn, receipt in zip(some, receipts, strict=True):
            done.new += receipt.kept is Kept.NEW
            if turn.id in corrections and receipt.id:
                _correct(target.project(source.org_id), receipt.id, corrections[turn.id])


def _correct(target: Project, turn_id: int, correction: Correction) -> None:
    turn = target.turn(turn_id)
    if turn is not None and _owner(correction) != (
        turn.envelope.harness_id,
        turn.envelope.harness_session_id,
        turn.thread_id,
        turn.envelope.parent_harness_session_id,
    ):
        target.correct(replace(correction, raw_turn_id=turn_id), by=_BY)


def _owner(said: Correction) -> tuple[str, str, str, str | None]:
    return (
        said.harness_id, said.harness_session_id, said.thread_id, said.parent_harness_session_id
    )  # fmt: skip


def _copy_records(source: Project, target: Project) -> int:
    new, batch = 0, list[Record]()
    for record in source.records():
        if record.kind is Records.TOMBSTONES:
            target.erase_as(record, by=_BY)
        batch.append(record)
        if len(batch) == _AT_ONCE:
            new += target.take_records(batch)
            batch.clear()
    return new + target.take_records(batch)


def _marked(turn: RawTurn) -> RawTurn:
    """The turn as the target knows it again (rule 2)."""
    if turn.request_id:
        return turn
    digest = hashlib.sha256(f"{turn.id} {line_of(turn)}".encode()).hexdigest()
    return replace(turn, request_id=f"{OF_COPY}{digest[:32]}")


def _copy_notes(source: Project, target: Project) -> None:
    for listed in _sessions(source):
        key, notes = listed.session.id, listed.notes
        there = target.session(key)
        if there is None or notes == there.notes:
            continue
        if notes.display_name not in ("", there.notes.display_name):
            target.rename(key, notes.display_name, by=_BY)
        if set(notes.tags) - set(there.notes.tags):
            target.tag(key, add=notes.tags, by=_BY)
        if notes.pinned and not there.notes.pinned:
            target.pin(key, by=_BY)


def _sessions(source: Project) -> Iterator[Listed]:
    ask = Ask(sort="started_at", descending=False, limit=MOST)
    while True:
        page = source.sessions(ask, placeholders=True)
        yield from page.items
        if page.next_cursor is None:
            return
        ask = replace(ask, cursor=page.next_cursor)
