"""An open JSONL file: its lines, places, and what happened to it since."""

import os
from pathlib import Path

from tapes.tape.descriptors import Descriptor
from tapes.tape.jsonl import JsonlTape
from tapes.tape.lines import LineFile, key_bytes, key_of_line
from tests.tape.homes import key, plain


def line_file(path: Path) -> LineFile:
    return LineFile(Descriptor(os.open(path, os.O_RDONLY)), str(path), path.parent / "index")


def test_a_place_is_a_line_number_once_it_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    tape = JsonlTape(path)
    for n in range(5):
        tape.append(plain(n))
    path.write_bytes(b"\n\n" + path.read_bytes())
    lines = line_file(path)
    offsets = [lines.find(bytes.fromhex(key(n))) for n in range(5)]
    assert [f"{lines.place(at)}" for at in offsets if at is not None] == [
        "line 3", "line 4", "line 5", "line 6", "line 7"
    ]  # fmt: skip


def test_what_happened_to_the_file_is_told_apart(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    tape = JsonlTape(path)
    tape.append(plain(1))
    lines = line_file(path)
    assert lines.is_as(path.stat())
    tape.append(plain(2))
    assert not lines.is_as(path.stat())
    assert lines.goes_on(path.stat())
    lines.follow()
    assert lines.is_as(path.stat())
    assert lines.end == path.stat().st_size
    content = path.read_bytes()
    for other in (content[:-1], content[:50], content[1:] * 2, b"\n" + content, content):
        path.write_bytes(other)
        os.utime(path, (1, 1))
        assert not lines.is_as(path.stat())
        assert not lines.goes_on(path.stat())
    path.write_bytes(content + b'{"more"')
    assert lines.goes_on(path.stat())
    os.rename(path, tmp_path / "old")
    path.write_bytes(content * 2)
    assert not lines.goes_on(path.stat())


def test_a_row_without_its_line_end_is_found_and_stays_behind_the_end(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    tape = JsonlTape(path)
    tape.append(plain(1))
    size = path.stat().st_size
    tape.append(plain(2))
    path.write_bytes(path.read_bytes()[:-1])
    lines = line_file(path)
    assert lines.find(bytes.fromhex(key(2))) == size == lines.end
    assert lines.answers() == {key(1), key(2)}
    assert [at for at, _ in lines.rows()] == [0, size]
    assert not lines.torn


def test_the_key_of_a_line_is_read_from_any_form() -> None:
    raw = bytes.fromhex(key(1))
    for line in (
        f'{{"hash":"{key(1)}","x":1}}',
        f'{{"hash": "{key(1)}", "x": 1}}',
        f'{{"x": 1, "hash" : "{key(1)}"}}',
        f'\ufeff{{"hash": "{key(1)}"}}',
    ):
        assert key_of_line(line.encode()) == raw
    for line in ("", "{}", "[]", '{"hash":"abc"}', '{"hash": 1}', "[" * 100_000):
        assert key_of_line(line.encode()) is None


def test_only_64_hex_digits_are_a_key() -> None:
    assert key_bytes(key(1)) == bytes.fromhex(key(1))
    for text in ("", key(1)[:-1], key(1) + "0", "g" * 64, " " * 64, "é" * 64, None, 7, ["a"] * 64):
        assert key_bytes(text) is None
