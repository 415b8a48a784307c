"""`tapes init`, `tapes config` and `tapes status`."""

import json
import stat
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tapes.cli.init import with_setting
from tapes.cli.main import run
from tapes.config import SETTINGS
from tapes.projector import Projector
from tapes.store.sqlite import open_sqlite
from tests.tape.faults import file_size_limit
from tests.turns import raw_turn


def told(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert run([*args, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_init_writes_every_setting_as_it_holds(
    in_tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(told(capsys, "init", "--preset", "anthropic")["file"])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert tomllib.loads(file.read_text())["proxy"] == {"upstream": "https://api.anthropic.com"}
    text = file.read_text()
    assert all(f"{setting.key.partition('.')[2]} = " in text for setting in SETTINGS)
    listed = told(capsys, "config", "list")["settings"]
    assert {row["origin"] for row in listed if row["key"] != "proxy.upstream"} == {"default"}
    assert run(["init"]) == 2
    assert "--force" in capsys.readouterr().err


def test_each_value_says_where_it_comes_from(
    in_tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told(capsys, "config", "get", "api.listen")["origin"] == "default"
    told(capsys, "config", "set", "api.listen", "127.0.0.1:9")
    file = told(capsys, "config", "get", "api.listen")
    assert (file["value"], file["origin"]) == ("127.0.0.1:9", ".tapes/config.toml")
    monkeypatch.setenv("TAPES_API_LISTEN", "127.0.0.1:10")
    over = told(capsys, "config", "get", "api.listen")
    assert (over["value"], over["origin"]) == ("127.0.0.1:10", "TAPES_API_LISTEN")


def test_tokens_are_not_shown(
    in_tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAPES_API_TOKEN", "CANARY")
    assert run(["config", "list"]) == 0
    assert run(["config", "get", "api.token"]) == 0
    assert "CANARY" not in capsys.readouterr().out


@pytest.mark.parametrize(("key", "value"), [
    ("api.colour", "red"), ("api.rate", "fast"), ("proxy.mode", "recrod"),
    ("api.listen", "localhost"), ("api.org", "mine"), ("ingest.token_sha256", "sesame"),
])  # fmt: skip
def test_what_cannot_be_set_is_refused(
    in_tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str, value: str
) -> None:
    assert run(["config", "set", key, value]) == 2
    said = capsys.readouterr().err
    assert key in said
    assert "sesame" not in said
    assert not Path(".tapes/config.toml").exists()


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "[api]\nrate = 5\n"),
        ("# mine\n[api]\n# rate = 1000  # of one address\nlisten = \"x\"\n[proxy]\nrate = 1\n",
         "# mine\n[api]\nrate = 5\nlisten = \"x\"\n[proxy]\nrate = 1\n"),
        ("[proxy]\nmode = \"pass\"\n", "[proxy]\nmode = \"pass\"\n\n[api]\nrate = 5\n"),
        ("[api]\nlisten = \"x\"", "[api]\nrate = 5\nlisten = \"x\"\n"),
        ('[proxy]\nmode = "a\u2028b\x85"\n', '[proxy]\nmode = "a\u2028b\x85"\n\n[api]\nrate = 5\n'),
    ],
    ids=["empty", "commented", "elsewhere", "new", "ends of lines to others"],
)  # fmt: skip
def test_one_setting_is_written_and_other_lines_stay(before: str, after: str) -> None:
    assert with_setting(before, "api.rate", "5") == after


def test_the_status_says_what_is_there(
    in_tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = ("--api", "http://127.0.0.1:9")
    empty = told(capsys, "status", *nowhere)
    assert (empty["log"], empty["api_answers"]) == (None, False)
    assert run(["seed"]) == 0
    capsys.readouterr()
    assert told(capsys, "status", *nowhere)["log"]["sessions"] == 6


def test_the_status_says_that_tokens_are_unknown(
    in_tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with closing(open_sqlite(in_tmp_path / ".tapes" / "tapes.db")) as store:
        store.append([raw_turn(1, "/v1/chat/completions", {"model": "m", "messages": []}, {})])
        Projector(store).drain()
    assert run(["status"]) == 0
    assert "tokens    - in, - out\n" in capsys.readouterr().out


def test_a_value_of_several_lines_is_not_broken(
    in_tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(".tapes/config.toml")
    file.parent.mkdir()
    before = '[proxy]\nhosts = [\n  "a.test",\n]\nmode = "replay"\n'
    file.write_text(before)
    assert run(["config", "set", "proxy.hosts", "b.test"]) == 2
    assert "proxy.hosts" in capsys.readouterr().err
    assert file.read_text() == before


def test_a_file_of_settings_is_written_whole_or_not_at_all(
    in_tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(".tapes/config.toml")
    assert run(["config", "set", "proxy.token", "x" * 4000]) == 0
    before = file.read_bytes()
    with file_size_limit(100):
        assert run(["config", "set", "proxy.mode", "pass"]) == 2
    assert file.read_bytes() == before
    assert "cannot be written" in capsys.readouterr().err
    assert [path.name for path in file.parent.glob("*.tmp")] == []
    assert file.stat().st_mode & 0o777 == 0o600
