"""The three modes as one table: what happens to a request, on the tape or not, permitted or not.

Knows nothing of tapes or requests.
"""

from enum import Enum, StrEnum

from tapes.budget import Limits
from tapes.errors import BadSetting

MODE = "CASSETTE_MODE"


class Mode(StrEnum):
    """What a cassette does with a request."""

    REPLAY = "replay"
    RECORD = "record"
    LIVE = "live"

    @classmethod
    def of(cls, text: str) -> "Mode":
        """The mode of this name. Raises BadSetting."""
        try:
            return cls(text)
        except ValueError:
            raise BadSetting(
                f"{text!r} is not a mode", f"modes: {', '.join(cls)}; for example {MODE}=replay"
            ) from None


class Cell(Enum):
    """What a cell of the mode table says."""

    ANSWER = "answer from the tape"
    CALL = "live call, append, answer"
    MISS = "miss"
    REFUSE = "refusal"


# (mode, the key is on the tape, a live call is permitted) → what happens
MODE_TABLE: dict[tuple[Mode, bool, bool], Cell] = {
    (Mode.REPLAY, True, False): Cell.ANSWER,
    (Mode.REPLAY, True, True): Cell.ANSWER,
    (Mode.REPLAY, False, False): Cell.MISS,
    (Mode.REPLAY, False, True): Cell.MISS,
    (Mode.RECORD, True, False): Cell.ANSWER,
    (Mode.RECORD, True, True): Cell.ANSWER,
    (Mode.RECORD, False, False): Cell.REFUSE,
    (Mode.RECORD, False, True): Cell.CALL,
    (Mode.LIVE, True, False): Cell.REFUSE,
    (Mode.LIVE, True, True): Cell.CALL,
    (Mode.LIVE, False, False): Cell.REFUSE,
    (Mode.LIVE, False, True): Cell.CALL,
}


def live_is_permitted(mode: Mode, latch: bool, limits: Limits) -> bool:
    """Whether a live call may be made: the latch, or the mode `live`, or a positive budget.

    A budget of zero closes every way.
    """
    if limits.are_zero:
        return False
    return latch or limits.are_set or mode is Mode.LIVE
