"""The store of a place, its log, and what derives from it, opened together and closed in order.

Rule 1: a store that is gone stops nobody who only adds to it: turns wait in its spool. One that
        cannot be read is an error before anything is added.
Rule 2: erasing from a store that was opened here reaches its spool.
Rule 3: what a project declares as secret comes to rest in no log of it: neither in one that lies
        there, nor in one elsewhere that is kept from there.
Rule 4: a store that hangs holds up no end.
"""

import importlib.util
import logging
import os
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import chain
from pathlib import Path

from tapes.capture.inside import Inside
from tapes.capture.log import Log, News
from tapes.capture.noticed import KEPT_HEADERS, Noticed
from tapes.capture.spool import Spool
from tapes.config import FOLDER
from tapes.ending import By, at_most
from tapes.errors import TapesError, UnavailableStore, UnreadableStore
from tapes.lanes import own_work
from tapes.opening import DEFAULT_STORE, Where, require_extra
from tapes.prices import Prices
from tapes.project import declared_secrets
from tapes.projector import Projector
from tapes.providers.reading import DropReason
from tapes.redact import SECRET_PATTERNS, Redactor, SecretPattern
from tapes.store.base import Store
from tapes.store.sqlite import open_sqlite
from tapes.tape.beside import make_local

log = logging.getLogger(__name__)

_LAST_S = 5.0
_STOPPING_S = 10.0


def open_store(where: Where) -> Store:
    """The store that is there, made where there is none; erasing reaches its spool too.

    Raises MissingExtra, UnreadableStore (NewerStore, DamagedStore) or UnavailableStore.
    """
    require_extra(where)
    store: Store
    if where.dsn is not None:
        # Its driver is an extra of its own.
        from tapes.store.postgres import open_postgres

        store = open_postgres(where.dsn)
    else:
        folder = Path(where.path).parent
        if Path(where.path).is_dir():
            raise UnreadableStore(
                f"{where.path} is a folder, and no log",
                f"name the file: {Path(where.path) / DEFAULT_STORE}",
            )
        if folder.name == FOLDER:
            with suppress(OSError):  # what is wrong shows when the file is opened
                make_local(folder)
        store = open_sqlite(where.path)
    spool = open_spool(where)
    store.when_erasing(spool.purge, spool.unsearched)
    return store


def open_spool(where: Where) -> Spool:
    """The spool of a store."""

    return Spool(where.spool)


def secrets_of(where: Where) -> tuple[SecretPattern, ...]:
    """The forms of secrets that come to rest in no log there (rule 3). Raises BadRule."""
    folders = [Path.cwd(), *(() if where.dsn is not None else (Path(where.path).parent,))]
    declared = dict.fromkeys(chain.from_iterable(map(declared_secrets, folders)))
    return (*SECRET_PATTERNS, *declared)


def cleaner_of(where: Where) -> Redactor:
    """What takes secrets out before anything comes to rest there. Raises BadRule."""
    return Redactor(patterns=secrets_of(where), keep=KEPT_HEADERS)


def open_log(where: Where) -> Log:
    """The log of a store, which may be gone just now. Raises MissingExtra, BadRule."""
    require_extra(where)
    return Log(lambda: open_store(where), open_spool(where), redactor=cleaner_of(where))


def open_projector(store: Store) -> Projector:
    """What derives, with the prices that are at hand."""

    table = importlib.util.find_spec("genai_prices") is not None
    return Projector(store, Prices(table=table))


@contextmanager
def deriving(projector: Projector) -> Iterator[None]:
    """Derive beside, as long as this lasts, and what came just before the end (rule 4)."""
    stop = threading.Event()

    def derive() -> None:
        projector.run(stop)
        _derive_the_last(projector)

    thread = threading.Thread(target=derive, name="tapes projector", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        projector.wake()
        thread.join(at_most(_STOPPING_S, By.DERIVED))


def _derive_the_last(projector: Projector) -> None:
    """What came just before the end is seen at once; what takes longer, by whoever is next."""
    until = time.monotonic() + _LAST_S
    with suppress(TapesError):
        while time.monotonic() < until and projector.step(eager=True).worked:
            pass


class Keeping:
    """A log, and what derives from it beside."""

    def __init__(self, where: Where) -> None:
        self.where = where
        self.log = open_log(where)
        self._stop = threading.Event()
        self._projector: Projector | None = None
        self._deriving = threading.Thread(target=self._derive, name="tapes projector", daemon=True)
        self.log.woken_by(self._wake)
        self._deriving.start()

    def notice(self, noticed: Noticed) -> None:
        """An exchange came to its end."""
        self.log.notice(noticed)

    def drop(self, url: str, reason: DropReason) -> None:
        """An exchange becomes no turn."""
        self.log.drop(url, reason)

    def _wake(self) -> None:
        if self._projector is not None:
            self._projector.wake()

    def _derive(self) -> None:
        """Open the store as soon as that can be done, and derive until told to stop."""
        with own_work():
            self._derive_all()

    def _derive_all(self) -> None:
        pause, news = 0.1, News()
        while not self._stop.is_set():
            try:
                self._derive_from(open_store(self.where))
            except TapesError as error:
                if news.is_news(error.message):
                    log.warning("sessions are derived later: %s", error.message)
                self._stop.wait(pause)
                pause = min(pause * 2, 10.0)

    def _derive_from(self, store: Store) -> None:
        try:
            self._projector = open_projector(store)
            self._projector.run(self._stop)
            _derive_the_last(self._projector)
        finally:
            store.close()

    def counts(self) -> Mapping[str, int]:
        """What became of what was noticed, and of what was derived."""
        derived = {} if self._projector is None else {"derived": self._projector.total.derived}
        return {**self.log.counts(), **derived}

    def close(self) -> None:
        """Keep what came, and derive it where that takes no longer than it may."""
        self.log.close()
        self._stop.set()
        self._wake()
        self._deriving.join(at_most(_STOPPING_S, By.DERIVED))


@contextmanager
def keeping(where: Where) -> Iterator[Keeping]:
    """A log that is kept as long as this lasts.

    Raises MissingExtra, and UnreadableStore where the store is there and is none of ours; one that
    is gone is waited for.
    """
    with own_work(), suppress(UnavailableStore):
        open_store(where).close()
    kept = Keeping(where)
    try:
        yield kept
    finally:
        kept.close()


# --- one log for all that is open in this process ---------------------------------------------

_held: dict[Where, tuple[Keeping, ExitStack, int]] = {}
_lock = threading.Lock()


def _in_child() -> None:
    """After a fork: whoever held it is the parent's."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_in_child)


def hold(where: Where) -> Inside:
    """The witness of a log that is kept until `let_go` was called as often. Raises as `keeping`."""
    with _lock:
        if where not in _held:
            stack = ExitStack()
            _held[where] = (stack.enter_context(keeping(where)), stack, 0)
        kept, stack, count = _held[where]
        _held[where] = (kept, stack, count + 1)
        return Inside(kept)


def let_go(where: Where) -> None:
    """One less needs the log; with the last one it is closed."""
    with _lock:
        kept, stack, count = _held.pop(where)
        if count > 1:
            _held[where] = (kept, stack, count - 1)
            return
    stack.close()
