"""The log's lane: what is noticed is kept, waits on disk, or is counted; nobody waits for it."""

import errno
import re
import textwrap
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tapes.capture.log import Bounds, Log
from tapes.capture.spool import Spool
from tapes.errors import UnavailableStore
from tapes.exchange import Request
from tapes.providers.reading import DropReason
from tapes.redact import Redactor
from tapes.rows import RawTurn
from tapes.store.base import Receipt, Store
from tapes.store.postgres import open_postgres
from tapes.store.sql import SqlStore
from tapes.store.sqlite import open_sqlite
from tests.conftest import OpenStore
from tests.noticing import noticed
from tests.openfiles import open_below
from tests.postgres import Postgres
from tests.proxies import wait_until
from tests.running import start

QUICK = Bounds(slow_s=0.05, longest_pause_s=0.1, closing_s=5.0)


@contextmanager
def logging(opened: Callable[[], Store], folder: Path, bounds: Bounds = QUICK) -> Iterator[Log]:
    log = Log(opened, Spool(folder / "spool"), bounds=bounds)
    try:
        yield log
    finally:
        log.close()


def kept(store: SqlStore) -> list[str]:
    """What was asked, in the order of the log."""
    asked = []
    for turn in store.project().stream_turns():
        assert turn.exchange is not None
        asked.append(turn.exchange.request.body.decode().split('"content": "')[1].split('"')[0])
    return asked


def number_of(count: int) -> list[str]:
    return [f"question {n}" for n in range(count)]


@pytest.mark.row("D2")
def test_what_is_noticed_is_kept_in_its_order(open_store: OpenStore, tmp_path: Path) -> None:
    with logging(open_store, tmp_path) as log:
        for text in number_of(30):
            log.notice(noticed(text))
        wait_until(lambda: log.is_idle)
        counts = log.counts()
    assert kept(open_store()) == number_of(30)
    assert (counts["noticed"], counts["kept new"]) == (30, 30)
    assert counts["waiting in memory"] == counts["waiting on disk"] == 0


def test_closing_keeps_what_came(open_store: OpenStore, tmp_path: Path) -> None:
    with logging(open_store, tmp_path) as log:
        for text in number_of(50):
            log.notice(noticed(text))
    assert kept(open_store()) == number_of(50)


def test_what_closing_leaves_no_time_for_is_counted_or_lies_on_disk(
    store: SqlStore, tmp_path: Path
) -> None:
    came, go_on, spool = threading.Event(), threading.Event(), Spool(tmp_path)
    log = Log(lambda: store, spool, bounds=Bounds(closing_s=0.01))

    def slowly(_: str) -> None:
        came.set()
        go_on.wait(10)

    log.told_by(slowly)
    log.notice(noticed("one"))
    assert came.wait(10)
    for text in ("two", "three"):
        log.notice(noticed(text))
    log.close()
    assert log.counts()["lost"] == 2
    go_on.set()
    # On the disk, or already taken from there by the thread that writes.
    wait_until(lambda: spool.counts()["turns"] + len(kept(store)) == 1)


def test_a_store_that_hangs_as_the_log_closes_is_closed_when_it_goes_on(tmp_path: Path) -> None:
    held = Held(open_sqlite(tmp_path / "t.db"))
    log = Log(lambda: held, Spool(tmp_path / "spool"), bounds=Bounds(closing_s=0.01))
    log.notice(noticed())
    assert held.asked.wait(10)
    log.close()
    held.free.set()
    wait_until(lambda: open_below(tmp_path) == 0)


def test_who_derives_is_woken_when_something_is_kept(open_store: OpenStore, tmp_path: Path) -> None:
    woken = threading.Event()
    with logging(open_store, tmp_path) as log:
        log.woken_by(woken.set)
        log.notice(noticed())
        assert woken.wait(10)
        assert len(kept(open_store())) == 1


def test_reasons_are_counted_in_the_store(open_store: OpenStore, tmp_path: Path) -> None:
    with logging(open_store, tmp_path) as log:
        log.notice(noticed(status=429))
        log.drop("https://api.openai.com/v1/models", DropReason.NON_TURN_REQUEST)
        log.drop("https://api.openai.com/v1/models", DropReason.NON_TURN_REQUEST)
    assert open_store().counts()["drops"] == {"non_turn_request": 2, "upstream_status": 1}


