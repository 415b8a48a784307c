"""Whether a stream said that it ended.

A transport can close cleanly on an answer that the provider never finished. Each provider says in
its own way that an answer is whole; a stream that is known to say so and did not is no answer.

Rule 1: an error in a stream is no end, whatever follows it.
Rule 2: where several answers come side by side, all of them have to be finished.

Knows nothing of tapes or transports.  Pure.
"""

from enum import Enum

from tapes.jsontext import Json, loose
from tapes.wire import frames_of


class Ending(Enum):
    """How far a stream came."""

    SAID = "said"  # the provider's own last word: nothing can follow
    FINISHED = "finished"  # a finish reason, after which usage may still follow
    OPEN = "open"  # a known kind of stream that did not come to its end, or reported an error
    UNKNOWN = "unknown"  # no stream, or none whose end is known


_LAST_TYPES = frozenset(
    {"message_stop", "response.completed", "response.incomplete", "response.failed",
     "response.cancelled"}
)  # fmt: skip
_OPENING_TYPES = frozenset({"message_start", "response.created", "response.in_progress"})
# Lists of answers that stream side by side, and the reason with which each of them ends.
_SIDE_BY_SIDE = (("choices", "finish_reason"), ("candidates", "finishReason"))


class Watch:
    """Sees the events of a stream and knows how far it came."""

    def __init__(self) -> None:
        self.ending = Ending.UNKNOWN
        self._failed = False
        self._finished: dict[int, bool] = {}

    def see_text(self, text: str, event: str = "") -> None:
        """One more event: its text, and its name where it has one."""
        if text.strip() == "[DONE]":
            self._reach(Ending.SAID)
            return
        try:
            value = loose(text)
        except ValueError:
            return
        if isinstance(value, dict):
            self.see(value, event)

    def see(self, value: dict[str, Json], event: str = "") -> None:
        """One more event, its object read already."""
        kind = value.get("type", event)
        kind = kind if isinstance(kind, str) else ""
        if kind == "error" or value.get("error"):
            self._failed = True
            self._reach(Ending.OPEN)
        elif kind in _LAST_TYPES:
            self._reach(Ending.SAID)
        elif kind in _OPENING_TYPES:
            self._reach(Ending.OPEN)
        elif isinstance(value.get("done"), bool):
            self._reach(Ending.SAID if value["done"] else Ending.OPEN)
        else:
            self._see_side_by_side(value)

    def _see_side_by_side(self, value: dict[str, Json]) -> None:
        for list_name, reason_name in _SIDE_BY_SIDE:
            items = value.get(list_name)
            for item in items if isinstance(items, list) else ():
                if isinstance(item, dict):
                    index = item.get("index")
                    place = index if isinstance(index, int) else 0
                    done = bool(item.get(reason_name)) or self._finished.get(place, False)
                    self._finished[place] = done
        if self._finished:
            finished = all(self._finished.values())
            self._reach(Ending.FINISHED if finished else Ending.OPEN)
        elif isinstance(value.get("promptFeedback"), dict):
            self._reach(Ending.FINISHED)  # a prompt that was blocked gets no candidate

    def _reach(self, ending: Ending) -> None:
        if self._failed:
            self.ending = Ending.OPEN
        elif self.ending is not Ending.SAID:
            self.ending = ending


def ending_of(content_type: str | None, body: bytes) -> Ending:
    """How far the stream in a whole, decoded body came."""
    frames = frames_of(content_type, body)
    if frames is None:
        return Ending.UNKNOWN
    watch = Watch()
    for frame in frames:
        watch.see_text(frame.text, frame.event)
    return watch.ending
