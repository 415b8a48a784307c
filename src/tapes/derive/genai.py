"""The attributes of a span → what it is, and the model call that it tells of.

The current names of the GenAI conventions are read, their older names, and those of OpenInference
and OpenLLMetry. Which library wrote a span plays no part.

Rule 1: of several names for one thing the current one counts.
Rule 2: content counts the same as a structured value, as a JSON text, flattened into many
        attributes, or in events.
Rule 3: what is not understood here is left over, and the caller shows it as it came.

Knows nothing of traces or trees.  Pure.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tapes.jsontext import Json
from tapes.loosejson import loose, packed
from tapes.providers.ending import Ending
from tapes.providers.turn import (
    Answer,
    Asked,
    Choice,
    Failure,
    Media,
    Message,
    Other,
    Part,
    Parts,
    Reasoning,
    Refusal,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    Turn,
    arguments_of,
    dicts,
    result_text,
    text_of,
    whole,
    word,
)
from tapes.providers.usage import Usage, believed
from tapes.rows import SpanKind

Attributes = Mapping[str, Json]

# --- names ------------------------------------------------------------------------------------

OPERATION = ("gen_ai.operation.name",)
PROVIDER = ("gen_ai.provider.name", "gen_ai.system", "llm.provider", "llm.system")
REQUEST_MODEL = ("gen_ai.request.model", "llm.request.model", "embedding.model_name")
RESPONSE_MODEL = ("gen_ai.response.model", "llm.response.model")
EITHER_MODEL = ("llm.model_name",)
RESPONSE_ID = ("gen_ai.response.id", "llm.response.id")
STREAM = ("gen_ai.request.stream", "llm.is_streaming", "gen_ai.request.is_stream")
FIRST_CHUNK = ("gen_ai.response.time_to_first_chunk",)
REASONS = ("gen_ai.response.finish_reasons", "llm.response.finish_reason")
INPUT_TOKENS = (
    "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens",
    "llm.token_count.prompt",
)  # fmt: skip
OUTPUT_TOKENS = (
    "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens",
    "llm.token_count.completion",
)  # fmt: skip
CACHE_READ = (
    "gen_ai.usage.cache_read.input_tokens", "gen_ai.usage.cache_read_input_tokens",
    "llm.token_count.prompt_details.cache_read",
)  # fmt: skip
CACHE_WRITE = (
    "gen_ai.usage.cache_creation.input_tokens", "gen_ai.usage.cache_creation_input_tokens",
    "gen_ai.usage.cache_write.input_tokens",
    "llm.token_count.prompt_details.cache_write",
)  # fmt: skip
REASONING = (
    "gen_ai.usage.reasoning.output_tokens", "gen_ai.usage.reasoning_tokens",
    "llm.token_count.completion_details.reasoning",
)  # fmt: skip
TOTAL_TOKENS = ("gen_ai.usage.total_tokens", "llm.usage.total_tokens", "llm.token_count.total")
TOOL_NAME = ("gen_ai.tool.name", "tool.name", "traceloop.entity.name")
TOOL_ID = ("gen_ai.tool.call.id", "tool.id", "tool_call.id")
TOOL_ARGUMENTS = (
    "gen_ai.tool.call.arguments", "gcp.vertex.agent.tool_call_args", "traceloop.entity.input",
    "input.value",
    "tool.parameters",  # some put the schema there, and what was given into the input
)  # fmt: skip
TOOL_RESULT = (
    "gen_ai.tool.call.result", "gcp.vertex.agent.tool_response", "traceloop.entity.output",
    "output.value",
)  # fmt: skip
AGENT_NAME = ("gen_ai.agent.name", "agent.name", "graph.node.name", "gen_ai.workflow.name")
ERROR = ("error.type",)
INPUT, OUTPUT = ("gen_ai.input.messages",), ("gen_ai.output.messages",)
INSTRUCTIONS = ("gen_ai.system_instructions",)
DEFINITIONS = ("gen_ai.tool.definitions",)
OUTCOME = ("tapes.outcome",)
# What OTLP has no word for and an export of ours says of a span; a length that is not known.
STATUS, NO_LENGTH = ("tapes.status",), ("tapes.duration.unknown",)
CACHE_WRITE_1H = ("tapes.usage.cache_creation_1h.input_tokens",)
# What an export of ours says of a session, as its resource.
SESSION_NAME, SESSION_CWD = "tapes.session.name", "tapes.session.cwd"
SESSION_USER, SESSION_TAGS = "tapes.session.user", "tapes.session.tags"
# Providers whose name in the conventions is not the plain one, by ours.
PROVIDER_NAMES = {"gemini": "gcp.gemini"}
_OURS = {name: plain for plain, name in PROVIDER_NAMES.items()}
_KIND_NAMES = ("openinference.span.kind", "traceloop.span.kind", "llm.request.type")
_PARAMETERS = ("llm.invocation_parameters",)

# Settings, by their neutral names.
SETTINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("max_tokens", ("gen_ai.request.max_tokens",)),
    ("temperature", ("gen_ai.request.temperature", "llm.temperature")),
    ("top_p", ("gen_ai.request.top_p", "llm.top_p")),
    ("top_k", ("gen_ai.request.top_k", "llm.top_k")),
    ("frequency_penalty", ("gen_ai.request.frequency_penalty", "llm.frequency_penalty")),
    ("presence_penalty", ("gen_ai.request.presence_penalty", "llm.presence_penalty")),
    ("stop_sequences", ("gen_ai.request.stop_sequences",)),
    ("seed", ("gen_ai.request.seed", "gen_ai.openai.request.seed")),
    ("choices", ("gen_ai.request.choice.count",)),
    ("output_type", ("gen_ai.output.type",)),
)
# What begins so is content in pieces, and is put together.
_PREFIXES = (
    "gen_ai.prompt.", "gen_ai.completion.", "llm.input_messages.", "llm.output_messages.",
    "llm.tools.", "llm.request.functions.",
)  # fmt: skip
_PLAIN = ("gen_ai.prompt", "gen_ai.completion", "input.value", "output.value")
_PLAIN_TYPES = ("input.mime_type", "output.mime_type")
_KNOWN = frozenset(
    (
        *OPERATION, *PROVIDER, *REQUEST_MODEL, *RESPONSE_MODEL, *EITHER_MODEL, *RESPONSE_ID,
        *STREAM, *FIRST_CHUNK, *REASONS, *INPUT_TOKENS, *OUTPUT_TOKENS, *CACHE_READ, *CACHE_WRITE,
        *REASONING, *TOTAL_TOKENS, *INPUT, *OUTPUT, *INSTRUCTIONS, *DEFINITIONS, *OUTCOME, *ERROR,
        *CACHE_WRITE_1H,
        *_PLAIN, *_PLAIN_TYPES, *(name for _, names in SETTINGS for name in names),
    )
)  # fmt: skip
_OWN = frozenset((*STATUS, *NO_LENGTH))
_TOOL_KNOWN = frozenset(
    (*OPERATION, *TOOL_NAME, *TOOL_ID, *TOOL_ARGUMENTS, *TOOL_RESULT, *ERROR, *_PLAIN_TYPES)
)
_AGENT_KNOWN = frozenset(
    (*OPERATION, *AGENT_NAME, *INPUT_TOKENS, *OUTPUT_TOKENS, *CACHE_READ, *CACHE_WRITE,
     *REASONING, *TOTAL_TOKENS, *INPUT, *OUTPUT, *ERROR)
)  # fmt: skip


def first(attributes: Attributes, names: Sequence[str]) -> Json:
    """The value under the first of these names that is there."""
    return next((attributes[n] for n in names if attributes.get(n) is not None), None)


def left_over(attributes: Attributes, kind: SpanKind) -> dict[str, Json]:
    """The attributes that say nothing which a span of this kind shows elsewhere."""
    known = {SpanKind.LLM: _KNOWN, SpanKind.TOOL: _TOOL_KNOWN, SpanKind.AGENT: _AGENT_KNOWN}
    shown = known.get(kind, frozenset()) | _OWN
    prefixes = _PREFIXES if kind is SpanKind.LLM else ()
    if kind is SpanKind.LLM and usage_of(attributes) is None:
        shown -= set(TOTAL_TOKENS)  # a sum alone says not of what: it is no usage
    return {n: v for n, v in attributes.items() if n not in shown and not n.startswith(prefixes)}


# --- what a span is ---------------------------------------------------------------------------

_KINDS: dict[str, SpanKind] = {
    **dict.fromkeys(
        ("chat", "generate_content", "text_completion", "embeddings", "completion", "embedding",
         "llm", "generate", "message", "responses"),
        SpanKind.LLM,
    ),
    **dict.fromkeys(("execute_tool", "tool", "tools/call"), SpanKind.TOOL),
    **dict.fromkeys(
        ("invoke_agent", "create_agent", "invoke_workflow", "agent", "workflow"), SpanKind.AGENT
    ),
}  # fmt: skip


def kind_of(attributes: Attributes) -> SpanKind:
    """What a span is; a step where nothing says more."""
    for name in (*OPERATION, *_KIND_NAMES, "mcp.method.name"):
        told = word(attributes.get(name)).lower()
        if told:
            return _KINDS.get(told, SpanKind.STEP)
    asks = first(attributes, (*REQUEST_MODEL, *EITHER_MODEL))
    if asks and (first(attributes, PROVIDER) or first(attributes, (*INPUT_TOKENS, *INPUT))):
        return SpanKind.LLM
    return SpanKind.TOOL if attributes.get("gen_ai.tool.name") else SpanKind.STEP


def given_to_tool(attributes: Attributes) -> Json:
    """What a tool was given; where its function's call was traced, the arguments by name."""
    given = _opened(first(attributes, TOOL_ARGUMENTS))
    if isinstance(given, dict) and given.keys() <= _OF_FUNCTION and not given.get("args"):
        named = given.get("kwargs")
        return named if isinstance(named, dict) else given
    return given


