"""The live callable of a call with a dict: called once, under a permit.

Rule: a call that failed gives its unit of the budget back where its error says that it never
reached the upstream. When in doubt, it was spent.

Knows nothing of tapes, of clients but by the names of their errors, or of how permission came
about.
"""

import errno
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from tapes.errors import AsyncLive, MissingLive
from tapes.jsontext import Json
from tapes.permit import Permit

Live = Callable[[dict[str, Json]], Json | Awaitable[Json]]


def made(permit: Permit, live: Live | None) -> Json:
    """The answer of a plain callable. Raises AsyncLive for an async one, and MissingLive."""
    try:
        response = _required(live, permit)(permit.request)
        if isinstance(response, Awaitable):
            if isinstance(response, Coroutine):
                response.close()
            raise AsyncLive(
                "the live callable is async, and call() is not", "use: await cassette.acall(…)"
            )
    except BaseException as error:
        fail(permit, error)
        raise
    return response


async def made_async(permit: Permit, live: Live | None) -> Json:
    """The answer of a callable, plain or async. Raises MissingLive."""
    try:
        response = _required(live, permit)(permit.request)
        return await response if isinstance(response, Awaitable) else response
    except BaseException as error:
        fail(permit, error)
        raise


def _required(live: Live | None, permit: Permit) -> Callable[[Any], Any]:
    if live is None:
        raise MissingLive(
            f"a live call for {permit.key[:12]} is permitted, and the cassette has nothing to call",
            "pass the function that makes the call: Cassette(path, mode, live)",
        )
    return live


def fail(permit: Permit, error: BaseException) -> None:
    """End a permit whose call got no answer, as its error says."""
    was_sent = may_have_reached(error)
    gave_up = not isinstance(error, Exception) or _says(error, "Timeout")
    permit.failed(was_sent=was_sent, we_left=was_sent and gave_up)


# Names of errors that clients raise before a request is sent.
_BEFORE = (
    "AsyncLive", "ClientConnectorError", "ClientConnectorCertificateError", "ConnectError",
    "ConnectTimeout", "ConnectionRefusedError", "ConnectionTimeout", "EndpointConnectionError",
    "InvalidURL", "LocalProtocolError", "LocationParseError", "MissingLive", "NameResolutionError",
    "NewConnectionError", "PoolTimeout", "ProxyConnectionError", "ProxyError",
    "SSLCertVerificationError", "UnsupportedProtocol", "gaierror",
)  # fmt: skip
# And of those that come where somebody may have got it: he was waited for, or broke off.
_AFTER = (
    "BrokenPipe", "ConnectionAborted", "ConnectionReset", "IncompleteRead", "ReadError",
    "RemoteProtocolError", "ServerDisconnected", "Timeout", "WriteError",
)  # fmt: skip
_UNREACHABLE = frozenset(
    {errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTUNREACH}
)


def may_have_reached(error: BaseException) -> bool:
    """Whether a call that failed may have reached the upstream: when in doubt, it has.

    A client's own error often says less than the one that it came of.
    """
    seen: list[BaseException] = []
    next_one: BaseException | None = error
    while next_one is not None and next_one not in seen:
        if not isinstance(next_one, Exception) or _has_answer(next_one):
            return True
        if _says(next_one, *_BEFORE):
            return False
        if _says(next_one, *_AFTER):
            return True
        if isinstance(next_one, OSError) and _is_unreachable(next_one):
            return False
        seen.append(next_one)
        next_one = _came_of(next_one)
    return True


def _says(error: BaseException, *words: str) -> bool:
    names = [kind.__name__ for kind in type(error).__mro__]
    return any(word in name for name in names for word in words)


def _has_answer(error: Exception) -> bool:
    """Whether the error brings the upstream's answer with it."""
    has_status = isinstance(getattr(error, "status_code", None), int)
    return has_status or getattr(error, "response", None) is not None


def _is_unreachable(error: OSError) -> bool:
    """Whether the system says so, or whoever raised it by hand says nothing else."""
    return error.errno in _UNREACHABLE or type(error) in (OSError, ConnectionError)


def _came_of(error: BaseException) -> BaseException | None:
    """The error that this one stands for. requests leaves it to the context."""
    if error.__cause__ is None and isinstance(error, OSError):
        return error.__context__
    return error.__cause__
