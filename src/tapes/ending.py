"""The end of a program that serves: what tells it to end, and by when each part of it is done.

Rule 1: SIGINT, SIGTERM and SIGHUP tell it; SIGHUP not where whoever started it has it ignored, as
        `nohup` does.
Rule 2: there is one deadline for all, so that what hangs in one part takes nothing from the parts
        after it, and all is done before a supervisor that waits for half a minute loses patience.
Rule 3: a thread that asks a store that hangs may never come back, and cannot be stopped. When the
        time is over the program ends without it, and says so.

Knows nothing of the parts. A process ends once: the moment is the process's.
"""

import asyncio
import logging
import os
import signal
import threading
import time
from enum import IntEnum

from tapes.errors import UnavailableStore

log = logging.getLogger(__name__)

_TELLING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# What threads may take that are still at work when all else has ended.
_LEFT_S = 5.0
_told_at: float | None = None


class By(IntEnum):
    """Seconds after the program was told to end by which a part is done, in order."""

    ANSWERED = 5
    KEPT = 10
    LET_GO = 11
    LOGGED = 14
    TIDIED = 15
    DERIVED = 17
    ENDED = 18


def at_most(patience_s: float, by: By) -> float:
    """How long a part may be waited for: less than usual where the end has begun."""
    if _told_at is None:
        return patience_s
    return max(0.0, min(patience_s, _told_at + by - time.monotonic()))


def begin() -> None:
    """The program is told to end. Later tellings change nothing."""
    global _told_at
    if _told_at is None:
        _told_at = time.monotonic()
        _end_in(By.ENDED)


def told_to_end() -> asyncio.Event:
    """Set once a signal tells the program to end (rule 1). To be called on the loop."""
    told, loop = asyncio.Event(), asyncio.get_running_loop()

    def tell() -> None:
        begin()
        told.set()

    for number in _TELLING:
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, tell)
    return told


def end_at_last() -> None:
    """To be called when all is done that can be: then no thread is waited for much longer."""
    _end_in(_LEFT_S)


def _end_in(seconds: float) -> None:
    timer = threading.Timer(seconds, _end_now)
    timer.daemon = True
    timer.start()


def _end_now() -> None:
    log.error("ended though a store does not answer: what it was asked last may not be done")
    logging.shutdown()
    os._exit(UnavailableStore.exit_status)
