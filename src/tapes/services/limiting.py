"""The limits of services as the configuration file sets them: for all, and for one by its name.

    [cassette_limits]
    at_once = 16
    [cassette_limits.search]
    silence_s = 30

Rule 1: what is not said of a service is as it is for all; what is not said at all is the default.
Rule 2: every problem is told at once, and no limit holds while one of them is not understood.

Knows nothing of what a limit does.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from tapes.errors import BadSetting, as_typed
from tapes.services.manifest import is_name
from tapes.services.traffic import Limits

KEY = "cassette_limits"
_KNOWN = {field.name: field.type for field in fields(Limits)}
# Zero says "none" for sizes; of anything else it would let nothing pass.
_MAY_BE_ZERO = ("request_bytes", "response_bytes")


@dataclass(frozen=True, slots=True)
class Limited:
    """The limits of all services and those of some, and the file that decides them if one does."""

    every: Limits = field(default_factory=Limits)
    by_name: tuple[tuple[str, Limits], ...] = ()
    file: Path | None = field(default=None, compare=False)

    def of(self, service: str) -> Limits:
        """The limits of a service."""
        return dict(self.by_name).get(service, self.every)


def limits_in(file: Path) -> Limited:
    """The limits that a file sets; the defaults where there is none. Raises BadSetting."""
    try:
        tree = tomllib.loads(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        return Limited(file=file)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadSetting(
            f"{file}: {error}", f"mend it there: ${{EDITOR:-vi}} {as_typed(file)}"
        ) from error
    table = tree.get(KEY, {})
    faults = list(_faults(table))
    if faults:
        raise BadSetting(f"{file}: {'; '.join(faults)}", f"limits: {', '.join(_KNOWN)}")
    named = {name: said for name, said in table.items() if isinstance(said, dict)}
    every = replace(Limits(), **{key: said for key, said in table.items() if key not in named})
    by_name = tuple((name, replace(every, **said)) for name, said in named.items())
    return Limited(every, by_name, file)


def _faults(table: object) -> Iterator[str]:
    if not isinstance(table, dict):
        yield f"{KEY} is a table: write [{KEY}]"
        return
    named = {name: said for name, said in table.items() if isinstance(said, dict)}
    yield from _faults_of(KEY, {key: said for key, said in table.items() if key not in named})
    for name, said in named.items():
        if not is_name(name):
            yield f"{KEY}.{name}: no service can have this name"
        yield from _faults_of(f"{KEY}.{name}", said)


def _faults_of(where: str, said: Mapping[str, Any]) -> Iterator[str]:
    for key, value in said.items():
        kind = _KNOWN.get(key)
        if kind is None:
            yield f"{where}.{key}: there is no such limit"
        elif isinstance(value, bool) or not isinstance(value, int if kind is int else int | float):
            yield f"{where}.{key}: a {'whole ' if kind is int else ''}number is needed"
        elif not (0 <= value < float("inf")) or (value == 0 and key not in _MAY_BE_ZERO):
            yield f"{where}.{key}: must be a number above zero"
