"""Three services in three processes: killed, hung, slowed and changed while everybody is asked."""

import contextlib
import http.client
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tapes.services.traffic import Limits
from tests.commands import environment
from tests.servers import closed_port
from tests.services.hosting import Hosting, ask, hosting, until
from tests.services.test_mcp import rpc

Json = Any
SERVICE = '''
import asyncio, os
from pydantic import BaseModel
from tapes.services.kit import Service
from tapes.services.manifest import Manifest

service = Service(Manifest(name="any", version=os.environ["VERSION"], core="v1"))
delay = 0.0

class Delay(BaseModel):
    seconds: float

class Said(BaseModel):
    name: str
    version: str

@service.get("/who")
async def who() -> Said:
    """Say who answers."""
    await asyncio.sleep(delay)
    return Said(name=service.name, version=os.environ["VERSION"])

@service.post("/slow")
async def slow(asked: Delay) -> Delay:
    """Answer more slowly from now on."""
    global delay
    delay = asked.seconds
    return asked

if os.environ["VERSION"] == "2":
    @service.get("/more")
    def more() -> Said:
        """Only the second version has this."""
        return Said(name=service.name, version="2")

@service.tool("ask")
async def ask(asked: dict[str, str]) -> Said:
    """Say who answers."""
    return await who()

service.run()
'''
NAMES = ("steady", "killed", "troubled")
LIMITS = Limits(at_once=8, silence_s=3.0, rest_s=0.1, longest_rest_s=0.5)
# What a client may be told of a service that is in trouble.
BROKEN_OFF = "broken off"  # its end came in the middle of an answer, and the client is told so
EXPECTED = {BROKEN_OFF, "cassette_unavailable", "cassette_timeout", "cassette_busy"}


@dataclass
class Process:
    """A service as a process of its own, on a port that it keeps."""

    file: Path
    name: str
    port: int = field(default_factory=closed_port)
    running: "subprocess.Popen[bytes] | None" = None

    def start(self, version: str = "1") -> None:
        environ = {
            "CASSETTE_NAME": self.name, "CASSETTE_LISTEN": f"127.0.0.1:{self.port}",
            "VERSION": version,
        }  # fmt: skip
        self.running = subprocess.Popen(
            [sys.executable, str(self.file)], env=environment(environ), stderr=subprocess.DEVNULL
        )

    def signal(self, number: int) -> None:
        assert self.running is not None
        os.kill(self.running.pid, number)

    def end(self) -> None:
        if self.running is not None:
            self.running.kill()
            self.running.wait(20)

    @property
    def source(self) -> str:
        return f"http://127.0.0.1:{self.port}/openapi"


@dataclass
class Load:
    """Requests to one service, one after the other, and what came of them."""

    port: int
    name: str
    seen: "Counter[str]" = field(default_factory=Counter)

    def run(self, stopped: threading.Event) -> None:
        while not stopped.is_set():
            try:
                answered = ask(self.port, "GET", f"/v1/cassettes/{self.name}/who")
            except http.client.IncompleteRead:
                self.seen[BROKEN_OFF] += 1
                continue
            if answered.status == 200:
                # Nobody ever gets the answer of another service.
                assert answered.json["name"] == self.name
                self.seen[f"version {answered.json['version']}"] += 1
            else:
                self.seen[answered.json["error"]] += 1


@contextlib.contextmanager
def loaded(host: Hosting) -> Iterator[dict[str, Load]]:
    loads = {name: Load(host.port, name) for name in NAMES}
    stopped, failed = threading.Event(), list[BaseException]()

    def run(load: Load) -> None:
        try:
            load.run(stopped)
        except BaseException as error:  # noqa: BLE001  # raised at the end
            failed.append(error)

    threads = [threading.Thread(target=run, args=(load,)) for load in loads.values()]
    for thread in threads:
        thread.start()
    try:
        yield loads
    finally:
        stopped.set()
        for thread in threads:
            thread.join(30)
    if failed:
        raise failed[0]


def state(host: Hosting, name: str) -> str:
    return str(host.snapshot.services[name].health)


def grows(load: Load, what: str) -> None:
    """Wait until it happened again."""
    before = load.seen[what]
    until(lambda: load.seen[what] > before, f"{load.name}: {what}; {load.seen}")


@pytest.mark.long
@pytest.mark.row("C7", "C8", "C14")
def test_trouble_of_one_service_is_nobody_elses(tmp_path: Path) -> None:
    file = tmp_path / "service.py"
    file.write_text(SERVICE)
    steady, killed, troubled = (Process(file, name) for name in NAMES)
    sources = [process.source for process in (steady, killed, troubled)]
    try:
        for process in (steady, killed, troubled):
            process.start()
        with (
            hosting(*sources, ready=NAMES, interval_s=0.3, fetch_s=3.0, limits=LIMITS) as host,
            loaded(host) as loads,
        ):
            for load in loads.values():
                grows(load, "version 1")

            # Killed in the middle of everything; its document and its tools stay, it is down.
            killed.end()
            until(lambda: state(host, "killed") == "down", "down")
            grows(loads["killed"], "cassette_unavailable")
            grows(loads["killed"], "cassette_busy")
            grows(loads["steady"], "version 1")
            tools = [tool["name"] for tool in rpc(host, "tools/list")["result"]["tools"]]
            assert tools == [f"{name}.ask" for name in sorted(NAMES)]

            # Hung: its own callers are told so in time, and nobody else waits for it.
            troubled.signal(signal.SIGSTOP)
            grows(loads["troubled"], "cassette_timeout")
            until(lambda: state(host, "troubled") == "down", "down")
            grows(loads["steady"], "version 1")
            troubled.signal(signal.SIGCONT)
            until(lambda: state(host, "troubled") == "up", "up")
            grows(loads["troubled"], "version 1")

            # Slow, within its limit: it answers, slowly.
            slowed = ask(
                host.port, "POST", "/v1/cassettes/troubled/slow",
                {"Content-Type": "application/json"}, b'{"seconds": 0.2}',
            )  # fmt: skip
            assert slowed.status == 200, slowed.body
            grows(loads["troubled"], "version 1")
            assert state(host, "troubled") == "up"

            # Changed: it comes back as another version, and its document with it.
            killed.start("2")
            until(lambda: state(host, "killed") == "up", "up again")
            grows(loads["killed"], "version 2")
            until(lambda: "/v1/cassettes/killed/more" in host.json("/openapi")["paths"])
            assert ask(host.port, "GET", "/v1/cassettes/killed/more").json["version"] == "2"
    finally:
        for process in (steady, killed, troubled):
            process.end()
    assert set(loads["steady"].seen) == {"version 1"}
    for load in loads.values():
        assert set(load.seen) <= EXPECTED | {"version 1", "version 2"}, load.seen
