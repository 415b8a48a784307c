"""Recorded advice to wait, without the wait."""

from tapes.exchange import Response
from tapes.waiting import at_once


def test_advice_to_wait_becomes_advice_to_go_on() -> None:
    response = Response(429, (("a", "b"), ("Retry-After", "30"), ("c", "d")))
    assert at_once(response).headers == (
        ("a", "b"), ("c", "d"), ("retry-after", "0"), ("retry-after-ms", "1"),
    )  # fmt: skip


def test_an_answer_without_advice_stays_the_same_object() -> None:
    response = Response(429, (("a", "b"),))
    assert at_once(response) is response
