"""What readers of SQL are promised: the views of the contract, and who may read them."""

from collections.abc import Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from decimal import Decimal
from itertools import count
from typing import Any

import psycopg
import pytest
from psycopg import errors
from psycopg.rows import dict_row

from tapes.projector import Projector
from tapes.rows import NO_ORG, Projection, Session
from tapes.seeding import seed
from tapes.services.grants import GrantPlan
from tapes.store.base import Ask
from tapes.store.postgres import open_postgres
from tapes.store.sql import SqlStore
from tests.postgres import Postgres
from tests.turns import assistant, call, messages, user

TIMES = "timestamp with time zone"
SESSIONS = {
    "id": "uuid", "org_id": "uuid", "auth_subject": "text", "harness_id": "text",
    "harness_session_id": "text", "name": "text", "cwd": "text", "harness_version": "text",
    "parent_session_id": "uuid", "started_at": TIMES, "last_seen_at": TIMES, "ended_at": TIMES,
    "harness_metadata": "jsonb", "total_input_tokens": "bigint", "total_output_tokens": "bigint",
    "total_cost_usd": "numeric", "turn_count": "bigint", "derived_status": "text",
    "has_git_activity": "boolean", "tool_result_count": "bigint", "tool_error_count": "bigint",
    "derived_title": "text", "derived_model": "text", "model_usage": "jsonb",
    "total_tokens": "bigint", "duration_ns": "bigint", "tasks": "jsonb", "kind_counts": "jsonb",
    "display_name": "text",
}  # fmt: skip
TRACES = {
    "org_id": "uuid", "trace_id": "text", "session_id": "uuid", "user_prompt": "text",
    "response_preview": "text", "synthetic": "text", "status": "text", "source": "text",
    "started_at": TIMES, "ended_at": TIMES, "duration_ns": "bigint",
    "total_input_tokens": "bigint", "total_output_tokens": "bigint",
    "main_input_tokens": "bigint", "main_output_tokens": "bigint", "cache_read_tokens": "bigint",
    "cache_creation_tokens": "bigint", "total_cost_usd": "numeric", "content_hash": "text",
    "derive_seq": "bigint", "fidelity": "text",
}  # fmt: skip
SPANS = {
    "org_id": "uuid", "trace_id": "text", "span_id": "text", "parent_span_id": "text",
    "session_id": "uuid", "kind": "text", "name": "text", "status": "text", "call_kind": "text",
    "thread_id": "text", "model": "text", "stop_reason": "text", "started_at": TIMES,
    "duration_ns": "bigint", "input": "jsonb", "output": "jsonb", "usage": "jsonb",
    "raw_turn_id": "bigint", "node_hash": "text", "seq": "bigint", "verdict": "jsonb",
    "content_hash": "text", "derive_seq": "bigint", "fidelity": "text",
}  # fmt: skip
LINKS = {
    "org_id": "uuid", "from_trace_id": "text", "from_span_id": "text", "from_io": "text",
    "to_trace_id": "text", "to_span_id": "text", "to_io": "text", "kind": "text",
    "session_id": "uuid",
}  # fmt: skip
VIEWS = {"sessions": SESSIONS, "span_turns": TRACES, "spans": SPANS, "span_links": LINKS}
VIEW_IDS = {"org_id", "session_id"}
ORDER = ("trace_id", "span_id", *LINKS)
READER = GrantPlan("cassette_reader", "reader", tuple(f"tapes_v1.{view}" for view in VIEWS))
_numbers = count()


@pytest.fixture
def dsn(postgres: Postgres, empty_store_database: str) -> Iterator[str]:
    """A database with the tables of a store in it."""
    name = f"views_{next(_numbers)}"
    yield postgres.new_database(name, empty_store_database)
    postgres.drop_database(name)


@pytest.fixture
def store(dsn: str) -> Iterator[SqlStore]:
    """The store of that database: the views are PostgreSQL's alone."""
    opened = open_postgres(dsn)
    yield opened
    opened.close()


def published(dsn: str, view: str, role: str = "") -> list[dict[str, Any]]:
    """All of a view, as a role reads it."""
    with psycopg.connect(dsn, row_factory=dict_row) as connection:
        if role:
            connection.execute(f'SET ROLE "{role}"')
        return connection.execute(f"SELECT * FROM tapes_v1.{view}").fetchall()


@pytest.mark.row("D6")
@pytest.mark.parametrize("view", VIEWS)
def test_the_published_columns_are_those_of_the_contract(
    postgres: Postgres, empty_store_database: str, view: str
) -> None:
    ask = (
        "SELECT column_name, data_type FROM information_schema.columns"
        " WHERE table_schema = 'tapes_v1' AND table_name = %s ORDER BY ordinal_position"
    )
    with psycopg.connect(postgres.url(empty_store_database)) as connection:
        assert dict(connection.execute(ask, [view]).fetchall()) == VIEWS[view]


@pytest.mark.row("D6")
def test_no_other_view_is_published(postgres: Postgres, empty_store_database: str) -> None:
    ask = "SELECT table_name FROM information_schema.tables WHERE table_schema = 'tapes_v1'"
    with psycopg.connect(postgres.url(empty_store_database)) as connection:
        assert {name for (name,) in connection.execute(ask).fetchall()} == VIEWS.keys()


def as_read(value: Any, kind: str) -> Any:
    """A value of a row as PostgreSQL gives it to a client, to the microsecond."""
    if kind == TIMES and value is not None:
        return datetime.fromtimestamp(value // 10**9, UTC).replace(
            microsecond=value % 10**9 // 1000
        )
    return str(value) if kind == "uuid" and value is not None else value


