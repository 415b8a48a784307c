"""Libraries that take long to import and that few tests use.

Each process reads all tests: what stands in `import` there, each of them waits for.
"""

import importlib
from typing import Any


class _Late:
    """A module that is imported when something of it is first asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("_", "pytest")):  # whoever looks for tests asks every name for these
            raise AttributeError(name)
        return getattr(importlib.import_module(self._name), name)


def late(name: str) -> Any:
    """A module by its name, as if it were imported."""
    return _Late(name)
