"""Whether a decision can only stem from a live answer."""

import gc
import threading
import weakref
from contextvars import copy_context

from tapes.origin import Origins


def test_without_any_answer_no_decision_is_live() -> None:
    assert not Origins().decision_is_live


def test_a_live_answer_makes_decisions_live_once_it_is_whole() -> None:
    origins = Origins()
    answer = origins.begin_live()
    assert not origins.decision_is_live
    answer.came()
    assert origins.decision_is_live


def test_an_answer_from_the_tape_makes_them_doubtful_until_the_next_live_one() -> None:
    origins = Origins()
    origins.begin_live().came()
    origins.from_tape()
    assert not origins.decision_is_live
    origins.begin_live().came()
    assert origins.decision_is_live


def test_a_call_that_failed_leaves_the_doubt() -> None:
    origins = Origins()
    origins.from_tape()
    origins.begin_live()
    assert not origins.decision_is_live


def test_an_answer_may_become_whole_in_another_thread() -> None:
    origins = Origins()
    origins.from_tape()
    answer = origins.begin_live()
    thread = threading.Thread(target=answer.came)
    thread.start()
    thread.join()
    assert origins.decision_is_live


def test_another_context_makes_nothing_fresh() -> None:
    origins = Origins()
    origins.from_tape()
    copy_context().run(lambda: origins.begin_live().came())
    assert not origins.decision_is_live


def test_another_context_can_make_it_doubtful() -> None:
    origins = Origins()
    origins.begin_live().came()
    copy_context().run(origins.from_tape)
    assert not origins.decision_is_live


def test_while_nothing_came_from_the_tape_every_context_decides_freshly() -> None:
    origins = Origins()
    copy_context().run(lambda: origins.begin_live().came())
    assert origins.decision_is_live


def test_an_answer_on_one_tape_says_nothing_about_another() -> None:
    one, other = Origins(), Origins()
    one.from_tape()
    other.begin_live().came()
    assert not one.decision_is_live
    assert other.decision_is_live


def test_an_answer_on_one_tape_says_nothing_of_another() -> None:
    one, other = Origins(), Origins()
    other.from_tape()
    one.begin_live().came()
    assert not other.decision_is_live
    other.begin_live().came()
    one.begin_live().came()
    assert other.decision_is_live


def test_a_context_keeps_few_of_very_many_cassettes_and_is_in_doubt_of_the_others() -> None:
    first = Origins()
    first.from_tape()
    first.begin_live().came()
    gone = []
    for _ in range(200):
        origins = Origins()
        origins.begin_live().came()
        gone.append(weakref.ref(origins))
        del origins
    gc.collect()
    assert sum(ref() is not None for ref in gone) < 100
    assert not first.decision_is_live
