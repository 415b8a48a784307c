"""The HTTP server that our ASGI applications stand in: uvicorn, which adds and loses nothing.

Rule 1: what an application says goes out as it is; a `Date` is added where it says none.
Rule 2: who asked is who connected; no header may say otherwise.
Rule 3: the query of a target that ends in a bare `?` is as empty as that of one without. The
        extensions of such a request have `BARE_QUERY`.

Knows nothing of what is served. Sockets, signals and the end are somebody else's business.
"""

import contextlib
from collections.abc import Iterator

import uvicorn

from tapes.dated import App, dated

BARE_QUERY = "tapes.bare_query"

try:
    from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
except ImportError:
    # Without this extra there are no services, and whom else a bare `?` would matter to.
    _PROTOCOL: type | str = "h11"
else:

    class _Connection(HttpToolsProtocol):
        """A client's connection (rule 3)."""

        def on_headers_complete(self) -> None:
            if self.url.endswith(b"?"):
                self.scope["extensions"] = {BARE_QUERY: {}}
            super().on_headers_complete()

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
