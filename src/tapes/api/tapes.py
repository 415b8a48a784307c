"""Tapes: which lie below the project's folder, what is on them, what replay saved; and misses.

Rule 1: a tape is named by its path below the folder, and only what was found there is opened.
Rule 2: tapes belong to the machine and not to a tenant: they are shown to the default tenant alone.
Rule 3: a miss is explained by the decision that a program would get, asked anew; nothing is kept.
"""

import os
from datetime import UTC, datetime
from decimal import Decimal
from functools import lru_cache
from shlex import quote
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response

from tapes.api.asking import Cursor, LimitOf, TheCaller, TheCore, TheProject
from tapes.api.items import turn_item
from tapes.api.models import (
    ExplanationItem,
    KeptRunsItem,
    MissItem,
    MissPage,
    NearItem,
    RecordingItem,
    SaidItem,
    SavedItem,
    SinceItem,
    TapeItem,
    TapeItems,
    WholeTape,
)
from tapes.api.replies import reply
from tapes.api.sessions import page_facts, unknown
from tapes.api.turns import came_item, sent_item
from tapes.errors import BadQuery, MissingExtra, TapesError, UnknownId, UnknownKey
from tapes.exchange import Exchange
from tapes.exchange import Request as Sent
from tapes.exchange import Response as Came
from tapes.expiry import expired
from tapes.explain import Near
from tapes.explanation import Explanation, explain
from tapes.forking import COMMAND
from tapes.jsontext import Json
from tapes.prices import price_of
from tapes.project import declared_for
from tapes.providers.reading import read
from tapes.providers.reduced import blocks_of
from tapes.providers.turn import Message, Text, Turn
from tapes.providers.usage import Usage
from tapes.report import Savings, runs_of
from tapes.rows import NO_ORG, Outcome, RawTurn, time_text
from tapes.stats import latest_used, replayed_from, stats_of
from tapes.store.base import MOST, Ask, Project
from tapes.store.filters import Some, is_
from tapes.summary import request_json, said_in, summary_of, what_of
from tapes.tape.finding import Glance, find_tapes, glance_at
from tapes.tape.kinds import open_tape
from tapes.tape.raw import exchange_at, exchanges, key_that_begins, kind_of_existing, open_rows

router = APIRouter(tags=["tapes"])

# Rows of a tape that are shown; the command line shows all.
ROWS = 2000
# Turns that are looked at for what became of a tape since its latest run.
_LOOKED_AT = 1000
_OF_TAPES = Some((is_("outcome", Outcome.REPLAYED), is_("outcome", Outcome.REFUSED)))
TURN_ID = Annotated[int, Path(ge=0, le=2**63 - 1)]
TapePath = Annotated[str, Query(description="as GET /v1/tapes names it", max_length=1000)]


def _price(usage: Usage) -> Decimal | None:
    try:
        return price_of(usage)
    except MissingExtra:
        return None


def _folder(core: TheCore, caller: TheCaller) -> str | None:
    return core.folder if caller.org_id == NO_ORG else None


def _found(folder: str | None) -> dict[str, str]:
    """The tapes by their path below the folder."""
    if folder is None:
        return {}
    return {os.path.relpath(path, folder): path for path in find_tapes(folder)}


def _tape(folder: str | None, path: str) -> str:
    found = _found(folder).get(path)
    if found is None:
        raise UnknownId(f"there is no tape {path[:200]}", "see GET /v1/tapes")
    return found


@router.get("/v1/tapes", response_model=TapeItems)
def list_tapes(request: Request, core: TheCore, caller: TheCaller) -> Response:
    """The tapes below the folder in which the server was started, each at a glance."""
    folder = _folder(core, caller)
    items = [_tape_item(path, where) for path, where in _found(folder).items()]
    shown = os.path.abspath(folder) if folder is not None else None
    return reply(request, {"folder": shown, "items": items})


def _tape_item(path: str, where: str) -> TapeItem:
    glance = _glance(where, _stamp(where))
    return {
        "path": path,
        "kind": glance.kind,
        "answers": glance.exchanges,
        "incomplete": glance.incomplete,
        "bytes": glance.bytes,
        "last_recorded": glance.last_recorded,
        "canonicalizers": list(glance.canonicalizers),
        "problem": None if glance.error is None else glance.error.message,
        "remedy": None if glance.error is None else glance.error.remedy,
        "replayed": None if glance.error is not None else _replayed(where),
    }


