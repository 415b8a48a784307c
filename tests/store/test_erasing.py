"""Deletion deletes, for good and to the byte."""

import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from sqlalchemy import Engine, Table, event, func, select

from tapes.envelope import Envelope
from tapes.errors import UnknownId
from tapes.projector import Projector
from tapes.rows import RawTurn, session_id_of
from tapes.store.base import Correction, Kept, Noun, Policy
from tapes.store.filters import parse
from tapes.store.sql import SqlStore
from tapes.store.sqlite import open_sqlite
from tapes.store.tables import blobs, metadata, raw_turns, turn_blobs
from tests.turns import SECOND, chat, said

CANARY = "CANARY-7f3a-quartz"


def talk(session: str, secret: str, *, first: int = 1) -> list[RawTurn]:
    """Three calls, each with its whole history."""
    history = [said("user", f"{secret} first")]
    turns = []
    for number in range(first, first + 3):
        answer = f"{secret} answer {number}"
        turns.append(chat(number, list(history), answer, session=session))
        history += [said("assistant", answer), said("user", f"{secret} goes on")]
    return turns


def session_of(turns: list[RawTurn]) -> str:
    return session_id_of(turns[0].envelope)


def rows_of_all_tables(store: SqlStore) -> list[object]:
    with store.database.reading() as connection:
        return [connection.execute(select(table)).all() for table in metadata.sorted_tables]


@pytest.mark.row("D2", "D7")
def test_a_session_is_gone_everywhere_and_does_not_come_back(store: SqlStore) -> None:
    gone, stays = talk("gone", CANARY), talk("stays", "other", first=11)
    store.append([turn for pair in zip(gone, stays, strict=True) for turn in pair])
    Projector(store).drain()
    project = store.project()
    project.tag(session_of(gone), add=[CANARY])
    project.rename(session_of(gone), CANARY)
    assert CANARY in repr(rows_of_all_tables(store))
    erasure = project.erase([session_of(gone)], reason="asked", by="me")
    assert CANARY not in repr(rows_of_all_tables(store))
    assert (erasure.sessions, erasure.turns) == (1, 3)
    assert erasure.bytes > 0
    assert project.session(session_of(gone)) is None
    assert project.search(parse("canary*")).items == ()
    assert CANARY not in repr(list(project.stream_turns()))
    # Neither deriving again nor a late delivery brings it back.
    store.mark_dirty()
    projector = Projector(store)
    projector.drain()
    assert [receipt.kept for receipt in store.append(gone)] == [Kept.ERASED] * 3
    assert project.session(session_of(gone)) is None
    assert len(project.sessions().items) == 1
    assert list(projector.check()) == []
    assert store.check() == ()
    (entry,) = [entry for entry in project.audit() if entry.action == "erase"]
    assert (entry.by, entry.details["reason"]) == ("me", "asked")
    assert CANARY not in repr(entry)


