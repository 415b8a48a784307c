"""Finding: by words, by any id, by the values that fields have; and the sums over a time."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from tapes.api.asking import (
    Cursor,
    LimitOf,
    PayloadOf,
    Q,
    TheProject,
    moment_of,
    payload_of,
    remarks_on,
)
from tapes.api.items import found_item, histogram_item, hit_item, stats_item
from tapes.api.models import FacetItems, FieldsItem, FoundItems, HistogramItem, HitPage, StatsItem
from tapes.api.replies import reply
from tapes.errors import BadQuery
from tapes.store.base import MOST, Noun
from tapes.store.fields import FIELDS, HAS, SORTS
from tapes.store.filters import EVERYTHING, parse

router = APIRouter(tags=["finding"])

Text = Annotated[str, Query(max_length=1000)]
FACETS = (
    "model", "provider", "agent", "tool", "kind", "error", "outcome", "stop", "harness", "tag",
)  # fmt: skip


@router.get("/v1/search", response_model=HitPage)
def search(
    request: Request,
    project: TheProject,
    q: Q,
    *,
    cursor: Cursor = "",
    limit: LimitOf = 20,
    payload: PayloadOf = "none",
) -> Response:
    """Spans in which the words stand, with the places: those in prompts first, newest first."""
    if not q.strip():
        raise BadQuery("nothing is looked for", 0, "write ?q=…")
    page = project.search(parse(q), cursor=cursor, limit=min(limit, MOST))
    wanted = payload_of(payload)
    body: dict[str, object] = {"items": [hit_item(hit, wanted) for hit in page.items]}
    if page.next_cursor is not None:
        body["next_cursor"] = page.next_cursor
    return reply(request, body | remarks_on(request, page))


@router.get("/v1/find", response_model=FoundItems)
def find(
    request: Request,
    project: TheProject,
    id: Annotated[str, Query(min_length=1, max_length=400, description="any id, or its beginning")],
    limit: LimitOf = 20,
) -> Response:
    """What has an id, or one that begins so: session, trace, span, turn, request, response."""
    found = project.find(id.strip(), limit=min(limit, MOST))
    return reply(request, {"items": [found_item(each) for each in found]})


@router.get("/v1/facets/{field}", response_model=FacetItems)
def facets(
    request: Request, project: TheProject, field: str, *, begins: Text = "", limit: LimitOf = 20
) -> Response:
    """The values of a field that begin so, the most frequent first."""
    found = project.facets(field, begins=begins, limit=min(limit, MOST))
    items = [{"value": facet.value, "sessions": facet.sessions} for facet in found]
    return reply(request, {"field": field, "items": items})


@router.get("/v1/fields", response_model=FieldsItem)
def fields(request: Request) -> Response:
    """The words of the query language: fields, what there may be some of, and sorts."""
    body: dict[str, object] = {
        noun.value: {
            "fields": sorted([*FIELDS[noun], "meta."]),
            "has": sorted(HAS[noun]),
            "sorts": list(SORTS[noun]),
        }
        for noun in Noun
    }
    return reply(request, body | {"facets": list(FACETS)})


@router.get("/v1/histogram/{noun}", response_model=HistogramItem)
def histogram(
    request: Request,
    project: TheProject,
    noun: Literal["sessions", "traces", "spans"],
    *,
    q: Q = "",
    parts: Annotated[int, Query(ge=1, le=400, description="how many parts of time")] = 60,
) -> Response:
    """How a list spreads over time: how many began, failed and cost what in each part of it."""
    found = project.histogram(Noun(noun), parse(q) if q else EVERYTHING, parts=parts)
    return reply(request, histogram_item(found))


@router.get("/v1/stats", response_model=StatsItem)
def stats(
    request: Request,
    project: TheProject,
    *,
    since: Text = "",
    until: Text = "",
    auth_subject: Text = "",
) -> Response:
    """Sums over the traces that began in [since, until)."""
    sums = project.stats(
        since=moment_of("since", since),
        until=moment_of("until", until),
        auth_subject=auth_subject,
    )
    return reply(request, stats_item(sums))
