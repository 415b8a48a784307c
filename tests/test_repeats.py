"""Several answers to one request."""

import asyncio
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest

from tapes import ordered, repeats, sample
from tapes.errors import BadSetting
from tapes.repeats import Order, chosen_order, chosen_sample


def test_by_default_nothing_is_chosen() -> None:
    assert chosen_order() is None
    assert chosen_sample() is None
    assert repeats.in_use == 0


def test_a_context_chooses_and_lets_go() -> None:
    with sample(2):
        assert (chosen_sample(), repeats.in_use) == (2, 1)
        with sample(0), ordered():
            assert (chosen_sample(), repeats.in_use) == (0, 3)
            assert chosen_order() is not None
        assert chosen_sample() == 2
    assert (chosen_sample(), repeats.in_use) == (None, 0)


def test_a_context_lets_go_after_an_error() -> None:
    with pytest.raises(KeyError), ordered():
        raise KeyError
    assert repeats.in_use == 0


def test_a_negative_sample_is_none() -> None:
    with pytest.raises(BadSetting, match="0 or more, not -1"), sample(-1):
        pass


def test_an_order_counts_each_request() -> None:
    order = Order()
    assert [order.next(key) for key in "aabab"] == [0, 1, 0, 2, 1]


def test_the_last_number_can_be_given_back_and_no_other() -> None:
    order = Order()
    order.next("a")
    order.next("a")
    order.give_back("a", 0)
    assert order.next("a") == 2
    order.give_back("a", 2)
    assert order.next("a") == 2


@pytest.mark.row("N04")
def test_threads_never_get_the_same_number() -> None:
    order = Order()
    with ThreadPoolExecutor(8) as pool:
        numbers = list(pool.map(lambda _: order.next("a"), range(500)))
    assert sorted(numbers) == list(range(500))


def test_tasks_share_the_order_of_the_context_that_made_them() -> None:
    async def ask() -> int:
        order = chosen_order()
        assert order is not None
        return order.next("a")

    async def main() -> set[int]:
        with ordered():
            return set(await asyncio.gather(ask(), ask(), ask()))

    assert asyncio.run(main()) == {0, 1, 2}


def test_a_group_keeps_nothing_of_calls_that_came_to_nothing() -> None:
    order = Order()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(5000):
            order.give_back(f"{number:064}", order.next(f"{number:064}"))
        assert tracemalloc.get_traced_memory()[0] - before < 50_000
    finally:
        tracemalloc.stop()
