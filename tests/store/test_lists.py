"""Pages of sessions are what single sessions are, however often they are asked for."""

import base64
import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Engine, event, insert, select

from tapes.errors import BadCursor
from tapes.projector import Projector
from tapes.rows import Outcome, RawTurn, session_id_of
from tapes.store.base import Ask, Noun, Page
from tapes.store.fields import SORTS
from tapes.store.filters import EVERYTHING, parse
from tapes.store.sql import SqlStore
from tapes.store.sqlite import open_sqlite
from tapes.store.tables import spans
from tests.contracts.test_store import fill, many
from tests.turns import at, chat, said

NOBODY = str(UUID(int=1))


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


@pytest.mark.row("D4")
def test_a_window_has_its_beginning_and_not_its_end(store: SqlStore) -> None:
    one = [said("user", "one")]
    two = [*one, said("assistant", "1"), said("user", "two")]
    fill(store, [chat(1, one, "1", begins=10), chat(2, two, "2", begins=20)])
    project = store.project()
    for since, until, traces in (
        (at(10), at(20), 1), (at(10), at(20) + 1, 2), (at(20), at(21), 1), (at(15), at(20), 0),
        (at(10) + 1, at(20), 0), (at(20), None, 1), (None, at(10), 0),
    ):  # fmt: skip
        window = (since, until)
        assert len(project.sessions(since=since, until=until).items) == min(traces, 1), window
        assert project.stats(since=since, until=until).traces == traces, window


