"""`tapes tape refresh` and `tapes tape verify --live` as they are typed."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tapes.cli.main import run
from tapes.tape.jsonl import JsonlTape
from tests.loopback import Provider, provider
from tests.test_refreshing import Changing, ask, chat, record

Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Typed:
    """Types a command of `tapes tape`; gives its exit status, output and errors."""

    def type_it(*args: str) -> tuple[int, str, str]:
        status = run(["tape", *args])
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return type_it


@pytest.fixture
def answering() -> Changing:
    return Changing()


@pytest.fixture
def at(
    answering: Changing, in_tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Provider]:
    """A provider that the environment knows, and t.jsonl with two recordings of it."""
    with provider(answering) as where:
        monkeypatch.setenv("OPENAI_BASE_URL", where.url + "/v1")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-today")
        tape = JsonlTape("t.jsonl")
        record(tape, ask(where, "a"), ask(where, "b"))
        tape.close()
        where.requests.clear()
        yield where


@pytest.fixture
def latch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMO_LIVE", "1")


@pytest.mark.row("A12-refresh")
@pytest.mark.parametrize("command", [("verify", "--live"), ("refresh", "--changed")])
def test_behind_a_closed_latch_nothing_is_sent(
    command: tuple[str, ...], at: Provider, typed: Typed
) -> None:
    before = Path("t.jsonl").read_bytes()
    status, _, err = typed(*command, "t.jsonl")
    assert status == 1
    assert "the latch is closed" in err
    assert "DEMO_LIVE=1" in err
    assert not at.requests
    assert Path("t.jsonl").read_bytes() == before


@pytest.mark.usefixtures("latch")
def test_verify_live_shows_each_change_and_ends_with_status_1(
    at: Provider, answering: Changing, typed: Typed
) -> None:
    assert typed("verify", "--live", "t.jsonl")[0] == 0
    answering.now = {"b": chat("something\nelse")}
    status, out, _ = typed("verify", "--live", "t.jsonl")
    assert status == 1
    assert out.splitlines()[-4:] == [
        "    content of choices[0].message.content",
        "      - about b",
        "      + something⏎else",
        "t.jsonl: 1 same, 1 changed",
    ]
    assert typed("verify", "--live", "--ignore", "content", "t.jsonl")[0] == 0


@pytest.mark.usefixtures("latch")
def test_verify_live_tells_programs_every_change_with_its_kind(
    at: Provider, answering: Changing, typed: Typed
) -> None:
    answering.now = {"b": chat("something else")}
    _, out, _ = typed("verify", "--live", "--json", "t.jsonl")
    told = json.loads(out)
    assert told["counts"] == {"same": 1, "changed": 1}
    assert told["refusal"] is None
    assert {change["kind"] for change in told["checked"][1]["changes"]} >= {"content", "id"}


def test_verify_without_live_is_what_it_was(at: Provider, typed: Typed) -> None:
    assert typed("verify", "t.jsonl")[0] == 0
    assert typed("verify", "--ignore", "content", "t.jsonl")[0] == 2
    assert typed("verify", "--live", "--mend", "t.jsonl")[0] == 2
    assert not at.requests


@pytest.mark.usefixtures("latch")
def test_refresh_records_what_changed_and_only_that(
    at: Provider, answering: Changing, typed: Typed
) -> None:
    before = Path("t.jsonl").read_bytes()
    answering.now = {"b": chat("something else")}
    status, out, _ = typed("refresh", "--changed", "t.jsonl")
    assert status == 0
    assert out.endswith("t.jsonl: 1 same, 1 recorded\n")
    after = Path("t.jsonl").read_bytes()
    assert after.startswith(before)
    assert after.count(b"\n") == 3


def test_a_dry_run_says_what_would_be_sent_and_needs_no_permission(
    at: Provider, typed: Typed
) -> None:
    status, out, _ = typed("refresh", "--older-than", "0d", "--dry-run", "t.jsonl")
    assert status == 0
    assert "expired: 0 minutes old" in out
    assert out.endswith("2 requests would be sent\n")
    _, out, _ = typed("refresh", "--older-than", "1d", "--dry-run", "--json", "t.jsonl")
    assert json.loads(out) == {"tape": "t.jsonl", "would_send": []}
    assert not at.requests


@pytest.mark.row("N17")
def test_a_budget_bounds_a_refresh_and_says_what_is_left(
    at: Provider, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CASSETTE_LIVE_BUDGET", "1")
    status, out, err = typed("refresh", "--older-than", "0d", "t.jsonl")
    assert status == 1
    assert out.endswith("t.jsonl: 1 recorded, 1 left\n")
    assert "budget exhausted" in err
    assert len(at.requests) == 1


@pytest.mark.usefixtures("latch")
def test_the_age_may_come_from_the_project(at: Provider, typed: Typed) -> None:
    assert typed("refresh", "--expired", "t.jsonl")[0] == 2
    Path("tapes.toml").write_text('max_age = "0m"\n')
    assert typed("refresh", "--expired", "t.jsonl")[1].endswith("2 recorded\n")


@pytest.mark.usefixtures("latch")
def test_what_another_tape_has_is_recorded_where_it_is_missing(at: Provider, typed: Typed) -> None:
    JsonlTape("new.jsonl").close()
    Path("new.jsonl").touch()
    status, out, _ = typed("refresh", "--wanted", "t.jsonl", "new.jsonl")
    assert status == 0, out
    assert out.endswith("new.jsonl: 2 recorded\n")
    assert typed("refresh", "--wanted", "t.jsonl", "new.jsonl")[1].endswith("nothing to send\n")


@pytest.mark.usefixtures("latch")
def test_what_cannot_be_sent_is_told_with_what_to_do(
    at: Provider, typed: Typed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    status, out, _ = typed("refresh", "--changed", "t.jsonl")
    assert status == 1
    assert "OPENAI_API_KEY is not set" in out
    assert "export OPENAI_API_KEY=…" in out
    assert not at.requests


def test_a_refresh_has_to_say_what_it_is_for(at: Provider, typed: Typed) -> None:
    status, _, err = typed("refresh", "t.jsonl")
    assert status == 2
    assert "--older-than" in err


@pytest.mark.usefixtures("latch")
def test_a_tape_that_is_not_there_is_an_error(in_tmp_path: Path, typed: Typed) -> None:
    assert typed("verify", "--live", "absent.jsonl")[0] == 3
    assert typed("refresh", "--changed", "absent.jsonl")[0] == 3
    assert not Path("absent.jsonl").exists()
