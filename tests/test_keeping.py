"""A log with its projector beside: what is noticed is seen."""

import threading
from pathlib import Path
from typing import Any

import pytest

import tapes.keeping
from tapes.capture.spool import Spool
from tapes.errors import UnreadableStore
from tapes.keeping import deriving, keeping, open_projector, open_spool, open_store
from tapes.opening import Where
from tapes.store.sql import SqlStore
from tapes.store.sqlite import open_sqlite
from tests.noticing import noticed
from tests.proxies import wait_until
from tests.turns import chat, said

CANARY = "CANARY-7f3a-quartz"


def place(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> Where:
    if kind == "postgres":
        return Where.of(request.getfixturevalue("database"))
    return Where(str(tmp_path / ".tapes" / "tapes.db"))


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, in_tmp_path: Path) -> Where:
    return place(request.param, in_tmp_path, request)


@pytest.mark.row("D3", "D7")
def test_what_is_noticed_becomes_a_session_while_it_goes_on(where: Where) -> None:
    with keeping(where) as kept:
        store = open_store(where)
        kept.notice(noticed("what is seen", headers=(("x-session-id", "s-1"),)))
        wait_until(lambda: store.project().sessions().items)
        (listed,) = store.project().sessions().items
        assert listed.session.harness_session_id == "s-1"
        assert listed.session.preview == "what is seen"
        wait_until(lambda: kept.counts()["derived"])
        store.close()


def test_what_came_just_before_the_end_is_derived(where: Where) -> None:
    with keeping(where) as kept:
        for number in range(20):
            kept.notice(noticed(f"question {number}", headers=(("x-session-id", f"s-{number}"),)))
    store = open_store(where)
    assert len(store.project().sessions().items) == 20
    assert list(open_projector(store).check()) == []
    store.close()


def test_a_file_that_is_none_of_ours_is_refused_before_anything_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "tapes.db"
    file.write_bytes(b"something else, and long enough to be looked at" * 50)
    before = file.read_bytes()
    with pytest.raises(UnreadableStore), keeping(Where(str(file))):
        pytest.fail("it was opened")
    assert file.read_bytes() == before


def test_a_store_that_is_gone_is_waited_for(in_tmp_path: Path) -> None:
    gone = Where.of("postgresql://nobody@127.0.0.1:1/none?connect_timeout=1")
    with keeping(gone) as kept:
        kept.notice(noticed())
        wait_until(lambda: kept.log.counts()["waiting on disk"] == 1)
    assert Spool(in_tmp_path / gone.spool).counts()["turns"] == 1


@pytest.mark.row("D2")
def test_erasing_a_session_reaches_the_turns_that_wait(where: Where) -> None:
    store = open_store(where)
    store.append([chat(1, [said("user", "kept")], "yes", session="gone")])
    projector = open_projector(store)
    projector.drain()
    (listed,) = store.project().sessions().items
    spool = open_spool(where)
    spool.put([chat(2, [said("user", CANARY)], "yes", session="gone")])
    erasure = store.project().erase([listed.session.id], reason="asked")
    assert erasure.turns == 2
    assert spool.is_empty
    assert erasure.unsearched == ()
    store.close()


@pytest.mark.row("D2")
def test_an_erasure_names_damaged_files_that_nobody_can_search(where: Where) -> None:
    store = open_store(where)
    store.append([chat(1, [said("user", "kept")], "yes", session="gone")])
    open_projector(store).drain()
    (listed,) = store.project().sessions().items
    file = open_spool(where).put([chat(2, [said("user", CANARY)], "yes", session="gone")])
    file.write_bytes(file.read_bytes()[:-3])
    erasure = store.project().erase([listed.session.id], reason="asked")
    assert erasure.unsearched == (str(file),)
    again = store.project().erasure(erasure.id)
    assert again is not None
    assert again.unsearched == (str(file),)
    store.close()


def test_a_store_that_hangs_holds_up_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tapes.keeping, "_STOPPING_S", 0.01)
    asked, free = threading.Event(), threading.Event()

    class Hanging(SqlStore):
        def placing(self, limit: int) -> Any:
            asked.set()
            assert free.wait(20)
            return super().placing(limit)

    store = Hanging(open_sqlite(tmp_path / "t.db").database)
    with deriving(open_projector(store)):
        assert asked.wait(20)
    assert not free.is_set()
    free.set()
    wait_until(lambda: "tapes projector" not in {thread.name for thread in threading.enumerate()})
    store.close()
