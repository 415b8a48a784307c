import hashlib
import json
import sqlite3
from pathlib import Path

import pytest

from tapes.errors import DamagedTape, NewerTape, UnreadableTape
from tapes.jsontext import Json
from tapes.tape.mending import mend, verify
from tapes.tape.raw import Fault
from tests.making import KINDS, answers, assorted, call, chat, large, tape_in


def lines_of(path: str) -> list[bytes]:
    return Path(path).read_bytes().splitlines(keepends=True)


def sketch_line(prompt: str) -> bytes:
    """A row as a writer without this project makes it."""
    request = {"prompt": prompt}
    text = json.dumps(request, sort_keys=True, separators=(",", ":"))
    row = {
        "hash": hashlib.sha256(text.encode()).hexdigest(),
        "request": request,
        "response": {"text": "ok"},
    }
    return json.dumps(row).encode() + b"\n"


@pytest.mark.parametrize("kind", KINDS)
def test_a_sound_tape_has_no_damage(tmp_path: Path, kind: str) -> None:
    found = verify(tape_in(tmp_path, kind, assorted()))
    assert (found.damage, found.rows, found.incomplete) == ([], 7, 1)
    assert found.bodies == 1


def test_every_damaged_place_is_told_not_only_the_first(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one"), call("two"), call("three")])
    one, two, three = lines_of(path)
    swapped = two.replace(b'"prompt":"two"', b'"prompt":"2"')
    Path(path).write_bytes(one + b"{oops\n" + swapped + three + b'{"hash":"12')
    found = [(damage.place, damage.fault) for damage in verify(path).damage]
    assert found == [
        ("line 2", Fault.UNREADABLE),
        ("line 3", Fault.WRONG_KEY),
        ("line 5", Fault.TORN),
    ]


def test_a_changed_byte_in_a_body_is_found(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "jsonl", [large("one"), call("two")])
    Path(path).write_bytes(Path(path).read_bytes().replace(b"long long", b"lung long", 1))
    faults = {damage.fault for damage in verify(path).damage}
    assert faults == {Fault.WRONG_BODY, Fault.MISSING_BODY}


@pytest.mark.parametrize("kind", ["directory", "sqlite"])
def test_a_missing_body_is_found(tmp_path: Path, kind: str) -> None:
    path = tape_in(tmp_path, kind, [large("one"), call("two")])
    if kind == "directory":
        next(Path(path, ".blobs").iterdir()).unlink()
    else:
        with sqlite3.connect(path) as connection:
            connection.execute("DELETE FROM blobs")
        connection.close()
    (damage,) = verify(path).damage
    assert damage.fault is Fault.MISSING_BODY
    assert damage.key == large("one").key


def test_a_row_in_a_database_that_says_another_key_than_its_column(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "sqlite", [call("one"), call("two")])
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE exchanges SET key = ? WHERE number = 2", ("0" * 64,))
    connection.close()
    assert [d.place for d in verify(path).damage] == ["exchange 2"]


def test_keys_that_rules_changed_are_recomputed_with_the_rules_of_the_row(tmp_path: Path) -> None:
    from tapes.canonical import key_of_exchange_request
    from tapes.exchange import Exchange
    from tapes.varying import Rule

    rule = Rule.of({"at": "/run"})
    request = {"prompt": "x", "run": 7}
    key = key_of_exchange_request("tape/1", request, [rule])
    exchange = Exchange(key, "tape/1", request, {"a": 1}, rules=(rule.declaration(),))
    assert verify(tape_in(tmp_path, "jsonl", [exchange])).damage == []


def test_headers_that_a_project_lets_count_are_counted(tmp_path: Path) -> None:
    from dataclasses import replace

    from tapes.canonical import HTTP_1, key_of_exchange_request
    from tapes.exchange import Request

    plain = chat("hello")
    assert isinstance(plain.request, Request)
    request = replace(plain.request, headers=(*plain.request.headers, ("x-variant", "b")))
    counted = frozenset({"x-variant"})
    key = key_of_exchange_request(HTTP_1, request, (), counted)
    path = tape_in(tmp_path, "jsonl", [replace(plain, key=key, request=request)])
    assert verify(path, counted).damage == []
    assert [d.fault for d in verify(path).damage] == [Fault.WRONG_KEY]


def test_answers_without_requests_are_counted_not_blamed(tmp_path: Path) -> None:
    (tmp_path / f"{'ab' * 32}.json").write_text('{"answer": 42}')
    found = verify(tmp_path)
    assert (found.damage, found.rows, found.unchecked) == ([], 1, 1)


def test_a_file_of_something_else_is_no_tape_and_is_not_mended(tmp_path: Path) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text("shopping: milk\nbread\n")
    for look in (verify, mend):
        with pytest.raises(UnreadableTape, match="is no tape"):
            look(path)
    assert path.read_text() == "shopping: milk\nbread\n"


def test_a_row_of_a_later_version_is_told_and_stops_mending(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one")])
    row = {"hash": "0" * 64, "v": 99, "request": None, "response": None}
    with Path(path).open("ab") as file:
        file.write(json.dumps(row).encode() + b"\n{broken\n")
    before = Path(path).read_bytes()
    assert [d.fault for d in verify(path).damage] == [Fault.NEWER, Fault.UNREADABLE]
    with pytest.raises(NewerTape, match="nothing was mended"):
        mend(path)
    assert Path(path).read_bytes() == before


# --- mending


def test_mending_sets_damage_aside_and_keeps_every_other_byte(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one"), call("two")])
    one, two = lines_of(path)
    damaged = one + b"{oops\n\n" + two + b'{"hash":"12'
    Path(path).write_bytes(damaged)
    mended = mend(path).mended
    assert mended is not None
    assert Path(path).read_bytes() == one + b"\n" + two
    assert mended.aside.read_bytes() == b'{oops\n{"hash":"12\n'
    assert mended.backup.read_bytes() == damaged
    assert verify(path).damage == []


def test_rows_that_writers_without_locks_glued_together_are_taken_apart(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    torn = sketch_line("torn")[:40]
    path.write_bytes(
        sketch_line("first").rstrip() + sketch_line("second")
        + torn + sketch_line("third")
        + sketch_line("fourth").rstrip() + b"\xff trailing\n"
    )  # fmt: skip
    mended = mend(path).mended
    assert mended is not None
    assert (mended.salvaged, mended.set_aside) == (4, 2)
    assert mended.aside.read_bytes() == torn + b"\n\xff trailing\n"
    found = [answer.request for answer in answers(str(path)).values()]
    wanted = ("first", "second", "third", "fourth")
    assert all({"prompt": prompt} in found for prompt in wanted)
    assert len(found) == 4


def test_what_only_looks_like_a_row_is_not_saved(tmp_path: Path) -> None:
    """A request can hold a row's text; only what proves itself by its key is a row."""
    inner: Json = {"hash": "ab" * 32, "request": {"prompt": "x"}, "response": {"fake": True}}
    path = tmp_path / "t.jsonl"
    torn = json.dumps({"hash": "cd" * 32, "request": inner})[:-1]
    path.write_bytes(torn.encode() + b"\n" + sketch_line("real"))
    mended = mend(path).mended
    assert mended is not None
    assert mended.salvaged == 0
    assert len(answers(str(path))) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_sound_tape_is_not_touched_by_mending(tmp_path: Path, kind: str) -> None:
    path = tape_in(tmp_path, kind, assorted())
    before = answers(path)
    assert mend(path).mended is None
    assert answers(path) == before
    assert not list(tmp_path.rglob("backups"))


@pytest.mark.parametrize("kind", ["directory", "sqlite"])
def test_mending_takes_what_is_damaged_off_the_other_kinds(tmp_path: Path, kind: str) -> None:
    path = tape_in(tmp_path, kind, [call("one"), call("two")])
    if kind == "directory":
        Path(path, f"{call('one').key}.json").write_text("{half")
    else:
        with sqlite3.connect(path) as connection:
            connection.execute("UPDATE exchanges SET row = '{half' WHERE number = 1")
        connection.close()
    mended = mend(path).mended
    assert mended is not None
    assert mended.aside.read_bytes() == b"{half\n"
    assert set(answers(path)) == {call("two").key}
    assert verify(path).damage == []
    assert verify(mended.backup).damage != []


def test_a_broken_database_is_told_and_not_mended(tmp_path: Path) -> None:
    path = Path(tape_in(tmp_path, "sqlite", [call(f"n{n}", "x" * 900) for n in range(60)]))
    data = bytearray(path.read_bytes())
    data[8192:12288] = b"\xa5" * 4096
    path.write_bytes(data)
    assert verify(path).damage
    with pytest.raises(DamagedTape, match="recover"):
        mend(path)
    assert path.read_bytes() == bytes(data)
