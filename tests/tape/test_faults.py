"""Full disks, missing rights, files that are replaced or cut while they are open, and forks."""

import fcntl
import os
import random
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tapes.errors import TapesError, UnwritableTape
from tapes.tape.base import Tape
from tests.tape.faults import file_size_limit, mounted, remount_read_only, without_rights
from tests.tape.homes import (
    all_on_disk,
    files_in,
    fork,
    key,
    opened,
    over_http,
    path_of,
    plain,
)

# --- disks


@all_on_disk
def test_a_write_that_fails_in_the_middle_keeps_nothing_and_loses_nothing(
    tmp_path: Path, home: str
) -> None:
    path = path_of(home, tmp_path)
    tape = opened(home, path)
    for n in range(3):
        tape.append(plain(n))
    before = files_in(tmp_path)
    largest = max(map(len, before.values()))
    with file_size_limit(largest + 1000), pytest.raises(UnwritableTape) as failed:
        tape.append(plain("large", "x" * 200_000))
    assert path in str(failed.value)
    assert failed.value.remedy
    assert failed.value.exit_status == 4
    if home != "sqlite":  # whose log may hold what was never committed
        assert files_in(tmp_path) == before
    assert tape.find(key("large")) is None
    assert opened(home, path).keys() == {key(n) for n in range(3)}
    tape.append(plain("large", "x" * 200_000))
    assert len(list(opened(home, path).exchanges())) == 4


@all_on_disk
def test_one_exchange_too_large_for_the_disk_does_not_fail_the_others(
    tmp_path: Path, home: str
) -> None:
    path = path_of(home, tmp_path)
    tape = opened(home, path)
    tape.append(plain("first"))
    together = threading.Barrier(8)

    def record(n: int) -> bool:
        together.wait()
        try:
            tape.append(plain(n, "x" * 400_000 if n == 3 else "small"))
        except UnwritableTape:
            return False
        return True

    with file_size_limit(200_000), ThreadPoolExecutor(8) as pool:
        kept = list(pool.map(record, range(8)))
    assert kept == [n != 3 for n in range(8)]
    assert opened(home, path).keys() == {key("first")} | {key(n) for n in range(8) if n != 3}


@all_on_disk
def test_a_full_file_system_loses_nothing_and_takes_more_once_there_is_room(
    tmp_path: Path, home: str
) -> None:
    with mounted(tmp_path / "disk", "1m") as folder:
        ballast = folder / "ballast"
        ballast.write_bytes(bytes(300_000))
        path = path_of(home, folder)
        tape = opened(home, path)
        kept = _until_full(tape)
        assert 1 <= len(kept) < 200
        assert opened(home, path).keys() == kept
        ballast.unlink()
        tape.append(plain("after"))
        assert opened(home, path).keys() == kept | {key("after")}
        tape.close()


def _until_full(tape: Tape) -> set[str]:
    kept = set()
    for n in range(200):
        try:
            tape.append(over_http(n, os.urandom(9_000)))
        except UnwritableTape as error:
            assert "space" in error.remedy or "disk" in error.remedy  # noqa: PT017
            break
        kept.add(key(n))
    return kept


@all_on_disk
def test_a_read_only_file_system_replays_and_refuses_to_record(tmp_path: Path, home: str) -> None:
    with mounted(tmp_path / "disk", "4m") as folder:
        path = path_of(home, folder)
        tape = opened(home, path)
        tape.append(plain(1))
        tape.close()
        remount_read_only(folder)
        tape = opened(home, path)
        assert tape.find(key(1)) == plain(1)
        with pytest.raises(UnwritableTape, match="cannot be written") as failed:
            tape.append(plain(2))
        assert failed.value.remedy
        tape.close()


