"""The real parts that tests talk to: where one is not on this machine, its tests say so."""

import os
from typing import NoReturn

import pytest

# Read once: each test runs without this project's variables.
_ALL_ARE_HERE = os.environ.get("TAPES_TEST_PARTS") == "all"


def absent(why: str) -> NoReturn:
    """Skip the test; fail it where the machine was said to have every part, as in CI."""
    if _ALL_ARE_HERE:
        pytest.fail(f"a part that has to be here is not: {why}")
    pytest.skip(why)
