"""Rows as bytes: one strict reader, and writers that refuse what JSON cannot say.

Rule 1: a row has one text. Whatever is faster must give the same text or must not be used, so
        that tapes do not depend on what else is installed.

Knows nothing of what is in a row.
"""

import json
import re
from typing import Any

from tapes.errors import NotAnAnswer
from tapes.exchange import damaged
from tapes.jsontext import Json, compact, is_like_python, orjson, require_json

BOM = b"\xef\xbb\xbf"
# As git marks them.
_CONFLICT = re.compile(rb"(?:<{7}|\|{7}|={7}|>{7})(?: |\r?$)")
_DATABASE = b"SQLite format 3\0"


def write_row(row: Json, *, of_bytes: bool = False) -> bytes:
    """A row as one line of UTF-8 without its end. Raises NotAnAnswer for what JSON cannot say.

    `of_bytes` says that the row was made from an HTTP exchange, where there is nothing to refuse.
    """
    if not of_bytes:
        require_json(row, _not_an_answer)
    return _fast(row, _LINE) or _slow(row, compact)


def line_of(row: bytes) -> bytes:
    """A row as a line of a JSONL file, with its end.

    Nothing in it looks like a line end to `str.splitlines`, by which the document's sketch reads;
    control characters are escaped already.
    """
    if not row.isascii():
        for raw, escaped in _OTHER_LINE_ENDS:
            row = row.replace(raw, escaped)
    return row + b"\n"


_OTHER_LINE_ENDS = (
    ("\x85".encode(), rb"\u0085"),
    ("\u2028".encode(), rb"\u2028"),
    ("\u2029".encode(), rb"\u2029"),
)


def write_file(row: Json, *, of_bytes: bool = False) -> bytes:
    """A row as a file that people read; see `write_row`."""
    if not of_bytes:
        require_json(row, _not_an_answer)
    return (_fast(row, _INDENTED) or _slow(row, _indented)) + b"\n"


# The fast writer would also write dataclasses and times.
_LINE = (
    0
    if orjson is None
    else orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)
_INDENTED = 0 if orjson is None else _LINE | orjson.OPT_INDENT_2


def _fast(row: Json, option: int) -> bytes | None:
    if orjson is None:
        return None
    try:
        text: bytes = orjson.dumps(row, option=option)
    except TypeError:  # integers beyond 64 bits, lone surrogates, great depth
        return None
    return text if is_like_python(text) else None


def _slow(row: Json, write: Any) -> bytes:
    try:
        text: str = write(row)
        return text.encode()
    except RecursionError:
        raise _not_an_answer("it is nested too deeply") from None


def _indented(row: Json) -> str:
    text = json.dumps(row, indent=2, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:  # a lone surrogate has no UTF-8; its escape has
        return json.dumps(row, indent=2)
    return text


def _not_an_answer(what: str) -> NotAnAnswer:
    return NotAnAnswer(
        f"the exchange cannot be kept: {what}",
        "give it plain JSON: dict, list, str, int, finite float, bool or None",
    )


def read_row(data: bytes, path: str, place: object) -> Json:
    """The value of a row that lies on the tape `path` at `place`. Raises DamagedTape."""
    try:
        return json.loads(data.removeprefix(BOM).decode("utf-8"))
    except RecursionError:
        raise damaged(path, place, "nested too deeply to be read") from None
    except ValueError as error:
        raise damaged(path, place, why_unreadable(data, error)) from error


def why_unreadable(data: bytes, error: Exception) -> str:
    """Why a row's text is none, in words."""
    if _CONFLICT.match(data):
        return "a mark of an unfinished merge: take such lines out, both sides' rows may stay"
    if data.startswith(_DATABASE):
        return "it is an SQLite database: give it a name in .db"
    return f"not JSON ({error})"
