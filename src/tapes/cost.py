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
from tapes.providers.bounds import Bound, bound_of
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
        dollars = _dearest(bound, price, writes_cache=_writes_cache(request))
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


def _dearest(bound: Bound, price: Price, *, writes_cache: bool) -> Decimal | None:
    """The price of all that a call may use, read as it is or, where asked, written to the cache."""
    ways: list[dict[str, int]] = [{}]
    if writes_cache:  # which costs more, and the more the longer it is kept
        written = {"cache_write": bound.input}
        ways += [written, {**written, "cache_write_1h": bound.input}]
    usages = (Usage(bound.input, bound.output, model=bound.model, **way) for way in ways)
    known = [dollars for dollars in map(price, usages) if dollars is not None]
    return max(known, default=None)


def _writes_cache(request: Request | Json) -> bool:
    body = plain_body(request) if isinstance(request, Request) else compact(request).encode()
    return b'"cache_control"' in body


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
