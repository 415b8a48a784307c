"""Raw turns ⇄ what lies in a row: a few columns to find them by, and two packed parts.

`request` is the body of the request, `rest` everything else: envelope, headers, the answer's bytes
with the time of each piece, the reduced form.

Rule 1: a turn that is read is equal to the one that was kept: bytes, times, headers, their order.
Rule 2: a form says its version; forms are added and never changed.

Knows nothing of databases or of earlier turns.
"""

import hashlib
import json
from array import array
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from operator import attrgetter
from typing import Any

from tapes.envelope import Envelope
from tapes.exchange import Exchange, Piece, Request, Response, State
from tapes.jsontext import Json, fast_canonical
from tapes.rows import NO_ORG, Outcome, RawTurn, Source, session_id_of
from tapes.store.columns import whole
from tapes.store.packing import NotPacked, spread, squeezed

VERSION = 1
# Requests that begin alike in so many bytes may be of one conversation.
_OPENING = 512


@dataclass(frozen=True, slots=True)
class Prepared:
    """A turn that is ready to be kept, but for its request's body, which is packed when its place
    in the log is known."""

    turn: RawTurn
    org_id: str
    session_id: str | None
    lineage: int
    body: bytes
    rest: bytes
    columns: Mapping[str, Any]


def prepare(turn: RawTurn) -> Prepared:
    """The parts of a turn."""
    org_id = turn.envelope.org_id or NO_ORG
    named = bool(turn.envelope.harness_session_id)
    session_id = session_id_of(turn.envelope) if named else None
    body = _request_body(turn)
    answer = _answer(turn)
    return Prepared(
        turn=turn,
        org_id=org_id,
        session_id=session_id,
        lineage=_lineage(turn, session_id, body),
        body=body,
        rest=squeezed(_rest(turn, answer)),
        columns=_columns(turn, len(body), len(answer)),
    )


def _columns(turn: RawTurn, request_bytes: int, response_bytes: int) -> dict[str, Any]:
    exchange = turn.exchange
    request = exchange.request if exchange is not None else None
    response = exchange.response if exchange is not None else None
    return {
        "request_id": turn.request_id,
        "source": turn.source.value,
        "provider": turn.provider,
        "agent_name": turn.agent_name,
        "thread_id": turn.thread_id,
        "harness_id": turn.envelope.harness_id,
        "harness_session_id": turn.envelope.harness_session_id,
        "session_by": turn.session_by,
        "outcome": turn.outcome.value,
        "state": (exchange.state if exchange is not None else State.COMPLETE).value,
        "status": response.status if isinstance(response, Response) else None,
        "method": request.method if isinstance(request, Request) else "",
        "url": request.url if isinstance(request, Request) else "",
        "started_at": whole(turn.started_at),
        "ended_at": whole(turn.ended_at),
        "received_at": whole(turn.received_at),
        "dropped": turn.dropped,
        "request_bytes": request_bytes,
        "response_bytes": response_bytes,
        "meta": turn.meta,
    }


def _lineage(turn: RawTurn, session_id: str | None, body: bytes) -> int:
    """A number that turns have in common which are likely to repeat each other."""
    digest = hashlib.blake2b(digest_size=8)
    if session_id is None:
        digest.update(b"opening\0" + (turn.envelope.org_id or NO_ORG).encode())
        digest.update(body[:_OPENING])
    else:
        meta = turn.meta if isinstance(turn.meta, dict) else {}
        agent = str(meta.get("agent_id", "")) if turn.source is Source.TRANSCRIPT else ""
        said = (session_id, turn.source.value, turn.thread_id, agent)
        digest.update("\0".join(said).encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest(), "big", signed=True)


# --- bodies -----------------------------------------------------------------------------------


def _request_body(turn: RawTurn) -> bytes:
    if turn.exchange is None:
        return b"" if turn.records is None else _exact(turn.records)
    request = turn.exchange.request
    if isinstance(request, Request):
        return request.body
    return b"" if request is None else _exact(request)


def _answer(turn: RawTurn) -> bytes:
    response = turn.exchange.response if turn.exchange is not None else None
    if isinstance(response, Response):
        return response.body
    return b"" if response is None else _exact(response)


def _exact(value: Json) -> bytes:
    """JSON that is read as the very value, whatever is in it."""
    return _ENCODER.encode(value).encode("utf-8", "surrogatepass")


# Made once: `json.dumps` makes one for each value.
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def _value(data: bytes) -> Json:
    return json.loads(data.decode("utf-8", "surrogatepass"))


# --- the rest ---------------------------------------------------------------------------------

_DEFAULTS = {f.name: getattr(Envelope(), f.name) for f in fields(Envelope)}
_said = attrgetter(*_DEFAULTS)


