"""The private door: captures post what they saw, and have it acknowledged when it is durable.

| path | methods | takes |
| --- | --- | --- |
| `/ping` | GET | nothing: the process serves |
| `/metrics` | GET | nothing: counters for Prometheus |
| `/openapi` | GET | nothing: this contract |
| `/v1/ingest` | POST | one turn |
| `/v1/ingest/batch` | POST | many turns, each answered for itself |
| `/v1/ingest/transcript` | POST | an agent's own log |
| `/v1/traces`, `/v1/logs`, `/v1/metrics` | POST | OTLP over HTTP, in protobuf or JSON |

Rule 1: nobody is answered whom the access does not allow, and a web page is never allowed.
Rule 2: success is said of what is durable, and of nothing else.
Rule 3: what comes belongs to the tenant whose token it came with, on every path alike.
Rule 4: what is asked at the wrong port is refused with the right one, and never taken and lost.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from tapes.access import Access
from tapes.doors import USUAL, Door
from tapes.errors import BadEnvelope, OversizeBody, StoreBusy, TapesError, UnavailableStore
from tapes.ingest.bodies import BODY_LIMIT, LARGE, body_of
from tapes.ingest.contract import DOCUMENT
from tapes.ingest.counting import Counts
from tapes.ingest.doors import ORG, Scope, guarded
from tapes.ingest.keeping import UNDER_WAY, Keeper
from tapes.ingest.otel import Otel
from tapes.ingest.senders import Senders
from tapes.ingest.turns import (
    Told,
    of_tenant,
    provider_label,
    transcript_of,
    turn_of,
    value_of_body,
)
from tapes.jsontext import Json
from tapes.redact import Redactor
from tapes.rows import NO_ORG, RawTurn
from tapes.store.base import Kept, Receipt, Store

log = logging.getLogger(__name__)

App = Callable[[Scope, Any, Any], Awaitable[None]]

# The most turns of one batch.
BATCH_LIMIT = 10_000
SUBJECT = "x-paper-auth-subject"
AGENT = "x-tapes-agent-name"
_RETRY = {"retry-after": "1"}


def ingest_app(
    store: Store,
    *,
    access: Access | None = None,
    tenants: Mapping[str, str] | None = None,
    org_id: str = NO_ORG,
    body_limit: int = BODY_LIMIT,
    under_way: int = UNDER_WAY,
    redactor: Callable[[], Redactor] = Redactor,
    kept: Callable[[], object] | None = None,
    addresses: Mapping[Door, str] = USUAL,
) -> App:
    """The application over a store. `kept` is called when something new is durable.

    `tenants` are tenant by the hash of its token; `org_id` is the tenant of who names none.
    `addresses` is where the other servers are, for requests that came to the wrong one.

    It holds nothing that must be closed; what was acknowledged is in the store.
    """
    counts, keeper = Counts(), Keeper(store, under_way=under_way, kept=kept)
    doors = _Doors(keeper, counts, body_limit, redactor)
    otel = Otel(keeper, counts, store.project, body_limit, redactor)
    routes = [
        Route("/ping", _ping, methods=["GET"]),
        Route("/metrics", doors.metrics, methods=["GET"]),
        Route("/openapi", _contract, methods=["GET"]),
        Route("/v1/ingest", doors.turn, methods=["POST"]),
        Route("/v1/ingest/batch", doors.batch, methods=["POST"]),
        Route("/v1/ingest/transcript", doors.transcript, methods=["POST"]),
        Route("/v1/traces", otel.traces, methods=["POST"]),
        Route("/v1/logs", otel.logs, methods=["POST"]),
        Route("/v1/metrics", otel.metrics, methods=["POST"]),
    ]
    senders = Senders(access or Access(), tenants or {}, org_id)
    inner = Starlette(routes=routes, exception_handlers={405: _wrong_method})
    return guarded(inner, senders, addresses)


async def _wrong_method(request: Request, error: Exception) -> Response:
    allow = error.headers if isinstance(error, HTTPException) else None
    told = f"{request.url.path} does not have {request.method}"
    return JSONResponse({"error": told}, status_code=405, headers=allow)


async def _ping(_request: Request) -> Response:
    return JSONResponse({"status": "ok"})


async def _contract(_request: Request) -> Response:
    return JSONResponse(DOCUMENT)


class _Doors:
    """Turns and transcripts."""

    def __init__(
        self, keeper: Keeper, counts: Counts, limit: int, redactor: Callable[[], Redactor]
    ) -> None:
        self._keeper = keeper
        self._counts = counts
        self._limit = limit
        self._redactor = redactor

    async def metrics(self, _request: Request) -> Response:
        """Counters."""
        kind = "text/plain; version=0.0.4"
        return PlainTextResponse(self._counts.text(self._keeper.depth), media_type=kind)

    # --- one turn

    async def turn(self, request: Request) -> Response:
        """Keep one turn."""
        agent, org = request.headers.get(AGENT, ""), str(request.scope[ORG])
        try:
            with self._keeper.room() as more:
                data = await body_of(request, self._limit, more)
                told = await _worked(data, lambda: self._told(value_of_body(data), agent, org))
                receipt = (await self._keeper.keep([told.turn]))[0]
        except TapesError as error:
            return self._refused(error, "unknown", 502)
        except Exception:
            log.exception("a turn could not be kept")
            self._counts.wrote("unknown", "internal_error")
            return _failure(500, "the turn could not be kept", {})
        status, answer = self._outcome(told, receipt, len(data))
        return JSONResponse(answer, status)

    def _told(self, payload: Json, agent: str, org: str) -> Told:
        told = turn_of(
            payload, received_at=time.time_ns(), agent_name=agent, redactor=self._redactor
        )
        return replace(told, turn=of_tenant(told.turn, org))

    def _outcome(self, told: Told, receipt: Receipt, size: int) -> tuple[int, dict[str, Json]]:
        """Status and answer for a turn that is kept."""
        label = provider_label(told.turn.provider)
        if receipt.kept is Kept.ERASED:
            self._counts.wrote(label, "erased")
            return 410, {"error": "this turn, or its session, was erased for good"}
        if told.unreadable:
            unknown = told.reason is not None and told.reason.value == "unknown_provider"
            self._counts.wrote(label, "unknown_provider" if unknown else "reject_parse")
            why = f"unprocessable turn: {told.unreadable}"
            return 422, {"error": why, "kept": True, "id": receipt.id}
        self._counts.wrote(label, "accepted", size)
        deduped = receipt.kept is Kept.KNOWN
        return 202, {"status": "accepted", "deduped": deduped, "id": receipt.id}

    def _refused(self, error: TapesError, label: str, down: int) -> Response:
        """The answer for a body of which nothing was kept. `down`: the status of a dead store."""
        status, word, text = _reason(error, down)
        self._counts.wrote(label, word)
        return _failure(status, text, _RETRY if status in (down, 503) else {})

    # --- many turns

    async def batch(self, request: Request) -> Response:
        """Keep many turns; each has its own answer, in the order in which they came."""
        agent, org = request.headers.get(AGENT, ""), str(request.scope[ORG])
        is_lines = "ndjson" in request.headers.get("content-type", "")
        try:
            with self._keeper.room() as more:
                data = await body_of(request, self._limit, more)
                told = await _worked(
                    data, lambda: self._all_told(_items(data, is_lines), agent, org)
                )
                turns = [item.turn for item in told if isinstance(item, Told)]
                receipts = await self._keeper.keep(turns)
        except TapesError as error:
            return self._refused(error, "unknown", 502)
        except Exception:
            log.exception("a batch could not be kept")
            self._counts.wrote("unknown", "internal_error")
            return _failure(500, "the batch could not be kept", {})
        results = self._results(told, receipts, len(data) // max(len(told), 1))
        return JSONResponse(_summary(results), 200)

    def _all_told(self, items: Sequence[Json], agent: str, org: str) -> list[Told | BadEnvelope]:
        told: list[Told | BadEnvelope] = []
        for item in items:
            try:
                told.append(self._told(_unbroken(item), agent, org))
            except BadEnvelope as error:
                told.append(error)
        return told

    def _results(
        self, told: Sequence[Told | BadEnvelope], receipts: Sequence[Receipt], size: int
    ) -> list[dict[str, Json]]:
        left, results = iter(receipts), list[dict[str, Json]]()
        for item in told:
            if isinstance(item, BadEnvelope):
                self._counts.wrote("unknown", "reject_envelope")
                status, answer = 400, {"error": f"invalid envelope: {item.message}"}
            else:
                status, answer = self._outcome(item, next(left), size)
            results.append({"code": status, **answer})
        return results

    # --- transcripts

    async def transcript(self, request: Request) -> Response:
        """Keep an agent's own log, or what it tells of how a sub-agent began."""
        subject, org = request.headers.get(SUBJECT, ""), str(request.scope[ORG])
        try:
            with self._keeper.room() as more:
                data = await body_of(request, self._limit, more)
                turn = await _worked(data, lambda: self._transcript(data, subject, org))
                receipt = (await self._keeper.keep([turn]))[0]
        except TapesError as error:
            return self._refused(error, "transcript", 500)
        except Exception:
            log.exception("a transcript could not be kept")
            self._counts.wrote("transcript", "internal_error")
            return _failure(500, "the transcript could not be kept", {})
        if receipt.kept is Kept.ERASED:
            self._counts.wrote("transcript", "erased")
            return _failure(410, "the session of this transcript was erased for good", {})
        self._counts.wrote("transcript", "accepted", len(data))
        answer: dict[str, Json] = {
            "status": "accepted",
            "deduped": receipt.kept is Kept.KNOWN,
            "records": len(turn.records),
        }
        agent = turn.meta.get("agent_id", "") if isinstance(turn.meta, dict) else ""
        return JSONResponse(answer | ({"agent_id": agent} if agent else {}), 202)

    def _transcript(self, data: bytes, subject: str, org: str) -> RawTurn:
        turn = transcript_of(
            value_of_body(data),
            received_at=time.time_ns(),
            subject=subject,
            redactor=self._redactor,
        )
        return of_tenant(turn, org)


