"""Conversations that several tests derive from."""

from tapes.rows import Projection, RawTurn, Span
from tests.turns import assistant, call, messages, result, user

ASK, DO = user("list the files"), assistant("I look.", call("t1", "Bash", command="ls"))
BACK, DONE = user(result("t1", "a.txt")), assistant("one file: a.txt")
MORE, OK = user("and now?"), assistant("nothing")
CONVERSATION = [ASK, DO, BACK, DONE, MORE]


def conversation() -> list[RawTurn]:
    return [
        messages(1, [ASK], DO),
        messages(2, [ASK, DO, BACK], DONE),
        messages(3, CONVERSATION, OK),
    ]


def span(made: Projection, span_id: str) -> Span:
    return next(s for s in made.spans if s.span_id == span_id)


def kinds(made: Projection) -> list[tuple[str, str]]:
    return [(s.kind.value, s.span_id) for s in made.spans]


TASK = "find the widget"
SPAWN = assistant(call("t9", "Agent", prompt=TASK))
SUB_DO = assistant(call("t10", "Bash", command="grep widget"))
SUB_BACK = user(result("t10", "alpha.md"))


def with_thread() -> list[RawTurn]:
    return [
        messages(1, [ASK], SPAWN),
        messages(2, [user(TASK)], SUB_DO, thread="a", begins=12),
        messages(3, [user(TASK), SUB_DO, SUB_BACK], assistant("alpha"), thread="a", begins=14),
        messages(4, [ASK, SPAWN, user(result("t9", "alpha"))], DONE, begins=20),
    ]
