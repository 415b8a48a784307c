import asyncio
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
