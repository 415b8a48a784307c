"""What every tape promises, against every home."""

import asyncio
import json
import multiprocessing
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tapes.errors import (
    ClosedTape,
    DamagedTape,
    NewerTape,
    NotAnAnswer,
    UnreadableTape,
    UnwritableTape,
)
from tapes.exchange import Exchange, State
from tapes.jsontext import Json
from tapes.tape.base import MemoryTape, Tape, append_ready, ready
from tapes.tape.kinds import open_tape
from tests.tape.homes import (
    ON_DISK,
    all_on_disk,
    files_in,
    key,
    opened,
    over_http,
    path_of,
    plain,
)

# Bytes that a parser of JSON or of text would change.
BYTES = {
    "every byte": bytes(range(256)),
    "latin-1": b"caf\xe9",
    "byte order mark": b"\xef\xbb\xbf{}",
    "NUL": b"\x00",
    "empty": b"",
    "lone surrogate": rb'{"t":"\ud83d"}',
    "numbers": b'{"n":123456789012345678901234567890,"f":1.10,"e":1e2}',
    "name twice": b'{"a":1,"a":2}',
    "white space": b'{ "b" : 1 }\n',
    "line ends of Unicode": '{"t":"a\u2028b\u2029c\u0085d"}'.encode(),
    "bare line ends of Unicode": "a\u2028b\u2029c\u0085d\r\n\v\f\x1c".encode(),
    "NaN": b'{"x":NaN}',
    "small float": b"[0.00001,1e-5,1e16,1E16,-0.0,1.0]",
    "deep": b"[" * 2000 + b"]" * 2000,
    "spaced": b'{"a": [1, 2], "\xc3\xbc": null}',
    "indented": json.dumps({"a": [1, {}], "b": []}, indent=2).encode(),
    "control characters": json.dumps("".join(map(chr, range(32))) + "\x7f").encode(),
}


@pytest.fixture(params=["memory", "postgres", *ON_DISK])
def tape(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tape]:
    home = str(request.param)
    if home == "memory":
        tape: Tape = MemoryTape()
    elif home == "postgres":
        tape = open_tape(request.getfixturevalue("database"))
    else:
        tape = opened(home, path_of(home, tmp_path))
    yield tape
    tape.close()


# --- what is put in comes out


def test_an_exchange_comes_back_as_it_was(tape: Tape) -> None:
    exchange = plain(
        "one",
        {"text": "ü \u2028 \ud83d", "n": 10**30, "f": 1e-7, "list": [None, True, {}]},
        sample=2,
        recorded_at="2026-09-17T10:00:00.000+00:00",
        rules=({"at": "/x"},),
    )
    tape.append(exchange)
    assert tape.find(key("one")) == exchange


@pytest.mark.row("N10")
@pytest.mark.parametrize("body", BYTES.values(), ids=BYTES.keys())
def test_bytes_come_back_byte_for_byte(tape: Tape, body: bytes) -> None:
    whole = over_http("whole", body, request=body)
    pieces = over_http("pieces", body, b"|", body, request=body)
    large = over_http("large", b"." * 20_000 + body, request=body * 10_000)
    for exchange in (whole, pieces, large):
        tape.append(exchange)
    assert [tape.find(key(name)) for name in ("whole", "pieces", "large")] == [whole, pieces, large]


def test_the_exchange_appended_last_answers(tape: Tape) -> None:
    tape.append(plain("one", 1))
    tape.append(plain("one", 2))
    found = tape.find(key("one"))
    assert found is not None
    assert found.response == 2


def append_ready_or_raise(tape: Tape, exchange: Exchange) -> None:
    (error,) = append_ready(tape, [ready(tape, exchange)])
    if error is not None:
        raise error


@pytest.mark.row("N10")
def test_exchanges_that_are_appended_together_are_all_there_in_order(tape: Tape) -> None:
    large = over_http("large", b"." * 20_000, b"|")
    again = over_http("again", b"." * 20_000)
    bad = plain("bad", {"n": float("nan")})
    exchanges = [plain("one", 1), large, again, plain("one", 2)]
    items = [ready(tape, exchange) for exchange in exchanges]
    assert tape.find(key("one")) is None
    assert append_ready(tape, items) == [None] * 4
    if not isinstance(tape, MemoryTape):  # which takes everything as it is
        with pytest.raises(NotAnAnswer):
            append_ready_or_raise(tape, bad)
    found = [tape.find(key(name)) for name in ("one", "large", "again", "bad")]
    assert found == [plain("one", 2), large, again, None]


