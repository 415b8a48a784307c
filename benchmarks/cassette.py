"""What a cassette adds to a call: a hit, a first hit, a recording, an identity, the import.

Each number stands beside the least work that the job needs (one dump and one hash), beside the
JSONL document's sketch, or beside vcrpy where it does the same. Less is better in both.
"""

import gc
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import orjson
from vcr.cassette import Cassette as VcrCassette
from vcr.matchers import body as vcr_body
from vcr.matchers import method, path
from vcr.request import Request as VcrRequest

from benchmarks import Measurement
from tapes import Cassette
from tapes.canonical import http_identity, http_text, key_of
from tapes.cassette import Play
from tapes.exchange import Exchange, Piece, Request, Response
from tapes.tape.base import MemoryTape

ANSWER = {
    "id": "chatcmpl-1",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "hello world " * 20}}],
    "usage": {"prompt_tokens": 500, "completion_tokens": 40},
}


def measurements(quick: bool) -> Iterator[Measurement]:
    """All of them; `quick` takes seconds."""
    rounds = 3 if quick else 7
    yield from _hits(rounds)
    yield from _first_hits_and_recordings(100 if quick else 1000)
    yield from _identity(rounds)
    yield from _against_vcrpy(50 if quick else 200)
    yield _import(5 if quick else 25)


