"""The proxy beside aimock, and beside the limits that it has set itself.

Requests come from `wrk`; paced streams from a client that knows when each event was sent. Times
are per request, or the latency that is named. `CPU` is the time of all threads of the proxy in a
request; unlike the others it depends little on what else the machine does. Rows that need `wrk` or
aimock (node, npm) are left out where these cannot be had, and it is said.
"""

import asyncio
import contextlib
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median, quantiles
from typing import Any, NamedTuple

import uvloop
from tests.npm import PROGRAM as AIMOCK
from tests.npm import missing

from benchmarks import Measurement
from benchmarks._running import Running, running
from benchmarks._upstream import ANSWER, EVENTS, PACE_S
from tapes.canonical import http_identity, http_text, key_of
from tapes.exchange import Exchange, Piece, Request, Response
from tapes.tape.jsonl import JsonlTape

RECORDINGS = 1_000
MORE_RECORDINGS = 10_000
TURNS = 3
FILLER = "word " * 380
PATH = "/v1/chat/completions"
_TAPES = "from tapes.cli.main import main; main()"


def measurements(quick: bool) -> Iterator[Measurement]:
    """All of them; what is left out is said on standard error."""
    seconds = 2 if quick else 8
    has_wrk = shutil.which("wrk") is not None
    without_aimock = missing()
    if not has_wrk:
        _say("wrk is not installed: there are only the rows of paced streams and memory")
    if without_aimock:
        _say(f"there are no rows beside aimock: {without_aimock}")
    with tempfile.TemporaryDirectory() as name, _upstream() as upstream:
        folder = Path(name)
        tape = _tape_of(folder / "t.jsonl", RECORDINGS)
        if has_wrk:
            yield from _replayed(tape, folder, seconds)
            yield from _many_recordings(tape, folder, 100_000 if quick else 1_000_000, seconds)
            yield from _streamed(folder, seconds)
            yield from _passed_on(upstream, folder, seconds)
            yield from _recorded(upstream, folder, seconds)
        yield from _paced(upstream, folder, 4 if quick else 20)
        yield from _memory(upstream, folder, 1_000 if quick else 10_000)


def _say(what: str) -> None:
    print(f"! {what}", file=sys.stderr, flush=True)


# --- what is measured -------------------------------------------------------------------------


def _replayed(tape: Path, folder: Path, seconds: int) -> Iterator[Measurement]:
    fixtures = _json_fixtures(RECORDINGS)
    with _proxy("--tape", str(tape)) as ours, _aimock(folder, fixtures) as other:
        many, *peers = _in_turns(folder, seconds, [ours, other], connections=16)
        one, *alone = _in_turns(folder, seconds, [ours, other], connections=1)
    yield Measurement("replayed, 16 connections, p99", many.p99, 0.002, "2 ms", "s", 1.0)
    yield Measurement("replayed, 1 connection, median", one.p50, 120e-6, "120 µs", "s", 1.0)
    what = "replayed, 16 connections: CPU"
    yield Measurement(what, many.cpu, 1 / 30_000, "30,000/s of one core", "s")
    for peer in peers:
        what = f"replayed, 16 connections, {RECORDINGS:,} recordings"
        yield Measurement(what, many.each, peer.each, "aimock", "s", 1 / 5)
        what = "replayed, 16 connections, p99"
        yield Measurement(what, many.p99, peer.p99, "aimock", "s")
    for peer in alone:
        what = "replayed, 1 connection, median"
        yield Measurement(what, one.p50, peer.p50, "aimock", "s")
    more, fixtures = (
        _tape_of(folder / "more.jsonl", MORE_RECORDINGS),
        _json_fixtures(MORE_RECORDINGS),
    )
    with _proxy("--tape", str(more)) as ours, _aimock(folder, fixtures) as other:
        servers, distinct = [ours, other], MORE_RECORDINGS
        many, *peers = _in_turns(folder, seconds, servers, connections=16, distinct=distinct)
    for peer in peers:
        what = f"replayed, 16 connections, {MORE_RECORDINGS:,} recordings"
        yield Measurement(what, many.each, peer.each, "aimock", "s", 1 / 5)


