"""The lives of servers: how each began, and whether it ended in order."""

import os
from pathlib import Path

import pytest

from tapes import lives as module
from tapes.lives import FILE, Life, Living, lives_in, machine_start


def test_a_life_is_kept_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    living = Living(tmp_path)
    (begun,) = lives_in(tmp_path)
    assert (begun.pid, begun.ended, begun.is_over) == (os.getpid(), None, False)
    living.beat()
    living.end()
    (ended,) = lives_in(tmp_path)
    assert ended.ended is not None
    assert ended.is_over
    assert ended.seconds >= 0


def test_several_servers_share_a_folder_and_old_lives_are_forgotten(tmp_path: Path) -> None:
    for _ in range(25):
        Living(tmp_path).end()
    one, two = Living(tmp_path), Living(tmp_path)
    one.beat()
    two.beat()
    kept = lives_in(tmp_path)
    assert len(kept) == 20
    assert [life.ended for life in kept[-2:]] == [None, None]


def test_a_life_of_an_earlier_start_of_the_machine_is_over() -> None:
    assert Life(os.getpid(), "another start", 0.0, 5.0).is_over
    assert not Life(os.getpid(), machine_start(), 0.0, 5.0).is_over
    assert Life(2**22 + 1, machine_start(), 0.0, 5.0).is_over


@pytest.mark.parametrize("content", ["", "{", "[1]", '[{"pid": 1}]', "[[]]"])
def test_a_file_that_cannot_be_read_remembers_nothing(content: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(content)
    assert lives_in(tmp_path) == []
    Living(tmp_path)
    assert len(lives_in(tmp_path)) == 1


def test_a_start_of_the_machine_is_told_from_another() -> None:
    assert machine_start() == machine_start()
    assert len(machine_start()) > 10
    assert module.BEAT_S > 0


def test_a_machine_that_says_less_of_its_start_is_the_same_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = tmp_path / "stat"
    monkeypatch.setattr(module, "_OF_MACHINE", (tmp_path / "no boot id", first))
    first.write_text("1 (init) S 0 1 1 0 -1 4194560 10 20 0 40 5 6 7 8 20 0 1 0 4711 9")
    before = machine_start()
    first.write_text("1 (init) S 0 1 1 0 -1 4194560 99 98 0 97 9 9 9 9 20 0 1 0 4711 9")
    assert machine_start() == before == "/4711"
