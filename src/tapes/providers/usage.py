"""Tokens of one answer, whichever provider counted them.

Rule 1: input includes what came from the cache; cached and reasoning tokens are parts, never
        addends. What a provider does not report is None, not zero.
Rule 2: in a stream later counts replace earlier ones; a later zero undoes nothing, and what a
        later event leaves out stays.
Rule 3: the count of output with which an Anthropic stream opens is a placeholder, not a count.
Rule 4: a count that no model can have reached (or below zero) is not believed: it is unknown.
        Counts that contradict each other stay as they were said, and have no price.

Knows nothing of prices or tapes.  Pure.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tapes.jsontext import Json
from tapes.loosejson import loose
from tapes.wire import frames_of

_MOST = 10**9


def believed(count: int | None) -> int | None:
    """A count of tokens of one answer, where it can be one (rule 4)."""
    return count if count is not None and 0 <= count <= _MOST else None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer. `input` holds `cache_read` and `cache_write`, `output` `reasoning`.

    `cache_write_1h` is the part of `cache_write` that is kept, and paid for, longer.
    """

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    model: str | None = None
    cache_write_1h: int | None = None

    @property
    def total(self) -> int:
        """Input and output together; what is unknown adds nothing."""
        return (self.input or 0) + (self.output or 0)

    @property
    def uncached(self) -> int | None:
        """Input that was neither read from the cache nor written to it.

        None where that is unknown, or where parts of the input are said to be more than all of it.
        """
        if self.input is None:
            return None
        rest = self.input - (self.cache_read or 0) - (self.cache_write or 0)
        return rest if rest >= 0 else None

    @property
    def is_sound(self) -> bool:
        """Whether no part is more than the whole that it is a part of."""
        is_input_sound = self.input is None or self.uncached is not None
        return is_input_sound and (self.cache_write_1h or 0) <= (self.cache_write or 0)


def usage_of(content_type: str | None, body: bytes) -> Usage | None:
    """The usage in a whole, decoded body, or None where there is none."""
    frames = frames_of(content_type, body)
    texts = [body] if frames is None else [frame.text for frame in frames]
    tally = Tally()
    for value in _objects(texts):
        tally.add(value)
    return tally.usage()


def usage_of_value(value: Json) -> Usage | None:
    """The usage in an answer that is a plain JSON value."""
    tally = Tally()
    if isinstance(value, dict):
        tally.add(value)
    return tally.usage()


def _objects(texts: Iterable[bytes | str]) -> Iterator[dict[str, Json]]:
    for text in texts:
        if not _may_report(text):
            continue
        try:
            value = loose(text)
        except ValueError:
            continue
        # Gemini without `alt=sse` streams one list of objects.
        yield from (
            v for v in (value if isinstance(value, list) else [value]) if isinstance(v, dict)
        )


def _may_report(text: bytes | str) -> bool:
    """Whether a text has a name under which usage is reported."""
    if isinstance(text, bytes):
        return b'"usage' in text or b"eval_count" in text
    return '"usage' in text or "eval_count" in text


class Tally:
    """Counts as a stream reports them, event by event."""

    def __init__(self) -> None:
        self._counts: dict[str, Json] = {}
        self._model: str | None = None

    def add(self, value: dict[str, Json]) -> None:
        """A whole answer, or one event of a stream."""
        for nested in ("message", "response"):
            inner = value.get(nested)
            if isinstance(inner, dict) and isinstance(inner.get("usage"), dict):
                opening = value.get("type") == "message_start"
                self._add(inner, inner["usage"], but_not="output_tokens" if opening else "")
                return
        usage = value.get("usage") or value.get("usageMetadata")
        if not isinstance(usage, dict) and isinstance(value.get("x_groq"), dict):
            usage = value["x_groq"].get("usage")
        if isinstance(usage, dict):
            self._add(value, usage)
        elif "eval_count" in value or "prompt_eval_count" in value:
            self._add(value, {name: value.get(name) for name in _OLLAMA})

    def _add(self, value: dict[str, Json], counts: dict[str, Json], but_not: str = "") -> None:
        self._model = _text(value.get("model") or value.get("modelVersion")) or self._model
        for name, count in counts.items():
            if name == but_not or count is None or (count == 0 and self._counts.get(name)):
                continue
            self._counts[name] = count

    def usage(self) -> Usage | None:
        """What was counted so far, or None where nothing was."""
        counts, model = self._counts, self._model
        for names, read in _READERS:
            if not names.isdisjoint(counts):
                return read(counts, model)
        return None


