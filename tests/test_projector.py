"""What the projector remembers of sessions: enough to be quick, and no more."""

import threading
from typing import Any

import pytest

from tapes import projector
from tapes.errors import UnavailableStore
from tapes.projector import Pace, Progress, Projector
from tapes.rows import RawTurn
from tapes.store.base import Placement
from tapes.store.sql import SqlStore
from tests.proxies import wait_until
from tests.turns import chat, raw_turn, said

ANSWER = {"choices": [{"message": {"role": "assistant", "content": "yes"}}]}


def turn(session: int, number: int) -> RawTurn:
    """A turn that says again what the ones before it said."""
    messages = [{"role": "user", "content": f"question {n}"} for n in range(number + 1)]
    return raw_turn(
        number,
        "/v1/chat/completions",
        {"model": "m", "messages": messages},
        ANSWER,
        session=f"s{session}",
        request_id=f"{session}-{number}",
    )


def test_a_session_that_goes_on_is_remembered_until_it_has_rested(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    projector = Projector(store)
    store.append([turn(0, 0)])
    projector.drain()
    assert projector.remembered == 1
    monkeypatch.setattr("tapes.projector._KEPT_S", 0.0)
    projector.step()  # with nothing to do
    assert projector.remembered == 0


def test_many_short_sessions_are_not_all_remembered(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tapes.projector._REMEMBERED", 500_000)
    projector = Projector(store)
    for session in range(40):
        store.append([turn(session, number) for number in range(3)])
        projector.drain()
    assert 1 <= projector.remembered <= 5


def test_what_was_let_go_is_read_again(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    projector = Projector(store)
    store.append([turn(0, 0)])
    projector.drain()
    with monkeypatch.context() as patched:
        patched.setattr("tapes.projector._KEPT_S", 0.0)
        projector.step()
    store.append([turn(0, 1)])
    projector.drain()
    assert list(projector.check()) == []
    [listed] = store.project().sessions().items
    assert listed.session.turn_count == 2


def test_a_session_that_is_remembered_is_derived_anew_where_nothing_came(store: SqlStore) -> None:
    projector = Projector(store)
    store.append([turn(0, 0)])
    projector.drain()
    store.mark_dirty()
    progress = projector.drain()
    assert (progress.derived, progress.failed) == (1, 0)


@pytest.mark.parametrize("number", ["1e999", "NaN", "9" * 400], ids=["infinite", "nan", "long"])
@pytest.mark.parametrize("session", ["s", ""], ids=["named", "unnamed"])
def test_a_number_that_no_json_can_say_harms_no_session(
    store: SqlStore, number: str, session: str
) -> None:
    arguments = {"name": "f", "arguments": f'{{"n": {number}}}'}
    asks = said("assistant", None, tool_calls=[{"id": "c1", "function": arguments}])
    store.append([chat(1, [said("user", "go")], asks, session=session)])
    worker = Projector(store)
    worker.drain()
    assert store.counts()["waiting"] == {"sessions": 0, "failed": 0, "unplaced": 0}
    assert [trace.tool_calls for trace in store.project().traces().items] == [1]
    assert list(worker.check()) == []


def test_a_turn_that_nobody_can_read_is_set_aside_and_stops_no_other(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed = projector.placement_of

    def broken(raw: RawTurn, *more: Any) -> Placement:
        if raw.request_id == "r1":
            raise RecursionError
        return placed(raw, *more)

    monkeypatch.setattr(projector, "placement_of", broken)
    store.append([chat(n, [said("user", f"hi {n}")], "yes", session="") for n in (1, 2)])
    Projector(store).drain()
    assert [trace.user_prompt for trace in store.project().traces().items] == ["hi 2"]
    assert store.project().skipped() == {"reducer_error": 1}


def test_an_error_of_any_kind_does_not_end_the_projector(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, stop, worker = Projector.step, threading.Event(), Projector(store, pace=Pace(idle_ms=1))
    times = iter((ValueError("odd"),))

    def step(self: Projector, **how: bool) -> Progress:
        for error in times:
            raise error
        return steps(self, **how)

    monkeypatch.setattr(Projector, "step", step)
    store.append([turn(0, 0)])
    thread = threading.Thread(target=worker.run, args=(stop,))
    thread.start()
    try:
        wait_until(lambda: store.project().sessions().items)
    finally:
        stop.set()
        worker.wake()
        thread.join()


def test_a_lock_that_cannot_be_had_just_now_does_not_end_the_projector(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leading, asked = SqlStore.leading, 0

    def without_descriptors_at_first(self: SqlStore) -> Any:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise OSError("Too many open files")
        return leading(self)

    monkeypatch.setattr(SqlStore, "leading", without_descriptors_at_first)
    projector, stop = Projector(store, pace=Pace(idle_ms=1)), threading.Event()
    running = threading.Thread(target=projector.run, args=(stop,))
    running.start()
    store.append([turn(0, 0)])
    try:
        wait_until(lambda: projector.total.derived == 1)
    finally:
        stop.set()
        running.join(10)
    assert "Too many open files" in caplog.text


def test_trouble_is_told_once_and_when_it_is_over(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    failed, stop = [UnavailableStore("the disk is full")] * 20, threading.Event()

    def step(self: Projector) -> Progress:
        self.wake()
        if failed:
            raise failed.pop()
        stop.set()
        return Progress()

    monkeypatch.setattr(Projector, "step", step)
    Projector(store).run(stop)
    told = [record.getMessage() for record in caplog.records]
    assert told == ["the projector goes on later: the disk is full", "the projector goes on"]
