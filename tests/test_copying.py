import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tapes.copying import Copied, copy_log
from tapes.projector import Projector
from tapes.rows import NO_ORG, session_id_of
from tapes.store.base import Correction, Kept, Policy
from tapes.store.postgres import open_postgres
from tapes.store.sql import SqlStore
from tapes.store.sqlite import open_sqlite
from tests.contracts.test_store import fill, many
from tests.postgres import Postgres
from tests.turns import chat, said

ORG = "22222222-2222-4222-8222-222222222222"


def rows(store: SqlStore, org_id: str) -> object:
    project = store.project(org_id)
    listed = project.sessions().items
    return [(each.notes, project.rows_of_session(each.session.id)) for each in listed]


@pytest.mark.row("D7")
def test_a_log_goes_to_the_other_database_and_back_without_loss(
    tmp_path: Path, postgres: Postgres
) -> None:
    first = open_sqlite(tmp_path / "a.db")
    second = open_postgres(postgres.new_database("copied"))
    third = open_sqlite(tmp_path / "b.db")
    try:
        fill(first, many(3, 4))
        turn = chat(90, [said("user", "theirs")], "x", request_id="theirs")
        fill(first, [replace(turn, envelope=replace(turn.envelope, org_id=ORG))])
        project = first.project()
        session = project.sessions().items[0].session.id
        project.rename(session, "Ada's")
        project.tag(session, add=["a", "b"])
        project.pin(session)
        one = copy_log(first, second, Projector(second).drain)
        two = copy_log(second, third, Projector(third).drain)
        assert (one.turns, one.new, two.new) == (13, 13, 13)
        for org_id in first.orgs():
            assert rows(first, org_id) == rows(second, org_id) == rows(third, org_id)
        sent = list(project.stream_turns())
        came = list(third.project().stream_turns())
        assert [replace(t, id=0) for t in sent] == [replace(t, id=0) for t in came]
        assert copy_log(first, second, Projector(second).drain).new == 0
    finally:
        for store in (first, second, third):
            store.close()


def governed(store: SqlStore, org_id: str) -> list[object]:
    """All that is kept beside turns, as it can be told from outside."""
    project = store.project(org_id)
    entries = project.audit(limit=1000)
    audit = [(each.at, each.action, each.by) for each in entries if each.by != "copy"]
    found: list[object] = [audit, project.policy()]
    for entry in entries:
        number = entry.details.get("erasure")
        if isinstance(number, int) and entry.by != "copy":
            erasure = project.erasure(number)
            assert erasure is not None
            assert erasure.done_at is not None
            found.append(replace(erasure, id=0, done_at=0))
    return found


@pytest.fixture(params=["to postgres", "to sqlite"])
def pair(
    request: pytest.FixtureRequest, tmp_path: Path, database: str
) -> Iterator[tuple[SqlStore, SqlStore]]:
    """Two empty logs, one on each database, in both orders."""
    stores = [open_sqlite(tmp_path / "a.db"), open_postgres(database)]
    one, other = stores if request.param == "to postgres" else reversed(stores)
    yield one, other
    for store in stores:
        store.close()


def copied(first: SqlStore, second: SqlStore) -> Copied:
    return copy_log(first, second, Projector(second).drain)


@pytest.mark.row("D7")
def test_the_audit_erasures_and_retention_go_along_once(pair: tuple[SqlStore, SqlStore]) -> None:
    first, second = pair
    fill(first, many(4, 2))
    project = first.project()
    ids = [each.session.id for each in project.sessions().items]
    project.rename(ids[0], "Ada's", by="ada")
    project.note_tape(ids[0], "tests/tapes/a.jsonl")
    project.erase(ids[2:3], reason="asked for", by="ada")
    project.set_policy(Policy(max_sessions=100), by="ada")
    gone = first.project(ORG)  # a tenant of which nothing is left but what was done
    turn = chat(90, [said("user", "theirs")], "x", request_id="theirs")
    fill(first, [replace(turn, envelope=replace(turn.envelope, org_id=ORG))])
    gone.erase([gone.sessions().items[0].session.id], reason="left", by="bob")
    done = copied(first, second)
    assert done.records > 8
    for org_id in (NO_ORG, ORG):
        assert governed(first, org_id) == governed(second, org_id)
    planned = second.project().erase(ids[:1], reason="", dry_run=True)
    assert planned.tapes == ("tests/tapes/a.jsonl",)
    again = copied(first, second)
    assert (again.records, again.new) == (0, 0)
    assert governed(first, NO_ORG) == governed(second, NO_ORG)


