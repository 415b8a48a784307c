"""Traces and spans: lists of them, one trace with its spans, one span with all it holds."""

from dataclasses import replace
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from tapes.api.asking import (
    Counted,
    PayloadOf,
    TheAsk,
    TheProject,
    counted,
    payload_of,
    uuid_of,
)
from tapes.api.items import PIECE, span_item, trace_item, whole_trace
from tapes.api.models import SpanItem, SpanPage, TracePage, WholeTrace
from tapes.api.replies import reply, reply_in_pieces
from tapes.api.sessions import WHOLE, page_facts, unknown
from tapes.rows import SCHEMA, Trace
from tapes.store.base import MOST, Ask, Noun, Page, Project
from tapes.store.filters import both, is_

router = APIRouter(tags=["traces"])

Text = Annotated[str, Query(max_length=1000)]


@router.get("/v1/traces", response_model=TracePage)
def list_traces(
    request: Request,
    project: TheProject,
    ask: TheAsk,
    *,
    session_id: Annotated[str, Query(description="only of this session, all of them")] = "",
    count: Counted = "",
) -> Response:
    """Traces: a page of all of them, or those of one session by their start."""
    if session_id:
        session = uuid_of("session_id", session_id)
        if project.session(session) is None:
            raise unknown("session", session)
        ask = replace(ask, where=both(ask.where, is_("session", session)))
        if not {"limit", "cursor", "sort", "direction"} & set(request.query_params):
            page = _all_of(project, replace(ask, descending=False, limit=MOST))
            return reply(request, _page(request, page))
    page = project.traces(ask)
    number = partial(project.count, Noun.TRACES, ask.where)
    return reply(request, _page(request, page) | counted(count, ask, page, number))


def _all_of(project: Project, ask: Ask) -> Page[Trace]:
    """The whole list, as older clients expect it, up to its bound."""
    page = project.traces(ask)
    items = list(page.items)
    while page.next_cursor and len(items) < WHOLE:
        page = project.traces(replace(ask, cursor=page.next_cursor))
        items += page.items
    return replace(page, items=tuple(items))


def _page(request: Request, page: Page[Trace]) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "items": [trace_item(trace) for trace in page.items],
        **page_facts(request, page),
    }


# An id may have a slash in it: it is what an agent or a provider made up. The longer path first.
@router.get("/v1/traces/{trace_id:path}/spans/{span_id:path}", response_model=SpanItem)
def get_span(request: Request, project: TheProject, trace_id: str, span_id: str) -> Response:
    """One span with all it holds."""
    span = project.span(trace_id, span_id)
    if span is None:
        raise unknown("span", f"{trace_id} {span_id}")
    return reply(request, span_item(span))


@router.get("/v1/traces/{trace_id:path}", response_model=WholeTrace)
def get_trace(
    request: Request, project: TheProject, trace_id: str, payload: PayloadOf = "full"
) -> Response:
    """One trace with its spans, and the links that touch it."""
    wanted = payload_of(payload)
    sheet = project.sheet_of_trace(trace_id, payload=wanted != "none")
    if not sheet.traces:
        raise unknown("trace", trace_id)
    pieces = whole_trace(sheet, wanted)
    mark = f"{wanted} {sheet.mark}"
    return reply_in_pieces(request, mark, pieces, is_long=sheet.span_count > PIECE)


@router.get("/v1/spans", response_model=SpanPage)
def list_spans(
    request: Request,
    project: TheProject,
    ask: TheAsk,
    *,
    session_id: Text = "",
    trace_id: Text = "",
    payload: PayloadOf = "none",
    count: Counted = "",
) -> Response:
    """Spans, those of a session or a trace where one is named; by default without payloads."""
    where = ask.where
    if session_id:
        where = both(where, is_("session", uuid_of("session_id", session_id)))
    if trace_id:
        where = both(where, is_("trace", trace_id))
    wanted = payload_of(payload)
    ask = replace(ask, where=where)
    page = project.spans(ask, payload=wanted != "none")
    body = {
        "schema": SCHEMA,
        "items": [span_item(span, wanted) for span in page.items],
        **page_facts(request, page),
    }
    number = partial(project.count, Noun.SPANS, where)
    return reply(request, body | counted(count, ask, page, number))
