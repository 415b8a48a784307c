"""Search works for everyone, the same in both databases."""

import re
from typing import Any

import pytest
from sqlalchemy import Engine, event

from tapes.errors import BadQuery
from tapes.projector import Projector
from tapes.store.base import Ask, Noun
from tapes.store.filters import parse
from tapes.store.sql import SqlStore
from tests.turns import chat, said

TEXTS = {"arabic": "مرحبا بالعالم", "japanese": "今日は天気がいい", "french": "naïve café"}


@pytest.fixture
def spoken(store: SqlStore) -> SqlStore:
    """A store with a prompt in each language, and the same words in an answer."""
    turns = [
        chat(number, [said("user", text)], "ok", session=name)
        for number, (name, text) in enumerate(TEXTS.items(), 1)
    ]
    turns.append(chat(9, [said("user", "greet them")], TEXTS["french"], session="answer"))
    store.append(turns)
    Projector(store).drain()
    return store


def found(store: SqlStore, query: str) -> list[str]:
    """The prompts of what is found."""
    hits = store.project().search(parse(query)).items
    traces = [store.project().trace(hit.span.trace_id) for hit in hits]
    return [trace.user_prompt for trace in traces if trace is not None]


@pytest.mark.row("D4", "D7")
@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("بالعالم", TEXTS["arabic"]),
        ("天気", TEXTS["japanese"]),
        ("cafe", TEXTS["french"]),
        ("café", TEXTS["french"]),
        ("cafe\u0301", TEXTS["french"]),
        ('"naïve café"', TEXTS["french"]),
        ("naiv*", TEXTS["french"]),
    ],
)
def test_words_of_every_script_are_found(spoken: SqlStore, query: str, first: str) -> None:
    assert found(spoken, query)[0] == first


def test_prompts_come_before_answers_and_both_are_marked(spoken: SqlStore) -> None:
    hits = spoken.project().search(parse("café")).items
    assert [hit.in_prompt for hit in hits] == [True, False]
    for hit in hits:
        shown = hit.excerpts[0]
        low, high = shown.places[0]
        assert shown.text[low:high] == "café"


def test_words_that_are_not_together_are_no_phrase(spoken: SqlStore) -> None:
    assert found(spoken, '"café naïve"') == []
    assert found(spoken, "café -naïve") == []
    assert len(found(spoken, "café OR 天気")) == 3


def test_what_stands_together_in_the_answer_alone_is_met_once(store: SqlStore) -> None:
    store.append([chat(1, [said("user", "policy of refund")], "the refund policy")])
    Projector(store).drain()
    assert [hit.in_prompt for hit in store.project().search(parse('"refund policy"')).items] == [
        False
    ]


def test_a_word_that_must_not_stand_there_may_not_stand_in_the_answer(store: SqlStore) -> None:
    store.append([chat(1, [said("user", "refund please")], "no cat here")])
    Projector(store).drain()
    assert found(store, "refund -dog") == ["refund please"]
    assert found(store, "refund -cat") == []


def some_with(store: SqlStore, word: str, with_it: range, of: int) -> None:
    """So many sessions, each later than the one before, of which some have a word."""
    store.append([
        chat(n, [said("user", word if n in with_it else "hay")], "ok", session=f"s{n}")
        for n in range(of)
    ])  # fmt: skip
    Projector(store).drain()


@pytest.mark.parametrize("few", [3000, 0], ids=["few", "many"])
@pytest.mark.parametrize("newest", [5000, 6], ids=["near", "far"])
def test_what_has_a_word_is_found_however_many_have_it(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, few: int, newest: int
) -> None:
    for name, value in (("_FEW", few), ("_LOOK_UP", 0), ("_NEWEST", newest)):
        monkeypatch.setattr(f"tapes.store.searching.{name}", value)
    some_with(store, "needle", range(5), of=10)
    project, where = store.project(), parse("needle")
    for page in (project.sessions(Ask(where=where, limit=n)) for n in (3, 50)):
        names = [each.session.harness_session_id for each in page.items]
        assert names == ["s4", "s3", "s2", "s1", "s0"][: len(names)]
        assert len(names) == min(5, 3 if page.next_cursor else 5)
    assert len(project.traces(Ask(where=where)).items) == 5
    assert len(project.turns(Ask(where=where)).items) == 5
    for noun in (Noun.SESSIONS, Noun.TRACES, Noun.TURNS):
        assert project.count(noun, where).value == 5
        assert project.count(noun, parse("-needle")).value == 5


def plan_of_sessions(store: SqlStore, query: str) -> str:
    """How the database finds the sessions with some words."""
    asked: list[tuple[str, Any]] = []

    def note(*args: Any) -> None:
        asked.append((args[2], args[3]))

    event.listen(Engine, "before_cursor_execute", note)
    try:
        store.project().sessions(Ask(where=parse(query)))
    finally:
        event.remove(Engine, "before_cursor_execute", note)
    statement, values = next(each for each in asked if "FROM sessions LEFT" in each[0])
    explain = "EXPLAIN QUERY PLAN "
    with store.database.reading() as connection:
        if store.database.is_postgres:  # a few rows: to read them all is left to it if it has to
            explain = "EXPLAIN "
            for way in ("seqscan", "hashjoin", "mergejoin", "bitmapscan"):
                connection.exec_driver_sql(f"SET LOCAL enable_{way} = off")
        found = connection.exec_driver_sql(explain + statement, values)
        return "\n".join(str(row[-1]) for row in found)


def test_sessions_with_a_rare_word_are_one_list_of_ids(store: SqlStore) -> None:
    some_with(store, "needle", range(1), of=10)
    plan = plan_of_sessions(store, "needle")
    # PostgreSQL finds out whether each session is one of these where there are two lists of them.
    assert "hashed SubPlan" not in plan, plan
    assert store.database.is_postgres or plan.count("COMPOUND QUERY") == 1, plan


def test_sessions_with_a_common_word_are_looked_at_from_the_latest_on(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_FEW", "_LOOK_UP"):
        monkeypatch.setattr(f"tapes.store.searching.{name}", 0)
    some_with(store, "needle", range(9), of=10)
    plan = plan_of_sessions(store, "needle")
    if store.database.is_postgres:
        assert re.search(r" on spans .*\n.*session_id = sessions\.id", plan), plan
    else:
        assert "INDEX spans_by_session (org_id=? AND session_id=?)" in plan, plan


def test_a_query_without_words_says_so(spoken: SqlStore) -> None:
    with pytest.raises(BadQuery, match="no words"):
        spoken.project().search(parse("model:x"))


@pytest.mark.row("D4")
def test_any_id_is_found_by_its_first_characters(spoken: SqlStore) -> None:
    project = spoken.project()
    (listed, *_) = project.sessions().items
    for text in (listed.session.id, listed.session.id[:8]):
        (thing,) = (each for each in project.find(text) if each.noun is Noun.SESSIONS)
        assert thing.id == listed.session.id
    rows = project.rows_of_session(listed.session.id)
    assert project.find(rows.traces[0].trace_id)[0].id == rows.traces[0].trace_id
    assert project.find("ffffffff-none") == ()
