"""What one model call means, whoever answers it: what was asked, and what came back.

Rule 1: what a provider did not say is None or empty, never guessed.
Rule 2: what is not understood is kept as it came (`Other`, `extra`), never dropped.
Rule 3: a part is the same whether it was streamed, sent in one body, or sent again as history.
Rule 4: a reducer never raises; what it could not read is a problem of its answer.

Knows nothing of bytes, HTTP or any one provider.  Pure.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from tapes.jsontext import Json
from tapes.loosejson import loose, packed
from tapes.providers.ending import Ending
from tapes.providers.usage import Usage
from tapes.wire import Frame

# --- parts of messages ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Text:
    """Plain text. `extra` holds what the provider adds to it: citations, a signature."""

    text: str
    extra: Json = None


@dataclass(frozen=True, slots=True)
class Reasoning:
    """What the model thought, as far as it is shown, and the provider's signature of it."""

    text: str
    signature: str = ""


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that the model asks for. `raw` is its arguments' text where that is not JSON."""

    id: str
    name: str
    arguments: Json = None
    raw: str | None = None
    server: bool = False  # the provider runs it, not the client
    extra: Json = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gave. `content` is the original where it is more than the text of `output`."""

    id: str
    output: str = ""
    is_error: bool = False
    content: Json = None
    name: str = ""
    kind: str = "tool_result"


@dataclass(frozen=True, slots=True)
class Media:
    """An image, a sound, a document: by URL, by the provider's file id, or as base64."""

    kind: str
    media_type: str = ""
    url: str = ""
    data: str = ""
    file_id: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """The model's words for not answering."""

    text: str


@dataclass(frozen=True, slots=True)
class Other:
    """A part of a kind that is not known here, as it came."""

    kind: str
    value: Json = None


Part = Text | Reasoning | ToolCall | ToolResult | Media | Refusal | Other
Parts = tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """One message. Roles are user, assistant, tool, system and developer, or as they came."""

    role: str
    parts: Parts = ()


def text_of(parts: Iterable[Part], between: str = "\n") -> str:
    """The text parts together."""
    return between.join(part.text for part in parts if isinstance(part, Text))


# --- what was asked ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model may call: its name, and its definition as it came."""

    name: str
    definition: Json = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A request. `settings` has neutral names: max_tokens, temperature, tool_choice and so on."""

    model: str = ""
    messages: tuple[Message, ...] = ()
    system: str = ""
    tools: tuple[Tool, ...] = ()
    settings: Mapping[str, Json] = field(default_factory=dict)
    stream: bool = False
    previous_id: str = ""  # the answer that this request goes on from
    operation: str = "chat"

    @property
    def instructions(self) -> str:
        """The system prompt, wherever the provider wants it."""
        leading = []
        for message in self.messages:
            if message.role not in SYSTEM_ROLES:
                break
            leading.append(text_of(message.parts))
        return "\n".join(text for text in (self.system, *leading) if text)


SYSTEM_ROLES = ("system", "developer")

# Neutral names of settings; a provider's table says where it keeps them.
SETTINGS = (
    "max_tokens", "temperature", "top_p", "top_k", "frequency_penalty", "presence_penalty",
    "stop_sequences", "seed", "choices", "output_type", "reasoning", "tool_choice", "service_tier",
)  # fmt: skip


def settings_of(places: Mapping[str, Json], names: Mapping[str, str]) -> dict[str, Json]:
    """The settings that are given, under their neutral names."""
    found = {neutral: places[own] for own, neutral in names.items() if own in places}
    return {neutral: value for neutral, value in found.items() if value is not None}


Memo = Callable[[Json, Callable[[Json], Message]], Message]


def no_memo(raw: Json, build: Callable[[Json], Message]) -> Message:
    """Every message is read anew."""
    return build(raw)


def memo() -> Memo:
    """Remembers messages by their text: histories are sent again and again."""
    known: dict[bytes, Message] = {}

    def remembered(raw: Json, build: Callable[[Json], Message]) -> Message:
        key = packed(raw)
        message = known.get(key)
        if message is None:
            message = known[key] = build(raw)
        return message

    return remembered


# --- what came back ---------------------------------------------------------------------------


class AnswerState(StrEnum):
    """What became of a call."""

    COMPLETE = "complete"
    TRUNCATED = "truncated"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why there is no answer, or not all of it: the provider's code, or one of our own."""

    code: str
    message: str = ""
    status: int | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the answers. `finish_reason` is the provider's word, None while it said none."""

    message: Message
    finish_reason: str | None = None

    @property
    def parts(self) -> Parts:
        """What it says."""
        return self.message.parts