def _request(size: int, number: int = 0) -> dict[str, Any]:
    line = 'The quick brown fox — jumps over "the" lazy dog.\n'
    text = (line * (size // len(line) + 1))[: max(0, size - 190)]
    messages = [
        {"role": "system", "content": f"be terse {number}"},
        {"role": "user", "content": text},
    ]
    return {"model": "m", "messages": messages, "temperature": 0, "max_tokens": 100}


def _each(rounds: int, times: int, *works: Callable[[], object]) -> list[float]:
    """Microseconds of each of several works in its fastest round; they take turns."""
    best = [float("inf")] * len(works)
    for _ in range(rounds):
        for number, work in enumerate(works):
            start = time.perf_counter()
            for _ in range(times):
                work()
            best[number] = min(best[number], time.perf_counter() - start)
    return [seconds / times * 1e6 for seconds in best]


def _cpu_each(work: Callable[[Any], object], items: list[Any]) -> float:
    """Microseconds of processor time for each item."""
    gc.collect()
    start = time.process_time()
    for item in items:
        work(item)
    return (time.process_time() - start) / len(items) * 1e6


class Sketch:
    """The JSONL document's cassette, as far as a hit and a recording go."""

    strip = frozenset({"timestamp", "request_id", "cwd"})

    def __init__(self, file: Path) -> None:
        self.file = file
        self.rows: dict[str, Any] = {}
        if file.exists():
            for line in file.read_text(encoding="utf-8").splitlines():
                row = json.loads(line)
                self.rows[row["hash"]] = row

    def canonical(self, request: dict[str, Any]) -> str:
        body = {k: v for k, v in request.items() if k not in self.strip}
        return json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def call(self, request: dict[str, Any]) -> Any:
        key = hashlib.sha256(self.canonical(request).encode()).hexdigest()
        if key in self.rows:
            return self.rows[key]["response"]
        kept = json.loads(self.canonical(request))
        row = {"hash": key, "request": kept, "response": ANSWER}
        with self.file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        self.rows[key] = row
        return ANSWER


def _hits(rounds: int) -> Iterator[Measurement]:
    with tempfile.TemporaryDirectory() as folder:
        sketch = Sketch(Path(folder) / "sketch.jsonl")
        for size, goal in ((1_000, 1.5), (20_000, 1.1), (200_000, 1.1)):
            request = _request(size)
            tape = MemoryTape()
            Cassette(tape, "record", lambda _: ANSWER, latch=True).call(request)
            cassette = Cassette(tape, "replay")
            times = max(20, 4_000_000 // size)
            cassette.call(request)
            sketch.call(request)
            ours, least, plain = _each(
                rounds * 3,
                times,
                partial(cassette.call, request),
                partial(_least, request),
                partial(sketch.call, request),
            )
            what = f"a hit of {size // 1000} KB"
            yield Measurement(what, ours, least, "one sorted dump and one SHA-256", "µs", goal)
            quarter = 0.25 if size >= 20_000 else None
            yield Measurement(what, ours, plain, "the document's sketch", "µs", quarter)


def _least(request: dict[str, Any]) -> bytes:
    return hashlib.sha256(orjson.dumps(request, option=orjson.OPT_SORT_KEYS)).digest()


def _first_hits_and_recordings(count: int) -> Iterator[Measurement]:
    requests = [_request(2_000, number) for number in range(count)]
    with tempfile.TemporaryDirectory() as folder:
        tape = MemoryTape()
        recording = Cassette(tape, "record", lambda _: ANSWER, latch=True)
        ours = _cpu_each(recording.call, requests)
        plain = _cpu_each(Sketch(Path(folder) / "sketch.jsonl").call, requests)
        peer = "the document's sketch, which redacts, locks and syncs nothing"
        yield Measurement("a recording of 2 KB, without its disk", ours, plain, peer, "µs CPU")
        ours = _cpu_each(Cassette(tape, "replay").call, requests)
        plain = _cpu_each(Sketch(Path(folder) / "sketch.jsonl").call, requests)
        peer = "the document's sketch, whose rows are in memory"
        yield Measurement("a first hit of 2 KB", ours, plain, peer, "µs CPU")


def _identity(rounds: int) -> Iterator[Measurement]:
    body = json.dumps(_request(20_000)).encode()
    headers = (("content-type", "application/json"), ("authorization", "Bearer x"))
    request = Request("POST", "https://api.example/v1/chat/completions", headers, body)

    def identity() -> str:
        return key_of(http_text(http_identity(request)[0]))

    def least() -> str:
        text = json.dumps(json.loads(body), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()

    ours, peer = _each(rounds * 3, 50, identity, least)
    yield Measurement("the key of 20 KB over HTTP", ours, 300, "the limit", "µs", 1.0)
    yield Measurement("the key of 20 KB over HTTP", ours, peer, "json both ways and SHA-256", "µs")


def _against_vcrpy(count: int) -> Iterator[Measurement]:
    """A hit among so many recordings, by the body as well."""
    url = "https://api.example/v1/chat/completions"
    headers = (("content-type", "application/json"),)
    bodies = [json.dumps(_request(2_000, number)).encode() for number in range(count)]
    tape = MemoryTape()
    for body in bodies:
        request = Request("POST", url, headers, body)
        response = Response(200, headers, (Piece(0.1, b'{"ok":true}'),))
        key = key_of(http_text(http_identity(request)[0]))
        tape.append(Exchange(key, "http/1", request, response))
    cassette = Cassette(tape, "replay")
    vcr = VcrCassette("none", match_on=(method, path, vcr_body), allow_playback_repeats=True)
    asked = [VcrRequest("POST", url, body, dict(headers)) for body in bodies]
    for request in asked:
        vcr.append(request, {"status": {"code": 200, "message": "OK"}, "headers": {}, "body": {}})

    def ours(body: bytes) -> None:
        assert isinstance(cassette.decide(Request("POST", url, headers, body)), Play)

    what = f"a hit over HTTP among {count}"
    theirs = _cpu_each(vcr.play_response, asked)
    yield Measurement(
        what, _cpu_each(ours, bodies), theirs, "vcrpy, matching bodies", "µs CPU", 1.0
    )


def _import(rounds: int) -> Measurement:
    def seconds(code: str) -> float:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ))
        return time.perf_counter() - start

    codes = ("pass", "import tapes", "import json, hashlib")
    taken = [[seconds(code) for code in codes] for _ in range(rounds)]
    nothing, ours, peer = (min(column) for column in zip(*taken, strict=True))
    ours, peer = max(ours - nothing, 1e-4), max(peer - nothing, 1e-4)
    return Measurement("import tapes", ours * 1e3, peer * 1e3, "import json, hashlib", "ms", 1.0)
