"""The Responses API: requests, answers in one body, and answers as a stream of events.

Rule 1: the response in the final event is the answer; where its output is empty, or where no final
        event came, the items that came on the way are.
Rule 2: a stream is whole after its final event, not before.
Rule 3: items of the model that follow one another are one message, as they are in an answer.
Rule 4: items that set the model up (tools, effort) are nothing that anybody said.

Knows nothing of other shapes or of transports.  Pure.
"""

from collections.abc import Iterator

from tapes.jsontext import Json
from tapes.providers.ending import Ending
from tapes.providers.turn import (
    Answer,
    Asked,
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
from tapes.providers.usage import Usage, usage_of_value
from tapes.wire import Frame

_SETTINGS = {
    "max_output_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "reasoning": "reasoning",
    "tool_choice": "tool_choice",
    "service_tier": "service_tier",
}


def _claims(path: str) -> bool:
    return path.endswith("/responses")


def _owns(event: str, value: dict[str, Json]) -> bool:
    return value.get("object") == "response" or word(value.get("type", event)).startswith(
        "response."
    )


# --- requests ---------------------------------------------------------------------------------


def _asked(body: dict[str, Json], _path: str, remember: Memo) -> Asked:
    settings = settings_of(body, _SETTINGS)
    text = body.get("text")
    if isinstance(text, dict) and isinstance(text.get("format"), dict):
        settings["output_type"] = text["format"].get("type")
    given = body.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else dicts(given)
    messages = [item for item in items if role_of(item) != SETTING_UP]
    added = [t for i in items if role_of(i) == SETTING_UP for t in dicts(i.get("tools"))]
    return Asked(
        model=word(body.get("model")),
        messages=tuple(remember(group, _message) for group in _grouped(messages)),
        system=word(body.get("instructions")),
        tools=tuple(
            Tool(word(tool.get("name") or tool.get("type")), tool)
            for tool in _single([*dicts(body.get("tools")), *added])
        ),
        settings=settings,
        stream=body.get("stream") is True,
        previous_id=word(body.get("previous_response_id")),
    )


def _single(tools: list[dict[str, Json]]) -> Iterator[dict[str, Json]]:
    """Tools, those of a name space one by one: the model calls them so."""
    for tool in tools:
        yield from dicts(tool.get("tools")) if tool.get("type") == "namespace" else (tool,)


def _grouped(items: list[dict[str, Json]]) -> list[list[dict[str, Json]]]:
    """Items that are one message: the model's in a row, and results of tools in a row."""
    groups: list[list[dict[str, Json]]] = []
    last = ""
    for item in items:
        role = role_of(item)
        if role == last and role in ("assistant", "tool"):
            groups[-1].append(item)
        else:
            groups.append([item])
        last = role
    return groups


# The role of an item that sets the model up, and the types that do.
SETTING_UP = "setting up"
_SETTING_UP = frozenset({"additional_tools", "configuration_update"})


def role_of(item: dict[str, Json]) -> str:
    """Who says an item: user, developer, system, assistant, tool; or SETTING_UP."""
    kind = word(item.get("type"))
    if kind in _SETTING_UP:
        return SETTING_UP
    if kind in ("", "message", "agent_message"):  # one agent to another: it stands for its user
        return word(item.get("role")) or "user"
    return "tool" if kind.endswith("_output") else "assistant"


def _message(group: Json) -> Message:
    return Message(role_of(group[0]), tuple(part for item in group for part in _parts(item)))


# --- items ------------------------------------------------------------------------------------


def _parts(item: dict[str, Json]) -> Parts:
    kind = word(item.get("type"))
    match kind:
        case "" | "message":
            return _said_in(item.get("content"))
        case "agent_message":
            way = {name: item.get(name) for name in ("author", "recipient")}
            return (Other(kind, way), *_said_in(item.get("content")))
        case "reasoning":
            return (_reasoning(item),)
        case "function_call" | "custom_tool_call" | "local_shell_call" | "shell_call":
            return (_call(kind, item),)
        case _ if kind.endswith("_output") and "call_id" in item:
            text, original = result_text(item.get("output"))
            return (ToolResult(word(item.get("call_id")), text, False, original),)
        case _:
            return (Other(kind, item),)


def _said_in(content: Json) -> Parts:
    if isinstance(content, str):
        return (Text(content),)
    return tuple(_content(part) for part in dicts(content))


def _content(part: dict[str, Json]) -> Part:
    kind = word(part.get("type"))
    match kind:
        case "output_text" | "input_text" | "text" | "summary_text":
            citations = part.get("annotations")
            return Text(word(part.get("text")), {"citations": citations} if citations else None)
        case "refusal":
            return Refusal(word(part.get("refusal")))
        case "input_image":
            url, file_id = word(part.get("image_url")), word(part.get("file_id"))
            return Media("image", url=url, file_id=file_id)
        case "input_file":
            data, file_id = word(part.get("file_data")), word(part.get("file_id"))
            return Media("file", url=word(part.get("file_url")), data=data, file_id=file_id)
        case _:
            return Other(kind, {name: value for name, value in part.items() if name != "type"})


def _reasoning(item: dict[str, Json]) -> Reasoning:
    said = dicts(item.get("summary")) or dicts(item.get("content"))
    text = "\n".join(word(part.get("text")) for part in said)
    return Reasoning(text, word(item.get("encrypted_content")))


def _call(kind: str, item: dict[str, Json]) -> ToolCall:
    call_id = word(item.get("call_id"))
    if kind == "function_call":
        arguments, raw = arguments_of(item.get("arguments"))
        return ToolCall(call_id, word(item.get("name")), arguments, raw)
    if kind == "custom_tool_call":
        return ToolCall(call_id, word(item.get("name")), {"input": item.get("input")})
    return ToolCall(call_id, kind.removesuffix("_call"), item.get("action") or {})


# --- answers ----------------------------------------------------------------------------------


def _answer(body: dict[str, Json]) -> Answer:
    failure = failure_of(body)
    if failure is None and body.get("status") in ("failed", "cancelled"):
        failure = Failure(word(body["status"]))
    return _answer_of(body, Ending.SAID, usage_of_value(body), failure, ())


def _answer_of(
    body: dict[str, Json],
    ending: Ending,
    usage: Usage | None,
    failure: Failure | None,
    problems: tuple[str, ...],
) -> Answer:
    names = ("object", "status", "service_tier")
    parts = tuple(part for item in dicts(body.get("output")) for part in _parts(item))
    return Answer(
        choices=(said(parts, _finish_reason(body) if ending is Ending.SAID else None),),
        ending=ending,
        model=word(body.get("model")),
        id=word(body.get("id")),
        created=second(body.get("created_at")),
        usage=usage,
        failure=failure,
        extra={name: body[name] for name in names if isinstance(body.get(name), str)},
        problems=problems,
    )


def _finish_reason(body: dict[str, Json]) -> str | None:
    status = word(body.get("status"))
    if status == "incomplete":
        details = body.get("incomplete_details")
        return word(details.get("reason")) if isinstance(details, dict) else status
    return "stop" if status == "completed" else status or None


_FINAL = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled"}
)
# An event that adds text, and where: the list of the item and its kind of part, or a member.
_DELTAS = {
    "response.output_text.delta": ("content", "output_text", "text"),
    "response.refusal.delta": ("content", "refusal", "refusal"),
    "response.reasoning_summary_text.delta": ("summary", "summary_text", "text"),
    "response.reasoning_text.delta": ("content", "reasoning_text", "text"),
    "response.function_call_arguments.delta": ("", "", "arguments"),
    "response.custom_tool_call_input.delta": ("", "", "input"),
}


