"""What requests ask for, read from their queries: pages, times, payloads; and whom they are from.

Rule 1: what cannot be read is a 400 that says what was meant, never a default in silence.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any
from uuid import UUID

from fastapi import Depends, Query, Request

from tapes.api.gate import CALLER
from tapes.api.keys import Caller
from tapes.api.metrics import Metrics
from tapes.derive.rollups import Pricing, unpriced
from tapes.doors import USUAL, Door
from tapes.errors import BadQuery
from tapes.projector import Projector
from tapes.rows import nanoseconds
from tapes.store.base import LIMIT, MOST, Ask, Count, Page, Project, Store
from tapes.store.filters import EVERYTHING, parse

_LARGEST = 2**63 - 1


@dataclass(slots=True)
class Core:
    """What the routes work with."""

    store: Store
    metrics: Metrics
    price: Pricing = unpriced
    projector: Projector | None = None  # the one that runs in this process
    folder: str = "."  # where the project's tapes lie
    addresses: Mapping[Door, str] = field(default_factory=lambda: USUAL)


# Dependencies are coroutines: a plain function would be handed to a thread, which takes longer.


async def core_of(request: Request) -> Core:
    """What the routes of this application work with."""
    core = request.app.state.core
    assert isinstance(core, Core)
    return core


async def caller_of(request: Request) -> Caller:
    """Who asks."""
    caller = request.scope[CALLER]
    assert isinstance(caller, Caller)
    return caller


TheCore = Annotated[Core, Depends(core_of)]
TheCaller = Annotated[Caller, Depends(caller_of)]


async def project_of(request: Request) -> Project:
    """All that belongs to the tenant of who asks, and nothing else."""
    core, caller = await core_of(request), await caller_of(request)
    return core.store.project(caller.org_id)


TheProject = Annotated[Project, Depends(project_of)]

# --- pages ------------------------------------------------------------------------------------

_LANGUAGE = "the query language: words, field:value, has:, OR, -not"
Q = Annotated[str, Query(description=_LANGUAGE, max_length=4000)]
LimitOf = Annotated[int, Query(ge=1, description=f"above {MOST} is {MOST}")]
Cursor = Annotated[str, Query(description="`next_cursor` of the page before", max_length=2000)]
Sort = Annotated[str, Query(description="see /v1/fields", max_length=100)]
Direction = Annotated[str, Query(description="desc or asc", max_length=100)]
_COUNTED = "`yes`: say how many there are, up to 10,000; `exact`: all"
Counted = Annotated[str, Query(description=_COUNTED, max_length=9)]
PayloadOf = Annotated[
    str, Query(description="full (whatever is not known means it), preview or none", max_length=100)
]


async def ask_for(
    q: Q = "",
    limit: LimitOf = LIMIT,
    sort: Sort = "",
    direction: Direction = "desc",
    cursor: Cursor = "",
) -> Ask:
    """What a page is asked for."""
    if direction not in ("desc", "asc"):
        raise BadQuery(f"direction={direction[:40]!r} is neither desc nor asc")
    return Ask(parse(q) if q else EVERYTHING, sort, direction == "desc", cursor, min(limit, MOST))


TheAsk = Annotated[Ask, Depends(ask_for)]


def strange_in(request: Request) -> list[str]:
    """The parameters of a query that its route does not know."""
    known = _names_of(request.scope["route"].dependant)
    return sorted(name for name in request.query_params if name not in known)


def _names_of(dependant: Any) -> set[str]:
    below = (_names_of(inner) for inner in dependant.dependencies)
    return {parameter.alias for parameter in dependant.query_params}.union(*below)


async def nothing_strange(request: Request) -> None:
    """Refuse parameters that would be ignored, where this would erase or give away too much."""
    strange = strange_in(request)
    if strange:
        known = ", ".join(sorted(_names_of(request.scope["route"].dependant)))
        remedy = f"there are: {known}" if known else "say it in the body"
        raise BadQuery(f"{strange[0][:40]!r} is no parameter here", 0, remedy)


async def no_body(request: Request) -> None:
    """Refuse a body where none is read."""
    if await request.body():
        raise BadQuery("a body is not read here", 0, "say it in the query: ?dry_run=true")


def remarks_on(request: Request, page: Page[Any]) -> dict[str, list[str]]:
    """The member `remarks` of a page: what was not looked at, where there is anything."""
    remarks = list(page.remarks)
    for name in strange_in(request):
        remarks.append(f"{name[:40]!r} is no parameter and was ignored: what to look for is in q")
    return {"remarks": remarks} if remarks else {}


def payload_of(text: str) -> Any:
    """Which payload is meant."""
    return text if text in ("preview", "none") else "full"


def moment_of(name: str, text: str) -> int | None:
    """A time of a query, or None where it is not said. Raises BadQuery."""
    if not text:
        return None
    moment = nanoseconds(text.replace(" ", "+"))  # a plus sign that was not escaped
    if moment is None:
        raise BadQuery(f"{name}={text[:60]!r} is no time", 0, "write 2026-07-01T12:00:00Z")
    return max(-_LARGEST, min(moment, _LARGEST))


def uuid_of(name: str, text: str) -> str:
    """A UUID. Raises BadQuery."""
    try:
        return str(UUID(text))
    except ValueError:
        raise BadQuery(f"{name} {text[:60]!r} is no UUID") from None


def counted(
    asked: str, ask: Ask, page: Page[Any], count: Callable[..., Count]
) -> dict[str, dict[str, Any]]:
    """The member `count` of a page, where it was asked for. Raises BadQuery.

    Of a list that is one page long the rows are counted that it shows.
    """
    if asked in ("", "no", "false", "0"):
        return {}
    if asked not in ("yes", "true", "1", "exact"):
        raise BadQuery(f"count={asked!r} is neither yes nor exact")
    if ask.cursor or page.next_cursor:
        found = count(at_most=0 if asked == "exact" else 10_000)
    else:
        found = Count(len(page.items), not page.remarks)
    return {"count": {"value": found.value, "exact": found.exact}}


def now() -> int:
    """The time, as rows tell it."""
    return time.time_ns()
