"""What a project declares in its `tapes.toml`."""

from pathlib import Path

import pytest

from tapes.errors import BadRule
from tapes.project import Declared, declared_for
from tapes.varying import Rule


def declare(folder: Path, text: str) -> Path:
    (folder / ".git").mkdir(exist_ok=True)
    (folder / "tapes.toml").write_text(text, encoding="utf-8")
    return folder / "tests" / "tapes" / "weather.jsonl"


def test_without_a_file_nothing_is_declared(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    assert declared_for(tmp_path / "t.jsonl") == Declared()


@pytest.mark.row("N12")
def test_everything_that_can_be_declared_is_read(tmp_path: Path) -> None:
    tape = declare(
        tmp_path,
        r"""
        secrets = "refuse"
        errors = "store"
        headers = ["X-Variant"]
        allow = ["db.internal:5432"]
        [[vary]]
        at = "/metadata/run_id"
        about = "a new one each time"
        [[secret]]
        name = "acme_key"
        pattern = 'acme_[a-z0-9]{20}'
        """,
    )
    declared = declared_for(tape)
    assert declared.secrets == "refuse"
    assert declared.errors == "store"
    assert declared.headers == {"x-variant"}
    assert declared.allow == ("db.internal:5432",)
    assert declared.rules == (Rule.of({"at": "/metadata/run_id"}),)
    assert [pattern.name for pattern in declared.patterns] == ["acme_key"]
    assert declared.source == str(tmp_path / "tapes.toml")


@pytest.mark.parametrize(
    ("path", "holds"),
    [
        ("tests/tapes/weather*.jsonl", True),
        ("tests/tapes/*", True),
        ("tests/*", True),
        ("./tests/tapes/weather.jsonl", True),
        ("weather.jsonl", False),
        ("tests/tapes/news.jsonl", False),
    ],
)
def test_a_section_holds_for_the_tapes_that_its_path_names(
    path: str, holds: bool, tmp_path: Path
) -> None:
    tape = declare(tmp_path, f'[[tape]]\npath = "{path}"\nerrors = "store"\n')
    assert (declared_for(tape).errors == "store") is holds


def test_a_folder_may_have_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "a[b]*c"
    folder.mkdir()
    tape = declare(folder, '[[tape]]\npath = "tests/*"\nerrors = "store"\n')
    assert declared_for(tape).errors == "store"


def test_sections_add_to_what_holds_for_all(tmp_path: Path) -> None:
    tape = declare(
        tmp_path,
        """
        headers = ["x-a"]
        [[vary]]
        at = "/a"
        [[tape]]
        path = "tests/*"
        headers = ["x-b"]
        [[tape.vary]]
        at = "/b"
        """,
    )
    declared = declared_for(tape)
    assert declared.headers == {"x-a", "x-b"}
    assert [rule.at for rule in declared.rules] == ["/a", "/b"]


def test_the_nearest_file_holds_and_none_beyond_the_repository(tmp_path: Path) -> None:
    declare(tmp_path, 'errors = "store"')
    inner = tmp_path / "inner"
    (inner / "tapes").mkdir(parents=True)
    assert declared_for(inner / "tapes" / "t.jsonl").errors == "store"
    (inner / ".git").mkdir()
    assert declared_for(inner / "tapes" / "t.jsonl") == Declared()
    (inner / "tapes" / "tapes.toml").write_text("")
    assert declared_for(inner / "tapes" / "t.jsonl").source is not None


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    assert declared_for(declare(tmp_path, '\ufefferrors = "store"')).errors == "store"


@pytest.mark.row("N13")
def test_behind_a_link_holds_what_is_declared_where_the_tape_lies(tmp_path: Path) -> None:
    for folder in ("real", "other"):
        (tmp_path / folder / ".git").mkdir(parents=True)
    declare(tmp_path / "real", '[[tape]]\npath = "t.jsonl"\nsecrets = "refuse"')
    (tmp_path / "real" / "t.jsonl").touch()
    link = tmp_path / "other" / "link.jsonl"
    link.symlink_to(tmp_path / "real" / "t.jsonl")
    assert declared_for(link).secrets == "refuse"
    declare(tmp_path / "other", "")
    assert declared_for(link).secrets == "replace"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("secrets = ", "tapes.toml: "),
        ('secrets = "hide"', 'secrets = \'hide\' is not "replace" or "refuse"'),
        ("errors = true", 'errors = True is not "skip" or "store"'),
        ('headers = "x"', "headers is a list of texts"),
        ("allow = [1]", "allow is a list of texts"),
        ("vary = 1", r"vary is a list of tables: write \[\[vary\]\]"),
        ('[vary]\nat = "/a"', r"vary is a list of tables: write \[\[vary\]\]"),
        ('[[vary]]\nat = "a"', r"\[\[vary\]\] 1.*does not begin with /"),
        ('[[secret]]\nname = "a"', r"\[\[secret\]\] 1.*a name and a pattern"),
        ('colour = "red"', "unknown colour"),
        ("tape = 1", r"tape is a list: write \[\[tape\]\]"),
        ("[[tape]]\nerrors = 'store'", r"\[\[tape\]\] 1 has no path"),
        ('[[tape]]\npath = "tests/*"\ncolour = 1', r"\[\[tape\]\] 1: unknown colour"),
    ],
)
def test_what_cannot_be_read_is_named_with_file_and_place(
    text: str, what: str, tmp_path: Path
) -> None:
    with pytest.raises(BadRule, match=what) as caught:
        declared_for(declare(tmp_path, text))
    assert str(tmp_path / "tapes.toml") in caught.value.message
