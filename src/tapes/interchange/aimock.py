"""Fixtures of aimock: rules that say which requests get which answer, not exchanges.

Rule 1: a fixture becomes an exchange only where it says all that its request needs: one user text
        and a model, for OpenAI chat completions. It then has two, one plain and one streamed,
        since it answers both. Everything else is left out with the reason.
Rule 2: a tape answers exactly the request; aimock's fixture answers every request whose last user
        text contains it. What the program really sends is known to nobody but the program.
Rule 3: ids, times and headers of the answers are made up, always the same, and say so.

Whoever can still run the program loses nothing: record it with the fixtures served by aimock.
Knows nothing of keys, tapes or redaction.  Pure.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping

from tapes.errors import ForeignFile
from tapes.exchange import Headers, Piece, Request, Response
from tapes.interchange.foreign import Found, Note, Reading, date_of
from tapes.jsontext import Json, compact

_URL = "https://api.openai.com/v1/chat/completions"
_MADE_UP = "ids, times and headers of the answers are made up: fixtures do not keep them"
_WIDER = "a fixture answers every request whose last user text contains its own; a tape only this"
# The characters of a streamed answer that come together, where the fixture does not say.
_CHUNK = 20

_Match = Mapping[str, Json]


def _is(name: str, *values: Json) -> Callable[[_Match], bool]:
    return lambda match: match.get(name) is not None and match[name] not in values


# In this order: the first that holds says why a fixture cannot become an exchange.
_UNKNOWN_REQUEST: tuple[tuple[Callable[[_Match], bool], str], ...] = (
    (_is("endpoint", "chat"), "its endpoint is not chat completions"),
    (_is("inputText"), "an embedding request has more than its text"),
    (_is("context"), "it holds for one X-AIMock-Context alone"),
    (_is("turnIndex", 0), "the earlier turns of its conversation are not in the fixture"),
    (_is("hasToolResult", False), "the tool results that it answers are not in the fixture"),
    (_is("toolCallId"), "the tool results that it answers are not in the fixture"),
    (_is("toolResultContains"), "the tool results that it answers are not in the fixture"),
    (_is("toolName"), "the tools of its request are not in the fixture"),
    (_is("systemMessage"), "of its system message only a part is in the fixture"),
    (_is("responseFormat", "json_object"), "its response format is not in the fixture"),
    (lambda match: not isinstance(match.get("userMessage"), str), "it says no user text"),
)
_UNKNOWN_ANSWER = (
    ("truncateAfterChunks", "it cuts its stream, and a cut stream is no answer"),
    ("disconnectAfterMs", "it cuts its stream, and a cut stream is no answer"),
    ("chaos", "it fails by chance"),
)


class _LeftOut(Exception):
    """Why a fixture becomes no exchange."""


def read(data: bytes, name: str = "", *, model: str | None = None) -> Reading:
    """The exchanges that a fixture file determines. Raises ForeignFile.

    `name` is the file's: recordings carry provider and date in it. `model` stands for the model of
    fixtures that name none.
    """
    found, notes = list[Found](), list[Note]()
    provider, recorded_at = _of_name(name)
    for number, fixture in enumerate(_fixtures(data), 1):
        place = f"fixture {number}"
        try:
            match, answer = dict(fixture["match"]), dict(fixture["response"])
            _require_whole(fixture, match, provider)
            for request, response in _pairs(fixture, match, answer, model):
                sample = match.get("sequenceIndex")
                found.append(Found(place, request, response, recorded_at, sample))
        except _LeftOut as error:
            notes.append(Note(place, str(error), left_out=True))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ForeignFile(f"{place} is none of aimock's ({error!r})") from error
    if found:
        notes += [Note("all", _MADE_UP), Note("all", _WIDER)]
    return Reading(tuple(found), tuple(notes))


def _fixtures(data: bytes) -> list[Json]:
    try:
        content = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ForeignFile(f"the fixture file is not JSON ({error})") from error
    if not isinstance(content, dict) or not isinstance(content.get("fixtures"), list):
        raise ForeignFile("no fixture file of aimock: it has no list of fixtures")
    fixtures: list[Json] = content["fixtures"]
    return fixtures


_NAME = re.compile(
    r"(?:^|/)([a-z-]+?)(?:-(\d{4}-\d\d-\d\d)T(\d\d)-(\d\d)-(\d\d)-(\d{3})Z-[0-9a-f]{8})?\.json$"
)
_OTHERS = frozenset(
    {
        "anthropic", "azure", "bedrock", "byteplus", "cohere", "elevenlabs", "fal", "gemini",
        "gemini-interactions", "grok", "ollama", "openrouter", "veo", "vertexai",
    }
)  # fmt: skip


def _of_name(name: str) -> tuple[str, str | None]:
    """The provider and the date that a recording's file name says."""
    match = _NAME.search(name)
    if match is None:
        return "openai", None
    provider = match[1] if match[1] in _OTHERS else "openai"
    if match[2] is None:
        return provider, None
    return provider, date_of(f"{match[2]}T{match[3]}:{match[4]}:{match[5]}.{match[6]}+00:00")


