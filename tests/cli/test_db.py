"""`tapes db`: what is refused before anything is opened."""

from pathlib import Path

import pytest

from tapes.cli.main import run


@pytest.mark.row("N13")
def test_a_copy_onto_itself_is_refused_without_a_password(
    in_tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dsn = "postgresql://me:pass-word@127.0.0.1:1/tapes"
    assert run(["db", "copy", dsn, "--store", dsn]) == 2
    said = capsys.readouterr().err
    assert "is the log itself" in said
    assert "pass-word" not in said


def test_one_file_under_two_names_is_one_log(
    in_tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["seed", "--store", "a.db"]) == 0
    Path("b.db").symlink_to("a.db")
    for other in ("./a.db", "b.db"):
        assert run(["db", "copy", other, "--store", "a.db"]) == 2
        assert "is the log itself" in capsys.readouterr().err


def test_two_databases_that_are_named_in_words_are_two(
    in_tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = ("host=127.0.0.1 port=1 dbname=one", "host=127.0.0.1 port=1 dbname=other")
    assert run(["db", "copy", one, "--store", other]) != 2
    assert "is the log itself" not in capsys.readouterr().err
