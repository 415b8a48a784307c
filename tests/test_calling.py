"""What a live call that failed costs."""

from typing import Any

import pytest

from tapes import BudgetExhausted, Cassette
from tapes.budget import Limits
from tapes.tape.base import MemoryTape

ASK = {"prompt": "hi"}


class StatusError(Exception):
    status_code = 429


class ReadTimeout(Exception):  # as HTTP clients name it
    pass


class ConnectTimeout(ReadTimeout):
    pass


@pytest.mark.row("B5", "N17")
@pytest.mark.parametrize(
    ("error", "is_spent"),
    [
        (ConnectionRefusedError(), False),
        (OSError("no route"), False),
        (ConnectTimeout(), False),
        (RuntimeError("before it was sent"), False),
        (StatusError(), True),
        (ReadTimeout(), True),
        (TimeoutError(), True),
        (KeyboardInterrupt(), True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_a_call_that_failed_before_the_upstream_gives_its_unit_back(
    error: BaseException, is_spent: bool
) -> None:
    def fails(_: dict[str, Any]) -> Any:
        raise error

    cassette = Cassette(MemoryTape(), "record", limits=Limits(calls=1))
    with pytest.raises(type(error)):
        cassette.call(ASK, live=fails)
    if is_spent:
        with pytest.raises(BudgetExhausted):
            cassette.call(ASK, live=lambda _: "second")
    else:
        assert cassette.call(ASK, live=lambda _: "second") == "second"
