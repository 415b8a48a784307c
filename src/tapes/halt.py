"""A refusal ends the process, whichever thread it happens in.

`SystemExit` ends the main thread; in any other it ends that thread alone, without a word. So a
refusal in another thread is handed to the main thread as well, by a signal that interrupts
whatever it is waiting for. What cannot be handed over ends the process at its end.

Rule 1: one message a process, on standard error, and a status that is not zero.
Rule 2: the main thread is not interrupted while it starts another thread, which would then be
        known to nobody and keep the process alive; nor while it starts an event loop, which could
        then not be closed; nor while it begins or ends to be covered by a tape, which could then
        not be ended; nor after its last line, where nobody listens.
Rule 3: whoever waits for a worker of a `multiprocessing.Pool` gets the refusal that ends it; the
        pool itself would let him wait for ever.
Rule 4: where somebody runs tests, the main thread is interrupted while one of them runs, once; not
        in the middle of what reports them, which knows of refusals by itself, and not for the
        closed tape of a test that a thread has outlived.

A server never comes here: it turns refusals into answers.
"""

import atexit
import logging
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

from tapes.errors import CassetteError, ClosedTape

# A real-time signal that nothing else is known to use; it is taken only if it is free.
_SIGNAL: int | None = (signal.SIGRTMIN + 11) if hasattr(signal, "SIGRTMIN") else None
# How often, and after which pause, the main thread is asked to listen before it is left alone.
_TRIES, _PAUSE_S = 200, 0.005
# Where a thread is started, and where the interpreter waits for threads: file and function.
_STARTING = (("threading.py", "start"), ("futures/thread.py", "submit"))
_COVERING = (("tapes/using.py", "__enter__"), ("tapes/using.py", "__exit__"))
_ENDING = (("threading.py", "_shutdown"),)
# What starts and ends an event loop; between the two a loop runs.
_LOOPING = (("asyncio/runners.py", "run"),)

# A program that goes on after refusals in its threads is told of the first; so many wait at most.
_WAITING = 16
_undelivered: deque[CassetteError] = deque()
_listening = False
_ends = False
_was_said = False
# Whether something says when the main thread may be interrupted, and whether it may be now.
_is_ruled = _is_deaf = False


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
    _say_it_once()
    if threading.current_thread() is not threading.main_thread():
        _hand_over(error)
    else:
        _remember_pool(error, sys._getframe())
    raise error


@contextmanager
def hearing() -> Iterator[None]:
    """Within it the main thread may be interrupted, and from its end on only within another."""
    global _is_ruled, _is_deaf
    was_deaf = _is_deaf or not _is_ruled
    _is_ruled, _is_deaf = True, False
    try:
        yield
    finally:
        _is_deaf = was_deaf
        if was_deaf:
            _undelivered.clear()


def _hand_over(error: CassetteError) -> None:
    main = threading.main_thread()
    if _is_deaf or (_is_ruled and isinstance(error.__cause__, ClosedTape)):
        return
    if len(_undelivered) < _WAITING:
        _undelivered.append(error)
        _watch_the_end()
    if not _listening or _SIGNAL is None:
        _say(error)  # nobody knows how long the main thread goes on
        return
    for _ in range(_TRIES):
        if error not in _undelivered or _ends or not main.is_alive():
            return
        signal.pthread_kill(main.ident or 0, _SIGNAL)
        time.sleep(_PAUSE_S)


def _deliver(_number: int, frame: FrameType | None) -> None:
    global _ends, _was_said, _is_deaf
    while frame is not None:
        if _is_in(frame, _STARTING + _COVERING) or (_is_in(frame, _LOOPING) and not _runs_loop()):
            return  # whoever sent the signal sends it again
        if _is_in(frame, _ENDING):
            _ends = True
            return
        frame = frame.f_back
    if _is_deaf:
        _undelivered.clear()
    if _undelivered:
        error = _undelivered.popleft()
        _undelivered.clear()
        _is_deaf = _is_ruled
        _was_said = True  # the interpreter does, when nobody stops the error
        _remember_pool(error, sys._getframe())
        raise error


def _runs_loop() -> bool:
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None


def _is_in(frame: FrameType, functions: tuple[tuple[str, str], ...]) -> bool:
    code = frame.f_code
    return any(code.co_name == name and code.co_filename.endswith(f) for f, name in functions)


@atexit.register
def _end_with_undelivered() -> None:
    if _undelivered:
        error = _undelivered[0]
        _say(error)
        sys.stdout.flush()
        logging.shutdown()
        os._exit(error.exit_status)


os.register_at_fork(after_in_child=_undelivered.clear)


# --- processes of multiprocessing --------------------------------------------------------------

# How to answer the pool's task in which a refusal was raised, and that refusal.
_task: tuple[Callable[[object], object], int, int, CassetteError] | None = None
_watches = False


def _remember_pool(error: CassetteError, frame: FrameType | None) -> None:
    """Where this process is a pool's worker: let the end of the process answer its task."""
    global _task
    pool = sys.modules.get("multiprocessing.pool")
    if pool is None or not _watch_the_end():
        return
    while frame is not None and frame.f_code is not pool.worker.__code__:
        frame = frame.f_back
    if frame is None or not {"put", "job", "i"} <= frame.f_locals.keys():
        return
    _task = (frame.f_locals["put"], frame.f_locals["job"], frame.f_locals["i"], error)


def _watch_the_end() -> bool:
    """Whether this is a process that multiprocessing started: `atexit` means nothing there."""
    global _watches
    processes = sys.modules.get("multiprocessing")
    if processes is None or processes.parent_process() is None:
        return False
    if not _watches:
        _watches = True
        sys.modules["multiprocessing.util"].Finalize(None, _end_child, exitpriority=0)
    return True


def _end_child() -> None:
    """It is the refusal that ends the process, unless somebody caught that and went on."""
    if _task is not None and sys.exc_info()[1] is _task[3]:
        put, job, number, error = _task
        put((job, number, (False, error)))
    _end_with_undelivered()


def _in_child() -> None:
    """After a fork: the task is the parent's."""
    global _task, _watches
    _task, _watches = None, False


os.register_at_fork(after_in_child=_in_child)


# --- one message -------------------------------------------------------------------------------


def _say(error: CassetteError) -> None:
    global _was_said
    if not _was_said:
        _was_said = True
        sys.stderr.write(f"{error.code}\n")
        sys.stderr.flush()


_hook_before: list[Callable[[threading.ExceptHookArgs], object]] = []


def _say_it_once() -> None:
    """Let threads and tasks that a refusal ends say nothing themselves, as with SystemExit."""
    if not _hook_before:
        _hook_before.append(threading.excepthook)
        threading.excepthook = _end_quietly
        logging.getLogger("asyncio").addFilter(_is_no_refusal)


def _end_quietly(args: threading.ExceptHookArgs) -> None:
    if not isinstance(args.exc_value, CassetteError):
        _hook_before[0](args)


def _is_no_refusal(record: logging.LogRecord) -> bool:
    return not (record.exc_info and isinstance(record.exc_info[1], CassetteError))