async def _worked(data: bytes, work: Callable[[], Any]) -> Any:
    """What the work gives; done in a thread where the body is large."""
    return work() if len(data) <= LARGE else await asyncio.to_thread(work)


def _reason(error: TapesError, down: int) -> tuple[int, str, str]:
    """Status, the word of the counter, and the text for an error that keeps nothing."""
    match error:
        case StoreBusy():
            return 503, "queue_byte_budget", f"{error.message}; {error.remedy}"
        case UnavailableStore():
            return down, "downstream_error", f"downstream failure: {error.message}"
        case OversizeBody():
            return 413, "reject_oversize", error.message
        case BadEnvelope():
            return 400, "reject_envelope", f"invalid envelope: {error.message}"
    return error.http_status, "reject_envelope", error.message


def _failure(status: int, text: str, headers: dict[str, str]) -> Response:
    return JSONResponse({"error": text}, status, headers=headers)


class _Broken:
    """A line of a batch that is no JSON."""

    def __init__(self, why: str) -> None:
        self.why = why


def _items(data: bytes, is_lines: bool) -> list[Json]:
    """The turns of a batch: a list, an object with `turns`, or one on each line."""
    items: Json
    if is_lines:
        items = [_line(line) for line in data.split(b"\n") if line.strip()]
    else:
        value = value_of_body(data)
        items = value.get("turns") if isinstance(value, dict) else value
    if not isinstance(items, list):
        raise BadEnvelope("a batch is a list of turns, or an object with the list as `turns`")
    if len(items) > BATCH_LIMIT:
        raise BadEnvelope(f"a batch has at most {BATCH_LIMIT} turns")
    return [*items]


def _line(line: bytes) -> Json:
    try:
        return value_of_body(line)
    except BadEnvelope as error:
        return _Broken(error.message)


def _unbroken(item: Json) -> Json:
    if isinstance(item, _Broken):
        raise BadEnvelope(item.why)
    return item


def _summary(results: Sequence[dict[str, Json]]) -> dict[str, Json]:
    accepted = [result for result in results if result["code"] == 202]
    return {
        "accepted": len(accepted),
        "deduped": sum(result["deduped"] for result in accepted),
        "failed": len(results) - len(accepted),
        "results": list(results),
    }
