"""What a tape's name leads to: a regular file, nothing, or an error that says what it is instead.

A link to nothing is an error and no empty tape: what it led to may be on a disk that is not there.
"""

import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

from tapes.errors import UnreadableTape, as_typed
from tapes.tape.beside import FOLDER

# How long a writer waits for others: for a lock, and where one file after another has its name.
PATIENCE_S = 60.0


def local_of(path: str) -> tuple[Path, str]:
    """The folder for this machine's files about a tape, and the tape's name in it.

    By whatever name or link a tape is opened they are the same: one lock, one budget.
    """
    real = os.path.realpath(path)
    return Path(os.path.dirname(real)) / FOLDER, os.path.basename(real)


def patiently() -> Iterator[None]:
    """Once more and once more, for as long as a writer is patient with others."""
    until = time.monotonic() + PATIENCE_S
    while time.monotonic() < until:
        yield


def file_status(path: str, shown: str) -> os.stat_result | None:
    """The status of the regular file at a path; None where nothing is. Raises UnreadableTape."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        _refuse_dangling_link(path, shown, f"begin an empty tape there: touch {shown}")
        return None
    except OSError as error:
        raise unreadable(shown, error) from error
    if stat.S_ISREG(status.st_mode):
        return status
    if stat.S_ISDIR(status.st_mode):
        raise UnreadableTape(
            f"{shown} is a folder, not a file",
            "a directory tape is opened by its own kind: name it with a trailing /",
        )
    raise UnreadableTape(f"{shown} is not a regular file", f"look at: ls -l {as_typed(shown)}")


def require_folder_or_nothing(path: str, shown: str) -> None:
    """Refuse what is there and is no folder. Raises UnreadableTape."""
    try:
        status = os.stat(path)
    except FileNotFoundError:
        _refuse_dangling_link(path, shown, f"remove the link: rm {as_typed(shown)}")
        return
    except OSError as error:
        raise unreadable(shown, error) from error
    if not stat.S_ISDIR(status.st_mode):
        raise UnreadableTape(
            f"{shown} is a file, not a directory", "name a directory, or end the name with .jsonl"
        )


def _refuse_dangling_link(path: str, shown: str, otherwise: str) -> None:
    if os.path.islink(path):
        raise UnreadableTape(
            f"{shown} is a link to {os.path.realpath(path)}, which is not there",
            f"bring that back, or {otherwise}",
        )


def unreadable(shown: str, error: OSError, inside: str = "") -> UnreadableTape:
    """The error for a tape, or a file inside one, that the system does not let us read."""
    what, path = (f"{inside}: ", f"{shown}/{inside}") if inside else ("", shown)
    return UnreadableTape(
        f"the tape {shown} cannot be read: {what}{error.strerror}",
        f"check who may read it: ls -ld {as_typed(path)}",
    )
