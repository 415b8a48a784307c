"""Sessions: the list, one of them, what people say of it, and everything below it."""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from orjson import Fragment
from pydantic import BaseModel, ConfigDict, Field

from tapes.api.asking import (
    Core,
    Counted,
    Cursor,
    LimitOf,
    PayloadOf,
    TheAsk,
    TheCaller,
    TheProject,
    counted,
    moment_of,
    no_body,
    nothing_strange,
    now,
    payload_of,
    remarks_on,
    uuid_of,
)
from tapes.api.gate import CALLER
from tapes.api.items import (
    PIECE,
    erasure_item,
    is_live,
    session_item,
    turn_item,
    whole_session,
)
from tapes.api.keys import Caller
from tapes.api.models import ErasureItem, OneSession, SessionPage, TurnPage, WholeSession
from tapes.api.replies import body_of, reply, reply_in_pieces
from tapes.errors import BadQuery, TapesError, UnknownId
from tapes.jsontext import trimmed
from tapes.store.base import MOST, Ask, Listed, Noun, Page, Project, TurnHead
from tapes.store.filters import both, is_

router = APIRouter(tags=["sessions"])


class Told:
    """Items of sessions as they were sent, for as long as their sessions are the same values."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._sent: dict[tuple[int, bool], tuple[Listed, Fragment]] = {}

    def items_of(self, page: Iterable[Listed], moment: int) -> list[Fragment]:
        """The items of a page, ready to be sent."""
        return [self._item(listed, moment) for listed in page]

    def _item(self, listed: Listed, moment: int) -> Fragment:
        key = (id(listed), is_live(listed.session, moment))
        found = self._sent.get(key)
        if found is None or found[0] is not listed:
            if len(self._sent) >= self._most:
                self._sent.clear()
            # With the session itself, so that nothing else can have its id meanwhile.
            found = (listed, Fragment(trimmed(body_of(session_item(listed, moment)))))
            self._sent[key] = found
        return found[1]


_TOLD = Told(2000)

Text = Annotated[str, Query(max_length=1000)]
# Lists that older clients expect to be whole are, up to so many rows.
WHOLE = 5000


def unknown(noun: str, which: object) -> UnknownId:
    """The error for an id that nothing has."""
    return UnknownId(f"there is no {noun} {str(which)[:100]}", "look for it: GET /v1/find?id=…")


def required(project: Project, session_id: str) -> Listed:
    """The session of an id. Raises UnknownId, BadQuery."""
    listed = project.session(uuid_of("the session's id", session_id))
    if listed is None:
        raise unknown("session", session_id)
    return listed


def page_facts(request: Request, page: Page[Any]) -> dict[str, Any]:
    """What every page says beside its items."""
    return _facts(page) | remarks_on(request, page)


def _facts(page: Page[Any]) -> dict[str, Any]:
    facts: dict[str, Any] = {"seq": page.seq}
    if page.next_cursor is not None:
        facts["next_cursor"] = page.next_cursor
    return facts


@router.get("/v1/sessions", response_model=SessionPage)
def list_sessions(
    request: Request,
    project: TheProject,
    ask: TheAsk,
    *,
    since: Text = "",
    until: Text = "",
    auth_subject: Text = "",
    harness_id: Text = "",
    harness_session_id: Text = "",
    placeholders: bool = False,
    count: Counted = "",
) -> Response:
    """Sessions, those with a trace that began in [since, until); or one by its harness's id."""
    if harness_id or harness_session_id:
        required_alone(request, harness_session_id)
        found = project.sessions_of_harness(harness_session_id, harness_id or None)
        items = [session_item(listed, now()) for listed in found]
        return reply(request, {"items": items, "seq": project.seq()})
    if auth_subject:
        ask = _and(ask, "subject", auth_subject)
    bounds: Any = {
        "since": moment_of("since", since),
        "until": moment_of("until", until),
        "placeholders": placeholders,
    }
    page = project.sessions(ask, **bounds)
    number = partial(project.count, Noun.SESSIONS, ask.where, **bounds)
    return reply(
        request, _told(page) | remarks_on(request, page) | counted(count, ask, page, number)
    )


def _told(page: Page[Listed]) -> dict[str, Any]:
    return {"items": _TOLD.items_of(page.items, now()), **_facts(page)}


# What the page asks for first.
_FIRST = 60


def first_asked(request: Request) -> dict[str, bytes]:
    """The answer that the page will ask for first, by its address; none to whom may not ask.

    Where it cannot be given the page asks itself, and is told why.
    """
    caller = request.scope.get(CALLER)
    if not isinstance(caller, Caller):
        return {}
    core = request.app.state.core
    assert isinstance(core, Core)
    try:
        page = core.store.project(caller.org_id).sessions(Ask(limit=_FIRST))
    except TapesError:
        return {}
    return {f"/v1/sessions?limit={_FIRST}": body_of(_told(page))}


