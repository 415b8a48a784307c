"""Do something with a module once it has been imported, without importing it.

Knows nothing of what is done.  Stand-alone: see the folder's docstring.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

Action = Callable[[ModuleType], None]


class OnImport(MetaPathFinder):
    """Calls an action for each of its modules: at once for those imported already, else later."""

    def __init__(self, actions: Mapping[str, Action]) -> None:
        self._actions = dict(actions)
        self._looking = set[str]()

    def start(self) -> None:
        """Act on what is there, and wait for the rest. Does nothing where it waits already."""
        if self in sys.meta_path:
            return
        sys.meta_path.insert(0, self)
        for name, action in self._actions.items():
            module = sys.modules.get(name)
            if module is not None and not _is_loading(module):
                action(module)

    def stop(self) -> None:
        """Wait no longer."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders give, with the action behind its execution."""
        if fullname not in self._actions or fullname in self._looking:
            return None
        self._looking.add(fullname)
        try:
            for finder in list(sys.meta_path):
                spec = None if finder is self else finder.find_spec(fullname, path, target)
                if spec is not None:
                    self._act_after(spec, self._actions[fullname])
                    return spec
        finally:
            self._looking.discard(fullname)
        return None

    def _act_after(self, spec: ModuleSpec, action: Action) -> None:
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if loader is None or execute is None:
            return

        def exec_module(module: ModuleType) -> None:
            execute(module)
            if module.__name__ == spec.name and self in sys.meta_path:
                action(module)

        # Only this loader's own attribute: what the module sees of its loader stays genuine.
        try:
            loader.exec_module = exec_module  # type: ignore[method-assign]  # that is the point
        except AttributeError:
            pass


def _is_loading(module: ModuleType) -> bool:
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))
