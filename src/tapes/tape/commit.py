"""Group commit: whoever comes first writes for all who wait, so that they share one sync.

Rule 1: one thread leads at a time. It writes all that waits, then the first of those who came
        meanwhile leads.
Rule 2: a thread that is stopped while it leads or waits leaves nobody behind.

Knows nothing of what is written.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Generic, TypeVar

Item = TypeVar("Item")


class _Ticket(Generic[Item]):
    __slots__ = ("_woken", "done", "error", "item", "leads")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.done = self.leads = False
        self.error: Exception | None = None
        self._woken = threading.Lock()  # held until there is something to do
        self._woken.acquire()

    def wait(self, seconds: float) -> bool:
        """Wait until there is something to do. False where the time ran out."""
        return self._woken.acquire(timeout=seconds)

    def wake(self) -> None:
        """There is something to do: to lead, or to go on. A second time does nothing."""
        with suppress(RuntimeError):  # not held any more
            self._woken.release()


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
        self.writing = threading.Lock()  # held by who writes

    @contextmanager
    def at_rest(self) -> Iterator[None]:
        """Nothing is being written as long as this lasts."""
        with self.writing:
            yield

    def submit(self, item: Item) -> None:
        """Have the item written, by this thread or by one that is already at it."""
        ticket = _Ticket(item)
        self._see_written((ticket,))
        if ticket.error is not None:
            raise ticket.error

    def submit_all(self, items: Sequence[Item]) -> list[Exception | None]:
        """Have items written together; what writing each of them raised, or None."""
        tickets = [_Ticket(item) for item in items]
        self._see_written(tickets)
        return [ticket.error for ticket in tickets]

    def _see_written(self, tickets: Sequence[_Ticket[Item]]) -> None:
        if not tickets:
            return
        try:
            with self._mutex:
                self._waiting.extend(tickets)
                tickets[0].leads = not self._has_leader
                self._has_leader = True
            for ticket in tickets:
                if not ticket.leads and not ticket.done:
                    self._wait(ticket)
                if ticket.leads:
                    with self.writing:
                        self._commit_all()
        finally:
            for ticket in tickets:
                self._leave(ticket)

    def _wait(self, ticket: _Ticket[Item]) -> None:
        while not ticket.wait(_PATIENCE_S):
            # A leader that was stopped at the wrong instant let nobody lead. Should it be about
            # to begin all the same, then two lead, one after the other, which harms nobody.
            if not self.writing.locked():
                ticket.leads = True
                return

    def _leave(self, ticket: _Ticket[Item]) -> None:
        """Wait no longer; whoever led lets the first who waits lead."""
        with self._mutex:
            if not ticket.done and ticket in self._waiting:
                self._waiting.remove(ticket)
            if ticket.leads:
                self._has_leader = bool(self._waiting)
                if self._has_leader:
                    self._waiting[0].leads = True
                    self._waiting[0].wake()

    def _commit_all(self) -> None:
        batch: list[_Ticket[Item]] = []
        try:
            with self._mutex:
                batch.extend(self._waiting)
                self._waiting.clear()
            while batch:
                done = self._commit(batch)
                for ticket in batch[:done]:
                    ticket.done = True
                    ticket.wake()
                del batch[:done]
        finally:
            if batch:  # this thread is being stopped: the others write for themselves
                self._put_back(batch)

    def _put_back(self, batch: Sequence[_Ticket[Item]]) -> None:
        with self._mutex:
            for ticket in reversed(batch):
                if ticket.done:
                    ticket.wake()
                elif ticket not in self._waiting:
                    self._waiting.appendleft(ticket)

    def _commit(self, batch: Sequence[_Ticket[Item]]) -> int:
        try:
            return self._write([ticket.item for ticket in batch])
        except Exception as error:  # noqa: BLE001  # it is raised where the item came from
            batch[0].error = error
            return 1


# How long a thread waits before it looks whether anybody is at it.
_PATIENCE_S = 1.0
