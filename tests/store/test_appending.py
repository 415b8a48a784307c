"""Many append at once: one flush serves them all, and what is wrong with one harms no other."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Connection

from tapes.errors import UnavailableStore
from tapes.rows import RawTurn
from tapes.store.appending import Appending
from tapes.store.base import Kept, Receipt
from tapes.store.sql import SqlStore
from tapes.store.sqlite import open_sqlite
from tests.proxies import PATIENCE_S, wait_until
from tests.turns import chat, said

WRITERS = 12


def turn(number: int, text: str = "") -> RawTurn:
    return chat(number, [said("user", f"question {number} {text}")], "yes")


def together(store: SqlStore, turns: Sequence[RawTurn]) -> list[Receipt | BaseException]:
    """Append each in a thread of its own, all at once."""
    begin = threading.Barrier(len(turns))
    came: dict[int, Receipt | BaseException] = {}

    def append(number: int) -> None:
        begin.wait()
        try:
            (came[number],) = store.append([turns[number]])
        except Exception as error:  # noqa: BLE001  # looked at by the test
            came[number] = error

    threads = [threading.Thread(target=append, args=(n,)) for n in range(len(turns))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [came[number] for number in range(len(turns))]


@pytest.mark.row("D7")
def test_each_has_the_receipt_of_its_own_turn(store: SqlStore) -> None:
    turns = [turn(number) for number in range(1, WRITERS + 1)]
    receipts = together(store, turns)
    for given, receipt in zip(turns, receipts, strict=True):
        assert isinstance(receipt, Receipt)
        kept = store.project().turn(receipt.id)
        assert kept is not None
        assert kept.request_id == given.request_id
    assert len(list(store.project().stream_turns())) == WRITERS


def test_of_equal_turns_at_once_one_is_new(store: SqlStore) -> None:
    receipts = together(store, [turn(1)] * WRITERS)
    assert all(isinstance(receipt, Receipt) for receipt in receipts)
    kept = [receipt.kept for receipt in receipts if isinstance(receipt, Receipt)]
    assert sorted(kept) == sorted([Kept.NEW, *[Kept.KNOWN] * (WRITERS - 1)])


def test_what_comes_again_among_others_is_known_and_the_others_are_kept(store: SqlStore) -> None:
    (first,) = store.append([turn(1)])
    for numbers in ((2, 1, 3), (3, 4, 2), (5, 6), (6, 7, 1)):
        receipts = store.append([turn(number) for number in numbers])
        assert all(receipt.kept in (Kept.NEW, Kept.KNOWN) for receipt in receipts)
        assert [r.id for r, n in zip(receipts, numbers, strict=True) if n == 1] in ([], [first.id])
    asked = [kept.request_id for kept in store.project().stream_turns()]
    assert sorted(asked) == sorted(turn(number).request_id for number in range(1, 8))


def unreadable_request() -> RawTurn:
    bad = turn(3)
    assert bad.exchange is not None
    return replace(bad, exchange=replace(bad.exchange, request={"not": object()}))


@pytest.mark.parametrize(
    "bad", [replace(turn(3), meta={"not": object()}), unreadable_request()], ids=["meta", "request"]
)
def test_a_turn_that_cannot_be_kept_fails_alone(store: SqlStore, bad: RawTurn) -> None:
    turns = [turn(1), turn(2), bad, turn(4)]
    came = together(store, turns)
    assert [isinstance(each, Receipt) for each in came] == [True, True, False, True]


def test_whoever_is_interrupted_before_he_writes_leaves_the_way_free(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_: Appending) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Appending, "_wait_for_others", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.append([turn(1)])
    assert [receipt.kept for receipt in store.append([turn(1)])] == [Kept.NEW]


def test_whoever_is_interrupted_while_he_waits_holds_up_nobody(tmp_path: Path) -> None:
    store, writing, go_on = open_sqlite(tmp_path / "t.db"), threading.Event(), threading.Event()
    waits, main = store.database.writing, threading.main_thread().ident
    assert main is not None

    @contextmanager
    def slowly() -> Iterator[Connection]:
        writing.set()
        go_on.wait(PATIENCE_S)
        with waits() as connection:
            yield connection

    def interrupt() -> None:
        wait_until(lambda: store._appending._wanted)
        signal.pthread_kill(main, signal.SIGINT)

    store.database.writing = slowly  # type: ignore[method-assign]
    with ThreadPoolExecutor() as threads:
        first = threads.submit(store.append, [turn(1)])
        assert writing.wait(PATIENCE_S)
        threads.submit(interrupt)
        with pytest.raises(KeyboardInterrupt):
            store.append([turn(2)])
        go_on.set()
        third = threads.submit(store.append, [turn(3)])
        assert [r.kept for done in (first, third) for r in done.result(PATIENCE_S)] == [
            Kept.NEW
        ] * 2
    store.close()


def test_an_interrupt_of_who_writes_for_others_is_his_alone(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "tapes.db")
    appending, really = store._appending, store.database.writing
    begun, main, go_on = threading.Event(), threading.get_ident(), threading.Event()

    @contextmanager
    def interrupted() -> Iterator[Connection]:
        with really() as connection:
            if threading.get_ident() == main and not begun.is_set():
                begun.set()
                signal.pthread_kill(main, signal.SIGINT)
            elif not begun.is_set():
                assert go_on.wait(PATIENCE_S)
            yield connection

    def append_behind_main() -> list[Receipt]:
        wait_until(lambda: len(appending._wanted) == 1)  # main waits
        return store.append([turn(3)])

    def let_first_end() -> None:
        wait_until(lambda: len(appending._wanted) == 2)
        go_on.set()

    store.database.writing = interrupted  # type: ignore[method-assign]
    with ThreadPoolExecutor() as threads:
        first = threads.submit(store.append, [turn(1)])
        wait_until(lambda: appending._is_written and not appending._wanted)
        third = threads.submit(append_behind_main)
        threads.submit(let_first_end)
        with pytest.raises(KeyboardInterrupt):
            store.append([turn(2)])
        assert [r.kept for r in first.result(PATIENCE_S)] == [Kept.NEW]
        assert [r.kept for r in third.result(PATIENCE_S)] == [Kept.NEW]
    assert len(list(store.project().stream_turns())) == 2
    store.close()


def test_conversations_that_many_append_to_at_once_are_kept_to_the_byte(store: SqlStore) -> None:
    begin = threading.Barrier(WRITERS)

    def talk(writer: int) -> list[RawTurn]:
        """Two writers share a conversation: what each goes on from may just have changed."""
        messages, turns = [said("user", f"{writer // 2} " + "once upon a time " * 200)], []
        for n in range(20):
            messages.append(said("user", f"{writer} then {n} " + "and so on " * n))
            turns.append(chat(n, list(messages), "yes", session=f"talk {writer // 2}"))
            turns[-1] = replace(turns[-1], request_id=f"{writer}-{n}")
        return turns

    def append(turns: Sequence[RawTurn]) -> None:
        begin.wait()
        for one in turns:
            store.append([one])

    talks = [talk(writer) for writer in range(WRITERS)]
    threads = [threading.Thread(target=append, args=(turns,)) for turns in talks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = {one.request_id: one.exchange for one in store.project().stream_turns()}
    assert kept == {one.request_id: one.exchange for turns in talks for one in turns}
    assert store.check() == ()


@pytest.mark.row("D7")
def test_a_full_disk_fails_all_who_wait_and_later_ones_go_on(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "tapes.db")
    with store.database.writing() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1")
    came = together(store, [turn(n, os.urandom(60_000).hex()) for n in range(1, WRITERS + 1)])
    assert all(isinstance(each, UnavailableStore) for each in came)
    with store.database.writing() as connection:
        connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
    assert store.append([turn(99)])[0].kept is Kept.NEW
    assert store.check() == ()
    store.close()


def _write_fifty(path: Path) -> None:
    store = open_sqlite(path)
    for number in range(50):
        name = f"{os.getpid()}-{number}"
        store.append([chat(number, [said("user", name)], "yes", request_id=name)])
    store.close()


@pytest.mark.row("D7")
def test_twenty_processes_write_while_somebody_reads(tmp_path: Path) -> None:
    store = open_sqlite(tmp_path / "tapes.db")
    several = multiprocessing.get_context("fork")
    path = tmp_path / "tapes.db"
    writers = [several.Process(target=_write_fifty, args=(path,)) for _ in range(20)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        store.project().sessions()  # never an error, whoever writes
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * 20
    assert len(list(store.project().stream_turns())) == 1000
    store.close()
