"""What operators do: sample sessions, deriving anew, corrections; and how the log is."""

from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from tapes.api.asking import TheCaller, TheCore, TheProject
from tapes.api.models import (
    AttributionItem,
    DerivedItem,
    DerivedOfItem,
    RepairedItem,
    SeededItem,
    StateItem,
)
from tapes.api.replies import problem, problem_reply, reply
from tapes.api.sessions import unknown
from tapes.errors import BadQuery
from tapes.exporting import sessions_found
from tapes.projector import Projector
from tapes.rows import DERIVATION, NO_ORG, RawTurn
from tapes.seeding import seed
from tapes.store.base import Correction, Noun, Project
from tapes.store.filters import EVERYTHING

router = APIRouter(tags=["admin"])

Text = Annotated[str, Field(max_length=1000)]


class Seed(BaseModel):
    """How to seed. What is there is never written over."""

    overwrite: bool = False


@router.post("/v1/admin/seed/demo", response_model=SeededItem)
def seed_demo(
    request: Request, core: TheCore, caller: TheCaller, how: Seed | None = None
) -> Response:
    """Put the sample sessions into the log; doing it again changes nothing."""
    if how is not None and how.overwrite:
        raise BadQuery("the log is append-only: nothing can be written over", 0, "leave it out")
    seeded = seed(core.store, caller.org_id)
    core.store.project(caller.org_id).note("seed", by=caller.name)
    _derive(core)
    body = {
        "sessions": seeded.sessions,
        "raw_turns": seeded.turns,
        "raw_turns_inserted": seeded.new,
        "raw_turns_deduped": seeded.turns - seeded.new,
    }
    return reply(request, body)


def _derive(core: TheCore) -> Projector:
    own = Projector(core.store, core.price)
    own.drain()
    return own


@router.post("/v1/admin/derive/run", response_model=DerivedItem)
def derive_run(request: Request, core: TheCore, caller: TheCaller) -> Response:
    """Derive everything of the tenant anew, and say what it came to.

    Sessions that another worker has just now are derived by that one: those are `waiting`.
    """
    project = core.store.project(caller.org_id)
    marked = core.store.mark_dirty(caller.org_id)
    done = _derive(core).of_tenants[caller.org_id]
    turns = project.count(Noun.TURNS, at_most=0).value
    told: DerivedOfItem = {
        "sessions": marked,
        "derived": done.derived,
        "placed": done.placed,
        "changed_rows": done.changed,
        "failed": done.failed,
        "waiting": core.store.waiting(caller.org_id),
        "raw_turns": turns,
        "parsed_turns": max(turns - sum(project.skipped().values()), 0),
        "call_kinds": _call_kinds(project),
    }
    name = "default" if caller.org_id == NO_ORG else caller.org_id
    return reply(request, {"orgs": {name: told}})


def _call_kinds(project: Project) -> dict[str, int]:
    """How many calls of each kind the sessions of a tenant have; what was injected is no call."""
    kinds: Counter[str] = Counter()
    for session in sessions_found(project, EVERYTHING):
        for kind, number in session.kind_counts:
            kinds[kind] += 0 if kind.startswith("injected:") else number
    return dict(sorted((+kinds).items()))


class Repair(BaseModel):
    """Whose turn it really was."""

    model_config = ConfigDict(extra="forbid")

    raw_turn_id: Annotated[int, Field(ge=0, le=2**63 - 1)] | None = None
    paper_proxy_request_id: Text = ""
    harness_id: Annotated[str, Field(min_length=1, max_length=1000)]
    harness_session_id: Annotated[str, Field(min_length=1, max_length=1000)]
    thread_id: Text = ""
    parent_harness_session_id: Text | None = None
    reason: Text = ""


@router.post(
    "/v1/admin/raw-turns/attribution-repair",
    status_code=202,
    response_model=RepairedItem,
)
def repair(request: Request, project: TheProject, caller: TheCaller, what: Repair) -> Response:
    """Say whose turn it really was. The raw turn stays; what is derived follows."""
    if (what.raw_turn_id is None) == (not what.paper_proxy_request_id):
        raise BadQuery("one turn is to be named", 0, "send raw_turn_id or paper_proxy_request_id")
    turn_id = what.raw_turn_id
    if turn_id is None:
        found = _turns_of_proxy(project, what.paper_proxy_request_id)
        if len(found) > 1:
            why = f"{len(found)} turns have this id: {', '.join(map(str, found[:5]))}"
            return problem_reply(problem(409, "ambiguous", why, "send raw_turn_id"))
        turn_id = found[0] if found else -1
    turn = project.turn(turn_id)
    if turn is None:
        raise unknown("turn", what.paper_proxy_request_id or turn_id)
    project.correct(
        Correction(
            turn_id,
            what.harness_id,
            what.harness_session_id,
            what.thread_id,
            what.parent_harness_session_id or None,
            what.reason,
        ),
        by=caller.name,
    )
    now = project.turn(turn_id)
    body = {
        "recorded": True,
        "raw_turn_id": turn_id,
        "previous": _attribution(turn),
        "effective": _attribution(turn if now is None else now),
        "projections_pending": True,
    }
    return reply(request, body, 202)


def _attribution(turn: RawTurn) -> AttributionItem:
    item: AttributionItem = {
        "harness_id": turn.envelope.harness_id,
        "harness_session_id": turn.envelope.harness_session_id,
        "thread_id": turn.thread_id,
    }
    if turn.envelope.parent_harness_session_id:
        item["parent_harness_session_id"] = turn.envelope.parent_harness_session_id
    return item


def _turns_of_proxy(project: Project, wanted: str) -> list[int]:
    """The turns to which a gateway gave this id. All are looked through: it is asked for rarely."""
    found = []
    for turn in project.stream_turns():
        metadata = turn.envelope.harness_metadata
        if isinstance(metadata, dict) and metadata.get("paperProxyRequestId") == wanted:
            found.append(turn.id)
    return found


@router.get("/v1/status", response_model=StateItem)
def status(request: Request, core: TheCore, project: TheProject, caller: TheCaller) -> Response:
    """How the log is: what it holds of a tenant, what waits, what shows nowhere and why."""
    counts, known = core.store.counts(project.org_id), core.store.derivation()
    body: StateItem = {
        "seq": project.seq(),
        "counts": {what: dict(numbers) for what, numbers in counts.items()},
        "skipped": dict(project.skipped()),
        "derives": core.projector is not None,
        "derivation": {
            "derived_by": known.version,
            "deriver": DERIVATION,
            "done": known.done(DERIVATION),
        },
        "addresses": {str(door): address for door, address in core.addresses.items()},
    }
    if not caller.guest:
        body["store"] = core.store.name
    return reply(request, body)
