"""The Messages API: requests, answers in one body, and answers as a stream of events.

Rule 1: a stream is put together into the body that it would have been, and read as that.
Rule 2: a stream is whole after `message_stop`, not before.

Knows nothing of other providers or of transports.  Pure.
"""

from tapes.jsontext import Json
from tapes.loosejson import loose
from tapes.providers.ending import Course, Ending
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
    Text,
    Tool,
    ToolCall,
    ToolResult,
    dicts,
    failure_of,
    result_text,
    said,
    settings_of,
    value_of,
    whole,
    word,
)
from tapes.providers.usage import Tally, Usage, usage_of_value
from tapes.wire import Frame

_SETTINGS = {
    "max_tokens": "max_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "stop_sequences": "stop_sequences",
    "thinking": "reasoning",
    "tool_choice": "tool_choice",
    "service_tier": "service_tier",
}


def _claims(path: str) -> bool:
    # The last two are the same bodies behind a cloud's own paths.
    return path.endswith(("/v1/messages", ":rawPredict", ":streamRawPredict"))


_EVENTS = frozenset(
    {"message_start", "content_block_start", "content_block_delta", "content_block_stop",
     "message_delta", "message_stop", "ping"}
)  # fmt: skip


def _owns(event: str, value: dict[str, Json]) -> bool:
    kind = word(value.get("type", event))
    return kind in _EVENTS or (kind == "message" and isinstance(value.get("content"), list))


# --- requests ---------------------------------------------------------------------------------


def _asked(body: dict[str, Json], path: str, remember: Memo) -> Asked:
    settings = settings_of(body, _SETTINGS)
    output = body.get("output_config")
    if isinstance(output, dict) and isinstance(output.get("format"), dict):
        settings["output_type"] = output["format"].get("type")
    return Asked(
        model=word(body.get("model")),
        messages=tuple(remember(raw, _message) for raw in dicts(body.get("messages"))),
        system=_system_text(body.get("system")),
        tools=tuple(Tool(word(tool.get("name")), tool) for tool in dicts(body.get("tools"))),
        settings=settings,
        stream=body.get("stream") is True or path.endswith(":streamRawPredict"),
    )


def _system_text(system: Json) -> str:
    if isinstance(system, list):
        return "\n".join(text for text in (word(b.get("text")) for b in dicts(system)) if text)
    return word(system)


def _message(raw: Json) -> Message:
    return Message(word(raw.get("role")), _parts(raw.get("content")))


def _parts(content: Json) -> Parts:
    if isinstance(content, str):
        return (Text(content),)
    return tuple(_part(block) for block in dicts(content))


def _part(block: dict[str, Json]) -> Part:
    kind = word(block.get("type"))
    match kind:
        case "text":
            citations = block.get("citations")
            return Text(word(block.get("text")), {"citations": citations} if citations else None)
        case "thinking":
            return Reasoning(word(block.get("thinking")), word(block.get("signature")))
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            return _call(block, server=kind != "tool_use")
        case "tool_result":
            text, original = result_text(block.get("content"))
            failed = block.get("is_error") is True
            return ToolResult(word(block.get("tool_use_id")), text, failed, original)
        case "image" | "document":
            return _media(kind, block)
        case _ if kind.endswith("_tool_result"):
            return _server_result(kind, block)
        case _:
            return Other(kind, {name: value for name, value in block.items() if name != "type"})


def _call(block: dict[str, Json], *, server: bool) -> ToolCall:
    caller, raw = block.get("caller"), block.get("raw_input")
    told = isinstance(caller, dict) and caller.get("type") != "direct"
    return ToolCall(
        word(block.get("id")),
        word(block.get("name")),
        None if raw is not None else block.get("input") or {},
        raw,
        server,
        {"caller": caller} if told else None,
    )


def _server_result(kind: str, block: dict[str, Json]) -> ToolResult:
    content = block.get("content")
    failed = isinstance(content, dict) and word(content.get("type")).endswith("_error")
    return ToolResult(
        word(block.get("tool_use_id")),
        is_error=failed or block.get("is_error") is True,
        content=content,
        kind=kind,
    )