def _openai(usage: Json, model: str | None) -> Usage:
    said, total = _count(usage, "completion_tokens"), _count(usage, "total_tokens")
    asked = _count(usage, "prompt_tokens")
    reasoning = _count(usage.get("completion_tokens_details"), "reasoning_tokens")
    if None not in (said, asked, total) and reasoning:
        # Some count the reasoning beside the completion; their total tells.
        beside = (asked or 0) + (said or 0) + reasoning
        said = (said or 0) + reasoning if total == beside else said
    return Usage(
        input=asked,
        output=said,
        cache_read=_first(
            _count(usage.get("prompt_tokens_details"), "cached_tokens"),
            _count(usage, "prompt_cache_hit_tokens", "cached_tokens"),
        ),
        cache_write=_count(usage.get("prompt_tokens_details"), "cache_write_tokens"),
        reasoning=reasoning,
        model=model,
    )


def _named(usage: Json, model: str | None) -> Usage:
    """`input_tokens`: Anthropic counts the cache beside it, OpenAI responses inside it."""
    read_tokens = _count(usage, "cache_read_input_tokens")
    by_length = usage.get("cache_creation")
    long = _count(by_length, "ephemeral_1h_input_tokens")
    written = _count(usage, "cache_creation_input_tokens")
    if written is None and long is not None:
        written = long + (_count(by_length, "ephemeral_5m_input_tokens") or 0)
    plain = _count(usage, "input_tokens")
    beside = (read_tokens or 0) + (written or 0)
    details = usage.get("output_tokens_details")
    return Usage(
        input=None if plain is None else plain + beside,
        output=_count(usage, "output_tokens"),
        cache_read=_first(read_tokens, _count(usage.get("input_tokens_details"), "cached_tokens")),
        cache_write=written,
        reasoning=_count(details, "reasoning_tokens", "thinking_tokens"),
        model=model,
        cache_write_1h=long,
    )


def _gemini(usage: Json, model: str | None) -> Usage:
    thoughts = _count(usage, "thoughtsTokenCount")
    said = _count(usage, "candidatesTokenCount")
    asked, tools = _count(usage, "promptTokenCount"), _count(usage, "toolUsePromptTokenCount")
    return Usage(
        input=None if asked is None else asked + (tools or 0),
        output=None if said is None and thoughts is None else (said or 0) + (thoughts or 0),
        cache_read=_count(usage, "cachedContentTokenCount"),
        reasoning=thoughts,
        model=model,
    )


def _ollama(usage: Json, model: str | None) -> Usage:
    return Usage(_count(usage, "prompt_eval_count"), _count(usage, "eval_count"), model=model)


_OLLAMA = ("prompt_eval_count", "eval_count")
# The names that tell a way of counting, in the order in which they are looked for.
_READERS = (
    (frozenset({"prompt_tokens", "completion_tokens"}), _openai),
    (frozenset({"input_tokens", "output_tokens"}), _named),
    (frozenset({"promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount"}), _gemini),
    (frozenset(_OLLAMA), _ollama),
)


def _first(*counts: int | None) -> int | None:
    return next((count for count in counts if count is not None), None)


def _count(usage: Json, *names: str) -> int | None:
    if not isinstance(usage, dict):
        return None
    found = (usage.get(name) for name in names)
    return next((n for n in found if type(n) is int and believed(n) is not None), None)


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) else None
