"""The lane from what happens to the log: it takes what was noticed, at once, and keeps it.

    whoever notices → inbox → [cleaning thread] → ready → [writing thread] → store
                                      ↘  spool on disk  ↗

Rule 1: whoever notices never waits: not for a disk, a database, or a thread that reads bodies.
Rule 2: what came is kept in the store, or it lies in the spool, or it is counted as dropped. There
        is no fourth way, and nothing is dropped while the disk takes it.
Rule 3: a store that is slow, full or gone changes nothing for anybody but the spool: turns go there
        as soon as the store takes too long, and from there in their order when it is back.
Rule 4: a turn that the store refuses for what it is stands aside, and holds up no other.
Rule 5: nothing secret is in what is ready, in the spool or in the store (see noticed).

Knows nothing of sockets, and nothing of deriving but whom to wake.
"""

import logging
import os
import queue
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from tapes.capture.noticed import KEPT_HEADERS, Noticed, turn_of
from tapes.capture.spool import Spool, size_of
from tapes.ending import By, at_most
from tapes.errors import TapesError, UnavailableStore, UnreadableStore
from tapes.lanes import own_work
from tapes.providers.reading import DropReason, plain_path, provider_of_path
from tapes.redact import Redactor
from tapes.rows import NO_ORG, RawTurn
from tapes.store.base import Kept, Store

log = logging.getLogger(__name__)

