"""`resolve`: the directory document's one function, on the same cassette as everything else."""

import os
import threading
from collections.abc import Callable
from typing import Any

from tapes.budget import Limits, latch_is_on
from tapes.cassette import Cassette
from tapes.jsontext import Json
from tapes.modes import MODE, Mode
from tapes.tape.directory import DirectoryTape

DIRECTORY = "CASSETTE_DIR"
DEFAULT_DIRECTORY = "./cassettes"

_cassettes: dict[tuple[str, Mode], Cassette] = {}
_mutex = threading.Lock()


def _in_child() -> None:
    """After a fork: whoever held it is the parent's."""
    global _mutex
    _mutex = threading.Lock()


os.register_at_fork(after_in_child=_in_child)


def resolve(
    payload: dict[str, Json],
    call_upstream: Callable[[dict[str, Json]], Json],
    spent: list[int] | None = None,
) -> Any:
    """The answer to a payload: from the directory, or by one live call within the budget.

    Reads `CASSETTE_DIR` (default `./cassettes`), `CASSETTE_MODE` and `CASSETTE_LIVE_BUDGET`
    (default 0) at every call. `spent`, where given, mirrors the number of live calls in its first
    item; the budget that decides is the one that all processes share. Ends the process with
    CassetteMiss or BudgetExhausted where there is no answer.
    """

    def counted(request: dict[str, Json]) -> Json:
        response = call_upstream(request)
        if spent is not None:
            spent[:1] = [(spent[0] if spent else 0) + 1]
        return response

    return _cassette().call(payload, live=counted)


def _cassette() -> Cassette:
    path = os.path.abspath(os.environ.get(DIRECTORY) or DEFAULT_DIRECTORY)
    mode = Mode.of(os.environ.get(MODE) or Mode.REPLAY)
    with _mutex:
        if (path, mode) not in _cassettes:
            _cassettes[path, mode] = Cassette(DirectoryTape(path), mode)
        cassette = _cassettes[path, mode]
    limits = Limits.of(os.environ)
    if not limits.are_set and not latch_is_on(os.environ):
        limits = Limits(calls=0)  # the document's default
    cassette.limits = limits
    return cassette
