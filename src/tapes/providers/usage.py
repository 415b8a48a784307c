"""Tokens of one answer, whichever provider counted them.

Rule: input includes what came from the cache; cached and reasoning tokens are parts, never
addends. What a provider does not report is None, not zero.

Knows nothing of prices or tapes.  Pure.
"""

from collections.abc import Iterable
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
    usage = None
    for value in _objects(texts):
        usage = _merged(usage, _reported(value))
    return usage


def usage_of_value(value: Json) -> Usage | None:
    """The usage in an answer that is a plain JSON value."""
    return _reported(value) if isinstance(value, dict) else None


def _objects(texts: Iterable[bytes]) -> Iterable[dict[str, Json]]:
    for text in texts:
        if b"{" not in text:
            continue
        try:
            value = read(text)
        except ValueError:
            continue
        # Gemini without `alt=sse` streams one list of objects.
        yield from (
            v for v in (value if isinstance(value, list) else [value]) if isinstance(v, dict)
        )


def _merged(old: Usage | None, new: Usage | None) -> Usage | None:
    """Later counts replace earlier ones; what a later event leaves out stays."""
    if old is None or new is None:
        return new or old
    parts = {name: getattr(new, name) for name in Usage.__slots__}
    return Usage(**{k: getattr(old, k) if v is None else v for k, v in parts.items()})


def _reported(value: dict[str, Json]) -> Usage | None:
    """The usage that one object reports: a whole answer, or one event of a stream."""
    for nested in ("message", "response"):
        inner = value.get(nested)
        if isinstance(inner, dict) and isinstance(inner.get("usage"), dict):
            return _reported(inner)
    model = _text(value.get("model") or value.get("modelVersion"))
    usage = value.get("usage")
    if isinstance(usage, dict):
        return _openai(usage, model) if "input_tokens" not in usage else _named(usage, model)
    if isinstance(value.get("usageMetadata"), dict):
        return _gemini(value["usageMetadata"], model)
    if "eval_count" in value or "prompt_eval_count" in value:
        return Usage(_count(value, "prompt_eval_count"), _count(value, "eval_count"), model=model)
    return None


def _openai(usage: Json, model: str | None) -> Usage | None:
    if "prompt_tokens" not in usage and "output_tokens" not in usage:
        return None
    return Usage(
        input=_count(usage, "prompt_tokens"),
        output=_count(usage, "completion_tokens", "output_tokens"),
        cache_read=_count(usage.get("prompt_tokens_details"), "cached_tokens"),
        reasoning=_count(usage.get("completion_tokens_details"), "reasoning_tokens"),
        model=model,
    )


def _named(usage: Json, model: str | None) -> Usage:
    """`input_tokens`: Anthropic counts the cache beside it, OpenAI responses inside it."""
    read_tokens = _count(usage, "cache_read_input_tokens")
    written = _count(usage, "cache_creation_input_tokens")
    plain = _count(usage, "input_tokens")
    beside = (read_tokens or 0) + (written or 0)
    return Usage(
        input=None if plain is None else plain + beside,
        output=_count(usage, "output_tokens"),
        cache_read=(
            _count(usage.get("input_tokens_details"), "cached_tokens")
            if read_tokens is None
            else read_tokens
        ),
        cache_write=written,
        reasoning=_count(usage.get("output_tokens_details"), "reasoning_tokens"),
        model=model,
    )


def _gemini(usage: Json, model: str | None) -> Usage:
    thoughts = _count(usage, "thoughtsTokenCount")
    said = _count(usage, "candidatesTokenCount")
    return Usage(
        input=_count(usage, "promptTokenCount"),
        output=None if said is None and thoughts is None else (said or 0) + (thoughts or 0),
        cache_read=_count(usage, "cachedContentTokenCount"),
        reasoning=thoughts,
        model=model,
    )


def _count(usage: Json, *names: str) -> int | None:
    if not isinstance(usage, dict):
        return None
    found = (usage.get(name) for name in names)
    return next((n for n in found if isinstance(n, int) and not isinstance(n, bool)), None)


def _text(value: Json) -> str | None:
    return value if isinstance(value, str) else None
