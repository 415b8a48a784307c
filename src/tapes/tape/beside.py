"""The `.tapes` folder beside a tape: what a run leaves there is for this machine alone.

Indexes, the budget's ledger and run reports can all be deleted; none of them is part of a tape.
"""

import contextlib
import os
from pathlib import Path

FOLDER = ".tapes"
_IGNORED = "*.index\n*.lock\n*.torn\nstate.db*\n.gitignore\n"


def make_local(folder: Path) -> Path:
    """Make a tape's local folder if it is not there, with the list that keeps it out of git.

    Raises OSError where it cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        with contextlib.suppress(OSError):  # only a courtesy
            ignore.write_text(_IGNORED)
    return folder


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make a new or renamed name in a folder durable."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
