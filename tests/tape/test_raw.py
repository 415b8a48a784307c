import json
from pathlib import Path

import pytest

from tapes.errors import DamagedTape, NewerTape, UnknownKey, UnreadableTape
from tapes.tape.raw import Fault, exchanges, key_that_begins, kind_of_existing, open_rows
from tests.making import KINDS, assorted, call, contents, large, tape_in
from tests.tape.faults import without_rights


@pytest.mark.parametrize("kind", KINDS)
def test_rows_are_what_the_tape_itself_reads(tmp_path: Path, kind: str) -> None:
    path = tape_in(tmp_path, kind, assorted())
    with open_rows(path) as rows:
        found = [exchange for _, exchange in exchanges(rows)]
    assert sorted(found, key=lambda e: e.key) == sorted(contents(path), key=lambda e: e.key)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_can_be_read_again_and_tell_how_far_they_are(tmp_path: Path, kind: str) -> None:
    with open_rows(tape_in(tmp_path, kind, assorted())) as rows:
        first, second = list(rows), list(rows)
    assert first == second
    assert [raw.done for raw in first] == sorted(raw.done for raw in first)
    assert first[-1].done == pytest.approx(1.0)


@pytest.mark.parametrize("kind", KINDS)
def test_bodies_that_are_kept_once_are_no_rows(tmp_path: Path, kind: str) -> None:
    one = large("long")
    with open_rows(tape_in(tmp_path, kind, [one, large("again")])) as rows:
        assert len(list(rows)) == 2
        (body,) = rows.bodies()
        assert rows.body(body.key) == one.response.body


@pytest.mark.parametrize("kind", KINDS)
def test_reading_leaves_nothing_behind(tmp_path: Path, kind: str) -> None:
    path = tape_in(tmp_path, kind, assorted())
    before = sorted(tmp_path.rglob("*"))
    with open_rows(path) as rows:
        list(rows)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_path_without_a_tape_is_an_error_and_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnreadableTape, match="there is no tape"):
        kind_of_existing(tmp_path / "deep" / "t.jsonl")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_of_other_files_is_no_tape(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(UnreadableTape, match="folder without answers"):
        kind_of_existing(tmp_path)


def test_a_broken_line_has_a_fault_and_hides_no_other(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one"), call("two")])
    lines = Path(path).read_bytes().splitlines(keepends=True)
    Path(path).write_bytes(lines[0] + b"{broken\n\n[1]\n" + lines[1] + b'{"hash":"ab')
    with open_rows(path) as rows:
        found = [(raw.place, raw.fault) for raw in rows]
    assert found == [
        ("line 1", None),
        ("line 2", Fault.UNREADABLE),
        ("line 4", Fault.NO_EXCHANGE),
        ("line 5", None),
        ("line 6", Fault.TORN),
    ]


def test_exchanges_stop_at_damage_and_pass_over_a_torn_last_line(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one")])
    with Path(path).open("ab") as file:
        file.write(b'{"hash":"ab')
    with open_rows(path) as rows:
        assert len(list(exchanges(rows))) == 1
    with Path(path).open("ab") as file:
        file.write(b"\n")
    with open_rows(path) as rows, pytest.raises(DamagedTape, match="line 2"):
        list(exchanges(rows))


def test_a_row_of_a_later_version_is_refused_with_advice(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    row = {"hash": "0" * 64, "v": 99, "request": None, "response": None}
    path.write_text(json.dumps(row) + "\n")
    with open_rows(path) as rows, pytest.raises(NewerTape, match="upgrade"):
        list(exchanges(rows))


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_is_found_by_its_first_digits(tmp_path: Path, kind: str) -> None:
    path = tape_in(tmp_path, kind, assorted())
    for exchange in assorted():
        assert key_that_begins(path, exchange.key[:8].upper()) == exchange.key


def test_a_beginning_that_many_keys_have_names_them(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    rows = [{"hash": f"abcd{n:060x}", "request": None, "response": n} for n in range(2)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UnknownKey, match=r"2 keys .* abcd00000000, abcd00000000"):
        key_that_begins(path, "abcd")


@pytest.mark.parametrize("begin", ["abc", "xyz1", "", "0" * 65])
def test_what_is_no_beginning_of_a_key_is_refused(tmp_path: Path, begin: str) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one")])
    with pytest.raises(UnknownKey, match="no beginning of one"):
        key_that_begins(path, begin)


def test_an_unreadable_file_is_an_error() -> None:
    with without_rights() as folder:
        path = Path(tape_in(folder, "jsonl", [call("one")]))
        path.chmod(0)
        with pytest.raises(UnreadableTape, match="Permission denied"), open_rows(path):
            pass
