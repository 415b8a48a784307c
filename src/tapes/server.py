"""Assembles servers from settings, and runs them: the one place that knows everyone.

Rule 1: a server that strangers can reach has a token before it listens.
Rule 2: stopping is orderly: no new connections, a little time for answers under way, then the rest
        is broken off and told so, and what is being kept is kept.
"""

import asyncio
import contextlib
import gc
import ipaddress
import logging
import os
import socket
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tapes.access import LOOPBACK_NAMES, Access, name_of, token_hash
from tapes.budget import Limits, latch_is_on
from tapes.capture.asked import ProxyMode, Setup
from tapes.capture.desk import Desk
from tapes.capture.proxy import Proxy
from tapes.capture.relay import Clients
from tapes.capture.routes import Routes
from tapes.capture.shelf import Shelf
from tapes.capture.watching import Watcher
from tapes.cassette import Cassette
from tapes.config import Settings
from tapes.ending import By, at_most, end_at_last, told_to_end
from tapes.errors import BadSetting
from tapes.listening import Listen as Listen
from tapes.lives import BEAT_S, Living
from tapes.tape.base import Tape

log = logging.getLogger(__name__)

# What answers under way may take once the server is told to stop.
STOP_S = 5.0
# What tapes may take to be let go.
_LETTING_GO_S = 30.0
_BACKLOG = 1024
# Threads that decide and record give the loop its turn after this: an event of a stream must not
# wait for an answer that is made ready. The default is fifty times that.
_SWITCH_S = 0.0001
# A request leaves no cycles behind. Looked for as often as usual, they take 4 % of the time.
_GARBAGE = (5_000, 20, 100)


# --- from settings to a set-up ----------------------------------------------------------------


def proxy_setup(
    settings: Settings,
    *,
    token: str | None,
    limits: Limits | None = None,
    repeated: str = "reuse",
    further_upstreams: Mapping[str, str] | None = None,
) -> Setup:
    """The set-up that settings describe. `token` is the hash of the token that clients send.

    Opens the tapes. Raises BadSetting and what opening a tape raises.
    """
    mode = ProxyMode(settings["proxy.mode"])
    listen = Listen.of(settings["proxy.listen"])
    # Nobody changes the environment of a server that runs: it is read once.
    limits = Limits.of(os.environ) if limits is None else limits
    latch = latch_is_on(os.environ)
    upstreams = {**(further_upstreams or {}), **settings["proxy.upstreams"]}
    _require_elsewhere({**settings["proxy.upstreams"], "": settings["proxy.upstream"]}, listen)
    routes = Routes.of(
        upstreams, settings["proxy.upstream"], any_url=listen.is_loopback, own=listen
    )

    def opened(tape: str | Tape) -> Cassette:
        return Cassette(tape, str(mode), limits=limits, latch=latch, repeated=repeated)

    return Setup(
        mode=mode,
        routes=routes,
        shelf=Shelf() if mode is ProxyMode.PASS else _shelf(settings, opened),
        access=Access(token, LOOPBACK_NAMES | _names(settings, listen)),
        body_limit=settings["proxy.body_limit"],
        pace=settings["proxy.pace"],
    )


def _require_elsewhere(upstreams: Mapping[str, str | None], listen: Listen) -> None:
    """A proxy that sends on to itself would never answer. Raises BadSetting."""
    for name, url in upstreams.items():
        if url is not None and listen.is_meant_by(url):
            what = f"upstream {name}" if name else "the default upstream"
            raise BadSetting(
                f"{what} {url} is where this proxy listens: it would send on to itself",
                "name the provider: https://…, or listen elsewhere: --listen 127.0.0.1:8090",
            )


def _shelf(settings: Settings, opened: Callable[[str | Tape], Cassette]) -> Shelf:
    folder = settings["proxy.folder"]
    named = {name: opened(path) for name, path in settings["proxy.named"].items()}
    return Shelf(
        opened(settings["proxy.tape"]),
        named,
        folder=None if folder is None else Path(folder),
        opened=opened,
    )


def access_of(settings: Settings, section: str, token: str | None) -> Access:
    """Who may use a server, as a section of the settings says. `token` is the token's hash."""
    names = _names(settings, Listen.of(settings[f"{section}.listen"]), section)
    return Access(token, LOOPBACK_NAMES | names)


def _names(settings: Settings, listen: Listen, section: str = "proxy") -> frozenset[str]:
    names = {name_of(name) for name in settings[f"{section}.hosts"]}
    return frozenset(names | {name_of(str(listen))})


def token_of(settings: Settings, key: str = "proxy.token") -> str | None:
    """The hash of the token that settings give under a key or as its SHA-256, or None."""
    if settings[key]:
        return token_hash(settings[key])
    hashed: str | None = settings[f"{key}_sha256"]
    return hashed


def tenants_of(settings: Settings, section: str) -> dict[str, str]:
    """Tenants by the hashes of their tokens, as settings give them."""
    return {hashed: org for org, hashed in settings[f"{section}.tenants"].items()}


# --- a server ---------------------------------------------------------------------------------


def listening(listen: Listen, backlog: int) -> socket.socket:
    """A socket that listens there; on `::` for IPv4 too, as people mean it. Raises OSError."""
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    both = listen.host == "::" and socket.has_dualstack_ipv6()
    return socket.create_server(
        (listen.host, listen.port), family=family, backlog=backlog, dualstack_ipv6=both
    )


