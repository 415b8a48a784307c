"""The HTTP server that our ASGI applications stand in: uvicorn, which adds and loses nothing.

Rule 1: what an application says goes out as it is; a `Date` is added where it says none.
Rule 2: who asked is who connected; no header may say otherwise.
Rule 3: the query of a target that ends in a bare `?` is as empty as that of one without. The
        extensions of such a request have `BARE_QUERY`.
Rule 4: an application that cannot end an answer breaks it off (`break_off`) and says why itself;
        the server does not call that an error of the application.

Knows nothing of what is served. Sockets, signals and the end are somebody else's business.
"""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import uvicorn

from tapes.dated import App, dated

BARE_QUERY = "tapes.bare_query"
_BREAK_OFF = "tapes.break_off"


def break_off(scope: Mapping[str, Any]) -> None:
    """Close the connection of a request whose answer has begun and has no end (rule 4).

    Under another server this does nothing: that one closes it when the application returns.
    """
    extension = scope.get("extensions", {}).get(_BREAK_OFF)
    if extension is not None:
        extension["now"]()


try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:
    # Without this extra there are no services, and whom else a bare `?` would matter to.
    _PROTOCOL: type | str = "h11"
else:

    class _Connection(HttpToolsProtocol):
        """A client's connection (rules 3, 4)."""

        def on_headers_complete(self) -> None:
            extensions: dict[str, dict[object, object]] = {}
            if self.url.endswith(b"?"):
                extensions[BARE_QUERY] = {}
            self.scope["extensions"] = extensions
            super().on_headers_complete()
            cycle = self.cycle  # of this request; one that is sent behind it has another
            if cycle is None or cycle.scope is not self.scope:
                return  # it became something else than a request

            def now() -> None:
                cycle.disconnected = True
                cycle.transport.close()

            extensions[_BREAK_OFF] = {"now": now}

    _PROTOCOL = _Connection


class AsgiServer(uvicorn.Server):
    """A server of an application: `serve` the sockets, until `should_exit` is set."""

    def __init__(self, app: App, *, patience_s: int) -> None:
        super().__init__(
            uvicorn.Config(
                dated(app),
                http=_PROTOCOL,
                log_config=None,
                access_log=False,
                lifespan="off",
                server_header=False,
                date_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=patience_s,
            )
        )

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield
