from dataclasses import replace

import pytest

from tapes.exchange import Exchange, Piece, Request, Response
from tapes.jsontext import Json, compact
from tapes.summary import said_in, summary_of
from tests.making import call, chat


def test_an_http_exchange_in_a_line() -> None:
    body = {"model": "m-1", "usage": {"prompt_tokens": 3, "completion_tokens": 4}}
    found = chat("How is the weather?")
    response = Response(200, (), (Piece(0.1, compact(body).encode()),))
    summary = summary_of(replace(found, response=response))
    assert summary.what == "POST /v1/chat/completions"
    assert summary.said == "How is the weather?"
    assert (summary.model, summary.stream, summary.status) == ("gpt-4o-mini", True, 200)
    assert (summary.input_tokens, summary.output_tokens) == (3, 4)
    assert summary.bytes == len(response.body)


def test_a_call_with_a_dict_in_a_line() -> None:
    summary = summary_of(call("hello", "world"))
    assert (summary.what, summary.said, summary.status) == ("call", "hello", None)
    assert summary.bytes == len('{"text":"world"}')


def test_an_answer_without_its_request() -> None:
    summary = summary_of(Exchange("ab" * 32, "directory/1", None, {"a": 1}, version=0))
    assert (summary.what, summary.said) == ("(kept without its request)", "")


def test_a_request_that_is_no_json() -> None:
    request = Request("PUT", "http://h/files/a.bin?x=1", (), b"\xff\x00")
    summary = summary_of(Exchange("ab" * 32, "http/1", request, Response(204)))
    assert (summary.what, summary.said, summary.bytes) == ("PUT /files/a.bin?x=1", "", 0)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"messages": [{"content": "a"}, {"content": [{"type": "text", "text": "b"}]}]}, "b"),
        ({"input": [{"role": "user", "content": [{"type": "input_text", "text": "c"}]}]}, "c"),
        ({"contents": [{"parts": [{"text": "d"}, {"text": "e"}]}]}, "d e"),
        ({"input": "f"}, "f"),
        ({"prompt": "g\n\n  h"}, "g h"),
        ({"task": 1}, '{"task":1}'),
        ({"messages": [{"role": "tool", "content": None}], "prompt": "i"}, "i"),
        (None, ""),
        ([1, 2], "[1,2]"),
    ],
    ids=range(9),
)
def test_the_words_by_which_a_person_knows_a_request(asked: Json, said: str) -> None:
    assert said_in(asked) == said