class ResponsesReducer:
    """Events of one streamed response → the answer."""

    def __init__(self) -> None:
        self._head: dict[str, Json] = {}
        self._final: dict[str, Json] | None = None
        self._items: dict[int, _Item] = {}
        self._failure: Failure | None = None
        self._problems: list[str] = []

    def feed(self, frame: Frame) -> None:
        """One more event."""
        if frame.text.strip() == "[DONE]":
            return
        value = value_of(frame)
        if value is None:
            self._problems.append(f"event is no JSON: {frame.text[:80]!r}")
            return
        kind = word(value.get("type", frame.event))
        response = value.get("response")
        if kind in _FINAL and isinstance(response, dict):
            self._final = response
        elif kind in ("response.created", "response.in_progress") and isinstance(response, dict):
            self._head = response
        elif kind == "error":
            code = word(value.get("code")) or "error"
            self._failure = failure_of(value) or Failure(code, word(value.get("message")))
        else:
            self._item_event(kind, value)

    def _item_event(self, kind: str, value: dict[str, Json]) -> None:
        if not kind.startswith("response."):
            return
        index = whole(value.get("output_index")) or 0
        item = value.get("item")
        if kind == "response.output_item.added" and isinstance(item, dict):
            self._items.setdefault(index, _Item()).opened = item
        elif kind == "response.output_item.done" and isinstance(item, dict):
            self._items.setdefault(index, _Item()).done = item
        elif kind in _DELTAS:
            place, part_kind, member = _DELTAS[kind]
            number = whole(value.get("content_index", value.get("summary_index"))) or 0
            held = self._items.setdefault(index, _Item())
            text = word(value.get("delta"))
            held.pieces.setdefault((place, number, part_kind, member), []).append(text)

    def finish(self) -> Answer:
        """The answer so far."""
        came = [self._items[index].whole() for index in sorted(self._items)]
        problems = tuple(self._problems)
        final = self._final
        if final is None:
            body = self._head | {"output": came}
            return _answer_of(body, Ending.OPEN, usage_of_value(body), self._failure, problems)
        body = final if final.get("output") else final | {"output": came}
        failure = self._failure or failure_of(body)
        if failure is None and body.get("status") in ("failed", "cancelled"):
            failure = Failure(word(body["status"]))
        return _answer_of(body, Ending.SAID, usage_of_value(body), failure, problems)


class _Item:
    """One item of the output, as far as it came."""

    def __init__(self) -> None:
        self.opened: dict[str, Json] = {"type": "message", "role": "assistant"}
        self.done: dict[str, Json] | None = None
        self.pieces: dict[tuple[str, int, str, str], list[str]] = {}

    def whole(self) -> dict[str, Json]:
        if self.done is not None:
            return self.done
        item = dict(self.opened)
        for (place, _, kind, member), pieces in sorted(self.pieces.items()):
            text = "".join(pieces)
            if place:
                item[place] = [*dicts(item.get(place)), {"type": kind, member: text}]
            else:
                item[member] = text
        return item


RESPONSES = Provider("openai", "responses", _claims, _owns, _asked, _answer, ResponsesReducer)
