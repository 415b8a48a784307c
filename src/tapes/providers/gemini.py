"""Gemini's generateContent: requests, answers in one body, and answers as a stream of bodies.

Rule 1: parts of one kind that follow one another are one part, streamed or not.
Rule 2: a stream is finished when every candidate has its finish reason; usage comes with it.
Rule 3: names in snake case mean the same as in camel case.

Knows nothing of other shapes or of transports.  Pure.
"""

import re
from collections.abc import Iterable
from datetime import datetime
from itertools import groupby

from tapes.jsontext import Json
from tapes.loosejson import packed
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
    Text,
    Tool,
    ToolCall,
    ToolResult,
    dicts,
    failure_of,
    said,
    settings_of,
    value_of,
    whole,
    word,
)
from tapes.providers.usage import Tally, Usage, usage_of_value
from tapes.wire import Frame

_SETTINGS = {
    "maxOutputTokens": "max_tokens",
    "temperature": "temperature",
    "topP": "top_p",
    "topK": "top_k",
    "frequencyPenalty": "frequency_penalty",
    "presencePenalty": "presence_penalty",
    "stopSequences": "stop_sequences",
    "seed": "seed",
    "candidateCount": "choices",
    "responseMimeType": "output_type",
    "thinkingConfig": "reasoning",
}
_STREAMS = ":streamGenerateContent"


def _claims(path: str) -> bool:
    return path.endswith((":generateContent", _STREAMS))


def _owns(_event: str, value: dict[str, Json]) -> bool:
    return any(name in value for name in ("candidates", "usageMetadata", "promptFeedback"))


_SNAKE = re.compile(r"_([a-z])")


def _camel(value: dict[str, Json]) -> dict[str, Json]:
    """The members under their names in camel case."""
    if not any("_" in name for name in value):
        return value
    return {_SNAKE.sub(lambda found: found[1].upper(), name): v for name, v in value.items()}


# --- requests ---------------------------------------------------------------------------------


def _asked(body: dict[str, Json], path: str, remember: Memo) -> Asked:
    body = _camel(body)
    config = body.get("generationConfig")
    settings = settings_of(_camel(config) if isinstance(config, dict) else {}, _SETTINGS)
    tool_config = body.get("toolConfig")
    if isinstance(tool_config, dict):
        settings["tool_choice"] = _camel(tool_config).get("functionCallingConfig")
    system = body.get("systemInstruction")
    contents = body.get("contents")
    contents = [contents] if isinstance(contents, dict) else contents
    return Asked(
        model=_model_in(path) or word(body.get("model")),
        messages=tuple(remember(raw, _message) for raw in _contents(contents)),
        system=_system_text(system),
        tools=tuple(tool for group in dicts(body.get("tools")) for tool in _tools(_camel(group))),
        settings=settings,
        stream=path.endswith(_STREAMS),
        operation="generate_content",
    )


def _model_in(path: str) -> str:
    return path.rpartition("/models/")[2].rpartition(":")[0] if "/models/" in path else ""


def _contents(contents: Json) -> list[dict[str, Json]]:
    if isinstance(contents, str):
        return [{"role": "user", "parts": [{"text": contents}]}]
    return dicts(contents)


def _system_text(system: Json) -> str:
    if isinstance(system, dict):
        return "\n".join(word(p.get("text")) for p in dicts(_camel(system).get("parts")))
    return word(system)


def _tools(group: dict[str, Json]) -> list[Tool]:
    declared = dicts(group.get("functionDeclarations"))
    named = [Tool(word(item.get("name")), item) for item in declared]
    return named + [Tool(n, {n: v}) for n, v in group.items() if n != "functionDeclarations"]


def _message(raw: Json) -> Message:
    role = word(raw.get("role")) or "user"
    return Message("assistant" if role == "model" else role, _parts(raw.get("parts")))


# --- parts ------------------------------------------------------------------------------------


def _parts(items: Json) -> Parts:
    read = (_part(_camel(item)) for item in dicts(items))
    return tuple(part for _, run in groupby(read, type) for part in _joined(list(run)))


def _joined(run: list[Part]) -> Iterable[Part]:
    """One part in the place of several of its kind that a stream, or the model, merely cut."""
    texts = [part for part in run if isinstance(part, Text)]
    if texts:
        extra = {name: value for t in texts for name, value in (t.extra or {}).items()}
        return [Text("".join(t.text for t in texts), extra or None)]
    thoughts = [part for part in run if isinstance(part, Reasoning)]
    if thoughts:
        signature = next((t.signature for t in reversed(thoughts) if t.signature), "")
        return [Reasoning("".join(t.text for t in thoughts), signature)]
    return run


