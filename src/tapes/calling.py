"""The live callable of a call with a dict: called once, under a permit.

Rule: a call that failed gives its unit of the budget back, unless it may have cost something.

Knows nothing of tapes or of how permission came about.
"""

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
        permit.failed(we_left=_may_have_cost(error))
        raise
    return response


async def made_async(permit: Permit, live: Live | None) -> Json:
    """The answer of a callable, plain or async. Raises MissingLive."""
    try:
        response = _required(live, permit)(permit.request)
        return await response if isinstance(response, Awaitable) else response
    except BaseException as error:
        permit.failed(we_left=_may_have_cost(error))
        raise


def _required(live: Live | None, permit: Permit) -> Callable[[Any], Any]:
    if live is None:
        raise MissingLive(
            f"a live call for {permit.key[:12]} is permitted, and the cassette has nothing to call",
            "pass the function that makes the call: Cassette(path, mode, live)",
        )
    return live


def _may_have_cost(error: BaseException) -> bool:
    """Whether a call that failed may have reached the upstream: when in doubt, it was spent.

    It did where we gave up waiting, and where the error brings the upstream's answer with it.
    """
    if not isinstance(error, Exception):
        return True
    names = [kind.__name__ for kind in type(error).__mro__]
    if any(name.startswith(("ConnectTimeout", "ConnectionTimeout")) for name in names):
        return False
    if any("Timeout" in name for name in names):
        return True
    return isinstance(getattr(error, "status_code", None), int) or (
        getattr(error, "response", None) is not None
    )
