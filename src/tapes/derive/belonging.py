"""Which session a call belongs to that names none: the one whose words it goes on from.

Rule 1: a call goes on from another where it sends that one's conversation, answer included, word
        for word; or where it names that one's answer as the one before.
Rule 2: a call that goes on from nothing seen opens a session of its own. Its id is made from the
        call, not from its first words: two conversations that open alike stay two.
Rule 3: what a client leaves out or adds when it sends an answer again (reasoning, system prompts,
        signatures) does not count as words.

Knows nothing of traces.  Pure.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import replace

from tapes.derive.calls import Reading
from tapes.derive.chain import plain
from tapes.jsontext import Json
from tapes.loosejson import packed
from tapes.providers.turn import (
    SYSTEM_ROLES,
    Message,
    Parts,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Turn,
)
from tapes.rows import moments

BY_CONTENT = "content"

# Which session a mark was left by, or None.
Find = Callable[[str], str | None]


def marks_of(turn: Turn) -> tuple[str, ...]:
    """What a call leaves for a later one to go on from: its answer's id, and all words so far."""
    marks = [f"id:{turn.answer.id}"] if turn.answer.id else []
    if turn.answer.choices:
        marks.append(_words((*turn.asked.messages, turn.answer.choices[0].message)))
    return tuple(marks)


def goes_on_from(turn: Turn) -> tuple[str, ...]:
    """The marks that an earlier call would have left if this one goes on from it."""
    marks = [f"id:{turn.asked.previous_id}"] if turn.asked.previous_id else []
    messages = turn.asked.messages
    last = max((i for i, m in enumerate(messages) if m.role == "assistant"), default=-1)
    if last >= 0:
        marks.append(_words(messages[: last + 1]))
    return tuple(marks)


def session_of(turn: Turn, call_id: str, find: Find) -> str:
    """The session id of a call that names none: an earlier call's, or one of its own."""
    return session_by(goes_on_from(turn), call_id, find)


def session_by(marks: Iterable[str], call_id: str, find: Find) -> str:
    """The same of the marks that an earlier call would have left."""
    for mark in marks:
        known = find(mark)
        if known is not None:
            return known
    return hashlib.sha256(b"conversation " + call_id.encode()).hexdigest()[:16]


def _words(messages: Iterable[Message]) -> str:
    digest = hashlib.sha256()
    for message in messages:
        if message.role not in SYSTEM_ROLES:
            digest.update(packed([message.role, said_in(message.parts)]))
    return digest.hexdigest()


def said_in(parts: Parts) -> list[Json]:
    """The words of a message, and the calls and results in it."""
    said: list[Json] = []
    for part in parts:
        if isinstance(part, Text | Refusal):
            words = plain(part.text)
            said += [words] if words else []
        elif isinstance(part, ToolCall):
            said.append([part.name, part.arguments])
        elif isinstance(part, ToolResult):
            said.append(plain(part.output))
    return said


def with_sessions(readings: Iterable[Reading]) -> list[Reading]:
    """The readings, each with a session: those that name none get theirs by content."""
    known: dict[str, str] = {}
    out = []
    for reading in sorted(readings, key=_by_start):
        raw, envelope = reading.raw, reading.raw.envelope
        if not envelope.harness_session_id:
            call_id = raw.request_id or str(raw.id)
            session = session_of(reading.turn, call_id, known.get)
            for mark in marks_of(reading.turn):
                known[mark] = session
            raw = replace(
                raw,
                envelope=replace(envelope, harness_session_id=session),
                session_by=raw.session_by or BY_CONTENT,
            )
            reading = Reading(raw, reading.turn)
        out.append(reading)
    return out


def _by_start(reading: Reading) -> tuple[int, int, str]:
    return moments(reading.raw)[0], reading.raw.id, reading.raw.request_id
