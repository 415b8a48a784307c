"""Rows of the store → items of the read API.

Knows nothing of HTTP or databases.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from itertools import islice
from operator import attrgetter
from typing import Literal

import orjson
from orjson import Fragment

from tapes.api.models import (
    AuditItem,
    BarItem,
    Block,
    ChangeItem,
    CountItem,
    ErasureItem,
    FoundItem,
    HistogramItem,
    HitItem,
    LinkItem,
    PolicyItem,
    Rollup,
    SessionItem,
    SpanItem,
    StatsItem,
    TraceItem,
    TurnItem,
)
from tapes.api.replies import body_of
from tapes.jsontext import Json
from tapes.loosejson import loose
from tapes.rows import SCHEMA, Link, Session, Span, Trace, time_text
from tapes.store.base import (
    AuditEntry,
    Change,
    Count,
    Erasure,
    Found,
    Histogram,
    Hit,
    Listed,
    Notes,
    Policy,
    Sheet,
    SpanRow,
    Stats,
    Telling,
    TurnHead,
)

Payload = Literal["full", "preview", "none"]

_LIVE_NS = 5 * 60 * 1_000_000_000
_PREVIEW = 512


def _dollars(amount: Decimal | None) -> float | None:
    """Money as a JSON number: its shortest text has the digits of the amount."""
    return None if amount is None else float(amount)


# --- sessions ---------------------------------------------------------------------------------


def session_item(listed: Listed, now: int) -> SessionItem:
    """A session, as of now."""
    session, notes = listed.session, listed.notes
    item: SessionItem = {
        "id": session.id,
        "harness_id": session.harness_id,
        "harness_session_id": session.harness_session_id,
        "started_at": time_text(session.started_at),
        "last_seen_at": time_text(session.last_seen_at),
        "display_title": display_title(session, notes),
        "live": is_live(session, now),
        "rollup": _rollup(session),
        "session_by": session.session_by,
        "placeholder": session.placeholder,
        "tags": list(notes.tags),
        "pinned": notes.pinned,
        "seq": listed.seq,
    }
    if session.cwd:
        item["cwd"] = session.cwd
    if session.harness_version:
        item["harness_version"] = session.harness_version
    if session.parent_session_id:
        item["parent_session_id"] = session.parent_session_id
    if session.ended_at is not None:
        item["ended_at"] = time_text(session.ended_at)
    if isinstance(session.harness_metadata, dict) and session.harness_metadata:
        item["harness_metadata"] = session.harness_metadata
    if session.auth_subject:
        item["auth_subject"] = session.auth_subject
    if session.name or session.derived_title:
        item["name"] = session.name or session.derived_title
    if notes.display_name:
        item["display_name"] = notes.display_name
    if session.agent_name:
        item["agent_name"] = session.agent_name
    return item


def is_live(session: Session, now: int) -> bool:
    """Whether no end is known, and something came lately: not where a clock ran far ahead."""
    return session.ended_at is None and abs(now - session.last_seen_at) < _LIVE_NS


def display_title(session: Session, notes: Notes) -> str:
    """What a session is called on a screen; never empty."""
    preview = "" if _is_json(session.preview) else session.preview
    texts = (
        notes.display_name,
        session.derived_title,
        preview,
        session.name,
        session.harness_session_id[:12],
    )
    return next((text for text in texts if text), session.id)


def _is_json(text: str) -> bool:
    if not text.startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _rollup(session: Session) -> Rollup:
    rollup: Rollup = {
        "status": session.derived_status,
        "turn_count": session.turn_count,
        "kind_counts": dict(session.kind_counts),
        "tasks": [
            {
                "id": task.id,
                "subject": task.subject,
                "description": task.description,
                "status": task.status,
                "updates": task.updates,
            }
            for task in session.tasks
        ],
        "usage": {
            "input_tokens": session.total_input_tokens,
            "output_tokens": session.total_output_tokens,
            "cost_usd": _dollars(session.total_cost_usd),
            "cache_read_tokens": session.cache_read_tokens,
            "cache_creation_tokens": session.cache_creation_tokens,
            "reasoning_tokens": session.reasoning_tokens,
            "saved_cost_usd": _dollars(session.saved_cost_usd),
        },
        "duration_ns": session.duration_ns,
        "llm_calls": session.llm_calls,
        "replayed_calls": session.replayed_calls,
        "failed_calls": session.failed_calls,
        "unpriced_calls": session.unpriced_calls,
        "uncounted_calls": session.uncounted_calls,
        "tool_result_count": session.tool_result_count,
        "tool_error_count": session.tool_error_count,
        "has_git_activity": session.has_git_activity,
        "fidelity": session.fidelity.value,
    }
    if session.derived_title:
        rollup["title"] = session.derived_title
    if session.preview:
        rollup["preview"] = session.preview
    if session.derived_model:
        rollup["model"] = session.derived_model
    if session.model_usage:
        rollup["model_usage"] = [
            {
                "model": usage.model,
                "calls": usage.calls,
                "input_tokens": usage.input_tokens,
                "output_tokens": usage.output_tokens,
                "cost_usd": _dollars(usage.cost_usd),
                "unpriced_calls": usage.unpriced_calls,
            }
            for usage in session.model_usage
        ]
    return rollup


# --- traces and spans -------------------------------------------------------------------------


def trace_item(trace: Trace) -> TraceItem:
    """A trace."""
    item: TraceItem = {
        "trace_id": trace.trace_id,
        "session_id": trace.session_id,
        "user_prompt": trace.user_prompt,
        "status": trace.status.value,
        "source": trace.source,
        "started_at": time_text(trace.started_at),
        "duration_ns": trace.duration_ns,
        "span_count": trace.span_count,
        "missing_count": trace.missing_count,
        "tool_calls": trace.tool_calls,
        "unpriced_calls": trace.unpriced_calls,
        "uncounted_calls": trace.uncounted_calls,
        "usage": {
            "input_tokens": trace.total_input_tokens,
            "output_tokens": trace.total_output_tokens,
            "cache_read_tokens": trace.cache_read_tokens,
            "cache_creation_tokens": trace.cache_creation_tokens,
            "reasoning_tokens": trace.reasoning_tokens,
            "cost_usd": _dollars(trace.total_cost_usd),
            "saved_cost_usd": _dollars(trace.saved_cost_usd),
        },
        "main_usage": {
            "input_tokens": trace.main_input_tokens,
            "output_tokens": trace.main_output_tokens,
        },
        "fidelity": trace.fidelity.value,
    }
    if trace.name:
        item["name"] = trace.name
    if trace.response_preview:
        item["response_preview"] = trace.response_preview
    if trace.ended_at is not None:
        item["ended_at"] = time_text(trace.ended_at)
    if trace.synthetic:
        item["synthetic"] = trace.synthetic
    return item


_SAID_OF_SPAN = (
    "parent_span_id",
    "error_type",
    "request_model",
    "provider",
    "response_id",
    "agent",
    "anchor",
    "outcome",
    "request_id",
)
_said_of_span = attrgetter(*_SAID_OF_SPAN)


def _span_head(span: Span | SpanRow) -> SpanItem:
    item: SpanItem = {
        "trace_id": span.trace_id,
        "span_id": span.span_id,
        "session_id": span.session_id,
        "seq": span.seq,
        "kind": span.kind,
        "name": span.name,
        "status": span.status,
        "started_at": time_text(span.started_at),
        "duration_ns": span.duration_ns,
        "first_chunk_ns": span.first_chunk_ns,
        "call_kind": span.call_kind,
        "model": span.model,
        "stop_reason": span.stop_reason,
        "thread_id": span.thread_id,
        "verdict": span.verdict,
        "usage": span.usage,
        "cost_usd": _dollars(span.cost_usd),
        "fidelity": span.fidelity,
    }
    for name, value in zip(_SAID_OF_SPAN, _said_of_span(span), strict=True):
        if value:
            item[name] = value  # type: ignore[literal-required]  # each is a text of the span
    if span.raw_turn_id is not None:
        item["raw_turn_id"] = span.raw_turn_id
    return item


def span_item(span: Span, payload: Payload = "full") -> SpanItem:
    """A span with its input and output, with what fits a preview of them, or without."""
    item = _span_head(span)
    if payload == "none":
        item["payload"] = "none"
        return item
    is_full = payload == "full"
    item["input"] = list(span.input) if is_full else [_preview(block) for block in span.input]
    item["output"] = list(span.output) if is_full else [_preview(block) for block in span.output]
    if not is_full:
        item["payload"] = "preview"
    return item


_CUT = ("text", "thinking", "tool_output")
_DATA_URL = re.compile("data:([^;,]*)[;,]")


def _preview(block: Mapping[str, Json]) -> Block:
    """A block with its long texts cut. What servers answered to their own tools stays whole."""
    short = dict(block)
    short.pop("image_base64", None)
    if (held := _DATA_URL.match(str(short.get("image_url")))) is not None:
        del short["image_url"]
        short.setdefault("media_type", held[1])
    for name in _CUT:
        if name in short:
            short[name] = _short(short[name])
    if short.get("type") == "tool_result" and "content" in short:
        short["content"] = _short_inside(short["content"])
    if "tool_input" in short:
        short["tool_input"] = _short_inside(short["tool_input"])
    return short


def _short(value: Json) -> Json:
    return value[:_PREVIEW] + "…" if isinstance(value, str) and len(value) > _PREVIEW else value


def _short_inside(value: Json) -> Json:
    if isinstance(value, dict):
        return {name: _short_inside(member) for name, member in value.items()}
    if isinstance(value, list | tuple):
        return [_short_inside(member) for member in value]
    return _short(value)


def link_item(link: Link) -> LinkItem:
    """A link."""
    item: LinkItem = {
        "kind": link.kind.value,
        "from_trace_id": link.from_trace_id,
        "from_span_id": link.from_span_id,
        "to_trace_id": link.to_trace_id,
        "to_span_id": link.to_span_id,
    }
    if link.from_io:
        item["from_io"] = link.from_io
    if link.to_io:
        item["to_io"] = link.to_io
    return item


def whole_session(listed: Listed, sheet: Sheet, payload: Payload, now: int) -> Iterator[bytes]:
    """The JSON of a session with its traces in their order, each with its spans, in pieces."""
    yield b'{"schema":"%b","session":%b,"traces":[' % (
        SCHEMA.encode(),
        body_of(session_item(listed, now)),
    )
    for number, trace in enumerate(sheet.traces):
        yield b"," if number else b""
        yield from _trace_with_spans(trace, sheet, payload)
        yield b"}"
    yield b'],"links":%b}' % body_of([link_item(link) for link in sheet.links])


def whole_trace(sheet: Sheet, payload: Payload) -> Iterator[bytes]:
    """The JSON of a trace with its spans, and the links that touch it, in pieces."""
    trace, *_ = sheet.traces
    head, *rest = _trace_with_spans(trace, sheet, payload)
    yield b'{"schema":"%b",%b' % (SCHEMA.encode(), head[1:])
    yield from rest
    links = body_of([link_item(link) for link in sheet.links])
    yield b',"links":%b}' % links if sheet.links else b"}"


# So many spans are told at once.
PIECE = 500


def _trace_with_spans(trace: Trace, sheet: Sheet, payload: Payload) -> Iterator[bytes]:
    """The JSON of a trace with its spans, but for the brace at its end."""
    yield b'{"trace":%b,"spans":[' % body_of(trace_item(trace))
    spans = sheet.spans_of(trace.trace_id, _TELLING[payload])
    is_first = True
    while items := [_told_span(span, payload) for span in islice(spans, PIECE)]:
        # What is kept needs no second look: only its own members are made.
        yield (b"" if is_first else b",") + orjson.dumps(items)[1:-1]
        is_first = False
    yield b"]"


_NOTHING: Json = Fragment(b"[]")


def _told_span(span: SpanRow, payload: Payload) -> SpanItem:
    item = _span_head(span)
    if payload != "none":
        item["input"] = _NOTHING if span.input is None else span.input
        item["output"] = _NOTHING if span.output is None else span.output
    if payload != "full":
        item["payload"] = payload
    return item


def _told_preview(text: str | bytes) -> Json:
    """What is kept of blocks, cut where something in it may be long."""
    media = b"image_base64" if isinstance(text, bytes) else "image_base64"
    if len(text) <= _PREVIEW and media not in text:  # type: ignore[operator]  # both of one kind
        return Fragment(text)
    return Fragment(body_of([_preview(block) for block in loose(text)]))


_AS_KEPT: Telling = dict.fromkeys(("usage", "verdict", "input", "output"), Fragment)
_TELLING: Mapping[Payload, Telling] = {
    "full": _AS_KEPT,
    "none": _AS_KEPT,
    "preview": {**_AS_KEPT, "input": _told_preview, "output": _told_preview},
}


# --- turns ------------------------------------------------------------------------------------


def _time(moment: int | None) -> str | None:
    return None if moment is None else time_text(moment)


def turn_item(head: TurnHead) -> TurnItem:
    """What is known of a turn."""
    item: TurnItem = {
        "id": head.id,
        "source": head.source,
        "received_at": time_text(head.received_at),
        "request_bytes": head.request_bytes,
        "response_bytes": head.response_bytes,
        "outcome": head.outcome,
        "state": head.state,
        "status": head.status,
        "started_at": _time(head.started_at),
        "ended_at": _time(head.ended_at),
        "dropped": head.dropped,
    }
    for name in ("provider", "agent_name", "request_id", "thread_id", "method", "url", "skipped"):
        value = getattr(head, name)
        if value:
            item[name] = value
    if head.session_id:
        item["session_id"] = head.session_id
    if isinstance(head.meta, dict) and head.meta:
        item["meta"] = head.meta
    return item


# --- the rest ---------------------------------------------------------------------------------


def count_item(count: Count) -> CountItem:
    """A number that says whether it is exact."""
    return {"value": count.value, "exact": count.exact}


def stats_item(stats: Stats) -> StatsItem:
    """Sums."""
    return {
        "session_count": stats.sessions,
        "turn_count": stats.traces,
        "completed_count": stats.completed,
        "total_cost": _dollars(stats.cost_usd),
        "input_tokens": stats.input_tokens,
        "output_tokens": stats.output_tokens,
        "total_duration_ms": stats.duration_ns // 1_000_000,
        "tool_calls": stats.tool_calls,
        "saved_cost": _dollars(stats.saved_cost_usd),
        "unpriced_calls": stats.unpriced_calls,
        "uncounted_calls": stats.uncounted_calls,
    }


def histogram_item(found: Histogram) -> HistogramItem:
    """How a list spreads over time."""
    bars: list[BarItem] = [
        {
            "at": time_text(bar.at),
            "rows": bar.rows,
            "failed": bar.failed,
            "cost_usd": _dollars(bar.cost_usd),
            "longest_ns": bar.longest_ns,
            "p50_ns": bar.p50_ns,
            "p95_ns": bar.p95_ns,
        }
        for bar in found.bars
    ]
    return {
        "since": time_text(found.since) if bars else None,
        "until": time_text(found.until) if bars else None,
        "width_ns": found.width,
        "bars": bars,
        "exact": found.exact,
    }


def hit_item(hit: Hit, payload: Payload = "none") -> HitItem:
    """A span in which something was found, and where it stands."""
    return {
        "span": span_item(hit.span, payload),
        "in_prompt": hit.in_prompt,
        "excerpts": [
            {
                "where": excerpt.where,
                "text": excerpt.text,
                "places": [list(place) for place in excerpt.places],
            }
            for excerpt in hit.excerpts
        ],
    }


def found_item(found: Found) -> FoundItem:
    """A thing that was found by an id."""
    item: FoundItem = {
        "noun": found.noun.value,
        "id": found.id,
        "session_id": found.session_id,
        "by": found.by,
        "whole": found.whole,
    }
    if found.trace_id:
        item["trace_id"] = found.trace_id
    return item


def change_item(change: Change) -> ChangeItem:
    """A change."""
    return {
        "seq": change.seq,
        "session_id": change.session_id,
        "erased": change.erased,
        "at": time_text(change.at),
    }


def erasure_item(erasure: Erasure, *, planned: bool = False) -> ErasureItem:
    """What was erased, or would be."""
    done: Literal["done", "erasing"] = "done" if erasure.done_at is not None else "erasing"
    return {
        "id": erasure.id,
        "sessions": erasure.sessions,
        "turns": erasure.turns,
        "bytes": erasure.bytes,
        "reason": erasure.reason,
        "by": erasure.by,
        "asked_at": time_text(erasure.asked_at),
        "done_at": _time(erasure.done_at),
        "state": "planned" if planned else done,
        "session_ids": list(erasure.session_ids),
        "tapes": list(erasure.tapes),
        "backups": list(erasure.backups),
        "unsearched": list(erasure.unsearched),
    }


def policy_item(policy: Policy) -> PolicyItem:
    """How long sessions are kept."""
    return {
        "max_age_ns": policy.max_age_ns,
        "max_sessions": policy.max_sessions,
        "max_bytes": policy.max_bytes,
    }


def audit_items(entries: Iterable[AuditEntry]) -> list[AuditItem]:
    """What was done."""
    return [
        {
            "id": entry.id,
            "at": time_text(entry.at),
            "action": entry.action,
            "by": entry.by,
            "details": dict(entry.details),
        }
        for entry in entries
    ]