_OF_FUNCTION = frozenset(("args", "kwargs", "sanitize_inputs_outputs"))


def operation_of(attributes: Attributes) -> str:
    """The operation that a model was asked for."""
    told = word(first(attributes, (*OPERATION, "llm.request.type"))).lower()
    kinds = {"embedding": "embeddings", "completion": "text_completion"}
    if not told and word(attributes.get("openinference.span.kind")).lower() == "embedding":
        return "embeddings"
    return kinds.get(told, told or "chat")


# --- the call ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Told:
    """What a span says of itself beside its attributes."""

    failed: bool = False
    ended: bool = True
    message: str = ""
    exception: str = ""


def with_events(attributes: Attributes, events: Sequence[tuple[str, Json]]) -> dict[str, Json]:
    """The attributes together with the content that events hold; attributes count first."""
    found: dict[str, Json] = {}
    asked, answered = list[Json](), list[Json]()
    for name, held in events:
        value = held if isinstance(held, dict) else {}
        if name == "gen_ai.client.inference.operation.details":
            found |= value
        elif name in ("gen_ai.content.prompt", "gen_ai.content.completion"):
            plain = name.replace("content.", "")
            found[plain] = value.get(plain)
        elif name == "gen_ai.choice":
            message = value.get("message")
            inner = message if isinstance(message, dict) else value
            reason = value.get("finish_reason")
            answered.append({"role": "assistant", **inner, "finish_reason": reason})
        elif name.startswith("gen_ai.") and name.endswith(".message"):
            role = name.removeprefix("gen_ai.").removesuffix(".message")
            asked.append({"role": role, **value})
    if asked:
        found[INPUT[0]] = asked
    if answered:
        found[OUTPUT[0]] = answered
    return found | dict(attributes)


