"""Latch and budget, counted across threads and processes."""

import os
import signal
import threading
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes.budget import (
    CALLS,
    LATCH,
    RUN,
    TOKENS,
    USD,
    Ledger,
    Limits,
    Reserve,
    Spent,
    Unit,
    latch_is_on,
    reset,
    spends,
)
from tapes.errors import BadSetting, LedgerFailed
from tests.running import run_together, start

ONE = Reserve()


def take(ledger: Ledger, limits: Limits, reserve: Reserve = ONE) -> Unit:
    taken = ledger.take("k" * 64, limits, reserve)
    assert isinstance(taken, Unit)
    return taken


def is_refused(ledger: Ledger, limits: Limits, reserve: Reserve = ONE) -> bool:
    return isinstance(ledger.take("k" * 64, limits, reserve), Spent)


# --- settings


@pytest.mark.parametrize(
    ("value", "on"), [("1", True), ("0", False), ("true", False), ("", False), (" 1", False)]
)
def test_the_latch_is_the_word_1_and_nothing_else(value: str, on: bool) -> None:
    assert latch_is_on({LATCH: value}) is on
    assert not latch_is_on({})


def test_limits_are_read_from_the_environment() -> None:
    limits = Limits.of({CALLS: "3", TOKENS: " 100 ", USD: "0.50"})
    assert limits == Limits(3, 100, Decimal("0.50"))
    assert str(limits) == "3 calls, 100 tokens, 0.50 USD"
    assert not Limits.of({CALLS: ""}).are_set


@pytest.mark.parametrize("value", ["many", "-1", "1.5", "nan"])
def test_a_limit_that_is_no_number_is_named(value: str) -> None:
    with pytest.raises(BadSetting, match=rf"{CALLS}='{value}'.*\nfor example: {CALLS}=20"):
        Limits.of({CALLS: value})


@pytest.mark.parametrize("value", ["nan", "-0.1", "ten"])
def test_an_amount_that_is_no_number_is_named(value: str) -> None:
    with pytest.raises(BadSetting, match=USD):
        Limits.of({USD: value})


@given(
    st.integers(0, 5),
    st.integers(0, 100),
    st.decimals(0, 10, places=2),
    st.integers(0, 50),
    st.decimals(0, 5, places=2),
)
def test_one_more_call_never_passes_a_limit(
    calls: int, tokens: int, usd: Decimal, more_tokens: int, more_usd: Decimal
) -> None:
    spent = Spent(calls, tokens, usd, None)
    limits = Limits(3, 60, Decimal(5))
    fits = calls < 3 and tokens + more_tokens <= 60 and usd + more_usd <= 5
    assert spent.leaves_room_for(Reserve(more_tokens, more_usd), limits) is fits
    assert spent.leaves_room_for(Reserve(more_tokens, more_usd), Limits())


# --- counting


def test_units_are_taken_until_the_limit(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "state.db", "t")
    for _ in range(3):
        take(ledger, Limits(calls=3))
    assert is_refused(ledger, Limits(calls=3))
    take(ledger, Limits(calls=4))


@pytest.mark.row("N17")
def test_a_unit_that_is_given_back_is_free_again(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "state.db", "t")
    ledger.give_back(take(ledger, Limits(calls=1, tokens=10), Reserve(10)))
    assert ledger.spent() == Spent(0, 0, Decimal(0), None)
    take(ledger, Limits(calls=1, tokens=10), Reserve(10))


@pytest.mark.row("N17")
def test_what_a_call_really_cost_takes_the_place_of_its_reserve(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "state.db", "t")
    limits = Limits(tokens=100, usd=Decimal(1))
    unit = take(ledger, limits, Reserve(90, Decimal("0.9")))
    assert is_refused(ledger, limits, Reserve(20))
    ledger.settle(unit, 30, Decimal("0.25"))
    spent = ledger.spent()
    assert (spent.calls, spent.tokens, spent.usd) == (1, 30, Decimal("0.25"))
    take(ledger, limits, Reserve(70, Decimal("0.75")))


def test_a_cost_that_nobody_knows_stays_what_was_set_aside(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "state.db", "t")
    ledger.settle(take(ledger, Limits(tokens=100), Reserve(40)), None, None)
    assert ledger.spent().tokens == 40


def test_tapes_and_runs_are_counted_apart(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    limits = Limits(calls=1)
    take(Ledger(path, "t"), limits)
    assert is_refused(Ledger(path, "t"), limits)
    take(Ledger(path, "another"), limits)
    take(Ledger(path, "t", "nightly"), limits)


def test_the_run_is_named_by_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN, "nightly")
    take(Ledger(tmp_path / "state.db", "t"), Limits(calls=1))
    assert spends(tmp_path / "state.db")[0].run == "nightly"


