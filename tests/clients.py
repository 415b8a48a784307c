"""Every covered client library in one shape, so that one suite can be run against all of them."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiohttp
import httpx
import httpx2
import requests
import urllib3
import uvloop

Pairs = tuple[tuple[str, str], ...]
# Called with each raw piece of a body; False leaves the stream.
Each = Callable[[bytes], bool | None]
Run = Callable[[Coroutine[Any, Any, Any]], Any]
TIMEOUT_S = 15.0
# Made once: every client of httpx would load all certificates anew.
TLS = ssl.create_default_context()


@dataclass(frozen=True)
class Call:
    """A request to make."""

    url: str
    method: str = "POST"
    body: bytes | None = b"{}"
    headers: Pairs = (("Content-Type", "application/json"),)


@dataclass(frozen=True)
class Got:
    """What a client's caller got: header names in lower case, the body decoded."""

    status: int
    reason: str
    headers: list[tuple[str, str]] = field(hash=False)
    body: bytes

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]


class Client(Protocol):
    """A client library: whole answers, raw pieces, and many calls on one session at once."""

    name: str

    def ask(self, call: Call) -> Got: ...

    def ask_all(self, calls: Iterable[Call]) -> list[Got]: ...

    def pieces(self, call: Call, each: Each = lambda _: None) -> list[bytes]: ...


