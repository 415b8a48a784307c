import asyncio
import socket
import struct
import threading
from collections.abc import Sequence

import pytest

from tapes.errors import Unreachable
from tapes.forwarding import Sender
from tests.servers import Server, answer


class OneAddress:
    """A gate that lets this machine through until it is shut."""

    def __init__(self) -> None:
        self.found: tuple[str, ...] = ("127.0.0.1",)

    def addresses(self, _host: str) -> Sequence[str]:
        return self.found

    def allows(self, address: str) -> bool:
        return address in self.found


def test_a_connection_that_was_kept_is_used_only_while_its_host_may_be_asked() -> None:
    server, gate = Server(answer(b"{}")), OneAddress()
    sender = Sender(gate)

    async def ask() -> bytes | None:
        async with sender.ask("GET", server.url, b"/", []) as got:
            return await got.body(100)

    async def ask_before_and_after() -> None:
        await sender.open()
        try:
            assert [await ask(), await ask()] == [b"{}", b"{}"]
            gate.found = ()
            with pytest.raises(Unreachable, match="may be asked"):
                await ask()
        finally:
            await sender.close()

    asyncio.run(ask_before_and_after())
    assert server.connections == 1
    server.close()


def test_who_resets_a_connection_in_the_middle_of_an_upload_is_not_said_to_be_out_of_reach() -> (
    None
):
    sender = Sender(OneAddress())
    with socket.create_server(("127.0.0.1", 0)) as listening:
        origin = f"http://127.0.0.1:{listening.getsockname()[1]}"

        def resets() -> None:
            made, _ = listening.accept()
            made.recv(1000)
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            made.close()

        async def ask() -> None:
            await sender.open()
            try:
                async with sender.ask("POST", origin, b"/", [], body=b"x" * 50_000_000):
                    raise AssertionError("there is no answer")
            finally:
                await sender.close()

        peer = threading.Thread(target=resets)
        peer.start()
        with pytest.raises(Unreachable, match=r"was reached, but it (reset|closed)"):
            asyncio.run(ask())
        peer.join()


@pytest.mark.parametrize("port", ["65536", "99999", "9" * 40])
def test_a_port_that_there_cannot_be_is_out_of_reach(port: str) -> None:
    async def ask() -> None:
        sender = Sender(OneAddress())
        await sender.open()
        try:
            async with sender.ask("GET", f"http://127.0.0.1:{port}", b"/", []):
                raise AssertionError("there is no answer")
        finally:
            await sender.close()

    with pytest.raises(Unreachable, match="cannot be reached"):
        asyncio.run(ask())
