"""Remembered answers are as good as the tape that they came from."""

import os
import time
from pathlib import Path

import pytest

from tapes.capture import memo as module
from tapes.capture.memo import Given, Memo
from tapes.cassette import Cassette
from tapes.tape.base import MemoryTape


@pytest.fixture(autouse=True)
def _look_always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOK_S", -1.0)


def remembered(memo: Memo, cassette: Cassette) -> None:
    memo.add(b"digest", Given(b"data", True, "key", cassette, memo.stamp(cassette)))


def test_an_answer_is_found_while_its_tape_is_the_same(tmp_path: Path) -> None:
    memo, cassette = Memo(), Cassette(tmp_path / "t.jsonl", environ={})
    remembered(memo, cassette)
    found = memo.find(b"digest")
    assert found is not None
    assert found.data == b"data"
    assert memo.find(b"other") is None


@pytest.mark.parametrize("name", ["t.jsonl", "t.db-wal"])
def test_an_answer_is_decided_anew_when_its_tape_has_changed(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(b"")
    memo, cassette = Memo(), Cassette(MemoryTape(), environ={})
    cassette.tape.path = str(path).removesuffix("-wal")
    remembered(memo, cassette)
    assert memo.find(b"digest") is not None
    with path.open("ab") as file:
        file.write(b"x")
    assert memo.find(b"digest") is None


def test_a_directory_of_answers_has_changed_when_a_file_in_it_has(tmp_path: Path) -> None:
    memo, cassette = Memo(), Cassette(f"{tmp_path}/tape/", environ={})
    os.mkdir(tmp_path / "tape")
    remembered(memo, cassette)
    (tmp_path / "tape" / "new").write_text("x")
    assert memo.find(b"digest") is None


def test_a_tape_that_is_no_file_is_believed_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    memo, cassette = Memo(), Cassette(MemoryTape(), environ={})
    cassette.tape.path = "postgresql://host/tapes"
    remembered(memo, cassette)
    assert memo.find(b"digest") is not None
    now += module.BELIEVED_S
    assert memo.find(b"digest") is None


def test_a_tape_is_not_looked_at_for_every_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 60.0)
    memo, cassette = Memo(), Cassette(tmp_path / "t.jsonl", environ={})
    remembered(memo, cassette)
    (tmp_path / "t.jsonl").write_bytes(b"")
    assert memo.find(b"digest") is not None


def test_an_answer_that_somebody_edits_in_a_directory_is_seen_before_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    memo, cassette = Memo(), Cassette(f"{tmp_path}/tape/", environ={})
    (tmp_path / "tape").mkdir()
    answer = tmp_path / "tape" / f"{'a' * 64}.json"
    answer.write_text("1")
    remembered(memo, cassette)
    answer.write_text("2")  # which leaves no trace in the times of the folder
    now += module.BELIEVED_S
    assert memo.find(b"digest") is None