def turn_of(attributes: Attributes, told: Told) -> Turn:
    """The model call that a span tells of."""
    asked_messages, answered = _messages(attributes)
    model = word(first(attributes, (*REQUEST_MODEL, *EITHER_MODEL)))
    answer_model = word(first(attributes, (*RESPONSE_MODEL, *EITHER_MODEL)))
    parameters = _opened(first(attributes, _PARAMETERS))
    settings = dict(parameters) if isinstance(parameters, dict) else {}
    settings |= {
        name: value for name, names in SETTINGS if (value := first(attributes, names)) is not None
    }
    asked = Asked(
        model=model,
        messages=asked_messages,
        system=_instructions(first(attributes, INSTRUCTIONS)),
        tools=_tools(attributes),
        settings=settings,
        stream=first(attributes, STREAM) is True,
        operation=operation_of(attributes),
    )
    failure = None
    if told.failed:
        code = word(first(attributes, ERROR)) or told.exception or "_OTHER"
        failure = Failure(code, told.message)
    answer = Answer(
        choices=_choices(answered, first(attributes, REASONS)),
        ending=Ending.SAID,
        model=answer_model,
        id=word(first(attributes, RESPONSE_ID)),
        usage=usage_of(attributes, answer_model or model),
        failure=failure,
    )
    provider = word(first(attributes, PROVIDER))
    return Turn(_OURS.get(provider, provider), "otlp", asked, answer)


