"""The content address of messages, and which of them a call says first.

Rule 1: the address of a message is the SHA-256 of the RFC 8785 form of its words and the address
        before it. Model, provider and time are no part of it, nor is what a harness puts around
        the words; so a turn as it was streamed and as it is sent again have one address.
Rule 2: a call's chain is its request's messages and then its answer. A message that is nothing but
        injected context is in the chain, and the next message goes on from the one before it.
Rule 3: a message is fresh in the first call that says it. Only what is fresh is shown.
Rule 4: after a resume, history looks fresh. What stands at or before the last fresh message of the
        assistant is history all the same.

Knows nothing of sessions, traces or kinds.  Pure.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, NamedTuple

from tapes.jsontext import Json, fast_canonical
from tapes.loosejson import packed
from tapes.providers.turn import (
    SYSTEM_ROLES,
    Media,
    Message,
    Other,
    Part,
    Parts,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    text_of,
)

# --- words without what a harness puts around them -------------------------------------------

# In this order: an inner tag of a later name goes with its outer one.
TAGS = (
    "system-reminder", "command-name", "command-message", "command-args", "local-command-stdout",
    "local-command-stderr", "local-command-caveat", "session", "conversation", "new-diagnostics",
    "task-notification", "status", "summary", "transcript", "event", "tool-use-id", "output-file",
    "task-id", "environment_context", "session_context",
)  # fmt: skip
_ANY_TAG = re.compile("|".join(f"<{tag}>" for tag in TAGS))


def plain(text: str) -> str:
    """The words of a text: harness tags and their content out, white space made even."""
    if "<" in text and _ANY_TAG.search(text):
        for tag in TAGS:
            text = _without(text, tag)
    return even(text)


# Tags around words that are the user's own.
_HIS_OWN = frozenset({"session", "conversation", "command-args"})
_PLUGIN = re.compile(r"\s*\[@[^\]]*\]\(plugin://[^)]*\)\s*")


def prompt_words(text: str) -> str:
    """The words of a text for people: as `plain`, and what the user himself gave is kept."""
    if "<" in text and _ANY_TAG.search(text):
        for tag in TAGS:
            if tag in _HIS_OWN:
                text = text.replace(f"<{tag}>", "").replace(f"</{tag}>", "")
            else:
                text = _without(text, tag)
    mention = _PLUGIN.match(text)
    return even(text[mention.end() :] if mention else text)


def even(text: str) -> str:
    """No blanks at line ends, no empty lines, nothing around the text."""
    if "\n" not in text:
        return text.strip()
    lines = (line.rstrip(" \t") for line in text.replace("\r\n", "\n").split("\n"))
    return "\n".join(line for line in lines if line).strip()


def _without(text: str, tag: str) -> str:
    opening, closing = f"<{tag}>", f"</{tag}>"
    start = text.find(opening)
    if start < 0:
        return text
    kept, place = [], 0
    while start >= 0:
        kept.append(text[place:start])
        end = text.find(closing, start)
        if end < 0:
            return "".join(kept)  # never closed: the rest is inside
        place = end + len(closing)
        start = text.find(opening, place)
    return "".join((*kept, text[place:]))


# What a message that a harness injects begins with, and what it is.
INJECTED: tuple[tuple[str, str], ...] = (
    ("# MCP Server Instructions", "injected:mcp-instructions"),
    ("The following skills are available", "injected:skills-list"),
    ("Plan mode is active", "injected:mode-banner"),
    ("Exited Plan Mode", "injected:mode-banner"),
    ("## Exited Plan Mode", "injected:mode-banner"),
    ("## Exit Plan Mode", "injected:mode-banner"),
    ("## Plan Mode", "injected:mode-banner"),
    ("[SYSTEM NOTIFICATION", "injected:mode-banner"),
    ("<user_claude_md>", "injected:claude-md"),
)


def way_of(message: Message) -> dict[str, Json] | None:
    """From whom and to whom one agent sent a message to another; None for any other message."""
    for part in message.parts:
        if isinstance(part, Other) and part.kind == "agent_message":
            return part.value if isinstance(part.value, dict) else None
    return None


def injected_kind(message: Message) -> str:
    """What kind of injected context a message is; "" where it is somebody's own words."""
    if message.role not in ("user", *SYSTEM_ROLES):
        return ""
    if not all(isinstance(part, Text) for part in message.parts):
        return ""
    text = plain(text_of(message.parts))
    return next((kind for beginning, kind in INJECTED if text.startswith(beginning)), "")


