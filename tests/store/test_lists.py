"""Pages of sessions are what single sessions are, however often they are asked for."""

from dataclasses import replace

import pytest

from tapes.rows import RawTurn, session_id_of
from tapes.store.base import Ask, Noun
from tapes.store.sql import SqlStore
from tests.contracts.test_store import fill, many
from tests.turns import chat, said


def lasting(number: int, seconds: float) -> RawTurn:
    asked = [said("user", f"question {number}")]
    return chat(number, asked, "x", session=f"s{number}", begins=number, takes=seconds)


def singly(store: SqlStore) -> list[object]:
    project = store.project()
    return [project.session(each.session.id) for each in project.sessions().items]


@pytest.mark.row("D4")
def test_a_page_is_never_what_its_rows_were_before(store: SqlStore) -> None:
    turns = many(3, 2)
    fill(store, turns)
    project = store.project()
    session = session_id_of(turns[0].envelope)
    first = project.sessions()
    assert project.sessions().items == first.items == tuple(singly(store))
    for change in (
        lambda: project.rename(session, "Ada's"),
        lambda: project.tag(session, add=["b", "a", "\u00e9"]),
        lambda: project.pin(session),
        lambda: project.tag(session, remove=["a"]),
        lambda: fill(store, [chat(50, [said("user", "more")], "x", session="s0")]),
    ):
        before = project.sessions()
        change()
        after = project.sessions()
        assert after.items == tuple(singly(store)) != before.items
        assert after.seq == project.seq() > before.seq


def test_pages_of_every_sort_go_through_all_of_them(store: SqlStore) -> None:
    fill(store, many(7, 1))
    project = store.project()
    for sort in ("", "started_at", "turn_count", "total_cost_usd"):
        for descending in (True, False):
            ask, found = Ask(sort=sort, descending=descending, limit=2), list[str]()
            while True:
                page = project.sessions(ask)
                found += [each.session.id for each in page.items]
                if page.next_cursor is None:
                    break
                ask = replace(ask, cursor=page.next_cursor)
            assert len(found) == len(set(found)) == 7


def test_a_session_may_be_read_without_its_payloads(store: SqlStore) -> None:
    turns = many(1, 2)
    fill(store, turns)
    session = session_id_of(turns[0].envelope)
    whole = store.project().rows_of_session(session)
    heads = store.project().rows_of_session(session, payload=False)
    assert any(span.input for span in whole.spans)
    bare = [replace(span, input=(), output=()) for span in whole.spans]
    assert list(heads.spans) == bare
    assert (heads.traces, heads.links) == (whole.traces, whole.links)


def test_a_histogram_tells_what_half_and_nearly_all_did_not_exceed(store: SqlStore) -> None:
    fill(store, [lasting(number, number / 1000) for number in range(1, 101)])
    [bar] = store.project().histogram(Noun.SESSIONS, parts=1).bars
    assert (bar.rows, bar.longest_ns) == (100, 100_000_000)
    assert bar.p50_ns is not None
    assert bar.p95_ns is not None
    assert 50_000_000 <= bar.p50_ns < 55_000_000
    assert 95_000_000 <= bar.p95_ns <= 100_000_000
    spans = store.project().histogram(Noun.SPANS, parts=3).bars
    assert sum(each.rows for each in spans) == 200
    assert all(each.p50_ns <= each.p95_ns <= each.longest_ns for each in spans)  # type: ignore[operator]  # each took some time


def test_a_histogram_of_few_rows_tells_what_they_took(store: SqlStore) -> None:
    fill(store, [lasting(1, 0.007), lasting(2, 0.123), lasting(3, 90.0)])
    [bar] = store.project().histogram(Noun.SESSIONS, parts=1).bars
    assert (bar.p50_ns, bar.p95_ns) == (123_000_000, 90_000_000_000)
