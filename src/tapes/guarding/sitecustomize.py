"""The guard of a child process: Python runs this file before the child's own code.

It is found because its folder stands first on PYTHONPATH, which a guarded parent sets. It takes
that folder off the child's path, keeps the child off the network as the parent was, and then runs
the `sitecustomize` that it hides. The child's children inherit the same environment.

Stand-alone: see the folder's docstring.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import json
import os
import sys
import threading
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

VARIABLE = "TAPES_GUARD"
FOLDER = os.path.dirname(os.path.abspath(__file__))
_PACKAGE = "_tapes_guarding"


class NetworkBlocked(SystemExit):
    """Something in this child process tried to leave the machine."""


def _package() -> None:
    """Load this folder as a package of its own name, wherever the project itself may be."""
    place = os.path.join(FOLDER, "__init__.py")
    spec = importlib.util.spec_from_file_location(
        _PACKAGE, place, submodule_search_locations=[FOLDER]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{place} cannot be loaded")
    sys.modules[_PACKAGE] = importlib.util.module_from_spec(spec)


def _guard(told: dict[str, Any]) -> None:
    _package()
    rules = importlib.import_module(f"{_PACKAGE}.rules")
    watching = importlib.import_module(f"{_PACKAGE}.watching")
    allowed = rules.Allowed(told["allow"])

    def refuse(wanted: object) -> None:
        error = NetworkBlocked(
            f"network blocked: a child process (pid {os.getpid()}) tried to reach {wanted}, and"
            f" {told['reason']}\nto let it through: {told['remedy'].replace('HOST', str(wanted))}"
        )
        if threading.current_thread() is not threading.main_thread():
            _end_with(str(error))  # elsewhere SystemExit ends that thread alone, without a word
        raise error

    watching.watch(refuse, lambda: allowed)
    watching.CompiledWatch(refuse, lambda: allowed).start()


def _end_with(message: str) -> None:
    sys.stderr.write(f"{message}\n")
    sys.stderr.flush()
    atexit.register(os._exit, 1)


def _run_hidden() -> None:
    """Run the `sitecustomize` that this one stands before, as if this one were not there."""
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != FOLDER]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is None or spec.loader is None:
        return
    hidden: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = hidden
    spec.loader.exec_module(hidden)


if __name__ == "sitecustomize":
    _told = os.environ.get(VARIABLE)
    if _told:
        try:
            _guard(json.loads(_told))
        except Exception as error:  # noqa: BLE001  # `site` would go on without the guard
            sys.stderr.write(f"tapes: this child process cannot be guarded: {error!r}\n")
            sys.stderr.flush()
            os._exit(1)
    _run_hidden()
