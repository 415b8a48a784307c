"""What people type becomes conditions, or an error that says where."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes.errors import BadQuery
from tapes.store.filters import (
    EVERYTHING,
    All,
    Condition,
    Field,
    Has,
    Not,
    Op,
    Some,
    Text,
    both,
    is_,
    parse,
    texts_in,
)

CASES: list[tuple[str, Condition]] = [
    ("", EVERYTHING),
    ("refund", Text("refund")),
    ("refund policy", All((Text("refund"), Text("policy", place=7)))),
    ('"refund policy"', Text("refund policy")),
    ("refund*", Text("refund", as_prefix=True)),
    ("a OR b", Some((Text("a"), Text("b", place=5)))),
    ("-refund", Not(Text("refund", place=1))),
    ("model:opus", Field("model", Op.IS, "opus")),
    ("model:claude*", Field("model", Op.BEGINS, "claude")),
    ("cost:>0.5", Field("cost", Op.MORE, "0.5")),
    ("tokens:<=10k", Field("tokens", Op.MOST, "10k")),
    ("has:error", Has("error")),
    ('name:"two words"', Field("name", Op.IS, "two words")),
    ("see https://x.test", All((Text("see"), Text("https://x.test", place=4)))),
]


@pytest.mark.parametrize(("text", "condition"), CASES, ids=[text for text, _ in CASES])
def test_a_query_is_read(text: str, condition: Condition) -> None:
    assert parse(text) == condition


def test_several_values_are_alternatives_and_two_dots_a_range() -> None:
    assert parse("model:a,b") == Some((Field("model", Op.IS, "a"), Field("model", Op.IS, "b")))
    assert parse("cost:1..5") == All((Field("cost", Op.LEAST, "1"), Field("cost", Op.MOST, "5")))


@pytest.mark.parametrize(
    ("text", "place"), [("a )", 2), ("(a", 0), ('say "hi', 4), ("OR a", 0), ("a OR", 2)]
)
def test_what_cannot_be_read_is_an_error_with_its_place(text: str, place: int) -> None:
    with pytest.raises(BadQuery) as error:
        parse(text)
    assert error.value.position == place


@pytest.mark.parametrize("text", ["model:*opus*", "model:claude*opus", "model:a,*b", "error:*"])
def test_a_star_that_would_find_nothing_is_an_error(text: str) -> None:
    with pytest.raises(BadQuery, match=r"at character 1: (model|error): .*\*"):
        parse(text)
    name, _, value = text.partition(":")
    assert parse(f'{name}:"{value}"') == Field(name, Op.IS, value)


@given(st.text(alphabet='ab:"()- *OR><=,.\\', max_size=40))
def test_any_text_is_a_condition_or_an_error_within_it(text: str) -> None:
    place = 0
    try:
        parse(text)
    except BadQuery as error:
        place = error.position
    assert 0 <= place <= len(text)


def test_words_that_must_not_stand_there_are_not_looked_for() -> None:
    assert list(texts_in(parse("a -b (c OR d) model:e"))) == [
        Text("a"), Text("c", place=6), Text("d", place=11),
    ]  # fmt: skip


def test_conditions_are_put_together_flat() -> None:
    assert both(parse("a b"), is_("model", "m")) == All(
        (Text("a"), Text("b", place=2), Field("model", Op.IS, "m"))
    )
