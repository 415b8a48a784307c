"""What is erased and kept: erasures, retention, the audit. And what was wrongly attributed."""

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from tapes.api.asking import TheCaller, TheProject, nothing_strange, now, uuid_of
from tapes.api.items import audit_items, erasure_item, policy_item
from tapes.api.models import AuditItems, ErasureItem, ErasureItems, PolicyItem
from tapes.api.replies import reply
from tapes.api.sessions import unknown
from tapes.errors import BadQuery
from tapes.store.base import MOST, Ask, Policy, Project
from tapes.store.filters import parse

router = APIRouter(tags=["governance"])

_Whole = Annotated[int | None, Field(ge=0, le=2**63 - 1)]
# A filter may name so many sessions at once; who wants to erase more does it again.
_AT_MOST = 10_000


class Erase(BaseModel):
    """What to erase: sessions by their ids, or all that a query finds."""

    model_config = ConfigDict(extra="forbid")

    session_ids: list[Annotated[str, Field(max_length=64)]] = Field(
        default_factory=list, max_length=_AT_MOST
    )
    q: str = Field("", max_length=4000)
    reason: str = Field("", max_length=1000)
    dry_run: bool = False


@router.post("/v1/erasures", response_model=ErasureItem, dependencies=[Depends(nothing_strange)])
def erase(request: Request, project: TheProject, caller: TheCaller, what: Erase) -> Response:
    """Erase sessions for good, or only say what it would be."""
    if bool(what.session_ids) == bool(what.q.strip()):
        raise BadQuery("what is to be erased is not said", 0, "send session_ids, or q")
    named = [uuid_of("a session's id", text) for text in what.session_ids]
    ids = named or _found(project, what.q)
    erasure = project.erase(ids, reason=what.reason, by=caller.name, dry_run=what.dry_run)
    return reply(request, erasure_item(erasure, planned=what.dry_run))


def _found(project: Project, query: str) -> list[str]:
    ask = Ask(parse(query), limit=MOST)
    ids: list[str] = []
    while True:
        page = project.sessions(ask, placeholders=True)
        if page.remarks:
            raise BadQuery(f"not all that fits can be found: {page.remarks[0]}", 0, "narrow it")
        ids += [listed.session.id for listed in page.items]
        if page.next_cursor is None:
            return ids
        if len(ids) >= _AT_MOST:
            raise BadQuery(f"more than {_AT_MOST} sessions fit", 0, "narrow it: until:2026-07-01")
        ask = Ask(ask.where, limit=MOST, cursor=page.next_cursor)


@router.get("/v1/erasures", response_model=ErasureItems)
def erasures_of(
    request: Request, project: TheProject, session_id: Annotated[str, Query(max_length=64)]
) -> Response:
    """The erasure by which a session went: why a link to it leads nowhere any more."""
    erasure = project.erasure_of(uuid_of("the session's id", session_id))
    items = [] if erasure is None else [erasure_item(erasure)]
    return reply(request, {"items": items})


@router.get("/v1/erasures/{erasure_id}", response_model=ErasureItem)
def get_erasure(
    request: Request, project: TheProject, erasure_id: Annotated[int, Path(ge=0, le=2**63 - 1)]
) -> Response:
    """What became of an erasure."""
    erasure = project.erasure(erasure_id)
    if erasure is None:
        raise unknown("erasure", erasure_id)
    return reply(request, erasure_item(erasure))


class Keep(BaseModel):
    """How long sessions are kept; null is without end."""

    model_config = ConfigDict(extra="forbid")

    max_age_ns: _Whole
    max_sessions: _Whole
    max_bytes: _Whole


@router.get("/v1/retention", response_model=PolicyItem)
def get_policy(request: Request, project: TheProject) -> Response:
    """How long sessions are kept."""
    return reply(request, policy_item(project.policy()))


@router.put("/v1/retention", response_model=PolicyItem)
def set_policy(request: Request, project: TheProject, caller: TheCaller, keep: Keep) -> Response:
    """Change how long sessions are kept; nothing is erased by that alone."""
    policy = Policy(keep.max_age_ns, keep.max_sessions, keep.max_bytes)
    project.set_policy(policy, by=caller.name)
    return reply(request, policy_item(policy))


class Run(BaseModel):
    """How to erase what is beyond it; the query may say the same."""

    model_config = ConfigDict(extra="forbid")

    dry_run: bool = False


@router.post(
    "/v1/retention/run",
    response_model=ErasureItem,
    dependencies=[Depends(nothing_strange)],
)
def retain(
    request: Request,
    project: TheProject,
    caller: TheCaller,
    how: Run | None = None,
    *,
    dry_run: bool = False,
) -> Response:
    """Erase what is beyond it, or only say what it would be."""
    only_say = dry_run or (how is not None and how.dry_run)
    erasure = project.retain(now=now(), by=caller.name, dry_run=only_say)
    return reply(request, erasure_item(erasure, planned=only_say or not erasure.id))


@router.get("/v1/audit", response_model=AuditItems)
def audit(
    request: Request,
    project: TheProject,
    before: Annotated[int | None, Query(ge=0, le=2**63 - 1)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """What was done, the latest first; go on with the last id as `before`."""
    return reply(request, {"items": audit_items(project.audit(before=before, limit=limit))})