@pytest.mark.row("D4")
@pytest.mark.parametrize("noun", ["sessions", "traces", "spans", "turns"])
def test_the_last_page_names_no_other_even_where_it_is_full(store: SqlStore, noun: str) -> None:
    fill(store, many(4, 1))
    page_of: Callable[[Ask], Page[Any]] = getattr(store.project(), noun)
    whole = len(page_of(Ask(limit=200)).items)
    for where in (EVERYTHING, parse("since:1970-01-01")):
        first = page_of(Ask(limit=whole // 2, where=where))
        assert first.next_cursor is not None
        last = page_of(Ask(limit=whole // 2, where=where, cursor=first.next_cursor))
        assert (len(last.items), last.next_cursor) == (whole // 2, None)


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


def plans(store: SqlStore, do: Callable[[], object]) -> list[str]:
    """How the database finds the rows of each statement that looks into spans."""
    asked: list[tuple[str, object]] = []

    def note(_: object, __: object, statement: str, values: object, *___: object) -> None:
        asked.append((statement, values))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        do()
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    with store.database.reading() as connection:
        explain = "EXPLAIN QUERY PLAN "
        if store.database.is_postgres:  # a few rows: only what reads no row at all is left to it
            explain = "EXPLAIN "
            for way in ("seqscan", "indexscan", "bitmapscan"):
                connection.exec_driver_sql(f"SET LOCAL enable_{way} = off")
        return [
            "\n".join(str(row[-1]) for row in connection.exec_driver_sql(explain + each, values))  # type: ignore[arg-type]  # as it was given
            for each, values in asked
            if "FROM spans" in each
        ]


def only_reads(store: SqlStore, index: str) -> tuple[str, ...]:
    """What a plan says that reads this index and no rows."""
    if store.database.is_postgres:
        return (f"Index Only Scan using {index}", f"Index Only Scan Backward using {index}")
    return (f"USING COVERING INDEX {index} ",)


FILTERS = (
    "model:<b", "provider:nobody", "tool:<b", "agent:<b", "kind:<b", "error:<b", "outcome:nobody",
    "stop:nobody", "thread:nobody", "type:nobody", "name:nobody", "status:nobody", "has:error",
    "has:cost", "cost:>9", "tokens:>9M", "duration:>9h", "first:>9h", "since:2001-01-01",
    "request:nobody", "anchor:nobody", "fidelity:nobody", "model:<b -agent:<c duration:<1ms",
)  # fmt: skip


def test_a_filter_of_spans_reads_no_row_that_does_not_fit(store: SqlStore) -> None:
    fill(store, many(2, 2))
    project, read = store.project(), list[str]()
    for sort in ("", *SORTS[Noun.SPANS]):
        for asked in FILTERS:
            ask = Ask(where=parse(asked), sort=sort)
            [plan] = plans(store, lambda ask=ask: project.spans(ask))  # type: ignore[misc]  # bound now
            if not any(said in plan for said in only_reads(store, "spans_by_time")):
                read.append(f"{asked} {sort}: {plan}")
    assert not read


def test_a_histogram_of_spans_reads_no_row(store: SqlStore) -> None:
    fill(store, many(2, 2))
    project, read = store.project(), list[str]()
    for asked in FILTERS:
        where = parse(asked)
        made = plans(store, lambda where=where: project.histogram(Noun.SPANS, where))  # type: ignore[misc]  # bound now
        for plan, index in zip(made, ("spans_sampled", "spans_by_time"), strict=True):
            if not any(said in plan for said in only_reads(store, index)):
                read.append(f"{asked}: {plan}")
    assert not read


@pytest.mark.parametrize(
    ("asked", "index"),
    [
        ("response:nobody", "spans_by_response"),
        ("session:0000-00", "spans_by_session"),
        ("parent:nobody", "spans_by_span_id"),
        ("has:verdict", "spans_judged"),
    ],
)
def test_what_an_id_finds_is_not_looked_for_in_order_of_time(
    tmp_path: Path, asked: str, index: str
) -> None:
    with closing(open_sqlite(tmp_path / "tapes.db")) as store:
        [plan] = plans(store, lambda: store.project().spans(Ask(where=parse(asked))))
    assert f" INDEX {index} " in plan


def test_what_no_session_has_is_looked_for_in_no_span(store: SqlStore) -> None:
    fill(store, many(2, 2))
    project = store.project()
    every = project.spans(Ask(limit=200)).items
    for field in ("model", "tool", "agent", "kind", "error"):
        for value in ("nobody", "nobody*", ">~", ">=~"):
            ask, other = (Ask(where=parse(f"{no}{field}:{value}"), limit=200) for no in ("", "-"))
            [plan] = plans(store, lambda ask=ask: project.traces(ask)) or [""]  # type: ignore[misc]  # bound now
            assert not plan
            assert not project.spans(ask).items
            assert not project.traces(ask).items
            assert project.spans(other).items == every


def test_what_few_sessions_have_is_looked_for_in_them(tmp_path: Path) -> None:
    with closing(open_sqlite(tmp_path / "tapes.db")) as store:
        fill(store, many(2, 2))
        project = store.project()
        [facet, *_] = project.facets("model")
        where = parse(f'model:"{facet.value}"')
        for plan in plans(store, lambda: project.spans(Ask(where=where))):
            assert "spans_by_session" in plan


def test_what_few_long_sessions_have_is_looked_for_between_their_ends(tmp_path: Path) -> None:
    asked = [[said("user", f"question {number}")] for number in range(1100)]
    long = [
        chat(n, each, "x", session="long", begins=5000 + n, model="big")
        for n, each in enumerate(asked, 1)
    ]
    others = [
        chat(2000 + n, asked[n], "y", session=f"s{n}", begins=n * 5000 + 1, model="small")
        for n in range(3)
    ]
    with closing(open_sqlite(tmp_path / "tapes.db")) as store:
        fill(store, [*long, *others])
        project, found = store.project(), Ask(where=parse("model:big"), limit=200)
        assert project.count(Noun.SPANS, found.where).value == len(long)
        assert {span.model for span in project.spans(found).items} == {"big"}
        *_, plan = plans(store, lambda: project.spans(found))
    assert "COVERING INDEX spans_by_time (org_id=? AND started_at>? AND started_at<?)" in plan


def test_children_are_found_by_their_parent(store: SqlStore) -> None:
    fill(store, many(2, 2))
    project = store.project()
    every = project.spans(Ask(limit=200)).items
    for parent in {span.parent_span_id for span in every} - {""}:
        where = parse(f'parent:"{parent}"')
        some = project.spans(Ask(where=where, limit=200)).items
        assert some
        assert some == tuple(span for span in every if span.parent_span_id == parent)
        assert project.count(Noun.SPANS, where).value == len(some)
    assert any(span.parent_span_id for span in every)


def test_a_span_is_found_by_each_value_that_it_has(store: SqlStore) -> None:
    fill(store, many(2, 2))
    project = store.project()
    every = project.spans(Ask(limit=200)).items
    assert every
    for field, value_of in {
        "model": lambda span: span.request_model or span.model,
        "agent": lambda span: span.agent,
        "kind": lambda span: span.call_kind,
    }.items():
        for value in {value_of(span) for span in every}:
            if value:
                some = project.spans(Ask(where=parse(f'{field}:"{value}"'), limit=200)).items
                assert {span.span_id for span in every if value_of(span) == value} == {
                    span.span_id for span in some
                }


def test_words_are_looked_for_in_their_index_first(tmp_path: Path) -> None:
    with closing(open_sqlite(tmp_path / "tapes.db")) as store:
        [plan] = plans(store, lambda: store.project().spans(Ask(where=parse("refund"))))
    assert "spans_by_time" not in plan


def test_pages_of_spans_go_through_all_of_them_in_every_order(store: SqlStore) -> None:
    fill(store, many(5, 2))
    for sort in ("", *SORTS[Noun.SPANS]):
        for descending in (True, False):
            ask, found = Ask(sort=sort, descending=descending, limit=3), list[str]()
            while True:
                page = store.project().spans(ask)
                found += [f"{span.trace_id} {span.span_id}" for span in page.items]
                if page.next_cursor is None:
                    break
                ask = replace(ask, cursor=page.next_cursor)
            assert len(found) == len(set(found)) == 20


def test_a_cursor_from_when_spans_were_sorted_by_their_place_is_refused(store: SqlStore) -> None:
    told = {
        "sort": "started_at",
        "dir": "desc",
        "val": "7490000000000000",
        "id": "7490000000000000",
    }
    cursor = base64.urlsafe_b64encode(json.dumps(told).encode()).decode().rstrip("=")
    with pytest.raises(BadCursor, match="older version"):
        store.project().spans(Ask(cursor=cursor))


def multiplied(store: SqlStore, times: int) -> int:
    """Copies of each span, at places that follow each other, a second apart; how many there are."""
    with store.database.writing() as connection:
        rows = [dict(row) for row in connection.execute(select(spans)).mappings()]
        made = [
            row
            | {
                "place": 1_000_000 + number * len(rows) + at,
                "span_id": f"{row['span_id']}-{number}",
                "started_at": row["started_at"] + number * 1_000_000_000,
            }
            for number in range(times)
            for at, row in enumerate(rows)
        ]
        connection.execute(insert(spans), made)
    return len(rows) * (times + 1)


def test_of_very_many_spans_a_histogram_counts_a_sample(store: SqlStore) -> None:
    fill(store, many(3, 1))
    number = multiplied(store, 400)
    project = store.project()
    every = project.histogram(Noun.SPANS, parts=4, at_most=0)
    about = project.histogram(Noun.SPANS, parts=4, at_most=1000)
    few = project.histogram(Noun.SPANS, parse("has:error"), parts=4, at_most=1000)
    assert (every.exact, about.exact, few.exact) == (True, False, True)
    assert sum(bar.rows for bar in every.bars) == number
    assert sum(bar.rows for bar in about.bars) == pytest.approx(number, rel=0.05)
    assert len(about.bars) == len(every.bars) == 4


@pytest.mark.parametrize(
    ("sort", "value", "tie"),
    [
        ("last_active", "9" * 30, NOBODY),
        ("total_tokens", "-" + "9" * 30, NOBODY),
        ("total_cost_usd", "NaN", NOBODY),
        ("last_active", "1", "nobody"),
    ],
)
def test_a_cursor_of_no_row_cannot_be_read(
    store: SqlStore, sort: str, value: str, tie: str
) -> None:
    told = json.dumps({"sort": sort, "dir": "desc", "val": value, "id": tie})
    cursor = base64.urlsafe_b64encode(told.encode()).decode().rstrip("=")
    with pytest.raises(BadCursor):
        store.project().sessions(Ask(sort=sort, cursor=cursor))


@pytest.mark.parametrize(
    "query", ["tokens:>99999999999999999999", "duration:>99999999w", "cost:>1e400"]
)
def test_more_than_any_row_can_have_finds_none_of_them(store: SqlStore, query: str) -> None:
    fill(store, many(2, 1))
    project, ask = store.project(), Ask(where=parse(query))
    assert (project.sessions(ask).items, project.spans(ask).items) == ((), ())
    assert len(project.sessions(Ask(where=parse("since:99999999w"))).items) == 2


@pytest.mark.parametrize(
    ("query", "number"),
    [
        ("meta.on:true", 1),
        ("meta.off:false", 1),
        ("meta.on:1", 0),
        ("meta.n:3", 1),
        ("meta.no:x", 0),
    ],
)
def test_what_a_harness_said_is_found_as_json_writes_it(
    store: SqlStore, query: str, number: int
) -> None:
    said_of_it = {"on": True, "off": False, "n": 3, "none": None}
    fill(store, [chat(1, [said("user", "hi")], "yes", harness_metadata=said_of_it)])
    assert len(store.project().sessions(Ask(where=parse(query))).items) == number


def test_what_no_database_takes_is_asked_for_all_the_same(store: SqlStore) -> None:
    fill(store, many(1, 1))
    for query in ("model:a\0b", "name:\ud800", "has:error OR id:\0"):
        assert (
            store.project().spans(Ask(where=parse(query.replace("has:error OR ", "")))).items == ()
        )


def test_sums_of_money_and_time_have_no_largest_one(store: SqlStore) -> None:
    store.append(many(3, 2))
    Projector(store, lambda *_: Decimal("4000000.000000000001")).drain()
    whole = Decimal("24000000.000000000006")
    assert store.project().stats().cost_usd == whole
    for noun in (Noun.SESSIONS, Noun.TRACES, Noun.SPANS):
        (bar,) = store.project().histogram(noun, parts=1).bars
        assert bar.cost_usd == whole, noun
    turns = [replace(turn, ended_at=2**62) for turn in many(8, 1)]
    store.append([replace(turn, request_id=f"long-{n}") for n, turn in enumerate(turns)])
    Projector(store).drain()
    assert store.project().stats().duration_ns > 2**63


def answered_in_every_way(store: SqlStore) -> None:
    """A dear call from a tape, a cheap one from its provider, and one without a price."""
    hi = [said("user", "hi")]
    store.append(
        [
            chat(1, hi, "a", session="a", outcome=Outcome.REPLAYED, tokens=(900, 10)),
            chat(2, hi, "b", session="b", outcome=Outcome.RECORDED, tokens=(100, 10)),
            chat(3, hi, "c", session="c", outcome=Outcome.RECORDED, tokens=None),
        ]
    )
    Projector(store, lambda usage, *_: Decimal(usage.input or 0) / 100).drain()


@pytest.mark.parametrize("noun", ["sessions", "traces", "spans"])
@pytest.mark.parametrize(
    ("query", "number"),
    [("cost:>0", 1), ("cost:<=0", 1), ("cost:9", 0), ("has:cost", 2), ("saved:>=9", 1)],
)
def test_what_a_tape_answered_cost_nothing_in_every_filter(
    store: SqlStore, noun: str, query: str, number: int
) -> None:
    answered_in_every_way(store)
    page = getattr(store.project(), noun)(Ask(where=parse(query)))
    assert len(page.items) == number


@pytest.mark.parametrize("noun", [Noun.SESSIONS, Noun.TRACES, Noun.SPANS])
def test_what_a_tape_answered_cost_nothing_in_every_histogram(store: SqlStore, noun: Noun) -> None:
    answered_in_every_way(store)
    (bar,) = store.project().histogram(noun, parse("cost:<=0"), parts=1).bars
    assert (bar.rows, bar.cost_usd) == (1, Decimal(0))


def test_spans_are_sorted_by_what_was_spent(store: SqlStore) -> None:
    answered_in_every_way(store)
    ask, found = Ask(where=parse("type:llm"), sort="cost_usd", limit=1), list[str]()
    while True:
        page = store.project().spans(ask)
        found += [span.outcome for span in page.items if span.cost_usd is not None]
        if page.next_cursor is None:
            break
        ask = replace(ask, cursor=page.next_cursor)
    assert found == ["recorded", "replayed"]


@pytest.mark.parametrize("noun", ["sessions", "traces"])
def test_what_a_tape_answered_alone_is_sorted_before_what_has_no_price(
    store: SqlStore, noun: str
) -> None:
    hi, ways = [said("user", "hi")], [Outcome.RECORDED, Outcome.REPLAYED] * 6
    store.append(
        [
            chat(n, hi, "a", session=f"s{n}", outcome=way, tokens=(1, 1) if n % 2 else None)
            for n, way in enumerate(ways)
        ]
    )
    Projector(store, lambda *_: Decimal(9)).drain()
    found = getattr(store.project(), noun)(Ask(sort="total_cost_usd")).items
    rows = [each.session if noun == "sessions" else each for each in found]
    assert [row.saved_cost_usd for row in rows] == [Decimal(9)] * 6 + [None] * 6
    assert [row.total_cost_usd for row in rows] == [Decimal(0)] * 6 + [None] * 6


def test_what_a_tape_answered_is_known_to_have_cost_nothing_where_all_is_summed(
    store: SqlStore,
) -> None:
    store.append([chat(1, [said("user", "hi")], "a", outcome=Outcome.REPLAYED)])
    Projector(store, lambda *_: Decimal(9)).drain()
    stats = store.project().stats()
    assert (stats.cost_usd, stats.saved_cost_usd) == (Decimal(0), Decimal(9))
