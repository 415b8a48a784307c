"""Sessions as tapes over HTTP: the file itself, and what will be on it.

Rule 1: nothing is written on this machine: who asks puts the file where it belongs.
Rule 2: what is on it is redacted as the project's folder declares it, as by `tapes freeze`.
Rule 3: taking a tape is noted in the audit; looking at what would be on it is not.
"""

import os
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from tapes.api.asking import Core, TheCaller, TheCore, TheProject
from tapes.api.models import TapePlan
from tapes.api.replies import reply
from tapes.api.sessions import required
from tapes.forking import Plan, plan
from tapes.project import declared_for
from tapes.store.base import Project
from tapes.tape.jsonl import file_of

router = APIRouter(tags=["sessions"])

Until = Annotated[
    str,
    Query(
        description="the turn with which it ends: its number, or the id of a call, a tool, a trace",
        max_length=400,
    ),
]


@router.get("/v1/sessions/{session_id}/tape/plan", response_model=TapePlan)
def plan_tape(
    request: Request, core: TheCore, project: TheProject, session_id: str, until: Until = ""
) -> Response:
    """What a tape of a session would hold, up to a turn if one is named, and how to use it."""
    found = _planned(core, project, session_id, until)
    item: TapePlan = {
        "session_id": found.session_id,
        "until": found.last,
        "answers": len(found.exchanges),
        "left_out": [{"turn": note.place, "why": note.text} for note in found.left_out],
        "secrets": dict(found.secrets),
        "later": found.later,
        "tape": found.tape,
        "freeze": found.freezing,
        "run": found.running,
    }
    return reply(request, item)


@router.get(
    "/v1/sessions/{session_id}/tape",
    response_class=Response,
    responses={
        200: {
            "description": "The tape, as JSON lines",
            "content": {"application/x-ndjson": {"schema": {"type": "string"}}},
        }
    },
)
def get_tape_of_session(
    core: TheCore, project: TheProject, caller: TheCaller, session_id: str, until: Until = ""
) -> Response:
    """A tape of a session, up to a turn if one is named: an agent replays to there."""
    found = _planned(core, project, session_id, until)
    details = {"session": found.session_id, "tape": found.name}
    project.note("freeze", by=caller.name, details=details)
    headers = {
        "cache-control": "no-store",
        "content-disposition": f'attachment; filename="{found.name}"',
    }
    return Response(file_of(found.exchanges), media_type="application/x-ndjson", headers=headers)


def _planned(core: Core, project: Project, session_id: str, until: str) -> Plan:
    key = required(project, session_id).session.id
    return plan(project, key, until, declared_for(os.path.join(core.folder, "a.jsonl")))