def _media(kind: str, block: dict[str, Json]) -> Part:
    source = block.get("source")
    if not isinstance(source, dict) or source.get("type") not in ("base64", "url", "file"):
        return Other(kind, {name: value for name, value in block.items() if name != "type"})
    return Media(
        kind,
        media_type=word(source.get("media_type")),
        url=word(source.get("url")),
        data=word(source.get("data")),
        file_id=word(source.get("file_id")),
    )


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
    extra: dict[str, Json] = {"type": body["type"]} if body.get("type") == "message" else {}
    if body.get("stop_sequence"):
        extra["stop_sequence"] = body["stop_sequence"]
    reported = body.get("usage")
    if isinstance(reported, dict) and reported.get("service_tier"):
        extra["service_tier"] = reported["service_tier"]
    role = word(body.get("role")) or "assistant"
    return Answer(
        choices=(said(_parts(body.get("content")), word(body.get("stop_reason")) or None, role),),
        ending=ending,
        model=word(body.get("model")),
        id=word(body.get("id")),
        usage=usage,
        failure=failure,
        extra=extra,
        problems=problems,
    )


# What a delta adds to its block: the member of the delta, and the member of the block.
_APPENDED = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
}


class MessagesReducer:
    """Events of one streamed message → the answer."""

    def __init__(self) -> None:
        self._message: dict[str, Json] = {}
        self._blocks: dict[int, dict[str, Json]] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}
        self._citations: dict[int, list[Json]] = {}
        self._tally = Tally()
        self._failure: Failure | None = None
        self._problems: list[str] = []
        self._course = Course()

    def feed(self, frame: Frame) -> None:
        """One more event."""
        value = value_of(frame)
        if value is None:
            self._problems.append(f"event is no JSON: {frame.text[:80]!r}")
            return
        kind = value.get("type", frame.event)
        if kind == "content_block_delta":
            self._delta(value)  # most of a stream, and never its end
            return
        self._course.take_value(value, frame.event)
        match kind:
            case "content_block_start":
                block = value.get("content_block")
                if isinstance(block, dict):
                    self._blocks[_index(value)] = dict(block)
            case "message_start":
                if isinstance(value.get("message"), dict):
                    self._message = dict(value["message"])
                self._tally.add(value)
            case "message_delta":
                delta = value.get("delta")
                if isinstance(delta, dict):
                    self._message |= delta
                self._tally.add(value)
            case "error":
                self._failure = failure_of(value) or Failure("error")
            case _:
                pass  # a ping, or an event of a later version

    def _delta(self, value: dict[str, Json]) -> None:
        delta, index = value.get("delta"), _index(value)
        if not isinstance(delta, dict):
            return
        kind = delta.get("type")
        kind = kind if isinstance(kind, str) else ""
        if index not in self._blocks:
            self._blocks[index] = {"type": "text"}  # a delta without its start means text
        if kind in _APPENDED:
            member, target = _APPENDED[kind]
            self._pieces.setdefault((index, target), []).append(word(delta.get(member)))
        elif kind == "input_json_delta":
            text = word(delta.get("partial_json"))
            self._pieces.setdefault((index, "input"), []).append(text)
        elif kind == "citations_delta":
            self._citations.setdefault(index, []).append(delta.get("citation"))
        else:
            self._blocks[index] |= {
                name: member for name, member in delta.items() if name != "type"
            }

    def finish(self) -> Answer:
        """The answer so far."""
        problems = list(self._problems)
        content = [self._block(index, problems) for index in sorted(self._blocks)]
        return _answer_of(
            self._message | {"content": content},
            self._course.ending,
            self._tally.usage(),
            self._failure,
            tuple(problems),
        )

    def _block(self, index: int, problems: list[str]) -> dict[str, Json]:
        block = dict(self._blocks[index])
        for target in ("text", "thinking", "signature"):
            pieces = self._pieces.get((index, target))
            if pieces:
                block[target] = word(block.get(target)) + "".join(pieces)
        if index in self._citations:
            opened = block.get("citations")
            opened = opened if isinstance(opened, list) else []
            block["citations"] = [*opened, *self._citations[index]]
        fragments = "".join(self._pieces.get((index, "input"), ()))
        if fragments:
            try:
                block["input"] = loose(fragments)
            except ValueError:
                block |= {"input": None, "raw_input": fragments}
                problems.append(f"input of tool call {block.get('id')} is no JSON")
        return block


def _index(value: dict[str, Json]) -> int:
    return whole(value.get("index")) or 0


MESSAGES = Provider("anthropic", "messages", _claims, _owns, _asked, _answer, MessagesReducer)
