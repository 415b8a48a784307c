"""Clients that reach the network without Python's `socket` noticing."""

import asyncio

import curl_cffi
import grpc
import grpc._channel
import grpc.aio
import pycurl
import pytest

import tapes
from tapes import NetworkBlocked
from tapes.tape.base import MemoryTape
from tests.servers import answer, serving

FAR = "198.51.100.1"


def replaying() -> tapes.use:
    return tapes.use(MemoryTape())


@pytest.mark.row("N16")
def test_curl_cffi_is_refused() -> None:
    async def ask() -> None:
        async with curl_cffi.AsyncSession() as session:
            await session.get(f"https://{FAR}:8443/v1")

    with replaying():
        with pytest.raises(NetworkBlocked, match=f"{FAR}:8443"):
            curl_cffi.get(f"https://{FAR}:8443/v1")
        with pytest.raises(NetworkBlocked, match=f"{FAR}:8443"):
            asyncio.run(ask())
        with serving(answer(b"here")) as server:
            assert curl_cffi.get(server.url).content == b"here"


@pytest.mark.row("N16")
def test_pycurl_is_refused() -> None:
    with replaying():
        curl = pycurl.Curl()
        with pytest.raises(NetworkBlocked, match=r"provider\.test"):
            curl.setopt(pycurl.URL, "provider.test/v1")
        with serving(answer(b"here")) as server:
            got: list[bytes] = []
            curl.setopt(pycurl.URL, server.url)
            curl.setopt(pycurl.WRITEFUNCTION, got.append)
            curl.perform()
        curl.close()
    assert got == [b"here"]


@pytest.mark.row("N16")
@pytest.mark.parametrize(
    "target", [f"{FAR}:443", f"dns:///{FAR}:443", f"ipv4:{FAR}:443", f"dns://8.8.8.8/{FAR}:443"]
)
def test_grpc_is_refused(target: str) -> None:
    with replaying():
        with pytest.raises(NetworkBlocked, match=f"{FAR}:443"):
            grpc.insecure_channel(target)
        with pytest.raises(NetworkBlocked, match=f"{FAR}:443"):
            grpc.secure_channel(target, grpc.ssl_channel_credentials())


@pytest.mark.row("N16")
def test_grpc_on_a_loop_is_refused() -> None:
    async def ask() -> None:
        grpc.aio.insecure_channel(f"{FAR}:443")

    with replaying(), pytest.raises(NetworkBlocked, match=f"{FAR}:443"):
        asyncio.run(ask())


@pytest.mark.parametrize("target", ["localhost:1", "127.0.0.1:1", "unix:/run/x", "[::1]:1"])
def test_grpc_reaches_this_machine(target: str) -> None:
    with replaying():
        grpc.insecure_channel(target).close()


def test_afterwards_they_are_as_they_were() -> None:
    before = (pycurl.Curl, curl_cffi.Curl.setopt, grpc._channel.Channel.__init__)
    with replaying():
        assert pycurl.Curl is not before[0]
    assert before == (pycurl.Curl, curl_cffi.Curl.setopt, grpc._channel.Channel.__init__)
