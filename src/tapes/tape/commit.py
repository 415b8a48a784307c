"""Group commit: whoever comes first writes for all who wait, so that they share one fsync.

Knows nothing of what is written.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

Item = TypeVar("Item")


class _Ticket(Generic[Item]):
    __slots__ = ("done", "error", "item")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.done = False
        self.error: BaseException | None = None


class GroupCommit(Generic[Item]):
    """`submit` returns when the item is durable, or raises what writing its batch raised.

    `write` gets everything that has come together and is never called twice at once.
    """

    def __init__(self, write: Callable[[Sequence[Item]], None]) -> None:
        self._write = write
        self._waiting: list[_Ticket[Item]] = []
        self._writing = threading.Lock()

    def submit(self, item: Item) -> None:
        """Have the item written, by this thread or by one that is already at it."""
        ticket = _Ticket(item)
        self._waiting.append(ticket)
        with self._writing:
            if not ticket.done:
                batch, self._waiting = self._waiting, []
                self._commit(batch)
        if ticket.error is not None:
            raise ticket.error

    def _commit(self, batch: list[_Ticket[Item]]) -> None:
        try:
            self._write([ticket.item for ticket in batch])
        except BaseException as error:  # noqa: BLE001  # every waiting thread has to be told
            for ticket in batch:
                ticket.error = error
        finally:
            for ticket in batch:
                ticket.done = True
