"""What the proxy shows, gathered exchange by exchange, for the log.

Rule 1: on the proxy's loop nothing is read: pieces are put into lists, each with its time.
Rule 2: what is no model call is counted and not looked at.
Rule 3: an answer without an end takes no more than so much memory; what is beyond is not kept, and
        the turn says so.
"""

import time
from collections.abc import Mapping
from typing import Protocol

from tapes.capture.noticed import Noticed
from tapes.capture.watching import Outcome, Seen
from tapes.exchange import OF_A_PIECE, Headers, Piece, Request, Response, State
from tapes.providers.reading import DropReason, is_turn_request
from tapes.rows import Outcome as Answered

LANE = "proxy"
_LARGEST = 64 * 1024 * 1024
_OUTCOMES = {
    Outcome.PASSED: Answered.LIVE,
    Outcome.LIVE: Answered.RECORDED,
    Outcome.REPLAYED: Answered.REPLAYED,
    Outcome.REFUSED: Answered.REFUSED,
}


class Takes(Protocol):
    """The log, as far as a watcher knows it: neither of the two waits."""

    def notice(self, noticed: Noticed) -> None:
        """An exchange came to its end."""

    def drop(self, url: str, reason: DropReason) -> None:
        """An exchange becomes no turn."""

    def counts(self) -> Mapping[str, int]:
        """What became of all exchanges. Not for the loop: it looks into folders."""
        ...


class LogWatcher:
    """The proxy's watcher that writes the log."""

    def __init__(self, log: Takes) -> None:
        self._log = log

    def begin(self, seen: Seen) -> "Gathering | None":
        """An exchange began."""
        if not is_turn_request(seen.method, seen.url):
            self._log.drop(seen.url, DropReason.NON_TURN_REQUEST)
            return None
        return Gathering(seen, self._log)

    def counts(self) -> Mapping[str, int]:
        """What became of all exchanges. Not for the loop."""
        return self._log.counts()


class Gathering:
    """One exchange, piece by piece."""

    __slots__ = (
        "_asked", "_asked_size", "_begun", "_head", "_log", "_pieces", "_seen", "_size",
        "_started_at",
    )  # fmt: skip

    def __init__(self, seen: Seen, log: Takes) -> None:
        self._seen = seen
        self._log = log
        self._started_at = time.time_ns()
        self._begun = time.perf_counter()
        self._asked: list[bytes] = []
        self._asked_size = 0
        self._head: tuple[int, str, Headers] | None = None
        self._pieces: list[Piece] = []
        self._size = 0

    def request_piece(self, data: bytes) -> None:
        """A piece of the request's body."""
        self._asked_size += len(data) + OF_A_PIECE
        if self._asked_size <= _LARGEST:
            self._asked.append(data)

    def head(self, status: int, reason: str, headers: Headers) -> None:
        """The answer began."""
        self._head = (status, reason, headers)

    def piece(self, data: bytes) -> None:
        """A piece of the answer's body."""
        self._size += len(data) + OF_A_PIECE
        if data and self._size <= _LARGEST:
            at = round(time.perf_counter() - self._begun, 4)
            self._pieces.append(Piece(at, data))

    def end(self, state: State) -> None:
        """Nothing more comes."""
        seen, head = self._seen, self._head
        if self._asked_size > _LARGEST:
            self._log.drop(seen.url, DropReason.REQUEST_OVER_BUDGET)
            return
        response = None
        if head is not None:
            response = Response(head[0], head[2], tuple(self._pieces), head[1])
        took = round((time.perf_counter() - self._begun) * 1e9)
        self._log.notice(
            Noticed(
                request=Request(seen.method, seen.url, seen.headers, b"".join(self._asked)),
                response=response,
                state=state,
                outcome=_OUTCOMES[seen.outcome],
                started_at=self._started_at,
                ended_at=self._started_at + took,
                lane=LANE,
                key=seen.key or "",
                tape=seen.tape or "",
                refused=seen.refused,
                call=seen.call,
                cut=self._size > _LARGEST,
            )
        )
