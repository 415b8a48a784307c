"""The aggregate document: made beside the host whenever what is in it changed, and kept.

Rule 1: whoever asks gets the document of the services as they are now. It is made once for all who
        ask meanwhile.
Rule 2: where it cannot be made, the last good one is better than none.

Knows nothing of HTTP.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tapes.jsontext import Json
from tapes.services.beside import Named
from tapes.services.openapi import etag_of
from tapes.services.registry import Registry, Snapshot
from tapes.services.sidework import WorkFailed

log = logging.getLogger(__name__)


class Merges(Protocol):
    """Merges documents."""

    async def merge(self, services: Sequence[Named], own: dict[str, Json]) -> bytes:
        """The aggregate of documents and the host's own. Raises WorkFailed."""
        ...


@dataclass(frozen=True, slots=True)
class Merged:
    """An aggregate, and what it was made of."""

    body: bytes
    etag: str
    published: int
    own: dict[str, Json]


class Aggregate:
    """The aggregate document of what is published."""

    def __init__(
        self, registry: Registry, merges: Merges, own: Callable[[], dict[str, Json]]
    ) -> None:
        self._registry = registry
        self._merges = merges
        self._own = own
        self._last: Merged | None = None
        self._under_way: tuple[int, dict[str, Json], asyncio.Task[Merged]] | None = None

    def refresh_soon(self, old: Snapshot, new: Snapshot) -> None:
        """Begin to make it where it changed, so that whoever asks next need not wait."""
        if old.published == new.published or self._last is None:
            return
        try:
            self._begin(self._own())
        except Exception:
            # Whoever asks is told. That something changed is others' business too.
            log.exception("the host's own document cannot be had")

    async def document(self) -> Merged:
        """The aggregate as of now. Raises WorkFailed where there never was one."""
        own = self._own()
        last, published = self._last, self._registry.snapshot.published
        if last is not None and last.published == published and last.own is own:
            return last
        try:
            return await asyncio.shield(self._begin(own))
        except WorkFailed as error:
            if last is None:
                raise
            log.error("the aggregate document could not be made anew: it %s", error)
            return last

    def _begin(self, own: dict[str, Json]) -> "asyncio.Task[Merged]":
        published = self._registry.snapshot.published
        if self._under_way is not None:
            of, with_own, task = self._under_way
            if of == published and with_own is own and not task.done():
                return task
        task = asyncio.get_running_loop().create_task(self._make(own))
        task.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._under_way = (published, own, task)
        return task

    async def _make(self, own: dict[str, Json]) -> Merged:
        snapshot = self._registry.snapshot
        services = [
            Named(name, source.service.document)
            for name, source in snapshot.services.items()
            if source.service is not None
        ]
        body = await self._merges.merge(services, own)
        merged = Merged(body, etag_of(body), snapshot.published, own)
        if self._last is None or self._last.published <= merged.published:
            self._last = merged
        return merged
