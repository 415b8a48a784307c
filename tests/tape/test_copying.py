import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from tapes.errors import BadSetting, DamagedTape, MergeConflict, UnreadableTape
from tapes.exchange import Piece, Response
from tapes.tape.copying import answer_digest, convert, merge
from tapes.tape.mending import verify
from tests.making import KINDS, answers, assorted, call, chat, contents, large, make_tape, tape_in

PAIRS = list(permutations(KINDS, 2)) + [(kind, kind) for kind in KINDS]


def by_key(path: str) -> dict[str, object]:
    return {exchange.key: exchange for exchange in contents(path)}


# --- convert


@pytest.mark.row("B13")
@pytest.mark.parametrize(("old", "new"), PAIRS)
def test_a_converted_tape_holds_the_same_keys_and_answers(
    tmp_path: Path, old: str, new: str
) -> None:
    source = tape_in(tmp_path, old, assorted(), "old")
    target = f"{tmp_path}/new{Path(KINDS[new]).suffix or '/'}"
    copied = convert(source, target)
    assert by_key(target) == by_key(source)
    assert (copied.rows, copied.left_out) == (len(assorted()), 0)
    assert verify(target).damage == []


@pytest.mark.row("B13")
def test_converting_there_and_back_gives_the_same_file(tmp_path: Path) -> None:
    first = tape_in(tmp_path, "jsonl", assorted())
    convert(first, tmp_path / "a.db")
    convert(tmp_path / "a.db", tmp_path / "again.jsonl")
    assert (tmp_path / "again.jsonl").read_bytes() == Path(first).read_bytes()


@pytest.mark.row("B13", "A11")
def test_a_row_of_the_documents_own_keeps_its_bytes(tmp_path: Path) -> None:
    exchange = call("one")
    row = {"hash": exchange.key, "request": exchange.request, "response": {"n": 1.10, "ü": None}}
    (tmp_path / "a.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\n")
    convert(tmp_path / "a.jsonl", tmp_path / "b.db")
    convert(tmp_path / "b.db", tmp_path / "c.jsonl")
    assert (tmp_path / "c.jsonl").read_bytes() == (tmp_path / "a.jsonl").read_bytes()
    convert(tmp_path / "c.jsonl", f"{tmp_path}/d/")
    assert answers(f"{tmp_path}/d/")[exchange.key].response == row["response"]


@pytest.mark.row("B13", "B2")
@pytest.mark.parametrize("kind", ["jsonl", "sqlite"])
def test_answers_without_requests_come_along(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "answers"
    folder.mkdir()
    (folder / f"{'ab' * 32}.json").write_text('{"answer": [1, 2.5, "ü"]}')
    there = f"{tmp_path}/there{Path(KINDS[kind]).suffix}"
    convert(folder, there)
    convert(there, f"{tmp_path}/back/")
    found = answers(f"{tmp_path}/back/")["ab" * 32]
    assert (found.request, found.response) == (None, {"answer": [1, 2.5, "ü"]})


def test_superseded_rows_that_a_directory_has_no_place_for_are_counted(tmp_path: Path) -> None:
    source = tape_in(tmp_path, "jsonl", [call("one", "old"), call("two"), call("one", "new")])
    copied = convert(source, f"{tmp_path}/answers/")
    assert (copied.rows, copied.left_out) == (2, 1)
    assert answers(f"{tmp_path}/answers/") == answers(source)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_converted_over_what_is_there(tmp_path: Path, kind: str) -> None:
    source = tape_in(tmp_path, "jsonl", [call("one")], "source")
    target = tape_in(tmp_path, kind, [call("two")], "target")
    with pytest.raises(BadSetting, match="is there already"):
        convert(source, target)
    assert set(answers(target)) == {call("two").key}


def test_a_damaged_tape_is_not_converted_and_leaves_nothing(tmp_path: Path) -> None:
    source = tape_in(tmp_path, "jsonl", [call("one")])
    with Path(source).open("ab") as file:
        file.write(b"{oops\n")
    with pytest.raises(DamagedTape, match="line 2"):
        convert(source, tmp_path / "b.db")
    assert not (tmp_path / "b.db").exists()
    assert not list(tmp_path.glob(".tapes/unfinished"))


# --- merge


@pytest.mark.row("B13", "B7")
@pytest.mark.parametrize(("into", "source"), PAIRS)
def test_a_merge_brings_everything_along(tmp_path: Path, into: str, source: str) -> None:
    target = tape_in(tmp_path, into, [call("mine")], "into")
    other = tape_in(tmp_path, source, assorted(), "from")
    (copied,) = merge(target, [other])
    assert by_key(target) == by_key(other) | {call("mine").key: call("mine")}
    assert (copied.rows, copied.known) == (len(assorted()), 0)
    assert verify(target).damage == []


@pytest.mark.row("B13")
@pytest.mark.parametrize("kind", KINDS)
def test_merging_again_changes_nothing(tmp_path: Path, kind: str) -> None:
    target = tape_in(tmp_path, kind, [call("mine")], "into")
    other = tape_in(tmp_path, "jsonl", assorted(), "from")
    merge(target, [other])
    before = contents(target)
    (copied,) = merge(target, [other])
    assert contents(target) == before
    assert (copied.rows, copied.known) == (0, len(assorted()) - 1)


@pytest.mark.row("B13")
def test_a_tape_that_is_not_there_is_made(tmp_path: Path) -> None:
    one = tape_in(tmp_path, "jsonl", [call("one")], "one")
    two = tape_in(tmp_path, "directory", [call("two")], "two")
    merge(tmp_path / "all.db", [one, two])
    assert set(answers(f"{tmp_path}/all.db")) == {call("one").key, call("two").key}


@pytest.mark.parametrize("kind", KINDS)
def test_the_folder_of_a_new_tape_is_made(tmp_path: Path, kind: str) -> None:
    source = tape_in(tmp_path, "jsonl", assorted(), "from")
    merge(f"{tmp_path}/new/deep/{KINDS[kind]}", [source])
    convert(source, f"{tmp_path}/other/deep/{KINDS[kind]}")
    for folder in ("new", "other"):
        assert by_key(f"{tmp_path}/{folder}/deep/{KINDS[kind]}") == by_key(source)


@pytest.mark.row("B13")
@pytest.mark.parametrize("kind", KINDS)
def test_different_answers_are_a_conflict_and_nothing_is_written(tmp_path: Path, kind: str) -> None:
    target = tape_in(tmp_path, kind, [call("one", "mine")], "into")
    other = tape_in(tmp_path, "jsonl", [call("new"), call("one", "theirs")], "from")
    with pytest.raises(MergeConflict) as caught:
        merge(target, [other])
    assert call("one").key[:12] in str(caught.value)
    assert target in str(caught.value)
    assert other in str(caught.value)
    assert "--prefer" in caught.value.remedy
    assert set(answers(target)) == {call("one").key}


def test_a_conflict_between_sources_is_found_before_a_tape_is_made(tmp_path: Path) -> None:
    one = tape_in(tmp_path, "jsonl", [call("one", "a")], "one")
    two = tape_in(tmp_path, "jsonl", [call("one", "b")], "two")
    with pytest.raises(MergeConflict, match=r"one\.jsonl and .*two\.jsonl"):
        merge(tmp_path / "all.jsonl", [one, two])
    assert not (tmp_path / "all.jsonl").exists()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("prefer", "wanted"), [("ours", "mine"), ("theirs", "theirs")])
