"""Watch where a process goes, and refuse what is neither here nor allowed.

Rule 1: an audit hook cannot be taken away again, so it is set once and asks each time.
Rule 2: refusing raises; what is refused by name is not even looked up.

Knows nothing of cassettes.  Stand-alone: see the folder's docstring.
"""

from __future__ import annotations

import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import ModuleType

from .compiled import COMPILED
from .on_import import OnImport
from .replacing import Replacements
from .rules import EVENTS, Allowed, Destination, destination_of, is_here

# What is allowed at this moment; None where nothing is to be refused.
Asked = Callable[[], "Allowed | None"]
Refuse = Callable[[Destination], None]
_learning = threading.local()


def watch(refuse: Refuse, allowed_now: Asked) -> None:
    """Refuse from now on, for the rest of the process, as `allowed_now` says at each moment."""

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event in EVENTS:
            wanted = destination_of(event, arguments)
            if wanted is not None:
                with _closed_if_refused(event, arguments):
                    check(refuse, allowed_now, wanted)

    sys.addaudithook(hook)


@contextmanager
def _closed_if_refused(event: str, arguments: tuple[object, ...]) -> Iterator[None]:
    """Who connects expects an OSError where it fails, and would leave the socket open otherwise."""
    try:
        yield
    except BaseException:
        if event == "socket.connect" and isinstance(arguments[0], socket.socket):
            arguments[0].close()
        raise


def check(refuse: Refuse, allowed_now: Asked, wanted: Destination) -> None:
    """Refuse a destination, unless it is here or allowed."""
    allowed = allowed_now()
    if allowed is None or is_here(wanted.host) or getattr(_learning, "on", False):
        return
    if not allowed.covers(wanted):
        refuse(wanted)
        return
    _learning.on = True
    try:
        allowed.learn(wanted)
    finally:
        _learning.on = False


class CompiledWatch:
    """The replaced entry points of clients that no audit event tells of."""

    def __init__(self, refuse: Refuse, allowed_now: Asked) -> None:
        self.check = partial(check, refuse, allowed_now)
        self._replacements = Replacements()
        self._on_import = OnImport(dict.fromkeys(COMPILED, self._replace))

    def start(self) -> None:
        """Replace them where they are imported, now or later."""
        self._on_import.start()

    def stop(self) -> None:
        """Put everything back."""
        self._on_import.stop()
        self._replacements.undo()

    def _replace(self, module: ModuleType) -> None:
        COMPILED[module.__name__](module, self._replacements, self.check)