class Httpx:
    """httpx or httpx2, sync."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self.name = library.__name__

    def ask(self, call: Call) -> Got:
        return self.ask_all([call])[0]

    def ask_all(self, calls: Iterable[Call]) -> list[Got]:
        with self._library.Client(timeout=TIMEOUT_S, verify=TLS) as client:
            return [_of_httpx(client.request(**_for_httpx(call))) for call in calls]

    def pieces(self, call: Call, each: Each = lambda _: None) -> list[bytes]:
        with (
            self._library.Client(timeout=TIMEOUT_S, verify=TLS) as client,
            client.stream(**_for_httpx(call)) as response,
        ):
            return _while_wanted(response.iter_raw(), each)


class AsyncHttpx:
    """httpx or httpx2, async."""

    def __init__(self, library: Any, run: Run = asyncio.run) -> None:
        self._library = library
        self._run = run
        self.name = f"{library.__name__}-async{'-uvloop' if run is uvloop.run else ''}"

    def ask(self, call: Call) -> Got:
        return self.ask_all([call])[0]

    def ask_all(self, calls: Iterable[Call]) -> list[Got]:
        async def main() -> list[Got]:
            async with self._library.AsyncClient(timeout=TIMEOUT_S, verify=TLS) as client:
                answers = (client.request(**_for_httpx(call)) for call in calls)
                return [_of_httpx(answer) for answer in await asyncio.gather(*answers)]

        result: list[Got] = self._run(main())
        return result

    def pieces(self, call: Call, each: Each = lambda _: None) -> list[bytes]:
        async def main() -> list[bytes]:
            got = []
            async with (
                self._library.AsyncClient(timeout=TIMEOUT_S, verify=TLS) as client,
                client.stream(**_for_httpx(call)) as response,
            ):
                async for piece in response.aiter_raw():
                    got.append(piece)
                    if each(piece) is False:
                        break
            return got

        result: list[bytes] = self._run(main())
        return result


class Requests:
    """requests."""

    name = "requests"

    def ask(self, call: Call) -> Got:
        return self.ask_all([call])[0]

    def ask_all(self, calls: Iterable[Call]) -> list[Got]:
        with requests.Session() as session:
            return [
                _of_requests(session.request(**_for_requests(call), timeout=TIMEOUT_S))
                for call in calls
            ]

    def pieces(self, call: Call, each: Each = lambda _: None) -> list[bytes]:
        with (
            requests.Session() as session,
            session.request(**_for_requests(call), stream=True, timeout=TIMEOUT_S) as response,
        ):
            return _while_wanted(response.raw.stream(1 << 20, decode_content=False), each)


class Urllib3:
    """urllib3 by itself."""

    name = "urllib3"

    def ask(self, call: Call) -> Got:
        return self.ask_all([call])[0]

    def ask_all(self, calls: Iterable[Call]) -> list[Got]:
        with urllib3.PoolManager(timeout=TIMEOUT_S, retries=False) as pool:
            return [_of_urllib3(pool.request(**_for_urllib3(call))) for call in calls]

    def pieces(self, call: Call, each: Each = lambda _: None) -> list[bytes]:
        with urllib3.PoolManager(timeout=TIMEOUT_S, retries=False) as pool:
            response = pool.request(**_for_urllib3(call), preload_content=False)
            try:
                return _while_wanted(response.stream(1 << 20, decode_content=False), each)
            finally:
                response.close()


class Aiohttp:
    """aiohttp."""

    def __init__(self, run: Run = asyncio.run) -> None:
        self._run = run
        self.name = f"aiohttp{'-uvloop' if run is uvloop.run else ''}"

    def ask(self, call: Call) -> Got:
        return self.ask_all([call])[0]

    def ask_all(self, calls: Iterable[Call]) -> list[Got]:
        async def ask(session: aiohttp.ClientSession, call: Call) -> Got:
            async with session.request(**_for_aiohttp(call)) as response:
                return Got(
                    response.status,
                    response.reason or "",
                    [(n.decode().lower(), v.decode("latin-1")) for n, v in response.raw_headers],
                    await response.read(),
                )

        async def main() -> list[Got]:
            async with aiohttp.ClientSession(timeout=_total()) as session:
                return list(await asyncio.gather(*(ask(session, call) for call in calls)))

        result: list[Got] = self._run(main())
        return result

    def pieces(self, call: Call, each: Each = lambda _: None) -> list[bytes]:
        async def main() -> list[bytes]:
            got = []
            async with (
                aiohttp.ClientSession(timeout=_total(), auto_decompress=False) as session,
                session.request(**_for_aiohttp(call)) as response,
            ):
                async for piece in response.content.iter_any():
                    got.append(piece)
                    if each(piece) is False:
                        break
            return got

        result: list[bytes] = self._run(main())
        return result


def _total() -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=TIMEOUT_S)


def _while_wanted(pieces: Iterable[bytes], each: Each) -> list[bytes]:
    got = []
    for piece in pieces:
        got.append(piece)
        if each(piece) is False:
            break
    return got


def _for_httpx(call: Call) -> dict[str, Any]:
    return {
        "method": call.method,
        "url": call.url,
        "headers": list(call.headers),
        "content": call.body,
    }


def _for_requests(call: Call) -> dict[str, Any]:
    return {
        "method": call.method,
        "url": call.url,
        "headers": dict(call.headers),
        "data": call.body,
    }


def _for_urllib3(call: Call) -> dict[str, Any]:
    headers = urllib3.HTTPHeaderDict(call.headers)
    return {"method": call.method, "url": call.url, "headers": headers, "body": call.body}


def _for_aiohttp(call: Call) -> dict[str, Any]:
    return {
        "method": call.method,
        "url": call.url,
        "headers": list(call.headers),
        "data": call.body,
    }


def _of_httpx(response: Any) -> Got:
    headers = [(n.decode().lower(), v.decode("latin-1")) for n, v in response.headers.raw]
    return Got(response.status_code, response.reason_phrase, headers, response.content)


def _of_requests(response: requests.Response) -> Got:
    headers = [(name.lower(), value) for name, value in response.raw.headers.items()]
    return Got(response.status_code, response.reason, headers, response.content)


def _of_urllib3(response: urllib3.BaseHTTPResponse) -> Got:
    headers = [(name.lower(), value) for name, value in response.headers.items()]
    return Got(response.status, response.reason or "", headers, response.data)


CLIENTS: tuple[Client, ...] = (
    Httpx(httpx),
    AsyncHttpx(httpx),
    Httpx(httpx2),
    AsyncHttpx(httpx2),
    Requests(),
    Urllib3(),
    Aiohttp(),
)
ON_UVLOOP: tuple[Client, ...] = (AsyncHttpx(httpx2, uvloop.run), Aiohttp(uvloop.run))