def _part(item: dict[str, Json]) -> Part:
    signature = word(item.get("thoughtSignature"))
    if isinstance(item.get("text"), str):
        if item.get("thought") is True:
            return Reasoning(item["text"], signature)
        return Text(item["text"], _signed(signature))
    for name, read in _READERS.items():
        if isinstance(item.get(name), dict):
            return read(_camel(item[name]), signature)
    rest = {name: value for name, value in item.items() if name != "thoughtSignature"}
    kind = next(iter(rest), "")
    return Other(kind, rest.get(kind) if len(rest) == 1 else rest)


def _signed(signature: str) -> Json:
    return {"signature": signature} if signature else None


def _call(call: dict[str, Json], signature: str) -> Part:
    given = call.get("args") or {}
    return ToolCall(word(call.get("id")), word(call.get("name")), given, extra=_signed(signature))


def _result(result: dict[str, Json], _: str) -> Part:
    response = result.get("response")
    text: Json = None
    if isinstance(response, dict) and len(response) == 1:
        text = next((response.get(n) for n in ("result", "output", "error") if n in response), None)
    failed = isinstance(response, dict) and "error" in response and response["error"] is not None
    if isinstance(text, str):
        output, original = text, None
    else:
        output = "" if response is None else packed(response).decode("utf-8", "replace")
        original = response
    return ToolResult(word(result.get("id")), output, failed, original, word(result.get("name")))


def _blob(blob: dict[str, Json], _: str) -> Part:
    media = word(blob.get("mimeType"))
    kind = media.partition("/")[0]
    return Media(
        kind if kind in ("image", "audio", "video") else "file",
        media,
        url=word(blob.get("fileUri")),
        data=word(blob.get("data")),
    )


_READERS = {
    "functionCall": _call,
    "functionResponse": _result,
    "inlineData": _blob,
    "fileData": _blob,
}


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
    candidates = dicts(body.get("candidates"))
    choices = tuple(_choice(candidate) for candidate in candidates)
    feedback = body.get("promptFeedback")
    blocked = word(feedback.get("blockReason")) if isinstance(feedback, dict) else ""
    if not choices and blocked:
        choices = (said((), blocked),)
    return Answer(
        choices=choices,
        ending=ending,
        model=word(body.get("modelVersion")),
        id=word(body.get("responseId")),
        created=_seconds(word(body.get("createTime"))),
        usage=usage,
        failure=failure,
        extra={"promptFeedback": feedback} if feedback else {},
        problems=problems,
    )


def _choice(candidate: dict[str, Json]) -> Choice:
    content = candidate.get("content")
    parts = _parts(content.get("parts")) if isinstance(content, dict) else ()
    beside = ("groundingMetadata", "citationMetadata")
    told = tuple(Other(name, candidate[name]) for name in beside if candidate.get(name))
    return said(parts + told, word(candidate.get("finishReason")) or None)


def _seconds(text: str) -> int | None:
    try:
        return int(datetime.fromisoformat(text).timestamp())
    except ValueError:
        return None


class GeminiReducer:
    """Bodies of one streamed answer → the answer."""

    def __init__(self) -> None:
        self._body: dict[str, Json] = {}
        self._candidates: dict[int, dict[str, Json]] = {}
        self._tally = Tally()
        self._failure: Failure | None = None
        self._problems: list[str] = []
        self._course = Course()

    def feed(self, frame: Frame) -> None:
        """One more body."""
        value = value_of(frame)
        if value is None:
            self._problems.append(f"body is no JSON: {frame.text[:80]!r}")
            return
        self._course.take_value(value)
        failure = failure_of(value)
        if failure is not None:
            self._failure = failure
            return
        self._tally.add(value)
        self._body |= {name: member for name, member in value.items() if name != "candidates"}
        for candidate in dicts(value.get("candidates")):
            self._add(candidate)

    def _add(self, candidate: dict[str, Json]) -> None:
        index = whole(candidate.get("index")) or 0
        held = self._candidates.setdefault(index, {"content": {"parts": []}})
        content = candidate.get("content")
        if isinstance(content, dict):
            held["content"]["parts"].extend(dicts(content.get("parts")))
        held |= {name: member for name, member in candidate.items() if name != "content"}

    def finish(self) -> Answer:
        """The answer so far."""
        candidates = [self._candidates[index] for index in sorted(self._candidates)]
        return _answer_of(
            self._body | {"candidates": candidates},
            self._course.ending,
            self._tally.usage(),
            self._failure,
            tuple(self._problems),
        )


GEMINI = Provider("gemini", "gemini", _claims, _owns, _asked, _answer, GeminiReducer)
