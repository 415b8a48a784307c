"""The places of a request or an answer, and where two of them are not the same.

A place is written as in `messages[2].content`, and a name in which that could be misread as in
`headers["a.b"]`; what lies there is a leaf: a value that holds no others.

Knows nothing of tapes.  Pure.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tapes.canonical import http_identity, media_type, multipart_pieces, plain_body
from tapes.exchange import Request, header
from tapes.jsontext import Json
from tapes.varying import Rule, vary_json, vary_text

WHOLE = "the body"
FIELD = "form field "
FORM = "application/x-www-form-urlencoded"
_DIGEST = re.compile(r"(?:multipart\[(\d+)\]\.)?sha256$")


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


# What would make a name in a place mean something else.
_MISREAD = re.compile(r'[.\[\]"]')


def below(place: str, name: str) -> str:
    """The place of a member."""
    if not name or (not name.isidentifier() and _MISREAD.search(name)):
        return f"{place}[{json.dumps(name, ensure_ascii=False)}]"
    return f"{place}.{name}" if place else name


def _gather(value: Json, place: str, found: list[tuple[str, Json]]) -> None:
    if isinstance(value, dict) and value:
        for name, item in value.items():
            _gather(item, below(place, name), found)
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


def in_words(
    found: tuple[Difference, ...],
    asked: Request | Json,
    recorded: Request | Json,
    rules: tuple[Rule, ...] = (),
) -> tuple[Difference, ...]:
    """The same differences; where only the hashes of two texts differ, the texts themselves.

    A form is told field by field, a part of an upload by its content. Bytes that are no text stay
    hashes.
    """
    if not (isinstance(asked, Request) and isinstance(recorded, Request)):
        return found
    bodies = [http_identity(each)[0]["body"] for each in (asked, recorded)]
    if any(not isinstance(body, dict) or "json" in body for body in bodies):
        return found
    plain = tuple(rule for rule in rules if rule.pattern and not rule.at)
    told: list[Difference] = []
    for one in found:
        told += _told(one, asked, recorded, plain)
    return tuple(told)


def _told(
    one: Difference, asked: Request, recorded: Request, rules: tuple[Rule, ...]
) -> list[Difference]:
    digest = _DIGEST.match(one.place)
    if digest is None or one.asked is None or one.recorded is None:
        return [one]
    number = digest[1]
    texts = [_text(each, number) for each in (asked, recorded)]
    new, old = texts
    if new is None or old is None:
        return [one]
    if number is not None:
        return [Difference(f"multipart[{number}].content", new, old)]
    new, old = vary_text(new, rules)[0], vary_text(old, rules)[0]
    kinds = {media_type(each.headers) for each in (asked, recorded)}
    fields = _fields(new, old) if kinds == {FORM} else None
    return [Difference(WHOLE, new, old)] if fields is None else fields


def _text(request: Request, number: str | None) -> str | None:
    """The text of a body, or of a part of an upload; None for what is none."""
    body = plain_body(request)
    if number is not None:
        parts = multipart_pieces(header(request.headers, "content-type") or "", body)
        if parts is None or int(number) >= len(parts):
            return None
        body = parts[int(number)][1]
    try:
        return body.decode("utf-8")
    except UnicodeDecodeError:
        return None


def _fields(new: str, old: str) -> list[Difference] | None:
    """The fields of a form that differ; None where it has others, or in another order."""
    pairs = [[field.partition("=") for field in text.split("&")] for text in (new, old)]
    if [name for name, *_ in pairs[0]] != [name for name, *_ in pairs[1]]:
        return None
    both = zip(*pairs, strict=True)
    return [Difference(f"{FIELD}{a[0]}", a[2], b[2]) for a, b in both if a[2] != b[2]]


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


# A name in quotes, or one without, or a number.
_STEP = re.compile(r'\[("(?:[^"\\]|\\.)*")\]|([^.\[\]]+)')


def pointer_of(place: str) -> str:
    """The JSON pointer of a place in a body, as rules have it."""
    steps = [json.loads(quoted) if quoted else plain for quoted, plain in _STEP.findall(place)]
    return "/" + "/".join(step.replace("~", "~0").replace("/", "~1") for step in steps)
