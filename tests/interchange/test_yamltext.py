"""YAML that means more than it says, or what it must not."""

import pytest
from hypothesis import given

from tapes.errors import ForeignFile
from tapes.interchange.yamltext import dump, load
from tests.interchange.made import TEXTS


def test_aliases_are_read() -> None:
    assert load("a: &x [1, 2]\nb: *x\n") == {"a": [1, 2], "b": [1, 2]}


def test_aliases_that_stand_for_far_more_than_they_say_are_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    with pytest.raises(ForeignFile, match="far more than it says"):
        load("\n".join(lines))


def test_a_value_that_contains_itself_is_refused() -> None:
    with pytest.raises(ForeignFile, match="contains itself"):
        load("a: &a [1, *a]")


def test_a_value_nested_without_end_is_refused() -> None:
    with pytest.raises(ForeignFile):
        load("[" * 100_000 + "]" * 100_000)


def test_two_documents_are_refused() -> None:
    with pytest.raises(ForeignFile, match="single document"):
        load("a: b\n---\nc: d\n")


@given(TEXTS)
def test_every_text_comes_back(text: str) -> None:
    assert load(dump({"text": text, "bytes": text.encode()})) == {
        "text": text,
        "bytes": text.encode(),
    }


def test_what_is_written_is_ascii() -> None:
    assert dump({"a": "ü\u2028"}).isascii()
