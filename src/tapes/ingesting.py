"""The private door as a server of its own: it listens, keeps, and derives beside.

Rule 1: a door that strangers can reach has a token before it listens.
Rule 2: stopping is orderly: what was acknowledged is durable, what is under way is answered.

Knows nothing of the command line.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping
from contextlib import closing

from tapes.access import Access
from tapes.asgi import AsgiServer
from tapes.ending import end_at_last, told_to_end
from tapes.errors import BadSetting
from tapes.ingest.app import ingest_app
from tapes.ingest.bodies import BODY_LIMIT
from tapes.keeping import deriving, open_projector
from tapes.listening import Listen
from tapes.redact import Redactor
from tapes.rows import NO_ORG
from tapes.store.base import Store

_BACKLOG = 1024
_STOPPING_S = 5


class IngestServer:
    """The door, listening from the moment at which it is made. Raises BadSetting."""

    def __init__(
        self,
        store: Store,
        listen: Listen,
        access: Access,
        *,
        tenants: Mapping[str, str] | None = None,
        org_id: str = NO_ORG,
        body_limit: int = BODY_LIMIT,
        redactor: Callable[[], Redactor] = Redactor,
    ) -> None:
        if not listen.is_loopback and access.token is None and not tenants:
            raise BadSetting(
                f"{listen} can be reached by strangers, and no token is set",
                "set one: TAPES_INGEST_TOKEN=…, or listen on 127.0.0.1",
            )
        self.access = access
        self._socket = _listening(listen)
        self._projector = open_projector(store)
        app = ingest_app(
            store,
            access=access,
            tenants=tenants,
            org_id=org_id,
            body_limit=body_limit,
            redactor=redactor,
            kept=self._projector.wake,
        )
        self._server = AsgiServer(app, patience_s=_STOPPING_S)

    @property
    def address(self) -> str:
        """The base of URLs that lead here."""
        host, port = self._socket.getsockname()[:2]
        return f"http://{Listen('127.0.0.1' if host in ('0.0.0.0', '::') else host, port)}"

    async def serve(self, ready: Callable[["IngestServer"], object]) -> None:
        """Serve until a signal ends it, and derive meanwhile. Raises what serving fails with."""
        stopped = told_to_end()
        with closing(self._socket), deriving(self._projector):
            serving = asyncio.create_task(self._server.serve([self._socket]))
            serving.add_done_callback(lambda _: stopped.set())  # one that fails ends all of it
            try:
                ready(self)  # whoever connects from now on waits in the backlog, and is answered
                await stopped.wait()
            finally:
                self._server.should_exit = True
                await serving


def _listening(listen: Listen) -> socket.socket:
    family = socket.AF_INET6 if ":" in listen.host else socket.AF_INET
    try:
        return socket.create_server((listen.host, listen.port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise BadSetting(
            f"cannot listen on {listen}: {error.strerror or error}",
            "choose another address: --listen 127.0.0.1:0 takes any free port",
        ) from error


def run_ingest(server: IngestServer, ready: Callable[[IngestServer], object]) -> None:
    """Serve until a signal ends it. `ready` is called when it listens."""

    async def serve() -> None:
        await server.serve(ready)
        end_at_last()

    asyncio.run(serve())
