"""What every store promises, on both databases."""

from dataclasses import replace
from random import Random
from threading import Thread

import pytest

from tapes.envelope import Envelope
from tapes.exchange import Exchange, Piece, Response, State
from tapes.projector import Projector
from tapes.rows import NO_ORG, Outcome, RawTurn, Source
from tapes.store.base import Ask, Correction, Kept, Noun, Store
from tapes.store.filters import parse
from tapes.store.sql import SqlStore
from tests.conftest import OpenStore
from tests.derive.talks import conversation, with_thread
from tests.turns import assistant, chat, messages, raw_turn, said, user

OTHER = "11111111-1111-4111-8111-111111111111"


def many(sessions: int, turns: int) -> list[RawTurn]:
    """Conversations that grow, each call with its whole history."""
    out: list[RawTurn] = []
    for session in range(sessions):
        history = [said("user", f"question 0 of {session}")]
        for number in range(turns):
            answer = f"answer {number} of {session}"
            out.append(
                chat(
                    len(out) + 1, list(history), answer, session=f"s{session}",
                    request_id=f"{session}-{number}", begins=session + number * 10,
                )
            )  # fmt: skip
            history += [said("assistant", answer), said("user", f"question {number + 1}")]
    return out


def fill(store: SqlStore, turns: list[RawTurn]) -> None:
    for start in range(0, len(turns), 50):
        store.append(turns[start : start + 50])
    Projector(store).drain()


# --- appending --------------------------------------------------------------------------------


def test_a_store_is_what_its_users_ask_for(store: SqlStore) -> None:
    asked: Store = store
    assert asked.orgs() == ()


@pytest.mark.row("D2")
def test_what_is_read_is_what_was_kept(store: SqlStore) -> None:
    odd = raw_turn(
        1, "/v1/messages", {"a": [1, 2.5, "ü", None]}, {}, stream=b"\x00\xff: gzip\r\n\r\n"
    )
    assert odd.exchange is not None
    pieces = (Piece(0.1234, b"\x00\xff"), Piece(0.1234, b""), Piece(7.000_000_1, b": gzip\r\n\r\n"))
    response = Response(200, (("X-A", "1"), ("x-a", "2"), ("X-A", "\xe9")), pieces, "Fine")
    exchange = replace(odd.exchange, response=response, state=State.ABORTED_BY_CLIENT)
    odd = replace(
        odd,
        exchange=exchange,
        meta={"nested": {"a": ["b"]}},
        reduced={"message": {"role": "assistant", "content": []}},
        outcome=Outcome.REPLAYED,
        session_by="header",
        provider="anthropic",
        agent_name="agent",
        thread_id="t",
        received_at=17,
    )
    (receipt,) = store.append([odd])
    assert store.project().turn(receipt.id) == replace(odd, id=receipt.id)


def test_plain_calls_and_transcripts_are_kept_as_they_are(store: SqlStore) -> None:
    plain = RawTurn(
        request_id="plain",
        exchange=Exchange("k", "tape/1", {"model": "m", "n": 10**30}, {"ok": [True]}, sample=2),
    )
    batch = RawTurn(
        request_id="batch",
        source=Source.TRANSCRIPT,
        envelope=Envelope(harness_session_id="s"),
        records=[{"a": 1}, {"b": "\ud800"}],
        meta={"agent_id": "x"},
    )
    first, second = store.append([plain, batch])
    project = store.project()
    assert project.turn(first.id) == replace(plain, id=first.id)
    assert project.turn(second.id) == replace(batch, id=second.id)


@pytest.mark.row("D2")
def test_a_second_delivery_is_the_same_row(store: SqlStore) -> None:
    turn = chat(1, [said("user", "hi")], "hello")
    first = store.append([turn])[0]
    again = store.append([turn, replace(turn, provider="other"), chat(2, [], "x")])
    assert [r.kept for r in again] == [Kept.KNOWN, Kept.KNOWN, Kept.NEW]
    assert again[0].id == again[1].id == first.id


def test_a_turn_that_comes_twice_in_one_batch_is_kept_once(store: SqlStore) -> None:
    turn = chat(1, [said("user", "hi")], "hello")
    one, two = store.append([turn, turn])
    assert (one.kept, two.kept, two.id) == (Kept.NEW, Kept.KNOWN, one.id)


def test_turns_without_a_request_id_are_never_the_same(store: SqlStore) -> None:
    turn = chat(1, [said("user", "hi")], "hello", request_id="")
    one, two = store.append([turn, turn])
    assert (one.kept, two.kept) == (Kept.NEW, Kept.NEW)
    assert one.id != two.id


