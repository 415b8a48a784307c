"""Group commit: whoever comes first writes for all who wait, so that they share one sync.

Knows nothing of what is written.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

Item = TypeVar("Item")


class _Ticket(Generic[Item]):
    __slots__ = ("done", "error", "item")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.done = False
        self.error: Exception | None = None


class GroupCommit(Generic[Item]):
    """`submit` returns when the item is durable, or raises what writing it raised.

    `write` gets all that has come together, in order, and is never called twice at once. It
    returns how many of them, from the first on, are durable now, and raises if not even the first
    one is; it is then asked for the rest.
    """

    def __init__(self, write: Callable[[Sequence[Item]], int]) -> None:
        self._write = write
        # A deque, because appending and taking away are each one step for other threads.
        self._waiting: deque[_Ticket[Item]] = deque()
        self._writing = threading.Lock()

    def submit(self, item: Item) -> None:
        """Have the item written, by this thread or by one that is already at it."""
        ticket = _Ticket(item)
        self._waiting.append(ticket)
        with self._writing:
            if not ticket.done:
                self._commit_all()
        if ticket.error is not None:
            raise ticket.error

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Nothing is being written as long as this lasts."""
        with self._writing:
            yield

    def _commit_all(self) -> None:
        batch = [self._waiting.popleft() for _ in range(len(self._waiting))]
        try:
            while batch:
                done = self._commit(batch)
                for ticket in batch[:done]:
                    ticket.done = True
                del batch[:done]
        finally:
            # This thread is being stopped: the others write for themselves.
            self._waiting.extendleft(reversed(batch))

    def _commit(self, batch: Sequence[_Ticket[Item]]) -> int:
        try:
            return self._write([ticket.item for ticket in batch])
        except Exception as error:  # noqa: BLE001  # it is raised where the item came from
            batch[0].error = error
            return 1
