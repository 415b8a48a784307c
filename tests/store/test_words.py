"""Words are found in every script, whatever their case, accents and composition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes.rows import Span, SpanKind
from tapes.store.spantexts import said_by
from tapes.store.words import (
    TERM_LIMIT,
    asked_terms,
    excerpt,
    folded,
    places_of,
    stands_in,
    terms_of,
    terms_of_all,
)


@pytest.mark.parametrize("asked", ["cafe", "café", "cafe\u0301", "CAFÉ"])
def test_accents_case_and_composition_make_no_difference(asked: str) -> None:
    assert folded(asked) == "cafe"
    assert set(asked_terms(asked)) <= terms_of("naïve café")
    assert stands_in(asked, "naïve café")


@pytest.mark.parametrize(
    ("asked", "text", "stands"),
    [
        ("بالعالم", "مرحبا بالعالم", True),
        ("天気", "今日は天気がいい", True),
        ("天", "今日は天気がいい", True),
        ("気天", "今日は天気がいい", False),
        ("fund", "refund policy", False),
        ("refund  policy", "refund\npolicy", True),
        ("tool.name", "the tool.name here", True),
        ("", "anything", False),
    ],
)
def test_what_is_asked_for_stands_or_does_not(asked: str, text: str, stands: bool) -> None:
    assert stands_in(asked, text) is stands
    assert bool(list(places_of(asked, text))) is stands


def test_a_prefix_stands_where_a_word_begins() -> None:
    assert stands_in("ref", "a refund", as_prefix=True)
    assert not stands_in("fund", "a refund", as_prefix=True)


@given(st.text(max_size=60), st.integers(0, 59), st.integers(1, 20))
def test_what_stands_in_a_text_is_found_by_its_terms(text: str, start: int, length: int) -> None:
    part = text[start : start + length]
    if stands_in(part, text):
        assert set(asked_terms(part)) <= terms_of(text)


@given(st.text(max_size=200))
def test_a_text_that_is_read_in_pieces_has_the_same_terms(text: str) -> None:
    text = " ".join(word[:8] for word in text.split())
    whole = terms_of(text)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tapes.store.words._PIECE", 16)
        assert terms_of(text) == whole


def test_a_long_text_has_the_terms_of_its_beginning() -> None:
    text = " ".join(f"n{number}" for number in range(200_000))
    terms = terms_of_all([text])
    assert len(terms) == TERM_LIMIT
    assert {"n0", "n7"} <= terms
    assert len(terms_of(text)) < 2 * TERM_LIMIT


def test_media_in_a_text_are_no_words() -> None:
    picture = {"type": "image", "image_url": "data:image/png;base64,iVBOR/w0KGgo+AAAA"}
    link = {"type": "image", "image_url": "https://h.test/cat.png"}
    asked = ({"type": "text", "text": "look"}, picture, link)
    span = Span(trace_id="t", span_id="s", kind=SpanKind.LLM, input=asked)
    assert [each.text for each in said_by(span)] == ["look", "https://h.test/cat.png"]


@pytest.mark.parametrize(
    ("asked", "text", "places"),
    [
        ("0 0", "0 \u00a80", [(0, 4)]),  # a blank that bears a mark
        ("1", "\u00bd cup", [(0, 1)]),  # one character that is read as three
        ("a b", "a \u3000 b", [(0, 5)]),
    ],
)
def test_what_is_read_as_more_or_fewer_characters_has_its_place(
    asked: str, text: str, places: list[tuple[int, int]]
) -> None:
    assert list(places_of(asked, text)) == places


@given(st.text(max_size=60), st.text(min_size=1, max_size=8))
def test_places_are_in_the_original_text_and_in_order(text: str, asked: str) -> None:
    places = list(places_of(asked, text))
    assert bool(places) is stands_in(asked, text)
    assert all(0 <= low < high <= len(text) for low, high in places)
    assert places == sorted(places)


def test_an_excerpt_shows_the_first_place_and_marks_it() -> None:
    text = "x " * 500 + "the needle here" + " y" * 500
    shown, ((low, high),) = excerpt(text, places_of("needle", text))
    assert shown[low:high] == "needle"
    assert len(shown) <= 250
