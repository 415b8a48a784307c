from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tapes.errors import DamagedTape
from tapes.tape.mending import verify
from tapes.tape.pruning import Choice, plan_pruning, prune
from tests.making import KINDS, answers, assorted, call, chat, contents, large, tape_in

MARCH = datetime(2026, 3, 1, tzinfo=UTC)


@pytest.mark.row("N18")
@pytest.mark.parametrize("kind", KINDS)
def test_the_unused_go_and_nothing_else(tmp_path: Path, kind: str) -> None:
    path = tape_in(tmp_path, kind, [call("one"), call("two"), call("three")])
    found = prune(path, Choice(used={call("one").key, call("three").key}))
    assert [(row.key, row.why) for row in found.gone] == [(call("two").key, "unused")]
    assert found.kept == 2
    assert set(answers(path)) == {call("one").key, call("three").key}


@pytest.mark.row("N18")
def test_lines_that_stay_keep_their_bytes(tmp_path: Path) -> None:
    path = Path(tape_in(tmp_path, "jsonl", [call("one"), call("two"), large("three")]))
    one, two, *three = path.read_bytes().splitlines(keepends=True)
    odd = one.replace(b'"v":1,', b'"v": 1, "note": "mine", ')
    path.write_bytes(odd + b"\n" + two + b"".join(three))
    prune(path, Choice(used={call("one").key, large("three").key}))
    assert path.read_bytes() == odd + b"\n" + b"".join(three)


@pytest.mark.parametrize("kind", KINDS)
def test_looking_first_changes_nothing_and_tells_the_same(tmp_path: Path, kind: str) -> None:
    path = tape_in(tmp_path, kind, assorted())
    choice = Choice(used={call("one").key}, incomplete=True)
    planned = plan_pruning(path, choice)
    assert len(contents(path)) == len(assorted())
    assert prune(path, choice) == planned


@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_what_a_later_recording_replaced_goes(tmp_path: Path, kind: str) -> None:
    path = tape_in(tmp_path, kind, [call("one", "old"), call("two"), call("one", "new")])
    before = answers(path)
    prune(path, Choice(superseded=True))
    assert answers(path) == before
    assert len(contents(path)) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_streams_that_did_not_end_go(tmp_path: Path, kind: str) -> None:
    path = tape_in(tmp_path, kind, assorted())
    before = answers(path)
    assert [row.why for row in prune(path, Choice(incomplete=True)).gone] == ["incomplete"]
    assert answers(path) == before
    assert verify(path).incomplete == 0


@pytest.mark.parametrize("kind", KINDS)
def test_evidence_is_not_unused(tmp_path: Path, kind: str) -> None:
    path = tape_in(tmp_path, kind, assorted())
    prune(path, Choice(used=set()))
    assert [exchange.state for exchange in contents(path)] == ["aborted_by_client"]


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_old_goes_and_what_has_no_date_stays(tmp_path: Path, kind: str) -> None:
    old = replace(call("old"), recorded_at="2026-02-28T23:59:59.000+00:00")
    new = replace(call("new"), recorded_at="2026-03-01T00:00:00.000+00:00")
    undated = replace(call("undated"), recorded_at=None)
    path = tape_in(tmp_path, kind, [old, new, undated])
    assert [row.key for row in prune(path, Choice(before=MARCH)).gone] == [old.key]
    assert set(answers(path)) == {new.key, undated.key}


def test_an_older_answer_does_not_come_back_when_the_newer_one_goes(tmp_path: Path) -> None:
    """Clocks can be wrong: what is later on the tape may say that it is older."""
    first = replace(call("one", "first"), recorded_at="2026-04-01T00:00:00+00:00")
    last = replace(call("one", "last"), recorded_at="2026-01-01T00:00:00+00:00")
    path = tape_in(tmp_path, "jsonl", [first, last, call("two")])
    found = prune(path, Choice(before=MARCH))
    assert [row.why for row in found.gone] == ["what replaced it goes", "old"]
    assert set(answers(path)) == {call("two").key}


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_goes_with_the_last_row_that_names_it(tmp_path: Path, kind: str) -> None:
    path = tape_in(tmp_path, kind, [large("one"), large("two"), call("three")])
    assert prune(path, Choice(used={large("two").key, call("three").key})).bodies == 0
    assert verify(path).bodies == 1
    assert prune(path, Choice(used={call("three").key})).bodies == 1
    assert verify(path).bodies == 0
    assert verify(path).damage == []


def test_pruning_an_sqlite_tape_gives_its_space_back(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "sqlite", [large(f"n{n}", f"{n} ") for n in range(20)])
    before = Path(path).stat().st_size
    prune(path, Choice(used={large("n0").key}))
    assert Path(path).stat().st_size < before / 3
    assert not Path(f"{path}-wal").exists()


def test_several_choices_each_take_more(tmp_path: Path) -> None:
    path = tape_in(
        tmp_path, "jsonl", [*assorted(), call("one", "newer"), chat("cut", "x", sample=0)]
    )
    found = prune(path, Choice(superseded=True, incomplete=True))
    assert sorted(row.why for row in found.gone) == ["incomplete", "superseded"]


@pytest.mark.parametrize("kind", ["jsonl", "directory"])
def test_a_damaged_tape_is_not_pruned(tmp_path: Path, kind: str) -> None:
    path = tape_in(tmp_path, kind, [call("one"), call("two")])
    broken = Path(path) if kind == "jsonl" else Path(path, f"{call('one').key}.json")
    with broken.open("ab") as file:
        file.write(b"{oops\n")
    with pytest.raises(DamagedTape, match="tapes tape verify"):
        prune(path, Choice(used=set()))
    assert broken.exists()


def test_a_tape_from_which_nothing_goes_is_not_rewritten(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one")])
    inode = Path(path).stat().st_ino
    prune(path, Choice(superseded=True))
    assert Path(path).stat().st_ino == inode
