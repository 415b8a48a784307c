"""The operator's word on tools, in a file: read by the host, written by it and by the command line.

Rule 1: an unreadable file is an error, not an empty one: nothing is approved by damage.
Rule 2: the file is replaced whole.

Knows nothing of what is pinned.
"""

import json
import os
from pathlib import Path

from tapes.errors import BadSetting
from tapes.services.pins import Pins

FILE = "cassette-tools.json"


class PinFile:
    """The file of approved tools."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen: tuple[int, int] | None = None

    def read(self) -> Pins:
        """What is approved. Raises BadSetting."""
        try:
            seen = self._stamp()  # before: what is written meanwhile is a change still to be read
            text = self.path.read_text(encoding="utf-8")
            self._seen = seen
        except FileNotFoundError:
            return Pins()
        except (OSError, UnicodeDecodeError) as error:
            raise BadSetting(f"{self.path}: {error}") from error
        try:
            approved = json.loads(text)
            valid = all(
                isinstance(tools, dict) and all(isinstance(d, str) for d in tools.values())
                for tools in approved.values()
            )
        except (ValueError, AttributeError):
            valid = False
        if not valid:
            raise BadSetting(
                f"{self.path} is not what this program wrote",
                "mend it, or move it away: all services are then new, and approved as they are",
            )
        return Pins(approved)

    def write(self, pins: Pins) -> None:
        """Put what is approved in the place of what was (rule 2)."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        beside = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        beside.write_text(json.dumps(pins.approved, indent=2, sort_keys=True) + "\n", "utf-8")
        beside.replace(self.path)
        self._seen = self._stamp()

    def changed(self) -> bool:
        """Whether somebody else wrote it since it was read or written here.

        A file that is gone says nothing: what was approved stays so.
        """
        stamp = self._stamp()
        return stamp is not None and stamp != self._seen

    def _stamp(self) -> tuple[int, int] | None:
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size
