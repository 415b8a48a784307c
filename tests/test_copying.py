from dataclasses import replace
from pathlib import Path

import pytest

from tapes.copying import copy_log
from tapes.projector import Projector
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
