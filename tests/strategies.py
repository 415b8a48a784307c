"""What the property tests draw from: JSON values of every kind, and ways to cut bytes."""

import os
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

MANY = os.environ.get("TAPES_TEST_EXAMPLES") == "many"


def examples(many: int) -> int:
    """How many cases a property is tried on: so many in `make test-all`, a fifth in every run."""
    return many if MANY else max(many // 5, 8)


# A slow machine is no failure.
settings.register_profile(
    "tapes",
    deadline=None,
    max_examples=examples(150),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("tapes")

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NUMBERS = (
    st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from([1e16, 1e-7, -0.0, 0.1, 1.5e300, 5e-324, 2**53 + 1, 10**30])
)
WORDS = st.none() | st.booleans() | NUMBERS | TEXT


def json_values(words: st.SearchStrategy[Any] = WORDS) -> st.SearchStrategy[Any]:
    """Any JSON value made of these words."""
    return st.recursive(
        words,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
        max_leaves=12,
    )


JSON = json_values()
OBJECTS = st.dictionaries(TEXT, JSON, max_size=5)


@st.composite
def cuts_of(draw: Callable[..., Any], data: bytes) -> list[bytes]:
    """The bytes in pieces, wherever they may be cut."""
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=8)))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
