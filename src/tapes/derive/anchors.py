"""Which tool call spawned which thread, and which verdict judges which action.

Rule 1: evidence in the order of its strength: what the harness's own log says, what the tool's
        result says, the words that the call hands on. The first that fits decides.
Rule 2: a tool call spawns one thread, and is judged by one check (both its stages).
Rule 3: without evidence there is no anchor. Nearness in time is none.

Knows nothing of traces or of how spans look.  Pure.
"""

import re
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import NamedTuple

from tapes.derive.calls import Call
from tapes.derive.chain import even, plain, way_of
from tapes.derive.tools import ToolUse
from tapes.jsontext import Json
from tapes.loosejson import loose
from tapes.providers.turn import Text, word
from tapes.rows import RawTurn

UNANCHORED = "unanchored"

# By what a tool call and the thread that it spawned find each other: what kind, and its value.
Key = tuple[str, str]


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


class Sought(NamedTuple):
    """What a thread says of the tool call that spawned it, and what its transcript tells."""

    thread: str
    began: int
    told: Transcript | None
    path: str
    nickname: str
    words: frozenset[str]

    @property
    def keys(self) -> Iterator[Key]:
        """By what tool calls are found that may have spawned it."""
        yield "thread", self.thread
        if self.path:
            yield "task", self.path
        yield from (("words", words) for words in self.words)


class Spawners:
    """The tool calls of a session that may have spawned a thread, by what tells of it."""

    def __init__(self) -> None:
        self._by_key: dict[Key, _InTime] = {}
        self._keys: dict[str, tuple[Key, ...]] = {}

    def add(self, tool: ToolUse) -> tuple[Key, ...]:
        """One more tool call, found by these; most tell of no thread."""
        told = _result_object(tool)
        keys = {("words", words) for words in _handed_on(tool)}
        if told:
            keys.add(("task", word(told.get("task_name"))))
            keys |= {("thread", word(told.get(name))) for name in _THREAD_NAMES}
        for key in keys:
            self._by_key.setdefault(key, _InTime()).add(tool)
        if keys:
            self._keys[tool.id] = tuple(keys)
        return tuple(keys)

    def keys_of(self, tool_id: str) -> tuple[Key, ...]:
        """By what a tool call is found."""
        return self._keys.get(tool_id, ())

    def anchor_of(self, sought: Sought, taken: Container[str]) -> Anchor | None:
        """Where a thread hangs, or None where nothing says. `taken` never has fewer."""
        told, path, nickname = sought.told, sought.path, sought.nickname
        if told is not None and told.tool_use_id:
            return Anchor(told.tool_use_id, "transcript", told.agent_type, told.description)

        def free(key: Key, most: int) -> list[ToolUse]:
            known = self._by_key.get(key)
            return [] if known is None else known.first(most, sought.began, taken)

        by_path = free(("task", path), 2) if path else []
        if len(by_path) == 1:
            return _anchor(by_path[0], "task_name", nickname, path)
        by_result = free(("thread", sought.thread), 2)
        if len(by_result) == 1:
            return _anchor(by_result[0], "result", nickname, path)
        by_words = [tool for words in sought.words for tool in free(("words", words), 1)]
        if not by_words:
            return None
        first = min(by_words, key=lambda tool: (tool.asked_by.started, tool.place))
        return _anchor(first, "prompt", nickname, path)


def sought_by(thread: str, calls: Sequence[Call], transcripts: "Transcripts") -> Sought:
    """What a thread says of how it began. `calls` are its calls, in order."""
    told = transcripts.of(thread, calls)
    words = frozenset(_first_words(calls))
    return Sought(thread, calls[0].started, told, *_spawned_as(calls), words)


class _InTime:
    """Tool calls in the order of their time; those that are taken are forgotten."""

    def __init__(self) -> None:
        self._tools: list[ToolUse] = []

    def add(self, tool: ToolUse) -> None:
        """One more."""
        insort(self._tools, tool, key=lambda each: (each.asked_by.started, each.place))

    def first(self, most: int, until: int, taken: Container[str]) -> list[ToolUse]:
        """So many at most that were asked for until then and are not taken."""
        found: list[ToolUse] = []
        tools = self._tools
        while len(found) < min(most, len(tools)):
            tool = tools[len(found)]
            if tool.asked_by.started > until:
                break
            if tool.id in taken:
                del tools[len(found)]
            else:
                found.append(tool)
        return found


def _anchor(tool: ToolUse, by: str, nickname: str, path: str) -> Anchor:
    agent = (
        nickname
        or tool.argument("subagent_type", "agent_type", "agent")
        or path.rstrip("/").rpartition("/")[2]
        or tool.argument("task_name")
    )
    return Anchor(tool.id, by, agent, tool.argument("description") or path)


