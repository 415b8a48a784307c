"""The settings of a service: from the environment, by the types that the manifest declares.

Rule 1: every problem of all settings is told at once, by the name of its variable.
Rule 2: a secret is never shown: not in a representation, not in a message, not in JSON.

Knows nothing of HTTP.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta
from typing import Any

from tapes.errors import BadSetting
from tapes.jsontext import Json
from tapes.services.settings import Setting, SettingType, duration_of


class Secret:
    """A value that shows itself only when asked to."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """The value itself."""
        return self._value

    def __repr__(self) -> str:
        return "Secret(…)"

    __str__ = __repr__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)


class Settings(Mapping[str, Any]):
    """The values by key; `None` for one that is neither given nor has a default.

    Raises BadSetting with every problem.
    """

    def __init__(self, declared: Iterable[Setting], environ: Mapping[str, str]) -> None:
        self._values: dict[str, Any] = {}
        problems = []
        for setting in declared:
            try:
                self._values[setting.key] = _value(setting, environ)
            except ValueError as error:
                problems.append(f"{setting.environment_name} {error}")
        if problems:
            raise BadSetting(
                "; ".join(problems), "set each of these variables, and start the service again"
            )

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        return f"Settings({self._values})"


def _value(setting: Setting, environ: Mapping[str, str]) -> Any:
    text = environ.get(setting.environment_name)
    if text is None or (text == "" and setting.type != SettingType.STRING):
        if setting.has_default:
            return _typed(setting, _text_of(setting.default))
        if setting.required:
            raise ValueError(f"is missing{_about(setting)}")
        return None
    try:
        value = _typed(setting, text)
    except ValueError as error:
        shown = "its value" if setting.secret else repr(text)
        raise ValueError(f"cannot be {shown}: {error}") from None
    return Secret(text) if setting.secret else value


def _about(setting: Setting) -> str:
    return f" ({setting.description})" if setting.description else ""


def _text_of(default: Json) -> str:
    if isinstance(default, bool):
        return "true" if default else "false"
    return str(default)


def _typed(setting: Setting, text: str) -> Any:
    match setting.type:
        case SettingType.INT:
            return _integer(setting, text)
        case SettingType.BOOL:
            if text.lower() not in ("true", "false", "1", "0"):
                raise ValueError("it must be true or false")
            return text.lower() in ("true", "1")
        case SettingType.DURATION:
            nanoseconds = duration_of(text)
            if nanoseconds is None:
                raise ValueError("it must be a duration such as 30s or 1h30m")
            return timedelta(microseconds=nanoseconds / 1000)
        case SettingType.JSON:
            try:
                return json.loads(text)
            except (ValueError, RecursionError):
                raise ValueError("it must be JSON") from None
        case _:
            if setting.enum and text not in setting.enum:
                raise ValueError(f"it must be one of {', '.join(setting.enum)}")
            return text


def _integer(setting: Setting, text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        raise ValueError("it must be a whole number") from None
    if setting.min is not None and value < setting.min:
        raise ValueError(f"it must be at least {setting.min}")
    if setting.max is not None and value > setting.max:
        raise ValueError(f"it must be at most {setting.max}")
    return value
