"""Put other functions in the place of a library's own, and put those back.

Knows nothing of which functions.  Stand-alone: see the folder's docstring.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# Functions of any library: their signatures are the library's business.
Function = Callable[..., Any]


class Replacements:
    """What was replaced, and what was there before."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, str], tuple[object, Function, Function | None]] = {}

    def replace(self, owner: object, name: str, make: Callable[[Function], Function]) -> None:
        """Replace `owner.name` by what `make` makes of it. A second time does nothing."""
        if (id(owner), name) in self._made:
            return
        original = getattr(owner, name)
        own = vars(owner).get(name)  # None where it is inherited
        replacement = make(original)
        replacement.__name__ = name
        setattr(owner, name, replacement)
        self._made[id(owner), name] = (owner, replacement, own)

    def undo(self) -> None:
        """Put everything back, but for what somebody else has replaced since."""
        for (_, name), (owner, replacement, own) in self._made.items():
            if vars(owner).get(name) is not replacement:
                continue
            if own is None:
                delattr(owner, name)
            else:
                setattr(owner, name, own)
        self._made.clear()
