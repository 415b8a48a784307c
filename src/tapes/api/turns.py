"""Raw turns: lists of them, and each with the bytes that were sent, as they came and as they read.

Rule 1: a body's own address gives its bytes as they came; `decoded=true` takes its coding off.
Rule 2: what was captured is data, never a page: no body is served as a type that a browser runs.
"""

import base64
from functools import partial
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Request, Response

from tapes.api.asking import Counted, TheAsk, TheProject, counted
from tapes.api.items import turn_item
from tapes.api.models import (
    BodyItem,
    ChunkItem,
    RequestItem,
    ResponseItem,
    TurnItem,
    TurnPage,
    WholeTurn,
)
from tapes.api.replies import reply
from tapes.api.sessions import page_facts, unknown
from tapes.envelope import to_json
from tapes.errors import OversizeBody, TapesError
from tapes.exchange import Headers, header
from tapes.exchange import Request as Sent
from tapes.exchange import Response as Came
from tapes.jsontext import read
from tapes.rows import RawTurn
from tapes.store.base import Ask, Noun, Project
from tapes.store.filters import is_
from tapes.wire import decoded

router = APIRouter(tags=["turns"])

TurnId = Annotated[int, Path(ge=0, le=2**63 - 1)]
# Of a body in a document so many characters are shown; its own address gives all.
SHOWN = 1024 * 1024


@router.get("/v1/turns", response_model=TurnPage)
def list_turns(request: Request, project: TheProject, ask: TheAsk, count: Counted = "") -> Response:
    """Raw turns without their content, by default the latest first."""
    page = project.turns(ask)
    body = {"items": [turn_item(head) for head in page.items], **page_facts(request, page)}
    return reply(
        request, body | counted(count, ask, page, partial(project.count, Noun.TURNS, ask.where))
    )


@router.get("/v1/turns/{turn_id}", response_model=WholeTurn)
def get_turn(request: Request, project: TheProject, turn_id: TurnId) -> Response:
    """A raw turn with its payloads: headers, decoded bodies, and every chunk with its time."""
    turn = _required(project, turn_id)
    whole: WholeTurn = {
        "turn": _head(project, turn_id),
        "envelope": to_json(turn.envelope),
        "session_by": turn.session_by,
        "request": None,
        "response": None,
    }
    exchange = turn.exchange
    if exchange is not None:
        if exchange.key:
            whole["key"] = exchange.key
            whole["canonicalizer"] = exchange.canonicalizer
        if isinstance(exchange.request, Sent):
            whole["request"] = sent_item(exchange.request)
        elif exchange.request is not None:
            whole["plain_request"] = exchange.request
        if isinstance(exchange.response, Came):
            whole["response"] = came_item(exchange.response)
        elif exchange.response is not None:
            whole["plain_response"] = exchange.response
    if turn.reduced is not None:
        whole["reduced"] = turn.reduced
    if turn.records is not None:
        whole["records"] = turn.records
    return reply(request, whole)


@router.get(
    "/v1/turns/{turn_id}/{side}/body",
    response_class=Response,
    responses={
        200: {
            "description": "The bytes",
            "content": {"application/octet-stream": {"schema": {"type": "string"}}},
        }
    },
)
def get_body(
    project: TheProject,
    turn_id: TurnId,
    side: Literal["request", "response"],
    *,
    decoded_: Annotated[bool, Query(alias="decoded")] = False,
) -> Response:
    """The bytes of a body as they came, or with their content coding taken off."""
    turn = _required(project, turn_id)
    found = _body_of(turn, side)
    if found is None:
        raise unknown("body", f"of the {side} of turn {turn_id}")
    headers, body = found
    coding = header(headers, "content-encoding") or ""
    if decoded_:
        body, coding = decoded(body, coding).data, ""
    said = {
        # Whoever asks reads what it was from here; nobody runs it (rule 2).
        "x-tapes-content-type": _plain(header(headers, "content-type") or ""),
        "x-tapes-content-encoding": _plain(coding),
        "content-disposition": f'attachment; filename="turn-{turn_id}-{side}.bin"',
        "content-security-policy": "sandbox; default-src 'none'",
    }
    return Response(body, media_type="application/octet-stream", headers=said)


def _plain(text: str) -> str:
    return "".join(c for c in text if " " <= c <= "~")[:200]


def _body_of(turn: RawTurn, side: str) -> tuple[Headers, bytes] | None:
    exchange = turn.exchange
    if exchange is None:
        return None
    if side == "request":
        sent = exchange.request
        return (sent.headers, sent.body) if isinstance(sent, Sent) else None
    came = exchange.response
    return (came.headers, came.body) if isinstance(came, Came) else None


def _required(project: Project, turn_id: int) -> RawTurn:
    turn = project.turn(turn_id)
    if turn is None:
        raise unknown("turn", turn_id)
    return turn


def _head(project: Project, turn_id: int) -> TurnItem:
    page = project.turns(Ask(is_("id", str(turn_id)), limit=1))
    if not page.items:
        raise unknown("turn", turn_id)
    return turn_item(page.items[0])


# --- what bytes say ---------------------------------------------------------------------------


def sent_item(sent: Sent) -> RequestItem:
    """A request with what its body says."""
    return {
        "method": sent.method,
        "url": sent.url,
        "headers": [list(pair) for pair in sent.headers],
        "body": body_item(sent.headers, sent.body),
    }


def came_item(came: Came) -> ResponseItem:
    """A response with what its body says, and its chunks."""
    item: ResponseItem = {
        "status": came.status,
        "headers": [list(pair) for pair in came.headers],
        "body": body_item(came.headers, came.body),
        "chunks": _chunks(came),
    }
    if came.reason:
        item["reason"] = came.reason
    return item


def body_item(headers: Headers, body: bytes) -> BodyItem:
    """What a body says, once its coding is taken off; else why that cannot be done."""
    kind, coding = header(headers, "content-type"), header(headers, "content-encoding")
    item: BodyItem = {"bytes": len(body)}
    if kind:
        item["content_type"] = kind
    if coding:
        item["content_encoding"] = coding
    try:
        plain = decoded(body, coding)
    except (TapesError, OversizeBody) as error:
        item["undecoded"] = str(error.message)
        return item
    if not plain.whole:
        item["undecoded"] = "it broke off: this is what could be read"
    _say(item, plain.data)
    return item


def _say(item: BodyItem, data: bytes) -> None:
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        shown = data[: SHOWN // 2]
        item["base64"] = base64.b64encode(shown).decode()
        if len(shown) < len(data):
            item["cut_at"] = len(shown)
        return
    if len(text) > SHOWN:
        item["text"], item["cut_at"] = text[:SHOWN], SHOWN
        return
    if text.startswith(("{", "[")):
        try:
            item["json"] = read(data)
            return
        except ValueError:
            pass
    item["text"] = text


def _chunks(came: Came) -> list[ChunkItem]:
    left = SHOWN
    items: list[ChunkItem] = []
    for piece in came.pieces:
        item: ChunkItem = {"at": piece.at, "bytes": len(piece.data)}
        if len(piece.data) <= left:
            left -= len(piece.data)
            try:
                item["text"] = piece.data.decode("utf-8")
            except UnicodeDecodeError:
                item["base64"] = base64.b64encode(piece.data).decode()
        items.append(item)
    return items
