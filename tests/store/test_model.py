"""How the read model is written."""

from dataclasses import replace
from random import Random
from string import ascii_letters
from typing import Any

import pytest
from sqlalchemy import Engine, event

from tapes.derive.deriver import derive
from tapes.projector import Projector
from tapes.rows import NO_ORG, Projection, Span, SpanKind
from tapes.store.filters import parse
from tapes.store.model import ModelWriter, words_of
from tapes.store.modelforms import row_as_kept
from tapes.store.spantexts import said_by
from tapes.store.sql import SqlStore
from tests.turns import assistant, call, chat, messages, said, user


def rows_of(number: int) -> Projection:
    return derive([chat(number, [said("user", f"zebra{number}")], "yes", session=f"s{number}")])


def write(store: SqlStore, *projections: Projection) -> int:
    made = {rows.sessions[0].id: rows for rows in projections}
    with store.database.writing() as connection:
        return ModelWriter(store.database, connection, NO_ORG).replace(made)


def found(store: SqlStore, word: str) -> list[Span]:
    return [hit.span for hit in store.project().search(parse(word)).items]


def statements_for(store: SqlStore, *projections: Projection) -> int:
    seen: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
        seen.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        write(store, *projections)
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    return len(seen)


def test_many_sessions_take_as_many_statements_as_one(store: SqlStore) -> None:
    write(store, rows_of(1))
    alone = statements_for(store, rows_of(2))
    assert alone > 5
    assert statements_for(store, *(rows_of(n) for n in range(3, 40))) == alone


def test_what_did_not_change_is_not_written(store: SqlStore) -> None:
    assert write(store, rows_of(1), rows_of(2)) > 0
    seq = store.project().seq()
    assert write(store, rows_of(1), rows_of(2)) == 0
    assert store.project().seq() == seq


def test_each_session_of_several_gets_a_number_of_its_own(store: SqlStore) -> None:
    write(store, rows_of(1), rows_of(2), rows_of(3))
    assert [change.seq for change in store.project().changes(0)] == [1, 2, 3]


def test_rows_that_move_to_another_session_are_there_once(store: SqlStore) -> None:
    one, other = rows_of(1), rows_of(2)
    write(store, one, other)
    session = other.sessions[0].id
    moved = replace(
        other,
        traces=(*other.traces, *(replace(row, session_id=session) for row in one.traces)),
        spans=(*other.spans, *(replace(row, session_id=session) for row in one.spans)),
        links=(*other.links, *(replace(row, session_id=session) for row in one.links)),
    )
    write(store, replace(one, traces=(), spans=(), links=()), moved)
    project = store.project()
    assert not project.rows_of_session(one.sessions[0].id).traces
    assert len(project.rows_of_session(session).spans) == len(one.spans) + len(other.spans)
    assert [span.session_id for span in found(store, "zebra1")] == [session]


def test_words_stay_in_the_index_while_other_parts_of_a_row_change(store: SqlStore) -> None:
    turn = chat(1, [said("user", "zebra")], "yes", session="s1", request_id="one")
    store.append([turn])
    Projector(store).drain()
    more = [said("user", "zebra"), said("assistant", "yes"), said("user", "giraffe")]
    store.append([chat(2, more, "no", session="s1", request_id="two", begins=20)])
    Projector(store).drain()
    for word in ("zebra", "giraffe"):
        assert len(found(store, word)) == 1


def test_ids_and_names_that_no_index_can_hold_are_told_by_their_beginning_and_hash(
    store: SqlStore,
) -> None:
    def long(seed: int) -> str:
        return "".join(Random(seed).choices(ascii_letters, k=4000))

    name, thread, model = long(1), long(2), long(3)
    store.append(
        [
            messages(1, [user("go")], assistant(call(long(4), name, command="x")), model=model),
            messages(2, [user("on")], assistant("ok"), thread=thread),
        ]
    )
    projector = Projector(store)
    assert projector.drain().failed == 0
    assert list(projector.check()) == []
    (session,) = store.project().sessions().items
    rows = store.project().rows_of_session(session.session.id)
    tool = next(span for span in rows.spans if span.kind is SpanKind.TOOL)
    assert (tool.name[:64], len(tool.name)) == (name[:64], 129)
    shown = {span.span_id for span in rows.spans}
    assert all({link.from_span_id, link.to_span_id} <= shown for link in rows.links)
    assert {link.to_span_id for link in rows.links} >= {tool.span_id}
    assert store.mark_dirty() == 1
    assert projector.drain().changed == 0


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1, 10**30, 1e22, -0.0])
def test_a_row_is_taken_out_of_the_index_with_the_words_with_which_it_came(number: float) -> None:
    block = {"type": "tool_use", "tool_input": {"n": number, "t": "a\0b \ud800"}}
    row = Span(trace_id="t", span_id="s", kind=SpanKind.TOOL, name="f", input=(block,))
    kept = row_as_kept(row)
    assert words_of(1, NO_ORG, said_by(kept)) == words_of(1, NO_ORG, said_by(row))
