"""The tape of one test, and cassettes of vcrpy that stand in for it."""

from pathlib import Path

import pytest

from tapes.errors import ForeignFile
from tapes.modes import Mode
from tapes.testing.choices import Choices
from tapes.testing.opening import opening

CASSETTE = """
interactions:
- request: {method: GET, uri: 'http://h/a', body: null, headers: {}}
  response: {status: {code: 200, message: OK}, headers: {}, body: {string: hello}}
version: 1
"""


def test_once_records_where_nothing_is_and_replays_where_something_is(tmp_path: Path) -> None:
    once, path = Choices(mode="once"), tmp_path / "t.jsonl"
    assert opening(str(path), once).mode is Mode.RECORD
    cassette = tmp_path / "t.yaml"
    cassette.write_text(CASSETTE)
    assert opening(str(path), once, cassettes=[str(cassette)]).mode is Mode.REPLAY
    path.write_bytes(b"\n")
    assert opening(str(path), once).mode is Mode.REPLAY


def test_recording_without_the_latch_leaves_a_cassette_where_it_is(tmp_path: Path) -> None:
    cassette = tmp_path / "t.yaml"
    cassette.write_text(CASSETTE)
    opened = opening(str(tmp_path / "t.jsonl"), Choices(mode="record"), cassettes=[str(cassette)])
    assert opened.path == str(cassette)
    assert not (tmp_path / "t.jsonl").exists()


def test_a_broken_cassette_is_an_error_and_no_empty_tape(tmp_path: Path) -> None:
    cassette = tmp_path / "t.yaml"
    cassette.write_text("interactions: 5")
    with pytest.raises(ForeignFile, match=r"t\.yaml"):
        opening(str(tmp_path / "t.jsonl"), Choices(), cassettes=[str(cassette)])
