"""What people type for numbers, money, lengths of time and moments.

A `place` is where in a query it stands; what stands in none has no place to be told. What is beyond
all numbers that columns hold is the largest of them: it compares alike.

Knows nothing of fields or databases.  Pure.
"""

import re
from decimal import Decimal, InvalidOperation

from tapes.errors import BadQuery
from tapes.rows import LATEST, nanoseconds

_SCALES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}
_UNITS = {
    "ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9,
    "d": 86_400 * 10**9, "w": 7 * 86_400 * 10**9,
}  # fmt: skip
_MOST = Decimal(LATEST)
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|s|m|h|d|w)?")
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


def number(text: str, place: int | None = None) -> int:
    """A whole number: 120, 10k, 1.5M."""
    scale = _SCALES.get(text[-1:].lower(), 1) if text[-1:].isalpha() else 1
    digits = text[:-1] if text[-1:].isalpha() and text[-1:].lower() in _SCALES else text
    try:
        amount = Decimal(digits)
    except InvalidOperation:
        amount = Decimal("NaN")
    if not amount.is_finite():
        raise _unread(f"{text!r} is not a number", place, "write 120, 10k or 1.5M")
    return _bounded(amount, scale)


def dollars(text: str, place: int | None = None) -> Decimal:
    """An amount: 0.5, $2."""
    try:
        amount = Decimal(text.removeprefix("$"))
        if amount.is_finite():
            return amount
    except InvalidOperation:
        pass
    raise _unread(f"{text!r} is not an amount", place, "write a number, as in cost:>0.5")


def length(text: str, place: int | None = None) -> int:
    """A length of time in nanoseconds: 500ms, 2s, 3m; without a unit seconds."""
    found = _LENGTH.fullmatch(text.strip().lower())
    if found is None:
        raise _unread(f"{text!r} is not a length of time", place, "write 500ms, 2s, 3m, 1h or 2d")
    return _bounded(Decimal(found[1]), _UNITS[found[2] or "s"])


def moment(text: str, now: int, place: int | None = None) -> int:
    """A moment: a day, a time (RFC 3339), or how long ago it was (24h)."""
    if _DAY.fullmatch(text):
        text = f"{text}T00:00:00Z"
    told = nanoseconds(text)
    if told is not None:
        return told
    if _LENGTH.fullmatch(text.strip().lower()) and not text.isdigit():
        return max(now - length(text, place), 0)
    raise _unread(
        f"{text!r} is not a time", place, "write 2026-07-01, 2026-07-01T12:00:00Z or 24h (ago)"
    )


def truth(text: str, place: int | None = None) -> bool:
    """Yes or no."""
    said = {"yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
    if text.lower() not in said:
        raise _unread(f"{text!r} is neither yes nor no", place, "write yes or no")
    return said[text.lower()]


def _bounded(amount: Decimal, scale: int) -> int:
    """A whole number that a column holds. To make one of `1e999999` would take for ever."""
    near = max(-_MOST, min(amount, _MOST))
    return int(max(-_MOST, min(near * scale, _MOST)))


def _unread(what: str, place: int | None, remedy: str) -> BadQuery:
    told = "" if place is None else f" (character {place + 1})"
    return BadQuery(what + told, place or 0, remedy)
