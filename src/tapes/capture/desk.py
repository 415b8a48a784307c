"""What all exchanges of one proxy share: its set-up, what it remembers, its counts, its threads.

Rule 1: nothing that may wait for a disk or another machine is done on the loop; what comes of it
        comes back to the loop, errors as values.
Rule 2: decisions and recordings have threads of their own, so that a disk that hangs holds up
        nobody but those who record.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tapes.capture.asked import CONTROL, Asked, ProxyMode, Setup, origin_form
from tapes.capture.http1 import RequestHead
from tapes.capture.keeping import Keepers
from tapes.capture.memo import Memo
from tapes.capture.routes import prefix_of
from tapes.capture.upstream import Pool
from tapes.capture.watching import Outcome, Seen, Watch, Watcher
from tapes.capture.workers import Workers
from tapes.cassette import Cassette
from tapes.ending import By, at_most
from tapes.errors import CassetteError, TapesError
from tapes.repeats import Order

log = logging.getLogger(__name__)

_GROUPS = 4096
_MISSES = 500
_THREADS = 8
# What decisions, and recordings, under way may take once the proxy is told to stop.
_PATIENCE_S = 1.0
_KEEPING_S = 30.0


@dataclass(frozen=True, slots=True)
class Miss:
    """A request that was refused, with its diagnosis."""

    at: float
    method: str
    path: str
    tape: str | None
    slug: str
    message: str
    remedy: str


@dataclass(slots=True)
class Desk:
    """See above. To be made on the loop that uses it.

    `page` is where the log of this proxy is shown, `address` where the proxy goes on answering,
    each if it is so: refusals lead there.
    """

    setup: Setup
    page: str = ""
    address: str = ""
    pool: Pool = field(default_factory=Pool)
    watcher: Watcher | None = None
    memo: Memo = field(default_factory=Memo)
    deciders: Workers = field(default_factory=lambda: Workers(_THREADS, "decide"))
    keepers: Keepers = field(default_factory=lambda: Keepers(Workers(_THREADS, "keep")))
    started: float = field(default_factory=time.time)
    requests: int = 0
    passed: int = 0
    unanswered: int = 0
    refused: int = 0
    misses: deque[Miss] = field(default_factory=lambda: deque(maxlen=_MISSES))
    _orders: dict[tuple[str, str], Order] = field(default_factory=dict)
    _waiting: dict[tuple[str, str], list[Callable[[], None]]] = field(default_factory=dict)

    # --- ordered groups, and who waits for whom

    def order(self, asked: Asked) -> Order | None:
        """The counts of the ordered group that a request belongs to."""
        if asked.group is None or asked.cassette is None:
            return None
        name = (asked.cassette.tape.path, asked.group)
        if name not in self._orders and len(self._orders) >= _GROUPS:
            self._orders.pop(next(iter(self._orders)))
        return self._orders.setdefault(name, Order())

    def wait_for(
        self, cassette: Cassette, key: str, wake: Callable[[], None]
    ) -> Callable[[], None]:
        """Call `wake` when a live call for this key has come to an end here.

        The result takes the wish back: the call may be another process's, and never end here.
        """
        name = (cassette.tape.path, key)
        self._waiting.setdefault(name, []).append(wake)

        def take_back() -> None:
            others = [each for each in self._waiting.pop(name, ()) if each is not wake]
            if others:
                self._waiting[name] = others

        return take_back

    @property
    def waiting(self) -> int:
        """How many requests wait for the calls of others."""
        return sum(map(len, self._waiting.values()))

    def landed(self, cassette: Cassette, key: str) -> None:
        """A live call has come to an end, whatever came of it."""
        for wake in self._waiting.pop((cassette.tape.path, key), ()):
            wake()

    # --- counts

    def refuse(
        self, request: RequestHead, asked: Asked | None, error: CassetteError | TapesError
    ) -> None:
        """Count a refusal and keep its diagnosis."""
        self.refused += 1
        # Without what stands before the path: a token must not come into a list.
        target = asked.route.target if asked else prefix_of(origin_form(request)).target
        path = target.partition("?")[0]
        tape = asked.cassette.tape.path if asked and asked.cassette else None
        miss = Miss(
            time.time(),
            request.method.decode(),
            path,
            tape,
            error.slug,
            error.message,
            error.remedy,
        )
        self.misses.append(miss)
        log.info("refused", extra={"slug": miss.slug, "method": miss.method, "tape": miss.tape})

    def watch(
        self,
        asked: Asked,
        peer: str,
        outcome: Outcome,
        key: str | None = None,
        *,
        call: str = "",
        refused: str = "",
    ) -> Watch | None:
        """Tell the watcher of an exchange, where there is one."""
        if self.watcher is None:
            return None
        request = asked.request
        return self.watcher.begin(
            Seen(
                request.method.decode(),
                asked.url,
                request.head.headers(),
                peer,
                outcome,
                key,
                asked.cassette.tape.path if asked.cassette else None,
                call,
                refused,
            )
        )

    def more(self, call: str = "") -> str:
        """What a refusal says last: where a person sees more of it, or what shows it.

        `call` is its name in the log; there is none where nothing of it came into the log.
        """
        if call and self.page:
            return f"seen side by side: {self.page}/#/miss/{call}"
        if call:
            return f"to see it side by side: tapes serve api, and there /#/miss/{call}"
        if self.address:
            token = " -H 'x-tapes-token: …'" if self.setup.access.token else ""
            return f"what was refused here: curl {self.address}{CONTROL}misses{token}"
        return ""

    @property
    def records(self) -> bool:
        """Whether answers may be put on a tape."""
        return self.setup.mode in (ProxyMode.RECORD, ProxyMode.LIVE)

    def close(self) -> None:
        """Let the threads finish what they keep, and go. Not for the loop: it waits."""
        self.deciders.close(at_most(_PATIENCE_S, By.KEPT))
        self.keepers.close(at_most(_KEEPING_S, By.KEPT))
