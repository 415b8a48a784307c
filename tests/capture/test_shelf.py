"""The tapes of a proxy by their names, however many a folder has."""

from pathlib import Path

import pytest

from tapes.capture.shelf import Shelf
from tapes.cassette import Cassette
from tapes.tape.base import Tape
from tapes.tape.jsonl import JsonlTape
from tests.openfiles import open_below

ASKED = {"prompt": "hello"}


def opened(place: str | Tape) -> Cassette:
    return Cassette(place, "replay", environ={})


def folder_of(folder: Path, names: list[str]) -> Path:
    recorder = Cassette(folder / "first.jsonl", "record", lambda _: "hi", latch=True)
    recorder.call(ASKED)
    recorder.close()
    for name in names:
        (folder / f"{name}.jsonl").write_bytes((folder / "first.jsonl").read_bytes())
    return folder


def test_however_many_tapes_clients_name_few_are_open(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(300)]
    shelf = Shelf(folder=folder_of(tmp_path, names), opened=opened)
    for name in names:
        assert shelf.find(name).call(ASKED) == "hi"
    assert open_below(tmp_path) < 150
    assert len(list(shelf)) < 150
    assert shelf.find(names[0]).call(ASKED) == "hi"
    shelf.close()


def test_names_of_tapes_that_are_not_there_are_not_all_remembered(tmp_path: Path) -> None:
    shelf = Shelf(folder=tmp_path, opened=opened)
    for number in range(300):
        shelf.find(f"absent{number}")
    assert len(list(shelf)) < 150


def test_a_tape_that_was_let_go_still_answers_whoever_has_it(tmp_path: Path) -> None:
    shelf = Shelf(folder=folder_of(tmp_path, ["kept"]), opened=opened)
    kept = shelf.find("kept")
    told: list[bool] = []
    shelf.when_let_go(lambda: told.append(True))
    for number in range(300):
        shelf.find(f"t{number}")
    assert told
    assert shelf.find("kept") is not kept
    assert kept.call(ASKED) == "hi"


def test_a_tape_that_is_asked_for_again_and_again_is_not_let_go(tmp_path: Path) -> None:
    shelf = Shelf(folder=tmp_path, opened=opened)
    kept = shelf.find("kept")
    for number in range(300):
        shelf.find(f"t{number}")
        assert shelf.find("kept") is kept


def test_tapes_that_were_declared_are_never_let_go(tmp_path: Path) -> None:
    declared = opened(str(tmp_path / "declared.jsonl"))
    shelf = Shelf(named={"declared": declared}, folder=tmp_path, opened=opened)
    for number in range(300):
        shelf.find(f"t{number}")
    assert shelf.find("declared") is declared


@pytest.mark.parametrize("writes", [False, True], ids=["read", "written"])
def test_a_tape_at_rest_has_no_file_open_and_goes_on_when_it_is_asked(
    tmp_path: Path, *, writes: bool
) -> None:
    cassette = Cassette(
        folder_of(tmp_path, []) / "first.jsonl", "record", lambda r: str(r["prompt"]), latch=True
    )
    assert isinstance(cassette.tape, JsonlTape)
    assert cassette.call({"prompt": "new"} if writes else ASKED)
    cassette.rest()
    assert open_below(tmp_path) == 0
    assert cassette.call(ASKED) == "hi"
    assert cassette.call({"prompt": "another"}) == "another"
    cassette.close()