def required_alone(request: Request, harness_session_id: str) -> None:
    """A look-up by the harness's id is no list: what belongs to lists is refused."""
    if not harness_session_id:
        raise BadQuery("harness_id alone names no session", 0, "add harness_session_id=…")
    given = request.query_params
    wrong = [n for n in ("cursor", "sort", "direction", "since", "until", "q") if given.get(n)]
    if wrong:
        raise BadQuery(f"a look-up by harness_session_id takes no {', '.join(wrong)}")


def _and(ask: Ask, name: str, value: str) -> Ask:
    return replace(ask, where=both(ask.where, is_(name, value)))


@router.get("/v1/sessions/{session_id}", response_model=OneSession)
def get_session(request: Request, project: TheProject, session_id: str) -> Response:
    """One session."""
    return reply(request, {"session": session_item(required(project, session_id), now())})


Tag = Annotated[str, Field(min_length=1, max_length=100)]


class Patch(BaseModel):
    """What to change of a session: at least one of these."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"minProperties": 1})

    display_name: str | None = Field(None, description='null or "" takes it away')
    add_tags: list[Tag] = Field(default_factory=list, max_length=50)
    remove_tags: list[Tag] = Field(default_factory=list, max_length=50)
    pinned: bool = Field(False, description="exempt from retention")


@router.patch("/v1/sessions/{session_id}", response_model=OneSession)
def patch_session(
    request: Request, project: TheProject, caller: TheCaller, session_id: str, patch: Patch
) -> Response:
    """Give a session a name, tags, a pin; or take them away."""
    listed = required(project, session_id)
    given = patch.model_fields_set
    if not given:
        raise BadQuery("nothing is to be changed", 0, 'send {"display_name": "…"}')
    key = listed.session.id
    if "display_name" in given:
        name = (patch.display_name or "").strip()
        if len(name) > 200:
            raise BadQuery(f"display_name has {len(name)} characters, at most 200 are kept")
        listed = project.rename(key, name, by=caller.name)
    if patch.add_tags or patch.remove_tags:
        listed = project.tag(key, add=patch.add_tags, remove=patch.remove_tags, by=caller.name)
    if "pinned" in given:
        listed = project.pin(key, pinned=patch.pinned, by=caller.name)
    return reply(request, {"session": session_item(listed, now())})


@router.delete(
    "/v1/sessions/{session_id}",
    status_code=204,
    responses={
        200: {"model": ErasureItem, "description": "What was erased, or would be"},
        204: {"description": "Erased"},
    },
    dependencies=[Depends(nothing_strange), Depends(no_body)],
)
def delete_session(
    request: Request,
    project: TheProject,
    caller: TheCaller,
    session_id: str,
    *,
    dry_run: bool = False,
    reason: Text = "",
    prefer: Annotated[str, Header(description="return=representation: say what was erased")] = "",
) -> Response:
    """Erase a session for good: from the log, all that was derived, the index, the file's bytes."""
    key = uuid_of("the session's id", session_id)
    erasure = project.erase([key], reason=reason, by=caller.name, dry_run=dry_run)
    if dry_run or "return=representation" in prefer.replace(" ", ""):
        return reply(request, erasure_item(erasure, planned=dry_run))
    return Response(status_code=204, headers={"location": f"/v1/erasures/{erasure.id}"})


@router.get("/v1/sessions/{session_id}/traces", response_model=WholeSession)
def session_traces(
    request: Request, project: TheProject, session_id: str, payload: PayloadOf = "full"
) -> Response:
    """A session with its traces, their spans, and all links."""
    listed = required(project, session_id)
    wanted = payload_of(payload)
    sheet = project.sheet_of_session(listed.session.id, payload=wanted != "none")
    moment = now()
    head = hashlib.blake2b(body_of(session_item(listed, moment)), digest_size=16).hexdigest()
    pieces = whole_session(listed, sheet, wanted, moment)
    mark = f"{wanted} {head} {sheet.mark}"
    return reply_in_pieces(request, mark, pieces, is_long=sheet.span_count > PIECE)


@router.get("/v1/sessions/{session_id}/raw_turns", response_model=TurnPage)
def session_turns(
    request: Request,
    project: TheProject,
    session_id: str,
    *,
    limit: LimitOf = WHOLE,
    cursor: Cursor = "",
) -> Response:
    """The raw turns of a session in the order of arrival, without their content."""
    key = required(project, session_id).session.id
    heads: list[TurnHead] = []
    limit = min(limit, WHOLE)
    while True:
        ask = Ask(descending=False, cursor=cursor, limit=min(limit - len(heads), MOST))
        page = project.turns(ask, session_id=key)
        heads += page.items
        cursor = page.next_cursor or ""
        if not cursor or len(heads) >= limit:
            break
    return reply(
        request, {"items": [turn_item(head) for head in heads], **page_facts(request, page)}
    )
