"""The demo's model calls, made through the real openai SDK as any program makes them.

Knows nothing of terminals, and nothing of replay: whoever calls opens the tape around it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from openai import OpenAI

TAPE = Path(__file__).with_name("conversation.jsonl")
MODEL = "gemma-3-270m"
QUESTIONS = (
    "What is a unit test?",
    "Why do tests become flaky?",
    "How can recorded answers help?",
)
TICKET = "Summarize the failing test: test_invoice_total expected 42.00 but got 41.99"
# One other character: nobody recorded this.
OTHER_TICKET = TICKET.replace("41.99", "41.98")
GREETING = "Translate to Japanese and French: good morning, my friend"
_SYSTEM = "You summarise failing tests for a developer in one sentence."

Message = dict[str, str]


@dataclass(frozen=True, slots=True)
class Turn:
    """A question, the answer, and the tokens that the server counted."""

    asked: str
    answered: str
    tokens: int


def client() -> OpenAI:
    """A client of the server that was recorded. There is no such server now, and no key."""
    return OpenAI(base_url="http://localhost:8000/v1", api_key="none", max_retries=0)


def converse(sdk: OpenAI) -> Iterator[Turn]:
    """The conversation, question by question: each request holds all that was said before."""
    said: list[Any] = []
    for question in QUESTIONS:
        said.append({"role": "user", "content": question})
        answer = sdk.chat.completions.create(
            model=MODEL, messages=said, max_tokens=80, temperature=0, seed=7
        )
        text = answer.choices[0].message.content or ""
        said.append({"role": "assistant", "content": text})
        yield Turn(question, text, answer.usage.total_tokens if answer.usage else 0)


def ticket(text: str) -> list[Message]:
    """The messages that ask about a failing test."""
    return [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": text}]


def greeting() -> list[Message]:
    """The messages that ask for a translation."""
    return [{"role": "user", "content": GREETING}]


def stream(sdk: OpenAI, messages: list[Message]) -> Iterator[str]:
    """The text of an answer, piece by piece, as the SDK hands it on."""
    asked: list[Any] = list(messages)
    for chunk in sdk.chat.completions.create(
        model=MODEL, messages=asked, max_tokens=60, temperature=0, seed=7, stream=True
    ):
        for choice in chunk.choices:
            yield choice.delta.content or ""
