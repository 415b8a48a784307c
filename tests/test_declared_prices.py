"""What calls cost: declared prices, then the table, else unknown."""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from tapes.prices import Price, Prices, normal_model, price_of
from tapes.providers.usage import Usage

SONNET = Price(
    model="sonnet",
    input=Decimal(3),
    output=Decimal(15),
    cache_read=Decimal("0.30"),
    cache_write=Decimal("3.75"),
)
JULY = int(datetime(2026, 7, 15, tzinfo=UTC).timestamp()) * 10**9


def declared(*prices: Price) -> Prices:
    return Prices(prices, table=False)


def test_cached_tokens_are_priced_once_and_exactly() -> None:
    anthropic = Usage(130213, 42, 128955, 1253, model="sonnet")
    assert declared(SONNET)(anthropic) == Decimal("0.04403025")
    openai = Usage(17903, 100, 17817, model="gpt")
    gpt = Price(
        model="gpt", input=Decimal("2.50"), output=Decimal("10.00"), cache_read=Decimal("1.25")
    )
    assert declared(gpt)(openai) == Decimal("0.02348625")


def test_what_is_kept_longer_has_its_own_price() -> None:
    usage = Usage(1000, 0, None, 1000, model="m", cache_write_1h=400)
    price = Price(
        model="m",
        input=Decimal(3),
        output=Decimal(0),
        cache_write=Decimal("3.75"),
        cache_write_1h=Decimal(6),
    )
    assert declared(price)(usage) == Decimal("0.00465")


def test_an_unknown_model_has_no_price_and_a_declared_zero_is_zero() -> None:
    usage = Usage(1000, 50, model="acme-local-7b")
    free = Price(model="acme-local-7b", input=Decimal(0), output=Decimal(0))
    assert Prices()(usage) is None
    assert Prices([free])(usage) == Decimal("0.00")
    assert declared()(usage) is None


def test_tokens_that_were_not_counted_have_no_price() -> None:
    assert declared(SONNET)(Usage(5, None, model="sonnet")) is None
    assert price_of(Usage(5, None, model="gpt-4o")) is None
    assert price_of(Usage(5, 5)) is None


def test_a_declared_price_wins_over_the_table() -> None:
    usage = Usage(1_000_000, 0, model="gpt-4o")
    mine = Price(model="gpt-4o", input=Decimal(1), output=Decimal(1))
    assert Prices([mine])(usage, "openai", JULY) == Decimal(1)
    table = Prices()(usage, "openai", JULY)
    assert table is not None
    assert table > Decimal(1)


def test_a_price_holds_within_its_dates_and_the_latest_beginning_wins() -> None:
    old = Price(model="m", input=Decimal(4), output=Decimal(0), until=date(2026, 7, 1))
    new = Price(model="m", input=Decimal(2), output=Decimal(0), since=date(2026, 7, 1))
    always = Price(model="m", input=Decimal(9), output=Decimal(0))
    prices = declared(old, always, new)
    usage = Usage(1_000_000, 0, model="m")
    assert prices(usage, "", JULY) == Decimal(2)
    assert declared(old)(usage, "", JULY) is None
    june = JULY - 30 * 86_400 * 10**9
    assert declared(old, new)(usage, "", june) == Decimal(4)


def test_a_price_begins_with_its_first_day_and_does_not_hold_on_its_last() -> None:
    day = int(datetime(2026, 7, 1, tzinfo=UTC).timestamp()) * 10**9
    old = Price(model="m", input=Decimal(4), output=Decimal(0), until=date(2026, 7, 1))
    new = Price(model="m", input=Decimal(2), output=Decimal(0), since=date(2026, 7, 1))
    usage = Usage(1_000_000, 0, model="m")
    assert [declared(old)(usage, "", at) for at in (day - 1, day)] == [Decimal(4), None]
    assert [declared(new)(usage, "", at) for at in (day - 1, day)] == [None, Decimal(2)]


def test_a_price_may_be_one_providers() -> None:
    mine = Price(model="m", input=Decimal(1), output=Decimal(1), provider="ollama")
    usage = Usage(1_000_000, 0, model="m")
    assert declared(mine)(usage, "ollama") == Decimal(1)
    assert declared(mine)(usage, "openai") is None


@pytest.mark.parametrize(
    ("name", "normal"),
    [
        ("Claude-Sonnet-4-6", "claude-sonnet-4.6"),
        ("claude-opus-4-1-20250805", "claude-opus-4.1"),
        ("claude-3-5-sonnet-20241022", "claude-3.5-sonnet"),
        ("claude-opus-4-20250514", "claude-opus-4"),
        ("claude-sonnet-4-5[1m]", "claude-sonnet-4.5"),
        ("gpt-4o-2024-08-06", "gpt-4o"),
        (" gpt-4.1-mini ", "gpt-4.1-mini"),
    ],
)
def test_names_are_one_where_the_price_is_one(name: str, normal: str) -> None:
    assert normal_model(name) == normal


@pytest.mark.parametrize(
    "usage",
    [
        Usage(100, 10, 200, model="gpt-4o"),
        Usage(100, 10, 50, 80, model="gpt-4o"),
        Usage(100, 10, None, None, model="claude-sonnet-4-5", cache_write_1h=500),
        Usage(100, 10, None, 50, model="claude-sonnet-4-5", cache_write_1h=60),
    ],
    ids=str,
)
def test_counts_that_contradict_each_other_have_no_price(usage: Usage) -> None:
    price = Price(model=usage.model or "", input=Decimal(3), output=Decimal(15))
    assert price.of(usage) is None
    assert price_of(usage) is None
