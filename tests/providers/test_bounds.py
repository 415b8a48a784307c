"""The most tokens that a call can use, read from its request."""

from typing import Any

import pytest

from tapes.exchange import Request
from tapes.providers.bounds import Bound, bound_of, hides_variance, output_bound


def post(path: str = "/v1/chat/completions") -> Request:
    return Request("POST", f"https://h{path}")


@pytest.mark.parametrize(
    ("request_", "bound"),
    [
        ({"max_tokens": 5}, 5),
        ({"max_completion_tokens": 5}, 5),
        ({"max_output_tokens": 5}, 5),
        ({"max_tokens": 5, "max_completion_tokens": 9}, 9),
        ({"generationConfig": {"maxOutputTokens": 5, "candidateCount": 3}}, 15),
        ({"options": {"num_predict": 5}}, 5),
        ({"options": {"num_predict": -1}}, None),
        ({"max_tokens": 5, "n": 3}, 15),
        ({"max_tokens": 5, "n": 3, "best_of": 4}, 20),
        ({"max_tokens": None}, None),
        ({"max_tokens": True}, None),
        ({}, None),
        (None, None),
        ([], None),
    ],
)
def test_output_is_bounded_by_what_the_request_allows(request_: Any, bound: int | None) -> None:
    assert output_bound(request_) == bound


def test_input_is_bounded_by_the_bytes_of_the_request() -> None:
    assert bound_of(post(), {"max_tokens": 5, "model": "m"}, 80) == Bound(80, 5, "m")


def test_a_provider_may_write_something_around_tools() -> None:
    bound = bound_of(post(), {"max_tokens": 5, "tools": [{"type": "function"}]}, 80)
    assert bound is not None
    assert bound.input > 80


@pytest.mark.parametrize(
    "path",
    ["/v1/embeddings", "/v1beta/models/e:embedContent", "/api/embed", "/v1/messages/count_tokens"],
)
def test_calls_without_output_are_bounded_without_a_word(path: str) -> None:
    assert bound_of(post(path), {"input": "text"}, 30) == Bound(30, 0, bound_model(path))


def bound_model(path: str) -> str | None:
    return "e" if ":embedContent" in path else None


def test_reading_costs_nothing() -> None:
    assert bound_of(Request("GET", "https://h/v1/models"), None, 0) == Bound(0, 0)


def test_a_model_may_be_named_in_the_path() -> None:
    path = "/v1beta/models/gemini-pro:generateContent"
    bound = bound_of(post(path), {"generationConfig": {"maxOutputTokens": 5}}, 9)
    assert bound == Bound(9, 5, "gemini-pro")


@pytest.mark.parametrize(
    "part",
    [
        {"previous_response_id": "r1"},
        {"conversation": "c1"},
        {"cachedContent": "cachedContents/1"},
        {"messages": [{"content": [{"type": "image_url", "image_url": {"url": "https://i/1"}}]}]},
        {"input": [{"content": [{"type": "input_image", "image_url": "https://i/1"}]}]},
        {"messages": [{"content": [{"source": {"type": "url", "url": "https://i/1"}}]}]},
        {"messages": [{"content": [{"type": "file", "file": {"file_id": "f1"}}]}]},
        {"contents": [{"parts": [{"fileData": {"fileUri": "gs://f"}}]}]},
        {"tools": [{"type": "web_search_20250305"}]},
        {"tools": [{"googleSearch": {}}]},
        {"tools": [{"type": "mcp"}]},
        {"tools": [{"type": "code_execution_20250825", "name": "code_execution"}]},
        {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]},
        {"tools": [{"codeExecution": {}}]},
        {"mcp_servers": [{"type": "url", "name": "m"}]},
        {"web_search_options": {}},
        {"prompt": {"id": "pmpt_1"}},
        {"input": [{"type": "item_reference", "id": "msg_1"}]},
    ],
    ids=str,
)
def test_input_that_lies_elsewhere_has_no_bound(part: dict[str, Any]) -> None:
    assert bound_of(post(), {"max_tokens": 5, **part}, 80) is None


@pytest.mark.parametrize(
    "part",
    [
        {"messages": [{"content": [{"image_url": {"url": "data:image/png;base64,AAAA"}}]}]},
        {"messages": [{"content": "see https://i/1"}]},
        {"tools": [{"type": "function", "function": {"name": "web_search"}}]},
        {"tools": [{"name": "search_files", "input_schema": {}}]},
        {"tools": [{"functionDeclarations": [{"name": "search"}]}]},
        {"metadata": {"url": "https://i/1"}},
        {"previous_response_id": None},
        {"prompt": "say it"},
        {"tools": [{"type": "function", "function": {"name": "code_interpreter"}}]},
    ],
    ids=str,
)
def test_input_that_lies_in_the_request_is_bounded(part: dict[str, Any]) -> None:
    assert bound_of(post(), {"max_tokens": 5, **part}, 80) is not None


@pytest.mark.row("B11")
@pytest.mark.parametrize(
    ("request_", "hides"),
    [
        ({"temperature": 0.9}, True),
        ({"temperature": 1, "seed": 7}, False),
        ({"temperature": 1, "seed": None}, True),
        ({"temperature": 0}, False),
        ({}, False),
        ({"generationConfig": {"temperature": 0.5}}, True),
        ({"generationConfig": {"temperature": 0.5, "seed": 1}}, False),
        ({"options": {"temperature": 0.5}}, True),
        ({"temperature": "hot"}, False),
        (None, False),
    ],
)
def test_a_temperature_without_a_seed_hides_variance(request_: Any, hides: bool) -> None:
    assert hides_variance(request_) is hides
