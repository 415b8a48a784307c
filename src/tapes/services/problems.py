"""The steps of admission in order, and the problems that they find.

Rule 1: the first step that finds something decides; every problem of every step that could still
        be judged is named, in the order of the steps and then of the places.
Rule 2: a problem is named once, no more than a hundred of one step are, and none at such length
        that a hostile document could fill a log with its own text.

Knows nothing of what the steps check.  Pure.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import TypeAlias

from tapes.errors import Problem
from tapes.services.spelling import Path, pointer_of


class Stage(StrEnum):
    """A step of admission; in this order, and the first that finds something decides."""

    SOURCE_LIST = "source_list"
    SOURCE_URL = "source_url"
    FETCH = "fetch"
    DOCUMENT = "document"
    MANIFEST_MISSING = "manifest_missing"
    MANIFEST_PARSE = "manifest_parse"
    MANIFEST_INVALID = "manifest_invalid"
    NAME_CHANGED = "name_changed"
    NAME_TAKEN = "name_taken"
    PATHS_MISSING = "paths_missing"
    PATH_OUTSIDE = "path_outside"
    SHAPE = "shape"
    REFERENCES = "references"
    STRUCTURE = "structure"
    LINT = "lint"
    MCP = "mcp"


# A place inside a document, built while walking: the parent's place and one key more. A chain
# costs one small tuple per step, and becomes a path only where something is wrong.
Where: TypeAlias = "tuple[Where, str | int] | None"

# The code of a document that the host could not judge, be it for its cost or for trouble of ours.
UNDECIDED = "too_costly"
PER_STAGE = 100
_LENGTH = 300


def cut(text: str, length: int = _LENGTH) -> str:
    """A text that may be anybody's, at a length that a person reads."""
    return text if len(text) <= length else text[:length] + "…"


def problem(stage: str, code: str, field: str, message: str, line: int | None = None) -> Problem:
    """A problem with its texts cut to a length that a person reads."""
    return Problem(stage, code, cut(field), cut(message), line)


def path_of(where: Where) -> Path:
    """The path from the root to a place."""
    keys: list[str | int] = []
    while where is not None:
        where, key = where
        keys.append(key)
    return tuple(reversed(keys))


class Findings:
    """What was found in one document, step by step."""

    def __init__(self) -> None:
        self._found: dict[Stage, dict[tuple[Path, str, str], None]] = {}
        self._left_out: dict[Stage, int] = {}

    def add(self, stage: Stage, code: str, where: Where, message: str) -> None:
        """Note a problem at a place."""
        found = self._found.setdefault(stage, {})
        if len(found) < 10 * PER_STAGE:
            found[path_of(where), code, cut(message)] = None
        else:
            self._left_out[stage] = self._left_out.get(stage, 0) + 1

    def any(self, *stages: Stage) -> bool:
        """Whether something was found at one of these steps (at any, where none is named)."""
        return any(stage in self._found for stage in stages or Stage)

    def problems(self, lines: Callable[[Iterable[Path]], dict[Path, int]]) -> tuple[Problem, ...]:
        """All problems, with the lines that `lines` knows for their paths."""
        chosen: list[tuple[Stage, Path, str, str]] = []
        rest: list[tuple[Stage, int]] = []
        for stage in Stage:
            found = sorted(self._found.get(stage, ()), key=lambda f: (pointer_of(f[0]), f[1:]))
            chosen += [(stage, *finding) for finding in found[:PER_STAGE]]
            more = len(found[PER_STAGE:]) + self._left_out.get(stage, 0)
            if more:
                rest.append((stage, more))
        at = lines([path for _, path, _, _ in chosen])
        named = [
            problem(stage, code, pointer_of(path), message, at.get(path))
            for stage, path, code, message in chosen
        ]
        unnamed = [Problem(stage, "more", "", f"and {more} more problems") for stage, more in rest]
        return tuple(sorted(named + unnamed, key=lambda p: _ORDER[p.stage]))


_ORDER = {str(stage): position for position, stage in enumerate(Stage)}
