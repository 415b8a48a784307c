"""Group commit: whoever comes first writes for all who wait, so that they share one sync.

Rule 1: one thread leads at a time. It writes all that waits, then the first of those who came
        meanwhile leads.
Rule 2: a thread that is stopped while it leads or waits leaves nobody behind.

Knows nothing of what is written.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

Item = TypeVar("Item")


class _Ticket(Generic[Item]):
    __slots__ = ("done", "error", "item", "leads", "woken")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.done = self.leads = False
        self.error: Exception | None = None
        self.woken = threading.Lock()  # held until there is something to do
        self.woken.acquire()


class GroupCommit(Generic[Item]):
    """`submit` returns when the item is durable, or raises what writing it raised.

    `write` gets all that has come together, in order, and is never called twice at once. It
    returns how many of them, from the first on, are durable now, and raises if not even the first
    one is; it is then asked for the rest.
    """

    def __init__(self, write: Callable[[Sequence[Item]], int]) -> None:
        self._write = write
        self._mutex = threading.Lock()  # for these two
        self._waiting: deque[_Ticket[Item]] = deque()
        self._has_leader = False
        self._writing = threading.Lock()

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Nothing is being written as long as this lasts."""
        with self._writing:
            yield

    def submit(self, item: Item) -> None:
        """Have the item written, by this thread or by one that is already at it."""
        ticket = _Ticket(item)
        try:
            with self._mutex:
                self._waiting.append(ticket)
                ticket.leads = not self._has_leader
                self._has_leader = True
            if not ticket.leads:
                ticket.woken.acquire()
            if ticket.leads:
                with self._writing:
                    self._commit_all()
        finally:
            if ticket.leads or not ticket.done:
                self._leave(ticket)
        if ticket.error is not None:
            raise ticket.error

    def _leave(self, ticket: _Ticket[Item]) -> None:
        """Wait no longer; whoever led lets the first who waits lead."""
        with self._mutex:
            if ticket in self._waiting:
                self._waiting.remove(ticket)
            if not ticket.leads:
                return
            self._has_leader = bool(self._waiting)
            if self._has_leader:
                self._waiting[0].leads = True
                self._waiting[0].woken.release()

    def _commit_all(self) -> None:
        with self._mutex:
            batch = list(self._waiting)
            self._waiting.clear()
        try:
            while batch:
                done = self._commit(batch)
                for ticket in batch[:done]:
                    ticket.done = True
                    ticket.woken.release()
                del batch[:done]
        finally:
            # This thread is being stopped: the others write for themselves.
            with self._mutex:
                self._waiting.extendleft(reversed(batch))

    def _commit(self, batch: Sequence[_Ticket[Item]]) -> int:
        try:
            return self._write([ticket.item for ticket in batch])
        except Exception as error:  # noqa: BLE001  # it is raised where the item came from
            batch[0].error = error
            return 1
