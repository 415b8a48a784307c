"""The local folder, and folders that are made durably."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tapes.tape.beside import make_folder, make_local


def test_the_local_folder_is_made_with_its_ignore_list_and_no_leftovers(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(make_local, [tmp_path / "x" / ".tapes"] * 8))
    assert os.listdir(tmp_path / "x" / ".tapes") == [".gitignore"]
    assert "config.toml" not in (tmp_path / "x" / ".tapes" / ".gitignore").read_text()


def test_an_ignore_list_that_somebody_changed_stays(tmp_path: Path) -> None:
    make_local(tmp_path)
    (tmp_path / ".gitignore").write_text("mine")
    make_local(tmp_path)
    assert (tmp_path / ".gitignore").read_text() == "mine"


def test_folders_are_made_all_the_way_down(tmp_path: Path) -> None:
    make_folder(str(tmp_path / "a" / "b" / "c"))
    make_folder(str(tmp_path / "a" / "b" / "c"))
    assert (tmp_path / "a" / "b" / "c").is_dir()


def test_a_file_in_the_way_of_a_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    for name in ("a", "a/b"):
        with pytest.raises(NotADirectoryError):
            make_folder(str(tmp_path / name))
