"""The pass over a file: the same keys and places however its lines fall into blocks."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapes.tape import scan
from tapes.tape.index import place_of
from tapes.tape.scan import Entry, NoKey, scan_lines

_LINES = st.lists(
    st.tuples(st.sampled_from(["own", "body", "other", "blank"]), st.integers(0, 700)), max_size=8
)


def _line(kind: str, number: int, size: int) -> bytes:
    key = bytes([number]) * 32
    text = "x" * size
    if kind == "blank":
        return b" " * size + b"\n"
    if kind == "other":
        return json.dumps([key.hex(), text]).encode() + b"\n"
    canonicalizer = "blob/1" if kind == "body" else "tape/1"
    row = f'{{"hash":"{key.hex()}","v":1,"canonicalizer":"{canonicalizer}","x":"{text}"}}\n'
    return row.encode()


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=_LINES, tail=st.integers(0, 500), block=st.integers(110, 600))
def test_any_block_size_finds_the_same_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[tuple[str, int]], tail: int,
    block: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(scan, "BLOCK", block)
    content, expected = b"", list[Entry]()
    for number, (kind, size) in enumerate(lines):
        if kind != "blank":
            expected.append((bytes([number]) * 32, place_of(len(content), answers=kind != "body")))
        content += _line(kind, number, size)
    (tmp_path / "f").write_bytes(content + b"y" * tail)
    fd = os.open(tmp_path / "f", os.O_RDONLY)

    def read_other(offset: int, length: int) -> Entry | None:
        line = os.pread(fd, length, offset)
        if not line.strip():
            return None
        return bytes.fromhex(json.loads(line)[0]), place_of(offset, answers=True)

    try:
        found = list(scan_lines(fd, 0, read_other))
        entries = [e for block in found for e in zip(block.keys, block.places, strict=True)]
        assert entries == expected
        assert (found[-1].behind if found else 0) == len(content)
        if found:
            last = found[-1].last_line
            assert content[last:].count(b"\n") == 1
            assert last == 0 or content[last - 1 : last] == b"\n"
    finally:
        os.close(fd)


@pytest.mark.parametrize("size", [10, 5000])
def test_a_row_without_a_key_is_named_by_its_offset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(scan, "BLOCK", 1000)
    broken = _line("own", 1, size).replace(b"0101", b"zzzz", 1)
    (tmp_path / "f").write_bytes(_line("own", 0, 30) + broken)
    fd = os.open(tmp_path / "f", os.O_RDONLY)
    try:
        with pytest.raises(NoKey) as found:
            list(scan_lines(fd, 0, lambda offset, length: None))
        assert found.value.offset == len(_line("own", 0, 30))
    finally:
        os.close(fd)