def _rest(turn: RawTurn, answer: bytes) -> bytes:
    """Length and text of the head, then the parts whose lengths are in it."""
    head: dict[str, Json] = {"v": VERSION}
    said = zip(_DEFAULTS.items(), _said(turn.envelope), strict=True)
    if envelope := {name: value for (name, default), value in said if value != default}:
        head["envelope"] = envelope
    if turn.exchange is not None:
        head |= _exchange_head(turn.exchange)
    elif turn.records is not None:
        head["records"] = True
    parts = [answer]
    if "pieces" in head:
        times, lengths = _piece_table(turn)
        head["pieces"] = [len(lengths) // 4, len(times) // (len(lengths) // 4 or 1)]
        parts += [times, lengths]
    if turn.reduced is not None:
        parts.append(_exact(turn.reduced))
        head["reduced"] = len(parts[-1])
    head["answer"] = len(answer)
    text = fast_canonical(head) or _exact(head)  # names, numbers and texts: either way the same
    return b"".join((len(text).to_bytes(4, "big"), text, *parts))


def _exchange_head(exchange: Exchange) -> dict[str, Json]:
    about: dict[str, Json] = {"key": exchange.key, "canonicalizer": exchange.canonicalizer}
    more = {
        "sample": exchange.sample,
        "recorded_at": exchange.recorded_at,
        "rules": list(exchange.rules),
    }
    about |= {name: value for name, value in more.items() if value}
    about["version"] = exchange.version
    head: dict[str, Json] = {"exchange": about}
    request, response = exchange.request, exchange.response
    if isinstance(request, Request):
        head["request"] = [list(pair) for pair in request.headers]
    elif request is not None:
        head["request"] = "json"
    if isinstance(response, Response):
        head["response"] = [list(pair) for pair in response.headers]
        if response.reason:
            head["reason"] = response.reason
        head["pieces"] = None
    elif response is not None:
        head["response"] = "json"
    return head


# The times that captures note are whole numbers of these.
_TICKS = 10_000


def _piece_table(turn: RawTurn) -> tuple[bytes, bytes]:
    assert turn.exchange is not None
    pieces = turn.exchange.response.pieces
    lengths = array("I", [len(piece.data) for piece in pieces]).tobytes()
    steps, before = array("I"), 0
    for piece in pieces:
        tick = round(piece.at * _TICKS) if 0 <= piece.at < 400_000 else -1
        if tick < before or tick / _TICKS != piece.at:
            return array("d", [each.at for each in pieces]).tobytes(), lengths
        steps.append(tick - before)
        before = tick
    return steps.tobytes(), lengths


def restored(row: Mapping[Any, Any], body: bytes) -> RawTurn:
    """The turn of a row and its request's body. Raises NotPacked for what is none."""
    try:
        data = spread(row["rest"])
        size = int.from_bytes(data[:4], "big")
        head = _value(data[4 : 4 + size])
        if head["v"] > VERSION:
            raise NotPacked(f"it has a form of version {head['v']}; upgrade to read it")
        return _restored(row, head, memoryview(data)[4 + size :], body)
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise NotPacked(str(error)) from error


def _restored(
    row: Mapping[Any, Any], head: dict[str, Json], parts: memoryview, body: bytes
) -> RawTurn:
    answer, parts = bytes(parts[: head["answer"]]), parts[head["answer"] :]
    envelope = Envelope(**(_DEFAULTS | head.get("envelope", {})))
    exchange = None
    if "exchange" in head:
        exchange, parts = _restored_exchange(row, head, parts, body, answer)
    reduced = _value(bytes(parts[: head["reduced"]])) if "reduced" in head else None
    turn = RawTurn(
        id=row["id"],
        request_id=row["request_id"],
        source=Source(row["source"]),
        envelope=envelope,
        session_by=row["session_by"],
        provider=row["provider"],
        agent_name=row["agent_name"],
        thread_id=row["thread_id"],
        exchange=exchange,
        reduced=reduced,
        dropped=bool(row["dropped"]),
        records=_value(body) if head.get("records") else None,
        meta=row["meta"],
        outcome=Outcome(row["outcome"]),
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        received_at=row["received_at"],
    )
    return _belonging(turn, row["placed"])


def _belonging(turn: RawTurn, placed: str | None) -> RawTurn:
    """The turn with the session that its words told, where it names none."""
    if not placed or turn.envelope.harness_session_id:
        return turn
    envelope = replace(turn.envelope, harness_session_id=placed)
    return replace(turn, envelope=envelope, session_by=turn.session_by or "content")


def _restored_exchange(
    row: Mapping[Any, Any], head: dict[str, Json], parts: memoryview, body: bytes, answer: bytes
) -> tuple[Exchange, memoryview]:
    about = head["exchange"]
    request: Json = None
    if "request" in head:
        request = (
            _value(body)
            if head["request"] == "json"
            else Request(row["method"], row["url"], _headers(head["request"]), body)
        )
    response: Json = None
    if "response" in head:
        if head["response"] == "json":
            response = _value(answer)
        else:
            pieces, parts = _restored_pieces(head["pieces"], parts, answer)
            headers = _headers(head["response"])
            response = Response(row["status"], headers, pieces, head.get("reason", ""))
    exchange = Exchange(
        key=about["key"],
        canonicalizer=about["canonicalizer"],
        request=request,
        response=response,
        sample=about.get("sample", 0),
        state=State(row["state"]),
        recorded_at=about.get("recorded_at"),
        rules=tuple(about.get("rules", ())),
        version=about["version"],
    )
    return exchange, parts


def _headers(pairs: list[list[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in pairs)


def _restored_pieces(
    table: list[int], parts: memoryview, answer: bytes
) -> tuple[tuple[Piece, ...], memoryview]:
    count, width = table
    times = array("d" if width == 8 else "I", bytes(parts[: count * width]))
    lengths = array("I", bytes(parts[count * width : count * (width + 4)]))
    pieces, tick, at = list[Piece](), 0, 0
    for time, length in zip(times, lengths, strict=True):
        tick += time if width != 8 else 0
        moment = time if width == 8 else tick / _TICKS
        pieces.append(Piece(moment, answer[at : at + length]))
        at += length
    if at != len(answer):
        raise NotPacked("the pieces are not the whole answer")
    return tuple(pieces), parts[count * (width + 4) :]