class Transcripts:
    """What harnesses tell of the threads of a session."""

    def __init__(self, raws: Iterable[RawTurn]) -> None:
        self._all = transcripts_of(raws)
        self._by_agent: dict[str, list[Transcript]] = {}
        for told in self._all:
            self._by_agent.setdefault(told.agent_id, []).append(told)
        self._by_words: dict[str, list[int]] | None = None  # made when it is first asked for

    def of(self, thread: str, calls: Sequence[Call]) -> Transcript | None:
        """That of a thread: by its name, else the one with which it has most words in common."""
        own = self._by_agent.get(thread)
        if own:  # its file tells what it is, and where it hangs is often told by another
            first = next((told for told in own if told.tool_use_id), own[0])
            name = next((told.agent_type for told in own if told.agent_type), "")
            about = next((told.description for told in own if told.description), "")
            return replace(first, agent_type=name, description=about)
        if self._by_words is None:
            self._by_words = {}
            for number, told in enumerate(self._all):
                if told.records and told.tool_use_id:
                    for text in _words_in(told.records):
                        self._by_words.setdefault(text, []).append(number)
        if not self._by_words:
            return None
        said = {even(p.text) for c in calls for _, n in c.new_messages() for p in _texts(n.message)}
        shared = Counter(number for text in said for number in self._by_words.get(text, ()))
        # Of several: the name that comes last; the first of one name.
        best = max(shared, key=lambda n: (shared[n], self._all[n].agent_id, -n), default=None)
        return None if best is None else self._all[best]


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
        self._by_words: dict[str, _Before] = {}
        self._by_name: dict[str, _Before] = {}
        self._web, self._plans = _Before(), _Before()

    def add(self, tool: ToolUse) -> None:
        """One more tool call."""
        name = tool.block.name
        if name.startswith("mcp__"):
            self._by_name.setdefault(_normal(name), _Before()).add(tool)
        else:
            self._by_words.setdefault(_rendered(tool)[:_COMPARED], _Before()).add(tool)
        if name.lower().startswith(_WEB):
            self._web.add(tool)
        if name == "ExitPlanMode":
            self._plans.add(tool)

    def judged_by(self, check: Call, taken: Container[str]) -> ToolUse | None:
        """The tool call that a permission check judges: of its own thread first, the latest."""
        action = action_of(check)
        if not action:
            return None
        by_words = self._by_words.get(action[:_COMPARED])
        fitting = [] if by_words is None else [by_words]
        fitting += (tools for name, tools in self._by_name.items() if action.startswith(name))
        found = (tools.latest(check, taken) for tools in fitting)
        return max(
            (tool for tool in found if tool is not None),
            key=lambda t: (t.asked_by.thread == check.thread, t.asked_by.started),
            default=None,
        )

    def used_web(self, call: Call, taken: Container[str]) -> ToolUse | None:
        """The latest earlier web tool call that no summary belongs to yet."""
        return self._web.latest(call, taken)

    def left_plan_mode(self, call: Call, taken: Container[str]) -> ToolUse | None:
        """The latest earlier call to leave plan mode that no name belongs to yet."""
        return self._plans.latest(call, taken)


class _Before:
    """Tool calls, found by who looks back at them; those that are taken are forgotten.

    All that look for calls in one of these take them for good, or never do.
    """

    def __init__(self) -> None:
        self._number = 0
        self._all: list[_Placed] = []
        self._of_thread: dict[str, list[_Placed]] = {}

    def add(self, tool: ToolUse) -> None:
        """One more."""
        # Of those that one answer asks for the first is found first, as one looks back.
        self._number -= 1
        placed = (tool.asked_by.started, self._number, tool)
        own = self._of_thread.setdefault(tool.asked_by.thread, [])
        insort(self._all, placed, key=_WHEN)
        insort(own, placed, key=_WHEN)

    def latest(self, call: Call, taken: Container[str]) -> ToolUse | None:
        """The latest that was asked for before, of its own thread first."""
        own = self._of_thread.get(call.thread, [])
        return _latest(own, call.started, taken) or _latest(self._all, call.started, taken)


_Placed = tuple[int, int, ToolUse]
_WHEN = itemgetter(0, 1)


def _latest(tools: list[_Placed], until: int, taken: Container[str]) -> ToolUse | None:
    at = bisect_right(tools, until, key=itemgetter(0)) - 1
    while at >= 0:
        tool = tools[at][2]
        if tool.id not in taken:
            return tool
        del tools[at]
        at -= 1
    return None


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
