"""Sketches lead to the nearest recordings, and are never more than a help."""

import random
from pathlib import Path
from typing import Any

import pytest

from tapes import Cassette
from tapes.exchange import Exchange
from tapes.explain import find_nearest
from tapes.places import leaves_of
from tapes.sketches import Sketches, parts_of
from tapes.tape.base import Tape
from tapes.tape.kinds import open_tape
from tapes.tape.sqlite import SqliteTape

COUNT = 60
HOMES = ["tape.jsonl", "tape.db", "tape/"]


def chat(number: int, last: str = "") -> dict[str, Any]:
    words = random.Random(number)
    text = " ".join(f"w{words.randrange(10_000)}" for _ in range(40))
    padding = "the same long system prompt for all of them " * 500
    messages = [{"role": "system", "content": padding}, {"role": "user", "content": text + last}]
    return {"model": "m", "messages": messages}


@pytest.fixture(params=HOMES)
def tape(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    path = tmp_path / request.param
    where = f"{path}/" if request.param.endswith("/") else str(path)
    with Cassette(where, "record", lambda _: "ok", latch=True, canonicalizer="tape/1") as cassette:
        for number in range(COUNT):
            cassette.call(chat(number))
    opened = open_tape(where)
    yield opened
    opened.close()


def kept(tape: Tape) -> Path:
    assert tape.local is not None
    return tape.local / f"{tape.name}.sketches.index"


def found_for(tape: Tape, number: int) -> bool:
    near = find_nearest(tape, chat(number, " changed"), patience=20)
    return near is not None and near.exchange.request == chat(number)


def test_requests_that_share_most_share_most_of_their_sketches() -> None:
    one, same, other = (set(parts_of(leaves_of(c))) for c in (chat(1), chat(1, " x"), chat(2)))
    assert len(one & same) > len(one & other)


@pytest.mark.row("N15")
def test_the_nearest_is_found_on_every_home(tape: Tape) -> None:
    assert all(found_for(tape, number) for number in (0, 17, COUNT - 1))


@pytest.mark.row("N15")
def test_with_little_time_the_best_candidate_alone_is_read(tmp_path: Path) -> None:
    """A recording may be an upload of a hundred megabytes."""
    path = str(tmp_path / "tape.db")
    with Cassette(path, "record", lambda _: "ok", latch=True, canonicalizer="tape/1") as cassette:
        for number in range(COUNT):
            cassette.call(chat(number))
    read = list[str]()

    class Read(SqliteTape):
        def find(self, key: str) -> Exchange | None:
            read.append(key)
            return super().find(key)

    tape = Read(path)
    near = find_nearest(tape, chat(17, " changed"), patience=0)
    tape.close()
    assert near is not None
    assert near.exchange.request == chat(17)
    assert read == [near.exchange.key]


def test_while_recording_a_large_tape_gets_its_sketches(tmp_path: Path) -> None:
    path = tmp_path / "tape.jsonl"
    with Cassette(path, "record", lambda _: "x" * 100_000, latch=True) as cassette:
        for number in range(20):
            cassette.call(chat(number))
        sketches = Sketches(cassette.tape)
    assert sketches.load() == 20
    assert sketches.are_complete


@pytest.mark.parametrize("harm", ["cut", "overwritten", "gone", "of another tape"])
def test_broken_sketches_mislead_nobody(tape: Tape, harm: str) -> None:
    assert found_for(tape, 3)
    file = kept(tape)
    data = file.read_bytes() if file.exists() else b"x" * 800
    if harm == "gone":
        file.unlink(missing_ok=True)
    else:
        harmed = {"cut": data[:-7], "overwritten": b"\0" * len(data), "of another tape": data[:80]}
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(harmed[harm])
    assert found_for(tape, 3)


def test_what_others_recorded_meanwhile_is_found_too(tape: Tape) -> None:
    assert found_for(tape, 3)
    where = f"{tape.path}/" if tape.name == "." else tape.path
    with Cassette(where, "record", lambda _: "ok", latch=True, canonicalizer="tape/1") as cassette:
        cassette.call(chat(COUNT + 5))
    assert found_for(tape, COUNT + 5)


def test_a_small_tape_has_no_sketches(tmp_path: Path) -> None:
    with Cassette(tmp_path / "t.jsonl", "record", lambda _: "ok", latch=True) as cassette:
        cassette.call({"a": 1})
        assert find_nearest(cassette.tape, {"a": 2}) is not None
        assert not kept(cassette.tape).exists()


def test_a_folder_that_cannot_be_written_has_none_and_nothing_fails(tape: Tape) -> None:
    file = kept(tape)
    file.unlink(missing_ok=True)
    file.mkdir(parents=True)
    assert found_for(tape, 5)
