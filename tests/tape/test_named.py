"""What a name leads to. (What tapes make of it is in the contract of all tapes.)"""

import os
from pathlib import Path

import pytest

from tapes.errors import UnreadableTape
from tapes.tape.named import file_status, local_of, require_folder_or_nothing, unreadable


def test_a_file_has_a_status_and_nothing_has_none(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("abc")
    status = file_status(str(tmp_path / "f"), "f")
    assert status is not None
    assert status.st_size == 3
    assert file_status(str(tmp_path / "none"), "none") is None


def test_every_link_to_a_tape_has_its_local_folder_and_name(tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    os.symlink("far", tmp_path / "near")
    os.symlink("near/t.jsonl", tmp_path / "link.jsonl")
    expected = (tmp_path.resolve() / "far" / ".tapes", "t.jsonl")
    for name in ("far/t.jsonl", "near/t.jsonl", "link.jsonl", "far/../near/./t.jsonl"):
        assert local_of(str(tmp_path / name)) == expected


def test_a_folder_or_nothing_is_no_error_and_a_file_is_one(tmp_path: Path) -> None:
    require_folder_or_nothing(str(tmp_path), "x")
    require_folder_or_nothing(str(tmp_path / "none"), "x")
    (tmp_path / "f").touch()
    with pytest.raises(UnreadableTape, match="x is a file"):
        require_folder_or_nothing(str(tmp_path / "f"), "x")


def test_the_error_of_the_system_names_the_file_inside() -> None:
    error = unreadable("tapes", PermissionError(13, "Permission denied"), "a.json")
    assert error.message == "the tape tapes cannot be read: a.json: Permission denied"
    assert error.remedy == "check who may read it: ls -ld tapes/a.json"
