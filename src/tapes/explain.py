"""Why a request has no answer: the nearest recording, and the places where the two differ.

Knows nothing of modes or messages beyond one line.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tapes.canonical import http_identity
from tapes.errors import TapesError
from tapes.exchange import Exchange, Request, State
from tapes.jsontext import Json
from tapes.tape.base import Tape
from tapes.varying import Rule, vary_json

# What looking for the nearest recording may take before the refusal is raised.
PATIENCE_S = 0.2
_SHOWN_PLACES = 3


@dataclass(frozen=True, slots=True)
class Difference:
    """A place where a request and a recording differ; None stands for nothing there."""

    place: str
    asked: Json
    recorded: Json


@dataclass(frozen=True, slots=True)
class Near:
    """A recording that is like the request, and how it differs."""

    exchange: Exchange
    differences: tuple[Difference, ...]


def nearest(
    tape: Tape,
    request: Request | Json,
    rules: tuple[Rule, ...] = (),
    headers: frozenset[str] = frozenset(),
) -> str | None:
    """One line that names the nearest recording and where it differs, or None on an empty tape.

    `rules` and `headers` are what is declared for the tape: a place that may vary is no difference.
    """
    near = find_nearest(tape, request, rules, headers)
    if near is None:
        return None
    places = [difference.place for difference in near.differences[:_SHOWN_PLACES]]
    more = len(near.differences) - len(places)
    if not places:
        return (
            f"nearest: {near.exchange.key[:12]}, which differs in what a rule or redaction covers"
        )
    tail = f" and {more} more" if more > 0 else ""
    return f"nearest: {near.exchange.key[:12]}, differs at {', '.join(places)}{tail}"


def find_nearest(
    tape: Tape,
    request: Request | Json,
    rules: tuple[Rule, ...] = (),
    headers: frozenset[str] = frozenset(),
    patience: float = PATIENCE_S,
) -> Near | None:
    """The recording that shares most with the request; the latest of equals."""
    wanted: dict[str, Json] = {}
    best: tuple[float, Exchange, dict[str, Json]] | None = None
    until = time.monotonic() + patience
    try:
        wanted = leaves_of(request, rules, headers)
        for exchange in tape.exchanges():
            if exchange.request is not None and exchange.state is State.COMPLETE:
                leaves = leaves_of(exchange.request, rules, headers)
                score = _likeness(wanted, leaves)
                if best is None or score >= best[0]:
                    best = (score, exchange, leaves)
            if time.monotonic() > until:
                break
    except (TapesError, RecursionError):
        pass  # damage or a monster elsewhere must not hide the refusal
    return None if best is None else Near(best[1], differences(wanted, best[2]))


def differences(asked: dict[str, Json], recorded: dict[str, Json]) -> tuple[Difference, ...]:
    """The places that are not the same, in the order in which the request has them."""
    places = dict.fromkeys((*asked, *recorded))
    return tuple(
        Difference(place, asked.get(place), recorded.get(place))
        for place in places
        if not _is_same(place, asked, recorded) and not _is_shell(place, places)
    )


def _is_same(place: str, asked: dict[str, Json], recorded: dict[str, Json]) -> bool:
    """Whether a place is there on both sides and holds the same, of the same type."""
    if place not in asked or place not in recorded:
        return False
    one, other = asked[place], recorded[place]
    return type(one) is type(other) and bool(one == other)


def _is_shell(place: str, places: Iterable[str]) -> bool:
    """Whether something lies inside a place: then that is the difference, not that it is empty."""
    return any(other.startswith((f"{place}.", f"{place}[")) for other in places)


def leaves_of(
    request: Request | Json,
    rules: tuple[Rule, ...] = (),
    headers: frozenset[str] = frozenset(),
) -> dict[str, Json]:
    """Every leaf of a request's identity by its place, as in `messages[2].content`."""
    if isinstance(request, Request):
        identity, _ = http_identity(request, rules, headers)
        body = identity["body"]
        inner = body.get("json") if isinstance(body, dict) and "json" in body else body
        head = {name: identity[name] for name in ("method", "path", "query", "headers")}
        return dict([*_leaves(head, ""), *_leaves(inner, "")])
    return dict(_leaves(vary_json(request, rules)[0], ""))


def _leaves(value: Json, place: str) -> Iterator[tuple[str, Json]]:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from _leaves(item, f"{place}.{name}" if place else name)
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            yield from _leaves(item, f"{place}[{number}]")
    else:
        yield place or "the body", value


def _likeness(one: dict[str, Json], other: dict[str, Json]) -> float:
    """From 0 to 1: shared leaves, a place with another text counting by what begins alike."""
    shared = 0.0
    for place, value in one.items():
        if _is_same(place, one, other):
            shared += 1
        elif isinstance(value, str) and isinstance(other.get(place), str):
            shared += 0.9 * _common_ends(value, other[place])
    return shared / max(len(one), len(other), 1)


def _common_ends(one: str, other: str) -> float:
    head = _common_start(one, other)
    tail = _common_start(one[: head - len(one) - 1 : -1], other[: head - len(other) - 1 : -1])
    return (head + tail) / max(len(one), len(other), 1)


def _common_start(one: str, other: str) -> int:
    """How many characters two texts begin with alike, in steps that halve."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
