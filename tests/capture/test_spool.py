"""Where turns wait: whole files, in order, that outlive whoever wrote them."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from tapes.capture.spool import Spool
from tapes.rows import NO_ORG, RawTurn, session_id_of
from tests.running import run, start
from tests.turns import chat, said, transcript


def turn(number: int, session: str = "s") -> RawTurn:
    return replace(chat(number, [said("user", f"question {number}")], "yes", session=session), id=0)


def drained(spool: Spool) -> list[RawTurn]:
    found: list[RawTurn] = []
    with spool.draining() as files:
        assert files is not None
        for file, turns in files:
            found += turns
            spool.taken(file)
    return found


def test_what_comes_out_is_what_went_in_in_its_order(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    turns = [turn(n) for n in range(1, 8)]
    turns.append(replace(transcript(9, records=[{"odd": "\ud800\x00"}]), id=0))
    spool.put(turns[:3])
    spool.put(turns[3:])
    assert spool.counts()["turns"] == 8
    assert drained(spool) == turns
    assert spool.is_empty


def test_it_lies_where_only_its_owner_reads(tmp_path: Path) -> None:
    file = Spool(tmp_path / "spool").put([turn(1)])
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0


def test_what_is_not_taken_comes_again(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.put([turn(1)])
    with spool.draining() as files:
        assert files is not None
        assert next(files)[1] == [turn(1)]
    assert drained(Spool(tmp_path / "spool")) == [turn(1)]


def test_one_process_drains_at_a_time(tmp_path: Path) -> None:
    Spool(tmp_path / "spool").put([turn(1)])
    code = """
        from tapes.capture.spool import Spool
        with Spool("spool").draining() as files:
            print("nobody" if files is None else "mine", flush=True)
            input()
    """
    other = start(code, tmp_path)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "mine\n"
        with Spool(tmp_path / "spool").draining() as files:
            assert files is None
    finally:
        other.kill()
        other.communicate()
    assert drained(Spool(tmp_path / "spool")) == [turn(1)]


def test_a_writer_that_is_killed_leaves_only_whole_files(tmp_path: Path) -> None:
    code = """
        import os, signal
        from tapes.capture.spool import Spool
        from tapes.rows import RawTurn
        spool = Spool("spool")
        spool.put([RawTurn(request_id="whole")])
        os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
        spool.put([RawTurn(request_id="cut")])
    """
    assert run(code, tmp_path).returncode == -9
    assert len(list((tmp_path / "spool").iterdir())) == 2
    assert [t.request_id for t in drained(Spool(tmp_path / "spool"))] == ["whole"]


def test_what_was_refused_is_set_aside_once_however_often_it_is_delivered(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    assert [spool.put_aside(turn(n)) for n in (1, 2, 1)] == [True, True, False]
    assert not Spool(tmp_path / "spool").put_aside(turn(2))  # by another process, or after a kill
    assert (spool.counts()["refused"], spool.is_empty) == (2, True)
    assert spool.purge(NO_ORG, [session_id_of(turn(1).envelope)]) == 2
    assert spool.put_aside(turn(1))


@pytest.mark.parametrize("place", [0, 40, -1], ids=["mark", "record", "end"])
def test_a_damaged_file_stands_aside_and_holds_up_no_other(tmp_path: Path, place: int) -> None:
    spool = Spool(tmp_path / "spool")
    file = spool.put([turn(1)])
    spool.put([turn(2)])
    data = bytearray(file.read_bytes())
    data[place] ^= 0xFF
    file.write_bytes(data)
    assert drained(spool) == [turn(2)]
    assert spool.counts()["damaged"] == 1
    assert file.with_suffix(".damaged").read_bytes() == data


@pytest.mark.parametrize(
    ("place", "is_unsearched"), [(0, False), (16, False), ("second", True)], ids=str
)
def test_erasing_reaches_what_was_set_aside_and_names_what_it_cannot_read(
    tmp_path: Path, place: int | str, is_unsearched: bool
) -> None:
    spool = Spool(tmp_path / "spool")
    turns = [turn(1, "gone"), turn(2, "stays"), turn(3, "gone")]
    file = spool.put(turns)
    data = bytearray(file.read_bytes())
    place = data.find(b"question 2") if isinstance(place, str) else place
    data[place] ^= 0xFF
    file.write_bytes(data)
    assert drained(spool) == []
    aside = file.with_suffix(".damaged")
    before = spool.unsearched()
    assert spool.purge(NO_ORG, [session_id_of(turns[0].envelope)]) == 2
    left = aside.read_bytes()
    assert b"question 1" not in left
    assert b"question 3" not in left
    assert b"2" in left
    assert spool.purge(NO_ORG, [session_id_of(turns[1].envelope)]) == (0 if is_unsearched else 1)
    assert spool.unsearched() == before == ((str(aside),) if is_unsearched else ())
    assert aside.exists() is is_unsearched


def test_erasing_reaches_what_is_being_set_aside(tmp_path: Path) -> None:
    """Whoever renames a file at that moment must not carry what is erased away."""
    gone = [session_id_of(turn(1, "gone").envelope)]
    for number in range(40):
        spool = Spool(tmp_path / f"spool{number}")
        for _ in range(3):
            file = spool.put([turn(1, "gone"), turn(2, "stays")])
            data = bytearray(file.read_bytes())
            data[0] ^= 0xFF
            file.write_bytes(data)
        with ThreadPoolExecutor(2) as threads:
            draining = threads.submit(drained, spool)
            threads.submit(spool.purge, NO_ORG, gone).result()
            draining.result()
        left = [path for path in spool.folder.iterdir() if b"question 1" in path.read_bytes()]
        assert left == []


def test_two_erasures_at_once_take_both_sessions(tmp_path: Path) -> None:
    sessions = [session_id_of(turn(1, name).envelope) for name in ("one", "two")]
    for number in range(40):
        spool = Spool(tmp_path / f"spool{number}")
        spool.put([turn(1, "one"), turn(2, "two"), turn(3, "stays")])
        with ThreadPoolExecutor(2) as threads:
            assert list(threads.map(lambda s, at=spool: at.purge(NO_ORG, [s]), sessions)) == [1, 1]
        assert drained(spool) == [turn(3, "stays")]


def test_a_file_that_is_cut_keeps_what_cannot_be_read_and_no_more(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    file = spool.put([turn(1, "gone"), turn(2, "gone")])
    file.write_bytes(file.read_bytes()[:-5])
    assert spool.purge(NO_ORG, [session_id_of(turn(1, "gone").envelope)]) == 1
    assert b"question 1" not in file.read_bytes()
    assert spool.unsearched() == (str(file),)
    file.write_bytes(file.read_bytes()[:5])
    assert spool.unsearched() == (str(file),)


def test_erasing_takes_what_a_killed_writer_had_begun(tmp_path: Path) -> None:
    code = """
        import os, signal
        from tapes.capture.spool import Spool
        from tapes.rows import RawTurn
        os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)
        Spool("spool").put([RawTurn(request_id="cut")])
    """
    assert run(code, tmp_path).returncode == -9
    spool = Spool(tmp_path / "spool")
    mine = tmp_path / "spool" / f"1-{os.getpid()}-1.turns.part"
    mine.write_bytes(b"")
    spool.purge(NO_ORG, [])
    assert list((tmp_path / "spool").iterdir()) == [mine]


def test_erasing_takes_the_turns_of_a_session_and_leaves_the_others(tmp_path: Path) -> None:
    spool = Spool(tmp_path / "spool")
    spool.put([turn(1, "gone"), turn(2, "stays")])
    spool.put([turn(3, "gone")])
    gone = session_id_of(turn(1, "gone").envelope)
    assert spool.purge("11111111-1111-4111-8111-111111111111", [gone]) == 0
    assert spool.purge(NO_ORG, [gone]) == 2
    assert drained(spool) == [turn(2, "stays")]
