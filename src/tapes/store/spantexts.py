"""What a span and a session say in words, and where: for finding them.

Knows nothing of terms or databases.  Pure.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tapes.jsontext import Json
from tapes.rows import Session, Span, SpanKind

# Members that hold media or signatures, no words.
_WORDLESS = frozenset(
    {"image_base64", "data", "thinking_signature", "signature", "encrypted_content", "type"}
)
_MEDIA = re.compile(r"data:[^,\s]{0,200};base64,")
_DEPTH = 40


class Said(NamedTuple):
    """A text, where it stands, and whether a person asked it."""

    where: str
    text: str
    is_prompt: bool = False


def said_by(span: Span) -> Iterator[Said]:
    """The texts of a span."""
    if span.kind is SpanKind.LLM:
        for text in _texts(span.input):
            yield Said("prompt", text, True)
        for block in span.output:
            where = _ANSWERS.get(str(block.get("type")))
            if where is not None:
                for text in _strings(block):
                    yield Said(where, text)
    elif span.kind is SpanKind.TOOL:
        yield Said("tool", span.name)
        for block in span.input:
            for text in _strings(block.get("tool_input") or block.get("content")):
                yield Said("arguments", text)
        for block in span.output:
            for text in _strings([block.get("tool_output"), block.get("content")]):
                yield Said("result", text)
    elif span.kind is not SpanKind.AGENT:
        for text in _texts(span.input):
            yield Said("event", text)
        for text in _texts(span.output):
            yield Said("event", text)
    if span.error_type:
        yield Said("error", span.error_type)


# What a model asks tools for is said by their own spans.
_ANSWERS = {"text": "answer", "thinking": "thinking", "refusal": "answer"}


def _texts(blocks: Iterable[Mapping[str, Json]]) -> Iterator[str]:
    for block in blocks:
        yield from _strings(block)


def _strings(value: Json, depth: int = 0) -> Iterator[str]:
    """All texts and numbers in a value, media left out."""
    if isinstance(value, str):
        if value and not _MEDIA.match(value):
            yield value
    elif isinstance(value, dict):
        for name, member in value.items():
            if name not in _WORDLESS and depth < _DEPTH:
                yield from _strings(member, depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            if depth < _DEPTH:
                yield from _strings(item, depth + 1)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def said_of(session: Session, display_name: str, tags: Iterable[str]) -> Iterator[Said]:
    """The texts by which a session is known; those that name it are prompts."""
    for text in (display_name, session.derived_title, session.name, session.preview):
        if text:
            yield Said("title", text, True)
    for where, text in (
        ("folder", session.cwd),
        ("agent", session.agent_name),
        ("harness", session.harness_id),
        *(("tag", tag) for tag in tags),
    ):
        if text:
            yield Said(where, text)
