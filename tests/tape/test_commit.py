"""Group commit: nobody's item is lost, and each learns what became of his own."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tapes.tape.commit import GroupCommit
from tests.tape.homes import until


def test_items_that_come_while_one_is_written_share_the_next_write() -> None:
    batches: list[list[int]] = []
    go_on = threading.Event()

    def write(batch: Sequence[int]) -> int:
        batches.append(list(batch))
        go_on.wait(60)
        return len(batch)

    commits = GroupCommit(write)
    with ThreadPoolExecutor(9) as pool:
        first = pool.submit(commits.submit, 0)
        until(lambda: batches == [[0]])
        others = [pool.submit(commits.submit, n) for n in range(1, 9)]
        until(lambda: len(commits._waiting) == 8)
        go_on.set()
        for done in (first, *others):
            done.result(60)
    assert [len(batch) for batch in batches] == [1, 8]
    assert sorted(batches[1]) == list(range(1, 9))


def test_no_item_of_many_threads_is_lost_or_written_twice() -> None:
    written: Counter[int] = Counter()
    together = threading.Barrier(16)

    def write(batch: Sequence[int]) -> int:
        written.update(batch)
        return len(batch)

    commits = GroupCommit(write)

    def work(worker: int) -> None:
        together.wait(60)
        for n in range(500):
            commits.submit(worker * 500 + n)
            assert written[worker * 500 + n] == 1

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(work, range(16)))
    assert written == Counter(range(8000))


def test_a_write_that_gets_only_so_far_is_asked_for_the_rest() -> None:
    written: list[int] = []
    go_on = threading.Event()

    def write(batch: Sequence[int]) -> int:
        go_on.wait(60)
        if batch[0] % 3 == 0:
            raise OSError(f"no room for {batch[0]}")
        written.append(batch[0])
        return 1

    commits = GroupCommit(write)
    with ThreadPoolExecutor(9) as pool:
        submitted = [pool.submit(commits.submit, n) for n in range(1, 10)]
        until(lambda: len(commits._waiting) == 8)
        go_on.set()
        errors = [str(done.exception(60)) for done in submitted]
    assert errors == [f"no room for {n}" if n % 3 == 0 else "None" for n in range(1, 10)]
    assert sorted(written) == [1, 2, 4, 5, 7, 8]


def test_whoever_is_stopped_while_writing_leaves_the_rest_to_the_others() -> None:
    written: list[int] = []
    go_on = threading.Event()

    def write(batch: Sequence[int]) -> int:
        go_on.wait(60)
        if not written:
            written.append(-1)
            raise KeyboardInterrupt
        written.extend(batch)
        return len(batch)

    commits = GroupCommit(write)

    def stopped() -> None:
        with pytest.raises(KeyboardInterrupt):
            commits.submit(0)

    with ThreadPoolExecutor(5) as pool:
        first = pool.submit(stopped)
        until(lambda: not commits._waiting and commits.writing.locked())
        others = [pool.submit(commits.submit, n) for n in range(1, 5)]
        until(lambda: len(commits._waiting) == 4)
        go_on.set()
        for done in (first, *others):
            done.result(60)
    assert sorted(written) == [-1, 1, 2, 3, 4]


def test_whoever_is_stopped_while_waiting_is_not_written_and_holds_nobody_up() -> None:
    """In the main thread, where a signal handler can raise."""
    written: list[int] = []
    go_on = threading.Event()

    def write(batch: Sequence[int]) -> int:
        go_on.wait(60)
        written.extend(batch)
        return len(batch)

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    def interrupt() -> None:
        until(lambda: len(commits._waiting) == 1)
        os.kill(os.getpid(), signal.SIGUSR2)

    commits = GroupCommit(write)
    before = signal.signal(signal.SIGUSR2, stop)
    try:
        with ThreadPoolExecutor(3) as pool:
            first = pool.submit(commits.submit, 1)
            until(lambda: commits.writing.locked() and not commits._waiting)
            pool.submit(interrupt)
            with pytest.raises(KeyboardInterrupt):
                commits.submit(2)
            third = pool.submit(commits.submit, 3)
            until(lambda: len(commits._waiting) == 1)
            go_on.set()
            first.result(60)
            third.result(60)
    finally:
        signal.signal(signal.SIGUSR2, before)
    assert written == [1, 3]


def test_a_leader_that_was_stopped_at_the_wrong_instant_is_replaced() -> None:
    written: list[int] = []

    def write(batch: Sequence[int]) -> int:
        written.extend(batch)
        return len(batch)

    commits = GroupCommit(write)
    commits._has_leader = True  # and nobody leads
    commits.submit(1)
    commits.submit(2)
    assert written == [1, 2]


def test_items_that_are_given_together_are_written_together() -> None:
    batches: list[list[int]] = []

    def write(batch: Sequence[int]) -> int:
        batches.append(list(batch))
        if batch[0] == 2:
            raise OSError("no room for 2")
        return 1 if batch[0] == 1 else len(batch)

    commits = GroupCommit(write)
    errors = commits.submit_all([1, 2, 4, 5])
    assert batches == [[1, 2, 4, 5], [2, 4, 5], [4, 5]]
    assert [type(error) for error in errors] == [type(None), OSError, type(None), type(None)]
    assert commits.submit_all([]) == []


def test_many_threads_that_give_many_items_lose_none() -> None:
    written: Counter[int] = Counter()
    together = threading.Barrier(8)

    def write(batch: Sequence[int]) -> int:
        some = batch[: max(1, len(batch) // 2)]
        written.update(some)
        return len(some)

    commits = GroupCommit(write)

    def work(worker: int) -> None:
        together.wait(60)
        for n in range(50):
            mine = range(worker * 500 + n * 10, worker * 500 + n * 10 + 10)
            assert commits.submit_all(mine) == [None] * 10
            assert all(written[item] == 1 for item in mine)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    assert written == Counter(range(4000))
