"""The servers of the log in one process: read API, proxy, ingest, and what derives, as asked for.

Rule 1: a server that strangers can reach has its tokens before it listens.
Rule 2: whoever is ready says so once all of them listen. Where one cannot, none does.
Rule 3: stopping is orderly: listeners are told, answers under way end, what was captured is kept.

Knows nothing of the command line.
"""

import asyncio
import contextlib
import ipaddress
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field

from tapes.access import LOOPBACK_NAMES, name_of
from tapes.api.app import Api
from tapes.api.gate import App, Bounds
from tapes.api.keys import Keys
from tapes.asgi import AsgiServer
from tapes.capture.asked import Setup as ProxySetup
from tapes.capture.watched import LogWatcher
from tapes.config import Settings
from tapes.doors import USUAL, Door
from tapes.ending import By, at_most, end_at_last, told_to_end
from tapes.errors import BadSetting, TapesError
from tapes.keeping import deriving, open_log, open_projector, open_store
from tapes.listening import Listen
from tapes.opening import Where
from tapes.projector import Projector
from tapes.server import (
    ProxyServer,
    listening,
    run_loop,
    settle,
    tenants_of,
    token_of,
)
from tapes.store.base import Store

log = logging.getLogger(__name__)

# How often it is looked whether erased bytes wait, and what is beyond its time.
_TIDY_S = 5.0
_RETAIN_S = 3600.0
_STOPPING_S = 5.0

# Makes the application that stands in front of the API's own, and its life. The seam for services.
InFront = Callable[[Api], tuple[App, contextlib.AbstractAsyncContextManager[object]]]
# Makes the application of the ingest: from the store, what to call when something is kept, and
# where the other servers are.
Ingest = Callable[[Store, Callable[[], object], Mapping[Door, str]], App]


@dataclass(frozen=True, slots=True)
class Plan:
    """What is served, and where; None is not."""

    where: Where
    api: Listen | None = None
    keys: Keys = field(default_factory=Keys)
    bounds: Bounds = field(default_factory=Bounds)
    proxy: tuple[ProxySetup, Listen] | None = None
    keeps_log: bool = True
    ingest: tuple[Ingest, Listen] | None = None
    in_front: InFront | None = None
    derives: bool = True


# --- from settings ----------------------------------------------------------------------------


def keys_of(settings: Settings, listen: Listen) -> Keys:
    """Who may read and who may change, as settings say. Raises BadSetting (rule 1)."""
    keys = Keys(
        read=token_of(settings, "api.token"),
        admin=token_of(settings, "api.admin_token"),
        tenants=tenants_of(settings, "api"),
        org_id=settings["api.org"],
        hosts=LOOPBACK_NAMES | {name_of(str(listen))} | set(map(name_of, settings["api.hosts"])),
    )
    if not listen.is_loopback and not (keys.read and keys.admin):
        raise BadSetting(
            f"{listen} can be reached by strangers, and it needs a token to read and one to change",
            "set both: TAPES_API_TOKEN=… TAPES_API_ADMIN_TOKEN=…, or listen on 127.0.0.1",
        )
    return keys


def bounds_of(settings: Settings) -> Bounds:
    """How much may be sent and how often asked, as settings say."""
    return Bounds(body=settings["api.body_limit"], rate=settings["api.rate"])


# --- one server over HTTP ---------------------------------------------------------------------


class HttpServer:
    """An application that listens, from the moment at which it is made. Raises BadSetting."""

    def __init__(self, listen: Listen) -> None:
        try:
            self._socket = listening(listen, backlog=1024)
        except OSError as error:
            raise BadSetting(
                f"cannot listen on {listen}: {error.strerror or error}",
                "choose another address; port 0 is any free one",
            ) from error

    @property
    def address(self) -> str:
        """The base of URLs that lead here."""
        host, port = self._socket.getsockname()[:2]
        if ipaddress.ip_address(host).is_unspecified:
            host = "127.0.0.1"
        return f"http://{Listen(host, port)}"

    def close(self) -> None:
        """Listen no more."""
        self._socket.close()

    @contextlib.asynccontextmanager
    async def serving(self, app: App, stopped: asyncio.Event) -> AsyncIterator[None]:
        """Answer until `stopped` is set, or this is over; then let answers under way end.

        Where serving fails, `stopped` is set, and its error raised here at the end.
        """
        server = AsgiServer(app, patience_s=5)
        task = asyncio.create_task(server.serve([self._socket]))
        task.add_done_callback(lambda _: stopped.set())
        telling = asyncio.create_task(_tell(server, stopped))
        try:
            yield
        finally:
            server.should_exit = True
            await task
            await telling


async def _tell(server: AsgiServer, stopped: asyncio.Event) -> None:
    await stopped.wait()
    server.should_exit = True


# --- all of them ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Served:
    """What listens where."""

    addresses: Mapping[Door, str]
    proxy: ProxyServer | None = None


