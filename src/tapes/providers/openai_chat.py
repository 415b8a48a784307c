"""Chat completions, and the older completions: requests, answers, and streams of chunks.

Rule 1: a stream is put together into the body that it would have been, and read as that.
Rule 2: a stream is whole when it says `[DONE]`, or when every choice has its finish reason.

Many servers speak this dialect; what some of them add (reasoning, content as parts) is read too.
Knows nothing of other shapes or of transports.  Pure.
"""

from tapes.jsontext import Json
from tapes.providers.ending import Course, Ending
from tapes.providers.turn import (
    Answer,
    Asked,
    Choice,
    Failure,
    Media,
    Memo,
    Message,
    Other,
    Part,
    Parts,
    Provider,
    Reasoning,
    Refusal,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    arguments_of,
    dicts,
    failure_of,
    result_text,
    said,
    second,
    settings_of,
    value_of,
    whole,
    word,
)
from tapes.providers.usage import Tally, Usage, usage_of_value
from tapes.wire import Frame

_SETTINGS = {
    "max_tokens": "max_tokens",
    "max_completion_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "stop": "stop_sequences",
    "seed": "seed",
    "n": "choices",
    "reasoning_effort": "reasoning",
    "tool_choice": "tool_choice",
    "service_tier": "service_tier",
}


def _claims(path: str) -> bool:
    return path.endswith(("/chat/completions", "/v1/completions"))


def _owns(_event: str, value: dict[str, Json]) -> bool:
    return isinstance(value.get("choices"), list)


# --- requests ---------------------------------------------------------------------------------


def _asked(body: dict[str, Json], path: str, remember: Memo) -> Asked:
    settings = settings_of(body, _SETTINGS)
    if isinstance(body.get("response_format"), dict):
        settings["output_type"] = body["response_format"].get("type")
    functions = [{"type": "function", "function": f} for f in dicts(body.get("functions"))]
    legacy = "prompt" in body and "messages" not in body
    messages = _prompts(body["prompt"]) if legacy else dicts(body.get("messages"))
    return Asked(
        model=word(body.get("model")) or _deployment(path),
        messages=tuple(remember(raw, _message) for raw in messages),
        tools=tuple(_tool(tool) for tool in (*dicts(body.get("tools")), *functions)),
        settings=settings,
        stream=body.get("stream") is True,
        operation="text_completion" if legacy else "chat",
    )


def _deployment(path: str) -> str:
    """The model where the path names it (`/openai/deployments/NAME/chat/completions`)."""
    _, found, rest = path.partition("/deployments/")
    return rest.partition("/")[0] if found else ""


def _prompts(prompt: Json) -> list[dict[str, Json]]:
    texts = prompt if isinstance(prompt, list) else [prompt]
    return [{"role": "user", "content": text} for text in texts if isinstance(text, str)]


def _tool(tool: dict[str, Json]) -> Tool:
    inner = tool.get(word(tool.get("type")))
    return Tool(word((inner if isinstance(inner, dict) else tool).get("name")), tool)


def _message(raw: Json) -> Message:
    role = word(raw.get("role"))
    if role in ("tool", "function"):
        text, original = result_text(raw.get("content"))
        name = word(raw.get("name"))
        return Message(
            "tool", (ToolResult(word(raw.get("tool_call_id")), text, False, original, name),)
        )
    return Message(role, _parts(raw))


def _parts(message: dict[str, Json]) -> Parts:
    """What a message says, in this order: reasoning, content, refusal, sound, calls."""
    parts: list[Part] = []
    thought = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(thought, str) and thought:
        parts.append(Reasoning(thought, _signature(message)))
    content = message.get("content")
    if isinstance(content, str):
        citations = message.get("annotations") or message.get("citations")
        if content or citations:
            parts.append(Text(content, {"citations": citations} if citations else None))
    else:
        parts.extend(_part(item) for item in dicts(content))
    if isinstance(message.get("refusal"), str) and message["refusal"]:
        parts.append(Refusal(message["refusal"]))
    sound = message.get("audio")
    if isinstance(sound, dict):
        parts.append(Media("audio", data=word(sound.get("data")), file_id=word(sound.get("id"))))
        if sound.get("transcript"):
            parts.append(Text(word(sound["transcript"])))
    parts.extend(_call(call) for call in dicts(message.get("tool_calls")))
    if isinstance(message.get("function_call"), dict):
        parts.append(_call({"function": message["function_call"]}))
    return tuple(parts)


