"""The examples do what they say, as programs of their own."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.running import ROOT, run_file

TICKET = ROOT / "examples" / "ticket" / "demo.py"
LOOP = ROOT / "examples" / "loop" / "loop.py"
LINE = "STAND-IN: summarize the failing test: test_invoice_total\n"


def ticket(cwd: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    return run_file(TICKET, cwd, **settings)


def loop(cwd: Path, mode: str, budget: int, **settings: str) -> subprocess.CompletedProcess[str]:
    settings = {"CASSETTE_MODE": mode, "CASSETTE_LIVE_BUDGET": str(budget), **settings}
    return run_file(LOOP, cwd, **settings)


def answers(cwd: Path) -> list[str]:
    """What `ls cassettes` shows."""
    return sorted(path.name for path in (cwd / "cassettes").iterdir() if path.name[0] != ".")


@pytest.mark.row("A10", "A5", "A7")
def test_the_ticket_is_captured_once_and_replayed_with_the_latch_unset(tmp_path: Path) -> None:
    once = ticket(tmp_path, CASSETTE_MODE="record", DEMO_LIVE="1")
    replayed = ticket(tmp_path, CASSETTE_MODE="replay")
    assert (once.returncode, once.stdout, once.stderr) == (0, LINE, "")
    assert (replayed.returncode, replayed.stdout, replayed.stderr) == (0, LINE, "")
    assert (tmp_path / ".cassettes" / "agent-demo.jsonl").exists()


@pytest.mark.row("A10", "A6", "N01")
def test_one_changed_character_of_the_ticket_exits_non_zero(tmp_path: Path) -> None:
    ticket(tmp_path, CASSETTE_MODE="record", DEMO_LIVE="1")
    for settings in ({}, {"DEMO_LIVE": "1"}, {"CASSETTE_LIVE_BUDGET": "5"}):
        missed = ticket(
            tmp_path, TICKET="summarize the failing test: test_invoice_totaI", **settings
        )
        assert missed.returncode == 1
        assert missed.stdout == ""
        assert missed.stderr.startswith("cassette miss: ")
        assert "differs at prompt" in missed.stderr


def test_capturing_needs_the_latch(tmp_path: Path) -> None:
    refused = ticket(tmp_path, CASSETTE_MODE="record")
    assert refused.returncode == 1
    assert refused.stderr.startswith("the latch is closed: ")


@pytest.mark.row("B6", "B15", "B1")
def test_the_loop_leaves_one_answer_a_question_and_replays_without_a_call(tmp_path: Path) -> None:
    recorded = loop(tmp_path, "record", 200)
    assert recorded.returncode == 0, recorded.stderr
    assert recorded.stdout.endswith("live calls: 3\n")
    before = answers(tmp_path)
    assert len(before) == 3
    replayed = loop(tmp_path, "replay", 0)
    assert replayed.returncode == 0, replayed.stderr
    assert replayed.stdout == recorded.stdout.replace("calls: 3", "calls: 0")
    assert answers(tmp_path) == before


@pytest.mark.row("B6", "B4")
def test_one_changed_character_of_the_loop_adds_one_answer_and_spends_one_call(
    tmp_path: Path,
) -> None:
    loop(tmp_path, "record", 200)
    before = answers(tmp_path)
    changed = {"QUESTIONS": "what broke?|who wrote it?|how is it mended!"}
    refused = loop(tmp_path, "replay", 0, **changed)
    assert refused.returncode == 1
    assert "cassette miss" in refused.stderr
    assert answers(tmp_path) == before
    more = loop(tmp_path, "record", 200, **changed)
    assert more.stdout.endswith("live calls: 1\n")
    assert len(answers(tmp_path)) == len(before) + 1


@pytest.mark.row("B12")
def test_without_its_directory_the_loop_begins_anew(tmp_path: Path) -> None:
    loop(tmp_path, "record", 3)
    shutil.rmtree(tmp_path / "cassettes")
    assert loop(tmp_path, "record", 3).stdout.endswith("live calls: 3\n")