async def serve(plan: Plan, ready: Callable[[Served], object], stopped: asyncio.Event) -> None:
    """Serve until told to stop. Raises BadSetting, and what opening a store raises."""
    async with AsyncExitStack() as stack:
        api_door = _listening(stack, plan.api)
        ingest_door = _listening(stack, None if plan.ingest is None else plan.ingest[1])
        store = await asyncio.to_thread(open_store, plan.where)
        stack.callback(store.close)
        projector = await asyncio.to_thread(open_projector, store) if plan.derives else None
        if projector is not None:
            stack.enter_context(deriving(projector))
        stack.enter_context(_tidying(store))
        page = "" if api_door is None else api_door.address
        doors = ((Door.API, api_door), (Door.INGEST, ingest_door))
        beside = {door: server.address for door, server in doors if server is not None}
        proxy = await _proxy(plan, projector, stack, page, beside)
        addresses = dict(USUAL) | beside
        if proxy is not None:
            addresses[Door.PROXY] = proxy.address
        api = None
        if api_door is not None:
            app, api = await _api_app(plan, store, projector, addresses, stack)
            await stack.enter_async_context(api_door.serving(app, stopped))
            stack.callback(api.changes.close)
            watcher = None if proxy is None else proxy.desk.watcher
            if isinstance(watcher, LogWatcher):
                api.metrics.capture = watcher.counts
        if ingest_door is not None and plan.ingest is not None:
            wake = projector.wake if projector is not None else (lambda: None)
            ingest = plan.ingest[0](store, wake, addresses)
            await stack.enter_async_context(ingest_door.serving(ingest, stopped))
        ready(Served(_those_of(plan, addresses), proxy))
        await stopped.wait()
        if api is not None:
            api.changes.close()
        if proxy is not None:
            await proxy.stop()  # while the others end


def _listening(stack: AsyncExitStack, listen: Listen | None) -> HttpServer | None:
    if listen is None:
        return None
    server = HttpServer(listen)
    stack.callback(server.close)
    return server


def _those_of(plan: Plan, addresses: Mapping[Door, str]) -> dict[Door, str]:
    served = {Door.API: plan.api, Door.INGEST: plan.ingest, Door.PROXY: plan.proxy}
    return {door: addresses[door] for door, part in served.items() if part is not None}


async def _api_app(
    plan: Plan,
    store: Store,
    projector: Projector | None,
    addresses: Mapping[Door, str],
    stack: AsyncExitStack,
) -> tuple[App, Api]:
    """The read API, with services in front where there are some, behind one gate."""
    price = open_projector(store).price if projector is None else projector.price
    api = Api(
        store, plan.keys, projector=projector, price=price, bounds=plan.bounds, addresses=addresses
    )
    if plan.in_front is None:
        return api.app, api
    app, life = plan.in_front(api)
    await stack.enter_async_context(life)
    return api.behind_gate(app), api


async def _proxy(
    plan: Plan,
    projector: Projector | None,
    stack: AsyncExitStack,
    page: str,
    beside: Mapping[Door, str],
) -> ProxyServer | None:
    if plan.proxy is None:
        return None
    setup, listen = plan.proxy
    setup.routes.beside = beside
    watcher = None
    if plan.keeps_log:
        kept = await asyncio.to_thread(open_log, plan.where)
        if projector is not None:
            kept.woken_by(projector.wake)
        stack.push_async_callback(asyncio.to_thread, kept.close)
        watcher = LogWatcher(kept)
    server = ProxyServer(setup, listen, watcher)
    server.desk.page = page
    await server.start()
    server.desk.address = server.address
    stack.push_async_callback(server.stop)
    return server


@contextlib.contextmanager
def _tidying(store: Store) -> Iterator[None]:
    """Take erased bytes out of the file, and keep to what is to be kept, as long as this lasts."""
    stop = threading.Event()
    thread = threading.Thread(target=_tidy, args=(store, stop), name="tapes tidying", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(at_most(_STOPPING_S, By.TIDIED))  # in a store that hangs it would be for ever


def _tidy(store: Store, stop: threading.Event) -> None:
    retained = time.monotonic()
    while not stop.wait(_TIDY_S):
        try:
            store.finish_erasures()
            if time.monotonic() - retained >= _RETAIN_S:
                retained = time.monotonic()
                for org_id in store.orgs():
                    store.project(org_id).retain(now=time.time_ns(), by="retention")
        except TapesError as error:
            log.warning("tidying goes on later: %s", error.message)
        except Exception:  # it goes on, whatever it was
            log.exception("tidying goes on later")


def run(plan: Plan, ready: Callable[[Served], object]) -> None:
    """Serve until a signal ends it. Raises what `serve` raises."""

    def told(served: Served) -> None:
        ready(served)
        settle()

    async def main() -> None:
        await serve(plan, told, told_to_end())
        end_at_last()

    run_loop(main())
