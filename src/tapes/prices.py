"""What an answer costs, from the table of `genai-prices`; unknown is None, never zero."""

from decimal import Decimal

from tapes.errors import MissingExtra
from tapes.providers.usage import Usage


def price_of(usage: Usage) -> Decimal | None:
    """The price in US dollars, or None where the model has none. Raises MissingExtra."""
    if usage.model is None or usage.input is None or usage.output is None:
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
    )
    try:
        return calc_price(counted, model_ref=usage.model).total_price
    except LookupError:
        return None
