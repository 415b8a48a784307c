"""What a run did with a tape, and what replay saved."""

import json
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tapes.errors import CassetteMiss, MissingExtra, UnreadableTape
from tapes.exchange import Exchange, Piece, Request, Response, State
from tapes.providers.usage import Usage
from tapes.report import (
    KEPT_REFUSALS,
    Report,
    Savings,
    keep_report,
    runs_of,
    savings,
    unused,
    usage_of_exchange,
)
from tapes.tape.base import MemoryTape
from tapes.tape.jsonl import JsonlTape
from tests.running import run

USAGE = {"prompt_tokens": 10, "completion_tokens": 5}


def plain(key: str, response: Any = None) -> Exchange:
    return Exchange(key, "tape/1", {"a": key}, response or {"text": key})


def over_http(body: bytes, *headers: tuple[str, str]) -> Exchange:
    response = Response(200, headers, (Piece(0.1, body),))
    return Exchange("k", "http/1", Request("POST", "http://h/"), response)


# --- counting


@pytest.mark.row("N03", "B14")
def test_a_report_counts_and_says_how_often_an_answer_was_reused() -> None:
    report = Report(MemoryTape(), "record")
    report.recorded("a")
    report.count("live")
    report.served("a")
    report.served("a", 2)
    report.served("b")
    report.refused(CassetteMiss("missing", "remedy"))
    assert report.as_dict() == {
        "tape": "memory",
        "mode": "record",
        "served": 4,
        "reused": 3,
        "live": 1,
        "recorded": 1,
        "failed": 0,
        "refused": 1,
        "not_stored": 0,
        "incomplete": 0,
        "expired": 0,
        "refusals": ["missing"],
    }
    assert report.used == {"a", "b"}


def test_what_a_report_gives_away_cannot_change_it() -> None:
    report = Report(MemoryTape(), "record")
    report.hits["k"] += 1
    report.refusals.append("x")
    assert report.used == set()
    assert report.as_dict()["refusals"] == []


def test_all_refusals_are_counted_and_the_latest_kept() -> None:
    report = Report(MemoryTape(), "replay")
    for number in range(KEPT_REFUSALS + 7):
        report.refused(CassetteMiss(f"no {number}"))
    assert report.counts["refused"] == KEPT_REFUSALS + 7
    assert [report.refusals[0], report.refusals[-1]] == ["no 7", f"no {KEPT_REFUSALS + 6}"]
    assert [each.message for each in report.refused_since(KEPT_REFUSALS + 5)] == [
        f"no {KEPT_REFUSALS + 5}", f"no {KEPT_REFUSALS + 6}",
    ]  # fmt: skip
    assert report.refused_since(KEPT_REFUSALS + 7) == []


# --- savings


@pytest.mark.row("B14")
def test_savings_are_calls_bytes_tokens_and_dollars() -> None:
    hits = [(plain("a", {"model": "m", "usage": USAGE}), 3), (plain("b"), 2)]
    size = len(json.dumps(hits[0][0].response)) * 3 + len(json.dumps(hits[1][0].response)) * 2
    saved = savings(hits, lambda usage: Decimal(usage.total) / 100)
    assert saved == Savings(5, 45, Decimal("0.45"), 2, size)


def test_what_is_not_known_is_none_and_not_zero() -> None:
    saved = savings([(plain("b"), 2)], lambda _: Decimal(1))
    assert (saved.tokens, saved.usd, saved.unpriced) == (None, None, 2)


def test_without_prices_dollars_are_unknown() -> None:
    def no_prices(_: Usage) -> Decimal:
        raise MissingExtra("prices are an extra")

    saved = savings([(plain("a", {"usage": USAGE}), 3)], no_prices)
    assert (saved.tokens, saved.usd, saved.unpriced) == (45, None, 3)


def test_usage_is_read_from_answers_over_http_too() -> None:
    body = json.dumps({"usage": USAGE}).encode()
    assert usage_of_exchange(over_http(body, ("content-type", "application/json"))) == Usage(10, 5)
    coded = over_http(zlib.compress(body), ("content-encoding", "deflate"))
    assert usage_of_exchange(coded) == Usage(10, 5)
    assert usage_of_exchange(over_http(b"x", ("content-encoding", "gzip"))) is None


# --- kept beside the tape


@pytest.mark.row("N18")
def test_a_run_leaves_its_report_beside_the_tape(tmp_path: Path) -> None:
    tape = JsonlTape(tmp_path / "t.jsonl")
    for key in ("1" * 64, "2" * 64, "3" * 64):
        tape.append(plain(key))
    report = Report(tape, "replay")
    report.served("1" * 64, 2)
    report.recorded("2" * 64)
    keep_report(report)
    (seen,) = runs_of(tape)
    assert (seen.mode, seen.hits, seen.recordings) == ("replay", {"1" * 64: 2}, {"2" * 64: 1})
    assert [exchange.key for exchange in unused(tape, seen.used)] == ["3" * 64]
    tape.close()


def test_evidence_is_not_unused() -> None:
    evidence = Exchange("e" * 64, "http/1", None, Response(200), state=State.UPSTREAM_ERROR)
    assert unused(MemoryTape((plain("a" * 64), evidence)), {"a" * 64}) == []


def test_the_latest_runs_are_kept_and_come_first(tmp_path: Path) -> None:
    tape = JsonlTape(tmp_path / "t.jsonl")
    for n in range(55):
        report = Report(tape, "replay")
        report.served(f"k{n}")
        keep_report(report)
    runs = runs_of(tape)
    assert len(runs) == 50
    assert runs[0].hits == {"k54": 1}
    tape.close()


def test_a_run_that_did_nothing_leaves_nothing(tmp_path: Path) -> None:
    tape = JsonlTape(tmp_path / "t.jsonl")
    keep_report(Report(tape, "replay"))
    assert runs_of(tape) == []
    assert not (tmp_path / ".tapes").exists()
    assert runs_of(MemoryTape()) == []
    tape.close()


def test_reports_that_cannot_be_read_are_not_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / ".tapes").mkdir()
    (tmp_path / ".tapes" / "state.db").write_text("no database " * 100)
    tape = JsonlTape(tmp_path / "t.jsonl")
    with pytest.raises(UnreadableTape, match="this machine's alone"):
        runs_of(tape)
    tape.close()


def test_a_folder_that_cannot_be_written_has_no_report_and_no_error(tmp_path: Path) -> None:
    tape = JsonlTape(tmp_path / "t.jsonl")
    (tmp_path / ".tapes").write_text("in the way")
    report = Report(tape, "replay")
    report.served("k")
    keep_report(report)
    tape.close()


def test_a_forked_child_has_a_report_of_its_own(tmp_path: Path) -> None:
    result = run(
        """
        import os, sys
        from tapes import Cassette
        cassette = Cassette("t.jsonl", "record", lambda r: {"n": 1}, latch=True)
        cassette.call({"a": 1})
        cassette.call({"a": 1})
        cassette.call({"a": 1})
        pid = os.fork()
        if pid == 0:
            cassette.call({"a": 1})
            sys.exit(0)
        os.waitpid(pid, 0)
        """,
        tmp_path,
    )
    assert (result.returncode, result.stderr) == (0, "")
    tape = JsonlTape(tmp_path / "t.jsonl")
    parent, child = runs_of(tape)
    assert (sum(parent.hits.values()), sum(parent.recordings.values())) == (2, 1)
    assert (sum(child.hits.values()), sum(child.recordings.values())) == (1, 0)
    tape.close()
