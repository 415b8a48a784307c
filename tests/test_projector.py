"""What the projector remembers of sessions: enough to be quick, and no more."""

import pytest

from tapes.projector import Projector
from tapes.rows import RawTurn
from tapes.store.sql import SqlStore
from tests.turns import raw_turn

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
