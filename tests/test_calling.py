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


class ConnectError(Exception):
    pass


class RemoteProtocolError(Exception):
    pass


class APIConnectionError(Exception):  # as SDKs say it, whatever it came of
    def __init__(self, cause: Exception) -> None:
        super().__init__("Connection error.")
        self.__cause__ = cause


@pytest.mark.row("B5", "N17")
@pytest.mark.parametrize(
    ("error", "is_spent"),
    [
        (ConnectionRefusedError(), False),
        (OSError("no route"), False),
        (ConnectTimeout(), False),
        (ConnectError("all tries failed"), False),
        (APIConnectionError(ConnectError()), False),
        (APIConnectionError(RemoteProtocolError()), True),
        (ConnectionResetError(), True),
        (BrokenPipeError(), True),
        (KeyError("choices"), True),
        (StatusError(), True),
        (ReadTimeout(), True),
        (TimeoutError(), True),
        (KeyboardInterrupt(), True),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else None,
)
def test_a_call_gives_its_unit_back_where_its_error_says_that_it_reached_nobody(
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
