"""Why a request has no answer: the nearest recording, and where it differs."""

import json
from typing import Any

from hypothesis import given

from tapes.errors import DamagedTape
from tapes.exchange import Exchange, Request, Response, State
from tapes.explain import Difference, differences, find_nearest, leaves_of, nearest
from tapes.tape.base import MemoryTape
from tapes.varying import Rule
from tests.strategies import JSON


def chat(*messages: str, model: str = "m") -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": text} for text in messages]}


def tape_of(*requests: Any) -> MemoryTape:
    return MemoryTape(
        tuple(Exchange(f"{n:064}", "tape/1", request, {}) for n, request in enumerate(requests))
    )


def test_the_nearest_recording_is_named_with_the_places_that_differ() -> None:
    tape = tape_of(chat("one", "two"), chat("one", "three"), chat("x", model="n"))
    line = nearest(tape, chat("one", "twe"))
    assert line == "nearest: 000000000000, differs at messages[1].content"


def test_of_equals_the_latest_is_nearest() -> None:
    line = nearest(tape_of(chat("one"), chat("one")), chat("two"))
    assert line is not None
    assert line.startswith("nearest: 000000000000, ")
    near = find_nearest(tape_of(chat("one"), chat("one")), chat("two"))
    assert near is not None
    assert near.exchange.key.endswith("1")


def test_at_most_three_places_are_shown_and_the_rest_counted() -> None:
    line = nearest(tape_of({"a": 1, "b": 1, "c": 1, "d": 1, "e": 1}), {"a": 2})
    assert line == "nearest: 000000000000, differs at a, b, c and 2 more"


def test_an_empty_tape_has_no_nearest() -> None:
    assert nearest(MemoryTape(), {"a": 1}) is None


def test_answers_without_a_request_and_evidence_are_not_near() -> None:
    evidence = Exchange("e" * 64, "tape/1", {"a": 1}, {}, state=State.UPSTREAM_ERROR)
    foreign = Exchange("f" * 64, "directory/1", None, {})
    assert nearest(MemoryTape((evidence, foreign)), {"a": 1}) is None


def test_what_may_vary_is_no_difference() -> None:
    rules = (Rule.of({"at": "/messages/0/content", "pattern": r"\d+:\d+"}),)
    tape = tape_of(chat("it is 9:15", "two"))
    line = nearest(tape, chat("it is 9:16", "three"), rules)
    assert line == "nearest: 000000000000, differs at messages[1].content"


def test_requests_over_http_are_compared_by_their_identity() -> None:
    def post(value: Any, query: str = "") -> Request:
        body = json.dumps(value).encode()
        return Request("POST", f"http://h/v1{query}", (("content-type", "application/json"),), body)

    tape = MemoryTape((Exchange("0" * 64, "http/1", post(chat("one")), Response(200)),))
    assert nearest(tape, post(chat("two"))) == (
        "nearest: 000000000000, differs at messages[0].content"
    )
    assert nearest(tape, post(chat("one"), "?a=1")) == "nearest: 000000000000, differs at query[0]"


def test_damage_elsewhere_does_not_hide_what_was_found() -> None:
    class Damaged(MemoryTape):
        def exchanges(self) -> Any:
            yield from super().exchanges()
            raise DamagedTape("line 2")

    tape = Damaged((Exchange("0" * 64, "tape/1", {"a": 1}, {}),))
    assert nearest(tape, {"a": 2}) == "nearest: 000000000000, differs at a"


def test_a_very_deep_request_has_no_nearest_and_raises_nothing() -> None:
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    assert nearest(tape_of({"a": 1}), {"a": deep}) is None


def test_differences_say_what_was_asked_and_what_was_recorded() -> None:
    asked, recorded = leaves_of({"a": 1, "b": {}, "c": [1]}), leaves_of({"a": 2, "c": [1, 2]})
    assert differences(asked, recorded) == (
        Difference("a", 1, 2),
        Difference("b", {}, None),
        Difference("c[1]", None, 2),
    )


@given(JSON)
def test_a_request_does_not_differ_from_itself(value: Any) -> None:
    assert differences(leaves_of(value), leaves_of(value)) == ()


def test_long_texts_are_near_by_what_begins_and_ends_alike() -> None:
    long = "lorem ipsum " * 20_000
    tape = tape_of(chat("something else"), chat(long + "one" + long), chat("other"))
    near = find_nearest(tape, chat(long + "two" + long))
    assert near is not None
    assert near.exchange.key.endswith("1")
