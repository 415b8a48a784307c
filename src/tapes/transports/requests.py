"""Record and replay for requests: covered by `tapes.use`, or explicit with this adapter.

    session.mount("https://", Adapter(cassette))

What it does, it does where requests calls urllib3.
"""

import weakref
from typing import Any

from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter

from tapes.cassette import Cassette
from tapes.lanes import explicit_lane, for_this_call
from tapes.transports import installing


class Adapter(HTTPAdapter):
    """Answers from a cassette, or records. `options` are those of requests' own adapter."""

    def __init__(
        self, cassette: Cassette, *, pace: str | float = "at once", **options: Any
    ) -> None:
        super().__init__(**options)
        self._lane = explicit_lane(cassette, pace)
        installing.hold()
        # Not in `close`: a session may be used after it, and must not go live then.
        weakref.finalize(self, installing.let_go)

    def send(self, request: PreparedRequest, *arguments: Any, **options: Any) -> Response:
        """The answer to a request. Ends the process (CassetteError) where there is none."""
        with for_this_call(self._lane):
            return super().send(request, *arguments, **options)
