"""The host of services beside the service itself, asked directly in the same run.

The host and the services are processes of their own. Requests at a steady rate come over 16
connections, to the service and through the host in turns; what the host adds is the difference of
the best of each. `wrk` asks as fast as it can; beside its rate stands the processor time that the
host needs for a request, which what else the machine does changes less.
"""

import asyncio
import contextlib
import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from statistics import median, quantiles
from typing import Any

import httptools
import uvloop

from benchmarks import Measurement, best_of
from benchmarks._running import Running, memory_of, running
from benchmarks._services import HOSTILE
from benchmarks._upstream import EVENTS

CONNECTIONS = 16
RATE = 500.0  # requests a second over all connections
ROUNDS = 8
DEAD = 10
SERVICES = 100
_TAPES = "from tapes.cli.main import main; main()"
_MCP = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


def measurements(quick: bool) -> Iterator[Measurement]:
    """All of them. Without `wrk` there is no highest rate."""
    command = [sys.executable, "-m", "benchmarks._services"]
    with running(command, r"^(\d+)\n") as services:
        yield from _proxied(services.port, 2 if quick else 8)
        yield from _streamed(services.port, 2 if quick else 16)
        yield from _admitted(services.port)
        yield from _hostile(services.port)
        yield from _many(services.port)
        yield from _listed(services.port, 5 if quick else 30)


# --- what is measured -------------------------------------------------------------------------


def _proxied(services: int, seconds: int) -> Iterator[Measurement]:
    with _host(_source(services, 0)) as host:
        _until(host, lambda said: len(said["cassettes"]) == 1)
        paths = ("/api/s-0/json", "/v1/cassettes/s-0/json")
        direct, through = _Rounds(), _Rounds()
        for _ in range(ROUNDS):
            direct.add(uvloop.run(_steady(services, paths[0], seconds / ROUNDS)))
            through.add(uvloop.run(_steady(host.port, paths[1], seconds / ROUNDS)))
        yield from _added("proxied JSON", through, direct, 0.6e-3, 5e-3)
        if shutil.which("wrk"):
            worked = host.worked()
            requests, each = _wrk(host.port, paths[1], seconds)
            worked = (host.worked() - worked) / requests
            _, limit = _wrk(services, paths[0], seconds)
            yield Measurement("proxied JSON, each", each, 1 / 3_000, "3,000 a second", "s", 1.0)
            yield Measurement("proxied JSON, each", each, limit, "direct", "s")
            what = "proxied JSON, processor time"
            yield Measurement(what, worked, 1 / 3_000, "3,000 a second", "s", 1.0)


def _streamed(services: int, rounds: int) -> Iterator[Measurement]:
    with _host(_source(services, 0)) as host:
        _until(host, lambda said: len(said["cassettes"]) == 1)
        direct, through = _Rounds(), _Rounds()
        for _ in range(rounds):
            direct.add(uvloop.run(_streams(services, "/api/s-0/paced")))
            through.add(uvloop.run(_streams(host.port, "/v1/cassettes/s-0/paced")))
        what = "an event of 16 streams"
        yield from _added(what, through, direct, None, 1e-3)
        yield Measurement(f"{what}, p99 in all", through.p99, direct.p99, "direct", "s")


def _added(
    what: str, through: "_Rounds", direct: "_Rounds", p50: float | None, p99: float
) -> Iterator[Measurement]:
    """What the host adds, held against what it may add."""
    added = through.p50 - direct.p50
    if p50 is not None:
        yield Measurement(f"{what}, added median", added, p50, f"{p50 * 1e3:g} ms", "s", 1.0)
    else:
        yield Measurement(f"{what}, added median", added, direct.p50, "direct", "s")
    added = through.p99 - direct.p99
    yield Measurement(f"{what}, added p99", added, p99, f"{p99 * 1e3:g} ms", "s", 1.0)


class _Rounds:
    """The best of several rounds: what else the machine does only adds."""

    def __init__(self) -> None:
        self.p50 = self.p99 = float("inf")

    def add(self, values: list[float]) -> None:
        self.p50 = min(self.p50, median(values))
        self.p99 = min(self.p99, _p99(values))


def _admitted(services: int) -> Iterator[Measurement]:
    base = f"http://127.0.0.1:{services}"
    with _host(_source(services, 0), f"{base}/big/openapi") as host:
        _until(host, lambda said: len(said["cassettes"]) == 1)
        calm = uvloop.run(_steady(host.port, "/v1/cassettes/s-0/json", 2.0))
        urllib.request.urlopen(f"{base}/begin").close()
        took, others = uvloop.run(_while_admitting(host))
        assert len(_get(host, "/v1/cassettes")["cassettes"]) == 2
    yield Measurement("8 MiB, 2,000 operations, admitted", took, 2.0, "2 s", "s", 1.0)
    yield Measurement("other routes meanwhile, p99", _p99(others), 50e-3, "50 ms", "s", 1.0)
    yield Measurement("other routes meanwhile, p99", _p99(others), _p99(calm), "calm", "s")


