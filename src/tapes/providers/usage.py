"""Tokens of one answer, whichever provider counted them.

Rule: input includes what came from the cache; cached and reasoning tokens are parts, never
addends. What a provider does not report is None, not zero.

Knows nothing of prices or tapes.  Pure.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tapes.jsontext import Json, read
from tapes.wire import frames_of


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one answer. `input` holds `cache_read` and `cache_write`, `output` `reasoning`."""

    input: int | None = None
    output: int | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None
    model: str | None = None

    @property
    def total(self) -> int:
        """Input and output together; what is unknown adds nothing."""
        return (self.input or 0) + (self.output or 0)


def usage_of(content_type: str | None, body: bytes) -> Usage | None:
    """The usage in a whole, decoded body, or None where there is none."""
    frames = frames_of(content_type, body)
    texts = [body] if frames is None else [frame.text.encode() for frame in frames]
    return _usage(_objects(texts))


def usage_of_value(value: Json) -> Usage | None:
    """The usage in an answer that is a plain JSON value."""
    return _usage([value]) if isinstance(value, dict) else None


# What an object that reports usage has in its text.
_HINTS = (b'"usage', b"eval_count")


def _objects(texts: Iterable[bytes]) -> Iterator[dict[str, Json]]:
    for text in texts:
        if not any(hint in text for hint in _HINTS):
            continue
        try:
            value = read(text)
        except ValueError:
            continue
        # Gemini without `alt=sse` streams one list of objects.
        yield from (
            v for v in (value if isinstance(value, list) else [value]) if isinstance(v, dict)
        )


def _usage(values: Iterable[dict[str, Json]]) -> Usage | None:
    """The usage that objects report together: later counts replace earlier ones."""
    counts: dict[str, Json] = {}
    model: str | None = None
    for value in values:
        reported, said_model = _reported(value)
        counts |= {name: count for name, count in reported.items() if count is not None}
        model = said_model or model
    for names, meaning in _MEANINGS:
        if not names.isdisjoint(counts):
            return meaning(counts, model)
    return None


def _reported(value: dict[str, Json]) -> tuple[dict[str, Json], str | None]:
    """The counts of one object, as its provider names them, and the model that it names."""
    for nested in ("message", "response"):
        inner = value.get(nested)
        if isinstance(inner, dict) and isinstance(inner.get("usage"), dict):
            return _reported(inner)
    model = value.get("model") or value.get("modelVersion")
    model = model if isinstance(model, str) else None
    for name in ("usage", "usageMetadata"):
        if isinstance(value.get(name), dict):
            return value[name], model
    return {n: value[n] for n in ("prompt_eval_count", "eval_count") if n in value}, model


def _chat(counts: Json, model: str | None) -> Usage:
    return Usage(
        input=_count(counts, "prompt_tokens"),
        output=_count(counts, "completion_tokens"),
        cache_read=_count(counts.get("prompt_tokens_details"), "cached_tokens"),
        reasoning=_count(counts.get("completion_tokens_details"), "reasoning_tokens"),
        model=model,
    )


def _named(counts: Json, model: str | None) -> Usage:
    """`input_tokens`: Anthropic counts the cache beside it, OpenAI responses inside it."""
    read_tokens = _count(counts, "cache_read_input_tokens")
    written = _count(counts, "cache_creation_input_tokens")
    plain = _count(counts, "input_tokens")
    beside = (read_tokens or 0) + (written or 0)
    cached = _count(counts.get("input_tokens_details"), "cached_tokens")
    return Usage(
        input=None if plain is None else plain + beside,
        output=_count(counts, "output_tokens"),
        cache_read=cached if read_tokens is None else read_tokens,
        cache_write=written,
        reasoning=_count(counts.get("output_tokens_details"), "reasoning_tokens"),
        model=model,
    )


def _gemini(counts: Json, model: str | None) -> Usage:
    thoughts = _count(counts, "thoughtsTokenCount")
    return Usage(
        input=_sum(_count(counts, "promptTokenCount"), _count(counts, "toolUsePromptTokenCount")),
        output=_sum(_count(counts, "candidatesTokenCount"), thoughts),
        cache_read=_count(counts, "cachedContentTokenCount"),
        reasoning=thoughts,
        model=model,
    )


def _ollama(counts: Json, model: str | None) -> Usage:
    return Usage(_count(counts, "prompt_eval_count"), _count(counts, "eval_count"), model=model)


# Which counts a provider names, and what they mean; the first that is there decides.
_MEANINGS = (
    (frozenset({"prompt_tokens", "completion_tokens"}), _chat),
    (frozenset({"input_tokens", "output_tokens"}), _named),
    (frozenset({"promptTokenCount", "candidatesTokenCount"}), _gemini),
    (frozenset({"prompt_eval_count", "eval_count"}), _ollama),
)


def _count(counts: Json, name: str) -> int | None:
    count = counts.get(name) if isinstance(counts, dict) else None
    return count if isinstance(count, int) and not isinstance(count, bool) else None


def _sum(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None
