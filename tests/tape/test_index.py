"""The table of keys: the last line wins, in memory and kept, and nothing broken is trusted."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes.tape import index
from tapes.tape.index import BrokenIndex, FileStamp, KeyTable, load_index, place_of

STAMP = FileStamp(1000, 1, 2, 3)
# Few keys, so that they repeat; a first byte from all over, and some that share it.
_KEYS = st.builds(
    lambda first, rest: bytes([first]) + bytes([rest]) * 31,
    st.sampled_from([0, 1, 127, 255]),
    st.integers(0, 3),
)
_ENTRIES = st.lists(st.tuples(_KEYS, st.booleans()), max_size=60)


@given(put=_ENTRIES, added=_ENTRIES)
def test_the_last_line_of_a_key_is_found(
    put: list[tuple[bytes, bool]], added: list[tuple[bytes, bool]]
) -> None:
    places = [place_of(100 * n, answers=answers) for n, (_, answers) in enumerate(put + added)]
    table = KeyTable()
    table.put([key for key, _ in put], places[: len(put)])
    last: dict[bytes, tuple[int, bool]] = {}
    for n, (key, answers) in enumerate(put):
        last[key] = (100 * n, answers)
    for n, (key, answers) in enumerate(added, len(put)):
        table.add([key], [places[n]])
        last[key] = (100 * n, answers)
        assert table.find(key) == 100 * n
    assert {key: table.find(key) for key in last} == {key: at for key, (at, _) in last.items()}
    assert sorted(table.answers()) == sorted(key for key, (_, answers) in last.items() if answers)
    assert table.find(b"\x02" * 32) is None


def test_many_lines_taken_in_later_join_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_RECENT", 10)
    table = KeyTable()
    keys = [os.urandom(32) for _ in range(100)]
    for n, key in enumerate(keys * 2):
        table.add([key], [place_of(n, answers=True)])
        assert table.find(key) == n
    assert [table.find(key) for key in keys] == list(range(100, 200))


def _kept(path: Path) -> list[bytes]:
    table = KeyTable()
    keys = [os.urandom(32) for _ in range(500)]
    table.put(keys, [place_of(n, answers=True) for n in range(500)])
    table.save(path, STAMP, 77, 99)
    return keys


def test_a_kept_table_finds_the_same(tmp_path: Path) -> None:
    keys = _kept(tmp_path / "i")
    loaded = load_index(tmp_path / "i", STAMP)
    assert loaded is not None
    table, last_line, checked = loaded
    assert (last_line, checked) == (77, 99)
    assert [table.find(key) for key in keys] == list(range(500))
    table.add([keys[3]], [place_of(900, answers=False)])
    table.save(tmp_path / "i", STAMP, 78, 99)
    again = load_index(tmp_path / "i", STAMP)
    assert again is not None
    assert again[0].find(keys[3]) == 900
    assert set(again[0].answers()) == set(keys) - {keys[3]}
    assert os.listdir(tmp_path) == ["i"]


@pytest.mark.parametrize(
    "other",
    [FileStamp(1001, 1, 2, 3), FileStamp(1000, 0, 2, 3), FileStamp(1000, 1, 0, 3),
     FileStamp(1000, 1, 2, 0)],
    ids=["size", "time of content", "time of status", "inode"],
)  # fmt: skip
def test_a_kept_table_is_only_for_the_file_it_was_made_from(
    tmp_path: Path, other: FileStamp
) -> None:
    _kept(tmp_path / "i")
    assert load_index(tmp_path / "i", other) is None


def test_no_table_is_loaded_from_what_is_none(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("x" * 10_000)
    (tmp_path / "folder").mkdir()
    for name in ("none", "empty", "text", "folder"):
        assert load_index(tmp_path / name, STAMP) is None


def test_a_broken_part_is_said_when_it_is_needed_and_others_are_not_harmed(tmp_path: Path) -> None:
    keys = _kept(tmp_path / "i")
    data = (tmp_path / "i").read_bytes()
    (tmp_path / "i").write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    loaded = load_index(tmp_path / "i", STAMP)
    assert loaded is not None
    first = min(keys)
    assert loaded[0].find(first) == keys.index(first)
    with pytest.raises(BrokenIndex):
        loaded[0].find(max(keys))
    with pytest.raises(BrokenIndex):
        list(loaded[0].answers())
