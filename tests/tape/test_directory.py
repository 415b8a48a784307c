"""The directory of answers: the document's own files on both sides, whole files, old leftovers."""

import hashlib
import json
import os
import tempfile
import time
from pathlib import Path

import pytest

from tapes import Cassette, CassetteMiss
from tapes.canonical import DIRECTORY, key_of
from tapes.errors import DamagedTape, UnreadableTape
from tapes.exchange import Exchange, State
from tapes.jsontext import Json
from tapes.tape.directory import DirectoryTape
from tests.tape.homes import files_in, key, over_http, plain

PAYLOAD = {"model": "m", "prompt": "é 🎞", "created_at": "now", "temperature": 0}

# --- the document's own functions, in fewer words


def document_key(payload: dict[str, Json]) -> str:
    kept = {
        name: value
        for name, value in payload.items()
        if name not in ("request_id", "created", "created_at", "trace_id")
    }
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def document_loads(folder: Path, name: str) -> Json:
    path = folder / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def document_saves(folder: Path, name: str, response: Json) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    fd, temporary = tempfile.mkstemp(dir=folder, suffix=".tmp")
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        json.dump(response, file)
    os.replace(temporary, folder / f"{name}.json")


@pytest.mark.row("B2")
def test_what_the_document_saved_answers_unchanged(tmp_path: Path) -> None:
    answer = {"text": "é\u2028", "list": [1, None], "big": 10**30}
    document_saves(tmp_path / "t", document_key(PAYLOAD), answer)
    before = files_in(tmp_path)
    tape = DirectoryTape(tmp_path / "t")
    assert tape.find(key_of(DIRECTORY.text(PAYLOAD))) == Exchange(
        document_key(PAYLOAD), "directory/1", None, answer, version=0
    )
    with Cassette(tape, "replay") as cassette:
        assert cassette.call({**PAYLOAD, "trace_id": "7"}) == answer
        with pytest.raises(CassetteMiss):
            cassette.call({**PAYLOAD, "model": "n"})
    assert files_in(tmp_path) == before


@pytest.mark.row("B1", "B2")
def test_the_document_loads_what_we_save(tmp_path: Path) -> None:
    tape = DirectoryTape(tmp_path / "t")
    answer = {"text": "é\u2028", "list": [1, None], "big": 10**30}
    name = key_of(DIRECTORY.text(PAYLOAD))
    tape.append(Exchange(name, "directory/1", PAYLOAD, answer))
    assert document_loads(tmp_path / "t", document_key(PAYLOAD)) == answer


@pytest.mark.row("B1")
def test_one_visible_file_an_answer_and_nothing_else(tmp_path: Path) -> None:
    tape = DirectoryTape(tmp_path / "t")
    for n in range(3):
        tape.append(plain(n))
    tape.append(over_http(4, b"x" * 20_000))
    tape.append(over_http(5, b"cut", state=State.UPSTREAM_ERROR))
    visible = [name for name in os.listdir(tmp_path / "t") if not name.startswith(".")]
    assert sorted(visible) == sorted(f"{key(n)}.json" for n in (0, 1, 2, 4))
    assert json.loads((tmp_path / "t" / f"{key(1)}.json").read_bytes()) == plain(1).response


@pytest.mark.row("B3")
def test_only_the_leftovers_of_killed_writers_that_are_old_are_removed(tmp_path: Path) -> None:
    folder = tmp_path / "t"
    DirectoryTape(folder).append(plain(1))
    leftovers = [".0123456789abcdef.tmp", "tmpab_c1234.tmp", ".requests/.0123456789abcdef.tmp"]
    others = ["notes.tmp", "README.md", ".requests/mine.tmp", f"{key(2)}.json.bak"]
    fresh = [".fedcba9876543210.tmp"]
    hour_ago = time.time() - 3600
    for name in [*leftovers, *others, *fresh]:
        (folder / name).write_text("half a fi")
        if name not in fresh:
            os.utime(folder / name, (hour_ago, hour_ago))
    tape = DirectoryTape(folder)
    assert tape.keys() == {key(1)}
    assert list(tape.exchanges()) == [plain(1)]
    assert not [name for name in leftovers if (folder / name).exists()]
    assert [name for name in [*others, *fresh] if not (folder / name).exists()] == []


@pytest.mark.row("B8")
def test_a_whole_answer_comes_before_the_evidence_of_a_cut_one(tmp_path: Path) -> None:
    tape = DirectoryTape(tmp_path / "t")
    cut = over_http(1, b"cut", state=State.ABORTED_BY_CLIENT)
    tape.append(cut)
    assert tape.find(key(1)) == cut
    tape.append(over_http(1, b"whole"))
    assert tape.find(key(1)) == over_http(1, b"whole")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (f"{key(1)}.json", b""),
        (f"{key(1)}.json", b'{"text": "hal'),
        (f"{key(1)}.json", b'"caf\xe9"'),
        (f".requests/{key(1)}.json", b"["),
        (f".requests/{key(1)}.json", b"[]"),
        (f".requests/{key(1)}.json", b"{}"),
    ],
)
def test_a_broken_file_is_an_error_that_names_it(tmp_path: Path, name: str, content: bytes) -> None:
    tape = DirectoryTape(tmp_path / "t")
    tape.append(plain(1))
    tape.append(plain(2))
    (tmp_path / "t" / name).write_bytes(content)
    assert tape.find(key(2)) == plain(2)
    for use in (lambda: tape.find(key(1)), lambda: list(tape.exchanges())):
        with pytest.raises(DamagedTape) as damage:
            use()
        assert name.removeprefix(".requests/")[:64] in damage.value.message
        assert damage.value.remedy


def test_a_byte_order_mark_is_no_damage(tmp_path: Path) -> None:
    tape = DirectoryTape(tmp_path)
    (tmp_path / f"{key(1)}.json").write_bytes(b'\xef\xbb\xbf{"a": 1}\r\n')
    found = tape.find(key(1))
    assert found is not None
    assert found.response == {"a": 1}


def test_a_folder_in_the_place_of_an_answer_is_an_error(tmp_path: Path) -> None:
    (tmp_path / f"{key(1)}.json").mkdir()
    with pytest.raises(UnreadableTape, match="Is a directory"):
        DirectoryTape(tmp_path).find(key(1))


def test_answers_without_their_requests_come_first(tmp_path: Path) -> None:
    document_saves(tmp_path, key("old"), 1)
    tape = DirectoryTape(tmp_path)
    tape.append(plain(2, recorded_at="2026-01-02T00:00:00+00:00"))
    tape.append(plain(1, recorded_at="2026-01-01T00:00:00+00:00"))
    assert [e.key for e in tape.exchanges()] == [key("old"), key(1), key(2)]
