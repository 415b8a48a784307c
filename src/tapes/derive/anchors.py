"""Which tool call spawned which thread, and which verdict judges which action.

Rule 1: evidence in the order of its strength: what the harness's own log says, what the tool's
        result says, the words that the call hands on. The first that fits decides.
Rule 2: a tool call spawns one thread, and is judged by one check (both its stages).
Rule 3: without evidence there is no anchor. Nearness in time is none.

Knows nothing of traces or of how spans look.  Pure.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tapes.derive.calls import Call
from tapes.derive.chain import even, plain
from tapes.jsontext import Json
from tapes.loosejson import loose
from tapes.providers.turn import Text, ToolCall, ToolResult, word
from tapes.rows import RawTurn

UNANCHORED = "unanchored"


@dataclass(slots=True)
class ToolUse:
    """A tool call, the call that asked for it, and its result as soon as one was seen."""

    asked_by: Call
    block: ToolCall
    result: ToolResult | None = None
    brought_by: Call | None = None

    @property
    def id(self) -> str:
        """The provider's id of the call."""
        return self.block.id

    def argument(self, *names: str) -> str:
        """The first of these arguments that is text and not empty."""
        given = self.block.arguments
        if not isinstance(given, dict):
            return ""
        return next((given[n] for n in names if isinstance(given.get(n), str) and given[n]), "")


@dataclass(frozen=True, slots=True)
class Transcript:
    """What a harness's own log says of a thread: its file, or that it was started."""

    agent_id: str
    tool_use_id: str = ""
    agent_type: str = ""
    description: str = ""
    kind: str = ""
    records: Json = None


def transcripts_of(raws: Iterable[RawTurn]) -> list[Transcript]:
    """The newest transcript of each agent and kind. Those that only tell of a visit say nothing."""
    newest: dict[tuple[str, str], Transcript] = {}
    for raw in sorted(raws, key=lambda r: (r.id, r.request_id)):
        meta = raw.meta if isinstance(raw.meta, dict) else {}
        told = Transcript(
            word(meta.get("agent_id")),
            word(meta.get("tool_use_id")),
            word(meta.get("agent_type")),
            word(meta.get("description")),
            word(meta.get("kind")),
            raw.records,
        )
        if told.agent_id and told.kind != "interacted":
            newest[told.agent_id, told.kind] = told
    return list(newest.values())


# --- threads ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Anchor:
    """The tool call under which a thread hangs, and the evidence for it."""

    tool_id: str
    by: str
    agent: str = ""
    description: str = ""


def anchor_of(
    thread: str,
    calls: Sequence[Call],
    tools: Iterable[ToolUse],
    transcripts: Sequence[Transcript],
    taken: frozenset[str],
) -> Anchor | None:
    """Where a thread hangs, or None where nothing says.

    `calls` are its calls in order, `tools` those that `may_spawn`, in order.
    """
    told = _transcript_of(thread, calls, transcripts)
    if told is not None and told.tool_use_id:
        return Anchor(told.tool_use_id, "transcript", told.agent_type, told.description)
    began = calls[0].started
    free = [tool for tool in tools if tool.id not in taken and tool.asked_by.started <= began]
    path, nickname = _spawned_as(calls)
    by_path = [tool for tool in free if path and _task_name(tool) == path]
    if len(by_path) == 1:
        return _anchor(by_path[0], "task_name", nickname, path)
    by_result = [tool for tool in free if _names_thread(tool, thread)]
    if len(by_result) == 1:
        return _anchor(by_result[0], "result", nickname, path)
    words = _first_words(calls)
    by_words = next((tool for tool in free if not words.isdisjoint(_handed_on(tool))), None)
    return None if by_words is None else _anchor(by_words, "prompt", nickname, path)


def _anchor(tool: ToolUse, by: str, nickname: str, path: str) -> Anchor:
    agent = (
        nickname
        or tool.argument("subagent_type", "agent_type", "agent")
        or path.rstrip("/").rpartition("/")[2]
        or tool.argument("task_name")
    )
    return Anchor(tool.id, by, agent, tool.argument("description") or path)


def _transcript_of(
    thread: str, calls: Sequence[Call], transcripts: Sequence[Transcript]
) -> Transcript | None:
    own = [told for told in transcripts if told.agent_id == thread]
    if own:
        return next((told for told in own if told.tool_use_id), own[0])
    files = [told for told in transcripts if told.records and told.tool_use_id]
    if not files:
        return None
    words = {even(p.text) for c in calls for _, n in c.new_messages() for p in _texts(n.message)}
    shared = [(len(words & _words_in(told.records)), told.agent_id, told) for told in files]
    count, _, best = max(shared, key=lambda item: item[:2])
    return best if count else None


def _texts(message: Json) -> list[Text]:
    return [part for part in message.parts if isinstance(part, Text)]


def _words_in(records: Json) -> set[str]:
    """The texts of the messages in the records of a transcript."""
    found: set[str] = set()
    for record in records if isinstance(records, list) else ():
        message = record.get("message") if isinstance(record, dict) else None
        content = message.get("content") if isinstance(message, dict) else None
        if isinstance(content, str):
            found.add(even(content))
        for block in content if isinstance(content, list) else ():
            if isinstance(block, dict) and isinstance(block.get("text"), str):
                found.add(even(block["text"]))
    return found


