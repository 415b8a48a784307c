"""An agent's own log → the model calls that it tells of and nobody saw on the wire.

Claude Code writes a line for each block of an answer, Codex one for each item. Both tell the
conversation as it went on, so a call's request is all that was said before its answer.

Rule 1: a call that the proxy saw is its call: by the answer's id, by a tool call's, by its words.
Rule 2: what the log does not tell (settings, tools, side calls) stays unknown.
Rule 3: what a forked session copied from the one that it forks is what was said before, and no call
        of its own.
Rule 4: of several versions of one log the newest counts that is no mere beginning of another. One
        that lost its head gets it back; what a rewritten one does not tell any more is told still.

Knows nothing of traces.  Pure.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tapes.derive.anchors import replaces
from tapes.derive.belonging import said_in
from tapes.derive.calls import Reading
from tapes.jsontext import Json
from tapes.loosejson import packed
from tapes.providers.anthropic import MESSAGES
from tapes.providers.openai_responses import RESPONSES, SETTING_UP, role_of
from tapes.providers.turn import Answer, Asked, Message, Provider, ToolCall, Turn, no_memo, word
from tapes.rows import RawTurn, nanoseconds, session_id_of


@dataclass(slots=True)
class _Talk:
    """One thread of a log: what was said, and when the last of it was."""

    history: list[Message] = field(default_factory=list)
    at: int | None = None
    group: list[dict[str, Json]] = field(default_factory=list)  # the answer that is being told
    began: int | None = None
    ended: int | None = None
    copied: bool = False  # the answer that is being told is another session's
    model: str = ""


def calls_told(raws: Iterable[RawTurn], seen: Sequence[Reading]) -> list[Reading]:
    """The calls that logs tell of and that are not among those seen."""
    logs: dict[tuple[str, str], list[RawTurn]] = {}
    for raw in sorted(raws, key=lambda raw: (raw.id, raw.request_id)):
        meta = raw.meta if isinstance(raw.meta, dict) else {}
        if isinstance(raw.records, list) and raw.records:
            key = word(meta.get("agent_id")), word(meta.get("kind"))
            _add_version(logs.setdefault(key, []), raw)
    if not logs:
        return []
    known = _Known(seen)
    told: list[Reading] = []
    for (agent, _), versions in logs.items():
        for reading in _calls_of_all([list(_calls(raw, agent)) for raw in versions]):
            if not known.has(reading):
                told.append(known.add(reading))
    return told


def _calls_of_all(versions: Sequence[Sequence[Reading]]) -> Iterator[Reading]:
    """The calls of all versions, the oldest first: what was told keeps its id.

    A log may be read while it is written: what is but the beginning of a call that is told later
    is none.
    """
    for number, readings in enumerate(versions, 1):
        later = _Known(reading for others in versions[number:] for reading in others)
        yield from (reading for reading in readings if not later.begins_one(reading))


def _add_version(versions: list[RawTurn], raw: RawTurn) -> None:
    """A version of a log, after those before it; in the place of one that it goes on from."""
    if not versions:
        versions.append(raw)
    elif replaces(raw.records, versions[-1].records):
        whole = _gone_on(versions[-1].records, raw.records)
        if whole is None:
            versions.append(raw)
        else:
            versions[-1] = replace(raw, records=whole)


def _gone_on(before: list[Json], records: list[Json]) -> list[Json] | None:
    """The whole of a log that goes on from a version before, whose head it may have lost."""
    for lost in (n for n, record in enumerate(before) if record == records[0]):
        if before[lost:] == records[: len(before) - lost]:
            return before[:lost] + records
    return None


class _Known:
    """The calls that were seen, by whatever tells them."""

    def __init__(self, seen: Iterable[Reading]) -> None:
        self._marks: set[str] = set()
        self._ids: set[str] = set()
        self._words: dict[str, list[list[Json]]] = {}
        for reading in seen:
            self.add(reading)

    def add(self, reading: Reading) -> Reading:
        """One more, with an id of its own: a place in a log may be that of another by now."""
        before, words = _words(reading)
        call_id = reading.raw.request_id
        if call_id in self._ids:
            text = packed([before, words])
            call_id = f"{call_id}.{hashlib.sha256(text).hexdigest()[:8]}"
            reading = replace(reading, raw=replace(reading.raw, request_id=call_id))
        self._ids.add(call_id)
        self._marks.update(_marks(reading))
        self._words.setdefault(before, []).append(words)
        return reading

    def has(self, reading: Reading) -> bool:
        """Whether it is one of them."""
        return not self._marks.isdisjoint(_marks(reading))

    def begins_one(self, reading: Reading) -> bool:
        """Whether it is one of them that was not told to its end."""
        before, words = _words(reading)
        longer = (others for others in self._words.get(before, ()) if len(others) > len(words))
        return any(words == others[: len(words)] for others in longer)


def _marks(reading: Reading) -> Iterator[str]:
    """What tells a call from all others: ids, and what was said with all that was said before."""
    answer = reading.turn.answer
    if answer.id:
        yield f"id {answer.id}"
    for part in answer.parts:
        if isinstance(part, ToolCall) and part.id:
            yield f"tool {part.id}"
    before, words = _words(reading)
    if words:
        yield f"words {before} {packed(words).decode('utf-8', 'replace')}"


def _words(reading: Reading) -> tuple[str, list[Json]]:
    """In which thread and upon what it was said, and what."""
    messages = reversed(reading.turn.asked.messages)
    asked = next((m for m in messages if m.role != "assistant"), None)
    before = packed(said_in(asked.parts) if asked is not None else []).decode("utf-8", "replace")
    return f"{reading.raw.thread_id} {before}", said_in(reading.turn.answer.parts)


def _calls(raw: RawTurn, agent: str) -> Iterator[Reading]:
    records = [record for record in raw.records if isinstance(record, dict)]
    is_codex = any(record.get("type") in ("session_meta", "response_item") for record in records)
    yield from (_codex if is_codex else _claude)(raw, agent, records)


def _reading(
    raw: RawTurn, thread: str, talk: _Talk, turn: Turn, call_id: str, at: tuple[int, int] | None
) -> Reading:
    started, ended = at or (None, None)
    return Reading(
        replace(
            raw,
            # An agent that resumes a session may copy its lines into the log of the new one.
            request_id=f"{call_id}.{session_id_of(raw.envelope)[:8]}",
            thread_id=thread,
            records=None,
            reduced=None,
            started_at=started if started is not None else talk.at,
            ended_at=ended,
        ),
        turn,
    )


def _messages(provider: Provider, request: dict[str, Json]) -> tuple[Message, ...]:
    return provider.asked(request, "", no_memo).messages


# --- Claude Code ------------------------------------------------------------------------------


def _claude(raw: RawTurn, agent: str, records: Sequence[dict[str, Json]]) -> Iterator[Reading]:
    talks: dict[str, _Talk] = {}
    since = next(filter(None, (nanoseconds(record.get("timestamp")) for record in records)), None)
    is_copied = True  # what was copied stands first; a clock that was set back later copies nothing
    for record in records:
        thread = _thread_of(record, agent)
        talk = talks.setdefault(thread, _Talk())
        message = record.get("message")
        kind = word(record.get("type"))
        if kind == "system" and record.get("subtype") == "compact_boundary":
            yield from _told_by_claude(raw, thread, talk)
            talk.history.clear()
        if not isinstance(message, dict) or kind not in ("user", "assistant"):
            continue
        at = nanoseconds(record.get("timestamp"))
        is_copied = is_copied and _is_copied(record, at, since)
        if kind == "assistant":
            if talk.group and talk.group[-1].get("id") != message.get("id"):
                yield from _told_by_claude(raw, thread, talk)
            if not talk.group:
                talk.began = talk.at if talk.at is not None else at
            talk.group.append(message)
            talk.ended = at
            talk.copied = is_copied
        else:
            yield from _told_by_claude(raw, thread, talk)
            said = {"role": "user", "content": message.get("content")}
            talk.history += _messages(MESSAGES, {"messages": [said]})
        talk.at = at if at is not None else talk.at
    for thread, talk in talks.items():
        yield from _told_by_claude(raw, thread, talk)


def _is_copied(record: Mapping[str, Json], at: int | None, since: int | None) -> bool:
    """Whether a line stood in the log of another session, which this one forks.

    It says so itself, or is older than the log's first line.
    """
    if isinstance(record.get("forkedFrom"), dict):
        return True
    return at is not None and since is not None and at < since


def _thread_of(record: Mapping[str, Json], agent: str) -> str:
    """The sub-agent that a line is of. Older logs keep theirs among the main one's lines."""
    if agent or not record.get("isSidechain"):
        return agent
    return word(record.get("agentId")) or "sidechain"


