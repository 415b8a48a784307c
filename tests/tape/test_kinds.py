"""From a name to the tape it means."""

import os
from pathlib import Path

import pytest

from tapes.errors import UnknownKind
from tapes.tape.kinds import KINDS, kind_of, open_tape
from tests.tape.homes import key, plain


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.jsonl", "jsonl"), ("a.NDJSON", "jsonl"), ("a.db", "sqlite"), ("a.sqlite3", "sqlite"),
        ("a.sqlite", "sqlite"), ("a/", "directory"), ("a", "directory"), ("a.jsonl/", "directory"),
    ],
)  # fmt: skip
def test_a_name_says_the_kind_before_anything_is_there(
    in_tmp_path: Path, name: str, kind: str
) -> None:
    assert kind_of(name) == kind
    assert type(open_tape(name)) is KINDS[kind]


def test_what_is_there_says_more_than_a_name_without_an_ending(in_tmp_path: Path) -> None:
    for home, kind in KINDS.items():
        if home != "directory":
            tape = kind(str(in_tmp_path / home))
            tape.append(plain(1))
            tape.close()
            assert kind_of(home) == home
            assert open_tape(Path(home)).keys() == {key(1)}
    os.mkdir("a.dir")
    assert kind_of("a.dir") == "directory"
    (in_tmp_path / "empty").touch()
    assert kind_of("empty") == "jsonl"


def test_a_name_that_says_nothing_is_refused_with_what_to_type(in_tmp_path: Path) -> None:
    with pytest.raises(UnknownKind, match=r"a\.yaml does not say") as refused:
        open_tape("a.yaml")
    assert ".jsonl" in refused.value.remedy
    assert refused.value.exit_status == 2


def test_an_empty_name_is_no_tape_and_never_the_root() -> None:
    with pytest.raises(UnknownKind, match="empty name"):
        open_tape("")
