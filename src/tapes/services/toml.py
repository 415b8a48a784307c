"""TOML as the JSON that it stands for, and the line on which each of its members stands.

Rule 1: TOML 1.1 (multi-line inline tables, `\\e`), a leading byte-order mark, any line ends.
Rule 2: integers fit 64 bits; floats become the shortest JSON number, so `9999.0` is `9999`;
        date-times with an offset become RFC 3339 text; `inf`, `nan` and local dates are refused.
Rule 3: lines are found by reading the text statement by statement with the same parser, so that
        no second grammar can disagree with it about where a string or a list ends.

Knows nothing of manifests.  Pure.
"""

from datetime import date, datetime, time
from decimal import Decimal

import tomli

from tapes.jsontext import Json
from tapes.services.spelling import Number, Path, Unreadable, check_depth, integer

MAX_TEXT = 1024 * 1024
MAX_WORK = 8 * 1024 * 1024
_INT64 = range(-(2**63), 2**63)


def read(text: str) -> Json:
    """The JSON that the TOML stands for. Raises Unreadable."""
    if len(text) > MAX_TEXT:
        raise Unreadable("too_large", f"the text has more than {MAX_TEXT:,} characters")
    try:
        value = _json(tomli.loads(_bare(text), parse_float=_float))
        check_depth(value)
    except tomli.TOMLDecodeError as error:
        raise Unreadable("not_toml", f"not TOML: {error.msg}", error.lineno) from None
    except Unreadable:
        raise
    except ValueError as error:
        raise Unreadable("not_toml", f"not TOML: {error}") from None
    except RecursionError:
        raise Unreadable("too_deep", "tables and lists are nested too deeply") from None
    return value


def _bare(text: str) -> str:
    return text.removeprefix("\ufeff")


def _float(text: str) -> int | Number:
    value = float(text)
    if value != value or value in (float("inf"), float("-inf")):
        raise Unreadable("no_json_form", f"{text} has no form in JSON")
    spelled = float_text(value)
    return Number(spelled) if {".", "e"} & set(spelled) else integer(spelled)


def float_text(value: float) -> str:
    """The shortest JSON number of a float: no exponent from 1e-6 up to 1e21, no needless `.0`."""
    if value != 0 and not 1e-6 <= abs(value) < 1e21:
        mantissa, _, exponent = repr(value).partition("e")
        sign, digits = exponent[0], exponent[1:]
        return f"{mantissa.removesuffix('.0')}e{sign}{digits.lstrip('0')}"
    text = format(Decimal(repr(value)), "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _json(value: object) -> Json:
    match value:
        case dict():
            return {name: _json(member) for name, member in value.items()}
        case list():
            return [_json(member) for member in value]
        case bool() | str() | Number():
            return value
        case int() if value in _INT64:
            return value
        case int():
            raise Unreadable("no_json_form", f"{str(value)[:24]} does not fit 64 bits")
        case datetime() if value.tzinfo is not None:
            return _rfc3339(value)
        case datetime() | date() | time():
            raise Unreadable(
                "no_json_form", f"{value.isoformat()} has no form in JSON; put it in quotes"
            )
        case _:  # pragma: no cover - tomli has no other types
            raise Unreadable("no_json_form", f"{type(value).__name__} has no form in JSON")


def _rfc3339(value: datetime) -> str:
    text = value.isoformat()
    text = text.removesuffix("+00:00") + "Z" if text.endswith("+00:00") else text
    head, dot, tail = text.partition(".")
    if not dot:
        return text
    digits = tail[:6].rstrip("0")
    return f"{head}.{digits}{tail[6:]}" if digits else f"{head}{tail[6:]}"


# --- places -----------------------------------------------------------------------------------


def lines_of(text: str) -> dict[Path, int]:
    """The line of every member of a TOML text that reads; the header's line for a table.

    What follows a statement of very many lines may be left out.
    """
    lines = _bare(text).replace("\r\n", "\n").split("\n")
    found: dict[Path, int] = {(): 1}
    arrays: dict[Path, int] = {}
    table: Path = ()
    start, work = 0, 0
    for end in range(1, len(lines) + 1):
        statement = "\n".join(lines[start:end])
        # A statement is read again for each of its lines, which adds up.
        work += len(statement)
        if work > MAX_WORK:
            break
        try:
            tree = tomli.loads(statement)
        except (ValueError, RecursionError):
            continue  # the statement goes on in the next line
        if statement.lstrip().startswith("["):
            table = _header(tree, statement.lstrip().startswith("[["), arrays)
            found.setdefault(table, start + 1)
            for n in range(1, len(table)):
                found.setdefault(table[:n], start + 1)
        else:
            _note(tree, table, start + 1, found)
        start = end
    return found


def _header(tree: dict[str, object], is_array: bool, arrays: dict[Path, int]) -> Path:
    """The path of the table that a header opens; each array of tables goes on with its last."""
    path: Path = ()
    node: object = tree
    while isinstance(node, dict) and node:
        name, node = next(iter(node.items()))
        path = (*path, name)
        if isinstance(node, list):
            node = node[0]
        if is_array and not node:
            arrays[path] = arrays.get(path, -1) + 1
        if path in arrays:
            path = (*path, arrays[path])
    return path


def _note(value: object, path: Path, line: int, found: dict[Path, int]) -> None:
    found.setdefault(path, line)
    members = value.items() if isinstance(value, dict) else ()
    if isinstance(value, list):
        members = enumerate(value)  # type: ignore[assignment]  # both are pairs of key and value
    for key, member in members:
        _note(member, (*path, key), line, found)
