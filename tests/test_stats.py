import time
from decimal import Decimal
from pathlib import Path

import pytest

from tapes.budget import Limits
from tapes.cassette import Cassette
from tapes.errors import CassetteMiss, MissingExtra
from tapes.providers.usage import Usage
from tapes.report import KEPT_RUNS, Run
from tapes.stats import grouped, latest_used, stats_of
from tests.making import KINDS, call, chat, tape_in
from tests.tape.faults import without_rights


def cent(usage: Usage) -> Decimal | None:
    return Decimal("0.01") if usage.model == "m-1" else None


def counted(prompt: str, model: str = "m-1") -> object:
    from dataclasses import replace

    usage = {"prompt_tokens": 10, "completion_tokens": 5}
    return replace(call(prompt), response={"text": "ok", "model": model, "usage": usage})


def run_of(pid: int, started: float, ended: float, *keys: str) -> Run:
    return Run("replay", pid, started, ended, {}, dict.fromkeys(keys, 1), {})


@pytest.mark.row("B14")
@pytest.mark.parametrize("kind", KINDS)
def test_what_runs_did_and_what_replay_saved(tmp_path: Path, kind: str) -> None:
    exchanges = [counted("one"), counted("two", "unknown-model"), call("three"), chat("x")]
    path = tape_in(tmp_path, kind, exchanges)  # type: ignore[arg-type]  # exchanges all
    with Cassette(path, canonicalizer="tape/1") as cassette:
        for prompt in ("one", "one", "one", "two"):
            cassette.call({"prompt": prompt})
        with pytest.raises(CassetteMiss):
            cassette.call({"prompt": "never recorded"})
    found = stats_of(path, cent)
    assert (found.served, found.total("live"), found.total("refused")) == (4, 0, 1)
    assert (found.saved.calls, found.saved.tokens) == (4, 60)
    assert (found.saved.usd, found.saved.unpriced) == (Decimal("0.03"), 1)
    assert found.saved.bytes > 0
    assert found.unused == 2


@pytest.mark.row("B14")
def test_what_a_tape_holds(tmp_path: Path) -> None:
    exchanges = [
        counted("one"), counted("one"), counted("two", "other"), call("three"),
        chat("x", "a"), chat("x", "b", sample=1),
    ]  # fmt: skip
    found = stats_of(tape_in(tmp_path, "jsonl", exchanges), cent).recorded  # type: ignore[arg-type]
    assert (found.answers, found.superseded, found.samples) == (5, 1, 1)
    assert (found.input_tokens, found.output_tokens, found.without_usage) == (30, 15, 3)
    assert (found.usd, found.unpriced) == (Decimal("0.02"), 1)
    assert found.models == {"m-1": 2, "other": 1}
    assert found.first is not None
    assert found.last is not None
    assert found.first < found.last


def test_a_tape_without_runs_here_has_none(tmp_path: Path) -> None:
    found = stats_of(tape_in(tmp_path, "jsonl", [call("one")]), cent)
    assert (found.runs, found.saved.calls, found.unused) == ((), 0, None)


def test_a_tape_where_nobody_may_write_tells_of_its_runs_and_calls_all_the_same() -> None:
    with without_rights() as folder:
        path = folder / "t.jsonl"
        with Cassette(path, "record", lambda _: {"a": 1}, limits=Limits(calls=3)) as cassette:
            cassette.call({"prompt": "one"})
        for file in (folder / ".tapes" / "state.db", path):
            file.chmod(0o400)
        for place in (folder / ".tapes", folder):
            place.chmod(0o500)
        found = stats_of(path, cent)
        assert (len(found.runs), len(found.spent)) == (1, 1)


def test_without_the_price_table_no_price_is_known(tmp_path: Path) -> None:
    def missing(_: Usage) -> Decimal | None:
        raise MissingExtra("prices are an extra", "pip install …")

    found = stats_of(tape_in(tmp_path, "jsonl", [counted("one")]), missing)  # type: ignore[list-item]
    assert (found.recorded.usd, found.recorded.unpriced) == (None, 1)


@pytest.mark.row("N18")
def test_what_one_process_did_is_one_run_however_often_it_opened_the_tape() -> None:
    runs = [run_of(7, 10, 11, "a"), run_of(7, 50, 51, "b"), run_of(3, 1, 2, "old")]
    assert latest_used(runs, 1) == {"a", "b"}
    assert latest_used(runs, 2) == {"a", "b", "old"}


@pytest.mark.row("N18")
def test_workers_that_ran_at_the_same_time_are_one_run() -> None:
    runs = [run_of(1, 10, 20, "a"), run_of(2, 15, 40, "b"), run_of(3, 35, 36, "c"), run_of(4, 1, 9)]
    assert latest_used(runs, 1) == {"a", "b", "c"}
    assert [len(group) for group in grouped(runs)] == [3, 1]


def test_a_run_that_used_the_tape_more_often_than_is_kept_says_nothing_of_the_rest() -> None:
    runs = [run_of(7, n, n + 1, str(n)) for n in range(KEPT_RUNS)]
    assert latest_used(runs, 1) is None
    assert latest_used([*runs[1:], run_of(3, -9, -8, "old")], 1) is not None


def test_no_runs_say_nothing_of_what_is_unused() -> None:
    assert latest_used([], 1) is None


def test_a_report_of_a_real_run_names_the_keys_that_it_used(tmp_path: Path) -> None:
    from tapes.report import runs_of
    from tapes.tape.kinds import open_tape

    path = tape_in(tmp_path, "jsonl", [call("one"), call("two")])
    before = time.time()
    with Cassette(path) as cassette:
        cassette.call({"prompt": "one"})
    tape = open_tape(path)
    runs = runs_of(tape)
    assert latest_used(runs, 1) == {call("one").key}
    assert before - 1 <= runs[0].started <= runs[0].ended
    tape.close()
