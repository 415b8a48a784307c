"""Spans that others name and nobody sent: a placeholder until they come.

Rule 1: a placeholder hangs under the root. The span that it stands for takes its place under the
        same id, so that ids, order and links stay.
Rule 2: what was received is shown where it is, whatever its times say.

Knows nothing of calls.  Pure.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from tapes.rows import Span, SpanKind, Status


def missing_span(trace_id: str, span_id: str, parent: str, started: int) -> Span:
    """The placeholder of a span that others name and nobody sent."""
    return Span(
        trace_id=trace_id,
        span_id=span_id,
        parent_span_id=parent,
        kind=SpanKind.STEP,
        name=f"{span_id} (not received)",
        status=Status.MISSING,
        started_at=started,
    )


def in_place(spans: Iterable[Span]) -> tuple[Span, ...]:
    """The spans of one trace as a tree in order, with a placeholder for each missing parent.

    Parents come before their children, children by their start.
    """
    known = {span.span_id: span for span in spans}
    root = _root_of(known.values())
    for span in sorted(known.values(), key=_by_start):
        parent = span.parent_span_id
        if parent and parent not in known:
            above = root.span_id if root is not None else ""
            placeholder = missing_span(span.trace_id, parent, above, span.started_at)
            known[parent] = replace(placeholder, session_id=span.session_id, org_id=span.org_id)
    children: dict[str, list[Span]] = {}
    for span in known.values():
        children.setdefault(span.parent_span_id, []).append(span)
    ordered = list(_below("", children))
    reached = {span.span_id for span in ordered}
    # Spans that name each other as parents hang nowhere: they are shown, at the end.
    ordered += sorted((s for s in known.values() if s.span_id not in reached), key=_by_start)
    return tuple(replace(span, seq=seq) for seq, span in enumerate(ordered))


def _by_start(span: Span) -> tuple[int, str]:
    return span.started_at, span.span_id


def _root_of(spans: Iterable[Span]) -> Span | None:
    return min((s for s in spans if not s.parent_span_id), key=_by_start, default=None)


def _below(parent: str, children: dict[str, list[Span]]) -> Iterator[Span]:
    waiting = sorted(children.get(parent, ()), key=_by_start, reverse=True)
    while waiting:
        span = waiting.pop()
        yield span
        waiting += sorted(children.get(span.span_id, ()), key=_by_start, reverse=True)