# --- a store that is slow, gone or full -------------------------------------------------------


class Held(SqlStore):
    """A store that keeps nothing until it is let go."""

    def __init__(self, store: SqlStore) -> None:
        super().__init__(store.database)
        self.free = threading.Event()
        self.asked = threading.Event()

    def append(self, turns: Sequence[RawTurn]) -> list[Receipt]:
        self.asked.set()
        assert self.free.wait(20)
        return super().append(turns)


@pytest.mark.row("D2")
def test_a_store_that_hangs_delays_nobody_and_loses_nothing(
    store: SqlStore, tmp_path: Path
) -> None:
    held = Held(store)
    with logging(lambda: held, tmp_path) as log:
        log.notice(noticed("question 0"))
        assert held.asked.wait(10)
        for text in number_of(40)[1:]:
            log.notice(noticed(text))
        # Those too that the store was asked to keep lie on the disk by now.
        wait_until(lambda: log.counts()["waiting on disk"] == 40)
        held.free.set()
        wait_until(lambda: log.is_idle)
        assert sorted(kept(store)) == sorted(number_of(40))


def test_turns_wait_for_a_store_that_is_gone_and_whoever_comes_next_takes_them_in(
    open_store: OpenStore, tmp_path: Path
) -> None:
    def gone() -> Store:
        raise UnavailableStore("gone")

    with logging(gone, tmp_path) as log:
        for text in number_of(20):
            log.notice(noticed(text))
        wait_until(lambda: log.counts()["waiting on disk"] == 20)
    with logging(open_store, tmp_path) as log:
        wait_until(lambda: log.is_idle)
        assert log.counts()["taken in"] == 20
    assert kept(open_store()) == number_of(20)


@pytest.mark.row("D7")
def test_a_server_that_goes_and_comes_back_has_everything(
    postgres: Postgres, database: str, tmp_path: Path
) -> None:
    with logging(lambda: open_postgres(database), tmp_path) as log:
        log.notice(noticed("question 0"))
        wait_until(lambda: log.is_idle)
        postgres.stop()
        try:
            for text in number_of(25)[1:]:
                log.notice(noticed(text))
            wait_until(lambda: log.counts()["waiting on disk"] == 24)
        finally:
            postgres.start()
        wait_until(lambda: log.is_idle, 30)
    assert kept(open_postgres(database)) == number_of(25)


def test_a_full_disk_stops_nobody_and_what_waited_is_kept_when_there_is_room(
    tmp_path: Path,
) -> None:
    store = open_sqlite(tmp_path / "tapes.db")

    def limit(pages: int) -> None:
        with store.database.writing() as connection:
            connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")

    limit(1)  # no more than there are
    with logging(lambda: store, tmp_path) as log:
        for text in number_of(300):
            log.notice(noticed(text + " long" * 500))
        wait_until(lambda: log.counts().get("spooled", 0) > 0)
        wait_until(lambda: log.counts()["waiting in memory"] == 0)
        limit(1_000_000)
        wait_until(lambda: log.is_idle)
        assert log.counts().get("lost", 0) == 0
        reader = open_sqlite(tmp_path / "tapes.db")
        assert sorted(t.split(" long")[0] for t in kept(reader)) == sorted(number_of(300))
        assert reader.check() == ()
        reader.close()


class NotYet(SqlStore):
    """A store that cannot count at first."""

    times = 0

    def count_drops(self, drops: Mapping[tuple[str, str, str], int]) -> None:
        self.times += 1
        if self.times == 1:
            raise UnavailableStore("not yet")
        super().count_drops(drops)


@pytest.mark.row("D2")
def test_reasons_that_could_not_be_counted_are_counted_when_the_store_is_back(
    store: SqlStore, tmp_path: Path
) -> None:
    not_yet = NotYet(store.database)
    with logging(lambda: not_yet, tmp_path) as log:
        log.drop("https://api.openai.com/v1/models", DropReason.NON_TURN_REQUEST)
        wait_until(lambda: not_yet.times >= 1)
        log.drop("https://api.openai.com/v1/models", DropReason.NON_TURN_REQUEST)
        wait_until(lambda: log.is_idle and store.counts()["drops"] == {"non_turn_request": 2})


