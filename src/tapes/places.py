"""The places of a request or an answer, and where two of them are not the same.

A place is written as in `messages[2].content`; what lies there is a leaf: a value that holds no
others.

Knows nothing of tapes.  Pure.
"""

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tapes.canonical import http_identity
from tapes.exchange import Request
from tapes.jsontext import Json
from tapes.varying import Rule, vary_json

WHOLE = "the body"


@dataclass(frozen=True, slots=True)
class Difference:
    """A place where a request and a recording differ; None stands for nothing there."""

    place: str
    asked: Json
    recorded: Json


def leaves(value: Json, place: str = "") -> Iterator[tuple[str, Json]]:
    """Every leaf of a value with its place."""
    found: list[tuple[str, Json]] = []
    _gather(value, place, found)
    return iter(found)


def _gather(value: Json, place: str, found: list[tuple[str, Json]]) -> None:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            _gather(item, f"{place}.{name}" if place else name, found)
    elif isinstance(value, list) and value:
        for number, item in enumerate(value):
            _gather(item, f"{place}[{number}]", found)
    else:
        found.append((place or WHOLE, value))


def leaves_of(
    request: Request | Json,
    rules: tuple[Rule, ...] = (),
    headers: frozenset[str] = frozenset(),
) -> dict[str, Json]:
    """Every leaf of a request's identity by its place."""
    if isinstance(request, Request):
        return leaves_of_identity(http_identity(request, rules, headers)[0])
    return dict(leaves(vary_json(request, rules)[0]))


def leaves_of_identity(identity: Mapping[str, Json]) -> dict[str, Json]:
    """The same for an identity over HTTP that somebody has already."""
    body = identity["body"]
    head = {name: identity[name] for name in ("method", "path", "query", "headers")}
    if body is None:
        return dict(leaves(head))
    inner = body.get("json") if isinstance(body, dict) and "json" in body else body
    return dict([*leaves(head), *leaves(inner)])


def differences(asked: dict[str, Json], recorded: dict[str, Json]) -> tuple[Difference, ...]:
    """The places that are not the same, in the order in which the request has them."""
    places = dict.fromkeys((*asked, *recorded))
    in_order = sorted(places)
    return tuple(
        Difference(place, asked.get(place), recorded.get(place))
        for place in places
        if not is_same(place, asked, recorded) and not _is_shell(place, in_order)
    )


def is_same(place: str, asked: Mapping[str, Json], recorded: Mapping[str, Json]) -> bool:
    """Whether a place is there on both sides and holds the same, of the same type."""
    if place not in asked or place not in recorded:
        return False
    one, other = asked[place], recorded[place]
    return type(one) is type(other) and bool(one == other)


def _is_shell(place: str, in_order: list[str]) -> bool:
    """Whether something lies inside a place: then that is the difference, not that it is empty."""
    for inside in (f"{place}.", f"{place}["):
        at = bisect_left(in_order, inside)
        if at < len(in_order) and in_order[at].startswith(inside):
            return True
    return False


def pointer_of(place: str) -> str:
    """The JSON pointer of a place in a body, as rules have it."""
    steps = place.replace("[", ".").replace("]", "").split(".")
    return "/" + "/".join(step.replace("~", "~0").replace("/", "~1") for step in steps)
