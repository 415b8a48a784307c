"""Where the log is kept."""

import pytest

from tapes.config import STORAGE, read_settings
from tapes.opening import Where, asked_for


def test_it_is_a_file_below_the_folder_if_nothing_is_said() -> None:
    where = Where.in_settings(read_settings(STORAGE, {}, environ={}))
    assert (where.path, where.dsn, str(where.spool)) == (
        ".tapes/tapes.db",
        None,
        ".tapes/spool/tapes.db",
    )


def test_a_dsn_wins_and_is_shown_without_its_password() -> None:
    dsn = "postgresql://me:secret@db.test:5432/tapes"
    settings = read_settings(STORAGE, {}, environ={"TAPES_STORAGE_POSTGRES_DSN": dsn})
    where = Where.in_settings(settings)
    assert where.dsn == dsn
    assert str(where) == "postgresql://db.test:5432/tapes"
    assert "secret" not in f"{where} {where.spool}"


@pytest.mark.parametrize(
    ("text", "is_dsn"),
    [
        ("other.db", False),
        ("postgresql://h/d", True),
        ("postgres://h/d", True),
        ("host=h dbname=d", True),
    ],
)
def test_a_text_names_a_file_or_a_database(text: str, is_dsn: bool) -> None:
    assert (Where.of(text).dsn is not None) is is_dsn


def test_no_two_stores_share_a_spool() -> None:
    places = ["a.db", "b.db", "x/a.db", "postgresql://h/one", "postgresql://h/two"]
    assert len({Where.of(place).spool for place in places}) == len(places)


DEFAULT = Where()


@pytest.mark.parametrize(
    ("log", "variable", "where"),
    [
        (None, "", None),
        (None, "off", None),
        (None, "1", DEFAULT),
        (None, "mine.db", Where("mine.db")),
        (True, "", DEFAULT),
        (False, "1", None),
        ("mine.db", "", Where("mine.db")),
        ("postgresql://h/d", "", Where(dsn="postgresql://h/d")),
    ],
)
def test_a_program_is_asked_for_its_calls_by_a_word_or_a_variable(
    log: bool | str | None, variable: str, where: Where | None
) -> None:
    assert asked_for(log, {"TAPES_LOG": variable}) == where


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        ("postgresql://db.test/tapes", "postgresql://db.test/tapes"),
        ("postgresql://db.test/d?password=secret", "postgresql://db.test/d"),
        ("postgresql://db.test/d?sslpassword=secret&a=b", "postgresql://db.test/d?a=b"),
        ("postgresql://me:secret@h/d?user=a@b&password=secret", "postgresql://b"),
        ("host=h dbname=d password=secret", "PostgreSQL"),
    ],
)
def test_a_place_is_shown_without_a_password_wherever_that_stands(dsn: str, shown: str) -> None:
    assert str(Where.of(dsn)) == shown
