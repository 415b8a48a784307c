"""The JSONL tape: its lines, the document's sketch on both sides, damage, and the index."""

import fcntl
import json
import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tapes import req_hash
from tapes.errors import DamagedTape, NewerTape, UnreadableTape
from tapes.exchange import Exchange, State
from tapes.jsontext import Json
from tapes.tape.jsonl import JsonlTape
from tests.strategies import examples
from tests.tape.homes import key, over_http, plain

REQUEST = {"task": "ticket-summary", "prompt": "é \u2028 ?", "n": 1}

# --- the document's sketch: how it reads, and how it writes


def sketch_reads(path: Path) -> dict[str, Json]:
    rows = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        if text.strip():
            row = json.loads(text)
            rows[row["hash"]] = row["response"]
    return rows


def sketch_line(request: Json, response: Json) -> bytes:
    row = {"hash": req_hash(request), "request": request, "response": response}
    return json.dumps(row, ensure_ascii=False).encode() + b"\n"


@pytest.mark.row("A1", "A11")
def test_the_sketch_reads_what_we_write(tmp_path: Path) -> None:
    tape = JsonlTape(tmp_path / "t.jsonl")
    answer = {"text": "line \u2028 paragraph \u2029 next \x85 tab \v\f\x1c é 🎞", "n": 10**30}
    tape.append(Exchange(req_hash(REQUEST), "tape/1", REQUEST, answer))
    tape.append(over_http("http", "a\x85b\u2028".encode() * 10_000, request="\u2029".encode()))
    rows = sketch_reads(tmp_path / "t.jsonl")
    assert rows[req_hash(REQUEST)] == answer
    assert rows[key("http")]["status"] == 200


@pytest.mark.row("A11")
def test_what_the_sketch_wrote_answers_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    answer = {"text": "\u2028é", "big": 10**30, "nothing": None, "f": 1e-7}
    path.write_bytes(sketch_line(REQUEST, answer))
    found = JsonlTape(path).find(req_hash(REQUEST))
    assert found == Exchange(req_hash(REQUEST), "tape/1", REQUEST, answer, version=0)


