import json
from pathlib import Path

import pytest

from tapes.budget import CALLS, Limits
from tapes.cassette import Cassette
from tapes.cli.main import run
from tests.making import call, make_tape


@pytest.fixture
def spent(in_tmp_path: Path) -> str:
    """A tape for which one live call was made."""
    path = make_tape("t.jsonl", [call("one")])
    with Cassette(path, "record", lambda _: {"ok": 1}, limits=Limits(calls=5)) as cassette:
        cassette.call({"prompt": "two"})
    return path


def test_who_spent_what_and_what_is_left(
    spent: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CALLS, "3")
    assert run(["budget", "show", spent]) == 0
    out = capsys.readouterr().out
    assert "limits  3 calls" in out
    assert "left    2 calls" in out
    assert call("two").key[:12] in out


def test_all_tapes_below_this_folder(spent: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["budget"]) == 0
    assert capsys.readouterr().out.splitlines()[1].endswith(f"no limit is set           {spent}")


def test_a_count_begins_anew(spent: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["budget", "reset", spent]) == 0
    assert "1 live call forgotten" in capsys.readouterr().out
    run(["budget", "show", "--json", spent])
    assert json.loads(capsys.readouterr().out)["spent"]["calls"] == 0


def test_the_budget_as_json(spent: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(["budget", "--json"])
    (account,) = json.loads(capsys.readouterr().out)["tapes"]
    assert account["tape"] == spent
    assert account["calls"][0]["state"] == "spent"
    assert account["left"] == {"calls": None, "tokens": None, "usd": None}


def test_a_limit_that_is_no_number_is_an_error(
    spent: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CALLS, "many")
    assert run(["budget", "show", spent]) == 2
    assert f"{CALLS}=20" in capsys.readouterr().err


def test_a_tape_that_is_not_there(in_tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("show", "reset"):
        assert run(["budget", command, "none.jsonl"]) == 3
        assert "there is no tape" in capsys.readouterr().err