def usage_of(attributes: Attributes, model: str = "") -> Usage | None:
    """The tokens that a span counts, or None where it counts none."""
    asked, said = _count(attributes, INPUT_TOKENS), _count(attributes, OUTPUT_TOKENS)
    if asked is None and said is None:
        return None
    read, written = _count(attributes, CACHE_READ), _count(attributes, CACHE_WRITE)
    parts = (read or 0) + (written or 0)
    if asked is not None and parts > asked:
        asked += parts  # a part is no larger than its whole: it was counted beside it
    reasoning, longer = _count(attributes, REASONING), _count(attributes, CACHE_WRITE_1H)
    return Usage(asked, said, read, written, reasoning, model or None, longer)


def _count(attributes: Attributes, names: Sequence[str]) -> int | None:
    told = first(attributes, names)
    if isinstance(told, str) and _DIGITS.fullmatch(told):
        told = int(told)  # some tracers have attributes of text alone
    return believed(whole(told))


_DIGITS = re.compile(r"[0-9]{1,15}")


def _choices(messages: Sequence[tuple[Message, str]], reasons: Json) -> tuple[Choice, ...]:
    reasons = _opened(reasons)
    told = reasons if isinstance(reasons, list) else [reasons]
    words = [word(reason) for reason in told]
    if not messages:
        return (Choice(Message("assistant"), words[0]),) if any(words) else ()
    return tuple(
        Choice(message, reason or (words[number] if number < len(words) else "") or None)
        for number, (message, reason) in enumerate(messages)
    )


# --- messages ---------------------------------------------------------------------------------


def _messages(
    attributes: Attributes,
) -> tuple[tuple[Message, ...], tuple[tuple[Message, str], ...]]:
    """What was asked, and what was answered with the reasons for which it ended."""
    asked = messages_of(first(attributes, INPUT)) or _flat(
        attributes, "llm.input_messages.", "gen_ai.prompt."
    )
    answered = messages_of(first(attributes, OUTPUT), "assistant") or _flat(
        attributes, "llm.output_messages.", "gen_ai.completion.", role="assistant"
    )
    if not asked:
        asked = _of_plain(first(attributes, ("gen_ai.prompt", "input.value")), "user")
    if not answered:
        answered = _of_plain(first(attributes, ("gen_ai.completion", "output.value")), "assistant")
    return tuple(message for message, _ in asked), answered