def _many_recordings(tape: Path, folder: Path, number: int, seconds: int) -> Iterator[Measurement]:
    large = folder / "large.jsonl"
    shutil.copy(tape, large)
    _fill(large, number)
    with _proxy("--tape", str(tape)) as few, _proxy("--tape", str(large)) as many:
        before, after = _in_turns(folder, seconds, [few, many], connections=16)
    large.unlink()
    what, peer = f"replayed from a tape of {number:,}", f"from one of {RECORDINGS:,}"
    yield Measurement(what, after.each, before.each, peer, "s", 1.1)
    yield Measurement(f"{what}: CPU", after.cpu, before.cpu, peer, "s", 1.1)


def _streamed(folder: Path, seconds: int) -> Iterator[Measurement]:
    tape = folder / "stream.jsonl"
    text = ("token " * 4)[:20]
    pieces = [f'data: {{"choices":[{{"delta":{{"content":"{text}"}}}}]}}\n\n'] * (EVENTS - 1)
    pieces.append("data: [DONE]\n\n")
    store = JsonlTape(tape)
    for number in range(RECORDINGS):
        store.append(_exchange(number, *pieces, media="text/event-stream", stream=True))
    store.close()
    fixtures = _json_fixtures(RECORDINGS, text * (EVENTS - 3))
    with _proxy("--tape", str(tape)) as ours, _aimock(folder, fixtures) as other:
        mine, *peers = _in_turns(folder, seconds, [ours, other], connections=16, stream=True)
    for peer in peers:
        what = f"replayed stream of {EVENTS} events at once"
        yield Measurement(what, mine.each, peer.each, "aimock", "s", 1 / 5)


def _passed_on(upstream: Running, folder: Path, seconds: int) -> Iterator[Measurement]:
    flags = ("--mode", "pass", "--no-log", "--upstream", f"http://127.0.0.1:{upstream.port}")
    with _proxy(*flags) as ours:
        passed, direct = _in_turns(folder, seconds, [ours, upstream], connections=32)
    yield Measurement("passed on, 32 connections", passed.each, 1 / 20_000, "20,000/s", "s", 1.0)
    yield Measurement("passed on, 32 connections", passed.each, direct.each, "without proxy", "s")
    what = "passed on, 32 connections: CPU"
    yield Measurement(what, passed.cpu, 1 / 20_000, "20,000/s of one core", "s", 1.0)


def _recorded(upstream: Running, folder: Path, seconds: int) -> Iterator[Measurement]:
    for name in ("record.jsonl", "record.db"):
        flags = ("--mode", "record", "--tape", str(folder / name))
        where = f"http://127.0.0.1:{upstream.port}"
        with _proxy(*flags, "--upstream", where, env={"DEMO_LIVE": "1"}) as ours:
            kept = _wrk(ours, folder, seconds, connections=32, distinct=100_000)
        what = f"recorded durably, 32 connections, {name.partition('.')[2]}"
        yield Measurement(what, kept.each, 1 / 5_000, "5,000/s", "s", 1.0)
        yield Measurement(f"{what}: CPU", kept.cpu, 1 / 5_000, "5,000/s of one core", "s")


def _paced(upstream: Running, folder: Path, rounds: int) -> Iterator[Measurement]:
    flags = ("--mode", "record", "--tape", str(folder / "paced.jsonl"))
    where = f"http://127.0.0.1:{upstream.port}"
    with _proxy(*flags, "--upstream", where, env={"DEMO_LIVE": "1"}) as ours:
        first, ages = uvloop.run(_streams(ours.port, rounds))
        direct_first, direct_ages = uvloop.run(_streams(upstream.port, rounds))
    added = [a - b for a, b in zip(_marks(first), _marks(direct_first), strict=True)]
    age = _marks(ages)[1] - _marks(direct_ages)[1]
    what = "recorded stream, 32 at once: added time to the first byte"
    yield Measurement(f"{what}, p50", added[0], 0.0005, "0.5 ms", "s", 1.0)
    yield Measurement(f"{what}, p99", added[1], 0.005, "5 ms", "s", 1.0)
    yield Measurement(
        "recorded stream, 32 at once: added age of an event, p99", age, 0.001, "1 ms", "s", 1.0
    )


def _marks(times: list[float]) -> tuple[float, float]:
    """The median and the 99th percentile."""
    return median(times), quantiles(times, n=100)[98]