def _spawned_as(calls: Sequence[Call]) -> tuple[str, str]:
    """The path and the nickname under which a harness says that it spawned this thread."""
    for call in calls:
        place: Json = call.raw.envelope.harness_metadata
        for name in ("source", "subagent", "thread_spawn"):
            place = place.get(name) if isinstance(place, dict) else None
        if isinstance(place, dict):
            return word(place.get("agent_path")), word(place.get("agent_nickname"))
    return "", ""


def _result_object(tool: ToolUse) -> dict[str, Json]:
    if tool.result is None or not tool.result.output.lstrip().startswith("{"):
        return {}
    try:
        value = loose(tool.result.output)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _task_name(tool: ToolUse) -> str:
    return word(_result_object(tool).get("task_name"))


_RESULT_NAMES = frozenset({"task_name", "agent_id", "thread_id", "session_id"})


def _names_thread(tool: ToolUse, thread: str) -> bool:
    told = _result_object(tool)
    return any(told.get(name) == thread for name in _RESULT_NAMES - {"task_name"})


_HANDED_ON = ("prompt", "message", "task", "instructions", "input")


def may_spawn(tool: ToolUse) -> bool:
    """Whether a tool call hands words on, or its result names somebody."""
    return bool(_handed_on(tool)) or not _RESULT_NAMES.isdisjoint(_result_object(tool))


def _handed_on(tool: ToolUse) -> set[str]:
    given = tool.block.arguments
    if not isinstance(given, dict):
        return set()
    return {even(given[n]) for n in _HANDED_ON if isinstance(given.get(n), str) and given[n]}


def _first_words(calls: Sequence[Call]) -> set[str]:
    """The texts with which a thread begins: each block of its first message of the user."""
    for message in calls[0].turn.asked.messages:
        if message.role == "user":
            blocks = {even(part.text) for part in _texts(message)}
            return (blocks | {plain(part.text) for part in _texts(message)}) - {""}
    return set()


# --- side calls -------------------------------------------------------------------------------

_SHOWN = (
    "command", "query", "file_path", "path", "pattern", "url", "prompt", "skill", "message",
    "subject",
)  # fmt: skip
_COMPARED = 22
_BETWEEN = re.compile(r"[^\w./-]+")


def _normal(text: str) -> str:
    return _BETWEEN.sub(" ", text.lower()).strip()


def action_of(check: Call) -> str:
    """The action that a permission check judges, as its transcript shows it last."""
    blocks = [p.text for m in check.turn.asked.messages for p in m.parts if isinstance(p, Text)]
    for number, block in enumerate(blocks):
        before, closed, _ = block.partition("</transcript>")
        if closed and not before.strip() and number:
            return _normal(_last_line(blocks[number - 1]))
        if closed:
            return _normal(_last_line(before))
    return ""


_TOOL_LIKE = re.compile(r"\s*[\"{]*[\w.-]+[\"]?\s*[:({ ]")


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return next((line for line in reversed(lines) if _TOOL_LIKE.match(line)), text)


def _rendered(tool: ToolUse) -> str:
    given: Json = tool.block.arguments
    given = given if isinstance(given, dict) else {}
    shown = next((given[name] for name in _SHOWN if given.get(name)), "")
    words = " ".join(map(str, shown)) if isinstance(shown, list) else str(shown)
    return _normal(f"{tool.block.name} {words}")


def judged(check: Call, tools: Iterable[ToolUse], taken: frozenset[str]) -> ToolUse | None:
    """The tool call that a permission check judges: of its own thread first, the latest first."""
    action = action_of(check)
    if not action:
        return None
    free = [t for t in tools if t.id not in taken and t.asked_by.started <= check.started]
    fitting = [tool for tool in free if _fits(action, tool)]
    fitting.sort(key=lambda t: (t.asked_by.thread == check.thread, t.asked_by.started))
    return fitting[-1] if fitting else None


def _fits(action: str, tool: ToolUse) -> bool:
    if tool.block.name.startswith("mcp__"):
        return action.startswith(_normal(tool.block.name))
    return action[:_COMPARED] == _rendered(tool)[:_COMPARED]


_WEB = ("web", "fetch", "search")


def used_web(call: Call, tools: Iterable[ToolUse], taken: frozenset[str]) -> ToolUse | None:
    """The latest earlier web tool call that no summary belongs to yet."""
    return _latest(call, (t for t in tools if t.block.name.lower().startswith(_WEB)), taken)


def left_plan_mode(call: Call, tools: Iterable[ToolUse], taken: frozenset[str]) -> ToolUse | None:
    """The latest earlier call to leave plan mode that no name belongs to yet."""
    return _latest(call, (t for t in tools if t.block.name == "ExitPlanMode"), taken)


def _latest(call: Call, tools: Iterable[ToolUse], taken: frozenset[str]) -> ToolUse | None:
    free = [t for t in tools if t.id not in taken and t.asked_by.started <= call.started]
    return max(free, key=lambda t: t.asked_by.started, default=None)


def verdict_of(check: Call, stage: int) -> dict[str, Json] | None:
    """What a permission check decided, or None where its answer says nothing."""
    answer = "".join(p.text for p in check.turn.answer.parts if isinstance(p, Text))
    found = re.search(r"<block>\s*(yes|no)", answer, re.IGNORECASE)
    if found is None:
        return None
    blocks = found[1].lower() == "yes"
    return {
        "disposition": "BLOCK" if blocks else "ALLOW",
        "stage": stage,
        "reasoned": "<thinking>" in answer,
    }
