"""Each command of `tapes tape`: what it shows, its JSON, its exit status."""

import io
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tapes.cassette import Cassette
from tapes.cli.main import run
from tapes.exchange import Response
from tapes.report import KEPT_RUNS
from tests.making import KINDS, answers, assorted, call, chat, contents, large, tape_in

KEY = "sk-proj-" + "a1B2" * 8

Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Typed:
    """Types a command; gives its exit status, output and errors."""

    def type_it(*args: str) -> tuple[int, str, str]:
        status = run(["tape", *args])
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return type_it


@pytest.fixture
def typed_json(typed: Typed) -> Callable[..., Any]:
    """Types a command with --json; gives the document."""

    def type_it(*args: str, status: int = 0) -> Any:
        ended, out, err = typed(*args, "--json")
        assert (ended, err) == (status, ""), err
        return json.loads(out)

    return type_it


# --- ls


def test_ls_lists_tapes_of_all_kinds(in_tmp_path: Path, typed: Typed) -> None:
    for kind in KINDS:
        tape_in(Path(), kind, assorted(), kind)
    status, out, _ = typed("ls")
    assert status == 0
    for name in ("jsonl.jsonl", "sqlite.db", "directory/"):
        (line,) = [line for line in out.splitlines() if line.endswith(name)]
        assert line.split()[:2] == ["7", "1"]
        assert "http/1, tape/1" in line


@pytest.mark.parametrize("kind", KINDS)
def test_ls_lists_the_exchanges_of_a_tape(
    tmp_path: Path, kind: str, typed: Typed, typed_json: Callable[..., Any]
) -> None:
    path = tape_in(tmp_path, kind, assorted())
    _, out, _ = typed("ls", path)
    for exchange in assorted():
        (line,) = [line for line in out.splitlines() if line.startswith(exchange.key[:12])]
        assert ("cut" in line) is (exchange.state != "complete")
    found = typed_json("ls", path)
    assert {row["key"] for row in found["exchanges"]} == {e.key for e in assorted()}
    assert list(found["exchanges"][0]) == [
        "key", "recorded_at", "what", "said", "model", "stream", "status", "input_tokens",
        "output_tokens", "bytes", "state", "sample", "canonicalizer",
    ]  # fmt: skip


def test_ls_shows_a_damaged_tape_and_goes_on(in_tmp_path: Path, typed: Typed) -> None:
    tape_in(Path(), "jsonl", [call("one")], "good")
    Path("bad.jsonl").write_text('{"hash": "torn\nand more\n')
    status, out, err = typed("ls")
    assert status == 3
    assert "bad.jsonl  (unreadable)" in out
    assert "good.jsonl" in out
    assert "line 1: not JSON" in err


def test_ls_of_a_damaged_tape_shows_no_half_document(tmp_path: Path, typed: Typed) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one")])
    with Path(path).open("ab") as file:
        file.write(b"{oops\n")
    assert typed("ls", "--json", path)[:2] == (3, "")


def test_ls_where_there_is_nothing(in_tmp_path: Path, typed: Typed) -> None:
    assert typed("ls") == (0, "no tapes below .\n", "")
    status, _, err = typed("ls", "none.jsonl")
    assert (status, err.splitlines()[0]) == (3, "there is no tape at none.jsonl")


def test_an_empty_tape_is_listed_as_empty(tmp_path: Path, typed_json: Callable[..., Any]) -> None:
    (tmp_path / "t.jsonl").touch()
    assert typed_json("ls", f"{tmp_path}/t.jsonl")["exchanges"] == []


# --- show


@pytest.mark.parametrize("kind", KINDS)
def test_show_tells_request_answer_and_times(tmp_path: Path, kind: str, typed: Typed) -> None:
    path = tape_in(tmp_path, kind, assorted())
    _, out, _ = typed("show", path, chat("weather").key[:6])
    assert "POST https://api.openai.com/v1/chat/completions" in out
    assert '"content": "weather"' in out
    assert "    0.100  data: " in out
    assert "3 pieces in 0.200 s" in out


