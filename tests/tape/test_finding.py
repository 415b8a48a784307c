import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from tapes.tape.finding import find_tapes, glance_at
from tapes.tape.sqlite import SqliteTape
from tests.making import KINDS, assorted, call, chat, tape_in
from tests.proxies import PATIENCE_S


def test_tapes_of_every_kind_are_found_and_other_files_are_not(in_tmp_path: Path) -> None:
    Path(".cassettes").mkdir()
    wanted = [
        tape_in(Path(".cassettes"), "jsonl", [call("one")], "agent"),
        tape_in(Path(), "directory", [call("one")], "answers"),
        tape_in(Path(), "sqlite", [call("one")], "shared"),
    ]
    Path("data.jsonl").write_text('{"text": "training data"}\n')
    Path("other.db").write_bytes(b"no database")
    connection = sqlite3.connect("app.sqlite")
    connection.execute("CREATE TABLE users (name TEXT)")
    connection.close()
    tape_in(Path(".tapes"), "jsonl", [call("hidden")], "hidden")
    found = list(find_tapes("."))
    assert sorted(found) == sorted(str(Path(path)) for path in wanted)


READ_AND_CLOSE = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT * FROM exchanges").fetchall()
connection.close()
"""


def test_a_tape_that_is_recorded_to_stays_open_for_others_when_tapes_are_looked_for(
    tmp_path: Path,
) -> None:
    path = tape_in(tmp_path, "sqlite", [call("one")])
    with closing(SqliteTape(path)) as tape:
        tape.append(call("two"))
        assert list(find_tapes(tmp_path)) == [path]
        another = [sys.executable, "-I", "-S", "-c", READ_AND_CLOSE, path]
        subprocess.run(another, check=True, timeout=PATIENCE_S)
        assert Path(f"{path}-wal").exists()
        tape.append(call("three"))
    assert glance_at(path).exchanges == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_glance_counts_without_reading_bodies(tmp_path: Path, kind: str) -> None:
    glance = glance_at(tape_in(tmp_path, kind, assorted()).rstrip("/"))
    assert (glance.exchanges, glance.incomplete, glance.error) == (7, 1, None)
    assert glance.canonicalizers == ["http/1", "tape/1"]
    assert glance.last_recorded == max(e.recorded_at or "" for e in assorted())
    assert glance.bytes > 16 * 1024


def test_a_glance_at_the_documents_own_rows(tmp_path: Path) -> None:
    row = {"hash": call("one").key, "request": {"prompt": "one"}, "response": {"a": 1}}
    (tmp_path / "t.jsonl").write_text(f"{json.dumps(row)}\n\n{json.dumps(row)}")
    glance = glance_at(str(tmp_path / "t.jsonl"))
    assert (glance.exchanges, glance.canonicalizers) == (2, ["tape/1"])
    (tmp_path / f"{'ab' * 32}.json").write_text("{}")
    assert glance_at(str(tmp_path)).canonicalizers == ["directory/1"]


@pytest.mark.parametrize(
    ("damage", "said"),
    [(b"{oops\n", "line 2: not JSON"), (b'{"hash": 3}\n', "line 2"), (b'{"torn', None)],
)
def test_a_glance_says_what_is_wrong(tmp_path: Path, damage: bytes, said: str | None) -> None:
    path = Path(tape_in(tmp_path, "jsonl", [chat("one")]))
    with path.open("ab") as file:
        file.write(damage)
    glance = glance_at(str(path))
    assert (str(glance.error) if glance.error else "").count(said or "") >= 1
    assert (glance.error is None) is (said is None)


def test_a_glance_at_an_empty_file(tmp_path: Path) -> None:
    for name in ("t.jsonl", "t.db"):
        (tmp_path / name).touch()
        glance = glance_at(str(tmp_path / name))
        assert (glance.exchanges, glance.error, glance.last_recorded) == (0, None, None)