def _hostile(services: int) -> Iterator[Measurement]:
    base = f"http://127.0.0.1:{services}"
    urllib.request.urlopen(f"{base}/end").close()
    with _host(
        _source(services, 0), *(f"{base}/hostile/{kind}/openapi" for kind in HOSTILE)
    ) as host:
        _until(host, lambda said: len(said["problems"]) == len(HOSTILE))
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        _post(host, "/v1/mcp", message)  # what is loaded late is here by then
        _get(host, "/openapi")
        each = [host.process.pid, *host.children()]
        assert len(each) == 3, "a process beside the host was let go"
        calm = [memory_of(pid, "VmRSS") for pid in each]
        urllib.request.urlopen(f"{base}/begin").close()
        _post(host, "/v1/cassettes/-/recheck")
        _get(host, "/openapi")
        peaks = [memory_of(pid, "VmHWM") for pid in each]
        assert len(_get(host, "/v1/cassettes")["problems"]) < len(HOSTILE)
    for who, before, peak in zip(("host", "admitting", "merging"), calm, peaks, strict=True):
        what = f"{len(HOSTILE)} hostile documents of 8 MiB, memory of {who}"
        yield Measurement(what, (peak - before) / 1e6, 300, "300 MB", "MB", 1.0)


def _many(services: int) -> Iterator[Measurement]:
    alive = SERVICES - DEAD
    listed = [_source(services, n, tools=10) for n in range(alive)]
    listed[5:5] = [f"http://127.0.0.1:{port}/openapi" for port in _closed_ports(DEAD)]
    began = time.perf_counter()
    with _host(*listed) as host:
        listening = time.perf_counter() - began
        _until(host, lambda said: len(said["cassettes"]) == alive)
        ready = time.perf_counter() - began
        what = f"{SERVICES} services, {DEAD} of them dead: start to"
        yield Measurement(f"{what} listening", listening, 2.0, "2 s", "s", 1.0)
        yield Measurement(f"{what} all admitted", ready, 2.0, "2 s", "s", 1.0)
        _get(host, "/openapi")
        times = []
        for n in range(5):
            urllib.request.urlopen(f"http://127.0.0.1:{services}/s/{n}/10/change").close()
            _post(host, f"/v1/cassettes/-/recheck?cassette=s-{n}")
            times.append(_seconds(lambda: _get(host, "/openapi")))
        yield Measurement("the document of all, made anew", max(times), 0.5, "500 ms", "s", 1.0)


def _listed(services: int, times: int) -> Iterator[Measurement]:
    listed = [_source(services, n, tools=125) for n in range(8)]
    with _host(*listed) as host:
        _until(host, lambda said: sum(len(entry["tools"]) for entry in said["cassettes"]) == 1_000)
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
        took = best_of(times, lambda: _post(host, "/v1/mcp", message))
        several = median(_seconds(lambda: _post(host, "/v1/mcp", message)) for _ in range(times))
    yield Measurement("tools/list with 1,000 tools, best", took, 20e-3, "20 ms", "s", 1.0)
    yield Measurement("tools/list with 1,000 tools, median", several, 20e-3, "20 ms", "s", 1.0)


# --- who asks ---------------------------------------------------------------------------------


class _Client(asyncio.Protocol):
    """One connection that asks the same at its times; `ages` are the seconds to whole answers."""

    def __init__(self, path: str) -> None:
        self._request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        self._parser = httptools.HttpResponseParser(self)
        self._due = 0.0
        self.ages: list[float] = []
        self.done = asyncio.Event()
        self.done.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_message_complete(self) -> None:
        assert self._parser.get_status_code() == 200, self._parser.get_status_code()
        self.ages.append(time.perf_counter() - self._due)
        self._parser = httptools.HttpResponseParser(self)
        self.done.set()

    def ask(self, due: float) -> None:
        self._due = due
        self.done.clear()
        self.transport.write(self._request)  # type: ignore[attr-defined]  # a transport of TCP


