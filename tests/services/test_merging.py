import asyncio
import json
from collections.abc import Sequence

import pytest

from tapes.jsontext import Json
from tapes.services.beside import Named
from tapes.services.merging import Aggregate
from tapes.services.registry import Registry


class Slow:
    """Merges nothing into the host's own document, once it may."""

    def __init__(self) -> None:
        self.begun = asyncio.Semaphore(0)
        self.may_end = asyncio.Event()
        self.merged = 0

    async def merge(self, _services: Sequence[Named], own: dict[str, Json]) -> bytes:
        self.merged += 1
        self.begun.release()
        await self.may_end.wait()
        return json.dumps(own).encode()


def test_who_asks_at_once_shares_one_making() -> None:
    async def ask() -> None:
        slow, own = Slow(), dict[str, Json]()
        aggregate = Aggregate(Registry(), slow, lambda: own)
        asking = [asyncio.create_task(aggregate.document()) for _ in range(3)]
        await slow.begun.acquire()
        slow.may_end.set()
        assert len({merged.etag for merged in await asyncio.gather(*asking)}) == 1
        assert slow.merged == 1

    asyncio.run(ask())


def test_a_document_that_changes_while_it_is_merged_is_merged_again() -> None:
    async def ask() -> None:
        slow, own = Slow(), [dict[str, Json](a=1)]
        aggregate = Aggregate(Registry(), slow, lambda: own[0])
        first = asyncio.create_task(aggregate.document())
        await slow.begun.acquire()
        own[0] = {"a": 2}
        second = asyncio.create_task(aggregate.document())
        await slow.begun.acquire()
        slow.may_end.set()
        assert [(await first).body, (await second).body] == [b'{"a": 1}', b'{"a": 2}']

    asyncio.run(ask())


def test_an_own_document_that_cannot_be_had_keeps_no_change_from_others() -> None:
    async def ask() -> None:
        slow, own = Slow(), [dict[str, Json]()]
        slow.may_end.set()
        registry, seen = Registry(), list[int]()
        aggregate = Aggregate(registry, slow, lambda: own[0])
        registry.watch(aggregate.refresh_soon)
        registry.watch(lambda _, new: seen.append(new.published))
        await aggregate.document()
        own.clear()
        registry.configure(["http://127.0.0.1/openapi"], 0.0)
        assert seen == [1]
        with pytest.raises(IndexError):
            await aggregate.document()

    asyncio.run(ask())
