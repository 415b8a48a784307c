"""What a run did with its tapes, over all its workers."""

import json
from pathlib import Path

from tapes import Cassette
from tapes.testing.ending import summary_lines, unused_lines
from tapes.testing.gathered import Gathered


def recorded(path: Path, *prompts: str) -> None:
    with Cassette(path, "record", lambda _: {"a": 1}, latch=True) as cassette:
        for prompt in prompts:
            cassette.call({"prompt": prompt})


def replayed(path: Path, *prompts: str) -> Gathered:
    gathered = Gathered()
    with Cassette(path) as cassette:
        for prompt in prompts:
            cassette.call({"prompt": prompt})
        gathered.took(cassette.report, str(path), is_file=True)
    return gathered


def test_what_workers_tell_is_added_up(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    recorded(path, "a", "b", "c")
    whole = Gathered()
    for worker in (replayed(path, "a", "a"), replayed(path, "b")):
        whole.add_plain(json.loads(json.dumps(worker.as_plain())))
    assert summary_lines(whole)[0] == "1 tape (replay): 3 served (1 reused), 0 live, 0 refused"
    assert [len(keys) for keys in whole.unused_recordings().values()] == [1]


def test_pruning_takes_what_nobody_used_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    recorded(path, "a", "b", "c")
    first = path.read_bytes().splitlines(keepends=True)[0]
    assert unused_lines(replayed(path, "a"), prunes=True)[0].startswith("taken away")
    assert path.read_bytes() == first


def test_a_tape_of_a_skipped_test_is_spared(tmp_path: Path) -> None:
    path, other = tmp_path / "t.jsonl", tmp_path / "other.jsonl"
    recorded(path, "a", "b")
    recorded(other, "a")
    gathered = replayed(path, "a")
    gathered.folders.add(str(tmp_path))
    assert gathered.unused_tapes() == [str(other)]
    gathered.spared |= {str(path), str(other)}
    assert (gathered.unused_tapes(), gathered.unused_recordings()) == ([], {})


def test_two_names_of_one_tape_share_what_was_asked(tmp_path: Path) -> None:
    path, link = tmp_path / "t.jsonl", tmp_path / "link.jsonl"
    recorded(path, "a", "b")
    link.symlink_to(path)
    gathered = replayed(path, "a")
    gathered.add_plain(replayed(link, "b").as_plain())
    assert gathered.unused_recordings() == {}
    (tmp_path / "spared").mkdir()
    alone = replayed(path, "a")
    alone.spared.add(str(tmp_path / "spared" / ".." / "link.jsonl"))
    assert alone.unused_recordings() == {}


def test_pruning_a_tape_of_two_names_keeps_what_either_was_asked(tmp_path: Path) -> None:
    path, link = tmp_path / "t.jsonl", tmp_path / "link.jsonl"
    recorded(path, "a", "b", "c")
    before = path.read_bytes().splitlines(keepends=True)
    link.symlink_to(path)
    gathered = replayed(path, "a")
    gathered.add_plain(replayed(link, "b").as_plain())
    assert len(unused_lines(gathered, prunes=True)) == 1
    assert path.read_bytes() == b"".join(before[:2])


def test_only_tapes_below_the_folders_that_ran_are_judged(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    recorded(path, "a", "b")
    gathered = replayed(path, "a")
    gathered.folders.add(str(tmp_path))
    gathered.within = [str(tmp_path / "sub")]
    assert (gathered.unused_tapes(), gathered.unused_recordings()) == ([], {})
    gathered.within = [str(tmp_path)]
    assert list(gathered.unused_recordings()) == [str(path)]
