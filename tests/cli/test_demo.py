"""The demo, as a newcomer sees it: real processes, the real SDK, no network."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tapes

SOURCES = {"PYTHONPATH": str(Path(tapes.__file__).parents[1])}


def demo(*args: str, first: str = "", **environ: str) -> "subprocess.CompletedProcess[str]":
    code = f"{first}\nfrom tapes.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "demo", *args],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **SOURCES, **environ},
    )


@pytest.mark.row("N06")
def test_the_demo_replays_streams_misses_and_counts(in_tmp_path: Path) -> None:
    done = demo("--at-once")
    assert (done.returncode, done.stderr) == (0, "")
    for words in (
        "you    What is a unit test?",
        "で購入したモデルです。",
        "  cassette miss: ",
        "differs at messages[1].content",
        "exit status 1",
        "live calls  5",
        'with tapes.use("tests/tapes/mine.jsonl"):',
    ):
        assert words in done.stdout
    assert list(in_tmp_path.iterdir()) == []


def test_the_demo_replays_whatever_the_environment_says(in_tmp_path: Path) -> None:
    loud = {"DEMO_LIVE": "1", "CASSETTE_MODE": "live", "CASSETTE_LIVE_BUDGET": "5"}
    found = json.loads(demo("--at-once", "--json", **loud).stdout)
    assert found["miss"]["status"] == 1
    assert found["miss"]["said"].startswith("cassette miss: ")
    assert found["saved"]["calls"] == 5
    assert found["saved"]["tokens"] == 95 + 191 + 287
    assert [len(turn["answered"]) > 100 for turn in found["turns"]] == [True] * 3
    assert found["streams"][0]["answered"].count("ShoppingCart") == 2


def test_the_demo_keeps_the_recorded_pauses_unless_told_otherwise() -> None:
    found = json.loads(demo("--json").stdout)
    assert found["seconds"] >= 0.89 + 1.26


def test_without_the_sdk_the_demo_says_what_to_install() -> None:
    done = demo(first="import sys; sys.modules['openai'] = None")
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install openai" in done.stderr
