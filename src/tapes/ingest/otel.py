"""The doors of OTLP over HTTP: traces and the events of model calls in, with partial success.

Rule 1: what a request brings is kept as a whole before it is answered. A store that cannot keep it
        answers 503, which senders of OTLP try again.
Rule 2: what is not kept is counted and named in the answer.
"""

import asyncio
import logging
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from tapes.errors import MissingExtra, StoreBusy, TapesError, UnavailableStore
from tapes.ingest import otlp, protobuf
from tapes.ingest.bodies import LARGE, body_of
from tapes.ingest.counting import Counts
from tapes.ingest.doors import ORG
from tapes.ingest.keeping import Keeper
from tapes.ingest.otlp import Received
from tapes.ingest.sessions import TraceSessions, turns_of_spans
from tapes.ingest.turns import of_tenant, value_of_body
from tapes.jsontext import Json
from tapes.redact import Redactor
from tapes.store.base import Project

log = logging.getLogger(__name__)

_PROTOBUF, _JSON = "application/x-protobuf", "application/json"
_NAMES = {
    "traces": "rejectedSpans",
    "logs": "rejectedLogRecords",
    "metrics": "rejectedDataPoints",
}
_NO_METRICS = "data points are not kept here: metrics are made from the calls themselves"


class Otel:
    """Spans, log records and data points."""

    def __init__(
        self,
        keeper: Keeper,
        counts: Counts,
        project: Callable[[str], Project],
        limit: int,
        redactor: Callable[[], Redactor],
    ) -> None:
        self._keeper = keeper
        self._counts = counts
        self._project = project
        self._sessions: dict[str, TraceSessions] = {}  # by tenant: few, each with a token
        self._limit = limit
        self._redactor = redactor

    async def traces(self, request: Request) -> Response:
        """Keep spans."""

        def read(data: bytes, is_json: bool) -> Received:
            return otlp.spans_of_json(value_of_body(data)) if is_json else protobuf.spans_of(data)

        return await self._answered("traces", request, read)

    async def logs(self, request: Request) -> Response:
        """Keep the log records that say what models were asked and answered."""

        def read(data: bytes, is_json: bool) -> Received:
            all_of_them = (
                otlp.logs_of_json(value_of_body(data)) if is_json else protobuf.logs_of(data)
            )
            return otlp.only_content(all_of_them)

        return await self._answered("logs", request, read)

    async def metrics(self, request: Request) -> Response:
        """Say that data points are not kept."""

        def read(data: bytes, is_json: bool) -> Received:
            count = otlp.count_of_json(value_of_body(data)) if is_json else protobuf.count_of(data)
            received = Received()
            received.rejected[_NO_METRICS] = count
            return received

        return await self._answered("metrics", request, read)

    async def _answered(
        self, signal: str, request: Request, read: Callable[[bytes, bool], Received]
    ) -> Response:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        is_json = kind == _JSON
        if kind not in (_JSON, _PROTOBUF):
            return JSONResponse(
                {"code": 3, "message": f"OTLP is {_PROTOBUF} or {_JSON}, not {kind[:100]!r}"}, 415
            )
        try:
            with self._keeper.room() as more:
                data = await body_of(request, self._limit, more)
                org = str(request.scope[ORG])
                received = await self._kept(org, data, lambda: read(data, is_json))
        except TapesError as error:
            self._counts.signal(signal, "refused", 1, error.slug)
            return _failure(error, is_json=is_json)
        except Exception:
            log.exception("a request of OTLP could not be kept")
            self._counts.signal(signal, "refused", 1, "internal_error")
            return _status(500, 13, "the request could not be kept", is_json=is_json)
        rejected = received.rejected.total()
        self._counts.signal(signal, "accepted", len(received.forms))
        self._counts.signal(signal, "rejected", rejected)
        message = received.message()
        if not is_json:
            answer = protobuf.answer(signal, rejected, message)
            return Response(answer, media_type=_PROTOBUF)
        partial: Json = {_NAMES[signal]: str(rejected), "errorMessage": message}
        return JSONResponse({"partialSuccess": partial} if rejected else {})

    async def _kept(self, org: str, data: bytes, read: Callable[[], Received]) -> Received:
        received = read() if len(data) <= LARGE else await asyncio.to_thread(read)
        if received.forms:
            sessions = self._sessions.get(org)
            if sessions is None:
                sessions = self._sessions[org] = TraceSessions(self._project(org))
            turns = await asyncio.to_thread(
                turns_of_spans, received.forms, sessions, self._redactor()
            )
            await self._keeper.keep([of_tenant(turn, org) for turn in turns])
            await asyncio.to_thread(sessions.settle, received.forms)
        return received


# Statuses of the RPC form in which OTLP tells errors: invalid argument, unavailable, …
_CODES = {400: 3, 413: 3, 415: 3, 422: 3, 503: 14}


def _failure(error: TapesError, *, is_json: bool) -> Response:
    status = error.http_status
    if isinstance(error, StoreBusy | UnavailableStore):
        status = 503
    elif isinstance(error, MissingExtra):
        status = 415
    text = f"{error.message}; {error.remedy}" if error.remedy else error.message
    return _status(status, _CODES.get(status, 2), text, is_json=is_json or status == 415)


def _status(status: int, code: int, text: str, *, is_json: bool) -> Response:
    headers = {"retry-after": "1"} if status == 503 else {}
    if is_json:
        return JSONResponse({"code": code, "message": text}, status, headers=headers)
    return Response(protobuf.status(code, text), status, headers=headers, media_type=_PROTOBUF)
