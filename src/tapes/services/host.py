"""A host of cassette services: its parts put together, alone or in front of another application.

    host = Host(Setup(sources=Listed(("http://127.0.0.1:9999/openapi",), "here")))
    async with host.running():
        ...                      # host.app is an ASGI application

Rule 1: the host is ready before any source has answered, and whatever becomes of them.
Rule 2: what a file says of sources, hosts and limits is read again and again, and taken up at once.
        One that cannot be read, or has no list of sources any more, is a problem with its time, and
        changes nothing: only a list that says so withdraws.
Rule 3: a server that strangers can reach has a token before it listens.
Rule 4: the SDK of MCP takes most of a second to load, and slows the loop down meanwhile. It is
        loaded once every source was asked, or somebody asks for tools; only they wait for it.
        Where there is no source, nobody pays for it.
"""

import asyncio
import contextlib
import gc
import logging
import socket
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Protocol

from tapes.access import LOOPBACK_NAMES, Access
from tapes.asgi import AsgiServer
from tapes.ending import told_to_end
from tapes.errors import BadSetting
from tapes.forwarding import Sender
from tapes.jsontext import Json
from tapes.services.app import ServicesApp
from tapes.services.calling import Caller
from tapes.services.fetching import FETCH_S, Fetcher
from tapes.services.limiting import Limited
from tapes.services.merging import Aggregate
from tapes.services.pinfile import PinFile
from tapes.services.pins import Pins
from tapes.services.problems import Stage, problem
from tapes.services.refresher import INTERVAL_S, Refresher
from tapes.services.registry import Registry, Snapshot
from tapes.services.replying import App, Receive, Scope, Send
from tapes.services.sidework import Sidework
from tapes.services.sources import Listed
from tapes.services.told import Told
from tapes.services.trust import Addresses, Lookup, Trust, system_lookup

log = logging.getLogger(__name__)

WATCH_S = 1.0
# A source that hangs does not keep the tools from being loaded for longer.
_QUIET_S = 5.0
# The tiny document of a host that has nothing of its own.
NOTHING: dict[str, Json] = {
    "openapi": "3.0.3",
    "info": {"title": "tapes", "version": "v1"},
    "paths": {},
}


@dataclass(frozen=True, slots=True)
class Setup:
    """What a host is told."""

    sources: Listed = field(default_factory=Listed)
    trusted: Listed = field(default_factory=Listed)
    interval_s: float = INTERVAL_S
    contracts: tuple[str, ...] = ("v1",)
    limited: Limited = field(default_factory=Limited)
    # None where whoever stands in front of the host has decided already.
    access: Access | None = field(default_factory=Access)
    # Hashes of further tokens of ours, that services must not see.
    own_tokens: frozenset[str] = frozenset()
    lenient_tools: bool = False
    only_documented: bool = False
    sandbox: bool = True
    pin_file: Path | None = None
    fetch_s: float = FETCH_S
    # Whoever runs this process spares what it began with when looking for garbage.
    settles: bool = False


class Host:
    """A host. `app` is its application; it answers while the host runs."""

    def __init__(
        self,
        setup: Setup,
        *,
        own_document: Callable[[], dict[str, Json]] = lambda: NOTHING,
        inner: App | None = None,
        lookup: Lookup = system_lookup,
    ) -> None:
        self.setup = setup
        self._pins = None if setup.pin_file is None else PinFile(setup.pin_file)
        approved = None if self._pins is None else self._pins.read()
        self.registry = Registry(approved)
        self._written: Pins | None = approved
        self._unwritten: frozenset[str] = frozenset()
        self._addresses = Addresses(Trust(setup.trusted.values), lookup)
        self._sender = Sender(self._addresses)
        self.caller = Caller(self._sender, setup.limited.of, tokens=_tokens(setup))
        self._admitting, self._merging = Sidework(), Sidework()
        self._aggregate = Aggregate(self.registry, self._merging, own_document)
        self.registry.watch(self._aggregate.refresh_soon)
        self.registry.watch(self._keep_pins)
        self._tools = _LateTools(self.registry, self.caller, settles=setup.settles)
        self.refresher: Refresher | None = None
        self.app = ServicesApp(
            self.registry,
            self.caller,
            self._aggregate,
            self._recheck,
            contracts=setup.contracts,
            mcp=self._tools,
            inner=inner,
            access=setup.access,
            only_documented=setup.only_documented,
            sandbox=setup.sandbox,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the sources and answer, for as long as the context lasts (rule 1)."""
        await self._sender.open()
        beside = [self._watch(), self._tools.serve()]
        if self.setup.sources.values:
            beside.append(self._admitting.get_ready())  # while the sources are asked
        self.refresher = Refresher(
            self.registry,
            Fetcher(self._sender, self._addresses, fetch_s=self.setup.fetch_s),
            self._admitting,
            contracts=self.setup.contracts,
            interval_s=self.setup.interval_s,
            lenient=self.setup.lenient_tools,
        )
        try:
            self.refresher.follow(self.setup.sources.values)
            tasks = [asyncio.create_task(part) for part in beside]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await self.refresher.stop()
        finally:
            await self._sender.close()
            await self._admitting.close()
            await self._merging.close()

    async def _recheck(self, urls: Collection[str] | None) -> None:
        if self.refresher is not None:
            await self.refresher.recheck(urls)

    # --- files (rule 2)

    async def _watch(self) -> None:
        told = Told(self.setup.sources, self.setup.trusted, self.setup.limited)
        while True:
            await asyncio.sleep(WATCH_S)
            if told.file is not None:
                told = await self._told_now(told, told.file)
            self._read_pins()

    async def _told_now(self, told: Told, file: Path) -> Told:
        """What the file says now, taken up where it changed; the last where it cannot be read."""
        had = self.registry.snapshot.unlisted
        try:
            now = await asyncio.to_thread(told.anew)
        except BadSetting as error:
            why = f"{error.message}; what was said before stays"
            if had is None or had.trouble.reason != why:
                log.error("%s: %s", why, error.remedy)
            found = problem(Stage.SOURCE_LIST, "unreadable", "", why)
            self.registry.list_read(str(file), (found,), time.time())
            return told
        self.registry.list_read(str(file), (), time.time())
        if had is not None:
            log.info("%s can be read again", file)
        self._take_up(told, now)
        return now

    def _take_up(self, had: Told, now: Told) -> None:
        if now.limited != had.limited:
            self.caller.hold_to(now.limited.of)
            log.info("the limits of services changed")
        if now.trusted.values != had.trusted.values:
            self._addresses.judge_by(Trust(now.trusted.values))
            log.info("the hosts that are trusted changed")
        if self.refresher is None:
            return
        if now.sources.values != had.sources.values:
            self.refresher.follow(now.sources.values)
            log.info("the list of sources changed: %d sources", len(now.sources.values))
        if now.trusted.values != had.trusted.values:
            self.refresher.wake()

    def _read_pins(self) -> None:
        if self._pins is None or not self._pins.changed():
            return
        try:
            said = self._pins.read()
        except BadSetting as error:
            log.error("%s", error)
            return
        seen = self.registry.pins or Pins()
        self._written = said
        # What was approved by being seen first and could not be written yet is not lost.
        new = {name: seen.approved[name] for name in self._unwritten if name in seen.approved}
        self.registry.pin(Pins({**new, **said.approved}) if new else said, time.time())

    def _keep_pins(self, _old: Snapshot, _new: Snapshot) -> None:
        """Write down what was approved by being seen first."""
        pins = self.registry.pins
        if self._pins is None or pins is None or pins is self._written:
            return
        if self._pins.changed():  # the operator's word is read first, or it would be lost
            known = {} if self._written is None else self._written.approved
            self._unwritten = frozenset(pins.approved.keys() - known.keys())
            return
        self._written, self._unwritten = pins, frozenset()
        try:
            self._pins.write(pins)
        except OSError as error:
            log.error("what was approved could not be kept: %s", error)


def _tokens(setup: Setup) -> frozenset[str]:
    own = None if setup.access is None else setup.access.token
    return setup.own_tokens if own is None else setup.own_tokens | {own}


class _Endpoint(Protocol):
    """The tools' own application."""

    def running(self) -> AbstractAsyncContextManager[None]: ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...


class _LateTools:
    """The tools' application, from the first request on; it answers once it is loaded (rule 4)."""

    def __init__(self, registry: Registry, caller: Caller, *, settles: bool) -> None:
        self._registry = registry
        self._caller = caller
        self._settles = settles
        self._endpoint: _Endpoint | None = None
        self._serving: asyncio.Future[_Endpoint] | None = None
        self._has_use = asyncio.Event()
        self._wanted = asyncio.Event()
        registry.watch(self._looked_at)

    def _looked_at(self, _old: Snapshot, new: Snapshot) -> None:
        if new.sources:
            self._has_use.set()
            if all(source.attempted is not None for source in new.sources):
                self._wanted.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, as soon as that is possible."""
        assert self._serving is not None, "the host does not run"
        self._has_use.set()
        self._wanted.set()
        endpoint = await asyncio.shield(self._serving)
        await endpoint(scope, receive, send)

    async def serve(self) -> None:
        """Load, and serve until cancelled."""
        self._serving = serving = asyncio.get_running_loop().create_future()
        await self._has_use.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_QUIET_S):
                await self._wanted.wait()
        try:
            if self._endpoint is None:
                self._endpoint = await asyncio.to_thread(_loaded, self._registry, self._caller)
                if self._settles:
                    gc.freeze()  # this too
            async with self._endpoint.running():
                serving.set_result(self._endpoint)
                await asyncio.Event().wait()
        except Exception as error:
            log.exception("tools cannot be offered over MCP")
            if not serving.done():
                serving.set_exception(error)
                serving.exception()  # told above; whoever asks is told again


def _loaded(registry: Registry, caller: Caller) -> _Endpoint:
    from tapes.services.mcp import Tools

    return Tools(registry, caller, version=_version())


def _version() -> str:
    try:
        return metadata.version("tapes-py")
    except metadata.PackageNotFoundError:
        return "dev"


# --- as a server of its own -------------------------------------------------------------------


def access_for(host: str, *, is_loopback: bool, token_sha256: str | None) -> Access:
    """Who may use a server that listens there. Raises BadSetting (rule 3)."""
    if not is_loopback and token_sha256 is None:
        raise BadSetting(
            f"{host} can be reached by strangers, and no token is set",
            "set one: TAPES_SERVICES_TOKEN=…, or listen on 127.0.0.1",
        )
    return Access(token_sha256, LOOPBACK_NAMES | {host.lower()})


class HostServer:
    """A host that listens, from the moment at which it is made. Raises BadSetting."""

    def __init__(self, host: Host, address: str, port: int) -> None:
        self.host = host
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            self._socket = socket.create_server((address, port), family=family, backlog=1024)
        except OSError as error:
            raise BadSetting(
                f"cannot listen on {address}:{port}: {error.strerror or error}",
                "choose another address: --listen 127.0.0.1:0 takes any free port",
            ) from error
        self._server = AsgiServer(host.app, patience_s=5)

    @property
    def address(self) -> str:
        """The base of URLs that lead here."""
        host, port = self._socket.getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def serve(
        self, ready: Callable[["HostServer"], object], until: asyncio.Event | None = None
    ) -> None:
        """Serve until the event, or until a signal ends it; then let answers end in order."""
        stopped = until or told_to_end()
        async with self.host.running():
            serving = asyncio.create_task(self._server.serve([self._socket]))
            try:
                ready(self)  # whoever connects from now on waits in the backlog, and is answered
                await stopped.wait()
            finally:
                self._server.should_exit = True
                await serving
                self._socket.close()
