"""Folders and durability: the `.tapes` folder beside a tape, and names that outlast a power cut.

What a run leaves in `.tapes` (indexes, locks, the budget's ledger, run reports) is for this
machine alone. It can all be deleted; none of it is part of a tape.
"""

import contextlib
import fcntl
import os
import secrets
from pathlib import Path

FOLDER = ".tapes"
_IGNORED = (
    "*.index\n*.lock\n*.torn\n*.tmp\nstate.db*\ntapes.db*\nspool/\nlives.json\n*-token\n"
    ".gitignore\n"
)


def make_local(folder: Path) -> Path:
    """Make a tape's local folder if it is not there, with the list that keeps it out of git.

    Raises OSError where it cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        temporary = folder / f"{secrets.token_hex(4)}.tmp"
        with contextlib.suppress(OSError):  # only a courtesy
            temporary.write_text(_IGNORED)
            temporary.replace(ignore)
    return folder


def make_folder(folder: str) -> None:
    """Make a folder and those above it that are not there, durably. Raises OSError."""
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder)
    make_folder(above)
    with contextlib.suppress(FileExistsError):
        os.mkdir(folder)
    if not os.path.isdir(folder):
        raise NotADirectoryError(20, "a file is in the way", folder)
    sync_folder(above)


def identity(status: os.stat_result) -> tuple[int, int]:
    """What tells one file from another, whatever its name is."""
    return status.st_dev, status.st_ino


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Make new and renamed names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_file(fd: int) -> None:
    """Make what was written to a file durable."""
    if _FULL_SYNC is None:
        os.fdatasync(fd)
    else:
        fcntl.fcntl(fd, _FULL_SYNC)


# macOS, where fsync leaves data in the drive's cache.
_FULL_SYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)


def folder_at_home() -> Path | None:
    """The folder of the person who is at work; None where nobody has a home."""
    try:
        return Path.home() / FOLDER
    except RuntimeError:
        return None
