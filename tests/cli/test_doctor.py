"""`tapes doctor`: lines for people, one document for programs, a status for scripts."""

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import typed
from tests.servers import answer, closed_port, serving


@pytest.fixture
def on_disk() -> Iterator[Path]:
    """A folder on a disk: tests may write into memory, with which the doctor finds fault."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        yield Path(name)


@pytest.mark.row("B10")
def test_it_says_for_each_check_what_it_found(on_disk: Path) -> None:
    with serving(answer()) as upstream:
        ended = typed("doctor", "--upstream", upstream.url, cwd=on_disk)
    assert ended.status == 0
    assert "ok   upstream" in ended.out
    assert "ok   space" in ended.out
    assert "warn long-running process: none was run here" in ended.out


def test_a_failure_ends_with_one_and_programs_get_a_document(on_disk: Path) -> None:
    url = f"http://127.0.0.1:{closed_port()}"
    ended = typed("doctor", "--upstream", url, "--json", cwd=on_disk)
    assert ended.status == 1
    report = json.loads(ended.out)
    assert report["failures"] == 1
    (failure,) = [check for check in report["checks"] if check["level"] == "failure"]
    assert failure["check"].startswith("upstream")
    assert failure["remedy"]
