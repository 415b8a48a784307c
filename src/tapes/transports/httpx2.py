"""Record and replay for httpx2: covered by `tapes.use`, or explicit with these transports.

    client = httpx2.Client(transport=Transport(cassette))
    client = httpx2.AsyncClient(transport=AsyncTransport(cassette))

A second argument is the transport that makes the live calls, in place of the library's own.
"""

import httpx2

from tapes.guarding.replacing import Replacements
from tapes.transports.httpx_family import ExplicitAsyncTransport, ExplicitTransport, Family

_family = Family(httpx2)


class Transport(ExplicitTransport, httpx2.BaseTransport):
    """Answers from a cassette, or records what the wrapped transport answers."""

    family = _family


class AsyncTransport(ExplicitAsyncTransport, httpx2.AsyncBaseTransport):
    """As `Transport`, for async clients."""

    family = _family


def cover(replacements: Replacements) -> None:
    """Have the library's own transports ask the lane of the moment."""
    _family.cover(replacements)
