"""Open files by their number: closed once, at the latest when nobody uses them any more."""

import os
import weakref


class Descriptor:
    """A file that was opened with `os.open`."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._close = weakref.finalize(self, os.close, number)
        self._close.atexit = False

    def close(self) -> None:
        """Let go of the file now. A second time does nothing."""
        self._close()
