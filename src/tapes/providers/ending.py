"""Whether a stream said that it ended.

A transport can close cleanly on an answer that the provider never finished. Each provider says in
its own way that an answer is whole; a stream that is known to say so and did not is no answer.

Rule 1: an error inside a stream is no answer, whatever follows it.
Rule 2: a stream with several choices is finished when each of them is.
Rule 3: a stream of an unknown kind is whole when its transport says so.
Rule 4: nothing follows a last word or an error.

Knows nothing of tapes or transports.  Pure.
"""

from enum import Enum

from tapes.jsontext import Json
from tapes.loosejson import loose
from tapes.wire import Frame, frames_of


class Ending(Enum):
    """How far a stream came."""

    SAID = "said"  # the provider's own last word: nothing can follow
    FINISHED = "finished"  # a finish reason, after which usage may still follow
    OPEN = "open"  # a known kind of stream that did not come to its end
    FAILED = "failed"  # the provider reported an error in the middle
    UNKNOWN = "unknown"  # no stream, or none whose end is known


# The type of an event that a known kind of stream is made of, and how that event leaves it.
_TYPES = {
    # Anthropic messages
    "message_start": Ending.OPEN,
    "message_stop": Ending.SAID,
    "error": Ending.FAILED,
    # OpenAI responses
    "response.created": Ending.OPEN,
    "response.queued": Ending.OPEN,
    "response.in_progress": Ending.OPEN,
    "response.completed": Ending.SAID,
    "response.incomplete": Ending.SAID,
    "response.failed": Ending.FAILED,
    "response.cancelled": Ending.FAILED,
    # Cohere chat
    "message-start": Ending.OPEN,
    "message-end": Ending.SAID,
}
_CHUNKS = ("chat.completion.chunk", "text_completion")
# Lists of answers inside an ordinary event, and the member of each that says why it ended.
_REASONS = (("choices", "finish_reason"), ("candidates", "finishReason"))


def ending_of(content_type: str | None, body: bytes, *, was_asked_for: bool = False) -> Ending:
    """How far the stream in a whole, decoded body came.

    `was_asked_for`: the request asked for a stream, so an answer without one event is none.
    """
    if _is_plainly_said(content_type, body):
        return Ending.SAID
    # A last word needs no blank line behind it to have been said.
    frames = frames_of(content_type, body + b"\n\n")
    if frames is None:
        return Ending.UNKNOWN
    if not frames and was_asked_for:
        return Ending.OPEN
    return _course_of(frames)


# How an error is spelled, in the name of an event or in JSON; there it may hide in escapes. And
# what is no part of an event at the begin of a stream, but is one anywhere else.
_OF_ERRORS = (b"error", b"response.failed", b"response.cancelled", b"\\u00", b"\xef\xbb\xbf")
_BETWEEN = {"text/event-stream": b"\n\n", "application/x-ndjson": b"\n"}


def _is_plainly_said(content_type: str | None, body: bytes) -> bool:
    """Whether the last event is a last word and none can be an error: then one is read, not all.

    False may also mean: read them all.
    """
    media = (content_type or "").partition(";")[0]
    between = _BETWEEN.get(media)
    if between is None or any(word in body for word in _OF_ERRORS):
        return False
    _, found, last = body.rstrip(b"\n").rpartition(between)
    return bool(found) and _course_of(frames_of(media, last + b"\n\n") or []) is Ending.SAID


def _course_of(frames: list[Frame]) -> Ending:
    course = Course()
    for frame in frames:
        course.take(frame)
        if course.is_over:
            break
    return course.ending


class Course:
    """How far a stream has come, event after event."""

    def __init__(self) -> None:
        self.ending = Ending.UNKNOWN
        self._open: set[object] = set()  # choices that have begun and not ended

    @property
    def is_over(self) -> bool:
        """Whether nothing can follow."""
        return self.ending in (Ending.SAID, Ending.FAILED)

    def take(self, frame: Frame) -> None:
        """One more event."""
        if frame.text.strip() == "[DONE]":
            if not self.is_over:
                self.ending = Ending.SAID
            return
        try:
            value = loose(frame.text)
        except ValueError:
            return
        if isinstance(value, dict):
            self.take_value(value, frame.event)

    def take_value(self, value: dict[str, Json], event: str = "") -> None:
        """One more event, its object read already."""
        kind = value.get("type") or event
        if self.is_over:
            return
        if isinstance(kind, str) and kind in _TYPES:
            self.ending = _TYPES[kind]
        elif value.get("error"):
            self.ending = Ending.FAILED
        else:
            self._take_answer(value)

    def _take_answer(self, value: dict[str, Json]) -> None:
        if isinstance(value.get("done"), bool) and "model" in value:  # Ollama
            self.ending = Ending.SAID if value["done"] else Ending.OPEN
        if value.get("object") in _CHUNKS and self.ending is Ending.UNKNOWN:
            self.ending = Ending.OPEN
        for name, reason in _REASONS:
            answers = value.get(name)
            if isinstance(answers, list):
                self._take_choices([a for a in answers if isinstance(a, dict)], reason)
        if isinstance(value.get("promptFeedback"), dict) and self.ending is Ending.UNKNOWN:
            self.ending = Ending.FINISHED  # a prompt that Gemini blocks gets no candidate

    def _take_choices(self, choices: list[dict[str, Json]], reason: str) -> None:
        for choice in choices:
            index = str(choice.get("index", 0))
            if choice.get(reason):
                self._open.discard(index)
            else:
                self._open.add(index)
        if choices:
            self.ending = Ending.OPEN if self._open else Ending.FINISHED
