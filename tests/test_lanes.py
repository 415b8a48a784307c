"""Which cassette a request belongs to, and what every shell does with its verdict."""

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tapes import Cassette, lanes
from tapes.errors import BadSetting, CassetteMiss, TapeFailed, UnwritableTape
from tapes.exchange import Piece, Request, Response
from tapes.lanes import Answer, Lane
from tapes.tape.base import MemoryTape


def a_lane() -> Lane:
    return Lane(Cassette(MemoryTape()))


def test_there_is_no_lane_unless_one_is_open() -> None:
    assert lanes.current() is None


def test_the_context_comes_before_the_process() -> None:
    mine, other = a_lane(), a_lane()
    lanes.enter(mine)
    with ThreadPoolExecutor(1) as pool:
        pool.submit(lanes.enter, other).result()  # a context of its own
        assert (lanes.current(), pool.submit(lanes.current).result()) == (mine, other)
        lanes.leave(mine)
        assert lanes.current() is other
        lanes.leave(other)
        assert (lanes.current(), pool.submit(lanes.current).result()) == (None, None)


def test_lanes_may_be_left_in_any_order() -> None:
    outer, inner = a_lane(), a_lane()
    lanes.enter(outer)
    lanes.enter(inner)
    lanes.leave(outer)
    assert lanes.current() is inner
    lanes.leave(inner)
    assert lanes.current() is None


def test_a_call_can_be_given_its_own_lane_or_none() -> None:
    mine, own = a_lane(), a_lane()
    lanes.enter(mine)
    with lanes.for_this_call(own):
        assert lanes.current() is own
        with lanes.for_this_call(None):
            assert lanes.current() is None
    assert lanes.current() is mine
    lanes.leave(mine)


@pytest.mark.parametrize(
    ("pace", "factor"), [("at once", 0), ("as recorded", 1), (0, 0), (0.5, 0.5), (3, 3)]
)
def test_a_pace_is_a_factor(pace: str | float, factor: float) -> None:
    assert lanes.pace_of(pace) == factor


@pytest.mark.parametrize("pace", ["", "At once", -0.1, float("inf"), float("nan")])
def test_what_is_no_pace_is_refused(pace: str | float) -> None:
    with pytest.raises(BadSetting, match="pace="):
        lanes.pace_of(pace)


def test_a_piece_is_due_at_its_time() -> None:
    response, piece = Response(200), Piece(10.0, b"x")
    asked_at = 1_000_000_000.0  # a clock that has not come so far
    assert Answer(response, 0, asked_at).wait(piece) == 0
    whole = Answer(response, 1, asked_at).wait(piece)
    assert Answer(response, 2, asked_at).wait(piece) == pytest.approx(whole + 10, abs=1)
    assert Answer(response, 1, -1_000_000_000.0).wait(piece) == 0


def test_a_sample_is_taken_from_the_headers() -> None:
    headers = (("A", "1"), ("X-Tapes-Sample", " 3 "), ("a", "2"))
    assert lanes.without_sample(headers) == ((("A", "1"), ("a", "2")), 3)
    assert lanes.without_sample(headers[:1]) == (headers[:1], None)


@pytest.mark.parametrize(
    ("failure", "shown"),
    [
        (UnwritableTape("no room", "make some"), "no room"),
        (OSError("no room"), "OSError: no room"),
        (ValueError("a bug"), "ValueError: a bug"),
    ],
)
def test_a_failure_of_our_own_becomes_a_refusal(failure: Exception, shown: str) -> None:
    def fail() -> None:
        raise failure

    error = lanes.outcome(fail)
    assert isinstance(error, TapeFailed)
    assert (error.message, error.__cause__) == (shown, failure)
    with pytest.raises(TapeFailed):
        lanes.end(fail)


def test_a_refusal_of_a_worker_thread_comes_back_as_a_value() -> None:
    miss = CassetteMiss("no answer")

    def refuse() -> None:
        raise miss

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(lanes.outcome, refuse).result() is miss


def test_a_setting_that_cannot_be_read_ends_the_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = Lane(Cassette(tmp_path / "tape.jsonl", "record"))
    monkeypatch.setenv("CASSETTE_LIVE_BUDGET", "many")
    with pytest.raises(TapeFailed, match="CASSETTE_LIVE_BUDGET"):
        lanes.settle(lane, Request("GET", "http://provider.test/"), None)


def test_own_work_is_known_in_its_thread_alone() -> None:
    seen: list[bool] = []
    with lanes.own_work(), lanes.own_work():
        thread = threading.Thread(target=lambda: seen.append(lanes.is_own_work()))
        thread.start()
        thread.join(10)
        seen.append(lanes.is_own_work())
    assert [*seen, lanes.is_own_work()] == [False, True, False]


def test_what_a_destructor_leaves_is_done_once_no_lock_can_be_held() -> None:
    done: list[str] = []

    def work() -> None:
        lanes.end(lambda: done.append("from within"))  # as if a collector had come
        done.append("work")

    lanes.end(work)
    lanes.forget(lambda: done.append("forgotten"))
    assert done == ["work"]
    lanes.end_forgotten()
    assert done == ["work", "from within", "forgotten"]


def test_lanes_that_were_left_in_another_order_are_forgotten() -> None:
    def overlap() -> list[weakref.ref[Cassette]]:
        first, second = a_lane(), a_lane()
        lanes.enter(first)
        lanes.enter(second)
        lanes.leave(first)
        lanes.leave(second)
        return [weakref.ref(first.cassette), weakref.ref(second.cassette)]

    gone = [ref for _ in range(20) for ref in overlap()]
    gc.collect()
    assert lanes.current() is None
    assert [ref() for ref in gone] == [None] * 40


def test_a_context_keeps_none_of_the_lanes_that_others_left_for_it() -> None:
    gone = []
    with ThreadPoolExecutor(1) as pool:
        for _ in range(20):
            lane = a_lane()
            lanes.enter(lane)
            pool.submit(lanes.leave, lane).result()  # from a context of its own
            gone.append(weakref.ref(lane.cassette))
            del lane
        last = a_lane()
        lanes.enter(last)
        gc.collect()
        assert sum(ref() is not None for ref in gone) <= 1
        lanes.leave(last)