def _signature(message: dict[str, Json]) -> str:
    details = dicts(message.get("reasoning_details"))
    signs = (word(item.get("signature") or item.get("data")) for item in details)
    return next((sign for sign in signs if sign), "")


def _part(item: dict[str, Json]) -> Part:
    kind = word(item.get("type"))
    inner = item.get(kind)
    match kind:
        case "text" | "input_text" | "output_text":
            return Text(word(item.get("text")))
        case "refusal":
            return Refusal(word(item.get("refusal")))
        case "thinking":
            said = item.get("thinking")
            text = said if isinstance(said, str) else result_text(said)[0]
            return Reasoning(text, word(item.get("signature")))
        case "image_url":
            url = inner.get("url") if isinstance(inner, dict) else inner
            return Media("image", url=word(url))
        case "input_audio" if isinstance(inner, dict):
            return Media("audio", word(inner.get("format")), data=word(inner.get("data")))
        case "file" if isinstance(inner, dict):
            return Media(
                "file", data=word(inner.get("file_data")), file_id=word(inner.get("file_id"))
            )
        case _:
            return Other(kind, {name: value for name, value in item.items() if name != "type"})


def _call(call: dict[str, Json]) -> ToolCall:
    custom = call.get("custom")
    if isinstance(custom, dict):
        given = {"input": custom.get("input")}
        return ToolCall(word(call.get("id")), word(custom.get("name")), given)
    function = call["function"] if isinstance(call.get("function"), dict) else {}
    arguments, raw = arguments_of(function.get("arguments"))
    return ToolCall(word(call.get("id")), word(function.get("name")), arguments, raw)


# --- answers ----------------------------------------------------------------------------------


def _answer(body: dict[str, Json]) -> Answer:
    return _answer_of(body, Ending.SAID, usage_of_value(body), failure_of(body), ())


def _answer_of(
    body: dict[str, Json],
    ending: Ending,
    usage: Usage | None,
    failure: Failure | None,
    problems: tuple[str, ...],
) -> Answer:
    names = ("service_tier", "system_fingerprint", "object")
    return Answer(
        choices=tuple(_choice(choice) for choice in dicts(body.get("choices"))),
        ending=ending,
        model=word(body.get("model")),
        id=word(body.get("id")),
        created=second(body.get("created")),
        usage=usage,
        failure=failure,
        extra={name: body[name] for name in names if isinstance(body.get(name), str)},
        problems=problems,
    )


def _choice(choice: dict[str, Json]) -> Choice:
    reason = word(choice.get("finish_reason")) or None
    message = choice.get("message")
    if not isinstance(message, dict):
        text = word(choice.get("text"))
        return said((Text(text),) if text else (), reason)
    return said(_parts(message), reason, word(message.get("role")) or "assistant")


class ChatReducer:
    """Chunks of streamed choices → the answer."""

    def __init__(self) -> None:
        self._head: dict[str, Json] = {}
        self._choices: dict[int, _Choice] = {}
        self._tally = Tally()
        self._failure: Failure | None = None
        self._problems: list[str] = []
        self._course = Course()

    def feed(self, frame: Frame) -> None:
        """One more chunk."""
        if frame.text.strip() == "[DONE]":
            self._course.take(frame)
            return
        value = value_of(frame)
        if value is None:
            self._problems.append(f"chunk is no JSON: {frame.text[:80]!r}")
            return
        self._course.take_value(value)
        failure = failure_of(value)
        if failure is not None:
            self._failure = failure
            return
        for name in ("id", "model", "created", "service_tier", "system_fingerprint"):
            if value.get(name):
                self._head[name] = value[name]
        if word(value.get("object")):
            self._head["object"] = value["object"].removesuffix(".chunk")
        self._tally.add(value)
        for choice in dicts(value.get("choices")):
            index = whole(choice.get("index")) or 0
            self._choices.setdefault(index, _Choice()).add(choice)

    def finish(self) -> Answer:
        """The answer so far."""
        choices = [self._choices[index].whole() for index in sorted(self._choices)]
        return _answer_of(
            self._head | {"choices": choices},
            self._course.ending,
            self._tally.usage(),
            self._failure,
            tuple(self._problems),
        )


