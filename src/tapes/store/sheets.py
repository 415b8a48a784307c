"""Traces with their spans as they are told: columns, and JSON as the text that is kept.

A trace may have many thousand spans. To make values of what is only passed on takes longer than
everything else: what is read here goes out as it lies in the database.

Knows nothing of what a text is told as.
"""

from collections.abc import Sequence
from functools import cache
from hashlib import blake2b
from typing import Any

from sqlalchemy import Connection, Dialect, Select, Text, and_, bindparam, cast, or_, select
from sqlalchemy import type_coerce as taken_as

from tapes.store.base import Sheet, SpanRow
from tapes.store.columns import POSTGRES, JsonText
from tapes.store.modelforms import link_of, trace_of
from tapes.store.packing import spread
from tapes.store.reading import Raw, Reading
from tapes.store.tables import links, spans, traces

LINK_ORDER = (
    links.c.from_trace_id,
    links.c.from_span_id,
    links.c.from_io,
    links.c.to_trace_id,
    links.c.to_span_id,
    links.c.to_io,
)
_PAYLOAD = ("input", "output")


def sheet_of_trace(connection: Connection, org: str, trace_id: str, *, payload: bool) -> Sheet:
    """A trace with its spans, and the links that touch it."""
    touching = or_(links.c.from_trace_id == trace_id, links.c.to_trace_id == trace_id)
    return _sheet(connection, org, "trace_id", trace_id, touching, payload=payload)


def sheet_of_session(connection: Connection, org: str, session_id: str, *, payload: bool) -> Sheet:
    """The traces of a session with their spans, and all its links."""
    own = links.c.session_id == session_id
    return _sheet(connection, org, "session_id", session_id, own, payload=payload)


def _sheet(
    connection: Connection, org: str, name: str, value: str, linked: Any, *, payload: bool
) -> Sheet:
    reading = _reading(name, payload, connection.dialect)
    mine = and_(traces.c.org_id == org, traces.c[name] == value)
    by_time = (traces.c.started_at, traces.c.trace_id)
    ask_traces = select(traces).where(mine).order_by(*by_time)
    ask_links = select(links).where(links.c.org_id == org, linked).order_by(*LINK_ORDER)
    found = connection.execute(ask_traces).mappings().all()
    rows = reading.rows(connection, {"org": org, "which": value})
    its_links = connection.execute(ask_links).mappings().all()
    of_traces: dict[str, list[Raw]] = {}
    mark = blake2b(digest_size=16)
    for row in (*found, *its_links):
        mark.update(repr(tuple(row.values())).encode("utf-8", "replace"))
    for raw in rows:  # the last is the hash of all that it says
        mark.update(raw[-1].encode())
        of_traces.setdefault(raw[0], []).append(raw)
    return Sheet(
        tuple(map(trace_of, found)),
        tuple(map(link_of, its_links)),
        len(rows),
        mark.hexdigest(),
        lambda trace_id, told: _told(of_traces.get(trace_id, ()), reading, told),
    )


@cache
def _reading(name: str, payload: bool, dialect: Dialect) -> Reading:
    wanted = [n for n in SpanRow._fields if payload or n not in _PAYLOAD]
    chosen = [_kept(spans.c[n], dialect) for n in (*wanted, "content_hash")]
    order = (spans.c.trace_id, spans.c.seq, spans.c.span_id)
    mine = and_(spans.c.org_id == bindparam("org"), spans.c[name] == bindparam("which"))
    ask: Select[Any] = select(*chosen).where(mine).order_by(*order)
    return Reading(ask, dialect)


def _kept(column: Any, dialect: Dialect) -> Any:
    """A column; of JSON the text, which the driver of PostgreSQL would read."""
    if not isinstance(column.type, JsonText):
        return column
    text = cast(column, Text) if dialect.name == POSTGRES else taken_as(column, Text)
    return text.label(column.name)


def _told(rows: Sequence[Raw], reading: Reading, told: Any) -> Any:
    """Spans with their JSON told, one by one: what is told of many is much."""
    names = reading.names[:-1]
    texts = [at for at, name in enumerate(names) if isinstance(spans.c[name].type, JsonText)]
    without = (None,) * (len(SpanRow._fields) - len(names))
    for raw in rows:
        values = reading.read(raw)[:-1]
        for at in texts:
            text = values[at]
            if text is not None:
                values[at] = told[names[at]](spread(text) if isinstance(text, bytes) else text)
        yield SpanRow._make((*values, *without))