def test_a_name_that_was_given_there_is_not_taken_away(pair: tuple[SqlStore, SqlStore]) -> None:
    first, second = pair
    fill(first, many(1, 1))
    copied(first, second)
    [listed] = second.project().sessions().items
    second.project().rename(listed.session.id, "theirs")
    copied(first, second)
    [listed] = second.project().sessions().items
    assert listed.notes.display_name == "theirs"


@pytest.mark.row("D7")
def test_what_was_erased_here_is_refused_and_erased_there(pair: tuple[SqlStore, SqlStore]) -> None:
    first, second = pair
    turns = many(3, 2)
    fill(first, turns)
    copied(first, second)
    session = session_id_of(turns[0].envelope)
    first.project().erase([session], reason="asked for")
    copied(first, second)
    for store in pair:
        assert store.project().session(session) is None
        assert store.append(turns[:2])[0].kept is Kept.ERASED
        assert len(store.project().sessions().items) == 2
    late = chat(50, [said("user", "once more")], "x", session="s0", request_id="late")
    late = replace(late, started_at=time.time_ns(), ended_at=None)
    fill(first, [late])
    copied(first, second)
    copied(first, second)
    (kept,) = second.project().stream_turns(session_id=session)
    assert kept.request_id == "late"


def test_turns_without_an_id_of_their_own_are_copied_once(tmp_path: Path) -> None:
    first, second = open_sqlite(tmp_path / "a.db"), open_sqlite(tmp_path / "b.db")
    turn = chat(1, [said("user", "hi")], "x", request_id="")
    fill(first, [turn, turn])
    assert copy_log(first, second, Projector(second).drain).new == 2
    assert copy_log(first, second, Projector(second).drain).new == 0
    totals = [s.project().stats() for s in (first, second)]
    assert totals[0] == totals[1]
    first.close()
    second.close()


@pytest.mark.parametrize("request_id", ["mine", ""], ids=["named", "unnamed"])
def test_corrections_of_attribution_follow_a_first_copy_once(
    pair: tuple[SqlStore, SqlStore], request_id: str
) -> None:
    first, second = pair
    fill(first, [chat(1, [said("user", "hi")], "x", session="wrong", request_id=request_id)])
    copied(first, second)
    project = first.project()
    (head,) = project.turns().items
    for session in ("half", "right"):
        project.correct(Correction(head.id, "bench", session, reason="told late"), by="ada")
    Projector(first).drain()
    assert copied(first, second).new == 0
    moved = [e for e in second.project().audit() if (e.action, e.by) == ("correct", "copy")]
    assert len(moved) == 1
    names = [[s.session.harness_session_id for s in store.project().sessions().items]
             for store in pair]  # fmt: skip
    assert names == [["right"], ["right"]]
    (kept,) = second.project().stream_turns(as_captured=True)
    assert kept.envelope.harness_session_id == "wrong"
    copied(first, second)
    assert len([e for e in second.project().audit() if e.by == "copy"]) == 1


def test_what_became_no_turn_is_counted_there_once(pair: tuple[SqlStore, SqlStore]) -> None:
    first, second = pair
    first.count_drops({(NO_ORG, "openai", "non_turn_request"): 3, (ORG, "", "decode"): 1})
    second.count_drops({(NO_ORG, "openai", "non_turn_request"): 1})
    for _ in range(2):
        copied(first, second)
        assert second.counts()["drops"] == {"decode": 1, "non_turn_request": 3}
    first.count_drops({(NO_ORG, "openai", "non_turn_request"): 2})
    copied(first, second)
    assert second.counts()["drops"]["non_turn_request"] == 5
