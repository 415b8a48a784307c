"""Which client libraries are covered, and when their entry points are replaced.

Rule 1: no library is imported for it: one that is there is covered at once, one that is imported
        later is covered then.
Rule 2: a version that is too old is left alone, and said to be: in replay the guard refuses it.
Rule 3: the replacements ask for the lane of the moment and do nothing without one; when nobody
        holds them any more, everything is as it was.

Knows nothing of what the replacements do.
"""

import os
import threading
import warnings
from importlib import import_module
from types import ModuleType

from tapes.guarding.on_import import OnImport
from tapes.guarding.replacing import Replacements

# Library → the module that covers it, by its function `cover(replacements)`, and since when.
COVERED = {
    "httpx": ("tapes.transports.httpx", (0, 27, 0)),
    "httpx2": ("tapes.transports.httpx2", (2, 0, 0)),
    "urllib3": ("tapes.transports.urllib3", (2, 0, 0)),
    "aiohttp": ("tapes.transports.aiohttp", (3, 12, 4)),
}

_lock = threading.RLock()  # a holder may be collected, and let go, while another one holds
_holders = 0
_replacements = Replacements()


def hold() -> None:
    """Have the libraries covered, for one more user."""
    global _holders
    with _lock:
        if not _holders:
            _on_import.start()
        _holders += 1


def let_go() -> None:
    """One user less; after the last one everything is as it was."""
    global _holders
    with _lock:
        _holders -= 1
        if not _holders:
            _on_import.stop()
            _replacements.undo()


def _cover(library: ModuleType) -> None:
    name, version = library.__name__, str(getattr(library, "__version__", ""))
    module, since = COVERED[name]
    if _numbers(version) >= since:
        import_module(module).cover(_replacements)
        return
    warnings.warn(
        f"{name} {version} is too old to be recorded: its calls are not, and replay refuses them;"
        f" pip install '{name}>={'.'.join(map(str, since))}'",
        stacklevel=2,
    )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3] if part.isdigit())


_on_import = OnImport(dict.fromkeys(COVERED, _cover))


def _in_child() -> None:
    """After a fork: whoever held it is the parent's, and what was half covered is begun anew."""
    global _lock
    _lock = threading.RLock()
    if not _holders:
        _on_import.stop()
        _replacements.undo()


os.register_at_fork(after_in_child=_in_child)
