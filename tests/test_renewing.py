"""What an older deriver derived is derived anew beside: all, once, and nothing waits for it."""

import logging
import re
import threading

import pytest
from sqlalchemy import select, update

from tapes.derive.deriver import derive
from tapes.derive.rollups import unpriced
from tapes.projector import Pace, Projector, Renewer
from tapes.rows import DERIVATION, NO_ORG
from tapes.store.base import Derivation
from tapes.store.sql import SqlStore
from tapes.store.tables import about, traces
from tests.conftest import OpenStore
from tests.proxies import PATIENCE_S, wait_until
from tests.turns import chat, said

OLDER, THIS, NEWER = 1, 2, 3
LATER = 2**62


def of_older(store: SqlStore, sessions: int = 3, number: int = OLDER) -> None:
    """A log that a deriver of a lower number derived, which saw other names in it."""
    store.append(
        [
            chat(number, [said("user", f"hi {number}")], "yes", session=f"s{number % sessions}")
            for number in range(1, 2 * sessions + 1)
        ]
    )
    Projector(store).drain()
    with store.database.writing() as connection:
        connection.execute(update(traces).values(name="as it was", content_hash=""))
    store.derived(number)


def names(store: SqlStore) -> list[str]:
    """The names of all traces, those of the last first."""
    with store.database.reading() as connection:
        ask = select(traces.c.name).order_by(traces.c.started_at.desc())
        return list(connection.execute(ask).scalars())


def renewer(store: SqlStore, number: int = THIS) -> Renewer:
    return Renewer(store, unpriced, number)


def all_of(store: SqlStore, number: int = THIS) -> None:
    its = renewer(store, number)
    while its.step():
        pass


def test_a_new_log_is_of_this_deriver(store: SqlStore) -> None:
    assert store.derivation() == Derivation(DERIVATION, DERIVATION)


def test_what_an_older_deriver_derived_is_derived_anew(store: SqlStore) -> None:
    of_older(store, 20)
    assert set(names(store)) == {"as it was"}
    all_of(store)
    assert "as it was" not in names(store)
    assert store.derivation() == Derivation(THIS, THIS)
    assert list(Projector(store).check()) == []


def test_a_log_from_before_derivers_had_numbers_is_older(store: SqlStore) -> None:
    of_older(store)
    with store.database.writing() as connection:
        connection.execute(about.delete().where(about.c.name == "derived"))
    assert store.derivation() == Derivation(0, 0)
    all_of(store)
    assert store.derivation() == Derivation(THIS, THIS)
    assert "as it was" not in names(store)


def test_the_last_sessions_are_derived_anew_first_and_a_few_at_a_time(store: SqlStore) -> None:
    of_older(store, 20)
    its = renewer(store)
    assert its.step()
    derived = [number for number, name in enumerate(names(store)) if name != "as it was"]
    assert len(derived) == 2  # a session's
    assert derived[0] < 16
    known = store.derivation()
    assert (known.version, known.newest) == (OLDER, THIS)
    assert 0 < known.done(THIS) < 1


def test_whoever_comes_next_goes_on_where_the_last_one_was_killed(store: SqlStore) -> None:
    of_older(store, 20)
    its = renewer(store)
    for _ in range(3):
        its.step()
    with store.take_renewed(4) as work:
        assert len(work.taken) == 4  # and nothing comes of it
    assert store.derivation().lasts
    left = names(store).count("as it was")
    assert 0 < left < 40
    all_of(store)
    assert "as it was" not in names(store)


def test_a_session_is_derived_anew_once(store: SqlStore) -> None:
    of_older(store, 20)
    its, taken = renewer(store), 0
    while its.step():
        taken = its.derived
    assert taken == 20


def test_what_is_derived_anew_does_not_count_as_waiting(store: SqlStore) -> None:
    of_older(store, 20)
    store.renew(THIS)
    with store.take_renewed(100) as work:
        assert work.taken
    assert store.counts()["waiting"] == {"sessions": 0, "failed": 0, "unplaced": 0}
    assert store.project().waiting() == store.waiting(NO_ORG) == 0
    assert not Projector(store).drain().worked


def test_a_turn_makes_what_is_to_be_derived_anew_as_urgent_as_any_other(store: SqlStore) -> None:
    of_older(store)
    store.renew(THIS)
    with store.take_renewed(100) as work:
        given = {each.session_id for each in work.taken}
    store.append([chat(90, [said("user", "more")], "yes", session="s1")])
    with store.take_renewed(100) as work:
        (urgent,) = given - {each.session_id for each in work.taken}
    progress = Projector(store).drain()
    assert progress.derived == 1
    assert urgent not in {
        each.session_id for each in store.project().traces().items if each.name == "as it was"
    }


