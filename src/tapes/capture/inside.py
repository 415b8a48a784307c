"""The calls of a cassette in this process, for the log.

Rule 1: what is seen is handed on as it is, without being read or waited for.
Rule 2: of HTTP calls only those to models are kept; the others are counted.
"""

import time

from tapes.capture.noticed import Noticed
from tapes.capture.watched import Takes
from tapes.exchange import Request
from tapes.providers.reading import DropReason, is_turn_request
from tapes.rows import Outcome
from tapes.witness import Sight

LANE = "process"


class Inside:
    """The witness that writes the log."""

    def __init__(self, log: Takes) -> None:
        self._log = log

    def saw(self, sight: Sight) -> None:
        """A call is over."""
        request, now = sight.request, time.time_ns()
        if isinstance(request, Request) and not is_turn_request(request.method, request.url):
            self._log.drop(request.url, DropReason.NON_TURN_REQUEST)
            return
        self._log.notice(
            Noticed(
                request=request,
                response=sight.response,
                state=sight.state,
                outcome=Outcome(sight.outcome),
                started_at=now if sight.began is None else sight.began,
                ended_at=now,
                lane=LANE,
                key=sight.key,
                canonicalizer=sight.canonicalizer,
                tape=sight.tape,
                refused=sight.refused,
            )
        )
