"""`tapes import` and `tapes export` as they are typed."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests
import vcr

from tapes.cli.main import run
from tapes.interchange import har
from tests.interchange.made import content, entry
from tests.loopback import json_answer, provider
from tests.making import answers, assorted, tape_in

Typed = Callable[..., tuple[int, str, str]]
KEY = "sk-abcdefghijklmnop0123456789"


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Typed:
    """Types a command; gives its exit status, output and errors."""

    def type_it(*args: str) -> tuple[int, str, str]:
        status = run(args)
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return type_it


def archive(path: Path, *entries: dict[str, Any]) -> str:
    log = {"version": "1.2", "creator": {"name": "b", "version": "1"}, "entries": list(entries)}
    path.write_text(json.dumps({"log": log}))
    return str(path)


@pytest.mark.row("N13")
def test_a_cassette_becomes_a_tape_and_its_secrets_are_counted(
    in_tmp_path: Path, typed: Typed
) -> None:
    with provider(lambda _: json_answer("{}")) as at, vcr.use_cassette("c.yaml"):
        requests.get(at.url + "/", headers={"authorization": f"Bearer {KEY}"})
    status, out, err = typed("import", "t.jsonl", "c.yaml")
    assert (status, err) == (0, "")
    assert out == "t.jsonl: 1 exchange added\nsecrets taken out: authorization 1\n"
    assert KEY not in Path("t.jsonl").read_text()
    assert typed("import", "t.jsonl", "c.yaml")[1].startswith("t.jsonl: 0 exchanges added, 1 there")


def test_a_folder_of_cassettes_becomes_a_folder_of_tapes(in_tmp_path: Path, typed: Typed) -> None:
    Path("in/sub").mkdir(parents=True)
    archive(Path("in/a.har"), entry())
    archive(Path("in/sub/b.har"), entry())
    Path("in/readme.txt").write_text("no cassette")
    status, out, _ = typed("import", "--each", "out", "in")
    assert status == 0
    assert [line.split(":")[0] for line in out.splitlines()] == ["out/a.jsonl", "out/sub/b.jsonl"]
    assert all(Path(name).exists() for name in ("out/a.jsonl", "out/sub/b.jsonl"))


def test_what_cannot_be_carried_stops_the_import_unless_a_part_will_do(
    in_tmp_path: Path, typed: Typed
) -> None:
    archive(Path("a.har"), entry(), entry(response={"status": 101}))
    status, out, err = typed("import", "t.jsonl", "a.har")
    assert (status, out) == (5, "")
    assert "a.har, entry 2 cannot be carried: a WebSocket" in err
    assert "--partial" in err
    assert not Path("t.jsonl").exists()
    status, out, err = typed("import", "--partial", "t.jsonl", "a.har")
    assert status == 0
    assert "left out: a.har, entry 2: a WebSocket" in err


def test_import_tells_programs_what_it_did(in_tmp_path: Path, typed: Typed) -> None:
    archive(Path("a.har"), entry(response=content("é", mimeType="a/b; charset=klingon")))
    status, out, _ = typed("import", "--json", "t.jsonl", "a.har")
    assert status == 0
    assert json.loads(out) == {
        "tapes": [
            {
                "tape": "t.jsonl",
                "added": 1,
                "there_already": 0,
                "secrets": {},
                "notes": [
                    {
                        "place": "a.har, entry 1",
                        "text": "the text has no klingon: kept as UTF-8",
                        "left_out": False,
                    }
                ],
            }
        ]
    }


@pytest.mark.parametrize("name", ["x.yaml", "x.json", "x.har"])
def test_a_file_that_is_none_of_the_formats_ends_with_status_3(
    name: str, in_tmp_path: Path, typed: Typed
) -> None:
    Path(name).write_text("hello: [")
    status, _, err = typed("import", "t.jsonl", name)
    assert status == 3
    assert name in err
    assert typed("import", "t.jsonl", "absent.har")[0] == 3


@pytest.mark.parametrize("name", ["out.yaml", "out.har"])
def test_an_exported_tape_comes_back_as_it_was(name: str, in_tmp_path: Path, typed: Typed) -> None:
    tape_in(Path(), "jsonl", assorted(), "t")
    status, out, err = typed("export", "--partial", "t.jsonl", name)
    assert status == 0
    assert out.startswith(f"{name}: ")
    assert "is no HTTP exchange" in err
    assert typed("import", "again.jsonl", name)[0] == 0
    over_http = {k: v for k, v in answers("t.jsonl").items() if v.canonicalizer == "http/1"}
    assert answers("again.jsonl") == over_http


def test_an_export_that_would_lose_something_or_overwrite_is_refused(
    in_tmp_path: Path, typed: Typed
) -> None:
    tape_in(Path(), "jsonl", assorted(), "t")
    assert typed("export", "t.jsonl", "out.har")[0] == 5
    Path("out.har").write_text("mine")
    assert typed("export", "--partial", "t.jsonl", "out.har")[0] == 4
    assert Path("out.har").read_text() == "mine"
    assert typed("export", "--partial", "--force", "t.jsonl", "out.har")[0] == 0
    assert typed("export", "--partial", "t.jsonl", "out.txt")[0] == 2
    assert typed("export", "absent.jsonl", "x.har")[0] == 3


def test_an_export_to_standard_output_is_the_file_alone(
    in_tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    tape_in(Path(), "jsonl", assorted(), "t")
    assert run(["export", "--partial", "--format", "har", "t.jsonl", "-"]) == 0
    assert har.read(capfdbinary.readouterr().out).found


def test_export_tells_programs_what_it_did(in_tmp_path: Path, typed: Typed) -> None:
    tape_in(Path(), "jsonl", assorted(), "t")
    _, out, _ = typed("export", "--partial", "--json", "t.jsonl", "out.har")
    told = json.loads(out)
    assert told["file"] == "out.har"
    assert told["exchanges"] == len(json.loads(Path("out.har").read_text())["log"]["entries"])
    assert any(n["left_out"] for n in told["notes"])


def test_the_program_on_the_page_runs(in_tmp_path: Path, typed: Typed) -> None:
    page = (Path(__file__).parents[2] / "docs" / "interchange.md").read_text()
    (program,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    with provider(lambda _: json_answer("{}")) as at, vcr.use_cassette("weather.yaml"):
        requests.get(at.url + "/")
    exec(program, {})
    assert len(har.read(Path("weather.har").read_bytes()).found) == 1


def test_a_tape_of_each_file_lies_in_the_folder_whatever_files_are_called(
    in_tmp_path: Path, typed: Typed
) -> None:
    for folder in ("a", "ab", "abc"):
        Path(folder).mkdir()
    for name in ("a/1.har", "ab/2.har", "abc/2.har"):
        archive(Path(name), entry({"url": f"https://h/{name}"}))
    status, out, err = typed("import", "--each", "out", "a", "ab/2.har", "abc/2.har")
    assert status == 0, err
    assert out == "out/1.jsonl: 1 exchange added\nout/2.jsonl: 2 exchanges added\n"
    assert not Path("ab/2.jsonl").exists()