def _require_whole(fixture: Mapping[str, Json], match: _Match, provider: str) -> None:
    if provider != "openai":
        raise _LeftOut(f"a request to {provider} has more than a fixture keeps")
    for holds, reason in _UNKNOWN_REQUEST:
        if holds(match):
            raise _LeftOut(reason)
    metadata = fixture.get("metadata") or {}
    for name, what in (("systemHash", "system message"), ("toolsHash", "tools")):
        if metadata.get(name):
            raise _LeftOut(f"of its {what} only a hash is in the fixture")
    for name, reason in _UNKNOWN_ANSWER:
        if fixture.get(name) is not None:
            raise _LeftOut(reason)


def _pairs(
    fixture: Mapping[str, Json], match: _Match, answer: Mapping[str, Json], model: str | None
) -> Iterator[tuple[Request, Response]]:
    """The plain and the streamed exchange of a fixture."""
    body: dict[str, Json] = {
        "model": match.get("model") or model,
        "messages": [{"role": "user", "content": match["userMessage"]}],
    }
    if not isinstance(body["model"], str):
        raise _LeftOut("it names no model: say which, with --model")
    if match.get("responseFormat"):
        body["response_format"] = {"type": match["responseFormat"]}
    digest = hashlib.sha256(compact([match, answer]).encode()).hexdigest()
    for streamed in (False, True):
        request = _request({**body, "stream": True} if streamed else body)
        if isinstance(answer.get("error"), dict):
            yield request, _error(answer)
        elif streamed:
            yield request, _stream(fixture, answer, body["model"], digest)
        else:
            yield request, _plain(answer, body["model"], digest)


def _request(body: Json) -> Request:
    return Request("POST", _URL, (("content-type", "application/json"),), compact(body).encode())


_JSON: Headers = (("content-type", "application/json"),)
_EVENTS: Headers = (("content-type", "text/event-stream"),)


def _error(answer: Mapping[str, Json]) -> Response:
    error = {"type": None, "param": None, "code": None, **answer["error"]}
    status, headers = int(answer.get("status", 500)), _JSON
    if status == 429:
        headers += (("retry-after", str(answer.get("retryAfter", 1))),)
    return Response(status, headers, (Piece(0.0, compact({"error": error}).encode()),))


# --- answers ----------------------------------------------------------------------------------


