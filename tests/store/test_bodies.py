"""History that every request repeats is kept once, and read again to the byte."""

import json
import random
from dataclasses import replace

import pytest
from sqlalchemy import func, select, update

from tapes.envelope import Envelope
from tapes.errors import DamagedStore
from tapes.exchange import Request
from tapes.projector import Projector
from tapes.rows import RawTurn
from tapes.store.bodies import STEP, Base, Recent
from tapes.store.logreading import Bodies
from tapes.store.sql import SqlStore
from tapes.store.tables import blobs, raw_turns
from tests.turns import chat, said

CHANCE = random.Random(5)
WORDS = ["".join(CHANCE.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(2000)]


def prose(words: int) -> str:
    return " ".join(CHANCE.choices(WORDS, k=words))


def conversation(length: int, words: int) -> list[RawTurn]:
    """Calls that each send the whole history."""
    history = [said("user", prose(words))]
    turns = []
    for number in range(1, length + 1):
        answer = prose(words // 3)
        turns.append(chat(number, list(history), answer))
        history += [said("assistant", answer), said("user", prose(words * 2 // 3))]
    return turns


def body_of(turn: RawTurn) -> bytes:
    assert turn.exchange is not None
    assert isinstance(turn.exchange.request, Request)
    return turn.exchange.request.body


def stored(store: SqlStore) -> int:
    with store.database.reading() as connection:
        return int(connection.execute(select(func.sum(raw_turns.c.stored_bytes))).scalar_one())


@pytest.mark.row("D2", "D7")
def test_a_long_session_takes_the_space_of_what_it_says(store: SqlStore) -> None:
    turns = conversation(150, 400)
    for turn in turns:
        store.append([turn])
    raw = sum(len(body_of(turn)) for turn in turns)
    last = len(body_of(turns[-1]))
    assert raw > 30_000_000
    assert last > 400_000
    # Packed text takes about half of its length; all requests together hardly more than the last.
    assert stored(store) < last * 0.9
    assert [body_of(turn) for turn in store.project().stream_turns()] == list(map(body_of, turns))


@pytest.mark.parametrize("session", ["s1", ""])
def test_after_a_restart_requests_go_on_from_what_was_kept(store: SqlStore, session: str) -> None:
    envelope = Envelope(harness_id="tests", harness_session_id=session)
    others = Envelope(harness_id="tests", harness_session_id=session and "s2")
    turns = [replace(turn, envelope=envelope) for turn in conversation(3, 400)]
    store.append(turns[:2])
    store.append([replace(conversation(1, 400)[0], request_id="another", envelope=others)])
    SqlStore(store.database).append(turns[2:])
    rows = select(raw_turns.c.id, raw_turns.c.base_id).order_by(raw_turns.c.id)
    with store.database.reading() as connection:
        (first, _), (second, _), _, (_, last) = connection.execute(rows).all()
    assert last in (first, second)


def test_a_chain_of_any_length_is_read_from_any_place(store: SqlStore) -> None:
    turns = conversation(STEP * 2 + 5, 6)
    store.append(turns[:40])
    for at in range(40, len(turns), 60):
        store.append(turns[at : at + 60])
    project = store.project()
    for number in (1, STEP - 1, STEP, STEP + 1, 2 * STEP, len(turns)):
        kept = project.turn(number)
        assert kept is not None
        assert body_of(kept) == body_of(turns[number - 1])


def test_what_two_conversations_have_in_common_is_kept_once(store: SqlStore) -> None:
    tools = [{"type": "function", "function": {"name": f"t{n}", "description": prose(60)}}
             for n in range(20)]  # fmt: skip
    for number in range(1, 6):
        asks = {"tools": tools}
        turn = chat(number, [said("user", f"q{number}")], "a", session=f"s{number}", asks=asks)
        store.append([turn])
    with store.database.reading() as connection:
        assert connection.execute(select(func.count()).select_from(blobs)).scalar_one() == 1
    assert stored(store) < len(json.dumps(tools)) * 2


def test_a_damaged_body_is_named_and_those_before_it_are_read(store: SqlStore) -> None:
    turns = conversation(3, 200)
    for turn in turns:
        store.append([turn])
    with store.database.writing() as connection:
        broken = update(raw_turns).where(raw_turns.c.id == 2).values(body_check=1)
        connection.execute(broken)
    project = store.project()
    assert project.turn(1) is not None
    with pytest.raises(DamagedStore, match="turn 2"):
        project.turn(2)
    told = store.check()
    assert told
    assert all("turn 2: its request is not the one that was kept" in line for line in told)


def test_a_body_that_a_newer_version_packed_is_named_and_holds_up_no_other(
    store: SqlStore,
) -> None:
    for turn in conversation(3, 200):
        store.append([turn])
    store.append([chat(4, [said("user", "another")], "yes", session="another")])
    with store.database.writing() as connection:
        connection.execute(update(raw_turns).where(raw_turns.c.id == 3).values(way=99))
    project = store.project()
    assert project.turn(2) is not None
    with pytest.raises(DamagedStore, match=r"turn 3 .*newer version") as raised:
        project.turn(3)
    assert "upgrade" in (raised.value.remedy or "")
    progress = Projector(store).drain()
    assert (progress.derived, progress.failed) == (1, 1)


def test_short_bodies_are_counted_with_what_they_take_beside_their_bytes() -> None:
    recent = Recent()
    for number in range(200_000):
        recent.add("org", number, Base(number, 0, b"{}"))
    assert recent.seen("org", 0) == ()
    assert recent.seen("org", 199_999)


def test_a_reader_remembers_short_bodies_within_its_bound() -> None:
    bodies = Bodies(1024 * 1024)
    for number in range(20_000):
        bodies.add(number, b"{}")
    assert len(bodies) < 6000
    assert 19_999 in bodies
    bodies.add(19_999, b"{}")  # once more is no more
    assert len(bodies) > 5000
