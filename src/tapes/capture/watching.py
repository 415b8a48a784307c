"""The seam through which somebody else sees every exchange of the proxy, as it happens.

A watcher is told of each exchange when it is known what becomes of it, and then of its parts in
their order: request pieces, the head, response pieces, the end. It gets real bytes and real
headers, credentials included, and must neither wait nor raise: it is called on the proxy's loop.

Pure.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from tapes.exchange import Headers, State


class Outcome(StrEnum):
    """Where an answer came from."""

    PASSED = "passed"  # from the upstream, without a tape
    LIVE = "live"  # from the upstream, and recorded
    REPLAYED = "replayed"  # from a tape
    REFUSED = "refused"  # from nowhere


@dataclass(frozen=True, slots=True)
class Seen:
    """A request as it came, and what becomes of it. `headers` are all that the client sent.

    `call` is its identity where the proxy gave it one, to name it in its answer; `refused` is why
    it got none.
    """

    method: str
    url: str
    headers: Headers
    peer: str
    outcome: Outcome
    key: str | None = None
    tape: str | None = None
    call: str = ""
    refused: str = ""


class Watch(Protocol):
    """Sees one exchange."""

    def request_piece(self, data: bytes) -> None:
        """A piece of the request's body, without its framing."""

    def head(self, status: int, reason: str, headers: Headers) -> None:
        """The answer began."""

    def piece(self, data: bytes) -> None:
        """A piece of the answer's body, without its framing, as it was passed on."""

    def end(self, state: State) -> None:
        """Nothing more comes. `complete` says that the answer ended as it said it would."""


class Watcher(Protocol):
    """Sees all exchanges, or chooses."""

    def begin(self, seen: Seen) -> Watch | None:
        """An exchange began; None where its parts are of no interest."""
        ...
