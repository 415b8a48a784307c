"""The modes as a table."""

from decimal import Decimal

import pytest

from tapes.budget import Limits
from tapes.errors import BadSetting
from tapes.modes import MODE_TABLE, Cell, Mode, live_is_permitted

# As the documentation prints it: mode → on the tape; absent and permitted; absent and not.
TABLE = {
    Mode.REPLAY: (Cell.ANSWER, Cell.MISS, Cell.MISS),
    Mode.RECORD: (Cell.ANSWER, Cell.CALL, Cell.REFUSE),
    Mode.LIVE: (Cell.CALL, Cell.CALL, Cell.REFUSE),
}


@pytest.mark.row("A5")
@pytest.mark.parametrize("mode", Mode)
def test_every_cell_is_as_documented(mode: Mode) -> None:
    on_tape, permitted, not_permitted = TABLE[mode]
    assert MODE_TABLE[mode, True, True] is on_tape
    assert MODE_TABLE[mode, False, True] is permitted
    assert MODE_TABLE[mode, False, False] is not_permitted


def test_what_is_on_the_tape_answers_whether_or_not_a_call_is_permitted() -> None:
    for mode in (Mode.REPLAY, Mode.RECORD):
        assert MODE_TABLE[mode, True, False] is Cell.ANSWER


def test_the_table_has_every_cell() -> None:
    assert len(MODE_TABLE) == len(Mode) * 4


@pytest.mark.parametrize(
    ("mode", "latch", "limits", "permitted"),
    [
        (Mode.RECORD, False, Limits(), False),
        (Mode.RECORD, True, Limits(), True),
        (Mode.RECORD, False, Limits(calls=3), True),
        (Mode.RECORD, False, Limits(tokens=3), True),
        (Mode.RECORD, False, Limits(usd=Decimal("0.1")), True),
        (Mode.RECORD, True, Limits(calls=0), False),
        (Mode.RECORD, True, Limits(calls=3, usd=Decimal(0)), False),
        (Mode.LIVE, False, Limits(), True),
        (Mode.LIVE, True, Limits(calls=0), False),
    ],
)
def test_latch_and_budget_permit_and_zero_closes_every_way(
    mode: Mode, latch: bool, limits: Limits, permitted: bool
) -> None:
    assert live_is_permitted(mode, latch, limits) is permitted


def test_a_mode_that_is_none_is_named_with_those_that_are() -> None:
    with pytest.raises(BadSetting, match=r"'reply' is not a mode\nmodes: replay, record, live"):
        Mode.of("reply")
