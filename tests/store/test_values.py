"""Numbers, money and times as people type them."""

from decimal import Decimal

import pytest

from tapes.errors import BadQuery
from tapes.rows import LATEST
from tapes.store.values import dollars, length, moment, number

SECOND = 1_000_000_000


def test_what_people_type_is_the_number_that_they_mean() -> None:
    assert [number(text) for text in ("120", "10k", "1.5M", "-3")] == [120, 10_000, 1_500_000, -3]
    assert [length(text) for text in ("500ms", "2s", "1.5m", "3")] == [
        SECOND // 2, 2 * SECOND, 90 * SECOND, 3 * SECOND,
    ]  # fmt: skip
    assert dollars("$0.5") == Decimal("0.5")
    assert moment("2s", 10 * SECOND) == 8 * SECOND


@pytest.mark.parametrize("text", ["1e999999", "1e99999999", "1e999999k", "9" * 400, "9e18g"])
def test_a_number_beyond_all_columns_is_the_largest_of_them(text: str) -> None:
    assert number(text) == LATEST
    assert number(f"-{text}") == -LATEST


def test_a_time_beyond_all_clocks_is_the_first_or_the_longest_of_them() -> None:
    assert length("99999999w") == LATEST
    assert moment("99999999w", SECOND) == 0


@pytest.mark.parametrize("text", ["nan", "inf", "-Infinity", "many", ""])
def test_what_is_no_number_says_so(text: str) -> None:
    with pytest.raises(BadQuery):
        number(text)
