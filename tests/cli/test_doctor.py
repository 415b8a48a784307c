"""`tapes doctor`: lines for people, one document for programs, a status for scripts."""

import json
from pathlib import Path

import pytest

from tests.commands import typed
from tests.servers import answer, closed_port, serving


@pytest.mark.row("B10")
def test_it_says_for_each_check_what_it_found(tmp_path: Path) -> None:
    with serving(answer()) as upstream:
        ended = typed("doctor", "--upstream", upstream.url, cwd=tmp_path)
    assert ended.status == 0
    assert "ok   upstream" in ended.out
    assert "ok   space" in ended.out
    assert "warn long-running process: none was run here" in ended.out


def test_a_failure_ends_with_one_and_programs_get_a_document(tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{closed_port()}"
    ended = typed("doctor", "--upstream", url, "--json", cwd=tmp_path)
    assert ended.status == 1
    report = json.loads(ended.out)
    assert report["failures"] == 1
    (failure,) = [check for check in report["checks"] if check["level"] == "failure"]
    assert failure["check"].startswith("upstream")
    assert failure["remedy"]
