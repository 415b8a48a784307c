"""Where two tapes, or two exchanges, are not the same.

Events of a stream are laid over each other, so that a stream of sixty events with one other word
differs in one place: a place that every event repeats is shown once, texts are put together.

Knows nothing of terminals.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from tapes.errors import TapesError
from tapes.exchange import Exchange, Response, State, header
from tapes.explain import Difference, differences, leaves_of
from tapes.jsontext import Json, read
from tapes.tape.base import Tape
from tapes.tape.copying import answer_digest
from tapes.tape.raw import Progress, Rows, exchanges, open_rows, silent
from tapes.wire import decoded, frames_of


@dataclass(frozen=True, slots=True)
class TapeDifferences:
    """Which keys have an answer only on one of two tapes, and which differ."""

    ours: str
    theirs: str
    only_ours: tuple[str, ...]
    only_theirs: tuple[str, ...]
    differing: tuple[str, ...]
    same: int

    @property
    def are_none(self) -> bool:
        """Whether both tapes answer the same requests in the same way."""
        return not (self.only_ours or self.only_theirs or self.differing)


def compare_tapes(
    ours: str | os.PathLike[str], theirs: str | os.PathLike[str], progress: Progress = silent
) -> TapeDifferences:
    """What two tapes do not answer alike. Raises UnreadableTape and its kin."""
    with open_rows(ours) as rows:
        left = _answers(rows, lambda done: progress(done / 2))
    with open_rows(theirs) as rows:
        right = _answers(rows, lambda done: progress(0.5 + done / 2))
    both = [key for key in left if key in right]
    return TapeDifferences(
        os.fspath(ours),
        os.fspath(theirs),
        tuple(key for key in left if key not in right),
        tuple(key for key in right if key not in left),
        tuple(key for key in both if left[key] != right[key]),
        sum(left[key] == right[key] for key in both),
    )


def _answers(rows: Rows, progress: Progress) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for raw, exchange in exchanges(rows):
        progress(raw.done)
        if exchange.state is State.COMPLETE:
            found[exchange.key] = answer_digest(exchange)
    return found


def answer_differences(ours: Tape, theirs: Tape, key: str) -> tuple[Difference, ...]:
    """Where two tapes answer one request differently, field by field."""
    left, right = ours.find(key), theirs.find(key)
    if left is None or right is None:
        return ()
    return differences(answer_leaves(left), answer_leaves(right))


def exchange_differences(one: Exchange, other: Exchange) -> tuple[Difference, ...]:
    """Where two exchanges differ: places of the request first, then of the response."""
    asked = [
        differences(_asked(one), _asked(other)),
        differences(answer_leaves(one), answer_leaves(other)),
    ]
    return tuple(
        Difference(f"{side}.{d.place}", d.asked, d.recorded)
        for side, found in zip(("request", "response"), asked, strict=True)
        for d in found
    )


def _asked(exchange: Exchange) -> dict[str, Json]:
    return {} if exchange.request is None else leaves_of(exchange.request)


def answer_leaves(exchange: Exchange) -> dict[str, Json]:
    """Every leaf of an answer by its place: status, headers, and what the body says."""
    response = exchange.response
    if not isinstance(response, Response):
        return leaves_of(response)
    leaves: dict[str, Json] = {"status": response.status}
    for name, value in response.headers:
        place = f"headers.{name.lower()}"
        leaves[place] = f"{leaves[place]}, {value}" if place in leaves else value
    leaves.update(_body_leaves(response))
    return leaves


def _body_leaves(response: Response) -> Iterator[tuple[str, Json]]:
    body = plain_response(response)
    frames = frames_of(header(response.headers, "content-type"), body)
    if frames is None:
        try:
            yield from leaves_of(read(body)).items()
        except ValueError:
            yield "body", body.decode("utf-8", "backslashreplace")
        return
    laid: dict[str, list[Json]] = {}
    for frame in frames:
        try:
            value = leaves_of(read(frame.text.encode()))
        except ValueError:
            value = {"data": frame.text}
        for place, item in value.items():
            laid.setdefault(place, []).append(item)
    yield "events", len(frames)
    for place, items in laid.items():
        yield place, _laid_over(place, items)


# Members whose texts are parts of one text, event after event.
_PARTS = ("content", "text", "delta", "arguments", "partial_json", "thinking", "reasoning_content")


def _laid_over(place: str, items: list[Json]) -> Json:
    """One value for what the events of a stream say at one place."""
    texts = [item for item in items if isinstance(item, str)]
    if place.endswith(_PARTS) and texts:
        return "".join(texts)
    if all(item == items[0] for item in items):
        return items[0]
    if len(texts) == len(items):
        return "".join(texts)
    words = [item for item in items if item is not None]
    return words[-1] if words else None


def plain_response(response: Response) -> bytes:
    """The body with its content coding undone, or as it is where nobody can undo it."""
    try:
        return decoded(response.body, header(response.headers, "content-encoding")).data
    except TapesError:
        return response.body
