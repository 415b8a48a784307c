"""Tool calls with their results: what was asked, what came back, and what became of it.

Rule 1: the first result that is sent counts; later copies are history. What the thread sends that
        asked counts before what another does: an agent that takes over a conversation may find
        a call in it whose result is not there yet, and tell its model that it was aborted.
Rule 2: where a provider gave its call no id and the agent made one up, name and arguments tell that
        they are the same.
Rule 3: a tool failed where its result says so, or where a shell's output tells its exit status.

Knows nothing of traces or of threads.  Pure.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tapes.derive.calls import Call
from tapes.derive.chain import is_made
from tapes.loosejson import loose
from tapes.providers.turn import ToolCall, ToolResult
from tapes.rows import Status


@dataclass(slots=True)
class ToolUse:
    """A tool call, the call that asked for it, and its result as soon as one was seen."""

    asked_by: Call
    block: ToolCall
    place: int = 0  # among the tool calls of its session
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


def results_in(calls: Sequence[Call]) -> dict[str, tuple[ToolResult, Call]]:
    """By the id of the tool call: the result that counts, and the call that brought it."""
    asked_in: dict[str, str] = {}
    for call in calls:
        for part in call.turn.answer.parts:
            if isinstance(part, ToolCall):
                asked_in.setdefault(part.id, call.thread)
    own: dict[str, tuple[ToolResult, Call]] = {}
    others: dict[str, tuple[ToolResult, Call]] = {}
    renamed = _Renamed()
    for call in calls:
        said = [call.turn.answer.parts]
        if call.is_conversation:
            said += [call.nodes[index].message.parts for index in sorted(call.fresh)]
        for part in (part for parts in said for part in parts):
            if isinstance(part, ToolCall):
                renamed.take(part, call.thread, is_known=part.id in asked_in)
            elif isinstance(part, ToolResult):
                tool_id = renamed.known_as(part.id, call.thread)
                found = own if asked_in.get(tool_id) == call.thread else others
                found.setdefault(tool_id, (part, call))
    return others | own


class _Renamed:
    """Calls without an id of their provider, and the ids that an agent gave them afterwards."""

    def __init__(self) -> None:
        self._nameless: dict[str, list[ToolCall]] = {}
        self._known_as: dict[tuple[str, str], str] = {}

    def take(self, part: ToolCall, thread: str, *, is_known: bool) -> None:
        """A call in an answer, or in what an agent says was answered, in the order of both."""
        waiting = self._nameless.setdefault(thread, [])
        if is_known:
            if is_made(part.id) and part not in waiting:
                waiting.append(part)
            return
        for one in waiting:
            if (one.name, one.arguments) == (part.name, part.arguments):
                self._known_as[thread, part.id] = one.id
                waiting.remove(one)
                return

    def known_as(self, tool_id: str, thread: str) -> str:
        """The id of the call in its answer."""
        return self._known_as.get((thread, tool_id), tool_id)


def tool_status(tool: ToolUse) -> Status:
    """What became of a tool call: its result says, or its shell's exit status."""
    if tool.result is None:
        return Status.RUNNING
    failed = tool.result.is_error or (
        tool.block.name in _SHELLS and _exit_status(tool.result.output) not in (None, 0)
    )
    return Status.ERROR if failed else Status.OK


_SHELLS = frozenset({"exec", "exec_command", "shell", "shell_command", "local_shell"})
_EXITED = re.compile(r"(?:Process exited with code|Exit code:) (-?[0-9]{1,10})")


def _exit_status(output: str) -> int | None:
    """The exit status that a shell tool of another harness reports in its output."""
    if output.lstrip().startswith("{"):
        try:
            told = loose(output)
        except ValueError:
            return None
        about = told.get("metadata") if isinstance(told, dict) else None
        code = about.get("exit_code") if isinstance(about, dict) else None
        return code if isinstance(code, int) else None
    for line in output[:2000].splitlines():
        if told := _EXITED.fullmatch(line.strip()):
            return int(told[1])
    return None


def command_of(block: ToolCall) -> str:
    """The command line of a shell tool's call; "" for any other tool."""
    given = block.arguments
    if not isinstance(given, dict) or block.name not in (*_SHELLS, "Bash"):
        return ""
    command = given.get("command") or given.get("cmd") or ""
    return " ".join(map(str, command)) if isinstance(command, list) else str(command)


def shown_name(block: ToolCall) -> str:
    """The name of a tool as people know it."""
    if block.name in _SHELLS and command_of(block):
        return "Bash"
    return block.name or "tool"
