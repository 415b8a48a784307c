"""Files that commands write: whole or not at all, and over nothing that nobody gave up.

Knows nothing of what is in them.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tapes.errors import UnwritableTape, as_typed


def require_room(target: str | Path, *, force: bool, instead: str = "") -> None:
    """Raises UnwritableTape where something is there and nobody said that it may go."""
    if os.path.lexists(target) and not force:
        raise UnwritableTape(
            f"{target} is there already",
            f"to write over it: --force{instead and f', or {instead}'}",
        )


@contextmanager
def whole_file(target: str | Path) -> Iterator[Callable[[bytes], object]]:
    """Give what writes to a file, whose name is there once everything is. Raises UnwritableTape."""
    path = Path(target)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as out:
            yield out.write
        temporary.replace(path)
    except OSError as error:
        raise UnwritableTape(
            f"{target} cannot be written: {error.strerror}",
            f"see who may: ls -ld {as_typed(path.parent)}",
        ) from error
    finally:
        with suppress(OSError):  # where it could not be made, it is not there
            temporary.unlink(missing_ok=True)