@pytest.mark.row("D2")
def test_its_text_is_in_no_byte_of_the_file(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "tapes.db")
    long = f"{CANARY} {'quartz ' * 4000}"  # a part that is cut out, and kept once
    gone = [*talk("gone", CANARY), chat(7, [said("user", long)], "x", session="gone")]
    store.append([*gone, *talk("stays", "other", first=11)])
    Projector(store).drain()
    project = store.project()
    project.tag(session_of(gone), add=[CANARY, "more"], by="me")
    project.tag(session_of(gone), remove=[CANARY], by="me")
    project.rename(session_of(gone), CANARY)
    project.correct(Correction(1, "quartz", "gone", reason=CANARY))
    Projector(store).drain()
    corrected = session_id_of(Envelope(harness_id="quartz", harness_session_id="gone"))
    project.erase([session_of(gone), corrected], reason="asked")
    tagged = [entry for entry in project.audit() if entry.action == "tag"]
    assert [(entry.by, entry.details) for entry in tagged] == [
        ("me", {"session": session_of(gone)})
    ] * 2
    store.finish_erasures()
    store.close()
    with sqlite3.connect(tmp_path / "tapes.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    for file in tmp_path.iterdir():
        data = file.read_bytes().lower()
        assert b"canary" not in data, file
        assert b"quartz" not in data, file


def test_an_erasure_that_was_broken_off_is_not_done_and_is_gone_on_with(store: SqlStore) -> None:
    turns = [chat(n, [said("user", CANARY)], "yes", session=f"s{n}") for n in range(1, 61)]
    store.append(turns)
    Projector(store).drain()
    project, times = store.project(), list[int]()

    def purge(_: str, sessions: Sequence[str]) -> int:
        times.append(len(sessions))
        if len(times) == 2:
            raise KeyboardInterrupt
        return 0

    store.when_erasing(purge, tuple)
    with pytest.raises(KeyboardInterrupt):
        project.erase([session_id_of(turn.envelope) for turn in turns], reason="asked")
    assert project.count(Noun.SESSIONS).value == 60 - times[0]
    assert store.finish_erasures() == 1
    assert project.count(Noun.SESSIONS).value == 0
    erasure = project.erasure(1)
    assert erasure is not None
    assert (erasure.sessions, erasure.turns) == (60, 60)
    assert erasure.bytes > 0
    assert erasure.done_at is not None


def test_a_new_turn_of_an_erased_session_begins_without_the_old_ones(store: SqlStore) -> None:
    gone = talk("again", CANARY)
    store.append(gone)
    projector = Projector(store)
    projector.drain()
    store.project().erase([session_of(gone)], reason="asked")
    later = (time.time_ns() + 60 * SECOND - gone[0].started_at) / SECOND  # type: ignore[operator]
    new = chat(50, [said("user", "fresh")], "yes", session="again", begins=later + 10)
    assert store.append([new])[0].kept is Kept.NEW
    projector.drain()
    (listed,) = store.project().sessions().items
    assert (listed.session.id, listed.session.turn_count) == (session_of(gone), 1)
    assert listed.session.preview == "fresh"
    assert list(Projector(store).check()) == []


def test_a_dry_run_says_what_would_go_and_an_unknown_session_is_an_error(store: SqlStore) -> None:
    turns = talk("s", "x")
    store.append(turns)
    Projector(store).drain()
    plan = store.project().erase([session_of(turns)], reason="maybe", dry_run=True)
    assert (plan.sessions, plan.turns) == (1, 3)
    assert store.project().session(session_of(turns)) is not None
    with pytest.raises(UnknownId):
        store.project().erase(["11111111-1111-4111-8111-111111111111"], reason="x")


def test_retention_takes_the_oldest_and_leaves_what_is_pinned(store: SqlStore) -> None:
    talks = [talk(f"s{n}", f"t{n}", first=n * 10 + 1) for n in range(4)]
    for turns in talks:
        store.append(turns)
    Projector(store).drain()
    project = store.project()
    project.pin(session_of(talks[0]))
    project.set_policy(Policy(max_sessions=2))
    planned = project.retain(now=time.time_ns(), dry_run=True)
    assert len(project.sessions().items) == 4
    project.retain(now=time.time_ns())
    left = {listed.session.id for listed in project.sessions().items}
    assert session_of(talks[0]) in left
    assert session_of(talks[3]) in left
    assert planned.sessions == 4 - len(left) > 0
    assert list(Projector(store).check()) == []


def test_retention_by_size_keeps_the_newest_without_a_gap(store: SqlStore) -> None:
    large = " ".join(str(n * n) for n in range(3000))
    talks = [talk(f"s{n}", text, first=n * 10 + 1) for n, text in enumerate(("a", large, "b"))]
    for turns in talks:
        store.append(turns)
    Projector(store).drain()
    project = store.project()
    oldest, middle, newest = (
        project.erase([session_of(turns)], reason="size", dry_run=True).bytes for turns in talks
    )
    now = time.time_ns()
    project.set_policy(Policy(max_bytes=oldest + middle + newest))
    assert project.retain(now=now, dry_run=True).sessions == 0
    project.set_policy(Policy(max_bytes=oldest + middle + newest - 1))
    assert project.retain(now=now, dry_run=True).session_ids == (session_of(talks[0]),)
    project.set_policy(Policy(max_bytes=oldest + newest))  # the middle one leaves no gap to fill
    project.retain(now=now)
    assert [listed.session.id for listed in project.sessions().items] == [session_of(talks[2])]


@pytest.mark.row("D2")
def test_a_large_part_goes_with_the_last_session_that_has_it(store: SqlStore) -> None:
    document = "".join(f"line {n * n} of a long document. " for n in range(2000))
    one, other = (
        chat(n, [said("user", document)], "read", session=f"s{n}", begins=n * 10) for n in (1, 2)
    )
    store.append([one])
    store.append([other])
    Projector(store).drain()
    project = store.project()
    assert how_many(store, blobs) == 1
    project.erase([session_of([one])], reason="asked")
    (left,) = project.stream_turns()
    assert left.exchange is not None
    assert left.exchange.request == other.exchange.request  # type: ignore[union-attr]
    assert store.check() == ()
    project.erase([session_of([other])], reason="asked")
    assert (how_many(store, blobs), how_many(store, turn_blobs)) == (0, 0)


def how_many(store: SqlStore, table: Table) -> int:
    with store.database.reading() as connection:
        return int(connection.execute(select(func.count()).select_from(table)).scalar_one())


@pytest.mark.row("D2")
def test_a_turn_that_was_erased_stays_away_however_often_it_comes_at_once(store: SqlStore) -> None:
    turn = chat(1, [said("user", CANARY)], "yes", session="")  # known by its call alone
    store.append([turn])
    Projector(store).drain()
    (listed,) = store.project().sessions().items
    store.project().erase([listed.session.id], reason="asked")
    assert [receipt.kept for receipt in store.append([turn, turn])] == [Kept.ERASED] * 2


def test_a_turn_is_whole_after_the_one_it_was_packed_against_is_gone(
    store: SqlStore,
) -> None:
    first, second, _ = talk("s", " ".join(str(n * n) for n in range(1000)))
    for turn in (first, second):
        store.append([turn])
    project = store.project()
    project.correct(Correction(project.turns().items[-1].id, "bench", "other"))
    Projector(store).drain()
    other = session_id_of(Envelope(harness_id="bench", harness_session_id="other"))
    project.erase([other], reason="asked")
    with store.database.reading() as connection:
        ask = select(raw_turns.c.stored_bytes, raw_turns.c.request, raw_turns.c.rest)
        ((said_bytes, request, rest),) = connection.execute(ask).all()
    assert said_bytes == len(request) + len(rest)
    (left,) = project.stream_turns()
    assert left.exchange is not None
    assert left.exchange.request == second.exchange.request  # type: ignore[union-attr]


def test_a_turn_that_is_placed_while_old_ones_are_erased_is_left(store: SqlStore) -> None:
    store.append(talk("old", "old"))
    Projector(store).drain()
    store.append([chat(9, [said("user", "hello")], "yes", session="")])

    def place(_: str, __: Sequence[str]) -> int:
        return Projector(store).drain().placed and 0

    store.when_erasing(place, tuple)
    project = store.project()
    project.set_policy(Policy(max_age_ns=1))
    project.retain(now=time.time_ns())
    (left,) = project.sessions().items
    assert left.session.preview == "hello"
    assert list(Projector(store).check()) == []


def test_where_everything_is_kept_the_log_is_not_read_for_what_is_too_old(store: SqlStore) -> None:
    store.append(talk("s", "words"))
    asked = list[str]()
    listener = lambda *told: asked.append(told[2])  # noqa: E731
    event.listen(Engine, "before_cursor_execute", listener)
    try:
        assert store.project().retain(now=time.time_ns()).sessions == 0
    finally:
        event.remove(Engine, "before_cursor_execute", listener)
    assert asked
    assert not [sql for sql in asked if "raw_turns" in sql]