class ProxyServer:
    """The proxy, listening. To be started and stopped on one loop."""

    def __init__(self, setup: Setup, listen: Listen, watcher: Watcher | None = None) -> None:
        if not listen.is_loopback and setup.access.token is None:
            raise BadSetting(
                f"{listen} can be reached by strangers, and no token is set",
                "set one: TAPES_PROXY_TOKEN=…, or listen on 127.0.0.1",
            )
        self.setup = setup
        self.desk = Desk(setup, watcher=watcher)
        self._listen = listen
        self._clients = Clients(Proxy(self.desk))
        setup.shelf.when_let_go(self._forget_answers)
        self._server: asyncio.Server | None = None
        self._watching: list[asyncio.Task[None]] = []
        self._is_stopped = False

    def _forget_answers(self) -> None:
        self._clients.known.clear()
        self.desk.memo.forget()
        self.desk.keepers.forget()

    async def start(self) -> None:
        """Listen. Raises BadSetting where the address cannot be had."""
        loop, new, listen = asyncio.get_running_loop(), self._clients.connection, self._listen
        try:
            if ":" in listen.host:
                own = listening(listen, _BACKLOG)
                self._server = await loop.create_server(new, sock=own, backlog=_BACKLOG)
            else:  # a name may have several addresses
                self._server = await loop.create_server(
                    new, listen.host, listen.port, backlog=_BACKLOG
                )
        except OSError as error:
            raise BadSetting(
                f"cannot listen on {self._listen}: {error.strerror or error}",
                "choose another address: --listen 127.0.0.1:0 takes any free port",
            ) from error
        self._watching = [
            loop.create_task(watch) for watch in (self._clients.watch(), self.desk.pool.watch())
        ]

    @property
    def address(self) -> str:
        """The base of URLs that lead here; every address is named by one of this machine."""
        sockets: tuple[socket.socket, ...] = () if self._server is None else self._server.sockets
        host, port = sockets[0].getsockname()[:2] if sockets else (self._listen.host, 0)
        if ipaddress.ip_address(host).is_unspecified:
            host = "127.0.0.1"
        return f"http://{Listen(host, port)}"

    async def stop(self, patience_s: float = STOP_S) -> None:
        """Stop in order (rule 2). A second time does nothing."""
        if self._is_stopped:
            return
        self._is_stopped = True
        for task in self._watching:
            task.cancel()
        if self._server is not None:
            self._server.close()
        until = asyncio.get_running_loop().time() + at_most(patience_s, By.ANSWERED)
        while self._clients.are_busy and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.02)
        self._clients.close()
        while self._clients.open and asyncio.get_running_loop().time() < until + 1:
            await asyncio.sleep(0.002)  # until each is told, and keeps what came as evidence
        self.desk.pool.close()
        await asyncio.to_thread(self.desk.close)
        letting_go = asyncio.to_thread(self.setup.shelf.close)
        with contextlib.suppress(TimeoutError):  # a tape that hangs
            await asyncio.wait_for(letting_go, at_most(_LETTING_GO_S, By.LET_GO))


def settle() -> None:
    """To be called once a server listens: what is here by then stays, so that it need not be
    looked at again and again; and threads beside give the loop its turn.
    """
    gc.freeze()
    gc.set_threshold(*_GARBAGE)
    sys.setswitchinterval(_SWITCH_S)


def run_beside(beside: AbstractContextManager[object], ready: Callable[[], object]) -> None:
    """Let something be done beside until a signal ends it. `ready` is called once it has begun."""

    async def main() -> None:
        stopped = told_to_end()
        with beside:
            ready()
            await stopped.wait()
        end_at_last()

    run_loop(main())


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run on the fastest loop that there is."""
    try:
        # An optional library: without it the standard loop does, at half the speed.
        import uvloop
    except ImportError:
        asyncio.run(main)
    else:
        uvloop.run(main)


def run_proxy(
    setup: Setup,
    listen: Listen,
    ready: Callable[[ProxyServer], None],
    folder: Path,
    watcher: Watcher | None = None,
) -> None:
    """Serve until a signal ends it. `ready` is called when it listens. Raises BadSetting.

    That it lives is kept in `folder`, for the doctor.
    """

    async def serve() -> None:
        stopped = told_to_end()
        server = ProxyServer(setup, listen, watcher)
        await server.start()
        server.desk.address = server.address
        living = asyncio.create_task(_live(folder))
        ready(server)
        settle()
        await stopped.wait()
        await server.stop()
        living.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await living

    run_loop(serve())


async def _live(folder: Path) -> None:
    """Leave signs of life in a folder, where it can be written; it is only a courtesy."""
    with contextlib.suppress(OSError):
        living = await asyncio.to_thread(Living, folder)
        try:
            while True:
                await asyncio.sleep(BEAT_S)
                await asyncio.to_thread(living.beat)
        finally:
            living.end()


@contextlib.contextmanager
def proxy_in_thread(
    setup: Setup,
    listen: Listen | None = None,
    watcher: Watcher | None = None,
    *,
    patience_s: float = 1.0,
) -> Iterator[ProxyServer]:
    """A proxy that serves beside whatever the caller does: on any free port of this machine."""
    listen = listen or Listen("127.0.0.1", 0)
    up = threading.Event()
    started: list[ProxyServer | BaseException] = []
    stop: list[Callable[[], object]] = []

    async def serve() -> None:
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        server = ProxyServer(setup, listen, watcher)
        await server.start()
        stop.append(lambda: loop.call_soon_threadsafe(stopped.set))
        started.append(server)
        up.set()
        await stopped.wait()
        await server.stop(patience_s)

    def run() -> None:
        try:
            run_loop(serve())
        except Exception as error:  # noqa: BLE001  # raised where the proxy is wanted
            started.append(error)
        finally:
            up.set()

    thread = threading.Thread(target=run, name="tapes proxy")
    thread.start()
    up.wait()
    (first, *_) = started
    if isinstance(first, BaseException):
        thread.join()
        raise first
    try:
        yield first
    finally:
        stop[0]()
        thread.join()
