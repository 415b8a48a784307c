import sqlite3
import subprocess
import sys
from contextlib import closing
from decimal import Decimal
from pathlib import Path

import pytest

import tapes
from tapes.budget import CALLS, RUN, TOKENS, USD, Ledger, Limits, Reserve, Unit
from tapes.cassette import Cassette
from tapes.errors import CassetteError, NotAnAnswer, TapesError, UnreadableTape
from tapes.spending import account_of, accounts_below, forget_spending
from tapes.stats import stats_of
from tapes.tape.beside import make_local
from tests.making import KINDS, call, tape_in

SOURCES = {"PYTHONPATH": str(Path(tapes.__file__).parents[1])}


def spend(path: str, kind: str, prompt: str) -> None:
    with Cassette(
        path, "record", lambda _: {"ok": True}, limits=Limits(calls=9), canonicalizer="tape/1"
    ) as cassette:
        cassette.call({"prompt": prompt})


@pytest.mark.row("N17")
@pytest.mark.parametrize("kind", KINDS)
def test_who_spent_what_and_what_is_left(tmp_path: Path, kind: str) -> None:
    path = tape_in(tmp_path, kind, [call("one")])
    spend(path, kind, "two")
    account = account_of(path, {CALLS: "3"})
    (line,) = account.lines
    assert (line.spend.key, line.spend.state, line.is_lost) == (call("two").key, "spent", False)
    assert account.left == Limits(calls=2)


@pytest.mark.row("N17", "B5")
@pytest.mark.parametrize("kind", KINDS)
def test_what_was_spent_is_shown_and_reset_where_nothing_was_ever_kept(
    tmp_path: Path, kind: str
) -> None:
    path = f"{tmp_path}/{KINDS[kind]}"
    with (
        Cassette(path, "record", lambda _: {1, 2}, limits=Limits(calls=1)) as cassette,
        pytest.raises(NotAnAnswer),
    ):
        cassette.call({"prompt": "one"})
    assert len(account_of(path, {}).counted) == 1
    assert forget_spending(path) == 1
    with pytest.raises(UnreadableTape):
        account_of(path, {})


def test_the_call_of_a_killed_process_stays_open_and_counts(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one")])
    code = (
        "import os, signal, sys\n"
        "from tapes import Cassette\n"
        "live = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "Cassette(sys.argv[1], 'record', live).call({'prompt': 'two'})"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], env={CALLS: "3", **SOURCES}, check=False
    )
    assert done.returncode == -9
    account = account_of(path, {CALLS: "3"})
    (line,) = account.lines
    assert (line.spend.state, line.is_lost) == ("open", True)
    assert account.left == Limits(calls=2)


def test_limits_of_tokens_and_money(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one")])
    limits = Limits(tokens=100, usd=Decimal("0.5"))
    ledger = Ledger(tmp_path / ".tapes" / "state.db", "t.jsonl", "")
    (tmp_path / ".tapes").mkdir(exist_ok=True)
    unit = ledger.take("ab" * 32, limits, Reserve(60, Decimal("0.2")))
    assert isinstance(unit, Unit)
    ledger.settle(unit, 40, Decimal("0.1"))
    ledger.close()
    account = account_of(path, {TOKENS: "100", USD: "0.5"})
    assert account.left == Limits(None, 60, Decimal("0.4"))


def test_what_was_given_back_does_not_count(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one")])

    def fail(_: object) -> object:
        raise ConnectionError("no route")

    with (
        Cassette(path, "record", fail, limits=Limits(calls=9)) as cassette,
        pytest.raises(ConnectionError),
    ):
        cassette.call({"prompt": "two"})
    account = account_of(path, {CALLS: "3"})
    assert [line.spend.state for line in account.lines] == ["returned"]
    assert account.left == Limits(calls=3)


def test_each_named_run_has_its_own_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one")])
    monkeypatch.setenv(RUN, "nightly")
    spend(path, "jsonl", "two")
    assert len(account_of(path, {RUN: "nightly"}).lines) == 1
    assert account_of(path, {}).lines == ()


def test_a_count_begins_anew_for_one_tape_only(tmp_path: Path) -> None:
    one = tape_in(tmp_path, "jsonl", [call("one")])
    other = tape_in(tmp_path, "sqlite", [call("one")])
    spend(one, "jsonl", "two")
    spend(other, "sqlite", "two")
    assert forget_spending(one) == 1
    assert account_of(one, {}).lines == ()
    assert len(account_of(other, {}).lines) == 1


def test_all_accounts_below_a_folder(in_tmp_path: Path) -> None:
    Path("deep").mkdir()
    one = tape_in(Path("deep"), "jsonl", [call("one")])
    other = tape_in(Path(), "directory", [call("one")])
    spend(one, "jsonl", "two")
    spend(other, "directory", "two")
    assert sorted(account.path for account in accounts_below(".", {})) == ["deep/t.jsonl", "t"]


def test_a_tape_without_live_calls_has_an_empty_account(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one")])
    assert account_of(path, {}).lines == ()
    assert forget_spending(path) == 0
    assert not (tmp_path / ".tapes").exists()


def test_a_ledger_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one")])
    (tmp_path / ".tapes").mkdir()
    (tmp_path / ".tapes" / "state.db").write_bytes(b"no database" * 100)
    with pytest.raises((TapesError, CassetteError), match=r"state\.db"):
        account_of(path, {})


def test_a_ledger_that_cannot_be_read_is_an_error_that_ends_nobody(tmp_path: Path) -> None:
    path = tape_in(tmp_path, "jsonl", [call("one")])
    with closing(sqlite3.connect(make_local(tmp_path / ".tapes") / "state.db")) as connection:
        connection.execute("CREATE TABLE spends (tape TEXT, run TEXT, state TEXT)")
    with pytest.raises(UnreadableTape, match=r"state\.db"):
        account_of(path, {})
    with pytest.raises(UnreadableTape, match=r"state\.db"):
        stats_of(path, lambda _: None)