@pytest.mark.row("A1", "A11")
def test_the_sketch_and_we_take_turns_on_one_file(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    tape = JsonlTape(path)
    for n in range(4):
        before = path.read_bytes() if path.exists() else b""
        if n % 2:
            with path.open("ab") as file:
                file.write(sketch_line({"p": n}, n))
        else:
            tape.append(Exchange(req_hash({"p": n}), "tape/1", {"p": n}, n))
        assert path.read_bytes().startswith(before)
    assert sketch_reads(path) == {req_hash({"p": n}): n for n in range(4)}
    assert [e.response for e in tape.exchanges()] == [0, 1, 2, 3]
    assert [tape.find(req_hash({"p": n})) for n in range(4)] == list(tape.exchanges())


@pytest.mark.row("A1", "A12")
def test_a_row_describes_itself(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    JsonlTape(path).append(plain(1, recorded_at="2026-01-01T00:00:00+00:00"))
    assert path.read_text() == (
        f'{{"hash":"{key(1)}","v":1,"canonicalizer":"tape/1",'
        '"recorded_at":"2026-01-01T00:00:00+00:00",'
        '"request":{"prompt":"1"},"response":{"text":"answer to 1"}}\n'
    )


# --- what files look like


@pytest.mark.row("A1")
def test_a_later_line_wins_whatever_form_it_has(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    request = {"p": 1}
    tape = JsonlTape(path)
    for n, line in enumerate([None, sketch_line(request, 1), None, sketch_line(request, 3)]):
        if line is None:
            tape.append(Exchange(req_hash(request), "tape/1", request, n))
        else:
            path.write_bytes(path.read_bytes() + line)
        for reader in (tape, JsonlTape(path)):
            found = reader.find(req_hash(request))
            assert found is not None
            assert found.response == n


def test_a_cut_off_exchange_does_not_take_the_place_of_a_later_answer(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    JsonlTape(path).append(over_http(1, b"cut", state=State.UPSTREAM_ERROR))
    JsonlTape(path).append(over_http(1, b"whole"))
    assert JsonlTape(path).find(key(1)) == over_http(1, b"whole")
    assert JsonlTape(path).keys() == {key(1)}


@pytest.mark.row("A7")
@pytest.mark.parametrize(
    "change",
    [
        lambda data: b"\xef\xbb\xbf" + data,
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: data.replace(b"\n", b"\n\n  \n\t\n\r\n"),
        lambda data: b"\n\n" + data,
        lambda data: data.rstrip(b"\n"),
        lambda data: b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n").rstrip(),
        lambda data: data.replace(b"\n", b"\n\xef\xbb\xbf"),
        lambda data: data + b"   ",
        lambda data: b"".join(reversed(data.splitlines(keepends=True))),
        lambda data: b"".join(b" " + line for line in data.splitlines(keepends=True)),
    ],
    ids=[
        "byte order mark", "CRLF", "blank lines", "blank lines first", "no last line end",
        "byte order mark and CRLF", "marks in the middle", "blanks at the end", "other order",
        "indented",
    ],
)  # fmt: skip
def test_files_that_editors_and_git_make_are_read_and_recorded_into(
    tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "t.jsonl"
    source = JsonlTape(path)
    source.append(plain(1))
    source.append(over_http(2, b"x" * 20_000))
    path.write_bytes(change(path.read_bytes() + sketch_line({"p": 3}, {"text": "three"})))
    tape = JsonlTape(path)
    tape.append(plain(4))
    for reader in (tape, JsonlTape(path)):
        assert reader.find(key(1)) == plain(1)
        assert reader.find(key(2)) == over_http(2, b"x" * 20_000)
        assert reader.find(key(4)) == plain(4)
        assert reader.keys() == {key(1), key(2), key(4), req_hash({"p": 3})}
        assert len(list(reader.exchanges())) == 4


@pytest.mark.parametrize("content", [b"", b"\n", b"\r\n\r\n", b"\xef\xbb\xbf", b"   "])
def test_a_file_that_holds_nothing_is_an_empty_tape(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "t.jsonl"
    path.write_bytes(content)
    tape = JsonlTape(path)
    assert list(tape.exchanges()) == []
    tape.append(plain(1))
    assert JsonlTape(path).find(key(1)) == tape.find(key(1)) == plain(1)


def test_a_line_of_100_megabytes_is_one_line_among_others(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    large = {"text": "x" * 100_000_000}
    tape = JsonlTape(path)
    tape.append(plain(1))
    with path.open("ab") as file:
        file.write(sketch_line({"p": 2}, large))
    tape.append(plain(3, large))
    tape.append(plain(4))
    assert tape.find(key(3)) == plain(3, large)
    reader = JsonlTape(path)
    assert reader.keys() == {key(1), key(3), key(4), req_hash({"p": 2})}
    found = reader.find(req_hash({"p": 2}))
    assert found is not None
    assert found.response == large


# --- damage


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"<<<<<<< HEAD\n", "a mark of an unfinished merge"),
        (b"=======\r\n", "both sides' rows may stay"),
        (b"SQLite format 3\0\x10\n", "an SQLite database: give it a name in .db"),
        (b'{"hash": "\xff"}\n', "not JSON"),
        (b"[1]\n", "not an object"),
        (b"null\n", "not an object"),
        (b'{"hash":"' + key(9).encode() + b'","request":{}}\n', "no response"),
        (b'{"request":{},"response":{}}\n', "no hash"),
        (b'{"hash":"abc","request":{},"response":{}}\n', "64 hex digits"),
        (b'{"hash":"' + b"g" * 64 + b'","request":{},"response":{}}\n', "64 hex digits"),
        (b'{"hash":"' + b"g" * 64 + b'","v":1,"canonicalizer":"tape/1"}\n', "64 hex digits"),
        (b'{"hash":7,"request":{},"response":{}}\n', "64 hex digits"),
        (b'{"v":"x","hash":"' + key(9).encode() + b'","request":1,"response":1}\n', "version"),
        ("{}".encode("utf-16") + b"\n", "not JSON"),
        (b"\x00" * 100 + b"\n", "not JSON"),
        (b"[" * 100_000 + b"]" * 100_000 + b"\n", "nested too deeply"),
    ],
)
def test_a_broken_line_is_an_error_that_names_it_and_hides_nothing(
    tmp_path: Path, line: bytes, what: str
) -> None:
    path = tmp_path / "t.jsonl"
    tape = JsonlTape(path)
    tape.append(plain(1))
    path.write_bytes(path.read_bytes() + line)
    if line == b"<<<<<<< HEAD\n":
        path.write_bytes(path.read_bytes() + sketch_line({"p": 1}, 1))
    before = path.read_bytes()
    for use in (
        lambda: JsonlTape(path),
        lambda: tape.find(key(2)),
        lambda: tape.find(key(1)),
        lambda: tape.append(plain(3)),
    ):
        with pytest.raises(DamagedTape, match="line 2") as damage:
            use()
        assert what in damage.value.message
        assert str(path) in damage.value.message
        assert "tapes tape verify" in damage.value.remedy
        assert damage.value.exit_status == 3
    assert path.read_bytes() == before


@pytest.mark.parametrize("newline", [b"\n", b""])
def test_a_later_version_is_refused_even_as_the_last_line(tmp_path: Path, newline: bytes) -> None:
    path = tmp_path / "t.jsonl"
    row = f'{{"hash":"{key(1)}","v":2,"canonicalizer":"tape/7","request":{{}},"response":1}}'
    path.write_bytes(row.encode() + newline)
    with pytest.raises(NewerTape, match="line 1: schema version 2"):
        JsonlTape(path)


def test_a_row_that_is_broken_inside_is_an_error_when_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    for n in range(3):
        JsonlTape(path).append(plain(n))
    path.write_bytes(path.read_bytes().replace(b'"answer to 1"', b'"answer to'))
    tape = JsonlTape(path)
    assert tape.find(key(0)) == plain(0)
    assert tape.find(key(2)) == plain(2)
    with pytest.raises(DamagedTape, match="line 2"):
        tape.find(key(1))


def test_a_row_that_was_glued_to_a_torn_one_is_not_silently_absent(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    for n in range(3):
        JsonlTape(path).append(plain(n))
    path.write_bytes(path.read_bytes()[:-30] + sketch_line({"p": 1}, 1))
    tape = JsonlTape(path)
    assert tape.find(key(1)) == plain(1)
    for _ in range(2):
        with pytest.raises(DamagedTape, match="line 3"):
            tape.find(req_hash({"p": 1}))
    with pytest.raises(DamagedTape, match="line 3"):
        tape.keys()


def test_a_nested_hash_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    JsonlTape(path).append(plain(1, {"rows": [{"hash": "x"}, {"hash": "y"}]}))
    tape = JsonlTape(path)
    assert tape.find(key(2)) is None
    assert tape.keys() == {key(1)}


def test_a_body_whose_row_was_never_written_is_harmless_and_used_later(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    JsonlTape(path).append(over_http(1, b"x" * 20_000))
    body, row = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(body + row[:50])
    tape = JsonlTape(path)
    assert tape.keys() == set()
    assert list(tape.exchanges()) == []
    tape.append(over_http(1, b"x" * 20_000))
    assert path.read_bytes() == body + row
    assert JsonlTape(path).find(key(1)) == over_http(1, b"x" * 20_000)


# --- torn last lines


def test_a_torn_last_line_is_passed_over_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "t.jsonl"
    for n in range(2):
        JsonlTape(path).append(plain(n))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    with caplog.at_level(logging.WARNING):
        tape = JsonlTape(path)
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}, line 2: the last line is torn; it is passed over, and the next recording sets"
        " it aside"
    ]
    assert tape.find(key(0)) == plain(0)
    assert tape.find(key(1)) is None
    assert path.read_bytes() == whole[:-20]


def test_the_next_recording_sets_a_torn_line_aside(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    for n in range(2):
        JsonlTape(path).append(plain(n))
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    JsonlTape(path).append(plain(2))
    assert JsonlTape(path).keys() == {key(0), key(2)}
    assert whole.startswith(path.read_bytes().splitlines(keepends=True)[0])
    aside = (tmp_path / ".tapes" / "t.jsonl.torn").read_bytes()
    assert aside == whole.splitlines()[1][:-19] + b"\n"


def test_a_line_that_is_being_written_is_neither_found_nor_called_torn(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:

    path = tmp_path / "t.jsonl"
    tape = JsonlTape(path)
    tape.append(plain(0))
    line = sketch_line({"p": 1}, 1)
    with path.open("ab", buffering=0) as writer, caplog.at_level(logging.WARNING):
        fcntl.flock(writer, fcntl.LOCK_EX)
        writer.write(line[:50])
        assert tape.find(req_hash({"p": 1})) is None
        assert JsonlTape(path).find(req_hash({"p": 1})) is None
        writer.write(line[50:])
        found = tape.find(req_hash({"p": 1}))
    assert found is not None
    assert found.response == 1
    assert caplog.records == []


# --- properties

_ANSWERS = st.text(max_size=20)
_PARTS = st.lists(
    st.one_of(
        st.tuples(st.just("own"), st.integers(0, 5), _ANSWERS),
        st.tuples(st.just("foreign"), st.integers(0, 5), _ANSWERS),
        st.tuples(st.just("blank"), st.just(0), st.sampled_from(["", " ", "\t", "\ufeff"])),
    ),
    max_size=8,
)
_FUZZ = settings(
    deadline=None,
    max_examples=examples(150),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


def _own_line(n: int, answer: str) -> bytes:
    row = {
        "hash": req_hash({"p": n}),
        "v": 1,
        "canonicalizer": "tape/1",
        "request": {"p": n},
        "response": answer,
    }
    return json.dumps(row, separators=(",", ":")).encode() + b"\n"


def _lines(parts: list[tuple[str, int, str]]) -> list[tuple[bytes, int, str]]:
    """Lines with the number of their request, -1 where they hold nothing, and their answer."""
    lines = []
    for kind, n, answer in parts:
        if kind == "blank":
            lines.append((answer.encode() + b"\n", -1, ""))
        elif kind == "own":
            lines.append((_own_line(n, answer), n, answer))
        else:
            lines.append((sketch_line({"p": n}, answer), n, answer))
    return lines


@_FUZZ
@given(parts=_PARTS, more=_PARTS, crlf=st.booleans(), mark=st.booleans(), cut=st.integers(0, 400))
def test_any_mixture_with_any_cut_is_answered_rightly_and_recorded_into(
    tmp_path_factory: pytest.TempPathFactory,
    parts: list[tuple[str, int, str]],
    more: list[tuple[str, int, str]],
    crlf: bool,
    mark: bool,
    cut: int,
) -> None:
    path = tmp_path_factory.mktemp("any") / "t.jsonl"
    content, expected = b"\xef\xbb\xbf" if mark else b"", dict[int, str]()
    lines = _lines(parts)
    ends = []
    for line, _, _ in lines:
        content += line.replace(b"\n", b"\r\n") if crlf else line
        ends.append(len(content.rstrip()))
    content = content[: max(len(content) - cut, 0)]
    for (_, n, answer), end in zip(lines, ends, strict=True):
        if n >= 0 and end <= len(content):
            expected[n] = answer
    path.write_bytes(content)
    tape = JsonlTape(path)
    _require(tape, expected)
    for n, answer in [(n, answer) for kind, n, answer in more if kind != "blank"]:
        tape.append(Exchange(req_hash({"p": n}), "tape/1", {"p": n}, answer))
        expected[n] = answer
        _require(tape, expected)
    _require(JsonlTape(path), expected)


def _require(tape: JsonlTape, expected: dict[int, str]) -> None:
    for n in range(6):
        found = tape.find(req_hash({"p": n}))
        assert (None if found is None else found.response) == expected.get(n)
    assert tape.keys() == {req_hash({"p": n}) for n in expected}
    assert {e.request["p"]: e.response for e in tape.exchanges()} == expected  # type: ignore[index]


@_FUZZ
@given(
    count=st.integers(2, 5),
    at=st.integers(0, 2000),
    new=st.one_of(st.just(b""), st.binary(min_size=1, max_size=3)),
    gone=st.integers(0, 3),
)
def test_damage_of_any_bytes_never_hides_another_row(
    tmp_path_factory: pytest.TempPathFactory, count: int, at: int, new: bytes, gone: int
) -> None:
    path = tmp_path_factory.mktemp("any") / "t.jsonl"
    lines = [_own_line(n, f"answer {n}") for n in range(count)]
    content = b"".join(lines)
    at %= len(content)
    path.write_bytes(content[:at] + new + content[at + gone :])
    start = 0
    for n, line in enumerate(lines):
        end = start + len(line)
        if end <= at or start >= at + max(gone, 1):
            _require_found_or_said(path, n)
        start = end


def _require_found_or_said(path: Path, n: int) -> None:
    try:
        found = JsonlTape(path).find(req_hash({"p": n}))
    except UnreadableTape as error:
        assert "line " in error.message  # noqa: PT017  # both outcomes are right
        return
    assert found is not None, "silently absent"
    assert found.response == f"answer {n}"


# --- the index beside the tape


@pytest.fixture
def large(tmp_path: Path) -> Path:
    """A tape that is large enough for an index, and has one."""
    path = tmp_path / "t.jsonl"
    tape = JsonlTape(path)
    for n in range(40):
        tape.append(plain(n, str(n) * 20_000))
    tape.append(plain(7, "later"))
    tape.close()
    settle(path)
    JsonlTape(path).close()
    assert index_of(path).exists()
    return path


def index_of(path: Path) -> Path:
    return path.parent / ".tapes" / f"{path.name}.index"


def settle(path: Path) -> None:
    """Let the file look as if it had not changed for a while."""
    past = path.stat().st_mtime_ns - 10_000_000_000
    os.utime(path, ns=(past, past))


def answers_of(path: Path) -> list[Json]:
    tape = JsonlTape(path)
    found = [tape.find(key(n)) for n in range(41)]
    tape.close()
    return [None if exchange is None else exchange.response for exchange in found]


RIGHT = [("later" if n == 7 else str(n) * 20_000) for n in range(40)] + [None]


def test_a_large_tape_is_answered_from_its_index(large: Path) -> None:
    assert answers_of(large) == RIGHT
    tape = JsonlTape(large)
    assert tape.keys() == {key(n) for n in range(40)}
    tape.append(plain(40, "new"))
    assert answers_of(large) == [*RIGHT[:-1], "new"]


def test_an_index_of_another_state_of_the_file_is_not_used(large: Path) -> None:
    lines = large.read_bytes().splitlines(keepends=True)
    times = large.stat()
    large.write_bytes(b"".join(reversed(lines)))
    os.utime(large, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert answers_of(large) == [str(n) * 20_000 for n in range(40)] + [None]


def test_no_damage_of_the_index_changes_an_answer(large: Path) -> None:
    whole = index_of(large).read_bytes()
    for at in (*range(0, 100, 5), *range(100, 6300, 199), *range(6300, len(whole), 31)):
        for damaged in (whole[:at], whole[:at] + bytes([whole[at] ^ 0x41]) + whole[at + 1 :]):
            index_of(large).write_bytes(damaged)
            assert answers_of(large) == RIGHT, at


def test_an_index_that_cannot_be_kept_is_done_without(large: Path) -> None:
    index_of(large).unlink()
    index_of(large).mkdir()
    settle(large)
    assert answers_of(large) == RIGHT


def test_the_local_folder_keeps_itself_out_of_git(large: Path) -> None:
    ignored = (large.parent / ".tapes" / ".gitignore").read_text().split()
    assert {"*.index", "*.torn", "*.lock", "state.db*", ".gitignore"} <= set(ignored)


def test_finding_waits_for_no_disk(tmp_path: Path) -> None:

    path = tmp_path / "t.jsonl"
    tape = JsonlTape(path)
    tape.append(plain(1))
    with path.open("ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        appending = threading.Thread(target=tape.append, args=(plain(2),))
        appending.start()
        assert tape.find(key(1)) == plain(1)
        assert tape.find(key(2)) is None
        assert appending.is_alive()
        fcntl.flock(other, fcntl.LOCK_UN)
        appending.join(60)
    assert tape.find(key(2)) == plain(2)
