"""Search works for everyone, the same in both databases."""

import pytest

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


@pytest.mark.parametrize(
    ("rare", "near"), [(2000, 5000), (1, 1000), (1, 0)], ids=["few", "near", "far"]
)
def test_sessions_are_found_by_their_words_however_many_have_them(
    store: SqlStore, monkeypatch: pytest.MonkeyPatch, rare: int, near: int
) -> None:
    for name, value in (("_RARE", rare), ("_NEAR", near), ("_PAGE", 1)):
        monkeypatch.setattr(f"tapes.store.sqlite.{name}", value)
    words = ("needle",) * 4 + ("hay",) * 6
    store.append([
        chat(number, [said("user", word)], "ok", session=f"s{number}")
        for number, word in enumerate(words)
    ])  # fmt: skip
    Projector(store).drain()
    project = store.project()
    found = project.sessions(Ask(where=parse("needle"))).items
    assert {each.session.harness_session_id for each in found} == {"s0", "s1", "s2", "s3"}
    assert project.count(Noun.SESSIONS, parse("needle")).value == 4


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
