"""Rows as values: their keys, hashes, times and differences."""

from dataclasses import replace
from decimal import Decimal

import pytest

from tapes.envelope import Envelope
from tapes.jsontext import Json
from tapes.rows import (
    Link,
    LinkKind,
    Projection,
    RawTurn,
    Session,
    Span,
    Status,
    Trace,
    content_hash,
    key_of_row,
    moments,
    nanoseconds,
    parent_session_id_of,
    session_id_of,
    time_text,
    together,
)

SECOND = 1_000_000_000


def test_a_session_has_one_id_for_ever_and_others_have_others() -> None:
    mine = Envelope(harness_id="claude", harness_session_id="s")
    assert session_id_of(mine) == "2c7e78f5-1325-5f1c-8e9d-4cec0339de08"
    assert session_id_of(replace(mine, cwd="/elsewhere")) == session_id_of(mine)
    others = (
        replace(mine, harness_id="codex"),
        replace(mine, harness_session_id="t"),
        replace(mine, org_id="00000000-0000-4000-8000-000000000001"),
    )
    assert len({session_id_of(mine), *map(session_id_of, others)}) == 4


def test_a_parent_is_the_session_of_that_id_in_the_same_harness() -> None:
    child = Envelope(harness_id="claude", harness_session_id="c", parent_harness_session_id="p")
    parent = Envelope(harness_id="claude", harness_session_id="p")
    assert parent_session_id_of(child) == session_id_of(parent)
    assert parent_session_id_of(parent) is None
    own = replace(child, parent_harness_session_id=child.harness_session_id)
    assert parent_session_id_of(own) is None


def test_hashes_change_with_content_and_not_with_identity() -> None:
    trace = Trace(trace_id="t", session_id="s", total_cost_usd=Decimal("0.10"))
    assert content_hash(trace) == content_hash(replace(trace, trace_id="u", session_id="v"))
    assert content_hash(trace) == content_hash(replace(trace, total_cost_usd=Decimal("0.1")))
    assert content_hash(trace) != content_hash(replace(trace, total_cost_usd=None))
    assert content_hash(trace) != content_hash(replace(trace, status=Status.ERROR))
    span = Span(trace_id="t", span_id="s", input=({"type": "text", "text": "a"},))
    assert content_hash(span) == content_hash(replace(span, input=({"text": "a", "type": "text"},)))
    assert content_hash(span) != content_hash(replace(span, input=()))


LINK = Link(
    from_trace_id="t", from_span_id="a", to_trace_id="t", to_span_id="b", kind=LinkKind.EMITS
)


def test_the_kind_of_a_link_is_no_part_of_its_key() -> None:
    assert key_of_row(LINK) == key_of_row(replace(LINK, kind=LinkKind.FEEDS))
    assert key_of_row(LINK) != key_of_row(replace(LINK, to_io="input"))


def test_projections_are_put_together_in_one_order() -> None:
    spans = tuple(Span(trace_id="t", span_id=name, seq=n) for n, name in enumerate("xy"))
    one = Projection((Session(id="b", started_at=2),), (), spans[1:])
    two = Projection((Session(id="a", started_at=1),), (), spans[:1])
    assert together([one, two]) == together([two, one])
    assert [s.id for s in together([one, two]).sessions] == ["a", "b"]
    assert together([one, two]).spans == spans


def test_differences_name_the_row_and_the_columns() -> None:
    kept = Projection((Session(id="s"),), (Trace(trace_id="t", session_id="s"),), (), (LINK,))
    changed = replace(kept.traces[0], status=Status.ERROR, user_prompt="x")
    made = Projection((Session(id="s"), Session(id="n")), (changed,), (), ())
    assert kept.differences(kept) == []
    assert kept.differences(made) == [
        "link t a t b: not in the other",
        "session n: only in the other",
        "trace t: differs in user_prompt, status",
    ]


def test_the_rows_of_one_session_stand_alone() -> None:
    traces = tuple(Trace(trace_id=name, session_id=name) for name in "ab")
    whole = Projection((Session(id="a"), Session(id="b")), traces)
    assert whole.of_session("a") == Projection((Session(id="a"),), traces[:1])


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2026-07-27T21:32:31.641321Z", 1785187951641321000),
        ("2026-07-27T23:32:31.641321987+02:00", 1785187951641321987),
        ("2026-07-27T21:32:31", 1785187951000000000),
        ("yesterday", None),
        ("", None),
        (5, None),
    ],
)
def test_times_are_read_to_the_nanosecond(text: Json, moment: int | None) -> None:
    assert nanoseconds(text) == moment
    if moment is not None:
        assert nanoseconds(time_text(moment)) == moment


def test_times_are_written_with_as_much_fraction_as_they_have() -> None:
    assert time_text(1785187951641321000) == "2026-07-27T21:32:31.641321Z"
    assert time_text(1785187951000000000) == "2026-07-27T21:32:31Z"


START, END = "2026-07-27T21:32:31Z", "2026-07-27T21:32:33Z"
AT = 1785187951 * SECOND


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (RawTurn(started_at=1, ended_at=2, meta={"ts_request": START}), (1, 2)),
        (RawTurn(meta={"captured_at": END, "elapsed_seconds": 2.0}), (AT, AT + 2 * SECOND)),
        (RawTurn(meta={"captured_at": END, "ts_request": START}), (AT, AT + 2 * SECOND)),
        (RawTurn(meta={"ts_request": START, "elapsed_seconds": 0.5}), (AT, AT + SECOND // 2)),
        (RawTurn(meta={"ts_request": START, "elapsed_seconds": -1}), (AT, None)),
        (RawTurn(meta={"ts_request": START, "elapsed_seconds": 999999999}), (AT, None)),
        (RawTurn(meta={"ts_request": START, "elapsed_seconds": 10**400}), (AT, None)),
        (RawTurn(meta={"ts_request": START, "elapsed_seconds": float("nan")}), (AT, None)),
        (RawTurn(meta={"captured_at": END}, received_at=5), (AT + 2 * SECOND, None)),
        (RawTurn(meta=None, received_at=5), (5, None)),
    ],
)
def test_when_a_call_was_made_is_what_its_capture_says_best(
    raw: RawTurn, expected: tuple[int, int | None]
) -> None:
    assert moments(raw) == expected
