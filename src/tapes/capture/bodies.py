"""HTTP/1.1 bodies followed to their end: what is passed on, and what it says.

Rule 1: `raw` is what came, framing included, and belongs to this message; `rest` lies behind it.
Rule 2: `pieces` are the body without framing. A chunk is one piece however it was cut on its way;
        one that is larger than PIECE_LIMIT is several of that size.
Rule 3: the chunked grammar is RFC 9112, 7.1, without what nobody needs: 15 digits at most, no
        blank around them, extensions made of tokens, trailer lines like header lines.

Sans-IO.  Pure.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from tapes.capture.http1 import HEAD_LIMIT, BadMessage, Framing, is_field_line

PIECE_LIMIT = 64 * 1024
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_SIZE_LINE = re.compile(rb"([0-9A-Fa-f]{1,15})(?:;%b(?:=%b)?)*" % (_TOKEN, _TOKEN))
# How a line may begin whose end has not come.
_SIZE_BEGIN = re.compile(rb"[0-9A-Fa-f]{1,15}(?:;[!#$%&'*+\-.^_`|~0-9A-Za-z=;]*)?\r?")
_END_BEGIN = re.compile(rb"\r")
_TRAILER_BEGIN = re.compile(rb"(?:%b(?::[\t\x20-\x7e\x80-\xff]*)?)?\r?" % _TOKEN)
_LINE_LIMIT = 4096


@dataclass(frozen=True, slots=True)
class Step:
    """What a piece of input brought of one message (rules 1 and 2)."""

    raw: bytes
    pieces: tuple[bytes, ...] = ()
    ended: bool = False
    rest: bytes = b""


class Body:
    """Follows one body to its end."""

    def __init__(self, framing: Framing) -> None:
        self._chunks = Chunks() if framing.chunked else None
        self._until_close = framing.until_close
        self._left = framing.length or 0

    def feed(self, data: bytes) -> Step:
        """What these bytes brought. Raises BadMessage for broken chunks."""
        if self._chunks is not None:
            return self._chunks.feed(data)
        if self._until_close:
            return Step(data, (data,) if data else ())
        if len(data) > self._left:
            data, rest = data[: self._left], data[self._left :]
        else:
            rest = b""
        self._left -= len(data)
        return Step(data, (data,) if data else (), ended=not self._left, rest=rest)

    @property
    def may_end_here(self) -> bool:
        """Whether the end of the connection is the end of the body."""
        return self._until_close


class Chunks:
    """Reads a chunked body. After `ended` it must not be fed again."""

    def __init__(self) -> None:
        self._read: Callable[[bytes, int], int] = self._size
        self._line = b""
        self._left = 0
        self._parts: list[bytes] = []
        self._held = 0
        self._trailer_size = 0
        self._pieces: list[bytes] = []
        self._ended = False

    def feed(self, data: bytes) -> Step:
        """What these bytes brought. Raises BadMessage."""
        at = 0
        while at < len(data) and not self._ended:
            at = self._read(data, at)
        pieces, self._pieces = tuple(self._pieces), []
        if at < len(data):
            return Step(data[:at], pieces, ended=True, rest=data[at:])
        return Step(data, pieces, ended=self._ended)

    # --- one state each: take what is there from `at` on, and say where it ends

    def _size(self, data: bytes, at: int) -> int:
        line, at = self._take_line(data, at, _SIZE_BEGIN)
        if line is None:
            return at
        match = _SIZE_LINE.fullmatch(line)
        if match is None:
            raise BadMessage("a chunk does not begin with its size")
        self._left = int(match[1], 16)
        self._read = self._data if self._left else self._trailer
        return at

    def _data(self, data: bytes, at: int) -> int:
        part = data[at : at + min(self._left, PIECE_LIMIT - self._held)]
        self._left -= len(part)
        self._held += len(part)
        self._parts.append(part)
        if not self._left or self._held == PIECE_LIMIT:
            self._pieces.append(b"".join(self._parts) if len(self._parts) > 1 else part)
            self._parts, self._held = [], 0
        if not self._left:
            self._read = self._data_end
        return at + len(part)

    def _data_end(self, data: bytes, at: int) -> int:
        line, at = self._take_line(data, at, _END_BEGIN)
        if line:
            raise BadMessage("a chunk is longer than its size")
        if line is not None:
            self._read = self._size
        return at

    def _trailer(self, data: bytes, at: int) -> int:
        line, at = self._take_line(data, at, _TRAILER_BEGIN)
        if line is None:
            return at
        if not line:
            self._ended = True
            return at
        self._trailer_size += len(line)
        if self._trailer_size > HEAD_LIMIT or not is_field_line(line):
            raise BadMessage("a trailer line is malformed, or there are too many")
        return at

    def _take_line(
        self, data: bytes, at: int, beginning: re.Pattern[bytes]
    ) -> tuple[bytes | None, int]:
        """A line without its CRLF, or None while its end has not come; and where it ends."""
        found = data.find(b"\n", at)
        end = len(data) if found < 0 else found + 1
        line = self._line + data[at:end]
        if len(line) > _LINE_LIMIT:
            raise BadMessage("a line between chunks is too long")
        if found < 0:
            if not beginning.fullmatch(line):
                raise BadMessage("a chunk is not where it should be")
            self._line = line
            return None, end
        if not line.endswith(b"\r\n"):
            raise BadMessage("lines must end with CRLF")
        self._line = b""
        return line[:-2], end
