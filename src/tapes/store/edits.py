"""What is to be done so that a session has its new rows: those that came, changed, or are gone.

Rule 1: a row whose hash is the one that is there did not change.

Knows nothing of statements or databases.  Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tapes.rows import Link, Projection, Session, Span, SpanKind, content_hash

SpanKey = tuple[str, str]
LinkKey = tuple[str, str, str, str, str, str]


def link_key(link: Link) -> LinkKey:
    """What tells a link from others."""
    source = (link.from_trace_id, link.from_span_id, link.from_io)
    return (*source, link.to_trace_id, link.to_span_id, link.to_io)


def span_key(span: Span) -> SpanKey:
    """What tells a span from others."""
    return span.trace_id, span.span_id


@dataclass(slots=True)
class Stored:
    """What a database has of a session: hashes and places by key."""

    session: str | None = None
    session_place: int | None = None
    traces: dict[str, str] = field(default_factory=dict)
    spans: dict[SpanKey, tuple[str, int]] = field(default_factory=dict)
    links: dict[LinkKey, str] = field(default_factory=dict)
    skips: dict[int, str] = field(default_factory=dict)
    facets: set[tuple[str, str]] = field(default_factory=set)
    parents: dict[str, tuple[str, str, int]] = field(default_factory=dict)


class Edit:
    """What is to be done, so that a session has its new rows."""

    def __init__(self, session_id: str, rows: Projection, stored: Stored) -> None:
        self.session_id, self.rows, self.stored = session_id, rows, stored
        self.seq = 0
        own = [s for s in rows.sessions if s.id == session_id and not s.placeholder]
        self.own = own[0] if own else None
        self.hash = content_hash(self.own) if self.own else None
        self.has_other_session = stored.session != self.hash
        self.traces = [
            (trace, hashed)
            for trace in rows.traces
            if stored.traces.get(trace.trace_id) != (hashed := content_hash(trace))
        ]
        self.spans = [
            (span, hashed)
            for span in rows.spans
            if _hash_in(stored.spans, span_key(span)) != (hashed := content_hash(span))
        ]
        new_links = {link_key(link): link for link in rows.links}
        self.links = [
            link for key, link in new_links.items() if stored.links.get(key) != link.kind.value
        ]
        self.gone_traces = stored.traces.keys() - {trace.trace_id for trace in rows.traces}
        self.gone_spans = stored.spans.keys() - {span_key(span) for span in rows.spans}
        self.gone_links = stored.links.keys() - new_links.keys()
        self.skips = {skip.raw_turn_id: skip.reason for skip in rows.skipped if skip.raw_turn_id}

    @property
    def count(self) -> int:
        """How many rows change."""
        changed = len(self.traces) + len(self.spans) + len(self.links)
        gone = len(self.gone_traces) + len(self.gone_spans) + len(self.gone_links)
        return changed + gone + self.has_other_session


def facets_of(session: Session, its_spans: Iterable[Span]) -> set[tuple[str, str]]:
    """What there is in a session, by name of the field."""
    found: set[tuple[str, str]] = set()
    for span in its_spans:
        if span.kind is SpanKind.LLM:
            found |= {
                ("model", span.model), ("model", span.request_model), ("provider", span.provider),
                ("outcome", span.outcome), ("stop", span.stop_reason),
            }  # fmt: skip
        elif span.kind is SpanKind.TOOL:
            found.add(("tool", span.name))
        found |= {
            ("agent", span.agent), ("kind", span.call_kind), ("error", span.error_type),
            ("span_status", span.status.value if span.status.value != "ok" else ""),
        }  # fmt: skip
    found |= {("agent", session.agent_name), ("harness", session.harness_id)}
    said: object = session.harness_metadata
    given = said.get("tags") if isinstance(said, Mapping) else None
    if isinstance(given, list):
        found |= {("tag", tag) for tag in given if isinstance(tag, str)}
    return {(name, value) for name, value in found if value}


def _hash_in(known: Mapping[SpanKey, tuple[str, int]], key: SpanKey) -> str | None:
    found = known.get(key)
    return None if found is None else found[0]
