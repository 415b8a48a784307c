"""A refusal ends the process, whichever thread it happens in.

`SystemExit` ends the main thread; in any other it ends that thread alone, without a word. So a
refusal in another thread is handed to the main thread as well, by a signal that interrupts
whatever it is waiting for. What cannot be handed over is printed, and ends the process at its end.

A server never comes here: it turns refusals into answers.
"""

import atexit
import os
import signal
import sys
import threading
from collections import deque
from types import FrameType
from typing import NoReturn

from tapes.errors import CassetteError

# A real-time signal that nothing else is known to use; it is taken only if it is free.
_SIGNAL: int | None = (signal.SIGRTMIN + 11) if hasattr(signal, "SIGRTMIN") else None
_undelivered: deque[CassetteError] = deque()
_listening = False


def listen() -> None:
    """Let the main thread hear refusals of other threads. Does nothing outside the main thread."""
    global _listening
    if _listening or _SIGNAL is None or threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(_SIGNAL) in (signal.SIG_DFL, None):
        signal.signal(_SIGNAL, _deliver)
        _listening = True


def raise_refusal(error: CassetteError) -> NoReturn:
    """Raise a refusal here, and in the main thread too where this is another one."""
    if threading.current_thread() is not threading.main_thread():
        _undelivered.append(error)
        if _listening and _SIGNAL is not None:
            signal.pthread_kill(_main_ident(), _SIGNAL)
    raise error


def _main_ident() -> int:
    return threading.main_thread().ident or 0


def _deliver(_number: int, _frame: FrameType | None) -> None:
    if _undelivered:
        raise _undelivered.popleft()


@atexit.register
def _end_with_undelivered() -> None:
    if _undelivered:
        error = _undelivered.popleft()
        sys.stderr.write(f"{error.code}\n")
        sys.stderr.flush()
        sys.stdout.flush()
        os._exit(error.exit_status)
