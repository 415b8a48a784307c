"""Whether a stream said that it ended.

A transport can close cleanly on an answer that the provider never finished. Each provider says in
its own way that an answer is whole; a stream that is known to say so and did not is no answer.

Knows nothing of tapes or transports.  Pure.
"""

from enum import Enum

from tapes.jsontext import Json, read
from tapes.wire import Frame, frames_of


class Ending(Enum):
    """How far a stream came."""

    SAID = "said"  # the provider's own last word: nothing can follow
    FINISHED = "finished"  # a finish reason, after which usage may still follow
    OPEN = "open"  # a known kind of stream that did not come to its end, or reported an error
    UNKNOWN = "unknown"  # no stream, or none whose end is known


_RESPONSES_END = {
    "response.completed",
    "response.incomplete",
    "response.failed",
    "response.cancelled",
}
# The type of an event that a known kind of stream is made of, and how that event leaves it.
_EVENT_TYPES = {"message_stop": Ending.SAID, "error": Ending.OPEN} | dict.fromkeys(
    _RESPONSES_END, Ending.SAID
)
_OPENING_TYPES = ("message_start", "response.created", "response.in_progress")


def ending_of(content_type: str | None, body: bytes) -> Ending:
    """How far the stream in a whole, decoded body came."""
    frames = frames_of(content_type, body)
    if frames is None:
        return Ending.UNKNOWN
    ending = Ending.UNKNOWN
    for frame in frames:
        ending = _after(frame, ending)
        if ending is Ending.SAID:
            return ending
    return ending


def _after(frame: Frame, ending: Ending) -> Ending:
    if frame.text.strip() == "[DONE]":
        return Ending.SAID
    try:
        value = read(frame.text.encode())
    except ValueError:
        return ending
    if not isinstance(value, dict):
        return ending
    kind = value.get("type", frame.event)
    if kind in _EVENT_TYPES:
        return _EVENT_TYPES[kind]
    if kind in _OPENING_TYPES or isinstance(value.get("error"), dict):
        return Ending.OPEN
    return _by_reason(value, ending)


def _by_reason(value: Json, ending: Ending) -> Ending:
    """Streams that end with a reason inside an ordinary event: OpenAI chat, Gemini, Ollama."""
    if isinstance(value.get("done"), bool):
        return Ending.SAID if value["done"] else Ending.OPEN
    for list_name, reason_name in (("choices", "finish_reason"), ("candidates", "finishReason")):
        items = value.get(list_name)
        if isinstance(items, list) and items:
            reasons = [item.get(reason_name) for item in items if isinstance(item, dict)]
            if any(reasons):
                return Ending.FINISHED
            return Ending.FINISHED if ending is Ending.FINISHED else Ending.OPEN
    return ending