def _message(answer: Mapping[str, Json], digest: str) -> dict[str, Json]:
    """The message of an answer: its text, its reasoning, its tool calls."""
    blocks = answer.get("blocks")
    content, calls = answer.get("content"), answer.get("toolCalls")
    if isinstance(blocks, list):
        content = "".join(b["text"] for b in blocks if b["type"] == "text") or content
        calls = [b for b in blocks if b["type"] == "toolCall"] or calls
    if content is None and not calls:
        kinds = ", ".join(sorted(answer)) or "nothing"
        raise _LeftOut(f"its answer ({kinds}) is no chat message")
    if answer.get("webSearches") or answer.get("redactedThinking"):
        raise _LeftOut("its answer has parts that chat completions do not have")
    message: dict[str, Json] = {"role": answer.get("role", "assistant"), "content": _text(content)}
    if answer.get("reasoning"):
        message["reasoning_content"] = answer["reasoning"]
    if calls:
        message["tool_calls"] = [
            {
                "id": call.get("id") or f"call_{digest[:22]}{number:02}",
                "type": "function",
                "function": {"name": call["name"], "arguments": _text(call["arguments"])},
            }
            for number, call in enumerate(calls)
        ]
    return message


def _text(value: Json) -> str | None:
    """Fixtures may spell JSON texts as the JSON that they are."""
    return value if value is None or isinstance(value, str) else compact(value)


def _head(answer: Mapping[str, Json], model: str, digest: str, kind: str) -> dict[str, Json]:
    head: dict[str, Json] = {
        "id": answer.get("id") or f"chatcmpl-{digest[:24]}",
        "object": kind,
        "created": answer.get("created", 0),
        "model": answer.get("model", model),
    }
    if answer.get("systemFingerprint"):
        head["system_fingerprint"] = answer["systemFingerprint"]
    return head


def _reason(answer: Mapping[str, Json], message: Mapping[str, Json]) -> Json:
    return answer.get("finishReason") or ("tool_calls" if "tool_calls" in message else "stop")


def _plain(answer: Mapping[str, Json], model: str, digest: str) -> Response:
    message = _message(answer, digest)
    choice = {"index": 0, "message": message, "finish_reason": _reason(answer, message)}
    body = {**_head(answer, model, digest, "chat.completion"), "choices": [choice]}
    if answer.get("usage"):
        body["usage"] = answer["usage"]
    return Response(200, _JSON, (Piece(0.0, compact(body).encode()),))


def _stream(
    fixture: Mapping[str, Json], answer: Mapping[str, Json], model: str, digest: str
) -> Response:
    message = _message(answer, digest)
    head = _head(answer, model, digest, "chat.completion.chunk")
    deltas: list[tuple[Json, Json]] = [
        (delta, None) for delta in _deltas(message, int(fixture.get("chunkSize") or _CHUNK))
    ]
    deltas.append(({}, _reason(answer, message)))
    chunks = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        for delta, reason in deltas
    ]
    if answer.get("usage"):
        chunks.append({**head, "choices": [], "usage": answer["usage"]})
    events = [f"data: {compact(chunk)}\n\n".encode() for chunk in chunks] + [b"data: [DONE]\n\n"]
    times = _times(fixture.get("recordedTimings"), len(events))
    return Response(200, _EVENTS, tuple(map(Piece, times, events)))


def _deltas(message: Mapping[str, Json], size: int) -> Iterator[Json]:
    yield {"role": message["role"], "content": ""}
    for name in ("reasoning_content", "content"):
        text = message.get(name) or ""
        yield from ({name: text[at : at + size]} for at in range(0, len(text), size))
    for number, call in enumerate(message.get("tool_calls", ())):
        function = call["function"]
        begun = {**call, "index": number, "function": {"name": function["name"], "arguments": ""}}
        yield {"tool_calls": [begun]}
        yield {"tool_calls": [{"index": number, "function": {"arguments": function["arguments"]}}]}


def _times(timings: Json, count: int) -> list[float]:
    """When each event came: first and last as recorded, the rest evenly between them."""
    if not isinstance(timings, dict):
        return [0.0] * count
    first, last = float(timings["ttftMs"]) / 1000, float(timings["totalDurationMs"]) / 1000
    step = (last - first) / max(count - 1, 1)
    return [round(first + step * number, 4) for number in range(count)]
