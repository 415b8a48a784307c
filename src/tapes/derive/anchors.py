"""Which tool call spawned which thread, and which verdict judges which action.

Rule 1: evidence in the order of its strength: what the harness's own log says, what the tool's
        result says, the words that the call hands on. The first that fits decides.
Rule 2: a tool call spawns one thread, and is judged by one check (both its stages).
Rule 3: without evidence there is no anchor. Nearness in time is none.

Knows nothing of traces or of how spans look.  Pure.
"""

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace

from tapes.derive.calls import Call
from tapes.derive.chain import even, plain, way_of
from tapes.derive.tools import ToolUse
from tapes.jsontext import Json
from tapes.loosejson import loose
from tapes.providers.turn import Text, word
from tapes.rows import RawTurn

UNANCHORED = "unanchored"


@dataclass(frozen=True, slots=True)
class Transcript:
    """What a harness's own log says of a thread: its file, or that it was started."""

    agent_id: str
    tool_use_id: str = ""
    agent_type: str = ""
    description: str = ""
    kind: str = ""
    records: Json = None


def replaces(records: Json, before: Json) -> bool:
    """Whether a version of a log counts instead of one that came before it.

    One that is only the beginning of what is known does not: its file was cut, or it came late.
    """
    if not isinstance(records, list) or not isinstance(before, list):
        return True
    return len(records) >= len(before) or before[: len(records)] != records


def transcripts_of(raws: Iterable[RawTurn]) -> list[Transcript]:
    """The newest transcript of each agent, and what tells how it began; no later visits."""
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
        if told.agent_id and told.kind in ("", "started"):
            known = newest.get((told.agent_id, told.kind))
            if known is None or replaces(told.records, known.records):
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


class Spawners:
    """The tool calls of a session that may have spawned a thread, by what tells of it."""

    def __init__(self) -> None:
        self._by_task: dict[str, list[ToolUse]] = {}
        self._by_thread: dict[str, list[ToolUse]] = {}
        self._by_words: dict[str, list[ToolUse]] = {}

    def add(self, tool: ToolUse) -> None:
        """One more tool call; most tell of no thread."""
        told = _result_object(tool)
        if told:
            self._by_task.setdefault(word(told.get("task_name")), []).append(tool)
            for thread in {word(told.get(name)) for name in _THREAD_NAMES}:
                self._by_thread.setdefault(thread, []).append(tool)
        for words in _handed_on(tool):
            self._by_words.setdefault(words, []).append(tool)

    def anchor_of(
        self,
        thread: str,
        calls: Sequence[Call],
        transcripts: Sequence[Transcript],
        taken: Container[str],
    ) -> Anchor | None:
        """Where a thread hangs, or None where nothing says. `calls` are its calls, in order."""
        told = _transcript_of(thread, calls, transcripts)
        if told is not None and told.tool_use_id:
            return Anchor(told.tool_use_id, "transcript", told.agent_type, told.description)

        def free(tools: Iterable[ToolUse]) -> list[ToolUse]:
            began = calls[0].started
            return [t for t in tools if t.id not in taken and t.asked_by.started <= began]

        path, nickname = _spawned_as(calls)
        by_path = free(self._by_task.get(path, ())) if path else []
        if len(by_path) == 1:
            return _anchor(by_path[0], "task_name", nickname, path)
        by_result = free(self._by_thread.get(thread, ()))
        if len(by_result) == 1:
            return _anchor(by_result[0], "result", nickname, path)
        by_words = [t for words in _first_words(calls) for t in free(self._by_words.get(words, ()))]
        if not by_words:
            return None
        first = min(by_words, key=lambda tool: (tool.asked_by.started, tool.place))
        return _anchor(first, "prompt", nickname, path)


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
    if own:  # its file tells what it is, and where it hangs is often told by another
        first = next((told for told in own if told.tool_use_id), own[0])
        name = next((told.agent_type for told in own if told.agent_type), "")
        about = next((told.description for told in own if told.description), "")
        return replace(first, agent_type=name, description=about)
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
    ways = [way_of(message) for message in calls[0].turn.asked.messages]
    last = next((way for way in reversed(ways) if way is not None), {})
    return word(last.get("recipient")), ""


def _result_object(tool: ToolUse) -> dict[str, Json]:
    if tool.result is None or not tool.result.output.lstrip().startswith("{"):
        return {}
    try:
        value = loose(tool.result.output)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


# What a tool calls the agent that it spawned.
_THREAD_NAMES = ("agent_id", "thread_id", "session_id")
_HANDED_ON = ("prompt", "message", "task", "instructions", "input")


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


_WEB = ("web", "fetch", "search")


class Actions:
    """The tool calls of a session, as side calls look for them."""

    def __init__(self) -> None:
        self._by_words: dict[str, list[ToolUse]] = {}
        self._by_name: dict[str, list[ToolUse]] = {}
        self._web: list[ToolUse] = []
        self._plans: list[ToolUse] = []

    def add(self, tool: ToolUse) -> None:
        """One more tool call."""
        name = tool.block.name
        if name.startswith("mcp__"):
            self._by_name.setdefault(_normal(name), []).append(tool)
        else:
            self._by_words.setdefault(_rendered(tool)[:_COMPARED], []).append(tool)
        if name.lower().startswith(_WEB):
            self._web.append(tool)
        if name == "ExitPlanMode":
            self._plans.append(tool)

    def judged_by(self, check: Call, taken: Container[str]) -> ToolUse | None:
        """The tool call that a permission check judges: of its own thread first, the latest."""
        action = action_of(check)
        if not action:
            return None
        fitting = list(self._by_words.get(action[:_COMPARED], ()))
        for name, tools in self._by_name.items():
            fitting += tools if action.startswith(name) else []
        return _latest(check, fitting, taken)

    def used_web(self, call: Call, taken: Container[str]) -> ToolUse | None:
        """The latest earlier web tool call that no summary belongs to yet."""
        return _latest(call, self._web, taken)

    def left_plan_mode(self, call: Call, taken: Container[str]) -> ToolUse | None:
        """The latest earlier call to leave plan mode that no name belongs to yet."""
        return _latest(call, self._plans, taken)


def _latest(call: Call, tools: Iterable[ToolUse], taken: Container[str]) -> ToolUse | None:
    free = [t for t in tools if t.id not in taken and t.asked_by.started <= call.started]
    return max(
        free, key=lambda t: (t.asked_by.thread == call.thread, t.asked_by.started), default=None
    )


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
