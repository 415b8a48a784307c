"""What a call may cost at most: set aside before it is made, so that no limit is passed by it.

Knows nothing of ledgers or tapes.
"""

from collections.abc import Callable
from decimal import Decimal

from tapes.budget import CALLS, Limits, Reserve
from tapes.canonical import plain_body
from tapes.errors import TapesError, UnboundedCall
from tapes.exchange import Request
from tapes.jsontext import Json, compact, read
from tapes.providers.bounds import bound_of
from tapes.providers.usage import Usage

Price = Callable[[Usage], Decimal | None]


def reserve_for(request: Request | Json, key: str, limits: Limits, price: Price) -> Reserve:
    """The most that a call can cost. Raises UnboundedCall where nothing bounds it."""
    if limits.tokens is None and limits.usd is None:
        return Reserve()
    instead = f"limit calls instead: {CALLS}=20"
    bound = bound_of(request, json_of(request), _size_of(request))
    if bound is None:
        raise UnboundedCall(
            f"a budget of {limits} is set, and the request {key[:12]} does not bound what it uses",
            "add max_tokens (or your provider's word for it), send images and files themselves"
            f" instead of their addresses; or {instead}",
        )
    tokens = bound.input + bound.output
    if limits.usd is None or not tokens:
        return Reserve(tokens)
    try:
        dollars = price(Usage(input=bound.input, output=bound.output, model=bound.model))
    except TapesError as error:
        raise UnboundedCall(
            f"a budget of {limits} is set, and {error.message}", f"{error.remedy}; or {instead}"
        ) from error
    if dollars is None:
        raise UnboundedCall(
            f"a budget of {limits} is set, and the model {bound.model!r} has no known price",
            instead,
        )
    return Reserve(tokens, dollars)


def json_of(request: Request | Json) -> Json:
    """What a request says as JSON; None where it is none."""
    if not isinstance(request, Request):
        return request
    try:
        return read(plain_body(request))
    except ValueError:
        return None


def _size_of(request: Request | Json) -> int:
    if isinstance(request, Request):
        return len(plain_body(request))
    return len(compact(request).encode())