def _memory(upstream: Running, folder: Path, streams: int) -> Iterator[Measurement]:
    flags = ("--mode", "record", "--tape", str(folder / "memory.jsonl"))
    where = f"http://127.0.0.1:{upstream.port}"
    with _proxy(*flags, "--upstream", where, env={"DEMO_LIVE": "1"}) as ours:
        idle = ours.resident()
        uvloop.run(_many_streams(ours.port, streams))
        after = ours.resident()
    mib = 1 << 20
    yield Measurement("resident, idle", idle / mib, 120, "120 MiB", "MiB", 1.0)
    what = f"resident after {streams:,} recorded streams"
    yield Measurement(what, after / mib, 120, "120 MiB", "MiB", 1.0)
    with _aimock(folder, _json_fixtures(RECORDINGS)) as other:
        if other is not None:
            yield Measurement("resident, idle", idle / mib, other.resident() / mib, "aimock", "MiB")


# --- who sends --------------------------------------------------------------------------------


class Load(NamedTuple):
    """What a run of wrk measured: seconds per request, the server's own, and latencies."""

    each: float
    cpu: float
    p50: float
    p99: float


_LUA = """
wrk.method = "POST"
wrk.path = "{path}"
wrk.headers["Content-Type"] = "application/json"
wrk.headers["Authorization"] = "Bearer sk-benchmark"
local bodies, i = {{}}, 0
for n = 0, {number} - 1 do
  bodies[n] = string.format('{head}', n) .. '{tail}'
end
request = function()
  i = (i + 1) % {number}
  return wrk.format(nil, nil, nil, bodies[i])
end
done = function(summary, latency, requests)
  local failed = summary.errors.status + summary.errors.read + summary.errors.timeout
  io.write(string.format("RESULT %d %d %d %d %d\\n", summary.requests, summary.duration,
    latency:percentile(50), latency:percentile(99), failed))
end
"""


def _wrk(
    server: Running,
    folder: Path,
    seconds: int,
    *,
    connections: int,
    stream: bool = False,
    distinct: int = RECORDINGS,
) -> Load:
    head, tail = _body_parts(stream)
    script = folder / "wrk.lua"
    script.write_text(_LUA.format(path=PATH, number=distinct, head=head, tail=tail))
    url = f"http://127.0.0.1:{server.port}"
    warm = ["wrk", "-t1", f"-c{connections}", "-d1s", "-s", str(script), url]
    if distinct <= MORE_RECORDINGS:
        subprocess.run(warm, check=True, capture_output=True)
    before = server.worked()
    timed = [*warm[:3], f"-d{seconds}s", *warm[4:]]
    said = subprocess.run(timed, check=True, capture_output=True, text=True).stdout
    found = re.search(r"RESULT (\d+) (\d+) (\d+) (\d+) (\d+)", said)
    assert found is not None, said
    requests, micros, p50, p99, failed = map(int, found.groups())
    assert failed == 0, f"{failed} of {requests} requests failed"
    cpu = (server.worked() - before) / requests
    return Load(micros / 1e6 / requests, cpu, p50 / 1e6, p99 / 1e6)


