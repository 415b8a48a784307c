"""Bytes → frames: content codings undone, server-sent events and lines told apart.

Rule 1: a decoder gives what came out before the bytes broke, and says that it is not all.
Rule 2: no decoder produces more than its limit, whatever the bytes promise.
Rule 3: a framer is `feed(bytes)` and `finish()`; the frames are the same however the bytes are cut.

Knows nothing of providers or HTTP clients.  Pure.
"""

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from tapes.errors import OversizeBody, UndecodableBody, UnsupportedCoding

try:
    import brotli
except ImportError:
    brotli = None
zstandard: Any
try:
    import zstandard
except ImportError:
    zstandard = None

DECODED_LIMIT = 48 * 1024 * 1024
ZSTD_WINDOW_LIMIT = 64 * 1024 * 1024
_STEP = 256 * 1024  # of output
_ZLIB_STEP = 4 * 1024  # of input
_ZSTD_STEP = 128  # of input: four bytes may stand for 128 KiB
_BROKEN: tuple[type[Exception], ...] = (
    (zlib.error,) if zstandard is None else (zlib.error, zstandard.ZstdError)
)


@dataclass(frozen=True, slots=True)
class Decoded:
    """What came out of a body; `whole` is False where the coded bytes were cut short."""

    data: bytes
    whole: bool


def codings(content_encoding: str | None) -> list[str]:
    """The codings of a header in the order in which they were applied, `identity` left out."""
    if not content_encoding:
        return []
    names = [name.strip().lower() for name in content_encoding.split(",")]
    return [_ALIASES.get(name, name) for name in names if name not in ("", "identity")]


_ALIASES = {"x-gzip": "gzip", "x-deflate": "deflate"}


def decoded(body: bytes, content_encoding: str | None, limit: int = DECODED_LIMIT) -> Decoded:
    """The body with its content codings undone, the last one first.

    Raises UnsupportedCoding, OversizeBody or UndecodableBody (nothing at all came out).
    """
    whole = True
    for name in reversed(codings(content_encoding)):
        decoder = _DECODERS.get(name)
        if decoder is None:
            raise UnsupportedCoding(
                f"content coding {name!r} in {content_encoding!r} is not known here",
                "known: gzip, deflate, br, zstd",
            )
        result = decoder(body, limit)
        if not result.data and not result.whole:
            raise UndecodableBody(f"the body is not {name}, or was cut before its first byte")
        body, whole = result.data, whole and result.whole
    if len(body) > limit:
        raise _oversize(limit)
    return Decoded(body, whole)


def _oversize(limit: int) -> OversizeBody:
    return OversizeBody(f"the body decodes to more than {limit} bytes")


class _Inflated:
    """A zlib stream that gives its output in steps, whatever a step of input stands for."""

    def __init__(self, window_bits: int) -> None:
        self._stream = zlib.decompressobj(window_bits)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes) -> Iterator[bytes]:
        while True:
            part = self._stream.decompress(data, _STEP)
            yield part
            data = self._stream.unconsumed_tail
            # A full step may leave output behind that needs no further input.
            if self.eof or (not data and len(part) < _STEP):
                return


class _Unzstd:
    """The same for a zstd frame, whose decoder knows no steps: it gets little input at a time."""

    def __init__(self) -> None:
        context = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW_LIMIT)
        self._stream = context.decompressobj(write_size=_STEP)

    @property
    def eof(self) -> bool:
        eof: bool = self._stream.eof
        return eof

    @property
    def unused_data(self) -> bytes:
        unused: bytes = self._stream.unused_data
        return unused

    def decompress(self, data: bytes) -> Iterator[bytes]:
        yield self._stream.decompress(data)


def _members(
    body: bytes, limit: int, new_stream: Callable[[], _Inflated | _Unzstd], step: int
) -> Decoded:
    """One stream after another until the body ends, as gzip's members and zstd's frames come."""
    out, size, at = list[bytes](), 0, 0
    try:
        while True:
            stream = new_stream()
            while not stream.eof:
                if at >= len(body):
                    return Decoded(b"".join(out), False)
                for part in stream.decompress(body[at : at + step]):
                    size += len(part)
                    if size > limit:
                        raise _oversize(limit)
                    out.append(part)
                at = min(at + step, len(body))
            at -= len(stream.unused_data)
            if at == len(body):
                return Decoded(b"".join(out), True)
    except _BROKEN:
        return Decoded(b"".join(out), False)


def _gzip(body: bytes, limit: int) -> Decoded:
    return _members(body, limit, lambda: _Inflated(16 + zlib.MAX_WBITS), _ZLIB_STEP)


def _deflate(body: bytes, limit: int) -> Decoded:
    """RFC 9110 says zlib; many senders mean raw deflate, so that is the second try."""
    result = _members(body, limit, lambda: _Inflated(zlib.MAX_WBITS), _ZLIB_STEP)
    if result.data or result.whole:
        return result
    return _members(body, limit, lambda: _Inflated(-zlib.MAX_WBITS), _ZLIB_STEP)