def said(parts: Parts, finish_reason: str | None = None, role: str = "assistant") -> Choice:
    """The choice that says these parts."""
    return Choice(Message(role, parts), finish_reason)


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer, or as much of it as came."""

    choices: tuple[Choice, ...] = ()
    ending: Ending = Ending.OPEN
    model: str = ""
    id: str = ""
    created: int | None = None  # seconds since 1970, by the provider's clock
    usage: Usage | None = None
    failure: Failure | None = None
    extra: Mapping[str, Json] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def state(self) -> AnswerState:
        """Complete where the provider came to its end, else cut short or failed."""
        if self.failure is not None or self.ending is Ending.FAILED:
            return AnswerState.ERROR
        if self.ending in (Ending.SAID, Ending.FINISHED):
            return AnswerState.COMPLETE
        return AnswerState.TRUNCATED

    @property
    def parts(self) -> Parts:
        """The parts of the first choice."""
        return self.choices[0].parts if self.choices else ()

    @property
    def finish_reason(self) -> str | None:
        """The finish reason of the first choice."""
        return self.choices[0].finish_reason if self.choices else None


@dataclass(frozen=True, slots=True)
class Turn:
    """One model call. `api` names the shape of its bodies: messages, chat, responses, …"""

    provider: str
    api: str
    asked: Asked
    answer: Answer

    @property
    def state(self) -> AnswerState:
        """What became of it."""
        return self.answer.state

    @property
    def model(self) -> str:
        """The model that answered, else the one that was asked."""
        return self.answer.model or self.asked.model


# --- providers --------------------------------------------------------------------------------


class Reducer(Protocol):
    """Frames of a stream → an answer. The same frames give the same answer, cut as they may be."""

    def feed(self, frame: Frame) -> None:
        """One more frame. Never raises."""
        ...

    def finish(self) -> Answer:
        """The answer so far; its ending says whether the provider had come to its end."""
        ...


@dataclass(frozen=True, slots=True)
class Provider:
    """What is known of one shape of bodies. It knows no other, and no transport."""

    name: str
    api: str
    claims: Callable[[str], bool]  # whether a path, without query, is one of its model calls
    owns: Callable[[str, dict[str, Json]], bool]  # whether an answer or event is of its shape
    asked: Callable[[dict[str, Json], str, Memo], Asked]  # the request; its path names the model
    answer: Callable[[dict[str, Json]], Answer]  # an answer in one body
    reducer: Callable[[], Reducer]


def value_of(frame: Frame) -> dict[str, Json] | None:
    """The object in a frame, or None where it is none."""
    try:
        value = loose(frame.text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def failure_of(body: Json, status: int | None = None) -> Failure | None:
    """The failure that a body reports, whichever provider's way, or None."""
    while isinstance(body, list) and body:
        body = body[0]
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        codes = (error.get("code"), error.get("status"), error.get("type"))
        named = next((code for code in codes if code and isinstance(code, str)), None)
        number = next((code for code in codes if isinstance(code, int)), status)
        message = error.get("message")
        return Failure(
            named or str(number or "error"), message if isinstance(message, str) else "", status
        )
    if error and isinstance(error, str):
        return Failure(str(status or "error"), error, status)
    return None


# --- what all shapes share --------------------------------------------------------------------


def dicts(value: Json) -> list[dict[str, Json]]:
    """The objects of a list; nothing where it is no list."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def word(value: Json) -> str:
    """The value where it is text, else ""."""
    return value if isinstance(value, str) else ""


def whole(value: Json) -> int | None:
    """The value where it is a number, as a whole one; else None."""
    if type(value) is int:
        return value
    return int(value) if isinstance(value, float) and math.isfinite(value) else None


# The first second that no calendar has, in Unix time.
_NO_DAY = 253_402_300_800


def second(value: Json) -> int | None:
    """The value where it is a time in seconds since 1970; None for what is no day that there is."""
    number = whole(value)
    return number if number is not None and 0 <= number < _NO_DAY else None


def arguments_of(text: Json) -> tuple[Json, str | None]:
    """The arguments of a tool call and, where their text is no JSON, that text."""
    if not isinstance(text, str):
        return text or {}, None
    if not text.strip():
        return {}, None
    try:
        value = loose(text)
    except ValueError:
        return None, text
    # A lone string would look like arguments that are no JSON.
    return (None, text) if isinstance(value, str) else (value or {}, None)


def result_text(content: Json) -> tuple[str, Json]:
    """The text of a tool's result and, where that is not all of it, the original."""
    if content is None or isinstance(content, str):
        return content or "", None
    if not isinstance(content, list):
        return packed(content).decode("utf-8", "replace"), content
    texts = [
        item if isinstance(item, str) else word(item.get("text"))
        for item in content
        if isinstance(item, str | dict)
    ]
    plain = all(
        isinstance(item, str)
        or (isinstance(item, dict) and item.get("type") in ("text", "input_text", "output_text"))
        for item in content
    )
    return "\n".join(text for text in texts if text), None if plain else content