def _of_plain(value: Json, role: str) -> tuple[tuple[Message, str], ...]:
    """Messages that stand as one text, or as whatever a library put there."""
    opened = _opened(value)
    if isinstance(opened, dict):
        for name in ("messages", "choices"):
            if isinstance(opened.get(name), list):
                listed = opened[name]
                return messages_of([m.get("message", m) for m in dicts(listed)], role)
    if isinstance(opened, list):
        return messages_of(opened, role)
    if opened is None or opened == "":
        return ()
    return ((Message(role, (Text(_as_text(opened)),)), ""),)


def messages_of(value: Json, role: str = "user") -> tuple[tuple[Message, str], ...]:
    """Messages as a list or as its JSON text, each with its finish reason."""
    opened = _opened(value)
    if isinstance(opened, str):
        return ((Message(role, (Text(opened),)), ""),) if opened else ()
    if opened is None:
        return ()
    listed = opened if isinstance(opened, list) else [opened]
    return tuple(_message(_opened(item), role) for item in listed)


def _as_text(value: Json) -> str:
    """A text as it is, anything else as JSON; numbers that JSON cannot say may come too."""
    return value if isinstance(value, str) else packed(value).decode()


def _message(value: Json, role: str) -> tuple[Message, str]:
    if not isinstance(value, dict):
        return Message(role, (Text(_as_text(value)),)), ""
    said = word(value.get("role")) or role
    listed = _opened(value.get("parts"))
    parts = _parts(listed) if isinstance(listed, list) else _loose_parts(value, said)
    return Message(said, parts), word(value.get("finish_reason"))


def _loose_parts(value: Mapping[str, Json], role: str) -> Parts:
    """The parts of a message as providers' own APIs write it."""
    content = value.get("content")
    if role == "tool":
        output, original = result_text(content)
        call_id = word(value.get("tool_call_id") or value.get("id"))
        return (ToolResult(call_id, output, content=original, name=word(value.get("name"))),)
    parts: list[Part] = []
    if isinstance(content, str):
        opened = _opened(content) if content.startswith('[{"') else None
        parts += _parts(opened) if isinstance(opened, list) else [Text(content)] if content else []
    elif isinstance(content, list):
        parts += _parts(content)
    elif content is not None:
        parts.append(Text(_as_text(content)))
    if word(value.get("refusal")):
        parts.append(Refusal(word(value.get("refusal"))))
    parts += [_call(call) for call in dicts(_opened(value.get("tool_calls")))]
    if isinstance(value.get("function_call"), dict):
        parts.append(_call({"function": value["function_call"]}))
    return tuple(parts)


def _call(call: Mapping[str, Json]) -> ToolCall:
    inner = call.get("function")
    held = inner if isinstance(inner, dict) else call
    arguments, raw = arguments_of(held.get("arguments"))
    return ToolCall(word(call.get("id")), word(held.get("name")), arguments, raw)


def _parts(listed: Sequence[Json]) -> Parts:
    return tuple(_part(item) for item in listed)


def _part(item: Json) -> Part:
    if not isinstance(item, dict):
        return Text(_as_text(item))
    kind = word(item.get("type"))
    if kind == "text":
        text = item.get("content") if item.get("content") is not None else item.get("text")
        return Text("" if text is None else _as_text(text))
    if kind in ("reasoning", "thinking"):
        text = item.get("content") or item.get("text") or item.get("thinking")
        return Reasoning(word(text), word(item.get("signature")))
    if kind in ("tool_call", "server_tool_call", "tool_use"):
        given = item["arguments"] if "arguments" in item else item.get("input")
        arguments, raw = arguments_of(given)
        server = kind == "server_tool_call"
        return ToolCall(word(item.get("id")), word(item.get("name")), arguments, raw, server)
    if kind in ("tool_call_response", "server_tool_call_response", "tool_result"):
        return _result(item)
    return _media(kind, item) or Other(kind or "part", item)


def _result(item: Mapping[str, Json]) -> ToolResult:
    held = next((item[n] for n in ("response", "result", "content") if n in item), None)
    output, original = result_text(held)
    call_id = word(item.get("id") or item.get("tool_use_id"))
    failed = item.get("is_error") is True
    return ToolResult(call_id, output, failed, original, word(item.get("name")))


