"""What frameworks send beside their model calls, while a tape is open."""

import asyncio
from collections.abc import Callable

import aiohttp
import httpx
import httpx2
import pytest
import requests

import tapes
from tapes.exchange import Request
from tapes.tape.base import MemoryTape
from tapes.telemetry import is_telemetry
from tests.servers import answer, serving

OTLP = {"content-type": "application/x-protobuf"}
OPENAI_TRACES = "https://api.openai.com/v1/traces/ingest"
Sender = Callable[[str], int]


def _by_aiohttp(url: str) -> int:
    async def send() -> int:
        async with (
            aiohttp.ClientSession() as session,
            session.post(url, data=b"s", headers=OTLP) as response,
        ):
            return response.status

    return asyncio.run(send())


def _by_async_httpx(url: str) -> int:
    async def send() -> int:
        async with httpx.AsyncClient() as client:
            return (await client.post(url, content=b"s", headers=OTLP)).status_code

    return asyncio.run(send())


SENDERS: dict[str, Sender] = {
    "aiohttp": _by_aiohttp,
    "async httpx": _by_async_httpx,
    "httpx": lambda url: httpx.post(url, content=b"s", headers=OTLP).status_code,
    "httpx2": lambda url: httpx2.post(url, content=b"s", headers=OTLP).status_code,
    "requests": lambda url: requests.post(url, data=b"s", headers=OTLP, timeout=5).status_code,
}


@pytest.mark.parametrize("send", SENDERS.values(), ids=SENDERS)
def test_replay_neither_sends_telemetry_nor_takes_it_for_a_miss(send: Sender) -> None:
    tape = MemoryTape()
    with tapes.use(tape) as cassette:
        assert send(OPENAI_TRACES) == 200
        assert send("https://telemetry.example:4319/v1/traces") == 200
    assert cassette.report.as_dict()["refused"] == 0
    assert cassette.report.as_dict()["served"] == 0


@pytest.mark.parametrize("send", SENDERS.values(), ids=SENDERS)
@pytest.mark.parametrize("mode", ["replay", "record"])
def test_telemetry_to_this_machine_goes_on_and_is_not_recorded(send: Sender, mode: str) -> None:
    tape = MemoryTape()
    with (
        serving(answer(b"{}", status=202)) as server,
        tapes.use(tape, mode, latch=mode == "record") as cassette,
    ):
        assert send(f"{server.url}/v1/traces") == 202
    assert len(server.requests) == 1
    assert list(tape.keys()) == []
    assert cassette.report.as_dict()["live"] == 0


@pytest.mark.parametrize(
    ("method", "url", "content_type", "expected"),
    [
        ("POST", OPENAI_TRACES, "application/json", True),
        ("POST", "https://telemetry.crewai.com:4319/v1/traces", "application/x-protobuf", True),
        ("POST", "https://eu.posthog.com/batch/", "application/json", True),
        ("GET", "https://api.smith.langchain.com/info", "", True),
        ("POST", "https://posthog.com.example/batch/", "application/json", False),
        ("POST", "https://api.example/v1/traces", "application/json", False),
        ("GET", "https://api.example/v1/traces", "application/x-protobuf", False),
        ("POST", "https://api.openai.com/v1/responses", "application/json", False),
    ],
)
def test_what_is_telemetry(method: str, url: str, content_type: str, expected: bool) -> None:
    assert is_telemetry(Request(method, url, (("Content-Type", content_type),))) is expected