class Picky(SqlStore):
    """A store that cannot keep one thing."""

    def append(self, turns: Sequence[RawTurn]) -> list[Receipt]:
        if any(t.exchange is not None and b"poison" in t.exchange.request.body for t in turns):
            raise ValueError("poison")
        return super().append(turns)


def test_a_turn_that_cannot_be_kept_stands_aside_and_holds_up_no_other(
    store: SqlStore, tmp_path: Path
) -> None:
    with logging(lambda: Picky(store.database), tmp_path) as log:
        for text in ("one", "poison", "two"):
            log.notice(noticed(text))
        wait_until(lambda: log.is_idle)
        counts = log.counts()
    assert (counts["set aside"], counts["drop ingest_reject"]) == (1, 1)
    assert kept(store) == ["one", "two"]


class Slow(Picky):
    """One that refuses so late that what it was asked to keep waits on the disk by then."""

    def __init__(self, store: SqlStore, spool: Spool) -> None:
        super().__init__(store.database)
        self.spool = spool
        self.refused = 0

    def append(self, turns: Sequence[RawTurn]) -> list[Receipt]:
        try:
            return super().append(turns)
        except ValueError:
            self.refused += 1
            wait_until(lambda: not self.spool.is_empty)
            raise


def test_a_turn_that_is_refused_twice_stands_aside_once(store: SqlStore, tmp_path: Path) -> None:
    slow = Slow(store, Spool(tmp_path / "spool"))
    with logging(lambda: slow, tmp_path) as log:
        log.notice(noticed("poison"))
        wait_until(lambda: slow.refused > 2)  # together and alone, and again from the disk
        wait_until(lambda: log.is_idle)
        counts = log.counts()
    assert (counts["set aside"], counts["drop ingest_reject"]) == (1, 1)
    assert kept(store) == []


def test_where_even_memory_is_full_what_is_lost_is_counted(store: SqlStore, tmp_path: Path) -> None:
    bounds = Bounds(inbox_bytes=1)
    with logging(lambda: store, tmp_path, bounds) as log:
        log.notice(noticed())
        wait_until(lambda: log.is_idle)
        assert (log.counts()["lost"], log.counts()["drop sem_full"]) == (1, 1)


class FullSpool(Spool):
    """One on a disk that is full."""

    def put(self, turns: Sequence[RawTurn]) -> Path:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_log_that_ends_while_all_is_full_says_how_much_was_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def gone() -> Store:
        raise UnavailableStore("the disk is full", "free space")

    log = Log(gone, FullSpool(tmp_path / "spool"), bounds=QUICK)
    for text in number_of(20):
        log.notice(noticed(text))
        wait_until(lambda: log.counts().get("lost", 0))  # the first is said at once
    log.close()
    lost = [int(n) for n in re.findall(r"(\d+) (?:more )?turns are lost", caplog.text)]
    assert sum(lost) == 20