def _media(kind: str, item: Mapping[str, Json]) -> Media | None:
    modality = word(item.get("modality")) or "file"
    media_type = word(item.get("mime_type"))
    if kind == "blob":
        return Media(modality, media_type, data=word(item.get("content") or item.get("data")))
    if kind == "uri":
        return Media(modality, media_type, url=word(item.get("uri")))
    if kind == "file":
        return Media(modality, media_type, file_id=word(item.get("file_id")))
    if kind in ("image", "image_url"):
        held = item.get("image_url") or item.get("image")
        while isinstance(held, dict):
            held = held.get("url") or held.get("image")
        return Media("image", url=word(held)) if held else None
    return None


def _instructions(value: Json) -> str:
    opened = _opened(value)
    if isinstance(opened, str):
        return opened
    listed = opened if isinstance(opened, list) else [] if opened is None else [opened]
    return text_of(_parts(listed))


def _tools(attributes: Attributes) -> tuple[Tool, ...]:
    listed = _opened(first(attributes, DEFINITIONS))
    if listed is None:
        listed = [
            _opened(_inner(item).get("json_schema", _inner(item)))
            for prefix in ("llm.tools.", "llm.request.functions.")
            for item in _tree(attributes, prefix)
        ]
    tools = []
    for item in dicts(listed):
        function = item.get("function")
        held = function if isinstance(function, dict) else item
        tools.append(Tool(word(held.get("name")), item))
    return tuple(tools)


# --- content in pieces ------------------------------------------------------------------------


def _flat(
    attributes: Attributes, *prefixes: str, role: str = "user"
) -> tuple[tuple[Message, str], ...]:
    """Messages of which each member is an attribute of its own."""
    for prefix in prefixes:
        listed = [_inner(item) for item in _tree(attributes, prefix)]
        if listed:
            return tuple(_message(_joined(item), role) for item in listed)
    return ()


def _inner(item: Json) -> dict[str, Json]:
    """A message, a tool or a call without the name that OpenInference puts around it."""
    held = item if isinstance(item, dict) else {"content": item}
    if len(held) == 1:
        name, inner = next(iter(held.items()))
        if name in ("message", "tool", "tool_call", "message_content") and isinstance(inner, dict):
            return inner
    return held


def _joined(message: dict[str, Json]) -> dict[str, Json]:
    found = dict(message)
    contents = found.pop("contents", None)
    if isinstance(contents, list) and found.get("content") is None:
        found["content"] = [_inner(item) for item in contents]
    if isinstance(found.get("tool_calls"), list):
        found["tool_calls"] = [_inner(item) for item in found["tool_calls"]]
    return found


# A list in attributes is as long as its attributes; a number beyond that is no place in it.
_PLACE = re.compile(r"[0-9]{1,6}")


def _tree(attributes: Attributes, prefix: str) -> list[Json]:
    """The list that attributes with this prefix spell: `0.role`, `0.tool_calls.1.name`, …"""
    root: dict[str, Json] = {}
    for name, value in attributes.items():
        if not name.startswith(prefix):
            continue
        steps = name[len(prefix) :].split(".")[:20]
        place = root
        for step in steps[:-1]:
            inner = place.get(step)
            if not isinstance(inner, dict):
                inner = place[step] = {}
            place = inner
        place.setdefault(steps[-1], value)
    listed = _listed(root)
    return listed if isinstance(listed, list) else []


def _listed(value: Json) -> Json:
    if not isinstance(value, dict):
        return value
    if value and all(_PLACE.fullmatch(name) for name in value):
        return [_listed(value[name]) for name in sorted(value, key=int)]
    return {name: _listed(member) for name, member in value.items()}


def _opened(value: Json) -> Json:
    """The value of a JSON text, or the value itself where it is none."""
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        return loose(value)
    except ValueError:
        return value