@all_on_disk
def test_without_the_right_to_write_a_tape_replays_and_refuses_to_record(home: str) -> None:
    with without_rights() as folder:
        path = path_of(home, folder)
        tape = opened(home, path)
        tape.append(plain(1))
        tape.close()
        for name in [*folder.rglob("*"), folder]:
            name.chmod(0o555 if name.is_dir() else 0o444)
        tape = opened(home, path)
        assert tape.find(key(1)) == plain(1)
        with pytest.raises(UnwritableTape, match="cannot be written") as failed:
            tape.append(plain(2))
        assert "ls -ld" in failed.value.remedy
        assert tape.keys() == {key(1)}
        tape.close()


@all_on_disk
def test_without_the_right_to_read_a_tape_is_an_error_and_not_empty(home: str) -> None:
    with without_rights() as folder:
        path = path_of(home, folder)
        tape = opened(home, path)
        tape.append(plain(1))
        tape.close()
        os.chmod(path, 0)
        with pytest.raises(TapesError) as failed:
            opened(home, path).find(key(1))
        assert failed.value.slug == "unreadable-tape"
        assert failed.value.remedy


# --- interrupts


# An interrupt between opening a file and holding it leaves it to the collector, who says so.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@all_on_disk
def test_a_thread_that_is_interrupted_again_and_again_harms_nobody(
    tmp_path: Path, home: str
) -> None:
    """As by Ctrl-C in the main thread of a program that goes on."""
    tape = opened(home, path_of(home, tmp_path))
    acknowledged, interrupted, armed, over = set[str](), 0, [False], threading.Event()

    def interrupt(*_: object) -> None:
        if armed[0]:
            armed[0] = False
            raise KeyboardInterrupt

    def send_interrupts() -> None:
        while not over.wait(random.uniform(0.0001, 0.003)):
            os.kill(os.getpid(), signal.SIGUSR2)

    def record(worker: int) -> None:
        for n in range(60):
            tape.append(plain((worker, n), "x" * 5000))

    before = signal.signal(signal.SIGUSR2, interrupt)
    sending = threading.Thread(target=send_interrupts)
    sending.start()
    try:
        with ThreadPoolExecutor(3) as pool:
            others = [pool.submit(record, worker) for worker in range(3)]
            for n in range(150):
                try:
                    armed[0] = True
                    tape.append(plain(n, "y" * 5000))
                    acknowledged.add(key(n))
                    assert tape.find(key(n)) == plain(n, "y" * 5000)
                    assert tape.find(key((n, "absent"))) is None
                    armed[0] = False
                except KeyboardInterrupt:
                    interrupted += 1
            for other in others:
                other.result(60)
    finally:
        over.set()
        sending.join(60)
        signal.signal(signal.SIGUSR2, before)
    assert interrupted > 0
    acknowledged |= {key((worker, n)) for worker in range(3) for n in range(60)}
    assert acknowledged <= tape.keys()
    assert acknowledged <= opened(home, path_of(home, tmp_path)).keys()


# --- files that are replaced or cut


@all_on_disk
def test_a_tape_that_is_replaced_while_it_is_open_is_read_and_written_anew(
    tmp_path: Path, home: str
) -> None:
    path = path_of(home, tmp_path)
    (tmp_path / "new").mkdir()
    tape, replacement = opened(home, path), opened(home, path_of(home, tmp_path / "new"))
    for n in range(3):
        tape.append(plain(n, "old"))
        replacement.append(plain(n + 1, "new"))
    replacement.close()
    if home == "directory":
        os.rename(path, f"{path}.old")
    os.rename(path_of(home, tmp_path / "new"), path)
    if home == "sqlite":  # what a program that replaces a database has to do
        for side in ("-wal", "-shm"):
            Path(path + side).unlink(missing_ok=True)
    assert tape.find(key(0)) is None
    assert tape.find(key(1)) == plain(1, "new")
    tape.append(plain(9))
    assert opened(home, path).keys() == tape.keys() == {key(n) for n in (1, 2, 3, 9)}