@pytest.mark.parametrize("open_store", ["sqlite"], indirect=True)  # elsewhere a lock is held
def test_what_was_derived_with_fewer_turns_is_not_written_over_what_came(store: SqlStore) -> None:
    of_older(store, 1)
    store.renew(THIS)
    with store.take_renewed(1) as work:
        (session,) = work.taken
        rows = derive(store.turns_of(session.org_id, session.session_id)[1])
        store.append([chat(90, [said("user", "more")], "yes", session="s0")])
        Projector(store).drain()
        work.write(session, rows)
    assert len(names(store)) == 3
    all_of(store)
    assert list(Projector(store).check()) == []


def test_what_could_not_be_derived_is_tried_anew(store: SqlStore) -> None:
    of_older(store)
    store.mark_dirty()
    with store.take(1, ready_at=LATER, overdue_at=LATER) as work:
        work.fail(work.taken[0], "as it was once")
    Projector(store).drain()
    assert store.counts()["waiting"]["failed"] == 1
    all_of(store)
    Projector(store).drain()
    assert store.counts()["waiting"]["failed"] == 0
    assert "as it was" not in names(store)


def test_what_a_newer_deriver_derived_is_left_alone_and_said_once(
    store: SqlStore, caplog: pytest.LogCaptureFixture
) -> None:
    of_older(store, number=NEWER)
    stop = threading.Event()
    with caplog.at_level(logging.WARNING):
        renewer(store).run(stop)
    assert [each.getMessage() for each in caplog.records] == [
        f"{store.name}: derived by a newer version of Tapes, and not derived anew"
    ]
    assert set(names(store)) == {"as it was"}
    assert store.derivation() == Derivation(NEWER, NEWER)


def test_an_older_deriver_stops_where_a_newer_one_begins(store: SqlStore) -> None:
    of_older(store, 20)
    its = renewer(store)
    assert its.step()
    assert renewer(store, NEWER).step()
    assert not its.step()
    all_of(store, NEWER)
    assert store.derivation() == Derivation(NEWER, NEWER)


# With SQLite one process derives at a time.
several = pytest.mark.parametrize("open_store", ["postgres"], indirect=True)


@several
def test_where_another_server_has_all_that_is_left_one_stays(open_store: OpenStore) -> None:
    one, other = open_store(), open_store()
    of_older(one)
    its = renewer(other)
    with one.database.writing() as connection:
        ask = select(about.c.value).where(about.c.name == "derived").with_for_update()
        connection.execute(ask)
        assert its.step()
    assert its.step()
    with one.take_renewed(10) as held:
        assert held.taken
        assert its.step()
    all_of(other)
    assert "as it was" not in names(one)


@several
def test_two_servers_derive_anew_together(open_store: OpenStore) -> None:
    one, other = open_store(), open_store()
    of_older(one, 20)
    first, second = renewer(one), renewer(other)
    for _ in range(2):
        first.step()
        with one.take_renewed(2) as held:
            assert held.taken
            derived = second.derived
            second.step()
            assert second.derived > derived
    while first.step() or second.step():
        pass
    assert "as it was" not in names(one)
    assert one.derivation() == other.derivation() == Derivation(THIS, THIS)


def test_a_projector_derives_anew_while_it_derives_what_comes(
    store: SqlStore, caplog: pytest.LogCaptureFixture
) -> None:
    of_older(store, 20)
    stop = threading.Event()
    worker = Projector(store, pace=Pace(0, 0, 1), number=THIS)
    running = threading.Thread(target=worker.run, args=(stop,))
    with caplog.at_level(logging.WARNING):
        running.start()
        try:
            store.append([chat(90, [said("user", "new")], "yes", session="new")])
            worker.wake()
            wait_until(lambda: not store.derivation().version < THIS, PATIENCE_S)
            wait_until(lambda: len(names(store)) == 41, PATIENCE_S)
        finally:
            stop.set()
            worker.wake()
            running.join()
    assert "as it was" not in names(store)
    told = [each.getMessage().removeprefix(f"{store.name}: ") for each in caplog.records]
    assert len(told) == 2
    assert re.fullmatch(r"an older version of Tapes derived it; it is derived anew: \d+ %", told[0])
    assert told[1] == "all of it is derived anew"
