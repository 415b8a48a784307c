"""What a replay costs above the client library itself, on a small tape and on a large one.

The floor is the same client with the same request, answered from memory: httpx by its own
MockTransport, requests where urllib3 would make the request.
"""

import hashlib
import io
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import requests
import vcr
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse, HTTPSConnectionPool

import tapes
from benchmarks import Measurement
from tapes.canonical import http_identity, http_text, key_of
from tapes.exchange import Exchange, Piece, Request, Response, row_of
from tapes.jsontext import compact
from tapes.tape.jsonl import JsonlTape

URL = "https://api.example.test/v1/chat/completions"
_ROUNDS = 4
HEADERS = (("content-type", "application/json"),)
BODY = json.dumps(
    {"choices": [{"message": {"role": "assistant", "content": "word " * 250}}], "usage": {}}
).encode()
RESPONSE = Response(
    200, (*HEADERS, ("content-length", str(len(BODY)))), (Piece(0.5, BODY),), reason="OK"
)


def body_of(number: int, size: int = 20_000) -> bytes:
    """A request that differs from all others in the middle of its text."""
    text = ("The quick brown fox jumps over the lazy dog. " * (size // 45 + 1))[: size - 150]
    mark = hashlib.sha256(str(number).encode()).hexdigest()
    half = len(text) // 2
    messages = [{"role": "user", "content": text[:half] + mark + text[half:]}]
    return json.dumps({"model": "m", "messages": messages, "temperature": 0}).encode()


def record(path: Path, count: int) -> None:
    """A tape of so many exchanges with requests of 20 KB."""
    with path.open("wb") as file:
        for number in range(count):
            request = Request("POST", URL, HEADERS, body_of(number))
            key = key_of(http_text(http_identity(request)[0]))
            exchange = Exchange(key, "http/1", request, RESPONSE)
            file.write(compact(row_of(exchange)).encode() + b"\n")


class _FromMemory(HTTPSConnectionPool):
    """urllib3, answered from memory at the place where we answer."""

    def _make_request(self, *_args: object, **_options: object) -> HTTPResponse:  # type: ignore[override]
        return HTTPResponse(
            io.BytesIO(BODY), headers=dict(RESPONSE.headers), status=200, preload_content=False
        )


def _from_memory() -> requests.Session:
    session = requests.Session()
    adapter = HTTPAdapter()
    adapter.poolmanager.pool_classes_by_scheme = {"https": _FromMemory}
    session.mount("https://", adapter)
    return session


def _asked(ask: Callable[[bytes], object], bodies: list[bytes]) -> float:
    """The median seconds of a call."""
    seconds = []
    for body in bodies:
        start = time.perf_counter()
        ask(body)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def _httpx(client: httpx.Client) -> Callable[[bytes], object]:
    return lambda body: client.post(URL, content=body, headers=dict(HEADERS)).json()


def _requests(session: requests.Session) -> Callable[[bytes], object]:
    return lambda body: session.post(URL, data=body, headers=dict(HEADERS)).json()


def measurements(quick: bool) -> Iterator[Measurement]:
    """Replay through httpx and requests above their floor, at both sizes; and beside vcrpy."""
    sizes = (1_000, 10_000) if quick else (1_000, 100_000)
    floors = {
        "httpx": _httpx(
            httpx.Client(
                transport=httpx.MockTransport(
                    lambda _: httpx.Response(200, headers=list(RESPONSE.headers), content=BODY)
                )
            )
        ),
        "requests": _requests(_from_memory()),
    }
    with tempfile.TemporaryDirectory() as folder:
        for count in sizes:
            path = Path(folder) / f"{count}.jsonl"
            record(path, count)
            JsonlTape(path).close()
            numbers = [n * 7919 % count for n in range(500)]
            bodies = [body_of(number) for number in numbers]
            with tapes.use(path, "replay"):
                ours = {"httpx": _httpx(httpx.Client()), "requests": _requests(requests.Session())}
                for name, ask in ours.items():
                    ask(bodies[0])
                    rounds = [  # in turns, since the machine's speed changes
                        (_asked(ask, bodies[1:]), _asked(floors[name], bodies[1:]))
                        for _ in range(_ROUNDS)
                    ]
                    took, floor = map(min, zip(*rounds, strict=True))
                    what = f"replay through {name} above its floor, tape of {count:,}"
                    yield Measurement(what, took - floor, 0.0003, "0.3 ms", "s", 1.0)
        few = 200
        yield _vcrpy(Path(folder), [body_of(number) for number in range(few)])


def _vcrpy(folder: Path, bodies: list[bytes]) -> Measurement:
    """The same job by vcrpy, told to look at bodies; on a tape small enough to wait for it."""
    interactions = [
        {
            "request": {"method": "POST", "uri": URL, "headers": {}, "body": body.decode()},
            "response": {
                "status": {"code": 200, "message": "OK"},
                "headers": {name: [value] for name, value in RESPONSE.headers},
                "body": {"string": BODY.decode()},
            },
        }
        for body in bodies
    ]
    cassette = folder / "vcrpy.json"
    cassette.write_text(json.dumps({"version": 1, "interactions": interactions}))
    recorder = vcr.VCR(
        match_on=["method", "uri", "body"], record_mode="none", serializer="json",
    )  # fmt: skip
    with recorder.use_cassette(str(cassette), allow_playback_repeats=True):
        theirs = _asked(_requests(requests.Session()), bodies[-20:])
    path = folder / "few.jsonl"
    record(path, len(bodies))
    with tapes.use(path, "replay"):
        ours = _asked(_requests(requests.Session()), bodies[-20:])
    what = f"replay through requests, tape of {len(bodies)}"
    return Measurement(what, ours, theirs, "vcrpy, matching bodies", "s", 1.0)
