"""A session becomes a tape: what it asked and was answered, redacted, to be replayed for ever.

Rule 1: only whole answers that came over HTTP are put on the tape. What is left out is said, each
        with its reason.
Rule 2: what comes to rest on the tape is redacted as a recording of our own is, and keyed alike:
        the same program, asking the same again, is answered from it.
Rule 3: a request has drifted where the tape has no answer to it any more; the nearest recording
        says in which places.

Knows nothing of databases or terminals.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tapes.canonical import http_identity, http_text, key_of
from tapes.exchange import Exchange, Request, Response, State
from tapes.explain import find_nearest
from tapes.interchange.foreign import Found, Note, Reading
from tapes.moving import Imported, import_into
from tapes.project import Declared, declared_for
from tapes.redact import SECRET_PATTERNS, Redactor
from tapes.rows import Outcome, RawTurn, Source, time_text
from tapes.tape.base import Tape


@dataclass(frozen=True, slots=True)
class Drifted:
    """A request that the tape does not answer, and where it differs from the nearest recording."""

    turn_id: int
    key: str
    what: str
    nearest: str | None
    places: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Drift:
    """What became of a session's requests, held against a tape."""

    asked: int
    answered: int
    drifted: tuple[Drifted, ...]
    unused: tuple[str, ...]
    left_out: tuple[Note, ...] = ()


def freeze(turns: Iterable[RawTurn], tape: Tape, declared: Declared | None = None) -> Imported:
    """Put a session's exchanges on a tape. Raises MergeConflict, SecretFound, UnwritableTape.

    What the project declares is read from beside the tape, where it is not given.
    """
    return import_into(tape, _reading(turns), partial=True, declared=declared)


def _reading(turns: Iterable[RawTurn]) -> Reading:
    found: list[Found] = []
    notes: list[Note] = []
    for turn in turns:
        place = f"turn {turn.id}"
        why = why_not(turn)
        if why is not None:
            notes.append(Note(place, why, left_out=True))
            continue
        request, response = _http(turn)
        began = None if turn.started_at is None else time_text(turn.started_at)
        found.append(Found(place, request, response, began))
    return Reading(tuple(found), tuple(notes))


def why_not(turn: RawTurn) -> str | None:
    """Why a turn can be no answer on a tape; None where it can."""
    exchange = turn.exchange
    if turn.source is not Source.WIRE:
        return "it is an agent's own log, not a call"
    if exchange is None or not isinstance(exchange.request, Request):
        return "its request is not kept as it was sent"
    if not isinstance(exchange.response, Response) or turn.dropped:
        return "its answer's bytes are not kept"
    if turn.outcome is Outcome.REFUSED:
        return "it was refused, not answered"
    return _failed(exchange)


def _failed(exchange: Exchange) -> str | None:
    """How an exchange failed; None where it came to its end."""
    if exchange.state is not State.COMPLETE:
        return f"its answer is not whole: {exchange.state}"
    response = exchange.response
    if isinstance(response, Response) and response.status >= 400:
        return f"its answer is an error: {response.status}"
    return None


def _http(turn: RawTurn) -> tuple[Request, Response]:
    assert turn.exchange is not None
    request, response = turn.exchange.request, turn.exchange.response
    assert isinstance(request, Request)
    assert isinstance(response, Response)
    return request, response


def drift(turns: Iterable[RawTurn], tape: Tape) -> Drift:
    """Which requests of a session the tape does not answer any more.

    A call that failed in its own session goes onto no tape, and is left out here as well.
    """
    declared = declared_for(tape.path)
    redactor = Redactor(patterns=(*SECRET_PATTERNS, *declared.patterns), keep=declared.headers)
    asked = answered = 0
    drifted: list[Drifted] = []
    left_out: list[Note] = []
    used: set[str] = set()
    for turn in turns:
        exchange = turn.exchange
        if exchange is None or not isinstance(exchange.request, Request):
            continue
        request = redactor.request(exchange.request)
        identity, _ = http_identity(request, tuple(declared.rules), declared.headers)
        key = key_of(http_text(identity))
        if tape.find(key) is not None:
            asked, answered = asked + 1, answered + 1
            used.add(key)
            continue
        failed = _failed(exchange)
        if failed is not None and turn.outcome is not Outcome.REFUSED:
            left_out.append(Note(f"turn {turn.id}", failed, left_out=True))
            continue
        asked += 1
        near = find_nearest(tape, request, tuple(declared.rules), declared.headers)
        drifted.append(
            Drifted(
                turn.id,
                key,
                f"{request.method} {request.url.partition('?')[0]}",
                None if near is None else near.exchange.key,
                () if near is None else tuple(d.place for d in near.differences),
            )
        )
    unused = sorted(key for key in _answers(tape) if key not in used)
    return Drift(asked, answered, tuple(drifted), tuple(unused), tuple(left_out))


def _answers(tape: Tape) -> Iterator[str]:
    seen: Counter[str] = Counter()
    exchange: Exchange
    for exchange in tape.exchanges():
        if exchange.state is State.COMPLETE and not exchange.sample and not seen[exchange.key]:
            seen[exchange.key] += 1
            yield exchange.key


# --- a test -----------------------------------------------------------------------------------

_TEST = '''"""Replays {tape}: a session of {agent}, frozen from {session}.

The first test asks what the session asked, and gets what it was answered: byte for byte, without a
key and without a network. Put your own agent into the second.
"""

import json
from pathlib import Path

import pytest

import tapes
from tapes.cassette import Play
from tapes.exchange import Request

TAPE = Path(__file__).parent / {relative!r}
RECORDED = [
    exchange
    for exchange in tapes.open_tape(TAPE).exchanges()
    if exchange.state == "complete" and not exchange.sample
]


@pytest.mark.parametrize("exchange", RECORDED, ids=lambda exchange: exchange.key[:12])
def test_every_call_of_the_session_is_answered_as_it_was(exchange: object) -> None:
    with tapes.Cassette(TAPE, "replay") as cassette:
        verdict = cassette.decide(exchange.request)
        assert isinstance(verdict, Play)
        assert verdict.exchange.response.body == exchange.response.body


def test_another_prompt_is_refused_and_never_goes_live() -> None:
    with tapes.Cassette(TAPE, "replay") as cassette:
        request = RECORDED[0].request
        body = json.dumps({{"model": "other", "messages": []}}).encode()
        verdict = cassette.decide(Request(request.method, request.url, request.headers, body))
        assert not isinstance(verdict, Play)
'''


def module_for(tape: str, relative: str, *, agent: str, session: str) -> str:
    """A pytest module that replays a tape."""
    words = {"tape": tape, "agent": agent, "session": session}
    return _TEST.format(
        relative=relative, **{name: _in_words(text) for name, text in words.items()}
    )


def _in_words(text: str) -> str:
    """The text as it may stand in a docstring: whoever sent it chose it, and it ends no string."""
    shown = "".join(each if each.isprintable() else " " for each in text)
    return shown.replace("\\", "/").replace('"', "'")
