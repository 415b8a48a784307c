"""Rows of the read model ⇄ values of their columns.

Rule 1: a row that is read is equal to the one that was written, as far as columns can hold it:
        money to a millionth of a millionth, whole numbers of 64 bits. `as_kept` gives those rows.
Rule 2: ids and names are as long as an index can hold: whoever called it, a longer one is told by
        its beginning and its hash. `held` gives rows with those.

Knows nothing of databases.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, replace
from decimal import Decimal
from enum import Enum
from functools import cache
from hashlib import blake2b
from operator import attrgetter, itemgetter
from typing import Any, TypeVar

from tapes.envelope import shortened
from tapes.jsontext import Json
from tapes.rows import (
    Fidelity,
    Link,
    LinkKind,
    ModelUsage,
    Projection,
    Session,
    Span,
    SpanKind,
    Status,
    Task,
    Trace,
    content_hash,
)
from tapes.store.columns import money, read, whole, written

AnyRow = TypeVar("AnyRow", Session, Trace, Span, Link)

_NAMES: Mapping[type, tuple[str, ...]] = {
    kind: tuple(f.name for f in fields(kind)) for kind in (Session, Trace, Span, Link)
}
_ALL_OF = {kind: attrgetter(*names) for kind, names in _NAMES.items()}
_SPAN_HEADS = tuple(name for name in _NAMES[Span] if name not in ("input", "output"))
_FIDELITY, _USAGE, _TASKS, _KINDS = map(
    _NAMES[Session].index, ("fidelity", "model_usage", "tasks", "kind_counts")
)
_FLAGS = tuple(map(_NAMES[Session].index, ("placeholder", "has_git_activity")))
# What indexes hold, and joins go by. An entry of PostgreSQL's has at most 2,704 bytes.
_INDEXED: Mapping[type, tuple[str, ...]] = {
    Trace: ("trace_id", "session_id"),
    Span: (
        "trace_id", "span_id", "parent_span_id", "name", "error_type", "call_kind", "thread_id",
        "agent", "provider", "model", "request_model", "response_id", "stop_reason", "outcome",
        "anchor", "request_id",
    ),
    Link: ("from_trace_id", "from_span_id", "from_io", "to_trace_id", "to_span_id", "to_io"),
}  # fmt: skip
_INDEXED_OF = {kind: attrgetter(*names) for kind, names in _INDEXED.items()}
_LONGEST, _CERTAINLY_SHORT = 200, 50  # bytes, characters
_BITS = 20
_LAST_MS = (1 << 42) - 1


def held(rows: Projection) -> Projection:
    """The rows with ids and names that an index can hold (rule 2)."""
    return replace(
        rows,
        traces=tuple(map(_held, rows.traces)),
        spans=tuple(map(_held, rows.spans)),
        links=tuple(map(_held, rows.links)),
    )


def _held(row: AnyRow) -> AnyRow:
    kind = type(row)
    texts: tuple[str, ...] = _INDEXED_OF[kind](row)
    if max(map(len, texts)) <= _CERTAINLY_SHORT:
        return row
    short: dict[str, Any] = {
        name: shortened(text, _LONGEST) for name, text in zip(_INDEXED[kind], texts, strict=True)
    }
    return replace(row, **short)


# --- out --------------------------------------------------------------------------------------


def session_values(session: Session, hashed: str | None = None) -> dict[str, Any]:
    """The columns of a session."""
    values = _values(session)
    values["model_usage"] = [_usage_form(usage) for usage in session.model_usage]
    values["tasks"] = [asdict(task) for task in session.tasks]
    values["kind_counts"] = dict(session.kind_counts)
    values["duration_ns"] = whole(session.duration_ns)
    values["total_tokens"] = whole(session.total_tokens)
    values["content_hash"] = hashed or content_hash(session)
    return values


def trace_values(trace: Trace, hashed: str | None = None) -> dict[str, Any]:
    """The columns of a trace."""
    values = _values(trace)
    values["total_tokens"] = _sum(trace.total_input_tokens, trace.total_output_tokens)
    values["content_hash"] = hashed or content_hash(trace)
    return values


def span_values(span: Span, hashed: str | None = None) -> dict[str, Any]:
    """The columns of a span, but for its place."""
    values = _values(span)
    usage = span.usage if isinstance(span.usage, dict) else {}
    values["total_tokens"] = _sum(usage.get("prompt_tokens"), usage.get("completion_tokens"))
    values["content_hash"] = hashed or content_hash(span)
    values["input"] = list(span.input) or None
    values["output"] = list(span.output) or None
    return values


def link_values(link: Link) -> dict[str, Any]:
    """The columns of a link."""
    return _values(link)


def _values(row: Session | Trace | Span | Link) -> dict[str, Any]:
    kind = type(row)
    return {
        name: value if value is None or type(value) is str else _plain(value)
        for name, value in zip(_NAMES[kind], _ALL_OF[kind](row), strict=True)
    }


def _plain(value: Any) -> Any:
    if type(value) is int:
        return whole(value)
    return value.value if isinstance(value, Enum) else value


def _sum(one: Json, other: Json) -> int | None:
    known = [n for n in (one, other) if isinstance(n, int)]
    return whole(sum(known)) if known else None


def _usage_form(usage: ModelUsage) -> dict[str, Json]:
    form = asdict(usage)
    form["cost_usd"] = None if usage.cost_usd is None else str(usage.cost_usd)
    return form


def place_of(started_at: int, *ids: str) -> int:
    """A number that says where a row stands in time, and hardly ever is another row's as well."""
    ms = max(0, min(started_at // 1_000_000, _LAST_MS))
    digest = blake2b("\0".join(ids).encode("utf-8", "replace"), digest_size=4).digest()
    return ms << _BITS | int.from_bytes(digest) >> (32 - _BITS)


# --- in ---------------------------------------------------------------------------------------


@cache
def session_reader(names: tuple[str, ...]) -> Callable[[Sequence[Any]], Session]:
    """What makes a session of a row whose values have these names."""
    picked = itemgetter(*(names.index(name) for name in _NAMES[Session]))
    return lambda row: _session(list(picked(row)))


def _session(values: list[Any]) -> Session:
    for at in _FLAGS:
        values[at] = bool(values[at])
    values[_FIDELITY] = Fidelity(values[_FIDELITY])
    values[_USAGE] = tuple([_usage_of(form) for form in values[_USAGE] or ()])
    values[_TASKS] = tuple([Task(**form) for form in values[_TASKS] or ()])
    values[_KINDS] = tuple(sorted((values[_KINDS] or {}).items()))
    return Session(**dict(zip(_NAMES[Session], values, strict=True)))


def _usage_of(form: dict[str, Json]) -> ModelUsage:
    cost = form["cost_usd"]
    return ModelUsage(**form | {"cost_usd": None if cost is None else Decimal(cost)})


def trace_of(row: Mapping[Any, Any]) -> Trace:
    """The trace of a row."""
    said = {name: row[name] for name in _NAMES[Trace]}
    said["status"], said["fidelity"] = Status(said["status"]), Fidelity(said["fidelity"])
    return Trace(**said)


def span_of(row: Mapping[Any, Any]) -> Span:
    """The span of a row; without input and output where the row was read without."""
    # Asked once for a row, not once for each of its columns: there may be many rows.
    names = _NAMES[Span] if "input" in row else _SPAN_HEADS
    said = {name: row[name] for name in names}
    said["kind"], said["status"] = SpanKind(said["kind"]), Status(said["status"])
    said["fidelity"] = Fidelity(said["fidelity"])
    for name in ("input", "output"):
        said[name] = tuple(said.get(name) or ())
    return Span(**said)


def link_of(row: Mapping[Any, Any]) -> Link:
    """The link of a row."""
    said = {name: row[name] for name in _NAMES[Link]}
    said["kind"] = LinkKind(said["kind"])
    return Link(**said)


# --- as columns hold it -----------------------------------------------------------------------


def row_as_kept(row: AnyRow) -> AnyRow:
    """The row as it comes back from a database."""
    held: dict[str, Any] = {}
    for name in _NAMES[type(row)]:
        value = getattr(row, name)
        if isinstance(value, bool | Enum | str):
            continue
        if isinstance(value, int):
            held[name] = whole(value)
        elif isinstance(value, Decimal):
            held[name] = money(value)
        elif isinstance(value, dict | list):
            held[name] = read(written(value))
        elif name in ("input", "output"):
            held[name] = tuple(read(written(list(value))))
    return replace(row, **held)


def as_kept(rows: Projection) -> Projection:
    """The rows as they come back from a database, without what is skipped."""
    rows = held(rows)
    return Projection(
        tuple(map(row_as_kept, rows.sessions)),
        tuple(map(row_as_kept, rows.traces)),
        tuple(map(row_as_kept, rows.spans)),
        tuple(map(row_as_kept, rows.links)),
    )
