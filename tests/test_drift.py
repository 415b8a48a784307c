"""What has changed between two answers, and what only looks so."""

import gzip
import json
from typing import Any

import pytest

from tapes.drift import Change, Kind, changes
from tapes.exchange import Headers, Piece, Response
from tests.loopback import event_answer, json_answer


def plain(**members: Any) -> Response:
    body = {
        "id": "chatcmpl-1",
        "created": 1700000000,
        "model": "m-1",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}}],
        "usage": {"total_tokens": 7},
        **members,
    }
    return json_answer(json.dumps(body))


def kinds(recorded: Response, now: Response) -> list[tuple[str, str]]:
    return [(str(change.kind), change.place) for change in changes(recorded, now)]


def test_equal_answers_have_not_changed() -> None:
    assert changes(plain(), plain()) == ()


def test_ids_times_and_usage_are_told_apart_from_content() -> None:
    now = plain(id="chatcmpl-2", created=1800000000, usage={"total_tokens": 8}, model="m-2")
    assert kinds(plain(), now) == [
        ("id", "id"),
        ("time", "created"),
        ("content", "model"),
        ("usage", "usage.total_tokens"),
    ]


def test_a_member_that_came_went_or_is_of_another_type_is_a_change_of_shape() -> None:
    now = plain(model=None, service_tier="default")
    assert kinds(plain(), now) == [("shape", "model"), ("shape", "service_tier")]


def test_a_whole_number_and_a_fraction_are_of_one_type() -> None:
    assert kinds(json_answer('{"a": 1}'), json_answer('{"a": 1.5}')) == [("content", "a")]
    assert kinds(json_answer('{"a": 1}'), json_answer('{"a": true}')) == [("shape", "a")]


def test_the_status_and_the_headers_that_matter_are_compared() -> None:
    now = json_answer("{}", 404, ("sunset", "Sat, 01 Aug 2026 00:00:00 GMT"), ("x-request-id", "2"))
    assert changes(json_answer("{}", 200, ("x-request-id", "1")), now) == (
        Change(Kind.STATUS, "status", 200, 404),
        Change(Kind.HEADER, "sunset", None, "Sat, 01 Aug 2026 00:00:00 GMT"),
    )


def chunk(content: str | None = None, reason: str | None = None, id_: str = "c-1") -> str:
    delta = {} if content is None else {"content": content}
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return json.dumps({"id": id_, "object": "chunk", "choices": [choice]})


def test_a_stream_that_was_cut_otherwise_has_not_changed() -> None:
    recorded = event_answer(chunk("Hel"), chunk("lo"), chunk(reason="stop"), "[DONE]")
    now = event_answer(chunk("H"), chunk("el"), chunk("lo"), chunk(reason="stop"), "[DONE]")
    assert changes(recorded, now) == ()


def test_a_stream_that_says_something_else_has_changed_in_its_content() -> None:
    recorded = event_answer(chunk("Hel"), chunk("lo"), chunk(reason="stop"), "[DONE]")
    now = event_answer(
        *(chunk(text, id_="c-2") for text in ("Good", "bye")), chunk(reason="stop", id_="c-2")
    )
    found = changes(recorded, now)
    assert Change(Kind.CONTENT, "choices[0].delta.content", "Hello", "Goodbye") in found
    assert Change(Kind.ID, "id", "c-1", "c-2") in found
    assert [c.place for c in found if c.kind is Kind.SHAPE] == ["events"]


def test_parallel_parts_of_a_stream_are_joined_each_for_itself() -> None:
    def delta(index: int, text: str) -> str:
        inner = {"type": "text_delta", "text": text}
        return json.dumps({"type": "content_block_delta", "index": index, "delta": inner})

    recorded = event_answer(delta(0, "a"), delta(1, "x"), delta(0, "b"))
    assert changes(recorded, event_answer(delta(0, "ab"), delta(1, "x"))) == ()
    assert kinds(recorded, event_answer(delta(0, "ab"), delta(1, "y"))) == [
        ("content", "content_block_delta: #1.delta.text")
    ]


def test_a_coded_answer_is_compared_by_what_it_says() -> None:
    coded: Headers = (("content-type", "application/json"), ("content-encoding", "gzip"))
    now = Response(200, coded, (Piece(0.0, gzip.compress(b'{"a": 1}')),))
    assert changes(json_answer('{"a":1}'), now) == ()


def test_bodies_that_are_no_json_are_compared_as_text() -> None:
    one = Response(200, (), (Piece(0.0, b"\xff1"),))
    other = Response(200, (), (Piece(0.0, b"\xff2"),))
    assert kinds(one, other) == [("content", "the body")]


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ("system_fingerprint", Kind.ID),
        ("responseId", Kind.ID),
        ("createTime", Kind.TIME),
        ("total_duration", Kind.TIME),
        ("prompt_eval_count", Kind.USAGE),
        ("item_count", Kind.CONTENT),
        ("idea", Kind.CONTENT),
        ("timeline", Kind.CONTENT),
    ],
)
def test_names_say_what_a_place_is_about(place: str, kind: Kind) -> None:
    (change,) = changes({place: "1"}, {place: "2"})
    assert change.kind is kind
