"""What an answer costs."""

from decimal import Decimal
from pathlib import Path

from tapes.prices import price_of
from tapes.providers.usage import Usage
from tests.running import run


def test_a_known_model_has_a_price() -> None:
    cheap = price_of(Usage(1000, 10, model="gpt-4o-mini"))
    dear = price_of(Usage(2000, 10, model="gpt-4o-mini"))
    assert cheap is not None
    assert dear is not None
    assert Decimal(0) < cheap < dear


def test_what_is_not_known_has_none() -> None:
    assert price_of(Usage(1000, 10, model="no-such-model-anywhere")) is None
    assert price_of(Usage(1000, 10)) is None
    assert price_of(Usage(None, 10, model="gpt-4o-mini")) is None


def test_without_the_extra_the_remedy_is_named(tmp_path: Path) -> None:
    result = run(
        """
        import sys
        sys.modules["genai_prices"] = None
        from tapes.prices import price_of
        from tapes.providers.usage import Usage
        try:
            price_of(Usage(1, 1, model="gpt-4o-mini"))
        except Exception as error:
            print(error.slug, error.remedy)
        """,
        tmp_path,
    )
    assert result.stdout == "missing-extra pip install 'tapes-py[prices]'\n"