def test_many_threads_append_and_nothing_is_lost(store: SqlStore) -> None:
    turns = many(8, 25)

    def write(mine: list[RawTurn]) -> None:
        for turn in mine:
            store.append([turn])

    threads = [Thread(target=write, args=(turns[n::8],)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = list(store.project().stream_turns())
    assert sorted(t.request_id for t in kept) == sorted(t.request_id for t in turns)
    by_request = {t.request_id: t for t in turns}
    assert all(replace(t, id=by_request[t.request_id].id) == by_request[t.request_id] for t in kept)


# --- deriving ---------------------------------------------------------------------------------


@pytest.mark.row("D3")
def test_the_order_of_arrival_and_of_deriving_changes_nothing(store: SqlStore) -> None:
    turns = [*many(6, 5), *(replace(t, request_id=f"c{t.id}") for t in conversation())]
    turns += [replace(t, envelope=replace(t.envelope, harness_session_id="")) for t in many(3, 4)]
    turns = [replace(t, request_id=f"{n}-{t.request_id}") for n, t in enumerate(turns)]
    turns += [replace(t, request_id=f"t{t.id}") for t in with_thread()]
    chance = Random(7)
    chance.shuffle(turns)
    projector = Projector(store)
    while turns:
        some = chance.randint(1, 5)
        store.append(turns[:some])
        del turns[:some]
        if chance.random() < 0.6:
            projector.drain()
    projector.drain()
    assert list(projector.check()) == []
    assert list(Projector(store).check()) == []


def test_deriving_again_writes_nothing(store: SqlStore) -> None:
    fill(store, many(3, 4))
    before = store.project().seq()
    assert store.mark_dirty() == 3
    progress = Projector(store).drain()
    assert (progress.derived, progress.changed) == (3, 0)
    assert store.project().seq() == before


# --- tenants ----------------------------------------------------------------------------------


def test_tenants_with_equal_ids_never_meet(store: SqlStore) -> None:
    mine = many(2, 3)
    theirs = [replace(t, envelope=replace(t.envelope, org_id=OTHER)) for t in many(2, 5)]
    fill(store, [*mine, *theirs])
    one, other = store.project(NO_ORG), store.project(OTHER)
    assert [s.session.turn_count for s in one.sessions().items] == [3, 3]
    assert [s.session.turn_count for s in other.sessions().items] == [5, 5]
    assert one.count(Noun.SPANS).value + other.count(Noun.SPANS).value == 2 * (6 + 10)
    assert len(one.search(parse("answer"), limit=100).items) == 6
    assert len(other.search(parse("answer"), limit=100).items) == 10
    theirs_first = other.sessions().items[0].session.id
    assert one.session(theirs_first) is None
    assert one.find(theirs_first) == ()


# --- pages ------------------------------------------------------------------------------------


@pytest.mark.row("D4", "D7")
@pytest.mark.parametrize("descending", [True, False], ids=["desc", "asc"])
@pytest.mark.parametrize(
    "sort", ["last_active", "started_at", "turn_count", "total_cost_usd", "derived_status"]
)
def test_pages_meet_every_session_once(store: SqlStore, sort: str, descending: bool) -> None:
    fill(store, many(23, 2))
    seen: list[str] = []
    cursor = ""
    while True:
        ask = Ask(sort=sort, descending=descending, cursor=cursor, limit=5)
        page = store.project().sessions(ask)
        seen += [listed.session.id for listed in page.items]
        if page.next_cursor is None:
            break
        cursor = page.next_cursor
    assert len(seen) == len(set(seen)) == 23


def test_pages_stay_correct_while_rows_arrive(store: SqlStore) -> None:
    turns = many(30, 1)
    fill(store, turns[:20])
    project, seen, cursor = store.project(), list[str](), ""
    for turn in turns[20:]:
        page = project.traces(Ask(cursor=cursor, limit=2, descending=False))
        seen += [trace.trace_id for trace in page.items]
        cursor = page.next_cursor or cursor
        fill(store, [turn])
    assert len(seen) == len(set(seen)) == 20


# --- readers while writers write --------------------------------------------------------------


def test_a_second_store_sees_what_the_first_one_wrote(open_store: OpenStore) -> None:
    one, other = open_store(), open_store()
    one.append(many(1, 3))
    Projector(other).drain()
    assert one.project().sessions().items[0].session.turn_count == 3


def test_text_that_no_database_takes_is_made_storable(store: SqlStore) -> None:
    turn = messages(1, [user("a\x00b")], assistant("\ud800 half"), session="odd")
    fill(store, [turn])
    assert list(Projector(store).check()) == []
    (listed,) = store.project().sessions().items
    assert "\x00" not in listed.session.preview


def test_what_people_say_may_hold_what_no_database_takes(store: SqlStore) -> None:
    fill(store, [chat(1, [said("user", "hi")], "hello", session="s")])
    project = store.project()
    (listed,) = project.sessions().items
    key, (head,) = listed.session.id, project.turns().items
    assert project.rename(key, "a\0b").notes.display_name == "a\ufffdb"
    assert project.tag(key, add=["c\0d"]).notes.tags == ("c\ufffdd",)
    assert project.tag(key, remove=["c\0d"]).notes.tags == ()
    project.note("odd\0", by="me\0", details={"a\0": "b\ud800"})
    project.correct(Correction(head.id, "bench", "other\0", reason="why\0"), by="me\0")
    Projector(store).drain()
    (moved,) = project.sessions().items
    assert moved.session.harness_session_id == "other\ufffd"
    assert project.erase([moved.session.id], reason="a\0", by="me\0").reason == "a\ufffd"
