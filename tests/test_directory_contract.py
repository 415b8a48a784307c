"""`resolve`, as the directory document has it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tapes import BudgetExhausted, CassetteMiss, resolve
from tapes.canonical import DIRECTORY, key_of

PAYLOAD = {"model": "m", "messages": [{"role": "user", "content": "é"}], "temperature": 0}


def upstream(payload: dict[str, Any]) -> dict[str, Any]:
    return {"echo": payload["messages"][0]["content"]}


@pytest.fixture
def recording(in_tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CASSETTE_MODE", "record")
    monkeypatch.setenv("CASSETTE_LIVE_BUDGET", "3")
    return in_tmp_path


@pytest.mark.row("B1", "B2", "B15")
def test_an_answer_is_a_file_of_plain_json_named_by_its_key(recording: Path) -> None:
    assert resolve(PAYLOAD, upstream) == {"echo": "é"}
    key = key_of(DIRECTORY.text(PAYLOAD))
    file = recording / "cassettes" / f"{key}.json"
    assert json.loads(file.read_text(encoding="utf-8")) == {"echo": "é"}


@pytest.mark.row("B15")
@pytest.mark.parametrize(("spent", "after"), [([], [2]), ([0], [2]), ([5], [7])])
def test_a_list_mirrors_the_count_of_live_calls(
    recording: Path, spent: list[int], after: list[int]
) -> None:
    for payload in (PAYLOAD, PAYLOAD, {**PAYLOAD, "seed": 1}):
        resolve(payload, upstream, spent)
    assert spent == after


@pytest.mark.row("B4", "B15")
def test_the_shared_budget_decides_whatever_the_list_says(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CASSETTE_LIVE_BUDGET", "1")
    resolve(PAYLOAD, upstream, [100])
    with pytest.raises(BudgetExhausted, match="budget=1"):
        resolve({**PAYLOAD, "seed": 1}, upstream, [0])


@pytest.mark.row("B4")
def test_without_a_budget_and_a_latch_nothing_is_live(
    in_tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CASSETTE_MODE", "record")
    with pytest.raises(BudgetExhausted, match="budget=0"):
        resolve(PAYLOAD, upstream)
    monkeypatch.setenv("DEMO_LIVE", "1")
    assert resolve(PAYLOAD, upstream) == {"echo": "é"}


@pytest.mark.row("B15")
def test_mode_and_directory_are_read_at_every_call(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resolve(PAYLOAD, upstream)
    monkeypatch.setenv("CASSETTE_DIR", "elsewhere")
    monkeypatch.setenv("CASSETTE_MODE", "replay")
    with pytest.raises(CassetteMiss):
        resolve(PAYLOAD, upstream)
    monkeypatch.delenv("CASSETTE_DIR")
    assert resolve(PAYLOAD, lambda _: pytest.fail("called")) == {"echo": "é"}


@pytest.mark.row("B2")
def test_an_existing_directory_replays_unchanged(in_tmp_path: Path) -> None:
    folder = in_tmp_path / "cassettes"
    folder.mkdir()
    key = key_of(DIRECTORY.text(PAYLOAD))
    (folder / f"{key}.json").write_text('{"echo": "caf\\u00e9", "n": 1.10}')
    volatile = {**PAYLOAD, "request_id": "r", "created": 1, "created_at": 2, "trace_id": "t"}
    assert resolve(volatile, lambda _: pytest.fail("called")) == {"echo": "café", "n": 1.1}