def test_the_ledger_says_who_spent_what_and_forgets_when_told(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    ledger = Ledger(path, "t")
    ledger.settle(take(ledger, Limits(calls=9)), 5, Decimal("0.01"))
    take(Ledger(path, "u"), Limits(calls=9))
    first, second = spends(path)
    assert (first.tape, first.state, first.tokens, first.usd) == ("t", "spent", 5, Decimal("0.01"))
    assert (second.tape, second.state, second.pid) == ("u", "open", os.getpid())
    assert reset(path, "t") == 1
    assert [line.tape for line in spends(path)] == ["u"]
    assert reset(path) == 1
    assert ledger.spent().calls == 0


def test_without_a_ledger_nothing_was_spent(tmp_path: Path) -> None:
    assert spends(tmp_path / "none.db") == []
    assert reset(tmp_path / "none.db") == 0


def test_a_ledger_in_memory_counts_for_its_tape_in_memory() -> None:
    ledger = Ledger(None, "memory")
    take(ledger, Limits(calls=1))
    assert is_refused(ledger, Limits(calls=1))
    ledger.close()


def test_a_ledger_that_cannot_be_kept_permits_nothing(tmp_path: Path) -> None:
    broken = tmp_path / "state.db"
    broken.write_text("this is no database, whatever its name says" * 50)
    with pytest.raises(LedgerFailed, match=r"state\.db"):
        Ledger(broken, "t").take("k", Limits(calls=1), ONE)
    with pytest.raises(LedgerFailed):
        spends(broken)


def test_a_ledger_on_a_full_disk_asks_for_room(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "state.db", "t")
    take(ledger, Limits(calls=1))
    ledger._connection.execute("PRAGMA max_page_count = 1")  # type: ignore[union-attr]  # open
    with pytest.raises(LedgerFailed, match="disk is full") as caught:
        ledger.take("k" * 100_000, Limits(calls=2), ONE)
    assert caught.value.remedy == f"free space on that disk: df -h {tmp_path}"
    ledger.close()


@pytest.mark.row("B5", "N17")
def test_threads_never_take_more_than_the_limit(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "state.db", "t")
    taken: list[Unit | Spent] = []

    def work() -> None:
        taken.extend(ledger.take("k", Limits(calls=20), ONE) for _ in range(10))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(isinstance(unit, Unit) for unit in taken) == 20


TAKER = """
import sys
from decimal import Decimal
from pathlib import Path
from tapes.budget import Ledger, Limits, Reserve, Unit
limits = Limits({limits})
ledger = Ledger(Path("state.db"), "t")
print("ready", flush=True)
sys.stdin.readline()
taken = [ledger.take("k", limits, {reserve}) for _ in range({times})]
print(sum(isinstance(unit, Unit) for unit in taken))
"""


@pytest.mark.row("B5", "N17")
@pytest.mark.parametrize(
    ("limits", "reserve", "times", "expected"),
    [
        ("calls=3", "Reserve()", 1, 3),
        ("calls=500", "Reserve()", 100, 500),
        ("tokens=1000", "Reserve(90)", 5, 11),
        ("usd=Decimal('1')", "Reserve(0, Decimal('0.30'))", 5, 3),
    ],
    ids=["3 of 8 calls", "500 of 800 calls", "tokens", "dollars"],
)
def test_processes_that_start_at_once_never_pass_a_limit(
    limits: str, reserve: str, times: int, expected: int, tmp_path: Path
) -> None:
    code = TAKER.format(limits=limits, reserve=reserve, times=times)
    assert sum(map(int, run_together(8, code, tmp_path))) == expected


@pytest.mark.row("B5")
def test_a_unit_of_a_killed_process_stays_spent(tmp_path: Path) -> None:
    child = start(
        """
        import sys
        from pathlib import Path
        from tapes.budget import Ledger, Limits, Reserve
        Ledger(Path("state.db"), "t").take("k", Limits(calls=1), Reserve())
        print("taken", flush=True)
        sys.stdin.readline()
        """,
        tmp_path,
    )
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == "taken\n"
        child.send_signal(signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL
    assert is_refused(Ledger(tmp_path / "state.db", "t"), Limits(calls=1))


def test_a_forked_child_counts_on_a_connection_of_its_own(tmp_path: Path) -> None:
    child = start(
        """
        import os, sys
        from pathlib import Path
        from tapes.budget import Ledger, Limits, Reserve, Unit
        ledger = Ledger(Path("state.db"), "t")
        ledger.take("k", Limits(calls=2), Reserve())
        pid = os.fork()
        taken = ledger.take("k", Limits(calls=3), Reserve())
        if pid == 0:
            os._exit(0 if isinstance(taken, Unit) else 1)
        print(os.waitpid(pid, 0)[1], ledger.spent().calls)
        """,
        tmp_path,
    )
    out, err = child.communicate(timeout=60)
    assert (out, err) == ("0 3\n", "")


def test_a_fork_while_another_thread_counts_leaves_both_sides_counting(tmp_path: Path) -> None:
    child = start(
        """
        import os, signal, threading
        from pathlib import Path
        from tapes.budget import Ledger, Limits, Reserve, Unit
        ledger = Ledger(Path("state.db"), "t")
        counting, go_on = threading.Event(), threading.Event()

        def count():
            with ledger._transaction() as connection:
                counting.set()
                go_on.wait(20)
                connection.execute("DELETE FROM spends")

        ledger.take("k", Limits(calls=9), Reserve())
        thread = threading.Thread(target=count)
        thread.start()
        counting.wait(20)
        threading.Timer(0.2, go_on.set).start()
        pid = os.fork()
        taken = ledger.take("k", Limits(calls=9), Reserve())
        if pid == 0:
            os._exit(0 if isinstance(taken, Unit) else 1)
        print(os.waitpid(pid, 0)[1], ledger.spent().calls)
        thread.join()
        """,
        tmp_path,
    )
    out, err = child.communicate(timeout=60)
    assert (out, err) == ("0 2\n", "")


@pytest.mark.row("N17")
@pytest.mark.parametrize(
    "limits", [{"calls": -1}, {"calls": True}, {"tokens": 1.5}, {"usd": "1"}, {"usd": 0.1}]
)
def test_what_cannot_be_a_limit_is_refused_before_a_call(limits: dict[str, Any]) -> None:
    with pytest.raises(BadSetting, match=r"from 0 up\nfor example: Limits\("):
        Limits(**limits)


def test_a_number_of_dollars_that_is_none_is_no_limit() -> None:
    with pytest.raises(BadSetting):
        Limits(usd=Decimal("nan"))
