"""A raw turn as one line of JSON, there and back: how turns leave a log and come into another.

Rule 1: what is read is the turn that was written, but for its number: a log gives its own.
Rule 2: a line says its kind and its version. One of a later version is refused.
Rule 3: a file is made by anybody: what is read is cleaned before it comes to rest.

Knows nothing of files or databases.  Pure.
"""

import json
from dataclasses import replace

from tapes.envelope import from_json, to_json
from tapes.errors import BadEnvelope, DamagedTape, ForeignFile
from tapes.exchange import Exchange, Request, Response, exchange_of, request_of, row_of
from tapes.jsontext import Json, compact, has_unwritable_float
from tapes.loosejson import storable
from tapes.redact import Redactor
from tapes.rows import Outcome, RawTurn, Source

VERSION = 1
KIND = "turn"

# What is a text, and left out where it is empty.
_TEXTS = ("request_id", "session_by", "provider", "agent_name", "thread_id")
_TIMES = ("started_at", "ended_at", "received_at")


def form_of(turn: RawTurn) -> dict[str, Json]:
    """The JSON form of a turn."""
    form: dict[str, Json] = {"kind": KIND, "v": VERSION}
    for name in _TEXTS:
        if getattr(turn, name):
            form[name] = getattr(turn, name)
    form["source"] = turn.source.value
    form["outcome"] = turn.outcome.value
    form["session"] = to_json(turn.envelope)
    form |= {name: getattr(turn, name) for name in _TIMES if getattr(turn, name) is not None}
    if turn.dropped:
        form["dropped"] = True
    for name in ("reduced", "records", "meta"):
        if getattr(turn, name) is not None:
            form[name] = getattr(turn, name)
    if turn.exchange is not None:
        form["exchange"] = row_of(turn.exchange)
    return form


def line_of(turn: RawTurn) -> str:
    """The line of a turn, without its end."""
    return compact(form_of(turn))


def turn_of(line: str | bytes, path: str, place: object) -> RawTurn:
    """The turn of a line. Raises ForeignFile, naming path and place."""
    try:
        form = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _wrong(path, place, f"it is no JSON ({error})") from error
    if not isinstance(form, dict) or form.get("kind") != KIND:
        raise _wrong(path, place, "it is no turn of a log")
    if has_unwritable_float(form):
        raise _wrong(path, place, "it has a number that JSON cannot say")
    version = form.get("v")
    if version != VERSION:
        raise _wrong(path, place, f"version {version!r}; this program knows {VERSION}")
    try:
        texts = {name: storable(_text(form[name])) for name in _TEXTS if name in form}
        times = {name: _moment(form[name]) for name in _TIMES if form.get(name) is not None}
        said: dict[str, Json] = {**texts, **times}
        return RawTurn(
            **said,
            source=Source(form["source"]),
            outcome=Outcome(form["outcome"]),
            envelope=from_json(form["session"]),
            dropped=form.get("dropped") is True,
            reduced=storable(form.get("reduced")),
            records=storable(form.get("records")),
            meta=storable(form.get("meta")),
            exchange=_exchange(form.get("exchange"), path, place),
        )
    except RecursionError as error:
        raise _wrong(path, place, "it is nested too deeply") from error
    except (KeyError, TypeError, ValueError, BadEnvelope, DamagedTape) as error:
        raise _wrong(path, place, f"the turn cannot be read ({error!r:.200})") from error


def cleaned(turn: RawTurn, redactor: Redactor) -> RawTurn:
    """The turn as it may come to rest (rule 3); one that was clean stays as it is."""
    envelope, exchange = turn.envelope, turn.exchange
    if exchange is not None:
        asked, answered = exchange.request, exchange.response
        exchange = replace(
            exchange,
            request=redactor.request(asked)
            if isinstance(asked, Request)
            else redactor.value(asked),
            response=redactor.response(answered)
            if isinstance(answered, Response)
            else redactor.value(answered),
        )
    return replace(
        turn,
        envelope=replace(
            envelope,
            cwd=redactor.text(envelope.cwd),
            name=redactor.text(envelope.name),
            harness_metadata=redactor.value(envelope.harness_metadata),
        ),
        agent_name=redactor.text(turn.agent_name),
        exchange=exchange,
        reduced=redactor.value(turn.reduced),
        records=redactor.value(turn.records),
        meta=redactor.value(turn.meta),
    )


def _text(value: Json) -> str:
    if value is None:  # as others write what is not there
        return ""
    if not isinstance(value, str):
        raise ValueError("a name is a text")
    return value


def _moment(value: Json) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**63:
        raise ValueError("a time is a whole number of nanoseconds")
    return value


def _exchange(row: Json, path: str, place: object) -> Exchange | None:
    if row is None:
        return None
    if not isinstance(row, dict):
        raise ValueError("an exchange is an object")
    if row.get("response") is not None:
        return exchange_of(row, path, place)
    # Where only the reduced form of an answer came, there is no response to read.
    exchange = exchange_of({**row, "response": {"status": 0}}, path, place)
    if isinstance(row.get("request"), dict) and row["canonicalizer"].startswith("http/"):
        request: Request | Json = request_of(row["request"])
        return replace(exchange, request=request, response=None)
    return replace(exchange, request=row.get("request"), response=None)


def _wrong(path: str, place: object, why: str) -> ForeignFile:
    return ForeignFile(f"{path}, {place}: {why}", "write it anew: tapes sessions export")
