"""`tapes doctor`: lines for people, one document for programs, a status for scripts."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tapes.store.sqlite import open_sqlite
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


def log_row(cwd: Path) -> dict[str, str]:
    with serving(answer()) as upstream:
        report = json.loads(typed("doctor", "--upstream", upstream.url, "--json", cwd=cwd).out)
    (row,) = [check for check in report["checks"] if check["check"] == "log"]
    return dict(row)


def test_the_log_is_looked_at_and_not_made(on_disk: Path) -> None:
    assert "is made with the first call" in log_row(on_disk)["what"]
    assert not (on_disk / ".tapes" / "tapes.db").exists()
    typed("seed", cwd=on_disk)
    assert log_row(on_disk)["level"] == "ok"


def test_what_failed_and_what_was_set_aside_on_the_way_into_the_log_shows(on_disk: Path) -> None:
    typed("seed", cwd=on_disk)
    with closing(open_sqlite(on_disk / ".tapes" / "tapes.db")) as store:
        store.mark_dirty()
        with store.take(1, ready_at=2**62, overdue_at=2**62) as work:
            work.fail(work.taken[0], "as a test wants it")
    row = log_row(on_disk)
    assert (row["level"], "1 session" in row["what"]) == ("warning", True)
    spool = on_disk / ".tapes" / "spool" / "tapes.db"
    spool.mkdir(parents=True)
    (spool / "1.damaged").write_bytes(b"?")
    assert "set aside" in log_row(on_disk)["what"]


def test_a_log_that_cannot_be_read_is_a_failure(on_disk: Path) -> None:
    (on_disk / ".tapes").mkdir()
    (on_disk / ".tapes" / "tapes.db").write_bytes(b"this is no database" * 100)
    row = log_row(on_disk)
    assert (row["level"], row["remedy"] != "") == ("failure", True)


def test_a_tape_that_no_name_can_have_is_told_not_stumbled_over(tmp_path: Path) -> None:
    ended = typed("doctor", "--upstream", "http://127.0.0.1:1", "--tape", "x" * 300, cwd=tmp_path)
    assert ended.status == 1
    assert "Traceback" not in ended.err
