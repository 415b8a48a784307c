"""What becomes of what derivers make of sessions, on both databases."""

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import text

from tapes import projector
from tapes.derive.deriver import derive
from tapes.projector import Pace, Projector
from tapes.rows import NO_ORG
from tapes.store.postgres import open_postgres
from tapes.store.sql import SqlStore
from tapes.store.sqlite import open_sqlite
from tests.proxies import PATIENCE_S, wait_until
from tests.turns import SECOND, START, chat, said

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
    assert work.refused == [work.taken[1]]
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


def steps_of(store: SqlStore) -> list[int]:
    """How many of forty sessions each step of a projector derives."""
    store.append([chat(n, [said("user", f"hi {n}")], "yes", session=f"s{n}") for n in range(1, 41)])
    worker = Projector(store, pace=Pace(at_once=4, at_most=16))
    derived = [worker.step(eager=True).derived for _ in range(12)]
    assert sum(derived) == 40
    return [number for number in derived if number]


def test_where_many_wait_more_are_derived_together(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projector, "_LONG_S", float("inf"))
    assert steps_of(store) == [4, 8, 16, 12]


def test_what_takes_long_is_derived_a_few_at_a_time(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projector, "_LONG_S", 0.0)
    assert steps_of(store) == [4] * 10


def test_what_was_set_aside_is_derived_anew_even_without_turns(store: SqlStore) -> None:
    three_chats(store)
    Projector(store).drain()
    gone = "00000000-0000-5000-8000-000000000001"
    store.mark_dirty(NO_ORG, [gone])
    with store.take(1, ready_at=LATER, overdue_at=LATER) as work:
        work.fail(work.taken[0], "as it was once")
    assert store.counts()["waiting"]["failed"] == 1
    assert store.mark_dirty() == 4
    Projector(store).drain()
    assert store.counts()["waiting"] == {"sessions": 0, "failed": 0, "unplaced": 0}


def test_what_is_erased_while_it_is_derived_stays_erased(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "tapes.db")
    store.append([chat(1, [said("user", "hi")], "yes")])
    with store.take(1, ready_at=LATER, overdue_at=LATER) as work:
        (session,) = work.taken
        rows = derive(store.turns_of(session.org_id, session.session_id)[1])
        store.project().erase([session.session_id], reason="asked")
        work.write(session, rows)
    assert store.project().session(session.session_id) is None
    assert store.project().spans().items == ()
    store.close()


def test_a_new_turn_of_a_session_erased_while_it_is_derived_is_derived(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "tapes.db")
    store.append([chat(1, [said("user", "hi")], "yes")])
    with store.take(1, ready_at=LATER, overdue_at=LATER) as work:
        (session,) = work.taken
        rows = derive(store.turns_of(session.org_id, session.session_id)[1])
        store.project().erase([session.session_id], reason="asked")
        begins = time.time_ns() / SECOND + 60 - START / SECOND
        store.append([chat(2, [said("user", "fresh")], "yes", begins=begins)])
        work.write(session, rows)
    Projector(store).drain()
    (trace,) = store.project().traces().items
    assert trace.user_prompt == "fresh"
    store.close()


def test_whoever_erases_a_session_waits_for_the_worker_that_has_it(database: str) -> None:
    store = open_postgres(database)
    store.append([chat(1, [said("user", "hi")], "yes")])
    with ThreadPoolExecutor() as threads:
        with store.take(1, ready_at=LATER, overdue_at=LATER) as work:
            (session,) = work.taken
            rows = derive(store.turns_of(session.org_id, session.session_id)[1])
            erased = threads.submit(store.project().erase, [session.session_id], reason="asked")
            wait_until(lambda: waits_for_a_lock(store))
            work.write(session, rows)
        assert erased.result(PATIENCE_S).turns == 1
    assert store.project().session(session.session_id) is None
    assert store.project().spans().items == ()
    store.close()


def impatient(dsn: str) -> str:
    """A database that gives an error instead of a long wait for a lock."""
    return f"{dsn}?options=-c%20lock_timeout%3D2000"


@pytest.mark.row("D7")
def test_workers_on_one_server_share_what_waits_and_none_waits_for_another(database: str) -> None:
    with (
        closing(open_postgres(database)) as one,
        closing(open_postgres(impatient(database))) as two,
    ):
        three_chats(one)
        with (
            one.take(1, ready_at=LATER, overdue_at=LATER) as first,
            two.take(10, ready_at=LATER, overdue_at=LATER) as second,
        ):
            taken = [each.session_id for each in first.taken + second.taken]
            assert len(first.taken) == 1
            assert len(taken) == len(set(taken)) == 3


def test_a_failure_of_an_older_state_sets_nothing_aside(store: SqlStore) -> None:
    three_chats(store)
    with store.take(1, ready_at=LATER, overdue_at=LATER) as work:
        (session,) = work.taken
        with store.turns_of_many(session.org_id, {session.session_id: frozenset()}) as turns_of:
            name = turns_of(session.session_id)[1][0].envelope.harness_session_id
        store.append([chat(9, [said("user", "more")], "yes", session=name, begins=50)])
        work.fail(session, "before the turn that came meanwhile")
    assert store.counts()["waiting"]["failed"] == 0
    Projector(store).drain()
    assert store.project().stats().traces == 4


def waits_for_a_lock(store: SqlStore) -> bool:
    with store.database.reading() as connection:
        ask = text("SELECT count(*) FROM pg_locks WHERE NOT granted")
        return bool(connection.execute(ask).scalar_one())