def _told_by_claude(raw: RawTurn, thread: str, talk: _Talk) -> Iterator[Reading]:
    """The call whose answer is complete, if one is being told."""
    group, talk.group = talk.group, []
    if not group:
        return
    last = group[-1]
    content = [b for m in group for b in _blocks(m.get("content"))]
    model = word(last.get("model"))
    if model == "<synthetic>":
        return  # words that the agent put in itself
    answered = {**last, "type": "message", "role": "assistant", "content": content}
    answer = MESSAGES.answer(answered)
    asked = Asked(model=model, messages=tuple(talk.history))
    turn = Turn(MESSAGES.name, MESSAGES.api, asked, _named(answer))
    call_id = word(last.get("id")) or f"{thread or 'main'}:{len(talk.history)}"
    if not talk.copied:
        yield _reading(raw, thread, talk, turn, call_id, _times(talk))
    talk.history += _messages(MESSAGES, {"messages": [{"role": "assistant", "content": content}]})


def _blocks(content: Json) -> list[Json]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _times(talk: _Talk) -> tuple[int, int] | None:
    if talk.began is None or talk.ended is None:
        return None
    return min(talk.began, talk.ended), talk.ended


def _named(answer: Answer) -> Answer:
    usage = answer.usage
    return answer if usage is None else replace(answer, usage=replace(usage, model=answer.model))


