"""Answers that were given before."""

import math
import threading
import tracemalloc
from typing import Any

import pytest
from hypothesis import given

from tapes.canonical import DIRECTORY, TAPE, DictCanonicalizer
from tapes.hot import LIMIT_BYTES, NOT_HOT, HotAnswers
from tapes.jsontext import Copies
from tapes.report import Report
from tapes.tape.base import MemoryTape
from tests.strategies import OBJECTS


def table(canonicalizer: DictCanonicalizer = TAPE) -> tuple[HotAnswers, Report]:
    report = Report(MemoryTape(), "replay")
    return HotAnswers(canonicalizer, report), report


@pytest.mark.parametrize("rule", [TAPE, DIRECTORY])
@given(request_=OBJECTS, other=OBJECTS)
def test_an_answer_is_found_by_just_its_own_request(
    rule: DictCanonicalizer, request_: dict[str, Any], other: dict[str, Any]
) -> None:
    hot, _ = table(rule)
    hot.add(request_, "k", Copies({"n": 1}))
    again = dict(reversed(request_.items()))
    is_same = rule.text(other) == rule.text(request_)
    if hot.answer(request_) is NOT_HOT:
        assert hot.answer(other) is NOT_HOT  # the fast writer cannot say it: a very large number
        return
    assert hot.answer(again) == {"n": 1}
    assert (hot.answer(other) is not NOT_HOT) is is_same


def test_volatile_fields_do_not_hide_an_answer() -> None:
    hot, _ = table()
    hot.add({"a": 1, "timestamp": 1}, "k", Copies("yes"))
    assert hot.answer({"a": 1, "timestamp": 2, "cwd": "/"}) == "yes"


def test_nan_does_not_pass_for_null() -> None:
    hot, _ = table()
    hot.add({"a": None}, "k", Copies("yes"))
    assert hot.answer({"a": None}) == "yes"
    assert hot.answer({"a": math.nan}) is NOT_HOT


@pytest.mark.parametrize("request_", [None, [1], "text", {1: 2}, {"a": b"x"}, {"a": "\ud800"}])
def test_what_is_no_plain_request_is_not_found(request_: Any) -> None:
    assert table()[0].answer(request_) is NOT_HOT


def test_an_answer_may_be_none() -> None:
    hot, _ = table()
    hot.add({"a": 1}, "k", Copies(None))
    assert hot.answer({"a": 1}) is None


@pytest.mark.row("F07")
def test_every_answer_is_an_object_of_its_own() -> None:
    hot, _ = table()
    hot.add({"a": 1}, "k", Copies({"list": []}))
    hot.answer({"a": 1})["list"].append("changed")
    assert hot.answer({"a": 1}) == {"list": []}


def test_the_report_hears_of_every_answer_once() -> None:
    hot, report = table()
    hot.add({"a": 1}, "k", Copies(1))
    assert report.hits == {}
    for _ in range(3):
        hot.answer({"a": 1})
    assert report.hits == {"k": 3}
    hot.answer({"a": 1})
    hot.clear()
    assert report.hits == {"k": 4}
    assert hot.answer({"a": 1}) is NOT_HOT


@pytest.mark.row("N03")
def test_no_answer_is_lost_to_the_report_by_many_threads() -> None:
    hot, report = table()
    hot.add({"a": 1}, "k", Copies(1))

    def work() -> None:
        for _ in range(2000):
            hot.answer({"a": 1})
            if not _ % 500:
                assert report.hits["k"] > 0

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert report.hits == {"k": 12_000}


def test_memory_is_bounded() -> None:
    hot, report = table()
    answer = Copies("x" * (LIMIT_BYTES // 4))
    for n in range(6):
        hot.add({"n": n}, f"k{n}", answer)
        hot.answer({"n": n})
    assert hot.answer({"n": 0}) is NOT_HOT
    assert hot.answer({"n": 5}) is not NOT_HOT
    assert report.hits.total() == 7


def test_answers_take_no_more_memory_than_is_counted_for_them() -> None:
    hot, _ = table()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(3000):
            hot.add({"n": number}, f"{number:064}", Copies({"answer": number}))
        assert tracemalloc.get_traced_memory()[0] - before < 3000 * 1024
    finally:
        tracemalloc.stop()


def test_very_many_small_answers_are_not_all_remembered() -> None:
    hot, _ = table()
    some = LIMIT_BYTES // 512
    for number in range(some + 10):
        hot.add({"n": number}, "k", Copies(1))
    assert hot.answer({"n": 0}) is NOT_HOT
    assert hot.answer({"n": some + 9}) == 1
