"""What becomes of what derivers make of sessions, on both databases."""

from dataclasses import replace

from tapes.derive.deriver import derive
from tapes.projector import Projector
from tapes.store.sql import SqlStore
from tests.turns import chat, said

LATER = 2**62


def three_chats(store: SqlStore) -> None:
    store.append([chat(n, [said("user", f"hi {n}")], "yes", session=f"s{n}") for n in (1, 2, 3)])


def test_a_session_that_cannot_be_written_harms_no_other(store: SqlStore) -> None:
    three_chats(store)
    with store.take(10, ready_at=LATER, overdue_at=LATER) as work:
        for number, session in enumerate(work.taken):
            rows = derive(store.turns_of(session.org_id, session.session_id)[1])
            if number == 1:  # half of a character: no database takes it
                rows = replace(rows, sessions=(replace(rows.sessions[0], name="\ud800"),))
            work.write(session, rows)
    assert len(store.project().sessions().items) == 2
    assert store.counts()["waiting"] == {"sessions": 0, "failed": 1, "unplaced": 0}


def test_a_turn_that_comes_while_its_session_is_derived_is_not_lost(store: SqlStore) -> None:
    three_chats(store)
    with store.take(1, ready_at=LATER, overdue_at=LATER) as work:
        (session,) = work.taken
        with store.turns_of_many(session.org_id, {session.session_id: frozenset()}) as turns_of:
            rows = derive(turns_of(session.session_id)[1])
        name = rows.sessions[0].harness_session_id
        store.append([chat(9, [said("user", "more")], "yes", session=name, begins=50)])
        work.write(session, rows)
    assert store.counts()["waiting"]["sessions"] == 3
    Projector(store).drain()
    assert list(Projector(store).check()) == []
    assert store.project().stats().traces == 4
