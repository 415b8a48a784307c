"""`tapes serve` on PostgreSQL: killed under load, the database gone meanwhile; a tour by hand."""

import contextlib
import json
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tapes.keeping import open_projector, open_store
from tapes.opening import Where
from tests.commands import PATIENCE_S, started, typed
from tests.ingest.payloads import payload
from tests.postgres import Postgres

CLIENTS, SESSIONS = 4, 20


@contextlib.contextmanager
def everything(folder: Path, env: dict[str, str]) -> Iterator[tuple[Any, dict[str, str]]]:
    """`tapes serve` as a process, and the addresses at which it listens."""
    listen = [f"--{name}-listen=127.0.0.1:0" for name in ("api", "proxy", "ingest")]
    with (folder / "log").open("ab") as log:
        process = started(
            "serve",
            "--json",
            *listen,
            cwd=folder,
            env=env,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    assert process.stdout is not None
    said = ""
    try:
        for line in process.stdout:
            said += line.decode()
            with contextlib.suppress(ValueError):
                yield process, json.loads(said)["addresses"]
                break
        else:
            raise AssertionError((folder / "log").read_text())
    finally:
        process.kill()
        process.wait(PATIENCE_S)
        process.stdout.close()


class Load:
    """Clients that send turns until told to stop, each again until it is acknowledged."""

    def __init__(self) -> None:
        self.door = ""
        self.acknowledged: list[str] = []
        self._more = threading.Condition()
        self._stop = threading.Event()
        self._clients = [threading.Thread(target=self._send, args=(n,)) for n in range(CLIENTS)]

    def __enter__(self) -> "Load":
        for client in self._clients:
            client.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Send nothing more."""
        self._stop.set()
        for client in self._clients:
            client.join()

    def _send(self, client: int) -> None:
        number = 0
        with httpx.Client(timeout=30) as http:
            while not self._stop.is_set():
                number += self._sent(http, client, number)

    def _sent(self, http: httpx.Client, client: int, number: int) -> bool:
        name = f"{client}-{number}"
        session = {"harness_id": "bench", "harness_session_id": f"s{number % SESSIONS}"}
        sent = payload(number, name, session=session)
        sent["meta"]["request_id"] = name
        with contextlib.suppress(httpx.HTTPError):
            if http.post(f"{self.door}/v1/ingest", json=sent).status_code == 202:
                with self._more:
                    self.acknowledged.append(name)
                    self._more.notify_all()
                return True
        self._stop.wait(0.1)  # as a client does that was refused
        return False

    def more(self, count: int) -> None:
        """Wait until so many more are acknowledged."""
        wanted = len(self.acknowledged) + count
        with self._more:
            assert self._more.wait_for(lambda: len(self.acknowledged) >= wanted, 2 * PATIENCE_S)


@pytest.mark.slow
@pytest.mark.row("D2", "D3", "D7")
def test_no_acknowledged_turn_is_lost_when_server_and_database_fail(
    tmp_path: Path, postgres: Postgres, database: str
) -> None:
    env = {"TAPES_STORAGE_POSTGRES_DSN": database}
    with Load() as load:
        with everything(tmp_path, env) as (process, addresses):
            load.door = addresses["ingest"]
            load.more(100)
            process.kill()  # in the middle of it
        with everything(tmp_path, env) as (_, addresses):
            load.door = addresses["ingest"]
            load.more(50)
            postgres.stop()
            postgres.start()
            load.more(50)
            load.stop()
            derived(addresses["api"])
    store = open_store(Where.of(database))
    try:
        kept = {turn.request_id for turn in store.project().stream_turns()}
        assert set(load.acknowledged) <= kept
        assert store.check() == ()
        spans = {s.raw_turn_id for s in all_spans(store.project())}
        assert len(spans - {None}) == len(kept)
        assert list(open_projector(store).check()) == []
    finally:
        store.close()
    assert typed("derive", "--check", cwd=tmp_path, env=env).status == 0


def derived(api: str) -> None:
    """Wait until the server has derived all that came."""
    ends = time.monotonic() + 2 * PATIENCE_S
    with httpx.Client(base_url=api) as client:
        while client.get("/v1/export").headers["x-tapes-waiting-sessions"] != "0":
            assert time.monotonic() < ends
            client.get("/v1/changes", params={"after": 0})


def all_spans(project: Any) -> Iterator[Any]:
    for number in range(SESSIONS):
        for listed in project.sessions_of_harness(f"s{number}"):
            yield from project.rows_of_session(listed.session.id).spans


@pytest.mark.long
@pytest.mark.row("D7")
def test_what_people_type_works_on_postgresql(tmp_path: Path, database: str) -> None:
    env = {"TAPES_STORAGE_POSTGRES_DSN": database}

    def tapes(*args: str, status: int = 0) -> str:
        done = typed(*args, cwd=tmp_path, env=env)
        assert done.status == status, (args, done.out, done.err)
        return done.out + done.err

    tapes("seed")
    listed = json.loads(tapes("sessions", "list", "--json"))["sessions"]
    session = next(each["id"] for each in listed if each["harness_id"] == "claude")
    assert listed[0]["display_title"] in tapes("sessions", "list")
    assert session in tapes("sessions", "show", session[:8])
    assert json.loads(tapes("sessions", "show", session, "--json"))["session"]["id"] == session
    assert session[:8] in tapes("search", "rounding*")
    tapes("sessions", "export", "all.jsonl")
    assert "0 turns added" in tapes("sessions", "import", "all.jsonl")
    tapes("freeze", session, "-o", "frozen.jsonl")
    tapes("tape", "verify", "frozen.jsonl")
    assert "tapes db copy copy.db" in tapes("db", "backup", "copy.db", status=4)
    tapes("db", "copy", "copy.db")
    tapes("sessions", "delete", session, "--yes")
    tapes("sessions", "show", session, status=5)
    assert "nothing is damaged" in tapes("db", "check")
    tapes("derive", "--check")
    assert "turns added" in tapes("sessions", "import", "all.jsonl")
    tapes("sessions", "show", session, status=5)  # erased for good