def _replayed(where: str) -> KeptRunsItem | None:
    """What the runs that are kept did; None where there is none, or they cannot be read."""
    try:
        tape = open_tape(where)
        try:
            runs = runs_of(tape)
        finally:
            tape.close()
        return _in_sum(where, _stamp(where), runs[0].ended, len(runs)) if runs else None
    except TapesError:
        return None


@lru_cache(maxsize=500)
def _in_sum(where: str, _stamp: tuple[float, int], _ended: float, _runs: int) -> KeptRunsItem:
    runs, saved = replayed_from(where, _price)
    return {
        "runs": len(runs),
        "served": sum(sum(run.hits.values()) for run in runs),
        "refused": sum(run.counts.get("refused", 0) for run in runs),
        "saved": _saved_item(saved),
    }


def _saved_item(saved: Savings) -> SavedItem:
    return {
        "calls": saved.calls,
        "tokens": saved.tokens,
        "usd": None if saved.usd is None else float(saved.usd),
        "unpriced": saved.unpriced,
        "bytes": saved.bytes,
    }


def _stamp(where: str) -> tuple[float, int]:
    """What changes when a tape does."""
    try:
        facts = os.stat(where)
    except OSError:
        return (0.0, 0)
    return (facts.st_mtime, facts.st_size)


@lru_cache(maxsize=500)
def _glance(where: str, _: tuple[float, int]) -> Glance:
    return glance_at(where)


@router.get("/v1/tapes/contents", response_model=WholeTape)
def get_tape(
    request: Request, core: TheCore, caller: TheCaller, project: TheProject, tape: TapePath
) -> Response:
    """What is on a tape, what its runs did with it, and what replay has saved."""
    where = _tape(_folder(core, caller), tape)
    stats = stats_of(where, _price)
    opened = open_tape(where)
    try:
        runs = runs_of(opened)
    finally:
        opened.close()
    used = latest_used(runs, 1)
    hits: dict[str, int] = {}
    for run in runs:
        for key, times in run.hits.items():
            hits[key] = hits.get(key, 0) + times
    rows, left_out = _rows(where, hits, used)
    item: WholeTape = {
        "tape": _tape_item(tape, where),
        "models": dict(stats.recorded.models),
        "input_tokens": stats.recorded.input_tokens,
        "output_tokens": stats.recorded.output_tokens,
        "superseded": stats.recorded.superseded,
        "served": stats.served,
        "refused": stats.total("refused"),
        "live": stats.total("live"),
        "since": _since(project, where, max((run.ended for run in runs), default=0.0)),
        "saved": _saved_item(stats.saved),
        "unused": stats.unused,
        "expired": sum(row["expired"] for row in rows),
        "runs": [
            {
                "mode": run.mode,
                "started": _time(run.started),
                "ended": _time(run.ended),
                "served": sum(run.hits.values()),
                "recorded": sum(run.recordings.values()),
                "counts": dict(run.counts),
            }
            for run in runs[:50]
        ],
        "exchanges": rows,
        "left_out": left_out,
    }
    return reply(request, item)


def _since(project: Project, where: str, ended: float) -> SinceItem:
    """What came from a tape, or was not on it, since then, as far as the log shows it."""
    served = refused = 0
    cursor, left, mine = "", _LOOKED_AT, os.path.abspath(where)
    while left > 0:
        page = project.turns(Ask(_OF_TAPES, cursor=cursor, limit=min(left, MOST)))
        new = [head for head in page.items if head.received_at > ended * 1e9]
        for head in new:
            if os.path.abspath(_why(head.meta)["tape"] or "") == mine:
                served += head.outcome == Outcome.REPLAYED
                refused += head.outcome == Outcome.REFUSED
        cursor = page.next_cursor or ""
        if not cursor or len(new) < len(page.items):
            return {"served": served, "refused": refused, "more": False}
        left -= len(page.items)
    return {"served": served, "refused": refused, "more": True}


def _time(seconds: float) -> str:
    return time_text(int(seconds * 1e9))


