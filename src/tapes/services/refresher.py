"""Asks every source again and again: at once, then in intervals, sooner after a failure.

Rule 1: each source has a task and a timer of its own. None waits for another.
Rule 2: after a failure the next attempt comes soon, then later and later, never later than the
        interval; when it will be is known to everybody.
Rule 3: a document that was judged is not judged again: the same bytes are the same outcome. One
        that could not be judged is tried again, in rounds that grow rarer and rarer.
Rule 4: nothing that goes wrong with one source ends the task of any.

Knows nothing of how documents are fetched or judged, only when.
"""

import asyncio
import hashlib
import logging
import random
import time
from collections.abc import Callable, Collection, Iterable
from typing import Protocol

from tapes.errors import Problem, RefusedService
from tapes.services.admission import Service
from tapes.services.fetching import Document, Fetcher, NotModified, Unfetched
from tapes.services.problems import UNDECIDED, Stage, problem
from tapes.services.registry import (
    Admitted,
    Failed,
    Outcome,
    Probe,
    Registry,
    Source,
    Unchanged,
    delay_after,
)

log = logging.getLogger(__name__)

INTERVAL_S = 30.0
# With an interval of zero, sources that have not come up are asked for so long and no longer.
START_S = 15.0
_JITTER = 0.1
_RAREST = 7  # a document that cannot be judged is tried every 128 rounds at last


class Admits(Protocol):
    """Judges documents."""

    async def admit(
        self, document: bytes, source: str, contracts: Collection[str], *, lenient: bool
    ) -> Service:
        """The service that a document declares. Raises RefusedService."""
        ...


