"""The one JSON form of an answer and of message parts, as log and read model keep it.

Rule 1: names and shapes are those of the published contract; what it has no name for stands under
        `tapes`.
Rule 2: what is empty, zero or false is left out.
Rule 3: reading what was written gives the same answer. Answers that others reduced are read too.
Rule 4: a form says which version of the reducers made it, so that a better one can make it anew.

Knows nothing of providers.  Pure.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from tapes.jsontext import Json
from tapes.providers.ending import Ending
from tapes.providers.turn import (
    Answer,
    AnswerState,
    Choice,
    Failure,
    Media,
    Other,
    Part,
    Parts,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    dicts,
    said,
    whole,
    word,
)
from tapes.providers.usage import Usage, believed

# Goes up with every change of what reducers make of the same bytes.
VERSION = 1

Block = dict[str, Json]


# --- parts ⇄ blocks ---------------------------------------------------------------------------


def block_of(part: Part) -> Block:
    """The block of a part: `type` first, then what is not empty."""
    match part:
        case Text(text, extra):
            return _slim("text", text=text, extra=extra)
        case Reasoning(text, signature):
            return _slim("thinking", thinking=text, thinking_signature=signature)
        case ToolCall():
            plain = isinstance(part.arguments, dict)
            return _slim(
                "server_tool_use" if part.server else "tool_use",
                tool_use_id=part.id,
                tool_name=part.name,
                tool_input=part.arguments if plain else None,
                content=part.raw if part.raw is not None or plain else part.arguments,
                extra=part.extra,
            )
        case ToolResult():
            return _slim(
                part.kind,
                tool_result_id=part.id,
                tool_name=part.name,
                tool_output=part.output,
                is_error=part.is_error,
                content=part.content,
            )
        case Media():
            return _media_block(part)
        case Refusal(text):
            return _slim("refusal", text=text)
        case Other(kind, value):
            return _slim(kind, content=value)


def _media_block(part: Media) -> Block:
    names = {"url": "image_url", "data": "image_base64"} if part.kind == "image" else {}
    return _slim(
        part.kind,
        media_type=part.media_type,
        **{names.get("url", "url"): part.url, names.get("data", "data"): part.data},
        file_id=part.file_id,
    )


def _slim(kind: str, **members: Json) -> Block:
    block: Block = {"type": kind}
    for name, value in members.items():
        if value:
            block[name] = value
    return block


def blocks_of(parts: Iterable[Part]) -> list[Block]:
    """The blocks of parts, in order."""
    return [block_of(part) for part in parts]


def answer_blocks(answer: Answer) -> list[Block]:
    """The blocks of all choices: those of the first as they are, others with `choice`, from 1."""
    blocks = blocks_of(answer.parts)
    for number, choice in enumerate(answer.choices[1:], 1):
        said = [{**block, "choice": number} for block in blocks_of(choice.parts)]
        if said and choice.finish_reason:
            said[-1]["stop_reason"] = choice.finish_reason
        blocks += said
    return blocks


_MEDIA = frozenset({"image", "audio", "video", "file", "document"})


def part_of(block: Block) -> Part:
    """The part of a block."""
    kind = word(block.get("type"))
    if kind == "text":
        return Text(word(block.get("text")), block.get("extra"))
    if kind == "thinking":
        return Reasoning(word(block.get("thinking")), word(block.get("thinking_signature")))
    if kind in ("tool_use", "server_tool_use"):
        return _call_of(block, server=kind == "server_tool_use")
    if kind == "refusal":
        return Refusal(word(block.get("text")))
    if "tool_result_id" in block or kind == "tool_result":
        return ToolResult(
            word(block.get("tool_result_id")),
            word(block.get("tool_output")),
            block.get("is_error") is True,
            block.get("content"),
            word(block.get("tool_name")),
            kind,
        )
    if kind in _MEDIA and "content" not in block:
        return Media(
            kind,
            word(block.get("media_type")),
            word(block.get("image_url") or block.get("url")),
            word(block.get("image_base64") or block.get("data")),
            word(block.get("file_id")),
        )
    return Other(kind, block.get("content"))


def _call_of(block: Block, *, server: bool) -> ToolCall:
    rest = block.get("content")
    broken = isinstance(rest, str)
    return ToolCall(
        word(block.get("tool_use_id")),
        word(block.get("tool_name")),
        None if broken else block.get("tool_input") or rest or {},
        rest if broken else None,
        server,
        block.get("extra"),
    )


def parts_of(blocks: Json) -> Parts:
    """The parts of blocks, in order."""
    return tuple(part_of(block) for block in dicts(blocks))


# --- answers ----------------------------------------------------------------------------------

# What the contract writes as the reason of an answer that has none of its own.
_UNFINISHED = {AnswerState.TRUNCATED: "incomplete", AnswerState.ERROR: "error"}


def reduced(answer: Answer, api: str = "", duration_ns: int | None = None) -> dict[str, Json]:
    """The JSON form of an answer; `duration_ns` is the wall time that was measured beside it."""
    first = answer.choices[0] if answer.choices else said(())
    state = answer.state
    form: dict[str, Json] = {"model": answer.model}
    if answer.created is not None:
        form["created_at"] = datetime.fromtimestamp(answer.created, UTC).isoformat()
    form["message"] = _message_form(first)
    form["done"] = state is AnswerState.COMPLETE
    # A response that was cut short is left without a reason there.
    unfinished = "" if api == "responses" else _UNFINISHED.get(state, "")
    form["stop_reason"] = first.finish_reason or unfinished
    usage = usage_form(answer.usage, duration_ns)
    own = {name: usage.pop(name) for name in _OWN_COUNTS if name in usage}
    if usage:
        form["usage"] = usage
    form["extra"] = _extra(answer, state, api)
    form["tapes"] = {"reducer": VERSION} | own | _own(answer)
    return form


def is_current(form: Json) -> bool:
    """Whether a form was made by the reducers of this version."""
    own = form.get("tapes") if isinstance(form, dict) else None
    return isinstance(own, dict) and own.get("reducer") == VERSION


def _message_form(choice: Choice) -> dict[str, Json]:
    return {"role": choice.message.role, "content": blocks_of(choice.parts)}


def _own(answer: Answer) -> dict[str, Json]:
    """What the contract has no name for."""
    own = {name: value for name, value in answer.extra.items() if name not in _EXTRA}
    if answer.ending is Ending.FINISHED:
        own["ending"] = answer.ending.value
    if answer.problems:
        own["problems"] = list(answer.problems)
    if len(answer.choices) > 1:
        own["choices"] = [
            {
                "role": c.message.role,
                "content": blocks_of(c.parts),
                "stop_reason": c.finish_reason or "",
            }
            for c in answer.choices
        ]
    return own


_OWN_COUNTS = ("reasoning_tokens", "cache_creation_1h_input_tokens")
_OWN_NAMES = frozenset({"reducer", "ending", "problems", "choices", *_OWN_COUNTS})
# What the contract puts into `extra`: as providers say it, and what is said of the answer itself.
_EXTRA = frozenset(
    {"type", "object", "status", "stop_sequence", "context", "load_duration", "eval_duration",
     "prompt_eval_duration", "total_duration"}
)  # fmt: skip


def _extra(answer: Answer, state: AnswerState, api: str) -> dict[str, Json]:
    extra: dict[str, Json] = {"id": answer.id} if answer.id else {}
    extra |= {name: value for name, value in answer.extra.items() if name in _EXTRA}
    if answer.failure is not None:
        extra["error"] = _slim(
            answer.failure.code, message=answer.failure.message, status=answer.failure.status
        )
    if state is AnswerState.TRUNCATED:
        extra |= {"partial": True} if api == "responses" else {"incomplete": True}
        if api == "responses":
            extra["reducer_error"] = "the stream ended before its final event"
    return extra


def usage_form(usage: Usage | None, duration_ns: int | None = None) -> dict[str, Json]:
    """The JSON form of usage; {} where nothing is known. What is unknown is left out."""
    form: dict[str, Json] = {}
    if usage is not None:
        form = {
            "prompt_tokens": usage.input,
            "completion_tokens": usage.output,
            "total_tokens": None if usage.input is usage.output is None else usage.total,
            "cache_creation_input_tokens": usage.cache_write,
            "cache_read_input_tokens": usage.cache_read,
            "cache_creation_1h_input_tokens": usage.cache_write_1h,
            "reasoning_tokens": usage.reasoning,
        }
    form["total_duration_ns"] = duration_ns
    return {name: value for name, value in form.items() if value is not None}


def usage_of_form(form: Json, model: str = "") -> Usage | None:
    """The usage of its JSON form, or None where it counts nothing."""
    if not isinstance(form, dict):
        return None

    def count(name: str) -> int | None:
        return believed(whole(form.get(name)))

    asked, said = count("prompt_tokens"), count("completion_tokens")
    if asked is None and said is None:
        return None
    return Usage(
        asked,
        said,
        count("cache_read_input_tokens"),
        count("cache_creation_input_tokens"),
        count("reasoning_tokens"),
        model or None,
        count("cache_creation_1h_input_tokens"),
    )


def answer_of(form: Json) -> Answer | None:
    """The answer of its JSON form, or None where that is no answer."""
    if not isinstance(form, dict) or not isinstance(form.get("message"), dict):
        return None
    extra = form["extra"] if isinstance(form.get("extra"), dict) else {}
    own = form["tapes"] if isinstance(form.get("tapes"), dict) else {}
    failure = _failure_of(extra.get("error"))
    done = form.get("done") is True
    model = word(form.get("model"))
    problems = own.get("problems")
    counts = form.get("usage")
    counts = counts | own if isinstance(counts, dict) else None
    return Answer(
        choices=_choices_of(form, own.get("choices"), done=done),
        ending=_ending_of(own, done=done),
        model=model,
        id=word(extra.get("id")),
        created=_seconds(form.get("created_at")),
        usage=usage_of_form(counts, model),
        failure=failure,
        extra={name: value for name, value in extra.items() if name in _EXTRA}
        | {name: value for name, value in own.items() if name not in _OWN_NAMES},
        problems=tuple(problems) if isinstance(problems, list) else (),
    )


def _choices_of(form: dict[str, Json], several: Json, *, done: bool) -> tuple[Choice, ...]:
    if several:
        return tuple(_choice_of(c, c.get("stop_reason"), done=done) for c in dicts(several))
    return (_choice_of(form["message"], form.get("stop_reason"), done=done),)


def _choice_of(message: dict[str, Json], reason: Json, *, done: bool) -> Choice:
    told = word(reason)
    own_word = not done and told in _UNFINISHED.values()
    role = word(message.get("role")) or "assistant"
    return said(parts_of(message.get("content")), None if own_word else told or None, role)


def _ending_of(own: dict[str, Json], *, done: bool) -> Ending:
    if not done:
        return Ending.OPEN
    return Ending.FINISHED if own.get("ending") == "finished" else Ending.SAID


def _failure_of(error: Json) -> Failure | None:
    if not isinstance(error, dict):
        return None
    code = word(error.get("type")) or "error"
    return Failure(code, word(error.get("message")), whole(error.get("status")))


def _seconds(text: Json) -> int | None:
    try:
        return int(datetime.fromisoformat(text).timestamp()) if isinstance(text, str) else None
    except ValueError:
        return None
