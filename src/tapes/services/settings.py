"""One setting of a manifest: its type, its environment name, and whether a default fits it.

Rule 1: the types are string, int, bool, duration and json; the last two are written as strings.
Rule 2: a value never comes here. A manifest says which settings there are, a deployment sets them.

Knows nothing of manifests.  Pure.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

from tapes.jsontext import Json
from tapes.services.spelling import Number, Unreadable, read, text_of


class SettingType(StrEnum):
    """What a setting's value is."""

    STRING = "string"
    INT = "int"
    BOOL = "bool"
    DURATION = "duration"
    JSON = "json"


class Absent:
    """No default. `null` says the same; `false`, `0` and `""` are defaults."""

    def __repr__(self) -> str:
        return "ABSENT"

    def __reduce__(self) -> str:
        # There is one, and it stays the one in a process beside.
        return "ABSENT"


ABSENT = Absent()


@dataclass(frozen=True, slots=True)
class Setting:
    """A value that the deployment supplies to a service, as the manifest declares it."""

    key: str = ""
    type: str = ""
    required: bool = False
    secret: bool = False
    default: Json = ABSENT
    description: str = ""
    enum: tuple[str, ...] = ()
    min: int | None = None
    max: int | None = None

    @property
    def has_default(self) -> bool:
        """Whether a default is declared."""
        return self.default is not ABSENT

    @property
    def environment_name(self) -> str:
        """The conventional environment variable of this setting."""
        return setting_environment_name(self.key)


KEY = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")


def setting_environment_name(key: str) -> str:
    """The environment variable of a setting: `llm.model` is `CASSETTE_LLM_MODEL`."""
    return "CASSETTE_" + key.upper().replace(".", "_").replace("-", "_")


# Names that a service's own start-up reads by convention: a setting of that name would shadow it.
CONVENTIONAL_NAMES = frozenset({"CASSETTE_NAME", "CASSETTE_LISTEN"})


# --- defaults ---------------------------------------------------------------------------------


def default_fault(setting: Setting) -> str | None:
    """Why the default does not fit the setting, or None. An unknown type is not judged here."""
    if not setting.has_default or setting.type not in _FAULTS:
        return None
    return _FAULTS[SettingType(setting.type)](setting)


def _string_fault(setting: Setting) -> str | None:
    if not isinstance(setting.default, str):
        return "must be a string"
    if setting.enum and setting.default not in setting.enum:
        return f"must be one of {', '.join(setting.enum)}"
    return None


def _int_fault(setting: Setting) -> str | None:
    value = integer_of(setting.default)
    if value is None:
        return "must be a whole number of at most 64 bits, written without fraction or exponent"
    if setting.min is not None and value < setting.min:
        return f"must not be below min, which is {setting.min}"
    if setting.max is not None and value > setting.max:
        return f"must not be above max, which is {setting.max}"
    return None


def integer_of(value: Json) -> int | None:
    """The integer that a value spells, `-0` included, or None."""
    if type(value) is int:
        return value
    return 0 if type(value) is Number and value.text == "-0" else None


def _bool_fault(setting: Setting) -> str | None:
    return None if isinstance(setting.default, bool) else "must be true or false"


def _duration_fault(setting: Setting) -> str | None:
    if isinstance(setting.default, str) and is_duration(setting.default):
        return None
    return "must be a duration in quotes, such as 30s, 1h30m or 250ms"


def _json_fault(setting: Setting) -> str | None:
    if not isinstance(setting.default, str):
        return "must be JSON in quotes: a string that holds one JSON value"
    try:
        read(text_of(setting.default.encode("utf-8", "surrogatepass")), repeated=[])
    except Unreadable as error:
        return f"must hold one JSON value: {error}"
    return None


_FAULTS: dict[SettingType, Callable[[Setting], str | None]] = {
    SettingType.STRING: _string_fault,
    SettingType.INT: _int_fault,
    SettingType.BOOL: _bool_fault,
    SettingType.DURATION: _duration_fault,
    SettingType.JSON: _json_fault,
}

_UNITS = {
    "ns": 1,
    "us": 1_000,
    "µs": 1_000,  # U+00B5
    "μs": 1_000,  # U+03BC
    "ms": 1_000_000,
    "s": 1_000_000_000,
    "m": 60_000_000_000,
    "h": 3_600_000_000_000,
}
_PART = r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)"
_DURATION = re.compile(rf"[+-]?(?:0|(?:{_PART})+)")
_PARTS = re.compile(_PART)


def duration_of(text: str) -> int | None:
    """The nanoseconds of a duration that fits 64 bits of them, or None for what is none."""
    # No number of more digits than this fits, and no fraction needs them.
    if len(text) > 1000 or not _DURATION.fullmatch(text):
        return None
    total = sum(
        int(Fraction(number.rstrip(".")) * _UNITS[unit]) for number, unit in _PARTS.findall(text)
    )
    is_negative = text.startswith("-")
    if total > 2**63 - (not is_negative):
        return None
    return -total if is_negative else total


def is_duration(text: str) -> bool:
    """Whether the text is a duration that fits 64 bits of nanoseconds."""
    return duration_of(text) is not None
