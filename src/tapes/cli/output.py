"""How commands write: one JSON document, or lines for people; progress for a person who waits.

Rule 1: standard output carries the result and nothing else, and with `--json` one whole document
        or nothing.
Rule 2: lines are written as they are known: a tape of any size is shown without being held.
Rule 3: colours and progress are for terminals alone.
Rule 4: what is shown was said by strangers: a terminal is coloured by it at most.

Knows nothing of tapes.
"""

import codecs
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TextIO

import click

from tapes.errors import UnwritableTape
from tapes.jsontext import Json


class ClosedPipe(Exception):
    """Whoever read our standard output has gone."""


# --- writing ----------------------------------------------------------------------------------


# What a terminal obeys: everything but colours, tabs and the ends of lines.
_OBEYED = re.compile(r"(?!\x1b\[[0-9;]*m|\r\n)[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def write(text: str = "", *, end: str = "\n", flush_now: bool = False) -> None:
    """A line of the result. Colours fall away where it is no terminal.

    Like all that writes here it raises ClosedPipe, or UnwritableTape where the disk is full.
    """
    shown = text if shows_color() else click.unstyle(text)
    shown = _harmless(shown, sys.stdout) + end
    try:
        try:
            sys.stdout.write(shown)
        except UnicodeEncodeError:  # a terminal that cannot show every character
            encoding = sys.stdout.encoding or "ascii"
            sys.stdout.write(shown.encode(encoding, "backslashreplace").decode(encoding))
        if flush_now:
            sys.stdout.flush()
    except OSError as error:
        raise _lost(error) from None


def _harmless(text: str, stream: TextIO) -> str:
    return _OBEYED.sub(" ", text) if stream.isatty() else text


def write_bytes(data: bytes) -> None:
    """Bytes as they are."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
    except OSError as error:
        raise _lost(error) from None


def flush() -> None:
    """Let go of what is still held back."""
    try:
        sys.stdout.flush()
    except OSError as error:
        raise _lost(error) from None


def _lost(error: OSError) -> Exception:
    if isinstance(error, BrokenPipeError):
        return ClosedPipe()
    leave_stdout()
    return UnwritableTape(f"the output cannot be written: {error.strerror}", "make room for it")


def leave_stdout() -> None:
    """Nobody reads it: let Python find nothing to write at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def note(text: str, *, end: str = "\n", color: str | None = None) -> None:
    """A word beside the result, on standard error. Colours fall away where it is no terminal."""
    shown = _harmless(text, sys.stderr)
    shown = click.style(shown, fg=color) if color else shown
    click.echo(shown + end, nl=False, err=True, color=False if _wants_no_color() else None)


def confirm(question: str, otherwise: str) -> None:
    """Go on only where a person says yes; on standard error, so that it is no part of the result.

    `otherwise` is what is told to who did not. Raises click.Abort.
    """
    try:
        click.confirm(_harmless(question, sys.stderr), abort=True, err=True)
    except click.Abort:
        note(otherwise)
        raise


def shows_color() -> bool:
    """Whether standard output is a terminal that may be coloured."""
    return sys.stdout.isatty() and not _wants_no_color()


def _wants_no_color() -> bool:
    return bool(os.environ.get("NO_COLOR"))


def width() -> int | None:
    """The columns of the terminal, or None where lines may have any length."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


# --- JSON -------------------------------------------------------------------------------------

json_option = click.option("--json", "as_json", is_flag=True, help="One JSON document.")


def write_json(value: Json) -> None:
    """The result as one document."""
    write(_json(value))


def write_json_line(value: Json) -> None:
    """One result of many as a line of its own, at once."""
    write(_json(value, indent=None, separators=(",", ":")), flush_now=True)


def _json(value: Json, *, indent: int | None = 2, separators: Any = None) -> str:
    return json.dumps(
        value,
        ensure_ascii=not _speaks_utf8(),
        indent=indent,
        separators=separators,
        default=_plain,
    )


def _speaks_utf8() -> bool:
    """Whether standard output takes every character; where not, JSON has an escape for it."""
    return codecs.lookup(sys.stdout.encoding or "utf-8").name == "utf-8"


def _plain(value: object) -> Json:
    """Money as text, so that nobody rounds it; sets in order."""
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)


def write_json_list(head: dict[str, Json], name: str, items: Iterable[Json]) -> None:
    """A document whose last member is a list of any length, written once it is whole."""
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="surrogatepass") as file:
        file.write("{\n")
        for key, value in head.items():
            file.write(f"{json.dumps(key)}: {_json(value)},\n")
        file.write(f"{json.dumps(name)}: [")
        between = "\n"
        for item in items:
            file.write(between + _json(item, indent=None))
            between = ",\n"
        file.write("\n]\n}")
        file.seek(0)
        while block := file.read(1024 * 1024):
            write(block, end="")
    write()


# --- tables -----------------------------------------------------------------------------------


class Table:
    """Columns of known width, so that the first row can be shown before the last is read.

    The last column takes what is left of the terminal. A width below zero aligns to the right.
    """

    def __init__(self, **columns: int) -> None:
        self._columns = columns
        self._begun = False

    def row(self, *cells: object, color: str | None = None) -> None:
        """Write a row, and the heads of the columns before the first one."""
        if not self._begun:
            self._begun = True
            heads = [name.replace("_", " ").upper() for name in self._columns]
            write(click.style(self._line(heads), dim=True))
        line = self._line(["" if cell is None else str(cell) for cell in cells])
        write(click.style(line, fg=color) if color else line)

    def _line(self, cells: list[str]) -> str:
        *fixed, last = zip(self._columns.values(), cells, strict=True)
        parts = [_padded(cell, size) for size, cell in fixed]
        line = "  ".join(parts)
        room = width()
        if room is None:
            return f"{line}  {last[1]}".rstrip()
        return f"{line}  {cut(last[1], max(room - len(line) - 2, 8))}".rstrip()


def _padded(text: str, size: int) -> str:
    if size < 0:
        return " " * (-size - cells(text)) + text
    return text + " " * (size - cells(text))


def cells(text: str) -> int:
    """The columns that a text takes on a terminal."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len  # imported where used: most texts do without

    return cell_len(text)


def cut(text: str, size: int) -> str:
    """A text in no more than so many columns, but in one at least."""
    size = max(size, 1)
    if cells(text) <= size:
        return text
    while cells(text) > size - 1:
        text = text[: -max(1, (cells(text) - size) // 2)]
    return text + "…"


def one_line(text: str) -> str:
    """A text on one line, without what a terminal would obey."""
    return "".join(c if c.isprintable() else " " for c in " ".join(text.split()))


def facts(*pairs: tuple[str, object]) -> None:
    """Names and values, one a line; what is None is left out."""
    known = [(name, value) for name, value in pairs if value is not None]
    wide = max((len(name) for name, _ in known), default=0)
    for name, value in known:
        write(f"{click.style(name.ljust(wide), dim=True)}  {value}")


# --- words ------------------------------------------------------------------------------------


def count(number: int, thing: str, things: str | None = None) -> str:
    """`1 row`, `12,345 rows`."""
    return f"{number:,} {thing if number == 1 else things or thing + 's'}"


def size(number: int) -> str:
    """Bytes in the unit that a person would choose."""
    amount = float(number)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000 or unit == "GB":
            break
        amount /= 1000
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def when(text: str | None) -> str:
    """A recorded time to the minute, in UTC."""
    if not text:
        return "-"
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.astimezone(UTC) if moment.tzinfo else moment
    except (ValueError, OverflowError):  # the latter: in UTC it is no day that there is
        return text[:16]
    return moment.strftime("%Y-%m-%d %H:%M")


def moment(seconds: float) -> str:
    """Unix time to the second, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def money(usd: Decimal | None) -> str:
    """Dollars, with as many digits as a small amount needs."""
    if usd is None:
        return "unknown"
    return f"${usd:.2f}" if usd >= 1 or not usd else f"${usd:.6f}".rstrip("0")


# --- progress ---------------------------------------------------------------------------------


@contextmanager
def progress(label: str) -> Iterator[Callable[[float], None]]:
    """A bar on standard error while something lasts; nothing where nobody would see it."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console  # imported where used: most runs do without
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(
        *columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
    ) as bar:
        task, shown = bar.add_task(label, total=1.0), 0.0

        def told(done: float) -> None:
            nonlocal shown
            if done - shown >= 0.005 or done < shown:
                shown = done
                bar.update(task, completed=done)

        yield told
