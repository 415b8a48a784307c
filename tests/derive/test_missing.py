"""Placeholders for what others name and nobody sent."""

from tapes.derive.deriver import derive
from tapes.derive.missing import in_place
from tapes.rows import Span, Status
from tests.derive.talks import DONE, span, with_thread
from tests.turns import (
    messages,
    transcript,
    user,
)

A = Span(trace_id="t", span_id="a", started_at=1)
B = Span(trace_id="t", span_id="b", parent_span_id="b9", started_at=3)
C = Span(trace_id="t", span_id="c", parent_span_id="b", started_at=2)
B9 = Span(trace_id="t", span_id="b9", parent_span_id="a", started_at=2, name="step")


def test_a_missing_parent_is_a_placeholder_whose_place_it_takes_when_it_comes() -> None:
    placed = in_place([C, B, A])
    assert [(s.span_id, s.parent_span_id) for s in placed] == [
        ("a", ""),
        ("b9", "a"),
        ("b", "b9"),
        ("c", "b"),
    ]
    assert placed[1].name == "b9 (not received)"
    statuses = [s.status for s in placed]
    assert statuses.count(Status.MISSING) == 1
    assert len(statuses) - 1 == 3
    arrived = in_place([C, B, A, B9])
    assert [(s.span_id, s.parent_span_id, s.seq) for s in arrived] == [
        (s.span_id, s.parent_span_id, s.seq) for s in placed
    ]
    assert arrived[1].name == "step"


def test_children_before_or_after_their_parents_stay_where_they_are() -> None:
    early = Span(trace_id="t", span_id="e", parent_span_id="a", started_at=0, duration_ns=99)
    assert in_place([A, early])[1].started_at == 0


def test_spans_that_name_each_other_as_parents_are_shown_all_the_same() -> None:
    one = Span(trace_id="t", span_id="x", parent_span_id="y", started_at=1)
    two = Span(trace_id="t", span_id="y", parent_span_id="x", started_at=2)
    assert [s.span_id for s in in_place([two, one, A])] == ["a", "x", "y"]


def test_a_spawning_call_that_was_not_received_is_a_placeholder_until_it_comes() -> None:
    told = transcript(9, agent_id="a", tool_use_id="t9")
    late = with_thread()[0]
    rest = [messages(0, [user("begin")], DONE, begins=1), *with_thread()[1:3], told]
    before = derive(rest)
    placeholder = span(before, "t9")
    assert (placeholder.status, placeholder.name) == (Status.MISSING, "t9 (not received)")
    assert (before.traces[0].missing_count, before.traces[0].span_count) == (1, 6)
    after = derive([*rest, late])
    assert span(after, "t9").name == "Agent"
    assert span(after, "agent_a").parent_span_id == span(before, "agent_a").parent_span_id == "t9"
    assert after.traces[-1].missing_count == 0