# What Claude Code leaves where its user broke in.
_BROKE_IN = re.compile(r"\[Request interrupted by user[^\]\n]*\]")


def own_parts(message: Message) -> Parts:
    """What of a message is the user's own: beside results of tools, what follows where he broke in.

    The results, the mark that he broke in and his next words come as one message.
    """
    own: list[Part] = []
    broke_in = False
    for part in message.parts:
        mark = _BROKE_IN.match(part.text) if isinstance(part, Text) else None
        if mark is not None and isinstance(part, Text):
            broke_in, own = True, [Text(part.text[mark.end() :])]
        else:
            own.append(part)
    if broke_in or not any(isinstance(part, ToolResult) for part in own):
        return tuple(part for part in own if not isinstance(part, ToolResult))
    return ()


# --- the projection that is hashed ------------------------------------------------------------


def projected(parts: Parts) -> list[dict[str, Json]]:
    """The blocks of a message as its address sees them."""
    blocks = (_projected(part) for part in parts)
    return [block for block in blocks if block is not None]


def _projected(part: Part) -> dict[str, Json] | None:
    match part:
        case Text(text):
            words = plain(text)
            return {"type": "text", "text": words} if words else None
        case ToolCall():
            given = slim(part.arguments) if isinstance(part.arguments, dict) else None
            kind = "server_tool_use" if part.server else "tool_use"
            return _kept(kind, tool_use_id=part.id, tool_name=part.name, tool_input=given)
        case ToolResult():
            return _kept(
                part.kind,
                tool_result_id=part.id,
                tool_output=plain(part.output),
                is_error=part.is_error,
                content=None if part.kind == "tool_result" else part.content,
            )
        case Reasoning(text):
            return _kept("thinking", thinking=text)
        case Media():
            return _kept(
                part.kind,
                image_url=part.url,
                image_base64=part.data,
                file_id=part.file_id,
                media_type=part.media_type,
            )
        case Refusal(text):
            return _kept("refusal", text=text)
        case _:
            return {"type": part.kind}


def _kept(kind: str, **members: Json) -> dict[str, Json]:
    return {"type": kind} | {name: value for name, value in members.items() if value}


def slim(value: dict[str, Json]) -> dict[str, Json]:
    """An object without members that say nothing: null, false, "", 0, [], and empty objects."""
    out: dict[str, Json] = {}
    for name, member in value.items():
        kept = slim(member) if isinstance(member, dict) else member
        if kept:
            out[name] = kept
    return out


# --- RFC 8785 ---------------------------------------------------------------------------------


def jcs(value: Json) -> bytes:
    """The one text of a JSON value after RFC 8785."""
    fast = fast_canonical(value) if _is_plain(value) else None
    return _jcs(value).encode("utf-8", "replace") if fast is None else fast


def _is_plain(value: Any) -> bool:
    """Whether every writer gives the same text: no floats, no large numbers, ASCII names."""
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return True
    if kind is dict:
        return all(name.isascii() and _is_plain(member) for name, member in value.items())
    if kind is list:
        return all(_is_plain(item) for item in value)
    return kind is int and -_EXACT < value < _EXACT


_EXACT = 2**53


def _jcs(value: Any) -> str:
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda member: member[0].encode("utf-16-be"))
        inner = ",".join(f"{json.dumps(n, ensure_ascii=False)}:{_jcs(v)}" for n, v in members)
        return "{" + inner + "}"
    return "[" + ",".join(_jcs(item) for item in value) + "]"


def _number(value: float) -> str:
    """As ECMAScript writes the double that is nearest; what is beyond all of them as it is."""
    try:
        number = Decimal(repr(float(value)))
    except OverflowError:
        number = Decimal(value)
    if number == 0:
        return "0"
    if not number.is_finite():
        return json.dumps(str(number))  # which no JSON can say, and agents send all the same
    sign, digits, exponent = number.normalize().as_tuple()
    text = "".join(map(str, digits))
    point = len(text) + int(exponent)
    if 0 < point <= 21:
        text = text.ljust(point, "0") if len(text) <= point else f"{text[:point]}.{text[point:]}"
    elif -6 < point <= 0:
        text = "0." + "0" * -point + text
    else:
        head = text[0] + ("." + text[1:] if len(text) > 1 else "")
        text = f"{head}e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return ("-" if sign else "") + text


# --- addresses --------------------------------------------------------------------------------


class Node(NamedTuple):
    """A message in a chain."""

    hash: str
    message: Message
    injected: str = ""


class _Known(NamedTuple):
    message: Message  # held, so that its identity stays its own
    digest: Any
    injected: str
    lacks_ids: bool


