import asyncio
from typing import Any

import pytest

from tapes.dated import dated


def heads(*headers: tuple[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """The headers with which an answer with these goes out."""
    sent: list[Any] = []

    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"x"})

    async def receive() -> Any:
        raise AssertionError("nobody listens")

    async def send(message: Any) -> None:
        sent.append(message)

    async def ask() -> None:
        await dated(app, lambda: 0.0)({"type": "http"}, receive, send)

    asyncio.run(ask())
    assert sent[1] == {"type": "http.response.body", "body": b"x"}
    found: list[tuple[bytes, bytes]] = list(sent[0]["headers"])
    return found


NOW = (b"date", b"Thu, 01 Jan 1970 00:00:00 GMT")
THEIRS = (b"date", b"Fri, 02 Jan 1970 00:00:00 GMT")


@pytest.mark.parametrize("given", [(), ((b"server", b"x"),)], ids=["none", "others"])
def test_an_answer_without_a_date_gets_one(given: tuple[tuple[bytes, bytes], ...]) -> None:
    assert heads(*given) == [*given, NOW]


def test_the_date_of_who_answered_stays_the_only_one() -> None:
    assert heads(THEIRS) == [THEIRS]