def _brotli(body: bytes, limit: int) -> Decoded:
    if brotli is None:
        raise UnsupportedCoding("no decoder for br is installed", "pip install 'tapes-py[codecs]'")
    stream, out, size = brotli.Decompressor(), list[bytes](), 0
    rest = body
    while not stream.is_finished():
        try:
            part = stream.process(rest, output_buffer_limit=_STEP)
        except brotli.error:
            return Decoded(b"".join(out), False)
        if not part and not rest:  # it asks for more, and there is none
            return Decoded(b"".join(out), False)
        rest = b""
        size += len(part)
        if size > limit:
            raise _oversize(limit)
        out.append(part)
    return Decoded(b"".join(out), True)


def _zstd(body: bytes, limit: int) -> Decoded:
    if zstandard is None:
        raise UnsupportedCoding(
            "no decoder for zstd is installed", "pip install 'tapes-py[codecs]'"
        )
    return _members(body, limit, _Unzstd, _ZSTD_STEP)


# A coding that nobody here knows is a name like any other; one of these without its decoder is not.
KNOWN_CODINGS = frozenset({"gzip", "deflate", "br", "zstd"})
_DECODERS: dict[str, Callable[[bytes, int], Decoded]] = {
    "gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}


# --- frames -----------------------------------------------------------------------------------


class Framer(Protocol):
    """Cuts a body into frames. `finish` gives what is left; a cut last frame is not one."""

    def feed(self, data: bytes) -> list["Frame"]:
        """The frames that these bytes complete."""
        ...

    def finish(self) -> list["Frame"]:
        """The last frame, where the body may end without a line end."""
        ...


@dataclass(frozen=True, slots=True)
class Frame:
    """One event or line: its name ("" where none is said) and its text."""

    event: str
    text: str


class Lines:
    """Newline-delimited JSON: each line that is not blank is a frame."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[Frame]:
        """The lines that these bytes complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [Frame("", text) for text in map(_text, lines) if text.strip()]

    def finish(self) -> list[Frame]:
        """The last line, which needs no line end."""
        rest, self._rest = _text(self._rest), b""
        return [Frame("", rest)] if rest.strip() else []


class Events:
    """Server-sent events (WHATWG HTML, 9.2.6): LF, CRLF or CR end a line, a blank line an event."""

    def __init__(self) -> None:
        self._rest = b""
        self._event = ""
        self._data: list[str] = []
        self._first = True

    def feed(self, data: bytes) -> list[Frame]:
        """The events that these bytes complete."""
        buffer = self._rest + data
        if self._first:
            if len(buffer) < 3 and b"\xef\xbb\xbf".startswith(buffer):
                self._rest = buffer
                return []
            buffer, self._first = buffer.removeprefix(b"\xef\xbb\xbf"), False
        # A CR at the very end may be half of a CRLF: it waits for the next byte.
        held = b"\r" if buffer.endswith(b"\r") else b""
        buffer = buffer[: len(buffer) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        lines, found, rest = buffer.rpartition(b"\n")
        self._rest = rest + held
        return self._lines(_text(lines).split("\n")) if found else []

    def finish(self) -> list[Frame]:
        """An event without its blank line is not an event: nothing (same rule)."""
        frames = self._lines([_text(self._rest[:-1])]) if self._rest.endswith(b"\r") else []
        self._rest, self._data, self._event = b"", [], ""
        return frames

    def unfinished(self) -> list[Frame]:
        """What came of an event whose blank line did not: for showing, never for replaying."""
        name, _, value = _text(self._rest.rstrip(b"\r")).partition(":")
        last = [value.removeprefix(" ")] if name == "data" else []
        data = self._data + last
        return [Frame(self._event, "\n".join(data))] if data else []

    def _lines(self, lines: list[str]) -> list[Frame]:
        frames: list[Frame] = []
        for line in lines:
            if not line:
                if self._data:
                    frames.append(Frame(self._event, "\n".join(self._data)))
                self._event, self._data = "", []
                continue
            if line.startswith("data: "):
                self._data.append(line[6:])
                continue
            name, _, value = line.partition(":")
            if name == "data":
                self._data.append(value)
            elif name == "event":
                self._event = value.removeprefix(" ")
        return frames


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def framer(content_type: str | None) -> Framer | None:
    """The framer for a media type, or None where a body has no frames."""
    media = (content_type or "").partition(";")[0].strip().lower()
    if media == "text/event-stream":
        return Events()
    if media in ("application/x-ndjson", "application/ndjson", "application/jsonl"):
        return Lines()
    return None


def frames_of(content_type: str | None, body: bytes) -> list[Frame] | None:
    """All frames of a whole body, or None where its type has none.

    Some servers stream without saying a type; then the first bytes do.
    """
    cutter = framer(content_type)
    if cutter is None and not content_type and body.startswith((b"event:", b"data:")):
        cutter = Events()
    return None if cutter is None else cutter.feed(body) + cutter.finish()
