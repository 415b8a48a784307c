"""How old a recording may be, and what happens to one that is older.

    max_age = "90d"          # in tapes.toml; also 12h, 6w
    expired = "warn"         # or "fail", or "record": made again as soon as recording is permitted

Knows nothing of tapes or clocks.  Pure.
"""

import re
from datetime import UTC, datetime, timedelta
from enum import StrEnum

from tapes.errors import BadSetting
from tapes.exchange import Exchange


class OnExpiry(StrEnum):
    """What happens when a recording is asked for that is too old."""

    WARN = "warn"
    FAIL = "fail"
    RECORD = "record"


_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
# No other word that begins so: three months are not three minutes.
_AGE = re.compile(
    r"\s*(\d+)\s*(?:(m)(?:ins?|inutes?)?|(h)(?:ours?)?|(d)(?:ays?)?|(w)(?:eeks?)?)\s*",
    re.IGNORECASE,
)


def age_of(text: str) -> timedelta:
    """The age that a text like `90d`, `12 hours` or `6w` says. Raises BadSetting."""
    match = _AGE.fullmatch(text)
    try:
        if match is None:
            raise ValueError
        return timedelta(**{_UNITS[match[match.lastindex or 0].lower()]: int(match[1])})
    except (ValueError, OverflowError):
        raise BadSetting(f"{text!r} is no age", "for example: 90d, 12h or 6w") from None


def recorded_when(exchange: Exchange) -> datetime | None:
    """When an exchange was recorded; None where it does not say, or not in words known here."""
    try:
        moment = datetime.fromisoformat(exchange.recorded_at or "")
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def expired(exchange: Exchange, max_age: timedelta, now: datetime) -> bool:
    """Whether an exchange is older than that. One without a date cannot be shown to be young."""
    moment = recorded_when(exchange)
    return moment is None or now - moment > max_age


def how_old(exchange: Exchange, now: datetime) -> str:
    """The age of an exchange in words."""
    moment = recorded_when(exchange)
    if moment is None:
        return "of unknown age"
    return f"{age_in_words(now - moment)} old"


def age_in_words(age: timedelta) -> str:
    """An age in days; in hours or minutes where it is less than one."""
    count, unit = (age.days, "day") if age.days else (age.seconds // 3600, "hour")
    if not count:
        count, unit = age.seconds // 60, "minute"
    return f"{count} {unit}" if count == 1 else f"{count} {unit}s"
