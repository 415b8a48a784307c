"""Why a request is not on a tape, said only with evidence: the likely cause, and the rule for it.

Rule 1: a cause is claimed from the places that differ alone; where they say nothing, there is none.
Rule 2: a rule is proposed only for a value that both sides have, and that looks like one that no
        two runs share. What is the same in kind and different in meaning is never waved through.

Knows nothing of tapes.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tapes.explain import Difference

# What changes from run to run, and how it looks: the first that fits both values is its name.
VARYING: tuple[tuple[str, str], ...] = (
    ("a time", r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?"),
    ("a date", r"\d{4}-\d\d-\d\d"),
    ("an id", r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"),
    ("a temporary path", r"/(tmp|var/folders)/[^\s\"']+"),
    ("an address with a port", r"(127\.0\.0\.1|localhost):\d{2,5}"),
    ("a hash", r"\b[0-9a-f]{16,64}\b"),
)
_FEW = 3
_STEP = re.compile(r"\[(\d+)\]|\.?([^.\[\]]+)")
_MESSAGE = re.compile(r"(messages|input|contents)\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Cause:
    """The likely cause, in a sentence; and the rule by which the two would be the same."""

    said: str
    rule: str | None = None


def cause_of(differences: Sequence[Difference]) -> Cause | None:
    """The likely cause of a miss; None where what differs does not say."""
    if not differences:
        return None
    varying = [_varying(each) for each in differences]
    if all(varying):
        names = " and ".join(dict.fromkeys(found[0] for found in varying if found))
        rules = "\n\n".join(dict.fromkeys(found[1] for found in varying if found))
        return Cause(f"{names} that changes from run to run", rules)
    for find in (_model, _course, _tools, _prompt):
        said = find(differences)
        if said:
            return Cause(said)
    return None


def _varying(each: Difference) -> tuple[str, str] | None:
    """What kind of value it is that differs and nothing else does, and the rule for it."""
    if not isinstance(each.asked, str) or not isinstance(each.recorded, str):
        return None
    for name, pattern in VARYING:
        found = re.compile(pattern)
        if not (found.search(each.asked) and found.search(each.recorded)):
            continue
        if found.sub("", each.asked) == found.sub("", each.recorded):
            return name, f"[[vary]]\nat = \"{_pointer(each.place)}\"\npattern = '{pattern}'"
    return None


def _pointer(place: str) -> str:
    steps = (index or name for index, name in _STEP.findall(place))
    return "".join(f"/{step.replace('~', '~0').replace('/', '~1')}" for step in steps)


def _model(differences: Sequence[Difference]) -> str:
    # Where much else differs too, the model is not what it is about.
    for each in differences if len(differences) <= _FEW else ():
        if each.place == "model":
            return f"another model is asked: {each.asked} instead of {each.recorded}"
    return ""


def _tools(differences: Sequence[Difference]) -> str:
    if all(each.place.startswith(("tools", "tool_choice")) for each in differences):
        return "the tools that the model is offered have changed"
    return ""


def _course(differences: Sequence[Difference]) -> str:
    """Whether one of the two has messages that the other has not."""
    longer = {m[2] for d in differences if d.recorded is None and (m := _MESSAGE.match(d.place))}
    shorter = {m[2] for d in differences if d.asked is None and (m := _MESSAGE.match(d.place))}
    numbers = [int(m[2]) for d in differences if (m := _MESSAGE.match(d.place))]
    if not (longer or shorter) or len({*longer, *shorter}) < 1 or not numbers:
        return ""
    return f"the conversation took another course: it parts at message {min(numbers) + 1}"


def _prompt(differences: Sequence[Difference]) -> str:
    if all(each.place.startswith(("system", "instructions")) for each in differences):
        return "the system prompt has changed"
    places = [m for d in differences if (m := _MESSAGE.match(d.place))]
    others = [each.place for each in differences if not _MESSAGE.match(each.place)]
    if places and len(others) <= _FEW:
        said = f"what is said has changed, from message {min(int(m[2]) for m in places) + 1} on"
        return f"{said}; and so has {', '.join(others)}" if others else said
    if all(each.place in ("prompt", "input") for each in differences):
        return "the prompt has changed"
    return ""
