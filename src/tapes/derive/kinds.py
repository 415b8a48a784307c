"""What kind of call this is, by an ordered table of rules.

Rule 1: the first rule that fits decides; the table is its documentation.
Rule 2: a call that no rule of a side call fits is a `main` call. Only in sessions of harnesses
        whose main calls are known to stream with tools is it `unknown`, and there only while the
        session has a main call of that form.
Rule 3: rules that go by the form of a text alone (a title, a name, a summary) count only in an
        agent's session. An application may well ask for JSON with a title: where no call of the
        main thread has tools, and no known harness is at work, its calls are main calls.

Knows nothing of traces or spans.  Pure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tapes.jsontext import Json
from tapes.providers.turn import SYSTEM_ROLES, Turn, text_of

MAIN = "main"
UNKNOWN = "unknown"
PROBE = "offshoot:probe"
SUGGESTION = "offshoot:suggestion"
TITLE = "offshoot:title-gen"
PLAN_NAME = "offshoot:plan-name-gen"
WEB_SUMMARY = "offshoot:web-summary"
COMPACTION = "offshoot:compaction"
CHECK_1 = "offshoot:permission-check:stage1"
CHECK_2 = "offshoot:permission-check:stage2"
CHECKS = (CHECK_1, CHECK_2)

# Harnesses whose own side calls have been seen, so that the form of their main calls is known.
STREAM_WITH_TOOLS = frozenset({"claude", "codex"})


@dataclass(frozen=True, slots=True)
class Seen:
    """What the rules look at. Texts are as they came unless the name says `lower`."""

    system_lower: str
    first: str  # the first message
    last: str  # the last message
    answer: str
    max_tokens: Json
    tools: bool
    stream: bool
    chooses_tool: bool


def seen(turn: Turn) -> Seen:
    """What the rules look at in a turn."""
    asked = turn.asked
    # A leading system message is instructions, not the conversation's first message.
    said = [m for m in asked.messages if m.role not in SYSTEM_ROLES]
    return Seen(
        system_lower=asked.instructions.lower(),
        first=text_of(said[0].parts).lstrip() if said else "",
        last=text_of(said[-1].parts).lstrip() if said else "",
        answer=text_of(turn.answer.parts).lstrip(),
        max_tokens=asked.settings.get("max_tokens"),
        tools=bool(asked.tools),
        stream=asked.stream,
        chooses_tool=turn.api == "responses" and _enabled(asked.settings.get("tool_choice")),
    )


def _enabled(choice: Json) -> bool:
    return bool(choice) and choice != "none"


def _judges(s: Seen) -> bool:
    return "you are a security monitor" in s.system_lower


def _first_stage(s: Seen) -> bool:
    short = isinstance(s.max_tokens, int) and s.max_tokens <= 64
    return _judges(s) and (short or "err on the side of blocking" in s.last.lower())


_COMPACTS = (
    "summary of the conversation so far",
    "context checkpoint compaction",
    "create a handoff summary for another llm",
)
_TITLES = "you are a title generator"  # OpenCode's, which answers with the title alone
_WEB = ("Web page content:", "Perform a web search")
_SECTIONS = (
    "Key Technical Concepts", "Files and Code Sections", "Pending Tasks", "Current Work",
    "Errors and fixes", "Problem Solving", "All user messages", "Optional Next Step",
)  # fmt: skip


def _compacts(s: Seen) -> bool:
    last = s.last.lower()
    if any(words in last for words in _COMPACTS):
        return True
    return "Primary Request and Intent" in s.answer and any(t in s.answer for t in _SECTIONS)


def _plan_name(s: Seen) -> bool:
    told = "<conversation>" in s.system_lower or s.first.startswith("<conversation>")
    return not s.tools and told


# Kind, what it needs, and whether it goes by the form of a text alone.
RULES: tuple[tuple[str, Callable[[Seen], bool], bool], ...] = (
    (CHECK_1, _first_stage, False),
    (CHECK_2, _judges, False),
    (PROBE, lambda s: s.max_tokens == 1 and not s.tools, False),
    (SUGGESTION, lambda s: s.last.startswith("[SUGGESTION MODE"), True),
    (TITLE, lambda s: not s.tools and '{"title"' in s.system_lower, True),
    (TITLE, lambda s: not s.tools and s.system_lower.startswith(_TITLES), True),
    (PLAN_NAME, _plan_name, True),
    (TITLE, lambda s: s.answer.startswith('{"title"'), True),
    (PLAN_NAME, lambda s: s.answer.startswith('{"name"'), True),
    (WEB_SUMMARY, lambda s: s.first.startswith(_WEB), True),
    (COMPACTION, _compacts, True),
    (MAIN, lambda s: s.stream and s.tools, False),
    (MAIN, lambda s: s.stream and s.chooses_tool, False),
)


# The kind of the first rule that fits ("" for none), and whether it goes by the form of a text.
Fitting = tuple[str, bool]


def kinds_of(
    turns: Sequence[tuple[Turn, str]], harness_id: str, known: Sequence[Fitting] | None = None
) -> list[str]:
    """The kind of each turn of one session. Each comes with its thread, "" for the main one.

    `known` are the rules that fit them, where somebody has looked already.
    """
    found = [fitting(turn) for turn, _ in turns] if known is None else known
    on_main = [not thread for _, thread in turns]
    if harness_id in STREAM_WITH_TOOLS:
        known_form = any(m and kind == MAIN for m, (kind, _) in zip(on_main, found, strict=True))
        return [UNKNOWN if kind == "" and known_form else kind or MAIN for kind, _ in found]
    agent = any(m and turn.asked.tools for m, (turn, _) in zip(on_main, turns, strict=True))
    return [kind if kind and (agent or not by_form) else MAIN for kind, by_form in found]


def fitting(turn: Turn) -> Fitting:
    """The first rule that fits a turn, whatever else is in its session."""
    looked = seen(turn)
    for kind, fits, by_form in RULES:
        if fits(looked):
            return kind, by_form
    return "", False
