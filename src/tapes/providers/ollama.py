"""Ollama's own API, `/api/chat` and `/api/generate`: requests, answers, and streams of lines.

Rule 1: an answer streams unless the request says otherwise.
Rule 2: a stream is whole after the line that says `done`.

Knows nothing of other shapes or of transports.  Pure.
"""

from datetime import datetime

from tapes.jsontext import Json
from tapes.providers.ending import Course, Ending
from tapes.providers.turn import (
    Answer,
    Asked,
    Failure,
    Media,
    Memo,
    Message,
    Part,
    Parts,
    Provider,
    Reasoning,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    arguments_of,
    dicts,
    failure_of,
    said,
    settings_of,
    value_of,
    word,
)
from tapes.providers.usage import Usage, usage_of_value
from tapes.wire import Frame

_SETTINGS = {
    "num_predict": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "stop": "stop_sequences",
    "seed": "seed",
}


def _claims(path: str) -> bool:
    return path.endswith(("/api/chat", "/api/generate"))


def _owns(_event: str, value: dict[str, Json]) -> bool:
    return isinstance(value.get("done"), bool) and ("message" in value or "response" in value)


# --- requests ---------------------------------------------------------------------------------


def _asked(body: dict[str, Json], _path: str, remember: Memo) -> Asked:
    options = body.get("options")
    settings = settings_of(options if isinstance(options, dict) else {}, _SETTINGS)
    if body.get("think") is not None:
        settings["reasoning"] = body["think"]
    if body.get("format"):
        settings["output_type"] = "json"
    generate = "messages" not in body
    messages = [_prompt(body)] if generate and body.get("prompt") else dicts(body.get("messages"))
    return Asked(
        model=word(body.get("model")),
        messages=tuple(remember(raw, _message) for raw in messages),
        system=word(body.get("system")),
        tools=tuple(_tool(tool) for tool in dicts(body.get("tools"))),
        settings=settings,
        stream=body.get("stream") is not False,
        operation="text_completion" if generate else "chat",
    )


def _prompt(body: dict[str, Json]) -> dict[str, Json]:
    return {"role": "user", "content": body.get("prompt"), "images": body.get("images")}


def _tool(tool: dict[str, Json]) -> Tool:
    function = tool.get("function")
    return Tool(word(function.get("name")) if isinstance(function, dict) else "", tool)


def _message(raw: Json) -> Message:
    role = word(raw.get("role"))
    if role == "tool":
        name = word(raw.get("tool_name") or raw.get("name"))
        result = ToolResult(word(raw.get("tool_call_id")), word(raw.get("content")), name=name)
        return Message(role, (result,))
    return Message(role, _parts(raw))


def _parts(message: dict[str, Json]) -> Parts:
    parts: list[Part] = []
    if word(message.get("thinking")):
        parts.append(Reasoning(message["thinking"]))
    if word(message.get("content")):
        parts.append(Text(message["content"]))
    images = message.get("images")
    if isinstance(images, list):
        parts.extend(Media("image", data=image) for image in images if isinstance(image, str))
    for call in dicts(message.get("tool_calls")):
        function = call["function"] if isinstance(call.get("function"), dict) else {}
        arguments, raw = arguments_of(function.get("arguments"))
        parts.append(ToolCall(word(call.get("id")), word(function.get("name")), arguments, raw))
    return tuple(parts)


# --- answers ----------------------------------------------------------------------------------


def _answer(body: dict[str, Json]) -> Answer:
    ending = Ending.OPEN if body.get("done") is False else Ending.SAID
    return _answer_of(body, ending, usage_of_value(body), failure_of(body), ())


def _answer_of(
    body: dict[str, Json],
    ending: Ending,
    usage: Usage | None,
    failure: Failure | None,
    problems: tuple[str, ...],
) -> Answer:
    message = body.get("message")
    if not isinstance(message, dict):
        message = {"content": body.get("response"), "thinking": body.get("thinking")}
    names = ("context", "load_duration", "prompt_eval_duration", "eval_duration", "total_duration")
    done = ending is Ending.SAID and failure is None
    reason = word(body.get("done_reason")) or ("stop" if done else None)
    return Answer(
        choices=(said(_parts(message), reason, word(message.get("role")) or "assistant"),),
        ending=ending,
        model=word(body.get("model")),
        created=_seconds(word(body.get("created_at"))),
        usage=usage,
        failure=failure,
        extra={name: body[name] for name in names if body.get(name)},
        problems=problems,
    )


def _seconds(text: str) -> int | None:
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except ValueError:
        return None


class OllamaReducer:
    """Lines of one streamed answer → the answer."""

    def __init__(self) -> None:
        self._body: dict[str, Json] = {}
        self._texts: dict[str, list[str]] = {}
        self._lists: dict[str, list[Json]] = {}
        self._role = ""
        self._failure: Failure | None = None
        self._problems: list[str] = []
        self._course = Course()

    def feed(self, frame: Frame) -> None:
        """One more line."""
        value = value_of(frame)
        if value is None:
            self._problems.append(f"line is no JSON: {frame.text[:80]!r}")
            return
        self._course.take_value(value)
        failure = failure_of(value)
        if failure is not None:
            self._failure = failure
            return
        message = value.get("message")
        if not isinstance(message, dict):
            message = {"content": value.get("response"), "thinking": value.get("thinking")}
        self._role = word(message.get("role")) or self._role
        for name in ("content", "thinking"):
            if word(message.get(name)):
                self._texts.setdefault(name, []).append(message[name])
        for name in ("tool_calls", "images"):
            if isinstance(message.get(name), list):
                self._lists.setdefault(name, []).extend(message[name])
        self._body |= {
            name: member
            for name, member in value.items()
            if name not in ("message", "response", "thinking")
        }

    def finish(self) -> Answer:
        """The answer so far."""
        message: dict[str, Json] = {name: "".join(t) for name, t in self._texts.items()}
        message |= self._lists | {"role": self._role}
        body = self._body | {"message": message}
        return _answer_of(
            body,
            self._course.ending,
            usage_of_value(body),
            self._failure,
            tuple(self._problems),
        )


OLLAMA = Provider("ollama", "ollama", _claims, _owns, _asked, _answer, OllamaReducer)
