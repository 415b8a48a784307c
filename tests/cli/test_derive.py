"""`tapes derive`: made anew it is the same, and what is not the same is told."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from tapes.keeping import open_projector, open_store
from tapes.opening import Where
from tapes.rows import DERIVATION
from tests.commands import PATIENCE_S, started, typed
from tests.derive.talks import conversation
from tests.proxies import wait_until


@pytest.fixture
def where(in_tmp_path: Path) -> Where:
    """A store with a conversation that is not derived yet, where commands find it."""
    where = Where(".tapes/tapes.db")
    store = open_store(where)
    store.append(list(conversation()))
    store.close()
    return where


@pytest.mark.row("D3")
def test_deriving_makes_sessions_and_deriving_again_changes_nothing(
    where: Where, in_tmp_path: Path
) -> None:
    first = typed("derive", "--json", cwd=in_tmp_path)
    assert first.status == 0, first.err
    assert json.loads(first.out)["changed"] > 0
    again = json.loads(typed("derive", "--json", cwd=in_tmp_path).out)
    assert (again["derived"], again["changed"], again["store"]) == (1, 0, str(where))
    checked = typed("derive", "--check", cwd=in_tmp_path)
    assert (checked.status, checked.out) == (0, ".tapes/tapes.db: a rebuild changes nothing\n")


def test_a_row_that_nobody_would_derive_is_told(where: Where, in_tmp_path: Path) -> None:
    store = open_store(where)
    open_projector(store).drain()
    store.close()
    edit = "import sqlite3; c = sqlite3.connect('.tapes/tapes.db');"
    edit += 'c.execute("UPDATE traces SET tool_calls = tool_calls + 1"); c.commit()'
    subprocess.run(["python3", "-c", edit], cwd=in_tmp_path, check=True)
    checked = typed("derive", "--check", cwd=in_tmp_path)
    assert checked.status == 1
    assert "differs in tool_calls" in checked.out


def test_a_log_of_an_older_version_is_told_and_derived_anew(
    where: Where, in_tmp_path: Path
) -> None:
    store = open_store(where)
    open_projector(store).drain()
    store.derived(0)
    store.close()
    checked = typed("derive", "--check", cwd=in_tmp_path)
    older = (
        "by an older version of Tapes: anew beside whatever serves it next, or now: tapes derive"
    )
    assert checked.status == 0
    assert checked.out.splitlines()[1:] == [f"  derived {older}"]
    assert f"derived   {older}" in typed("status", cwd=in_tmp_path).out
    log = json.loads(typed("status", "--json", cwd=in_tmp_path).out)["log"]
    assert (log["derived_by"], log["deriver"], log["done"]) == (0, DERIVATION, 0.0)
    assert json.loads(typed("derive", "--json", cwd=in_tmp_path).out)["derived_by"] == DERIVATION
    assert "derived " not in typed("status", cwd=in_tmp_path).out


def test_a_worker_derives_what_others_write(where: Where, in_tmp_path: Path) -> None:
    worker = started(
        "serve",
        "derive-worker",
        cwd=in_tmp_path,
        stderr=subprocess.PIPE,
    )
    try:
        store = open_store(where)
        wait_until(lambda: store.project().sessions().items, PATIENCE_S)
        store.close()
        worker.send_signal(signal.SIGTERM)
        _, said = worker.communicate(timeout=PATIENCE_S)
        assert worker.returncode == 0, said
        assert said.decode() == "tapes derive-worker: .tapes/tapes.db\n"
    finally:
        worker.kill()
        worker.communicate()
