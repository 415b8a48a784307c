"""Tools beside writers, and tools that are killed: nobody loses anything."""

import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tapes.errors import UnwritableTape
from tapes.tape.base import Tape
from tapes.tape.copying import merge, row_with_bodies
from tapes.tape.directory import DirectoryTape
from tapes.tape.kinds import open_tape
from tapes.tape.mending import mend, verify
from tapes.tape.pruning import Choice, prune
from tapes.tape.rewriting import NewRow, editing
from tests.making import KINDS, answers, assorted, call, contents, large, tape_in
from tests.tape.faults import without_rights


def drop(path: str, *prompts: str) -> None:
    keys = {call(prompt).key for prompt in prompts}
    with editing(path) as editor:
        editor.apply(lambda raw: () if raw.fault is None and raw.key in keys else None)


# --- what stays


def test_what_stays_keeps_its_bytes_and_its_rights(tmp_path: Path) -> None:
    path = Path(tape_in(tmp_path, "jsonl", [call("one"), call("two"), call("three")]))
    path.chmod(0o640)
    one, _, three = path.read_bytes().splitlines(keepends=True)
    drop(str(path), "two")
    assert path.read_bytes() == one + three
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_tape_behind_a_link_stays_behind_it(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real = tape_in(tmp_path / "real", "jsonl", [call("one"), call("two")])
    link = tmp_path / "link.jsonl"
    link.symlink_to(real)
    drop(str(link), "two")
    assert link.is_symlink()
    assert set(answers(real)) == {call("one").key}


@pytest.mark.parametrize("kind", KINDS)
def test_a_backup_is_the_tape_as_it_was(tmp_path: Path, kind: str) -> None:
    path = tape_in(tmp_path, kind, assorted())
    with editing(path) as editor:
        backup = editor.back_up()
        editor.apply(lambda _: ())
    assert answers(path) == {}
    target = tmp_path / f"again{Path(KINDS[kind]).suffix}"
    os.rename(backup, target)
    assert contents(str(target)) == contents(tape_in(tmp_path, kind, assorted(), "new"))


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_in_the_middle_leaves_the_tape_as_it_was(tmp_path: Path, kind: str) -> None:
    path = tape_in(tmp_path, kind, assorted())
    before = contents(path)

    def rows() -> Iterator[NewRow]:
        yield from map(row_with_bodies, before)
        raise ValueError("stop")

    with pytest.raises(ValueError, match="stop"), editing(path) as editor:
        editor.append(rows())
    if kind == "directory":  # each answer is whole, and was there before
        assert sorted(answers(path)) == sorted({e.key for e in before if e.state == "complete"})
    else:
        assert contents(path) == before


def test_a_torn_last_line_is_set_aside_before_rows_are_added(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one")])
    with Path(path).open("ab") as file:
        file.write(b'{"hash":"12')
    merge(path, [tape_in(tmp_path, "sqlite", [call("two")])])
    assert verify(path).damage == []
    assert set(answers(path)) == {call("one").key, call("two").key}
    assert (tmp_path / ".tapes" / "t.jsonl.torn").read_bytes() == b'{"hash":"12\n'


def test_a_last_row_without_its_line_end_stays_a_row(tmp_path: Path) -> None:
    path = Path(tape_in(tmp_path, "jsonl", [call("one")]))
    path.write_bytes(path.read_bytes().rstrip())
    merge(path, [tape_in(tmp_path, "sqlite", [call("two")])])
    assert set(answers(str(path))) == {call("one").key, call("two").key}


# --- beside writers


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_a_writer_that_has_the_tape_open_loses_nothing(tmp_path: Path, kind: str) -> None:
    path = tape_in(tmp_path, kind, [call("one"), call("two")])
    writer = open_tape(path)
    writer.append(call("three"))
    drop(path, "two")
    writer.append(call("four"))
    assert writer.find(call("two").key) is None
    writer.close()
    assert set(answers(path)) == {call(p).key for p in ("one", "three", "four")}


@pytest.mark.parametrize("kind", KINDS)
def test_writers_at_work_while_a_tool_rewrites_lose_nothing(tmp_path: Path, kind: str) -> None:
    """Every row that was acknowledged is there, but for those that the tool took away."""
    path = tape_in(tmp_path, kind, [call("old"), call("keep")])
    written, enough = threading.Event(), threading.Event()
    acknowledged: list[str] = []

    def write(name: str) -> None:
        tape: Tape = open_tape(path)
        for number in itertools.takewhile(lambda _: not enough.is_set(), itertools.count()):
            tape.append(call(f"{name} {number}"))
            acknowledged.append(call(f"{name} {number}").key)
            written.set()
        tape.close()

    with ThreadPoolExecutor(3) as pool:
        writing = [pool.submit(write, f"writer {n}") for n in range(3)]
        try:
            for _ in range(5):
                assert written.wait(30)  # a tool that never rests would leave writers no time
                written.clear()
                drop(path, "old")
        finally:
            enough.set()
        for each in writing:
            each.result()
    assert set(answers(path)) == {*acknowledged, call("keep").key}


def test_an_answer_that_a_writer_without_locks_records_anew_meanwhile_stays(
    tmp_path: Path,
) -> None:
    path = tape_in(tmp_path, "directory", [call("one", "old"), large("two")])

    def change(_: object) -> tuple[()]:
        tape = DirectoryTape(path)
        tape.put(call("one", "new"))
        tape.put(large("three"))
        return ()

    with editing(path) as editor:
        (body,) = editor.rows.bodies()
        editor.apply(change, {body.key})
    assert answers(path)[call("one").key] == call("one", "new")
    assert answers(path)[large("three").key] == large("three")
    assert verify(path).damage == []


def test_what_a_writer_without_locks_adds_meanwhile_is_carried_over(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one"), call("two")])
    line = Path(tape_in(tmp_path, "jsonl", [call("late")], "other")).read_bytes()

    with editing(path) as editor:

        def change(raw: object) -> tuple[()]:
            nonlocal line
            with Path(path).open("ab") as file:
                file.write(line)
            line = b""
            return ()

        editor.apply(change)
    assert set(answers(path)) == {call("late").key}


def test_adding_that_fails_takes_back_no_line_of_a_writer_without_locks(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one")])
    line = Path(tape_in(tmp_path, "jsonl", [call("late")], "other")).read_bytes()

    def rows() -> Iterator[NewRow]:
        for number in range(4):
            yield NewRow({"hash": f"{number:064}", "pad": "x" * 3 * 1024 * 1024})
            if number == 2:  # some of it is in the file by now
                with Path(path).open("ab") as file:
                    file.write(line)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), editing(path) as editor:
        editor.append(rows())
    assert verify(path).damage == []
    assert set(answers(path)) == {call("one").key, call("late").key}


# --- killed


WORKS = ("prune", "merge", "scrub", "mend")
# Each work and each kind of tape; all pairs take minutes.
QUICK = {("prune", "sqlite"), ("merge", "directory"), ("scrub", "jsonl"), ("mend", "directory")}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "kind"),
    [
        pytest.param(work, kind, marks=() if (work, kind) in QUICK else pytest.mark.long)
        for work in WORKS
        for kind in KINDS
    ],
)
def test_a_tool_that_is_killed_leaves_no_tape_worse(tmp_path: Path, kind: str, work: str) -> None:
    """At every moment: what answers is what answered before or after, whole; again completes it."""
    command = [sys.executable, "-m", "tests.killed", kind, work, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 5


# --- not allowed


@pytest.mark.parametrize("kind", KINDS)
def test_a_tape_that_may_not_be_changed_is_an_error_that_says_so(kind: str) -> None:
    with without_rights() as folder:
        path = tape_in(folder, kind, [call("one"), call("two")])
        for each in (*folder.rglob("*"), folder):
            each.chmod(0o555 if each.is_dir() else 0o444)
        with pytest.raises(UnwritableTape, match="cannot be written"):
            prune(path, Choice(used=set()))
        assert len(answers(path)) == 2


def test_a_full_disk_leaves_the_tape_as_it_was(tmp_path: Path) -> None:
    """A limit on file sizes is a disk that is full for this process."""
    path = tape_in(tmp_path, "jsonl", [call("one")])
    other = tape_in(tmp_path, "jsonl", [large(f"n{n}", f"{n} ") for n in range(8)], "other")
    before = Path(path).read_bytes()
    code = (
        "import resource, signal, sys; from tapes.tape.copying import merge\n"
        "from tapes.errors import UnwritableTape\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (40000, 40000))\n"
        "try: merge(sys.argv[1], [sys.argv[2]])\n"
        "except UnwritableTape as error: print(error)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path, other], capture_output=True, text=True, check=False
    )
    assert "cannot be written" in done.stdout, done.stderr
    assert Path(path).read_bytes() == before


def test_errors_of_the_system_are_told_as_a_tape_that_cannot_be_written(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one")])
    (tmp_path / ".tapes").write_text("a file where a folder should be")
    with pytest.raises(UnwritableTape, match="as it was"):
        drop(path, "one")
    assert json.loads(Path(path).read_text())["hash"] == call("one").key


def test_mending_and_pruning_take_turns(tmp_path: Path) -> None:
    """The lock is the tape's own: a second tool waits for the first."""
    path = tape_in(tmp_path, "jsonl", [call("one"), call("two")])
    with Path(path).open("ab") as file:
        file.write(b"{oops\n")
    threads = [
        threading.Thread(target=mend, args=(path,)),
        threading.Thread(target=drop, args=(path, "nothing")),
    ]
    with editing(path):
        for thread in threads:
            thread.start()
        assert all(thread.is_alive() for thread in threads)
    for thread in threads:
        thread.join(30)
    assert verify(path).damage == []
    assert prune(path, Choice(used=set())).kept == 0


@pytest.mark.parametrize("name", ["a#b.db", "a?b.db", "50%25.db"])
def test_a_database_of_any_name_is_backed_up_before_it_changes(tmp_path: Path, name: str) -> None:
    path = str(tmp_path / name)
    tape = open_tape(path)
    tape.append(call("one"))
    tape.close()
    with editing(path) as editor:
        backup = editor.back_up()
        editor.apply(lambda _: ())
    kept = backup.rename(tmp_path / "kept.db")
    assert set(answers(str(kept))) == {call("one").key}
    assert sorted(file.name for file in tmp_path.glob("*.db")) == sorted([name, "kept.db"])
