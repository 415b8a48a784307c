"""What an answer costs: by prices that people declare, else by the table of `genai-prices`.

Rule 1: unknown is None, never zero; a declared zero is zero.
Rule 2: a declared price holds within its dates, and wins over the table. Of several the one that
        began last holds.

Knows nothing of sessions or budgets.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal

from tapes.errors import MissingExtra
from tapes.providers.usage import Usage

_MILLION = Decimal(1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """A declared price, in US dollars for a million tokens. Without dates it always holds.

    What is cached costs as much as other input where nothing else is said.
    """

    model: str
    input: Decimal
    output: Decimal
    cache_read: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    provider: str = ""  # "": whoever offers the model
    since: date | None = None
    until: date | None = None  # the first day on which it no longer holds

    def holds(self, model: str, provider: str, day: date) -> bool:
        """Whether this is a price of that model on that day."""
        return (
            normal_model(self.model) == model
            and self.provider in ("", provider)
            and (self.since is None or self.since <= day)
            and (self.until is None or day < self.until)
        )

    def of(self, usage: Usage) -> Decimal | None:
        """What these tokens cost, exactly; None where they were not counted, or not soundly."""
        if usage.output is None or usage.uncached is None or not usage.is_sound:
            return None
        long = usage.cache_write_1h or 0
        short = (usage.cache_write or 0) - long
        write = self.input if self.cache_write is None else self.cache_write
        parts = (
            (usage.uncached, self.input),
            (usage.cache_read or 0, self.input if self.cache_read is None else self.cache_read),
            (short, write),
            (long, write if self.cache_write_1h is None else self.cache_write_1h),
            (usage.output, self.output),
        )
        return sum((Decimal(count) * each for count, each in parts), Decimal(0)) / _MILLION


class Prices:
    """Declared prices before the table's: a function of usage, provider and time."""

    def __init__(self, declared: Sequence[Price] = (), *, table: bool = True) -> None:
        self._declared = sorted(declared, key=lambda price: price.since or date.min, reverse=True)
        self._table = table

    def __call__(self, usage: Usage, provider: str = "", at: int | None = None) -> Decimal | None:
        """The price in US dollars of a call at a time (nanoseconds since 1970; None: now)."""
        now = datetime.now(UTC) if at is None else datetime.fromtimestamp(at // 10**9, UTC)
        model = normal_model(usage.model or "")
        for price in self._declared:
            if price.holds(model, provider, now.date()):
                return price.of(usage)
        return price_of(usage, now) if self._table else None


_DATED = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2})$")
_POINTED = re.compile(r"-(\d)-(\d)(?![\d])")


def normal_model(name: str) -> str:
    """A model's name without what does not change its price: case, dates, context marks."""
    name = _DATED.sub("", name.strip().lower().replace("[1m]", ""))
    return _POINTED.sub(r"-\1.\2", name)


def price_of(usage: Usage, at: datetime | None = None) -> Decimal | None:
    """The table's price in US dollars, or None where it has none. Raises MissingExtra."""
    if usage.model is None or usage.input is None or usage.output is None or not usage.is_sound:
        return None
    try:
        # Imported where used: it takes longer than everything else here together.
        from genai_prices import Usage as Counted
        from genai_prices import calc_price
    except ImportError:
        raise MissingExtra(
            "prices are an extra that is not installed", "pip install 'tapes-py[prices]'"
        ) from None
    counted = Counted(
        input_tokens=usage.input,
        output_tokens=usage.output,
        cache_read_tokens=usage.cache_read,
        cache_write_tokens=usage.cache_write,
        cache_write_1h_tokens=usage.cache_write_1h,
    )
    try:
        found = calc_price(counted, model_ref=usage.model, genai_request_timestamp=at)
    except LookupError:
        return None
    return found.total_price