class Refresher:
    """The tasks that follow the sources. To be started and stopped on one loop."""

    def __init__(
        self,
        registry: Registry,
        fetcher: Fetcher,
        admits: Admits,
        *,
        contracts: Collection[str] = ("v1",),
        interval_s: float = INTERVAL_S,
        lenient: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._registry = registry
        self._fetcher = fetcher
        self._admits = admits
        self._contracts = tuple(contracts)
        self._interval_s = interval_s
        self._lenient = lenient
        self._clock = clock
        self._followers: dict[str, _Follower] = {}

    def follow(self, urls: Iterable[str]) -> None:
        """Follow these sources from now on, in this order of their rights; let others go."""
        wanted = list(dict.fromkeys(urls))
        self._registry.configure(wanted, self._clock())
        for url in [url for url in self._followers if url not in wanted]:
            self._followers.pop(url).stop()
        for url in wanted:
            if url not in self._followers:
                self._followers[url] = _Follower(self, url)
        # A name may have become free, or its rights another's.
        for source in self._registry.snapshot.sources:
            if source.trouble is not None and source.trouble.code == Stage.NAME_TAKEN:
                self._followers[source.url].wake()

    def wake(self) -> None:
        """Ask all sources soon."""
        for follower in self._followers.values():
            follower.wake()

    async def recheck(self, urls: Collection[str] | None = None) -> None:
        """Ask these sources now, or all; returns when each has been asked."""
        chosen = [f for url, f in self._followers.items() if urls is None or url in urls]
        await asyncio.gather(*(follower.ask_now() for follower in chosen))

    async def stop(self) -> None:
        """Ask nobody any more."""
        followers = list(self._followers.values())
        self._followers.clear()
        for follower in followers:
            follower.stop()
        await asyncio.gather(*(f.task for f in followers), return_exceptions=True)

    # --- one attempt

    async def attempt(self, url: str, judged: "_Judged") -> None:
        """Ask a source once, and let the registry know."""
        known = self._registry.source(url)
        if known is None:
            return
        outcome, probe = await asyncio.gather(self._ask(known, judged), self._probe(known))
        if probe is None and isinstance(outcome, Admitted):
            probe = await self._probe_service(outcome.service)
        now = self._clock()
        current = self._registry.attempted(url, outcome, probe, now)
        if current is not None:
            _tell(known, current)
            self._registry.schedule(url, self._next(current, now))

    def _next(self, source: Source, now: float) -> float | None:
        failures = 0 if source.trouble is None else source.failures
        if self._interval_s <= 0:
            late = now - source.since > START_S
            return None if failures == 0 or late else now + delay_after(failures, START_S)
        spread = 1 + _JITTER * (2 * random.random() - 1) if failures else 1.0
        return now + min(delay_after(failures, self._interval_s) * spread, self._interval_s)

    async def _ask(self, known: Source, judged: "_Judged") -> Outcome:
        try:
            found = await self._fetcher.fetch(
                known.url, known.validator, anew=known.silences > 0 or known.attempted is None
            )
        except Unfetched as error:
            return Failed((error.problem,), answered=error.answered)
        if isinstance(found, NotModified):
            return Unchanged(found.latency_s)
        return await self._judge(known.url, found, judged)

    async def _judge(self, url: str, found: Document, judged: "_Judged") -> Outcome:
        digest = hashlib.sha256(found.data).digest()
        if judged.wants(digest):
            try:
                outcome: Service | tuple[Problem, ...] = await self._admits.admit(
                    found.data, url, self._contracts, lenient=self._lenient
                )
            except RefusedService as error:
                outcome = error.problems
            judged.note(digest, outcome)
        if isinstance(judged.outcome, Service):
            return Admitted(judged.outcome, found.validator, found.latency_s)
        return Failed(judged.outcome or (), answered=True)

    async def _probe(self, known: Source) -> Probe | None:
        return None if known.service is None else await self._probe_service(known.service)

    async def _probe_service(self, service: Service) -> Probe:
        return await self._fetcher.probe(service.origin, service.manifest.health)


class _Judged:
    """The last document of a source, and what was made of it (rule 3)."""

    def __init__(self) -> None:
        self.outcome: Service | tuple[Problem, ...] | None = None
        self._digest = b""
        self._tries = 0  # that came to no judgement
        self._rounds = 0  # until the next one

    def wants(self, digest: bytes) -> bool:
        """Whether this document is to be judged now."""
        if digest != self._digest:
            self.outcome, self._digest, self._tries = None, b"", 0
            return True
        self._rounds -= 1
        return self._tries > 0 and self._rounds <= 0

    def note(self, digest: bytes, outcome: Service | tuple[Problem, ...]) -> None:
        """Keep what was made of it."""
        self.outcome, self._digest = outcome, digest
        undecided = isinstance(outcome, tuple) and outcome[0].code == UNDECIDED
        self._tries = self._tries + 1 if undecided else 0
        self._rounds = 2 ** min(self._tries - 1, _RAREST) if undecided else 0


class _Follower:
    """Follows one source."""

    def __init__(self, refresher: Refresher, url: str) -> None:
        self._refresher = refresher
        self._url = url
        self._judged = _Judged()
        self._wanted = asyncio.Event()
        self._waiting: list[asyncio.Future[None]] = []
        self.task = asyncio.get_running_loop().create_task(self._follow())

    def stop(self) -> None:
        """Ask no more."""
        self.task.cancel()
        self._tell_waiting()

    def wake(self) -> None:
        """Ask soon, without waiting for the time."""
        self._wanted.set()

    async def ask_now(self) -> None:
        """Ask without waiting for the time; returns when it is done."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self._wanted.set()
        await done

    async def _follow(self) -> None:
        registry, clock = self._refresher._registry, self._refresher._clock
        while True:
            self._wanted.clear()
            waiting, self._waiting = self._waiting, []
            try:
                await self._refresher.attempt(self._url, self._judged)
            except Exception:
                log.exception("a source could not be asked")
                found = problem(Stage.FETCH, "host_failed", "", "the host failed; see its log")
                registry.attempted(self._url, Failed((found,), answered=False), None, clock())
                registry.schedule(self._url, clock() + INTERVAL_S)
            finally:
                _finish(waiting)
            source = registry.source(self._url)
            at = None if source is None else source.next_attempt
            wait_s = None if at is None else max(0.0, at - clock())
            try:
                async with asyncio.timeout(wait_s):
                    await self._wanted.wait()
            except TimeoutError:
                pass

    def _tell_waiting(self) -> None:
        waiting, self._waiting = self._waiting, []
        _finish(waiting)


def _finish(waiting: list["asyncio.Future[None]"]) -> None:
    for done in waiting:
        if not done.done():
            done.set_result(None)


def _tell(before: Source, after: Source) -> None:
    """Log what a person wants to know, once (problems are logged when they change)."""
    had = None if before.trouble is None else before.trouble.reason
    if after.trouble is not None:
        if after.trouble.reason != had:
            log.warning("source %s: %s", after.subject, after.trouble.reason)
    elif before.service is None:
        log.info("source %s: admitted as %s", after.subject, after.name)
    elif had is not None:
        log.info("source %s: %s is well again", after.subject, after.name)
