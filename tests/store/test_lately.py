"""Sums over very many rows are given again for a while; those over few never are."""

from collections.abc import Callable

import pytest

from tapes.store.lately import MANY, Lately


class Clock:
    """A time that goes on when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    def taking(self, seconds: float, answer: int) -> Callable[[], int]:
        def ask() -> int:
            self.now += seconds
            return answer

        return ask


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("time.monotonic", clock)
    return clock


def test_a_sum_over_many_rows_holds_for_twenty_times_as_long_as_it_took(clock: Clock) -> None:
    sums = Lately[int](lambda rows: rows)
    assert sums.of("a", clock.taking(2, MANY + 1)) == MANY + 1
    clock.now += 39
    assert sums.of("a", clock.taking(2, MANY + 2)) == MANY + 1
    assert sums.of("b", clock.taking(0, MANY + 3)) == MANY + 3
    clock.now += 2
    assert sums.of("a", clock.taking(2, MANY + 2)) == MANY + 2


def test_a_sum_over_few_rows_is_always_of_now(clock: Clock) -> None:
    sums = Lately[int](lambda rows: rows)
    assert [sums.of("a", clock.taking(9, number)) for number in (MANY, 7, 8)] == [MANY, 7, 8]


def test_what_was_erased_is_in_no_sum(clock: Clock) -> None:
    sums = Lately[int](lambda rows: rows)
    sums.of("a", clock.taking(2, MANY + 1))
    sums.forget()
    assert sums.of("a", clock.taking(2, MANY + 2)) == MANY + 2


def test_so_many_sums_are_remembered(clock: Clock) -> None:
    sums = Lately[int](lambda rows: rows)
    for number in range(100):
        sums.of(number, clock.taking(2, MANY + 1))
    assert sums.of(99, clock.taking(0, 0)) == MANY + 1
    assert sums.of(0, clock.taking(0, 0)) == 0