class Addresses:
    """The addresses of messages, each worked out once."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        self._hashes: dict[tuple[int, str], str] = {}
        # The last chain that began with a message: the next request goes on from there.
        self._last: dict[int, tuple[tuple[Message, ...], tuple[Node, ...]]] = {}

    def chain(self, messages: Sequence[Message]) -> tuple[Node, ...]:
        """The nodes of messages, each going on from the last that was not injected."""
        messages = tuple(messages)
        if not messages:
            return ()
        before, known = self._last.get(id(messages[0]), ((), ()))
        if messages[: len(before)] != before:
            before, known = (), ()
        nodes, parent = list(known), last_of_chain(known)
        for message in messages[len(before) :]:
            hash_, injected = self.after(message, parent), self._of(message).injected
            nodes.append(Node(hash_, message, injected))
            parent = parent if injected else hash_
        chain = tuple(nodes)
        self._last[id(messages[0])] = messages, chain
        return chain

    def after(self, message: Message, parent: str) -> str:
        """The address of a message that follows the address `parent` ("" for none)."""
        key = (id(message), parent)
        known = self._hashes.get(key)
        if known is None:
            digest = self._of(message).digest.copy()
            digest.update(f'"{parent}"}}'.encode())
            known = self._hashes[key] = digest.hexdigest()
        return known

    def lacks_ids(self, messages: Iterable[Message]) -> bool:
        """Whether a tool call or a result in these messages has no id."""
        return any(self._of(message).lacks_ids for message in messages)

    def _of(self, message: Message) -> _Known:
        known = self._known.get(id(message))
        if known is None:
            content = {
                "content": projected(message.parts),
                "role": message.role,
                "type": "message",
            }
            # `parent` sorts after `content`: what stands before it is hashed once.
            digest = hashlib.sha256(b'{"content":' + jcs(content) + b',"parent":')
            lacks = any(_lacks_id(part) for part in message.parts)
            known = _Known(message, digest, injected_kind(message), lacks)
            self._known[id(message)] = known
        return known


def last_of_chain(nodes: Sequence[Node]) -> str:
    """The address that an answer to these messages goes on from."""
    return next((node.hash for node in reversed(nodes) if not node.injected), "")


def boundary(nodes: Sequence[Node], fresh: frozenset[int]) -> int:
    """The place of the last fresh message of the assistant, or -1: what is history all the same."""
    assistants = (i for i in fresh if nodes[i].message.role == "assistant")
    return max(assistants, default=-1)


# --- tool calls without ids -------------------------------------------------------------------


def with_ids(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Messages in which every tool call has an id, and every result that of its call.

    Some providers give none. A call's id is then made from the beginning of the conversation, the
    calls that are made with it, and how often these were made before: it is the same in the answer
    and in every later history.
    """
    root = hashlib.sha256(packed(projected(messages[0].parts)) if messages else b"").hexdigest()
    naming = _Naming(root)
    return tuple(naming.named(message) for message in messages)


def is_made(call_id: str) -> bool:
    """Whether an id was made here, for a call that its provider gave none."""
    return _MADE.fullmatch(call_id) is not None


_MADE = re.compile(r"call_[0-9a-f]{16}_\d+_\d+")


def _lacks_id(part: Part) -> bool:
    return isinstance(part, ToolCall | ToolResult) and not part.id


class _Naming:
    def __init__(self, root: str) -> None:
        self._root = root
        self._times: dict[str, int] = {}
        self._open: list[ToolCall] = []

    def named(self, message: Message) -> Message:
        parts = message.parts
        if not any(_lacks_id(part) for part in parts):
            return message
        calls = [p for p in parts if isinstance(p, ToolCall) and not p.id]
        if calls:
            said = [[call.name, call.arguments] for call in calls]
            key = hashlib.sha256(self._root.encode() + packed(said)).hexdigest()[:16]
            times = self._times[key] = self._times.get(key, 0) + 1
            self._open = [
                replace(call, id=f"call_{key}_{times}_{number}")
                for number, call in enumerate(calls, 1)
            ]
        waiting = iter(self._open)
        return replace(message, parts=tuple(self._named(part, waiting) for part in parts))

    def _named(self, part: Part, calls: Iterator[ToolCall]) -> Part:
        if isinstance(part, ToolCall) and not part.id:
            return next(calls, part)
        if isinstance(part, ToolResult) and not part.id:
            same = [call for call in self._open if part.name in ("", call.name)]
            if same:
                self._open.remove(same[0])
                return replace(part, id=same[0].id)
        return part
