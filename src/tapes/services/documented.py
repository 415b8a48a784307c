"""Which methods and paths a service documents: its templates as a tree of segments.

Rule 1: a path is compared segment by segment, as it was sent. A parameter stands for one character
        or more of one segment.
Rule 2: the work is bounded by the tree and the path, whatever the templates and the path are; no
        expression is compiled from what a stranger wrote.

Pure.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from urllib.parse import quote

from tapes.services.admission import Operation

_PARAMETER = re.compile(r"\{[^{}]*\}")
_SAFE = "%/:@!$&'()*+,;=~-._[]|"
_MAX_STEPS = 10_000

# The literal parts of a segment; between two of them stands something.
Parts = tuple[bytes, ...]


@dataclass(slots=True)
class _Node:
    literal: dict[bytes, "_Node"] = field(default_factory=dict)
    open: dict[Parts, "_Node"] = field(default_factory=dict)
    methods: set[str] = field(default_factory=set)


class Documented:
    """The documented operations of one service."""

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._root = _Node()
        for operation in operations:
            node = self._root
            for segment in _segments(operation.public_path):
                if len(segment) == 1:
                    node = node.literal.setdefault(segment[0], _Node())
                else:
                    node = node.open.setdefault(segment, _Node())
            node.methods.add(operation.method)

    def has(self, method: str, path: bytes) -> bool:
        """Whether a method and a path, as it was sent, are documented."""
        todo = [(self._root, 0)]
        segments = _without_last_slash(path).split(b"/")
        for _ in range(_MAX_STEPS):
            if not todo:
                return False
            node, depth = todo.pop()
            if depth == len(segments):
                if method in node.methods:
                    return True
                continue
            segment = segments[depth]
            todo += [(n, depth + 1) for parts, n in node.open.items() if _fits(parts, segment)]
            if segment in node.literal:
                todo.append((node.literal[segment], depth + 1))
        return False


def _segments(template: str) -> list[Parts]:
    parts = _PARAMETER.split(template.strip())
    # Only what stands between parameters can hold a slash.
    texts = [quote(part, safe=_SAFE).encode("ascii") for part in parts]
    segments: list[list[bytes]] = [[b""]]
    for number, text in enumerate(texts):
        first, *rest = text.split(b"/")
        if number:
            segments[-1].append(first)
        else:
            segments[-1][0] = first
        segments += [[piece] for piece in rest]
    if len(segments) > 1 and segments[-1] == [b""]:
        segments.pop()
    return [tuple(segment) for segment in segments]


def _without_last_slash(path: bytes) -> bytes:
    return path[:-1] if path.endswith(b"/") and len(path) > 1 else path


def _fits(parts: Parts, segment: bytes) -> bool:
    """Whether the literal parts stand in the segment in their order, with something between."""
    if not segment.startswith(parts[0]):
        return False
    at, last = len(parts[0]), parts[-1]
    for part in parts[1:-1]:
        at = segment.find(part, at + 1)
        if at < 0:
            return False
        at += len(part)
    return segment.endswith(last) and len(segment) - len(last) > at