async def _steady(port: int, path: str, seconds: float) -> list[float]:
    """The latencies at a steady rate, of requests from when they were due."""
    loop = asyncio.get_running_loop()
    clients = []
    for _ in range(CONNECTIONS):
        _, client = await loop.create_connection(lambda: _Client(path), "127.0.0.1", port)
        clients.append(client)
    end = time.perf_counter() + seconds

    async def run(number: int, client: _Client) -> None:
        due = time.perf_counter() + number / RATE
        while due < end:
            await asyncio.sleep(due - time.perf_counter())
            client.ask(max(due, time.perf_counter() - 1 / RATE))
            await client.done.wait()
            due += CONNECTIONS / RATE

    await asyncio.gather(*(run(number, client) for number, client in enumerate(clients)))
    for client in clients:
        client.transport.close()
    return [age for client in clients for age in client.ages[1:]]


class _Stream(asyncio.Protocol):
    """One stream, kept as it comes with the time of each arrival. It is read when all have ended:
    a client that reads while others arrive makes them late itself.
    """

    def __init__(self, path: str) -> None:
        self._request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        self._arrived: list[tuple[int, bytes]] = []
        self.ended = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        transport.write(self._request)  # type: ignore[attr-defined]  # a transport of TCP

    def data_received(self, data: bytes) -> None:
        self._arrived.append((time.monotonic_ns(), data))
        if data.endswith(b"0\r\n\r\n"):
            self._transport.close()

    def connection_lost(self, _exc: Exception | None) -> None:
        self.ended.set_result(None)

    def ages(self) -> list[float]:
        """The seconds from when each event was sent to when it was here."""
        found = [
            (at - int(sent)) / 1e9
            for at, data in self._arrived
            for sent in re.findall(rb'"content":"(\d{6,})"', data)
        ]
        assert len(found) == EVENTS, "an event was cut in two, or is missing"
        return found


async def _streams(port: int, path: str) -> list[float]:
    """The age of each event at its arrival, of 16 streams at once."""
    loop, streams = asyncio.get_running_loop(), [_Stream(path) for _ in range(CONNECTIONS)]
    for stream in streams:
        await loop.create_connection(lambda it=stream: it, "127.0.0.1", port)
    await asyncio.gather(*(stream.ended for stream in streams))
    return [age for stream in streams for age in stream.ages()]


async def _while_admitting(host: Running) -> tuple[float, list[float]]:
    """Seconds until all sources were asked again, and another service's latencies meanwhile."""
    asking = asyncio.get_running_loop().run_in_executor(
        None, lambda: _seconds(lambda: _post(host, "/v1/cassettes/-/recheck"))
    )
    others: list[float] = []
    while not asking.done():
        others += await _steady(host.port, "/v1/cassettes/s-0/json", 0.25)
    return await asking, others


def _wrk(port: int, path: str, seconds: int) -> tuple[int, float]:
    """The number of requests, and the seconds for each, as fast as it goes."""
    url = f"http://127.0.0.1:{port}{path}"
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{seconds}s", url]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "Non-2xx" not in said, said
    found = re.search(r"(\d+) requests in .*Requests/sec:\s+([\d.]+)", said, re.DOTALL)
    assert found is not None, said
    return int(found[1]), 1 / float(found[2])


# --- the host ---------------------------------------------------------------------------------


@contextlib.contextmanager
def _host(*sources: str) -> Iterator[Running]:
    flags = [part for source in sources for part in ("--cassettes", source)]
    command = [sys.executable, "-c", _TAPES, "serve", "services", "--listen", "127.0.0.1:0", *flags]
    with running(command, r"services: http://\S+:(\d+)\n") as host:
        yield host


def _source(services: int, number: int, tools: int = 0) -> str:
    return f"http://127.0.0.1:{services}/s/{number}/{tools}/openapi"


def _closed_ports(count: int) -> list[int]:
    """So many ports that nobody listens on. All are held until the last is chosen."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for sock in sockets:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in sockets]


def _get(host: Running, path: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{host.port}{path}") as answer:
        return json.loads(answer.read())


def _post(host: Running, path: str, message: Any = None) -> bytes:
    data = json.dumps(message).encode()
    url = f"http://127.0.0.1:{host.port}{path}"
    with urllib.request.urlopen(urllib.request.Request(url, data, _MCP)) as answer:
        found: bytes = answer.read()
        return found


def _until(host: Running, holds: Callable[[Any], bool]) -> None:
    end = time.perf_counter() + 60
    while not holds(_get(host, "/v1/cassettes")):
        assert time.perf_counter() < end, "the services were not admitted"
        time.sleep(0.1)  # discovery of a hundred services is work for the host too


def _seconds(run: Callable[[], object]) -> float:
    return best_of(1, run)


def _p99(values: list[float]) -> float:
    return quantiles(values, n=100)[98]