def test_show_raw_gives_the_bytes(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tape_in(tmp_path, "jsonl", assorted())
    found = chat("weather", "sun", "ny")
    assert isinstance(found.response, Response)
    run(["tape", "show", "--raw", path, found.key])
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == found.response.body
    run(["tape", "show", "--raw-request", path, found.key])
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == found.request.body


@pytest.mark.parametrize("kind", KINDS)
def test_show_json_is_the_row_with_its_bodies(
    tmp_path: Path, kind: str, typed_json: Callable[..., Any]
) -> None:
    path = tape_in(tmp_path, kind, assorted())
    row = typed_json("show", path, large("long").key)
    assert row["hash"] == large("long").key
    assert row["response"]["body"]["json"]["text"].startswith("long long")


def test_show_tells_what_a_cut_stream_is(tmp_path: Path, typed: Typed) -> None:
    path = tape_in(tmp_path, "jsonl", assorted())
    (cut,) = [exchange for exchange in assorted() if exchange.state != "complete"]
    assert "it never answers" in typed("show", path, cut.key)[1]


@pytest.mark.parametrize(("begin", "said"), [("0000", "no key on"), ("xyz", "is no key")])
def test_a_key_that_is_not_there(tmp_path: Path, typed: Typed, begin: str, said: str) -> None:
    status, out, err = typed("show", tape_in(tmp_path, "jsonl", [call("one")]), begin)
    assert (status, out) == (2, "")
    assert said in err
    assert "tapes tape ls" in err


# --- stats, diff


@pytest.mark.row("B14")
def test_stats_tell_what_was_saved(
    tmp_path: Path, typed: Typed, typed_json: Callable[..., Any]
) -> None:
    path = tape_in(tmp_path, "jsonl", assorted())
    with Cassette(path) as cassette:
        for _ in range(3):
            cassette.call({"prompt": "one"})
    _, out, _ = typed("stats", path)
    assert "6 answers" in out
    assert "1 incomplete, 1 further sample" in out
    assert "not used by the latest  5" in out
    found = typed_json("stats", path)
    assert found["saved"]["calls"] == found["runs"]["served"] == 3
    assert found["saved"]["bytes"] == 3 * len('{"text": "about one"}')
    assert found["runs"]["live"] == 0


def test_stats_price_a_known_model(tmp_path: Path, typed_json: Callable[..., Any]) -> None:
    from dataclasses import replace

    usage = {"prompt_tokens": 1_000_000, "completion_tokens": 0}
    exchange = replace(call("x"), response={"model": "gpt-4o-mini", "usage": usage})
    found = typed_json("stats", tape_in(tmp_path, "jsonl", [exchange]))
    assert float(found["recorded"]["usd"]) == pytest.approx(0.15)
    assert found["recorded"]["unpriced"] == 0


def test_diff_of_two_tapes(tmp_path: Path, typed: Typed, typed_json: Callable[..., Any]) -> None:
    one = tape_in(tmp_path, "jsonl", [call("both"), call("mine"), call("x", "1")], "one")
    other = tape_in(tmp_path, "sqlite", [call("both"), call("theirs"), call("x", "2")], "other")
    status, out, _ = typed("diff", one, other)
    assert status == 1
    assert f"- {call('mine').key[:12]}" in out
    assert f"+ {call('theirs').key[:12]}" in out
    assert "    text\n      - 1\n      + 2\n" in out
    found = typed_json("diff", one, other, status=1)
    assert found["differing"] == [
        {"key": call("x").key, "places": [{"place": "text", "a": "1", "b": "2"}]}
    ]
    assert typed("diff", one, one)[0] == 0


def test_diff_of_two_exchanges(tmp_path: Path, typed: Typed) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one", "a"), call("two", "a")])
    status, out, _ = typed("diff", path, call("one").key[:8], call("two").key[:8])
    assert status == 1
    assert "request.prompt\n  - one\n  + two\n" in out
    assert "response" not in out


def test_diff_wants_two_tapes_or_a_tape_and_two_keys(tmp_path: Path, typed: Typed) -> None:
    assert typed("diff", tape_in(tmp_path, "jsonl", [call("one")]))[0] == 2


# --- explain


def test_explain_a_key_on_the_tape(
    tmp_path: Path, typed: Typed, typed_json: Callable[..., Any]
) -> None:
    path = tape_in(tmp_path, "jsonl", assorted())
    status, out, _ = typed("explain", path, call("one").key[:8])
    assert status == 0
    assert '{"prompt":"one"}' in out
    assert f"cassette hit: {call('one').key[:12]} on {path}" in out
    found = typed_json("explain", path, call("one").key[:8])
    assert (found["verdict"], found["answered_by"]) == ("hit", call("one").key)


@pytest.mark.row("N15")
def test_explain_a_request_that_misses(
    tmp_path: Path,
    typed: Typed,
    typed_json: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tape_in(tmp_path, "jsonl", assorted())
    request = tmp_path / "request.json"
    request.write_text('{"prompt": "ones", "cwd": "/here"}')
    status, out, _ = typed("explain", path, "--request", str(request))
    assert status == 1
    assert "does not count  cwd" in out
    assert f"nearest recording: {call('one').key[:12]}" in out
    assert "  prompt\n    - ones\n    + one\n" in out
    assert "to record it: DEMO_LIVE=1" in out
    monkeypatch.setattr("sys.stdin", io.StringIO('{"prompt": "ones"}'))
    found = typed_json("explain", path, "--request", "-", status=1)
    assert found["error"]["slug"] == "miss"
    assert found["nearest"]["places"] == [{"place": "prompt", "asked": "ones", "recorded": "one"}]


def test_explain_an_http_request(tmp_path: Path, typed: Typed) -> None:
    path = tape_in(tmp_path, "jsonl", assorted())
    request = tmp_path / "request.json"
    body = {
        "stream": True,
        "model": "gpt-4o-mini",
        "messages": [{"role": "user", "content": "weather"}],
    }
    form = {"url": "http://localhost/v1/chat/completions", "body": body}
    request.write_text(json.dumps(form))
    status, out, _ = typed("explain", path, "--http", "--request", str(request))
    assert status == 0
    assert chat("weather").key in out
    status, out, _ = typed("explain", path, "--http", "--request", str(request), "--sample", "1")
    assert chat("weather", sample=1).key in out


def test_explain_an_answer_that_was_kept_without_its_request(tmp_path: Path, typed: Typed) -> None:
    (tmp_path / f"{'ab' * 32}.json").write_text("{}")
    status, _, err = typed("explain", str(tmp_path), "abab")
    assert status == 2
    assert "kept without its request" in err


def test_a_directory_explains_dicts_by_its_own_rule(tmp_path: Path, typed: Typed) -> None:
    with Cassette(tmp_path / "answers", "live", lambda _: {"ok": 1}) as cassette:
        cassette.call({"prompt": "ü", "trace_id": 7})
    request = tmp_path / "r.json"
    request.write_text('{"prompt": "ü", "created": 1}')
    status, out, _ = typed("explain", f"{tmp_path}/answers", "--request", str(request))
    assert status == 0
    assert '{"prompt":"\\u00fc"}' in out


def test_explain_wants_a_key_or_a_request(tmp_path: Path, typed: Typed) -> None:
    assert typed("explain", tape_in(tmp_path, "jsonl", [call("one")]))[0] == 2


# --- verify


def test_verify_a_sound_tape(tmp_path: Path, typed: Typed, typed_json: Callable[..., Any]) -> None:
    path = tape_in(tmp_path, "jsonl", assorted())
    status, out, _ = typed("verify", path)
    assert (status, out) == (0, f"{path}: 7 rows, 1 incomplete, 1 body; all sound\n")
    assert typed_json("verify", path)["damage"] == []


def test_verify_tells_all_damage_and_mends_it(
    tmp_path: Path, typed: Typed, typed_json: Callable[..., Any]
) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one"), call("two")])
    one, two = Path(path).read_bytes().splitlines(keepends=True)
    Path(path).write_bytes(b"{oops\n" + one + two.replace(b"two", b"2", 1))
    status, out, _ = typed("verify", path)
    assert status == 3
    assert out.startswith("line 1: not JSON")
    assert "\nline 3: the key is" in out
    assert f"tapes tape verify --mend {path}" in out
    found = typed_json("verify", "--mend", path, status=1)
    assert found["mended"]["set_aside"] == 2
    assert Path(found["mended"]["backup"]).exists()
    assert typed("verify", path)[0] == 0


def test_verify_what_is_no_tape(tmp_path: Path, typed: Typed) -> None:
    path = tmp_path / "notes.jsonl"
    path.write_text("hello\n")
    status, out, err = typed("verify", str(path))
    assert (status, out) == (3, "")
    assert "is no tape" in err


def test_a_newer_tape_is_refused_with_advice(tmp_path: Path, typed: Typed) -> None:
    path = tmp_path / "t.jsonl"
    row = {"hash": "0" * 64, "v": 99, "request": None, "response": None}
    path.write_text(json.dumps(row) + "\n")
    for command in (["ls"], ["stats"], ["scan"], ["scrub"], ["prune", "--superseded"]):
        status, _, err = typed(*command, str(path))
        assert status == 3
        assert "pip install --upgrade" in err


# --- merge, convert


@pytest.mark.row("B13")
def test_merge_and_its_conflict(
    tmp_path: Path, typed: Typed, typed_json: Callable[..., Any]
) -> None:
    one = tape_in(tmp_path, "jsonl", [call("x", "1")], "one")
    other = tape_in(tmp_path, "sqlite", [call("x", "2"), call("y")], "other")
    status, out, err = typed("merge", one, other)
    assert (status, out) == (5, "")
    assert f"answered differently by {one} and {other}" in err
    assert f"tapes tape diff {one} {other}" in err
    found = typed_json("merge", one, other, "--prefer", "theirs")
    assert found["from"][0]["rows"] == 2
    assert answers(one)[call("x").key].response == {"text": "2"}


@pytest.mark.row("B13")
def test_convert_by_the_name_of_the_target(tmp_path: Path, typed: Typed) -> None:
    path = tape_in(tmp_path, "jsonl", assorted())
    status, out, _ = typed("convert", path, f"{tmp_path}/new.db")
    assert (status, out) == (0, f"{tmp_path}/new.db: 7 rows written\n")
    assert contents(f"{tmp_path}/new.db") == contents(path)
    status, _, err = typed("convert", path, f"{tmp_path}/new.db")
    assert status == 2
    assert "tapes tape merge" in err
    status, _, err = typed("convert", path, f"{tmp_path}/new.txt")
    assert status == 2
    assert ".jsonl" in err


# --- prune


@pytest.mark.row("N18")
def test_prune_what_the_latest_run_did_not_use(
    tmp_path: Path, typed: Typed, typed_json: Callable[..., Any]
) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one"), call("two"), call("three")])
    with Cassette(path) as cassette:
        cassette.call({"prompt": "one"})
        cassette.call({"prompt": "three"})
    status, out, _ = typed("prune", "--unused", "--dry-run", path)
    assert status == 0
    assert f"{call('two').key[:12]}" in out
    assert "1 row would go, 2 stay" in out
    assert len(contents(path)) == 3
    found = typed_json("prune", "--unused", path)
    assert [row["key"] for row in found["gone"]] == [call("two").key]
    assert contents(path) == [call("one"), call("three")]


@pytest.mark.row("N18")
def test_prune_refuses_to_guess_what_is_unused(tmp_path: Path, typed: Typed) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one")])
    status, _, err = typed("prune", "--unused", path)
    assert status == 2
    assert "no run" in err
    for _ in range(KEPT_RUNS):
        with Cassette(path) as cassette:
            cassette.call({"prompt": "one"})
    status, _, err = typed("prune", "--unused", path)
    assert status == 2
    assert "more often than is kept" in err
    assert len(contents(path)) == 1


def test_prune_by_age(tmp_path: Path, typed: Typed) -> None:
    from dataclasses import replace
    from datetime import UTC, datetime

    new = replace(call("new"), recorded_at=datetime.now(UTC).isoformat())
    old = replace(call("old"), recorded_at="2020-01-01T00:00:00+00:00")
    path = tape_in(tmp_path, "jsonl", [new, old])
    assert "1 row gone, 1 stay" in typed("prune", "--older-than", "90d", path)[1]
    assert contents(path) == [new]


@pytest.mark.parametrize("age", ["", "90", "d", "soon", "90y", "1e99d", "-5d", "999999999d"])
def test_what_is_no_age_is_refused(tmp_path: Path, typed: Typed, age: str) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one")])
    assert typed("prune", "--older-than", age, path)[0] == 2
    assert len(contents(path)) == 1


def test_prune_wants_to_be_told_what(tmp_path: Path, typed: Typed) -> None:
    status, _, err = typed("prune", tape_in(tmp_path, "jsonl", [call("one")]))
    assert status == 2
    assert "--unused" in err


# --- scan, scrub


@pytest.mark.row("N13")
def test_scan_tells_places_and_never_secrets(in_tmp_path: Path, typed: Typed) -> None:
    tape_in(Path(), "jsonl", [call(f"use {KEY}", "fine")], "a")
    tape_in(Path(), "sqlite", [call("harmless")], "b")
    status, out, err = typed("scan")
    assert status == 1
    assert out.startswith("a.jsonl, line 1, request.prompt: openai_key  use REDACTED.openai_key.")
    assert "1 secret in 1 of 2 files" in out
    assert "tapes tape scrub a.jsonl" in out
    assert KEY not in out + err
    assert typed("scan", "b.db")[0] == 0


def test_scan_all_files_waits_for_no_pipe_and_follows_no_link_to_nowhere(
    in_tmp_path: Path, typed_json: Callable[..., Any]
) -> None:
    os.mkfifo("pipe")
    Path("gone").symlink_to("nowhere")
    Path("notes.txt").write_text("nothing secret")
    assert typed_json("scan", "--all-files", ".") == {"looked_at": 1, "findings": []}


def test_scan_all_files(in_tmp_path: Path, typed_json: Callable[..., Any]) -> None:
    tape_in(Path(), "jsonl", [call(f"use {KEY}", "fine")], "a")
    Path(".env").write_text(f"KEY={KEY}\n")
    found = typed_json("scan", "--all-files", ".", status=1)["findings"]
    assert sorted((f["path"], f["place"]) for f in found) == [
        (".env", "line 1"),
        ("a.jsonl", "line 1, request.prompt"),
    ]


def test_scan_what_is_not_there(in_tmp_path: Path, typed: Typed) -> None:
    assert typed("scan", "none")[0] == 3


@pytest.mark.row("N13", "N14")
@pytest.mark.parametrize("kind", KINDS)
def test_scrub_tells_new_keys_and_where_the_original_is(
    tmp_path: Path, kind: str, typed: Typed, typed_json: Callable[..., Any]
) -> None:
    old = call(f"use {KEY}", "fine")
    path = tape_in(tmp_path, kind, [old, call("other")])
    status, out, _ = typed("scrub", path)
    (new,) = set(answers(path)) - {call("other").key}
    assert status == 0
    assert f"key {old.key[:12]} is now {new[:12]}" in out
    assert "backups" in out
    assert KEY not in out
    assert typed_json("scrub", path)["findings"] == []


@pytest.mark.parametrize("content", [b"\xff\xfe{}", b"[" * 100_000])
def test_a_request_that_is_no_text_or_no_json_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes
) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one")])
    (tmp_path / "request").write_bytes(content)
    assert run(["tape", "explain", path, "--request", str(tmp_path / "request")]) == 2
    assert "request" in capsys.readouterr().err