def _rows(where: str, hits: dict[str, int], used: set[str] | None) -> tuple[list[Any], int]:
    max_age = declared_for(where).max_age
    now = datetime.now(UTC)
    rows: list[Any] = []
    left_out = 0
    with open_rows(where) as raw:
        for _, exchange in exchanges(raw):
            if len(rows) >= ROWS:
                left_out += 1
                continue
            summary = summary_of(exchange)
            rows.append(
                {
                    **summary.as_dict(),
                    "state": str(summary.state),
                    "hits": hits.get(exchange.key, 0),
                    "unused": None if used is None else exchange.key not in used,
                    "expired": max_age is not None and expired(exchange, max_age, now),
                }
            )
    return rows, left_out


@router.get("/v1/tapes/recording", response_model=RecordingItem)
def get_recording(
    request: Request,
    core: TheCore,
    caller: TheCaller,
    tape: TapePath,
    key: Annotated[str, Query(min_length=4, max_length=64, description="a key, or its beginning")],
    *,
    n: Annotated[
        int | None, Query(ge=0, description="which of the rows with this key; the last if not said")
    ] = None,
) -> Response:
    """A recording of a tape: what was asked and what came, as it lies there and as it reads."""
    where = _tape(_folder(core, caller), tape)
    try:
        whole = key_that_begins(where, key)
    except UnknownKey as error:
        raise UnknownId(error.message, error.remedy) from error
    return reply(request, _recording(tape, _with_key(where, whole, n)))


def _with_key(where: str, key: str, n: int | None) -> Exchange:
    found = None
    with open_rows(where) as rows:
        mine = (raw for raw in rows if raw.row is not None and raw.key == key)
        for place, raw in enumerate(mine):
            if n is None or n == place:
                found = exchange_at(rows, raw)
    if found is None:
        raise UnknownId(
            f"there is no row {n} with the key {key[:12]}", "see GET /v1/tapes/contents"
        )
    return found


def _recording(tape: str, exchange: Exchange) -> RecordingItem:
    turn = read(exchange)
    unread = None if isinstance(turn, Turn) else str(turn)
    item: RecordingItem = {
        "tape": tape,
        "key": exchange.key,
        "canonicalizer": exchange.canonicalizer,
        "recorded_at": exchange.recorded_at,
        "state": str(exchange.state),
        "sample": exchange.sample,
        "what": what_of(exchange.request),
        "request": None,
        "response": None,
        "messages": [],
        "tools": [],
        "answers": [],
        "model": None,
        "stop": None,
        "unread": unread,
    }
    if isinstance(exchange.request, Sent):
        item["request"] = sent_item(exchange.request)
    elif exchange.request is not None:
        item["plain_request"] = exchange.request
    if isinstance(exchange.response, Came):
        item["response"] = came_item(exchange.response)
    else:
        item["plain_response"] = exchange.response
    if isinstance(turn, Turn):
        system = [Message("system", (Text(turn.asked.system),))] if turn.asked.system else []
        item["messages"] = [_said(each) for each in (*system, *turn.asked.messages)]
        item["tools"] = [tool.name for tool in turn.asked.tools]
        item["answers"] = [_said(choice.message) for choice in turn.answer.choices]
        item["model"] = turn.model or None
        item["stop"] = turn.answer.finish_reason
    return item


def _said(message: Message) -> SaidItem:
    return {"role": message.role, "parts": blocks_of(message.parts)}


# --- misses -----------------------------------------------------------------------------------


@router.get("/v1/misses", response_model=MissPage)
def list_misses(
    request: Request, project: TheProject, *, cursor: Cursor = "", limit: LimitOf = 50
) -> Response:
    """Requests that got no answer because no tape has one, the latest first."""
    ask = Ask(is_("outcome", "refused"), cursor=cursor, limit=min(limit, MOST))
    page = project.turns(ask)
    items = [
        {**turn_item(head), **_why(head.meta), **_words(project.turn(head.id))}
        for head in page.items
    ]
    return reply(request, {"items": items, **page_facts(request, page)})


def _words(turn: RawTurn | None) -> dict[str, str | None]:
    """By what a person knows the request."""
    sent = None if turn is None or turn.exchange is None else turn.exchange.request
    asked = request_json(sent)
    model = asked.get("model") if isinstance(asked, dict) else None
    return {"said": said_in(asked), "model": model if isinstance(model, str) else None}


