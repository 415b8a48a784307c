"""What is set aside for a call before it is made."""

import json
from decimal import Decimal
from typing import Any

import pytest

from tapes.budget import Limits, Reserve
from tapes.cost import json_of, reserve_for
from tapes.errors import MissingExtra, UnboundedCall
from tapes.exchange import Request
from tapes.providers.usage import Usage

TOKENS = Limits(tokens=1000)
DOLLARS = Limits(usd=Decimal(1))


def price(usage: Usage) -> Decimal | None:
    return Decimal(usage.total) / 1000 if usage.model == "known" else None


def post(value: Any) -> Request:
    body = value if isinstance(value, bytes) else json.dumps(value).encode()
    return Request("POST", "https://h/v1/chat", (("content-type", "application/json"),), body)


def test_a_limit_of_calls_needs_nothing_set_aside() -> None:
    assert reserve_for({}, "k", Limits(calls=3), price) == Reserve()


def test_tokens_are_the_bytes_of_the_request_and_the_output_that_it_allows() -> None:
    request = {"prompt": "日本語", "max_tokens": 7}
    size = len(json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode())
    assert reserve_for(request, "k", TOKENS, price) == Reserve(size + 7)
    assert reserve_for(post(request), "k", TOKENS, price).tokens == len(post(request).body) + 7


def test_dollars_are_the_price_of_all_of_them() -> None:
    request = {"model": "known", "max_tokens": 100}
    reserve = reserve_for(request, "k", DOLLARS, price)
    assert reserve.usd == Decimal(reserve.tokens) / 1000


@pytest.mark.row("N17")
@pytest.mark.parametrize("request_", [{}, post({}), post(b"no json"), {"max_tokens": None}])
def test_a_call_without_a_bound_is_refused_with_what_to_add(request_: Any) -> None:
    with pytest.raises(UnboundedCall, match="does not bound what it uses\nadd max_tokens"):
        reserve_for(request_, "k" * 64, TOKENS, price)


def test_a_model_without_a_price_is_refused_under_a_limit_of_dollars() -> None:
    with pytest.raises(UnboundedCall, match="the model 'odd' has no known price"):
        reserve_for({"model": "odd", "max_tokens": 1}, "k", DOLLARS, price)
    assert reserve_for({"model": "odd", "max_tokens": 1}, "k", TOKENS, price).tokens


def test_prices_that_are_not_installed_are_named() -> None:
    def no_prices(_: Usage) -> Decimal:
        raise MissingExtra("prices are an extra", "pip install them")

    with pytest.raises(UnboundedCall, match="prices are an extra\npip install them; or limit"):
        reserve_for({"model": "known", "max_tokens": 1}, "k", DOLLARS, no_prices)


@pytest.mark.row("N17")
def test_what_costs_nothing_is_never_refused() -> None:
    assert reserve_for(Request("GET", "https://h/v1/models"), "k", DOLLARS, price) == Reserve()


def test_json_is_read_from_either_kind_of_request() -> None:
    assert json_of({"a": 1}) == {"a": 1}
    assert json_of(post({"a": 1})) == {"a": 1}
    assert json_of(post(b"no json")) is None


def test_what_is_written_to_the_cache_is_set_aside_at_its_dearest() -> None:
    def dear(usage: Usage) -> Decimal:
        long = usage.cache_write_1h or 0
        return Decimal(usage.total + (usage.cache_write or 0) + long)

    plain = {"model": "m", "max_tokens": 1, "system": [{"text": "a"}]}
    cached = {**plain, "system": [{"text": "a", "cache_control": {"type": "ephemeral"}}]}
    for request, times in ((plain, 1), (cached, 3)):
        for asked in (request, post(request)):
            reserve = reserve_for(asked, "k", DOLLARS, dear)
            assert reserve.usd == (reserve.tokens - 1) * times + 1