class _Choice:
    """One choice of a stream, as far as it came."""

    def __init__(self) -> None:
        self._texts: dict[str, list[str]] = {}
        self._members: dict[str, Json] = {}
        self._lists: dict[str, list[Json]] = {}
        self._calls: dict[int, _Call] = {}
        self._reason: Json = None

    def add(self, choice: dict[str, Json]) -> None:
        self._reason = choice.get("finish_reason") or self._reason
        if isinstance(choice.get("text"), str):
            self._texts.setdefault("text", []).append(choice["text"])
        # A server that streams may still send its last piece as a whole message.
        delta = choice.get("delta") or choice.get("message")
        if not isinstance(delta, dict):
            return
        for name, value in delta.items():
            if name == "tool_calls":
                self._add_calls(value)
            elif name == "function_call" and isinstance(value, dict):
                self._calls.setdefault(-1, _Call()).add({"function": value})
            elif name == "role":
                self._members["role"] = value or self._members.get("role")
            elif isinstance(value, str):
                self._texts.setdefault(name, []).append(value)
            elif name == "audio" and isinstance(value, dict):
                self._add_sound(value)
            elif isinstance(value, list):
                held = self._lists.setdefault(name, [])
                held.extend(value)

    def _add_calls(self, calls: Json) -> None:
        for position, call in enumerate(dicts(calls)):
            index = whole(call.get("index"))
            if index is None:
                # Some servers send each call whole and number none of them.
                index = len(self._calls) if call.get("id") else position
            self._calls.setdefault(index, _Call()).add(call)

    def _add_sound(self, sound: dict[str, Json]) -> None:
        held = self._members.setdefault("audio", {})
        for name, value in sound.items():
            together = name in ("data", "transcript") and isinstance(value, str)
            held[name] = word(held.get(name)) + value if together else value

    def whole(self) -> dict[str, Json]:
        texts = {name: "".join(pieces) for name, pieces in self._texts.items()}
        if "text" in texts:
            return {"text": texts["text"], "finish_reason": self._reason}
        # Content as parts says more than content as text; of all else the text does.
        message = self._lists | self._members | texts
        if self._lists.get("content"):
            message["content"] = self._lists["content"]
        numbered = [call.whole() for index, call in sorted(self._calls.items()) if index >= 0]
        if numbered:
            message["tool_calls"] = numbered
        if -1 in self._calls:
            message["function_call"] = self._calls[-1].whole()["function"]
        return {"message": message, "finish_reason": self._reason}


class _Call:
    """One tool call of a stream, as far as it came."""

    def __init__(self) -> None:
        self._members: dict[str, Json] = {}
        self._name, self._text, self._given = "", list[str](), None
        self._custom = False

    def add(self, call: dict[str, Json]) -> None:
        self._members |= {name: call[name] for name in ("id", "type") if call.get(name)}
        inner = call.get("function")
        if isinstance(call.get("custom"), dict):
            inner, self._custom = call["custom"], True
        if not isinstance(inner, dict):
            return
        self._name = word(inner.get("name")) or self._name
        given = inner.get("input" if self._custom else "arguments")
        if isinstance(given, str):
            self._text.append(given)
        elif given is not None:
            self._given = given

    def whole(self) -> dict[str, Json]:
        given = "".join(self._text) if self._given is None else self._given
        if self._custom:
            return self._members | {"custom": {"name": self._name, "input": given}}
        return self._members | {"function": {"name": self._name, "arguments": given}}


CHAT = Provider("openai", "chat", _claims, _owns, _asked, _answer, ChatReducer)
