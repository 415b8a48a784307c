"""Which client libraries are covered, and when their entry points are replaced.

Rule 1: no library is imported for it: one that is there is covered at once, one that is imported
        later is covered then.
Rule 2: the replacements ask for the lane of the moment and do nothing without one; when nobody
        holds them any more, everything is as it was.

Knows nothing of what the replacements do.
"""

import threading
from importlib import import_module
from types import ModuleType

from tapes.guarding.on_import import OnImport
from tapes.guarding.replacing import Replacements

# Library → the module that covers it, by its function `cover(replacements)`.
COVERED = {
    "httpx": "tapes.transports.httpx",
    "httpx2": "tapes.transports.httpx2",
    "urllib3": "tapes.transports.urllib3",
    "aiohttp": "tapes.transports.aiohttp",
}

_lock = threading.Lock()
_holders = 0
_replacements = Replacements()


def hold() -> None:
    """Have the libraries covered, for one more user."""
    global _holders
    with _lock:
        _holders += 1
        if _holders == 1:
            _on_import.start()


def let_go() -> None:
    """One user less; after the last one everything is as it was."""
    global _holders
    with _lock:
        _holders -= 1
        if not _holders:
            _on_import.stop()
            _replacements.undo()


def _cover(library: ModuleType) -> None:
    import_module(COVERED[library.__name__]).cover(_replacements)


_on_import = OnImport(dict.fromkeys(COVERED, _cover))
