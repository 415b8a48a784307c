"""The tapes of one proxy: the one that serves whoever names none, and others by name.

A name is declared, or stands for a file in a folder, which is opened when it is first asked for.
Of those so many are open: names come from clients, and each tape takes memory and a descriptor.
"""

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

from tapes.cassette import Cassette
from tapes.errors import BadSetting
from tapes.tape.base import Tape

# Where more tapes of the folder are open, so many are let go: those asked for longest ago.
_OPEN, _LET_GO = 128, 32
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class Shelf:
    """Cassettes by name. Safe to use from many threads."""

    def __init__(
        self,
        default: Cassette | None = None,
        named: dict[str, Cassette] | None = None,
        *,
        folder: Path | None = None,
        opened: Callable[[str | Tape], Cassette] | None = None,
    ) -> None:
        """`opened` makes the cassette of a file in `folder`."""
        self._default = default
        self._named = dict(named or {})
        self._of_folder: OrderedDict[str, Cassette] = OrderedDict()
        self._let_go: Callable[[], object] = _nobody
        self._folder = folder
        self._opened = opened
        self._lock = threading.Lock()

    def find(self, name: str | None) -> Cassette:
        """The cassette of a name. Raises BadSetting, and what opening a tape raises."""
        if name is None:
            if self._default is None:
                raise BadSetting("no tape is named", f"name one: x-tapes-tape. {self._known()}")
            return self._default
        with self._lock:
            found = self._named.get(name)
            if found is not None:
                return found
            found = self._of_folder.get(name)
            if found is None:
                found = self._of_folder[name] = self._open(name)
                self._bound()
            self._of_folder.move_to_end(name)
            return found

    def when_let_go(self, told: Callable[[], object]) -> None:
        """Have this called when tapes were let go: whoever remembers them is to forget them."""
        self._let_go = told

    def _bound(self) -> None:
        if len(self._of_folder) <= _OPEN:
            return
        for _ in range(_LET_GO):
            _, oldest = self._of_folder.popitem(last=False)
            oldest.rest()  # not closed: a call of it may be under way
        self._let_go()

    def _open(self, name: str) -> Cassette:
        if self._folder is None or self._opened is None or not _NAME.fullmatch(name):
            raise BadSetting(f"there is no tape {name[:100]!r} here", self._known())
        return self._opened(str(self._folder / f"{name}.jsonl"))

    def _known(self) -> str:
        names = ", ".join(sorted({**self._named, **self._of_folder})) or "none"
        if self._folder is not None:
            return f"there are: {names}, and every name that stands for a file in {self._folder}"
        return f"there are: {names}; declare one with: --named NAME=PATH"

    def __iter__(self) -> Iterator[Cassette]:
        with self._lock:
            cassettes = [self._default, *self._named.values(), *self._of_folder.values()]
        return (cassette for cassette in cassettes if cassette is not None)

    def close(self) -> None:
        """Let go of all tapes, and leave their reports beside them."""
        for cassette in self:
            cassette.close()


def _nobody() -> None:
    """Nobody remembers any."""
