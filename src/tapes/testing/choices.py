"""What is chosen for one tape of a test run: each place where it can be said, in order.

Rule 1: who runs the tests has the last word: command line, environment, marker, configuration of
        the tests, ini file, in this order.
Rule 2: none of it opens the latch.

Knows nothing of pytest.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tapes.errors import BadSetting
from tapes.modes import Mode

# vcrpy's words for modes, and ours; `once` depends on what is there.
ONCE = "once"
VCR_MODES = {
    "none": Mode.REPLAY,
    "new_episodes": Mode.RECORD,
    "all": Mode.LIVE,
    "rewrite": Mode.LIVE,
}
MODES = (*(str(mode) for mode in Mode), ONCE, *VCR_MODES)
_KNOWN = {
    "mode": None,
    "repeated": ("reuse", "ordered"),
    "pace": None,
    "allow": None,
    "guard": (True, False),
    "refused": ("fail", "allow"),
    "max_age": None,
    "expired": ("warn", "fail", "record"),
    "errors": ("skip", "store"),
}


@dataclass(frozen=True, slots=True)
class Choices:
    """The options of one tape in one test."""

    mode: str = "replay"
    repeated: str = "reuse"
    pace: str | float = "at once"
    allow: tuple[str, ...] = ()
    guard: bool = True
    refused: str = "fail"
    max_age: str | None = None
    expired: str | None = None
    errors: str | None = None


def choices(*sources: tuple[str, Mapping[str, Any]], allow: Iterable[str] = ()) -> Choices:
    """The options of several places, the first being the strongest; allowed hosts add up.

    Raises BadSetting naming the place.
    """
    chosen: dict[str, Any] = {}
    hosts = list(allow)
    for where, options in sources:
        for name, value in options.items():
            _check(where, name, value)
            if name == "allow":
                hosts += _texts(where, value)
            elif value is not None:
                chosen.setdefault(name, value)
    chosen["mode"] = str(chosen.get("mode") or Mode.REPLAY)
    return Choices(**chosen, allow=tuple(dict.fromkeys(hosts)))


def _check(where: str, name: str, value: Any) -> None:
    if name not in _KNOWN:
        raise BadSetting(f"{where}: unknown option {name!r}", f"known: {', '.join(_KNOWN)}")
    allowed = _KNOWN[name]
    if name == "mode" and value is not None and str(value) not in MODES:
        raise BadSetting(f"{where}: {value!r} is no mode", f"modes: {', '.join(MODES)}")
    if allowed is not None and value is not None and value not in allowed:
        words = ", ".join(map(str, allowed))
        raise BadSetting(f"{where}: {name}={value!r} is not one of: {words}")


def _texts(where: str, value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str) or not all(isinstance(entry, str) for entry in value):
        raise BadSetting(f"{where}: allow is a list of hosts", 'allow=["db.internal:5432"]')
    return list(value)


def mode_of(word: str, *, is_recorded: bool) -> Mode:
    """The mode that a word means for a tape on which something is recorded, or nothing is."""
    if word == ONCE:
        return Mode.REPLAY if is_recorded else Mode.RECORD
    return VCR_MODES[word] if word in VCR_MODES else Mode.of(word)
