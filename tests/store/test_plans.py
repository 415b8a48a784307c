"""What the store really asks: no statement about one tenant's rows looks through a whole table."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import Engine, event

from tapes.projector import Projector
from tapes.rows import NO_ORG
from tapes.store.base import Ask, Correction, Noun
from tapes.store.filters import parse
from tapes.store.sql import SqlStore
from tests.contracts.test_store import fill, many
from tests.turns import chat, said

TABLES = ("raw_turns", "spans", "traces", "sessions")
# An index of the few turns that wait: to read all of it is what it is for.
_UNPLACED = "raw_turns_unplaced"


def statements(do: Callable[[], object]) -> dict[str, Any]:
    """What is asked meanwhile, each with values that it was asked with."""
    asked: dict[str, Any] = {}

    def note(_: Any, __: Any, statement: str, values: Any, ___: Any, is_many: bool) -> None:
        asked.setdefault(statement, values[0] if is_many else values)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        do()
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    verbs = ("SELECT", "UPDATE", "DELETE", "WITH")
    return {sql: v for sql, v in asked.items() if sql.lstrip().upper().startswith(verbs)}


def scans(store: SqlStore, sql: str, values: Any) -> Iterator[str]:
    """The tables that a statement looks through from one end to the other."""
    with store.database.reading() as connection:
        if not store.database.is_postgres:
            for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values):
                if _UNPLACED not in str(row[-1]):
                    yield from re.findall(rf"^SCAN ({'|'.join(TABLES)})\b", str(row[-1]))
            return
        # Of few rows all are read at once: what no index helps with is left to it.
        for way in ("seqscan", "bitmapscan", "indexonlyscan"):
            connection.exec_driver_sql(f"SET LOCAL enable_{way} = off")
        (told,) = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {sql}", values).one()
    plans = [each["Plan"] for each in (json.loads(told) if isinstance(told, str) else told)]
    while plans:
        plan = plans.pop()
        plans += plan.get("Plans", ())
        is_scan = plan["Node Type"] in ("Seq Scan", "Index Scan", "Index Only Scan")
        is_whole = "Index Cond" not in plan and plan.get("Index Name") != _UNPLACED
        if is_scan and is_whole and plan["Relation Name"] in TABLES:
            yield plan["Relation Name"]


def usual_work(store: SqlStore) -> None:
    """Captures, derives, shows, finds, corrects and erases."""
    unnamed = [chat(90 + n, [said("user", "hi")], "x", session="") for n in range(2)]
    fill(store, [*many(3, 2), *unnamed])
    project = store.project()
    one, other, *_ = project.sessions().items
    session_id = one.session.id
    trace_id = project.traces(Ask(parse(f"session:{session_id}"))).items[0].trace_id
    (turn_id, *_) = (head.id for head in project.turns(session_id=session_id).items)
    for noun, call in (
        (Noun.TRACES, project.traces), (Noun.SPANS, project.spans), (Noun.TURNS, project.turns)
    ):  # fmt: skip
        call(Ask(parse(f"session:{session_id}")))
        project.count(noun, parse(f"session:{session_id}"))
    project.spans(Ask(parse("request:0-1")))
    project.spans(Ask(parse(f"trace:{trace_id}")))
    project.turns(Ask(parse("request:0-1")))
    project.turns(Ask(parse(f"id:{turn_id}")))
    project.trace(trace_id)
    project.turn(turn_id)
    project.session(session_id)
    project.sessions_of_harness(one.session.harness_session_id)
    project.harnesses([one.session.harness_session_id])
    project.homes([trace_id], ["msg_1"])
    project.rows_of_session(session_id)
    project.find("0-1")
    list(project.stream_turns(session_id=session_id))
    store.turns_of(NO_ORG, session_id)
    project.correct(Correction(turn_id, "bench", "elsewhere", reason="a test"), by="a test")
    Projector(store).drain()
    project.erase([other.session.id], reason="a test", by="a test")


def test_no_statement_of_the_usual_work_reads_all_of_a_table(store: SqlStore) -> None:
    asked = statements(lambda: usual_work(store))
    assert len(asked) > 40
    found = {sql: set(scans(store, sql, values)) for sql, values in asked.items()}
    assert {sql: tables for sql, tables in found.items() if tables} == {}


@pytest.mark.parametrize("sql", ["SELECT count(*) FROM raw_turns", "SELECT input FROM spans"])
def test_what_reads_all_of_a_table_is_noticed(store: SqlStore, sql: str) -> None:
    assert list(scans(store, sql, ())) != []
