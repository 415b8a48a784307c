"""What was used lately, within a bound of bytes.

Two tables: what is used moves into the young one; when that is half full it becomes the old one,
and the old one is forgotten. So whatever was used within the last half of the bound is there, and
neither finding nor forgetting looks at more than one entry.
"""

from typing import Generic, TypeVar

Key = TypeVar("Key", bytes, str)
Value = TypeVar("Value")

# What an entry costs beside what its user counts: two objects and a place in a table.
_ENTRY = 400


class Recent(Generic[Key, Value]):
    """A bounded table."""

    def __init__(self, limit: int) -> None:
        """`limit` is in bytes, as `add` counts them."""
        self._half = limit // 2
        self._young: dict[Key, tuple[Value, int]] = {}
        self._old: dict[Key, tuple[Value, int]] = {}
        self._size = 0

    def find(self, key: Key) -> Value | None:
        """The value of a key that was used lately."""
        entry = self._young.get(key)
        if entry is not None:
            return entry[0]
        entry = self._old.pop(key, None)
        if entry is None:
            return None
        self.add(key, *entry)
        return entry[0]

    def add(self, key: Key, value: Value, size: int) -> None:
        """Remember a value of so many bytes; what is larger than half the bound is not kept."""
        if size > self._half:
            return
        if self._size + size + _ENTRY > self._half:
            self._old, self._young, self._size = self._young, {}, 0
        before = self._young.get(key)
        self._size += size + (_ENTRY if before is None else -before[1])
        self._young[key] = (value, size)

    def forget(self, key: Key) -> None:
        """Forget one entry."""
        entry = self._young.pop(key, None)
        if entry is not None:
            self._size -= entry[1] + _ENTRY
        self._old.pop(key, None)

    def clear(self) -> None:
        """Forget everything."""
        self._young, self._old, self._size = {}, {}, 0
