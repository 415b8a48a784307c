"""What changed: as a list, and as a stream of server-sent events.

Rule 1: an event's id is the number of the change. Who comes back with the last one they saw
        (`Last-Event-ID`, or `after`) misses nothing.
Rule 2: a number that the log has not come to is of another log, which lay here before: all is told
        from the beginning.
Rule 3: however many listen, the store is asked once for all of a tenant.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from tapes.api.asking import TheProject
from tapes.api.items import change_item
from tapes.api.models import ChangeItems
from tapes.api.replies import reply
from tapes.errors import BadQuery, Busy, TapesError
from tapes.store.base import Project

router = APIRouter(tags=["changes"])

After = Annotated[int, Query(ge=0, le=2**63 - 1, description="the number of a change")]

POLL_S = 0.25
# Something is said at least so often, so that nobody between takes the connection for dead.
HEARTBEAT_S = 15.0
LISTENERS = 200
_AT_ONCE = 500


class _Watch:
    """One tenant's changes, watched while somebody listens."""

    def __init__(self, project: Project) -> None:
        self._project = project
        self.listeners = 0
        self._seq = -1
        self.falls = 0  # how often the last number was below the one before
        self.is_over = False
        self._changed = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None

    def enter(self) -> None:
        self.listeners += 1
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._poll())

    def leave(self) -> None:
        self.listeners -= 1
        if not self.listeners and self._task is not None:
            self._task.cancel()
            self._task = None

    async def beyond(self, seq: int, falls: int) -> bool:
        """Wait for a higher number, another log, or the end; False where none came for long."""
        try:
            async with asyncio.timeout(HEARTBEAT_S), self._changed:
                await self._changed.wait_for(
                    lambda: self._seq > seq or self.falls > falls or self.is_over
                )
                return True
        except TimeoutError:
            return False

    async def _poll(self) -> None:
        while True:
            try:
                seq = await run_in_threadpool(self._project.seq)
            except TapesError:
                seq = self._seq  # the store is away just now: nothing is known to have changed
            if seq != self._seq or self.is_over:
                async with self._changed:
                    self.falls += seq < self._seq
                    self._seq = seq
                    self._changed.notify_all()
            await asyncio.sleep(POLL_S)


class Changes:
    """Everybody who listens. `closing` ends their streams, so that a server can stop."""

    def __init__(self) -> None:
        self._watches: dict[str, _Watch] = {}
        self._closing = False

    def close(self) -> None:
        """End all streams with the next look at the log."""
        self._closing = True
        for watch in self._watches.values():
            watch.is_over = True

    def require_room(self) -> None:
        """Raises Busy where too many listen."""
        if sum(watch.listeners for watch in self._watches.values()) >= LISTENERS:
            raise Busy(f"{LISTENERS} listen already", "close one of the other pages", 5.0)

    def _enter(self, project: Project) -> _Watch:
        """The watch of a tenant, as long as somebody listens to it. Raises Busy."""
        self.require_room()
        watch = self._watches.get(project.org_id)
        if watch is None:
            watch = self._watches[project.org_id] = _Watch(project)
        watch.enter()
        return watch

    def _leave(self, project: Project, watch: _Watch) -> None:
        watch.leave()
        if not watch.listeners and self._watches.get(project.org_id) is watch:
            del self._watches[project.org_id]

    async def stream(self, project: Project, after: int | None) -> AsyncGenerator[bytes, None]:
        """The events after a number; None is from now on."""
        watch = self._enter(project)
        try:
            last = await run_in_threadpool(project.seq)
            seq = last if after is None else after if after <= last else 0
            yield f"retry: 1000\nid: {seq}\n: from here\n\n".encode()
            falls = watch.falls
            while not self._closing:
                if not await watch.beyond(seq, falls):
                    yield b": nothing new\n\n"
                    continue
                if watch.is_over:
                    break
                falls = watch.falls
                if seq > await run_in_threadpool(project.seq):
                    seq = 0  # rule 2
                    yield b"id: 0\n: another log; from its beginning\n\n"
                changed = await run_in_threadpool(project.changes, seq, limit=_AT_ONCE)
                for change in changed:
                    seq = change.seq
                    said = json.dumps(change_item(change), separators=(",", ":"))
                    kind = "erased" if change.erased else "session"
                    yield f"id: {seq}\nevent: {kind}\ndata: {said}\n\n".encode()
                if not changed:
                    seq = max(seq, await run_in_threadpool(project.seq))
        finally:
            self._leave(project, watch)


@router.get("/v1/changes", response_model=ChangeItems)
def list_changes(
    request: Request,
    project: TheProject,
    after: After = 0,
    limit: Annotated[int, Query(ge=1, le=1000)] = _AT_ONCE,
) -> Response:
    """Sessions that changed after a number, or were erased: each once, with its last number."""
    seq = project.seq()
    changed = project.changes(after if after <= seq else 0, limit=limit)
    if len(changed) == limit:
        seq = changed[-1].seq
    return reply(request, {"items": [change_item(change) for change in changed], "seq": seq})


@router.get(
    "/v1/changes/stream",
    response_class=StreamingResponse,
    responses={
        200: {
            "description": "Events: `session` and `erased`, each with the change as its data",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    },
)
async def stream_changes(
    request: Request,
    project: TheProject,
    after: Annotated[
        int | None, Query(ge=0, le=2**63 - 1, description="from now on, if it is not said")
    ] = None,
    last_event_id: Annotated[str, Header()] = "",
) -> Response:
    """Changes as they happen."""
    if last_event_id:
        if not last_event_id.isdecimal() or len(last_event_id) > 18:
            raise BadQuery(f"Last-Event-ID {last_event_id[:40]!r} is no number of a change")
        after = int(last_event_id)
    changes = request.app.state.changes
    assert isinstance(changes, Changes)
    changes.require_room()
    return StreamingResponse(
        changes.stream(project, after),
        media_type="text/event-stream",
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )
