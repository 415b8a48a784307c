"""The seam through which somebody else sees every call of a cassette, when it is over.

A witness gets real requests and answers, credentials included, and must neither wait nor raise: it
is called where the program waits for its answer. No witness, no cost.

Pure.
"""

from dataclasses import dataclass
from typing import Protocol

from tapes.exchange import Request, Response, State
from tapes.jsontext import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """A call that is over: `live` (asked, and not kept), `recorded`, `replayed` or `refused`.

    `began` is in nanoseconds since 1970; None: just now.
    """

    request: Request | dict[str, Json]
    response: Response | Json
    outcome: str
    state: State = State.COMPLETE
    key: str = ""
    canonicalizer: str = ""
    tape: str = ""
    began: int | None = None
    refused: str = ""


class Witness(Protocol):
    """Sees all calls of a cassette."""

    def saw(self, sight: Sight) -> None:
        """A call is over."""
