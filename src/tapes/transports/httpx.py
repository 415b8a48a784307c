"""Record and replay for httpx: covered by `tapes.use`, or explicit with these transports.

    client = httpx.Client(transport=Transport(cassette))
    client = httpx.AsyncClient(transport=AsyncTransport(cassette))

A second argument is the transport that makes the live calls, in place of the library's own.
"""

import httpx

from tapes.guarding.replacing import Replacements
from tapes.transports.httpx_family import ExplicitAsyncTransport, ExplicitTransport, Family

_family = Family(httpx)


class Transport(ExplicitTransport, httpx.BaseTransport):
    """Answers from a cassette, or records what the wrapped transport answers."""

    family = _family


class AsyncTransport(ExplicitAsyncTransport, httpx.AsyncBaseTransport):
    """As `Transport`, for async clients."""

    family = _family


def cover(replacements: Replacements) -> None:
    """Have the library's own transports ask the lane of the moment."""
    _family.cover(replacements)