# --- Codex ------------------------------------------------------------------------------------


def _codex(raw: RawTurn, agent: str, records: Sequence[dict[str, Json]]) -> Iterator[Reading]:
    talk, usage = _Talk(), None
    number = 0
    for record in records:
        payload = record.get("payload")
        if not isinstance(payload, dict):
            continue
        at = nanoseconds(record.get("timestamp"))
        kind, what = word(record.get("type")), word(payload.get("type"))
        if kind == "turn_context":
            talk.model = word(payload.get("model")) or talk.model
        elif kind == "compacted":
            yield from _told_by_codex(raw, agent, talk, None, number)
            talk.history.clear()
        elif kind == "event_msg" and what == "token_count" and talk.group:
            usage = _codex_usage(payload.get("info"))
            if usage is not None:
                number += 1
                yield from _told_by_codex(raw, agent, talk, usage, number)
        elif kind == "response_item" and role_of(payload) != SETTING_UP:
            if role_of(payload) != "assistant":
                if talk.group:
                    number += 1
                    yield from _told_by_codex(raw, agent, talk, None, number)
                talk.history += _messages(RESPONSES, {"input": [payload]})
            else:
                if not talk.group:
                    talk.began = talk.at if talk.at is not None else at
                talk.group.append(payload)
                talk.ended = at
            talk.at = at if at is not None else talk.at
    if talk.group:
        yield from _told_by_codex(raw, agent, talk, None, number + 1)


def _codex_usage(info: Json) -> dict[str, Json] | None:
    last = info.get("last_token_usage") if isinstance(info, dict) else None
    if not isinstance(last, dict):
        return None
    return {
        "input_tokens": last.get("input_tokens"),
        "input_tokens_details": {"cached_tokens": last.get("cached_input_tokens")},
        "output_tokens": last.get("output_tokens"),
        "output_tokens_details": {"reasoning_tokens": last.get("reasoning_output_tokens")},
        "total_tokens": last.get("total_tokens"),
    }


def _told_by_codex(
    raw: RawTurn, agent: str, talk: _Talk, usage: dict[str, Json] | None, number: int
) -> Iterator[Reading]:
    group, talk.group = talk.group, []
    if not group:
        return
    body: dict[str, Json] = {
        "object": "response",
        "status": "completed",
        "model": talk.model,
        "output": group,
    }
    answer = RESPONSES.answer(body | ({"usage": usage} if usage else {}))
    asked = Asked(model=talk.model, messages=tuple(talk.history))
    turn = Turn(RESPONSES.name, RESPONSES.api, asked, _named(answer))
    call_id = f"{agent or 'main'}:{number}"
    yield _reading(raw, agent, talk, turn, call_id, _times(talk))
    talk.history += [choice.message for choice in answer.choices[:1]]
