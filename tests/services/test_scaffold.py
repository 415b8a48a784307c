"""A new service, before a line of it is changed."""

import subprocess
import sys
from pathlib import Path

import pytest

from tapes.errors import BadSetting
from tapes.services.checking import State, check_toml
from tapes.services.scaffold import files_of, write_new
from tests.commands import environment


@pytest.mark.row("C13", "C14")
def test_a_new_service_passes_its_checks_and_its_own_test(tmp_path: Path) -> None:
    written = write_new("word-count", tmp_path / "made")
    points, declared = check_toml(written[0].read_text(), ["v1"])
    assert declared is not None
    assert declared.name == "word-count"
    assert {point.state for point in points} == {State.PASSED}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:asyncio", "-p", "no:cacheprovider"],
        cwd=tmp_path / "made",
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_what_is_there_is_never_written_over(tmp_path: Path) -> None:
    (tmp_path / "service.py").write_text("mine")
    with pytest.raises(BadSetting, match=r"service\.py is there already"):
        write_new("word-count", tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == ["service.py"]


def test_a_folder_that_cannot_be_made_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "a file").write_text("mine")
    for folder in (tmp_path / "a file", tmp_path / "a file" / "in it"):
        with pytest.raises(BadSetting, match="cannot be written"):
            write_new("word-count", folder)


@pytest.mark.parametrize("name", ["Word", "public", "a", "x" * 33, 'a"b', "a\\b", "a/b", "", "-a"])
def test_a_name_that_no_service_can_have_is_refused(name: str) -> None:
    with pytest.raises(BadSetting, match="the name"):
        files_of(name)