def _why(meta: object) -> dict[str, str | None]:
    said = meta if isinstance(meta, dict) else {}
    return {"tape": said.get("tape"), "refused": said.get("refused")}


@router.get("/v1/misses/{turn_id}", response_model=MissItem)
def get_miss(
    request: Request,
    core: TheCore,
    caller: TheCaller,
    project: TheProject,
    turn_id: TURN_ID,
    tape: TapePath = "",
) -> Response:
    """Why the request of a turn is or is not on a tape: what differs, the cause, the rule.

    Without a tape: the one that it was asked on, else the one with the nearest recording.
    """
    turn = project.turn(turn_id)
    if turn is None:
        raise unknown("turn", turn_id)
    sent = _request(turn)
    found = _found(_folder(core, caller))
    said = _why(turn.meta)["tape"] or ""
    chosen = {tape: _tape(_folder(core, caller), tape)} if tape else _likely(found, said)
    explained = [(path, where, _explained(where, sent)) for path, where in chosen.items()]
    best = min(explained, key=lambda each: _distance(each[2]), default=None)
    item: MissItem = {
        "turn_id": turn_id,
        "session_id": _session(project, turn_id),
        "asked": request_json(sent),
        "what": what_of(sent),
        "tapes": list(found),
        "refused": _why(turn.meta)["refused"],
        "explanation": None if best is None else _explanation(*best),
    }
    return reply(request, item)


def _request(turn: RawTurn) -> Sent | dict[str, Json]:
    sent = None if turn.exchange is None else turn.exchange.request
    if isinstance(sent, Sent | dict):
        return sent
    raise BadQuery(f"turn {turn.id} has no request of its own", 0, "choose a call over the proxy")


def _likely(found: dict[str, str], said: str) -> dict[str, str]:
    """The tape that was named, else all of them."""
    named = os.path.abspath(said) if said else ""
    mine = {path: where for path, where in found.items() if os.path.abspath(where) == named}
    return mine or found


def _explained(where: str, sent: Sent | dict[str, Json]) -> Explanation | TapesError:
    try:
        rule = "directory/1" if kind_of_existing(where) == "directory" else "tape/1"
        tape = open_tape(where)
        try:
            return explain(tape, sent, declared_for(where), canonicalizer=rule)
        finally:
            tape.close()
    except TapesError as error:
        return error


def _distance(found: Explanation | TapesError) -> float:
    if isinstance(found, TapesError):
        return 1e9
    if found.found is not None:
        return -1
    return 1e8 if found.near is None else len(found.near.differences)


def _explanation(path: str, where: str, found: Explanation | TapesError) -> ExplanationItem:
    if isinstance(found, TapesError):
        return {"tape": path, "verdict": "unknown", "problem": found.message}
    near = found.near
    why = found.diagnosis
    said: ExplanationItem = {
        "tape": path,
        "verdict": "hit" if found.found is not None else "miss",
        "key": found.key,
        "canonicalizer": found.canonicalizer,
        "canonical_text": found.text,
        "left_out": list(found.left_out),
        "redacted": list(found.redacted),
        "rules": [rule.declaration() for rule in found.rules],
        "message": None if found.error is None else found.error.message,
        "remedy": None if found.error is None else found.error.remedy,
        "causes": [] if why is None else [cause.evidence for cause in why.causes],
        "rule": None if why is None else why.rules,
        "record": f"DEMO_LIVE=1 CASSETTE_MODE=record tapes run --tape {quote(where)} -- {COMMAND}",
    }
    if near is not None:
        said["nearest"] = _near(near)
    return said


def _near(near: Near) -> NearItem:
    exchange = near.exchange
    return {
        "key": exchange.key,
        "recorded_at": exchange.recorded_at,
        "what": what_of(exchange.request),
        "request": request_json(exchange.request),
        "differences": [
            {"place": each.place, "asked": each.asked, "recorded": each.recorded}
            for each in near.differences
        ],
    }


def _session(project: TheProject, turn_id: int) -> str | None:
    page = project.turns(Ask(is_("id", str(turn_id)), limit=1))
    return page.items[0].session_id if page.items else None