def _in_turns(
    folder: Path, seconds: int, servers: Sequence[Running | None], **how: Any
) -> list[Load]:
    """The best of some runs on each server; they take turns, so that all see the same machine."""
    there = [server for server in servers if server is not None]
    short = max(1, seconds // TURNS)
    rounds = [[_wrk(one, folder, short, **how) for one in there] for _ in range(TURNS)]
    return [Load(*map(min, zip(*loads, strict=True))) for loads in zip(*rounds, strict=True)]


async def _streams(port: int, rounds: int) -> tuple[list[float], list[float]]:
    """Seconds to the first byte, and the age of each event at its arrival.

    32 are under way at once, one after the other on each of 32 clients; they began one by one.
    """
    first: list[float] = []
    ages: list[float] = []

    async def client(number: int) -> None:
        await asyncio.sleep(number * PACE_S * EVENTS / 32)
        for n in range(rounds):
            await _stream(port, f"{number} {n} {time.time()}", first, ages)

    await asyncio.gather(*map(client, range(32)))
    return first, ages


async def _stream(port: int, text: str, first: list[float], ages: list[float]) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps({"stream": True, "messages": [text]}).encode()
    sent = time.monotonic()
    writer.write(_head(len(body), "/paced") + body)
    await reader.readuntil(b"\r\n\r\n")
    first.append(time.monotonic() - sent)
    while (line := await reader.readline()) != b"0\r\n":
        at = time.monotonic_ns()
        found = re.search(rb'"content":"(\d{6,})"', line)
        if found is not None:
            ages.append((at - int(found[1])) / 1e9)
    writer.close()


async def _many_streams(port: int, number: int) -> None:
    async def some(worker: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for n in range(worker, number, 16):
            body = json.dumps({"stream": True, "messages": [n]}).encode()
            writer.write(_head(len(body), "/stream") + body)
            await reader.readuntil(b"\r\n0\r\n\r\n")
        writer.close()

    await asyncio.gather(*(some(worker) for worker in range(16)))


def _head(length: int, path: str) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\n\r\n"
    ).encode()


# --- who answers ------------------------------------------------------------------------------


@contextlib.contextmanager
def _proxy(*flags: str, env: dict[str, str] | None = None) -> Iterator[Running]:
    command = [sys.executable, "-c", _TAPES, "serve", "proxy", "--listen", "127.0.0.1:0", *flags]
    upstream = () if "--upstream" in flags else ("--upstream", "http://127.0.0.1:9")
    with running([*command, *upstream], r"proxy: http://\S+:(\d+) (?s:.*)report:", env) as server:
        yield server


@contextlib.contextmanager
def _upstream() -> Iterator[Running]:
    with running([sys.executable, "-m", "benchmarks._upstream"], r"^(\d+)\n") as server:
        yield server


@contextlib.contextmanager
def _aimock(folder: Path, fixtures: object) -> Iterator[Running | None]:
    """aimock with these answers; None where it cannot be had."""
    if not AIMOCK.exists():
        yield None
        return
    file = folder / "fixtures.json"
    file.write_text(json.dumps({"fixtures": fixtures}))
    command = ["node", str(AIMOCK), "-p", "0", "-f", str(file), "--log-level", "info"]
    with running([*command, "-c", "20"], r"listening on http://\S+:(\d+)") as server:
        yield server


# --- what is asked and answered ---------------------------------------------------------------


def _body_parts(stream: bool) -> tuple[str, str]:
    """A request of 2 KB in two parts, the first with the place of its number."""
    head = '{"model":"gpt-4o","messages":[{"role":"user","content":"question %07d; '
    more = ',"stream":true' if stream else ""
    return head, f'{FILLER}"}}],"temperature":0{more}}}'


def _exchange(
    number: int, *pieces: str, media: str = "application/json", stream: bool = False
) -> Exchange:
    head, tail = _body_parts(stream)
    body = (head % number + tail).encode()
    kept = (("Content-Type", "application/json"),)
    request = Request("POST", f"http://127.0.0.1:9{PATH}", kept, body)
    headers = (("Content-Type", media), ("X-Request-Id", "abc"))
    chunks = tuple(Piece(0.01 * n, piece.encode()) for n, piece in enumerate(pieces))
    framing = ("Transfer-Encoding", "chunked")
    if not stream:
        framing = ("Content-Length", str(sum(len(piece) for piece in pieces)))
    response = Response(200, (*headers, framing), chunks, "OK")
    return Exchange(key_of(http_text(http_identity(request)[0])), "http/1", request, response)


def _tape_of(path: Path, number: int) -> Path:
    tape = JsonlTape(path)
    for n in range(number):
        tape.append(_exchange(n, ANSWER.decode()))
    tape.close()
    return path


def _fill(path: Path, number: int) -> None:
    """Add short recordings until there are so many."""
    row = '{"hash":"%064x","v":1,"canonicalizer":"tape/1","request":{"n":%d},"response":{"n":%d}}\n'
    with path.open("a") as file:
        for n in range(number - RECORDINGS):
            file.write(row % (n * 0x9E3779B97F4A7C15 % (1 << 256), n, n))


def _json_fixtures(number: int, content: str = "y" * 1400) -> list[object]:
    return [
        {"match": {"userMessage": f"question {n:07d};"}, "response": {"content": content}}
        for n in range(number)
    ]