_MB = 1024 * 1024
# How long a store that failed is left alone at first, and how often an idle log looks around.
_FIRST_PAUSE_S = 0.05
_LOOK_S = 1.0
# How often it is said that turns are being lost.
_SAY_S = 10.0
_AGAIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much waits in memory, how much is written at once, and how patient we are."""

    inbox_bytes: int = 256 * _MB
    ready_bytes: int = 32 * _MB
    batch_turns: int = 100
    batch_bytes: int = 8 * _MB
    slow_s: float = 1.0
    longest_pause_s: float = 10.0
    closing_s: float = 10.0


class News:
    """Whether something is worth saying: the same trouble is told once a minute."""

    def __init__(self) -> None:
        self._said: tuple[str, float] | None = None

    def is_news(self, text: str) -> bool:
        """Whether it was not said lately; from now on it was."""
        now = time.monotonic()
        if self._said is not None and self._said[0] == text and now - self._said[1] < _AGAIN_S:
            return False
        self._said = (text, now)
        return True


class Log:
    """See above. `open_store` is called by the writing thread, again where it fails.

    `redactor` takes secrets out that not every log knows.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        spool: Spool,
        *,
        bounds: Bounds | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        self._open_store = open_store
        self._spool = spool
        self._bounds = bounds or Bounds()
        self._redactor = redactor or Redactor(keep=KEPT_HEADERS)
        self._woken: Callable[[], None] = _nobody
        self._told: Callable[[str], None] = _no_one
        self._begin()

    def _begin(self) -> None:
        """Everything that is this process's own."""
        self._pid = os.getpid()
        self._store: Store | None = None
        self._inbox: queue.SimpleQueue[Noticed | None] = queue.SimpleQueue()
        self._in_order = threading.Lock()  # for handing turns on: what came first goes first
        self._lock = threading.Condition()  # for all that follows
        self._inbox_bytes = self._inbox_turns = 0
        self._ready: deque[RawTurn] = deque()
        self._ready_bytes = 0
        self._in_hand: Sequence[RawTurn] = ()  # what the store is asked to keep just now
        self._asked_at = 0.0
        self._spools = False
        self._closing = False
        self._all_came = False
        self._counts: Counter[str] = Counter()
        self._drops: Counter[tuple[str, str, str]] = Counter()
        self._is_down = False
        self._down = News()
        self._lost_unsaid = 0
        self._lost_said_at = -_SAY_S
        self._cleaning = threading.Thread(target=self._clean, name="tapes log, cleaning")
        self._writing = threading.Thread(target=self._write, name="tapes log, writing")
        for thread in (self._cleaning, self._writing):
            thread.daemon = True  # a store that hangs must not hold up the end; see close
            thread.start()

    def _begin_after_fork(self) -> None:
        """In a child: the threads are the parent's, and one of them may have held a lock."""
        if self._pid != os.getpid():
            self._begin()

    def woken_by(self, wake: Callable[[], None]) -> None:
        """Have this called when turns were kept."""
        self._woken = wake

    def told_by(self, tell: Callable[[str], None]) -> None:
        """Have this called with the request id of each turn that was noticed from now on."""
        self._told = tell

    # --- noticing

    def notice(self, noticed: Noticed) -> None:
        """An exchange came to its end. From any thread or loop; never waits."""
        self._begin_after_fork()
        size = noticed.size
        with self._lock:
            self._counts["noticed"] += 1
            fits = self._inbox_bytes + size <= self._bounds.inbox_bytes and not self._closing
            if fits:
                self._inbox_bytes += size
                self._inbox_turns += 1
        if fits:
            self._inbox.put(noticed)
        else:
            self._lose(noticed, DropReason.SEM_FULL)

    def drop(self, url: str, reason: DropReason) -> None:
        """Count an exchange that becomes no turn."""
        self._begin_after_fork()
        provider = provider_of_path(plain_path(url))
        name = provider.name if provider is not None else "unknown"
        with self._lock:
            self._drops[NO_ORG, name, reason.value] += 1
            self._counts[f"drop {reason.value}"] += 1
            self._lock.notify_all()

    def _lose(self, noticed: Noticed, reason: DropReason) -> None:
        with self._lock:
            self._counts["lost"] += 1
        log.error("an exchange was not kept: %s", reason.value)
        self.drop(_url(noticed), reason)

    # --- cleaning

    def _clean(self) -> None:
        with own_work():
            self._clean_all()

    def _clean_all(self) -> None:
        while (some := self._next()) is not None:
            if some:
                self._hand_on(self._cleaned(some))
                with self._lock:  # only now: what is in between is not forgotten by `is_idle`
                    self._inbox_bytes -= sum(noticed.size for noticed in some)
                    self._inbox_turns -= len(some)
            self._relieve()
        with self._lock:
            self._all_came = True
            self._lock.notify_all()

    def _next(self) -> list[Noticed] | None:
        """What came meanwhile, maybe nothing; None is the end."""
        try:
            first = self._inbox.get(timeout=self._bounds.slow_s / 2)
        except queue.Empty:
            return []
        return None if first is None else [first, *self._more(first.size)]

    def _more(self, size: int) -> list[Noticed]:
        found: list[Noticed] = []
        while len(found) + 1 < self._bounds.batch_turns and size < self._bounds.batch_bytes:
            try:
                noticed = self._inbox.get_nowait()
            except queue.Empty:
                break
            if noticed is None:
                self._inbox.put(None)  # the end is for the next look
                break
            found.append(noticed)
            size += noticed.size
        return found

    def _cleaned(self, some: Sequence[Noticed]) -> list[RawTurn]:
        turns = []
        for noticed in some:
            try:
                turn, reason = turn_of(
                    noticed,
                    self._redactor,
                    received_at=time.time_ns(),
                    new_id=str(uuid.uuid4()),
                )
            except Exception:  # one exchange must not stop the others
                log.exception("an exchange cannot be made a turn")
                self._lose(noticed, DropReason.MARSHAL_ERROR)
                continue
            if reason is not None:
                self.drop(_url(noticed), reason)
            self._told(turn.request_id)
            turns.append(turn)
        return turns

    def _hand_on(self, turns: Sequence[RawTurn]) -> None:
        """To the writing thread, or to the spool where that has enough."""
        size = sum(map(size_of, turns))
        with self._in_order:
            with self._lock:
                if not self._spools and self._ready_bytes + size <= self._bounds.ready_bytes:
                    self._ready.extend(turns)
                    self._ready_bytes += size
                    self._lock.notify_all()
                    return
                self._spools = True
            self._put(turns)

    def _relieve(self) -> None:
        """Where the store takes too long, put everything that waits for it on the disk."""
        waits = self._asked_at and time.monotonic() - self._asked_at > self._bounds.slow_s
        if waits:
            # What is in hand may still be kept: then it is delivered again, and known.
            self._put_all_that_waits()

    def _put_all_that_waits(self) -> None:
        """What is in hand and what is behind it, before anything that came later."""
        with self._in_order:
            with self._lock:
                turns = [*self._in_hand, *self._ready]
                self._in_hand = ()
                self._ready.clear()
                self._ready_bytes = 0
                self._spools = self._spools or bool(turns)
            self._put(turns)

    def _put(self, turns: Sequence[RawTurn]) -> bool:
        """On the disk; counted as lost where that is full too."""
        if not turns:
            return True
        try:
            self._spool.put(turns)
        except OSError as error:
            with self._lock:
                self._counts["lost"] += len(turns)
                self._lost_unsaid += len(turns)
            self._say_lost(error)
            for turn in turns:
                self.drop(_url_of(turn), DropReason.SEM_FULL)
            return False
        with self._lock:
            self._counts["spooled"] += len(turns)
            self._lock.notify_all()
        return True

    # --- writing

    def _write(self) -> None:
        with own_work():  # the store may lie on a network that the program may not reach
            self._write_all()
            if self._store is not None:
                self._store.close()  # here: whoever closes the log may wait no longer

    def _write_all(self) -> None:
        pause = _FIRST_PAUSE_S
        while True:
            batch, is_last = self._batch()
            try:
                self._keep(batch)
                self._tell_drops()
                self._drain()
                self._say_up()
                pause = _FIRST_PAUSE_S
            except Exception as error:  # noqa: BLE001  # it goes on when the store is back
                self._say_down(error)
                if not is_last:
                    self._rest(pause)
                pause = min(pause * 2, self._bounds.longest_pause_s)
            if is_last:
                return  # what could not be kept lies in the spool

    def _rest(self, pause: float) -> None:
        with self._lock:
            self._lock.wait_for(lambda: self._closing, pause)

    def _batch(self) -> tuple[list[RawTurn], bool]:
        """Turns to write, maybe none, and whether they are the last. Waits for something to do."""
        with self._lock:
            self._lock.wait_for(self._has_work, _LOOK_S)
            batch: list[RawTurn] = []
            size = 0
            while self._ready and len(batch) < self._bounds.batch_turns:
                if batch and size >= self._bounds.batch_bytes:
                    break
                turn = self._ready.popleft()
                size += size_of(turn)
                batch.append(turn)
            self._ready_bytes = self._ready_bytes - size if self._ready else 0
            self._in_hand = batch
            return batch, self._all_came and not self._ready

    def _has_work(self) -> bool:
        return bool(self._ready or self._drops or self._all_came)

    def _keep(self, batch: Sequence[RawTurn]) -> None:
        """Append; what cannot be appended now goes to the spool, then the error is raised."""
        if not batch:
            return
        try:
            self._append(batch)
        except BaseException:
            self._put_all_that_waits()
            raise
        with self._lock:
            self._in_hand = ()

    def _append(self, turns: Sequence[RawTurn]) -> None:
        with self._lock:
            self._asked_at = time.monotonic()
        try:
            store = self._opened()
            try:
                receipts = store.append(turns)
            except (UnavailableStore, UnreadableStore):
                raise
            except Exception:  # what is wrong is one of these turns
                log.exception("turns cannot be kept together")
                self._append_each(store, turns)
                return
        finally:
            with self._lock:
                self._asked_at = 0.0
        with self._lock:
            for receipt in receipts:
                self._counts[f"kept {receipt.kept}"] += 1
        if any(receipt.kept is Kept.NEW for receipt in receipts):
            self._woken()

    def _append_each(self, store: Store, turns: Sequence[RawTurn]) -> None:
        """One by one: a turn that cannot be kept stands aside (rule 4)."""
        for turn in turns:
            try:
                (receipt,) = store.append([turn])
            except (UnavailableStore, UnreadableStore):
                raise
            except Exception:
                log.exception("a turn cannot be kept")
                if self._spool.put_aside(turn):
                    self.drop(_url_of(turn), DropReason.INGEST_REJECT)
            else:
                with self._lock:
                    self._counts[f"kept {receipt.kept}"] += 1
        self._woken()

    def _opened(self) -> Store:
        if self._store is None:
            self._store = self._open_store()
        return self._store

    def _tell_drops(self) -> None:
        with self._lock:
            drops = dict(self._drops)
            self._drops.clear()
        if drops:
            try:
                self._opened().count_drops(drops)
            except BaseException:
                with self._lock:
                    self._drops.update(drops)
                raise

    def _drain(self) -> None:
        """Take in what lies in the spool; go back to memory when nothing does."""
        if not self._spools and self._spool.is_empty:
            return
        with self._spool.draining() as files:
            if files is not None:
                for file, turns in files:
                    for start in range(0, len(turns), self._bounds.batch_turns):
                        self._append(turns[start : start + self._bounds.batch_turns])
                    with self._lock:
                        self._counts["taken in"] += len(turns)
                    self._spool.taken(file)
        with self._in_order, self._lock:
            self._spools = files is not None and not self._spool.is_empty

    def _say_lost(self, error: OSError) -> None:
        with self._lock:
            if time.monotonic() - self._lost_said_at < _SAY_S:
                return
            self._lost_said_at = time.monotonic()
            lost, self._lost_unsaid = self._lost_unsaid, 0
        log.error("%d turns are lost: the spool cannot be written: %s", lost, error)

    def _say_up(self) -> None:
        if not self._is_down:
            return
        with self._lock:
            self._is_down = False
            lost, self._lost_unsaid = self._lost_unsaid, 0
        self._down = News()
        log.warning("the log takes turns again%s", f"; {lost} more were lost" if lost else "")

    def _say_down(self, error: Exception) -> None:
        with self._lock:
            self._is_down = True
            self._counts["failures"] += 1
        if isinstance(error, TapesError):
            if self._down.is_news(error.message):
                log.warning("the log goes on later, turns wait on disk: %s", error.message)
        else:
            log.exception("the log goes on later, turns wait on disk")

    # --- for people

    def counts(self) -> dict[str, int]:
        """What became of everything, and what waits."""
        self._begin_after_fork()
        with self._lock:
            counts = dict(self._counts)
            waiting = len(self._ready) + len(self._in_hand) + self._inbox_turns
        spool = self._spool.counts()
        return counts | {
            "waiting in memory": waiting,
            "waiting on disk": spool["turns"],
            "set aside": spool["refused"] + spool["damaged"],
        }

    @property
    def is_idle(self) -> bool:
        """Whether everything that was noticed is kept, or lost and counted."""
        self._begin_after_fork()
        with self._lock:
            waits = self._ready or self._in_hand or self._inbox_bytes or self._drops
            if waits or self._asked_at:
                return False
        return self._spool.is_empty

    def close(self) -> None:
        """Keep what came, as long as that takes no longer than it may; the rest lies on disk.

        What was not read by then may hold secrets and comes nowhere: how much that is, is said.
        """
        if self._pid != os.getpid():
            return  # nothing came here, and what the parent has is the parent's
        with self._lock:
            self._closing = True
            self._lock.notify_all()
        self._inbox.put(None)
        patience_s = at_most(self._bounds.closing_s, By.LOGGED)
        until = time.monotonic() + patience_s
        self._cleaning.join(patience_s)
        self._writing.join(max(until - time.monotonic(), 0.0))
        with self._lock:
            left = [*self._in_hand, *self._ready]
            self._in_hand = ()
            self._ready.clear()
            self._spools = True  # whatever is being cleaned just now goes to the disk too
        self._put(left)
        self._lose_what_is_left()
        with self._lock:
            lost, self._lost_unsaid = self._lost_unsaid, 0
        if lost:
            log.error("%d more turns are lost: the spool cannot be written", lost)

    def _lose_what_is_left(self) -> None:
        """Count and say what nobody had the time to clean (rule 2): it may hold secrets."""
        left = list[Noticed]()
        with suppress(queue.Empty):
            while True:
                noticed = self._inbox.get_nowait()
                left += [] if noticed is None else [noticed]
        if self._cleaning.is_alive():  # it ends with its next look
            self._inbox.put(None)
        for noticed in left:
            self._lose(noticed, DropReason.SEM_FULL)
        with self._lock:
            unread = self._inbox_turns
            self._inbox_bytes -= sum(noticed.size for noticed in left)
            self._inbox_turns -= len(left)
        if unread:
            log.error(
                "there was no time to read %d exchanges: %d are lost, others kept if it comes",
                unread,
                len(left),
            )


def _nobody() -> None:
    """Nobody is woken."""


def _no_one(_request_id: str) -> None:
    """No one is told."""


def _url(noticed: Noticed) -> str:
    return str(getattr(noticed.request, "url", ""))


def _url_of(turn: RawTurn) -> str:
    return str(getattr(turn.exchange.request, "url", "")) if turn.exchange is not None else ""