def test_writers_find_their_way_to_the_new_file_however_often_it_is_replaced(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.jsonl"
    tapes = [opened("jsonl", str(path)) for _ in range(4)]
    tapes[0].append(plain("first"))
    going = threading.Event()

    def record(worker: int) -> None:
        for n in range(60):
            tapes[worker].append(plain((worker, n)))

    def replace() -> int:
        count = 0
        while not going.is_set():
            with path.open("rb") as old:
                fcntl.flock(old, fcntl.LOCK_EX)
                if os.fstat(old.fileno()).st_ino != path.stat().st_ino:
                    continue
                (tmp_path / "copy").write_bytes(old.read())
                os.rename(tmp_path / "copy", path)
            count += 1
        return count

    with ThreadPoolExecutor(5) as pool:
        replacing = pool.submit(replace)
        list(pool.map(record, range(4)))
        going.set()
        assert replacing.result() > 1
    expected = {key((worker, n)) for worker in range(4) for n in range(60)} | {key("first")}
    assert opened("jsonl", str(path)).keys() == expected
    assert all(tape.keys() == expected for tape in tapes)


def test_a_file_that_is_cut_or_rewritten_in_place_is_read_anew(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    tape, source = opened("jsonl", str(path)), opened("jsonl", str(tmp_path / "source.jsonl"))
    for n in range(6):
        tape.append(plain(n))
        source.append(plain(n + 3))
    lines = path.read_bytes().splitlines(keepends=True)
    for content, keys in [
        (b"".join(lines[:2]), {0, 1}),
        (b"", set[int]()),
        ((tmp_path / "source.jsonl").read_bytes(), {3, 4, 5, 6, 7, 8}),
        (b"".join(reversed(lines)) * 2, {0, 1, 2, 3, 4, 5}),
    ]:
        path.write_bytes(content)
        assert tape.keys() == {key(n) for n in keys}
        assert [n for n in range(9) if tape.find(key(n))] == sorted(keys)
    tape.append(plain("more"))
    assert len(list(opened("jsonl", str(path)).exchanges())) == 13


# --- forks


@all_on_disk
def test_a_tape_that_is_open_when_the_process_forks_is_used_on_both_sides(
    tmp_path: Path, home: str
) -> None:
    path = path_of(home, tmp_path)
    tape = opened(home, path)
    tape.append(plain("before"))
    assert _in_children(3, lambda child: _append_many(tape, f"child {child}")) == [0, 0, 0]
    _append_many(tape, "parent")
    expected = {key("before")} | {
        key((who, n)) for who in ("parent", "child 0", "child 1", "child 2") for n in range(10)
    }
    assert tape.keys() == expected
    assert opened(home, path).keys() == expected


@all_on_disk
def test_a_fork_in_the_middle_of_other_threads_appends_hangs_nobody(
    tmp_path: Path, home: str
) -> None:
    tape = opened(home, path_of(home, tmp_path))
    stop = threading.Event()
    counts = [0, 0, 0]

    def record(worker: int) -> None:
        while not stop.is_set():
            tape.append(plain((worker, counts[worker])))
            counts[worker] += 1

    with ThreadPoolExecutor(3) as pool:
        recording = [pool.submit(record, worker) for worker in range(3)]
        ends = [_in_children(2, lambda child: _append_many(tape, child)) for _ in range(5)]
        stop.set()
        for done in recording:
            done.result()
    assert ends == [[0, 0]] * 5
    expected = {key((child, n)) for child in range(2) for n in range(10)}
    expected |= {key((worker, n)) for worker in range(3) for n in range(counts[worker])}
    assert tape.keys() == expected


def _append_many(tape: Tape, who: object) -> None:
    for n in range(10):
        tape.append(plain((who, n)))
        assert tape.find(key((who, n))) == plain((who, n))


def _in_children(count: int, run: Callable[[int], None]) -> list[int]:
    """The exit statuses of forked processes that run something, at once."""
    children = []
    for child in range(count):
        pid = fork()
        if pid == 0:
            status = 1
            signal.alarm(60)  # whoever hangs ends
            try:
                run(child)
                status = 0
            finally:
                os._exit(status)
        children.append(pid)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