def test_what_is_lost_is_said_now_and_then_and_when_it_is_over(
    store: SqlStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    back = threading.Event()

    def opened() -> Store:
        if not back.is_set():
            raise UnavailableStore("the disk is full", "free space")
        return store

    log = Log(opened, FullSpool(tmp_path / "spool"), bounds=QUICK)
    for text in number_of(20):
        log.notice(noticed(text))
        wait_until(lambda: log.counts().get("lost", 0) + log.counts().get("kept new", 0) > 0)
    wait_until(lambda: log.counts()["lost"] == 20)
    back.set()
    wait_until(lambda: "takes turns again" in caplog.text)
    log.close()
    said = [record.getMessage() for record in caplog.records if "lost" in record.getMessage()]
    assert len(said) == 2
    assert sum(int(part) for text in said for part in text.split() if part.isdigit()) == 20


def test_noticing_takes_no_time(store: SqlStore, tmp_path: Path) -> None:
    held = Held(store)
    large = noticed("x" * 2_000_000)
    with logging(lambda: held, tmp_path) as log:
        log.notice(noticed())
        assert held.asked.wait(10)
        before = time.thread_time()
        for _ in range(20):
            log.notice(large)
        # Nothing was read or written by whoever noticed: that would be seconds.
        assert time.thread_time() - before < 1.0
        held.free.set()


# --- killed -----------------------------------------------------------------------------------

WRITER = """
    import itertools, time
    from pathlib import Path
    from tapes.capture.log import Log
    from tapes.capture.spool import Spool
    from tapes.errors import UnavailableStore
    from tapes.store.postgres import open_postgres
    from tapes.store.sqlite import open_sqlite
    from tests.noticing import noticed

    where, gone = {where!r}, {gone!r}

    def opened():
        if gone:
            raise UnavailableStore("gone")
        return open_postgres(where) if "://" in where else open_sqlite(where)

    log = Log(opened, Spool("spool"))
    for number in itertools.count():
        log.notice(noticed(f"question {{number}}"))
        while number % 20 == 0:
            counts = log.counts()
            # Not both: what a slow store had in hand is spooled, and may be kept all the same.
            acknowledged = counts.get("spooled" if gone else "kept new", 0)
            print(acknowledged, flush=True)
            if number - acknowledged < 100:
                break
            time.sleep(0.002)
"""


@pytest.mark.row("D2")
@pytest.mark.parametrize("gone", [False, True], ids=["into the store", "into the spool"])
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_everything_acknowledged_is_there_after_a_kill(
    kind: str, gone: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    where = request.getfixturevalue("database") if kind == "postgres" else "tapes.db"
    root = str(Path(__file__).parent.parent.parent)
    program = textwrap.dedent(WRITER).format(where=where, gone=gone)
    code = f"import sys; sys.path.insert(0, {root!r})\n{program}"
    writer = start(code, tmp_path)
    acknowledged = 0
    assert writer.stdout is not None
    while acknowledged < 200:
        acknowledged = int(writer.stdout.readline())
    writer.kill()
    rest, _ = writer.communicate()
    acknowledged = max([acknowledged, *(int(n) for n in rest.split("\n")[:-1])])
    store = open_postgres(where) if kind == "postgres" else open_sqlite(tmp_path / where)
    with logging(lambda: store, tmp_path) as log:
        wait_until(lambda: log.is_idle, 30)
        there = kept(store)
    assert len(there) >= acknowledged
    assert there == number_of(len(there))


def test_a_child_of_a_fork_counts_and_closes_though_its_parent_was_at_work(tmp_path: Path) -> None:
    child = start(
        """
        import os, signal
        from tapes.capture.log import Log
        from tapes.capture.spool import Spool
        from tapes.errors import UnavailableStore
        from tapes.providers.reading import DropReason

        def gone():
            raise UnavailableStore("gone")

        def forked(work):
            with log._lock:  # as another thread holds it at any moment
                pid = os.fork()
                if pid == 0:
                    signal.alarm(20)
                    work()
                    os._exit(0)
            return os.waitpid(pid, 0)[1]

        def drop():
            log.drop("https://h/", DropReason.NON_TURN_REQUEST)
            assert log.counts()["drop non_turn_request"] == 1, log.counts()

        log = Log(gone, Spool("spool"))
        log.drop("https://h/", DropReason.NON_TURN_REQUEST)
        print(forked(drop), forked(log.close))
        os._exit(0)
        """,
        tmp_path,
    )
    out, err = child.communicate(timeout=60)
    assert out == "0 0\n", err


def test_what_there_was_no_time_to_read_at_the_end_is_said(
    open_store: OpenStore, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    go_on = threading.Event()

    class Slow(Redactor):
        def request(self, request: Request) -> Request:
            go_on.wait(20)
            return super().request(request)

    bounds = Bounds(slow_s=0.05, closing_s=0.05)
    log = Log(open_store, Spool(tmp_path / "spool"), bounds=bounds, redactor=Slow())
    for text in number_of(3):
        log.notice(noticed(text))
    log.close()
    assert "3 exchanges" in caplog.text
    go_on.set()
    log._cleaning.join(20)
    log._writing.join(20)