def test_null_is_an_answer(tape: Tape) -> None:
    tape.append(Exchange(key("one"), "tape/1", {"p": 1}, None))
    found = tape.find(key("one"))
    assert found is not None
    assert found.response is None


@all_on_disk
def test_what_is_found_is_the_callers_own(tmp_path: Path, home: str) -> None:
    tape = opened(home, path_of(home, tmp_path))
    answer = {"list": [1]}
    tape.append(plain("one", answer))
    answer["list"].append(2)
    found = tape.find(key("one"))
    assert found == plain("one", {"list": [1]})
    found.response["list"].append(3)  # type: ignore[index]  # plain JSON
    assert tape.find(key("one")) == plain("one", {"list": [1]})


def test_what_is_not_there_is_not_found(tape: Tape) -> None:
    tape.append(plain("one"))
    assert tape.find(key("two")) is None


@all_on_disk
@pytest.mark.parametrize("text", ["", "abc", "g" * 64, key(1).upper(), key(1) + "\n", "../x"])
def test_text_that_is_no_key_finds_nothing_and_is_not_kept(
    tmp_path: Path, home: str, text: str
) -> None:
    tape = opened(home, path_of(home, tmp_path))
    tape.append(plain(1))
    assert tape.find(text) is None
    with pytest.raises(ValueError, match="64 lowercase hex"):
        tape.append(Exchange(text, "tape/1", {}, {}))


def test_exchanges_come_in_the_order_of_appending(tape: Tape) -> None:
    sent = [plain(n, recorded_at=f"2026-01-01T00:00:0{n}+00:00") for n in range(5)]
    for exchange in sent:
        tape.append(exchange)
    assert list(tape.exchanges()) == sent


@pytest.mark.row("B8")
def test_a_key_whose_exchange_was_cut_off_has_no_answer(tape: Tape) -> None:
    cut = over_http("cut", b"data: 1\n\n", state=State.ABORTED_BY_CLIENT)
    tape.append(cut)
    tape.append(plain("whole"))
    assert tape.keys() == {key("whole")}
    assert tape.find(key("cut")) == cut
    assert cut in list(tape.exchanges())


@all_on_disk
@pytest.mark.row("A8")
@pytest.mark.parametrize(
    "answer",
    [b"bytes", float("nan"), {"x": [float("inf")]}, {1: 2}, iter([]), {"x": {1, 2}}, object()],
    ids=["bytes", "NaN", "infinity", "number as name", "iterator", "set", "object"],
)
def test_what_json_cannot_say_is_refused_and_nothing_is_kept(
    tmp_path: Path, home: str, answer: Json
) -> None:
    tape = opened(home, path_of(home, tmp_path))
    with pytest.raises(NotAnAnswer) as refused:
        tape.append(plain("one", {"null": None, "answer": answer}))
    assert refused.value.remedy
    assert refused.value.exit_status == 2
    assert tape.find(key("one")) is None
    assert list(tape.exchanges()) == []


# --- homes on disk


@all_on_disk
@pytest.mark.row("A7", "B12")
def test_an_absent_tape_is_empty_and_its_folder_is_made(tmp_path: Path, home: str) -> None:
    path = path_of(home, tmp_path / "deep" / "down")
    tape = opened(home, path)
    assert tape.find(key(1)) is None
    assert tape.keys() == set()
    assert list(tape.exchanges()) == []
    tape.append(plain(1))
    assert opened(home, path).find(key(1)) == plain(1)


@all_on_disk
def test_a_tape_that_is_gone_is_empty_again_and_can_be_begun_anew(
    tmp_path: Path, home: str
) -> None:
    path = path_of(home, tmp_path)
    tape = opened(home, path)
    tape.append(plain(1))
    os.rename(path, f"{path}.gone")
    assert tape.find(key(1)) is None
    tape.append(plain(2))
    assert tape.keys() == {key(2)}
    assert opened(home, path).keys() == {key(2)}


@all_on_disk
def test_others_see_what_was_appended_and_what_replaced_it(tmp_path: Path, home: str) -> None:
    path = path_of(home, tmp_path)
    one, other = opened(home, path), opened(home, path)
    for answer in ("first", "second"):
        one.append(plain("one", answer))
        found = other.find(key("one"))
        assert found is not None
        assert found.response == answer
    other.append(plain("two"))
    assert one.keys() == {key("one"), key("two")}