def test_a_conflict_can_be_decided(tmp_path: Path, kind: str, prefer: str, wanted: str) -> None:
    target = tape_in(tmp_path, kind, [call("one", "mine")], "into")
    other = tape_in(tmp_path, "jsonl", [call("one", "theirs"), call("two")], "from")
    (copied,) = merge(target, [other], prefer)
    assert answers(target)[call("one").key].response == {"text": wanted}
    assert call("two").key in answers(target)
    assert copied.kept_out == (prefer == "ours")


def test_what_a_later_recording_replaced_does_not_come_back(tmp_path: Path) -> None:
    target = tape_in(tmp_path, "jsonl", [call("one", "new")], "into")
    other = tape_in(tmp_path, "jsonl", [call("one", "old"), call("one", "new")], "from")
    merge(target, [other])
    assert contents(target) == [call("one", "new")]


def test_recordings_that_only_came_at_other_times_are_the_same_answer() -> None:
    one = chat("x", "a", "b")
    assert isinstance(one.response, Response)
    later = replace(one.response, pieces=(Piece(9.0, one.response.body),))
    assert answer_digest(replace(one, response=later)) == answer_digest(one)
    other = replace(one.response, headers=(("x-request-id", "2"),))
    assert answer_digest(replace(one, response=other)) != answer_digest(one)


@pytest.mark.row("B13")
def test_a_body_that_both_tapes_keep_once_is_kept_once(tmp_path: Path) -> None:
    target = tape_in(tmp_path, "jsonl", [large("one")], "into")
    other = tape_in(tmp_path, "jsonl", [large("two"), large("three")], "from")
    merge(target, [other])
    assert verify(target).bodies == 1
    assert len(answers(target)) == 3


def test_many_sources_of_all_kinds_become_one(tmp_path: Path) -> None:
    sources = [
        tape_in(tmp_path, kind, [call(f"{kind} {n}") for n in range(5)], kind) for kind in KINDS
    ]
    merge(tmp_path / "all.jsonl", sources)
    wanted = {call(f"{kind} {n}").key for kind in KINDS for n in range(5)}
    assert set(answers(f"{tmp_path}/all.jsonl")) == wanted


def test_a_source_that_is_not_there_is_an_error_and_makes_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnreadableTape, match="there is no tape"):
        merge(tmp_path / "all.jsonl", [tmp_path / "none.jsonl"])
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_source_writes_nothing(tmp_path: Path) -> None:
    target = tape_in(tmp_path, "jsonl", [call("mine")], "into")
    other = tape_in(tmp_path, "jsonl", [call("one"), call("two")], "from")
    with Path(other).open("ab") as file:
        file.write(b"{oops\n")
    with pytest.raises(DamagedTape, match="line 3"):
        merge(target, [other])
    assert set(answers(target)) == {call("mine").key}


def test_a_tape_merged_with_itself_stays_as_it_is(tmp_path: Path) -> None:
    path = make_tape(tmp_path / "t.jsonl", assorted())
    before = Path(path).read_bytes()
    merge(path, [path])
    assert Path(path).read_bytes() == before
