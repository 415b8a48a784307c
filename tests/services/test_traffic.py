import pytest

from tapes.errors import Busy
from tapes.services.traffic import Breaker, Limits, Traffic, metrics_text

LIMITS = Limits(at_once=2, failures=2, rest_s=1.0, longest_rest_s=4.0)


def fails(breaker: Breaker, now: float, times: int) -> None:
    for _ in range(times):
        which = breaker.enter("x", now)
        breaker.failed(which, now)
        breaker.left(which)


def test_a_service_rests_after_failures_in_a_row_and_an_answer_ends_the_count() -> None:
    breaker = Breaker(LIMITS)
    fails(breaker, 0.0, 1)
    breaker.answered()
    fails(breaker, 0.0, 2)
    assert breaker.is_open
    with pytest.raises(Busy, match="not asked now") as caught:
        breaker.enter("x", 0.5)
    assert caught.value.retry_after_s == 1.0


def test_after_its_rest_one_request_tries_a_service_and_others_wait() -> None:
    breaker = Breaker(LIMITS)
    fails(breaker, 0.0, 2)
    breaker.enter("x", 1.5)
    with pytest.raises(Busy):
        breaker.enter("x", 1.5)
    breaker.answered()
    breaker.enter("x", 1.5)
    assert not breaker.is_open


def test_a_rest_grows_with_every_failure_up_to_its_longest() -> None:
    breaker, now = Breaker(LIMITS), 0.0
    fails(breaker, now, 2)
    for rest in (1.0, 2.0, 4.0, 4.0):
        with pytest.raises(Busy):
            breaker.enter("x", now + rest - 0.01)
        now += rest
        fails(breaker, now, 1)


def test_a_burst_of_requests_that_fail_together_is_one_reason_to_rest() -> None:
    breaker = Breaker(LIMITS)
    for _ in range(50):
        breaker.enter("x", 0.0)
    for late in range(50):
        breaker.failed(0, 1.0 + late / 1000)
    tries = breaker.enter("x", 2.1)
    breaker.failed(0, 2.2)  # the last one of the burst
    breaker.failed(tries, 2.2)
    breaker.left(tries)
    with pytest.raises(Busy):
        breaker.enter("x", 4.1)
    breaker.enter("x", 4.3)


def test_a_try_that_its_client_left_is_nobodys_failure() -> None:
    breaker = Breaker(LIMITS)
    fails(breaker, 0.0, 2)
    breaker.left(breaker.enter("x", 1.0))
    breaker.enter("x", 1.0)


def test_older_requests_that_end_make_no_room_for_a_second_try() -> None:
    breaker = Breaker(LIMITS)
    older = breaker.enter("x", 0.0)
    fails(breaker, 0.0, 2)
    tries = breaker.enter("x", 1.5)
    breaker.left(older)
    with pytest.raises(Busy):
        breaker.enter("x", 1.5)
    breaker.failed(0, 1.5)  # another older one
    with pytest.raises(Busy):
        breaker.enter("x", 9.0)
    breaker.left(tries)
    breaker.enter("x", 9.0)


def test_a_service_has_its_slots_and_gets_them_back() -> None:
    traffic = Traffic("x", LIMITS)
    first = traffic.enter(0.0)
    traffic.enter(0.0)
    with pytest.raises(Busy, match="2 requests under way"):
        traffic.enter(0.0)
    traffic.leave(first)
    traffic.enter(0.0)
    assert (traffic.in_flight, traffic.failures["busy"]) == (2, 1)


def test_counters_are_text_in_the_form_that_is_collected() -> None:
    traffic = Traffic("daily-summary", LIMITS)
    traffic.answered(204, 0.003)
    traffic.answered(500, 99.0)
    traffic.failed("unreachable", 0, 0.0)
    traffic.calls["daily-summary.run", "error"] += 1
    text = metrics_text([traffic], {"daily-summary": "up"})
    lines = text.splitlines()
    for line in (
        'tapes_cassette_requests_total{cassette="daily-summary",status="2xx"} 1',
        'tapes_cassette_failures_total{cassette="daily-summary",reason="unreachable"} 1',
        'tapes_cassette_tool_calls_total{cassette="daily-summary",tool="daily-summary.run",'
        'outcome="error"} 1',
        'tapes_cassette_answer_seconds_bucket{cassette="daily-summary",le="0.005"} 1',
        'tapes_cassette_answer_seconds_bucket{cassette="daily-summary",le="+Inf"} 2',
        'tapes_cassette_health{cassette="daily-summary",state="up"} 1',
    ):
        assert line in lines
    assert text.endswith("\n")


def test_limits_that_change_hold_for_what_comes_later() -> None:
    traffic = Traffic("x", Limits(at_once=1, failures=1))
    traffic.enter(0.0)
    with pytest.raises(Busy, match="as many as it may have"):
        traffic.enter(0.0)
    traffic.hold_to(Limits(at_once=3, failures=2))
    traffic.enter(0.0)
    traffic.failed("unreachable", 0, 0.0)
    assert not traffic.breaker.is_open
    traffic.hold_to(Limits(at_once=3, failures=1))
    assert traffic.breaker.is_open