def told(row: Any, columns: dict[str, str], *, without: set[str]) -> dict[str, Any]:
    given = asdict(row)
    return {n: as_read(given[n], kind) for n, kind in columns.items() if n not in without}


def rows_of(store: SqlStore) -> Projection:
    """Everything that was derived."""
    all_of = [
        store.project().rows_of_session(listed.session.id)
        for listed in store.project().sessions(Ask(limit=200)).items
    ]
    return Projection(
        sessions=tuple(session for each in all_of for session in each.sessions),
        traces=tuple(trace for each in all_of for trace in each.traces),
        spans=tuple(span for each in all_of for span in each.spans),
        links=tuple(dict.fromkeys(link for each in all_of for link in each.links)),
    )


def seen(rows: list[dict[str, Any]], *, without: set[str]) -> list[dict[str, Any]]:
    """What a reader got, in an order of its own, with ids as text and without what rows lack."""
    kept = [
        {n: str(v) if VIEW_IDS & {n} and v else v for n, v in row.items() if n not in without}
        for row in rows
    ]
    return sorted(kept, key=lambda row: [str(row[n]) for n in ORDER if n in row])


@pytest.mark.row("D6")
def test_a_reader_sees_what_was_derived(store: SqlStore, dsn: str) -> None:
    seed(store)
    Projector(store).drain()
    rows = rows_of(store)
    for view, these in (
        ("span_turns", rows.traces), ("spans", rows.spans), ("span_links", rows.links),
    ):  # fmt: skip
        without = {"content_hash", "derive_seq", "input", "output", "raw_turn_id"}
        expected = [told(row, VIEWS[view], without=without) for row in these]
        assert seen(published(dsn, view), without=without) == seen(expected, without=set()), view
    texts = {(s.trace_id, s.span_id): (list(s.input), list(s.output)) for s in rows.spans}
    got_spans = published(dsn, "spans")
    got = {(s["trace_id"], s["span_id"]): (s["input"] or [], s["output"] or []) for s in got_spans}
    assert got == texts
    assert {s["raw_turn_id"] for s in got_spans} == {s.raw_turn_id for s in rows.spans}
    assert all(s["content_hash"] and s["derive_seq"] for s in got_spans)


@pytest.mark.row("D6")
def test_a_session_is_published_with_its_totals_and_the_name_that_people_gave(
    store: SqlStore, dsn: str
) -> None:
    seed(store)
    Projector(store).drain()
    known = {s.id: s for s in rows_of(store).sessions}
    renamed = max(known.values(), key=lambda s: s.total_cost_usd or Decimal(0))
    store.project().rename(renamed.id, "the invoice")
    rows = {str(row["id"]): row for row in published(dsn, "sessions")}
    assert rows.keys() == known.keys()
    for session_id, session in known.items():
        assert_told(rows[session_id], session)
    assert {id_ for id_, row in rows.items() if row["display_name"]} == {renamed.id}
    assert rows[renamed.id]["display_name"] == "the invoice"


def assert_told(row: dict[str, Any], session: Session) -> None:
    same = (
        "harness_id", "harness_session_id", "name", "cwd", "harness_version", "turn_count",
        "total_input_tokens", "total_output_tokens", "total_cost_usd", "derived_status",
        "has_git_activity", "tool_result_count", "tool_error_count", "derived_title",
        "derived_model", "started_at", "last_seen_at", "ended_at",
    )  # fmt: skip
    assert {n: row[n] for n in same} == {n: as_read(getattr(session, n), SESSIONS[n]) for n in same}
    assert str(row["org_id"]) == NO_ORG
    assert row["kind_counts"] == dict(session.kind_counts)
    assert [each["model"] for each in row["model_usage"]] == [u.model for u in session.model_usage]
    assert row["duration_ns"] == session.last_seen_at - session.started_at
    tokens = [session.total_input_tokens, session.total_output_tokens]
    assert row["total_tokens"] == (sum(filter(None, tokens)) if any(tokens) else None)


@pytest.mark.row("C10", "D6")
def test_the_printed_grants_open_the_views_and_nothing_behind_them(
    store: SqlStore, dsn: str
) -> None:
    seed(store)
    Projector(store).drain()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(READER.sql())
    for view in VIEWS:
        assert published(dsn, view, READER.role)
    for statement in (
        "SELECT * FROM raw_turns",
        "SELECT * FROM spans",
        "SELECT * FROM session_notes",
        "DELETE FROM tapes_v1.spans",
        "UPDATE tapes_v1.sessions SET name = ''",
    ):
        with psycopg.connect(dsn) as connection:
            connection.execute(f'SET ROLE "{READER.role}"')
            with pytest.raises(errors.InsufficientPrivilege):
                connection.execute(statement)


@pytest.mark.row("D6")
def test_text_that_postgresql_cannot_hold_breaks_no_view(store: SqlStore, dsn: str) -> None:
    odd = {"command": "x\x00y\ud800", "\x00": [1.5, "\\u0000"]}
    store.append([messages(1, [user("say \x00 \udfff")], assistant(call("t", "Bash", **odd)))])
    Projector(store).drain()
    (tool,) = [row for row in published(dsn, "spans") if row["kind"] == "tool"]
    assert tool["input"][0]["tool_input"] == {"command": "x�y�", "�": [1.5, "\\u0000"]}
    (trace,) = published(dsn, "span_turns")
    assert trace["user_prompt"] == "say � �"