@all_on_disk
def test_a_repeated_large_body_is_stored_once(tmp_path: Path, home: str) -> None:
    path = path_of(home, tmp_path)
    tape, other = opened(home, path), opened(home, path)
    body = os.urandom(120_000)
    sent = [over_http(n, body, request=body) for n in range(20)]
    for exchange in sent[:10]:
        tape.append(exchange)
    for exchange in sent[10:]:
        other.append(exchange)
    assert [tape.find(exchange.key) for exchange in sent] == sent
    tape.close()
    other.close()
    assert sum(map(len, files_in(tmp_path).values())) < 2 * len(body)


@all_on_disk
def test_the_name_of_a_body_is_the_key_of_nothing(tmp_path: Path, home: str) -> None:
    from tapes.tape.base import blob_hash

    tape = opened(home, path_of(home, tmp_path))
    tape.append(over_http(1, b"x" * 20_000))
    assert tape.find(blob_hash(b"x" * 20_000)) is None
    assert tape.keys() == {key(1)}
    assert len(list(tape.exchanges())) == 1


@all_on_disk
def test_a_closed_tape_says_so(tmp_path: Path, home: str) -> None:
    tape = opened(home, path_of(home, tmp_path))
    tape.append(plain(1))
    tape.close()
    tape.close()
    for use in (
        lambda: tape.find(key(1)),
        lambda: tape.append(plain(1)),
        lambda: list(tape.exchanges()),
        lambda: tape.keys(),
    ):
        with pytest.raises(ClosedTape, match="is closed") as refused:
            use()
        assert refused.value.exit_status == 3


@all_on_disk
def test_a_change_of_the_working_folder_changes_nothing(
    in_tmp_path: Path, monkeypatch: pytest.MonkeyPatch, home: str
) -> None:
    name = ON_DISK[home][1]
    tape = opened(home, name)
    tape.append(plain(1))
    (in_tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(in_tmp_path / "elsewhere")
    tape.append(plain(2))
    assert tape.keys() == {key(1), key(2)}
    assert os.listdir(".") == []


@all_on_disk
def test_a_link_is_the_tape_that_it_leads_to(tmp_path: Path, home: str) -> None:
    (tmp_path / "far").mkdir()
    path, link = path_of(home, tmp_path / "far"), path_of(home, tmp_path)
    opened(home, path).append(plain(1))
    os.symlink(path, link)
    tape, same = opened(home, link), opened(home, path)
    tape.append(plain(2))
    assert same.keys() == {key(1), key(2)}
    assert (tape.local, tape.name) == (same.local, same.name)
    assert os.path.islink(link)


@all_on_disk
def test_a_link_to_nothing_is_an_error_and_no_empty_tape(tmp_path: Path, home: str) -> None:
    path = path_of(home, tmp_path)
    os.symlink(tmp_path / "not mounted", path)
    with pytest.raises(UnreadableTape, match=r"is a link to .*not mounted") as refused:
        opened(home, path)
    assert refused.value.remedy
    assert refused.value.exit_status == 3


@all_on_disk
def test_a_link_that_leads_to_itself_is_an_error(tmp_path: Path, home: str) -> None:
    path = path_of(home, tmp_path)
    os.symlink(path, path)
    with pytest.raises(UnreadableTape):
        opened(home, path)


@all_on_disk
def test_the_wrong_kind_of_thing_under_the_name_is_an_error(tmp_path: Path, home: str) -> None:
    path = path_of(home, tmp_path)
    if home == "directory":
        Path(path).write_text("I am a file")
    else:
        os.mkdir(path)
    with pytest.raises(UnreadableTape, match=r"folder|directory") as refused:
        opened(home, path)
    assert refused.value.remedy


@pytest.mark.parametrize("home", ["jsonl", "sqlite"])
def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path, home: str) -> None:
    path = path_of(home, tmp_path)
    os.mkfifo(path)
    with pytest.raises(UnreadableTape, match="not a regular file"):
        opened(home, path)


@all_on_disk
def test_a_folder_that_cannot_be_made_is_an_error_with_a_remedy(tmp_path: Path, home: str) -> None:
    (tmp_path / "file").write_text("in the way")
    path = path_of(home, tmp_path / "file")
    with pytest.raises((UnwritableTape, UnreadableTape)) as refused:
        opened(home, path).append(plain(1))
    assert "file" in str(refused.value)
    assert refused.value.remedy
    assert refused.value.exit_status in (3, 4)


