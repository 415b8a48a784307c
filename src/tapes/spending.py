"""What live calls a tape's budget went to, and what is left of it.

Knows nothing of terminals.
"""

import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from tapes.budget import RUN, Limits, Spend, reset, spends
from tapes.errors import LedgerFailed, UnreadableTape, UnwritableTape, as_typed
from tapes.report import STATE
from tapes.tape.beside import FOLDER
from tapes.tape.finding import PASSED_OVER
from tapes.tape.kinds import open_tape
from tapes.tape.named import local_of
from tapes.tape.raw import kind_of_existing


@dataclass(frozen=True, slots=True)
class Line:
    """One live call. `is_lost` where it is open and its process on this machine is gone."""

    spend: Spend
    is_lost: bool


@dataclass(frozen=True, slots=True)
class Account:
    """The budget of one tape and run: its limits, and who spent what."""

    path: str
    run: str
    limits: Limits
    lines: tuple[Line, ...]

    @property
    def counted(self) -> list[Spend]:
        """What counts against the limits: all but what was given back."""
        return [line.spend for line in self.lines if line.spend.state != "returned"]

    @property
    def left(self) -> Limits:
        """What is left of each limit; None where there is no limit."""
        calls, tokens, usd = len(self.counted), self.tokens, self.usd
        limits = self.limits
        return Limits(
            None if limits.calls is None else max(limits.calls - calls, 0),
            None if limits.tokens is None else max(limits.tokens - tokens, 0),
            None if limits.usd is None else max(limits.usd - usd, Decimal(0)),
        )

    @property
    def tokens(self) -> int:
        """The tokens that count, those set aside for open calls included."""
        return sum(spend.tokens for spend in self.counted)

    @property
    def usd(self) -> Decimal:
        """The dollars that count, those set aside for open calls included."""
        return sum((spend.usd for spend in self.counted), Decimal(0))


def account_of(path: str | os.PathLike[str], environ: Mapping[str, str]) -> Account:
    """The account of a tape in the run that the environment names. Raises UnreadableTape."""
    return _account(os.fspath(path), spends_on(path), environ)


def spends_on(path: str | os.PathLike[str]) -> list[Spend]:
    """Every live call that was counted for a tape, in whichever run. Raises UnreadableTape."""
    local, name = _place_of(path)
    return [] if local is None else [s for s in _spends(local / STATE) if s.tape == name]


def _place_of(path: str | os.PathLike[str]) -> tuple[Path | None, str]:
    """The local folder of a tape, and its name there."""
    try:
        kind_of_existing(path)
    except UnreadableTape:
        place = _place_before_the_tape(os.fspath(path))
        if place is None:
            raise
        return place
    tape = open_tape(path)
    tape.close()
    return tape.local, tape.name


def _place_before_the_tape(path: str) -> tuple[Path, str] | None:
    """The same where calls were counted, and nothing has been kept: all of them failed, say."""
    if os.path.isdir(path):
        tape = open_tape(path)
        tape.close()
        local, name = tape.local, tape.name
    elif os.path.lexists(path):
        return None
    else:
        local, name = local_of(os.path.abspath(path))
    if local is None or all(spend.tape != name for spend in _spends(local / STATE)):
        return None
    return local, name


def accounts_below(folder: str | os.PathLike[str], environ: Mapping[str, str]) -> Iterator[Account]:
    """The accounts of all tapes below a folder that live calls were counted for."""
    for where, folders, _ in os.walk(folder):
        if FOLDER in folders:
            found = _spends(Path(where, FOLDER, STATE))
            for name in dict.fromkeys(spend.tape for spend in found):
                path = os.path.normpath(os.path.join(where, name))
                yield _account(path, [s for s in found if s.tape == name], environ)
        folders[:] = sorted(name for name in folders if name not in PASSED_OVER)


def _account(path: str, found: list[Spend], environ: Mapping[str, str]) -> Account:
    run = environ.get(RUN, "")
    lines = tuple(Line(spend, _is_lost(spend)) for spend in found if spend.run == run)
    return Account(path, run, Limits.of(environ), lines)


def _is_lost(spend: Spend) -> bool:
    if spend.state != "open" or spend.host != socket.gethostname():
        return False
    try:
        os.kill(spend.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # somebody else's process
    return False


def _spends(ledger: Path) -> list[Spend]:
    try:
        return spends(ledger)
    except LedgerFailed as error:  # which would end the process of whoever only looks
        raise UnreadableTape(
            f"the ledger {ledger} cannot be read: {error.message}",
            f"check it with: ls -l {as_typed(ledger)}; it can be deleted: only the count is lost",
        ) from error


def forget_spending(path: str | os.PathLike[str]) -> int:
    """Begin a tape's count anew; gives the number of calls forgotten. Raises UnwritableTape."""
    local, name = _place_of(path)
    if local is None:
        return 0
    try:
        return reset(local / STATE, name)
    except LedgerFailed as error:
        raise UnwritableTape(
            f"the ledger {local / STATE} cannot be written: {error.message}",
            f"check it with: ls -ld {as_typed(local)} {as_typed(local / STATE)}",
        ) from error
