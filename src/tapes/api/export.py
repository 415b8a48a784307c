"""Sessions as files over HTTP: those that the list would show, sent as they are read.

Rule 1: what can be known to be wrong is told before the answer begins; what fails later breaks the
        answer off, so that nobody takes a part for the whole.
Rule 2: what is not derived yet is not in it, and the head of the answer says how much that is.
Rule 3: an export is noted in the audit, with who asked and what for.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Request, Response
from starlette.responses import StreamingResponse

from tapes.api.asking import Q, TheCaller, TheProject, moment_of, nothing_strange
from tapes.api.sessions import required_alone
from tapes.errors import BadQuery
from tapes.exporting import Export, Form, sessions_found
from tapes.rows import Session
from tapes.store.base import Project
from tapes.store.filters import EVERYTHING, both, is_, parse

router = APIRouter(tags=["sessions"])

Text = Annotated[str, Query(max_length=1000)]
MEDIA = {
    Form.JSONL: ("application/x-ndjson", "jsonl"),
    Form.OTLP: ("application/json", "json"),
    Form.PARQUET: ("application/vnd.apache.parquet", "parquet"),
}
WAITING = "x-tapes-waiting-sessions"
_OF_PAGES = ("cursor", "limit", "sort", "direction")


async def _no_page(request: Request) -> None:
    wrong = [name for name in _OF_PAGES if name in request.query_params]
    if wrong:
        raise BadQuery(f"an export is no page: it takes no {', '.join(wrong)}", 0, "narrow q=…")


_FORM = f"what to write: {', '.join(Form)}"


@router.get(
    "/v1/export",
    response_class=Response,
    dependencies=[Depends(_no_page), Depends(nothing_strange)],
    responses={
        200: {
            "description": "The file",
            "headers": {
                WAITING: {
                    "description": "sessions that are not derived yet, and not in the file",
                    "schema": {"type": "integer"},
                }
            },
            "content": {
                "application/x-ndjson": {"schema": {"type": "string"}},
                "application/json": {"schema": {"type": "object"}},
                "application/vnd.apache.parquet": {"schema": {"type": "string"}},
            },
        }
    },
)
def export(
    request: Request,
    project: TheProject,
    caller: TheCaller,
    *,
    form: Annotated[str, Query(alias="format", description=_FORM, max_length=100)] = "jsonl",
    content: Annotated[bool, Query(description="texts too, in OTLP")] = False,
    q: Q = "",
    since: Text = "",
    until: Text = "",
    auth_subject: Text = "",
    harness_id: Text = "",
    harness_session_id: Text = "",
) -> Response:
    """All sessions that the list would show, as one file; JSONL goes into another log as it is."""
    chosen = Form.named(form)
    if harness_id or harness_session_id:
        required_alone(request, harness_session_id)
        found = _of_harness(project, harness_session_id, harness_id)
    else:
        where = parse(q) if q else EVERYTHING
        if auth_subject:
            where = both(where, is_("subject", auth_subject))
        begin, end = moment_of("since", since), moment_of("until", until)
        found = sessions_found(project, where, since=begin, until=end)
    waiting = project.waiting()  # before anything is read: what comes meanwhile may be in it
    pieces = Export(project, chosen, content=content).pieces(found)
    first = next(pieces, b"")  # rule 1
    asked = {name: value for name, value in request.query_params.items() if value}
    project.note("export", by=caller.name, details={"format": chosen, **asked})
    media, ending = MEDIA[chosen]
    headers = {
        WAITING: str(waiting),
        "cache-control": "no-store",
        "content-disposition": f'attachment; filename="sessions.{ending}"',
    }
    return StreamingResponse(chain((first,), pieces), media_type=media, headers=headers)


def _of_harness(project: Project, name: str, harness_id: str) -> Iterator[Session]:
    return (each.session for each in project.sessions_of_harness(name, harness_id or None))