@all_on_disk
def test_a_tape_of_a_later_version_is_refused_with_advice(tmp_path: Path, home: str) -> None:
    path = path_of(home, tmp_path)
    newer = plain(1, version=2)
    opened(home, path).append(newer)
    with pytest.raises(NewerTape, match="schema version 2") as refused:
        opened(home, path).find(key(1))
    assert "pip install --upgrade" in refused.value.remedy


@all_on_disk
def test_a_missing_body_is_damage_with_its_place(tmp_path: Path, home: str) -> None:
    path = path_of(home, tmp_path)
    tape = opened(home, path)
    tape.append(over_http(1, b"x" * 20_000))
    tape.append(plain(2))
    tape.close()
    _take_away_bodies(home, path)
    tape = opened(home, path)
    assert tape.find(key(2)) == plain(2)
    with pytest.raises(DamagedTape, match=r"body|blobs") as refused:
        tape.find(key(1))
    assert path in str(refused.value)
    assert refused.value.remedy


def _take_away_bodies(home: str, path: str) -> None:
    import sqlite3

    if home == "sqlite":
        with sqlite3.connect(path) as database:
            database.execute("DELETE FROM blobs")
        database.close()
    elif home == "directory":
        for body in (Path(path) / ".blobs").iterdir():
            body.unlink()
    else:
        lines = Path(path).read_bytes().splitlines(keepends=True)
        Path(path).write_bytes(b"".join(line for line in lines if b'"blob/1"' not in line))


@all_on_disk
def test_exchanges_are_read_one_by_one(tmp_path: Path, home: str) -> None:
    path = path_of(home, tmp_path)
    tape = opened(home, path)
    for n in range(3):
        body = b"x" * 20_000 if n == 2 else b"x"
        tape.append(over_http(n, body, recorded_at=f"2026-01-01T00:00:0{n}+00:00"))
    tape.close()
    _take_away_bodies(home, path)
    exchanges = opened(home, path).exchanges()
    assert next(exchanges).key == key(0)
    assert next(exchanges).key == key(1)
    with pytest.raises(DamagedTape):
        next(exchanges)


# --- many at once


@all_on_disk
@pytest.mark.row("N04")
def test_threads_append_and_find_at_once(tmp_path: Path, home: str) -> None:
    path = path_of(home, tmp_path)
    tape = opened(home, path)
    together = threading.Barrier(8)

    def record(worker: int) -> list[Exchange | None]:
        together.wait()
        for n in range(5):
            tape.append(plain((worker, n)))
        return [tape.find(key((worker, n))) for n in range(5)]

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(record, range(8)))
    expected = [[plain((worker, n)) for n in range(5)] for worker in range(8)]
    assert found == expected
    tape.close()
    assert len(list(opened(home, path).exchanges())) == 40


@all_on_disk
def test_first_writers_who_come_together_all_get_in(tmp_path: Path, home: str) -> None:
    for attempt in range(10):
        path = path_of(home, tmp_path / str(attempt))
        together = threading.Barrier(8)

        def record(n: int, path: str = path, together: threading.Barrier = together) -> None:
            together.wait()
            tape = opened(home, path)
            tape.append(plain(n))
            tape.close()

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(record, range(8)))
        assert opened(home, path).keys() == {key(n) for n in range(8)}


@all_on_disk
@pytest.mark.row("N04")
def test_tasks_append_at_once(tmp_path: Path, home: str) -> None:
    path = path_of(home, tmp_path)
    tape = opened(home, path)

    async def record() -> None:
        await asyncio.gather(*(asyncio.to_thread(tape.append, plain(n)) for n in range(40)))

    asyncio.run(record())
    assert opened(home, path).keys() == {key(n) for n in range(40)}


def _record(home: str, path: str, worker: int, together: "threading.Barrier") -> None:
    tape = opened(home, path)
    together.wait()
    for n in range(5):
        tape.append(plain((worker, n)))
    assert all(tape.find(key((worker, n))) == plain((worker, n)) for n in range(5))
    tape.close()


@all_on_disk
@pytest.mark.row("N05", "B7")
def test_processes_record_into_one_tape_at_once(tmp_path: Path, home: str) -> None:
    path = path_of(home, tmp_path)
    spawning = multiprocessing.get_context("spawn")
    together = spawning.Barrier(4)
    workers = [
        spawning.Process(target=_record, args=(home, path, worker, together)) for worker in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0, 0, 0]
    found = list(opened(home, path).exchanges())
    expected = [plain((worker, n)) for worker in range(4) for n in range(5)]
    assert sorted(found, key=lambda e: e.key) == sorted(expected, key=lambda e: e.key)
