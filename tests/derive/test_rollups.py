"""What traces and sessions add up to."""

from decimal import Decimal
from typing import Any

import pytest

from tapes.derive.deriver import derive
from tapes.exchange import State
from tapes.jsontext import Json
from tapes.prices import Price, Prices
from tapes.providers.usage import Usage
from tapes.rows import ModelUsage, Outcome, RawTurn, Session, Task
from tests.turns import (
    assistant,
    call,
    chat,
    messages,
    raw_turn,
    result,
    said,
    user,
)

HI = said("user", "hi")


def price(_usage: Usage, _provider: str, _at: int) -> Decimal | None:
    """Twelve cents for a call of a model that is known."""
    return None if _usage.model == "acme-local-7b" else Decimal("0.12")


def session(*turns: RawTurn, prices: object = price) -> Session:
    return derive(turns, prices).sessions[0]  # type: ignore[arg-type] # any pricing function


# --- tokens and money -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "reported", "declared", "tokens", "cost"),
    [
        (
            "/v1/messages",
            {
                "content": [],
                "stop_reason": "end_turn",
                "usage": {
                    "input_tokens": 5,
                    "cache_read_input_tokens": 128955,
                    "cache_creation_input_tokens": 1253,
                    "output_tokens": 42,
                },
            },
            ("3.00", "15.00", "0.30", "3.75"),
            (130213, 42, 128955, 1253),
            "0.04403025",
        ),
        (
            "/v1/chat/completions",
            {
                "choices": [{"message": {"content": "x"}, "finish_reason": "stop"}],
                "usage": {
                    "prompt_tokens": 17903,
                    "completion_tokens": 100,
                    "total_tokens": 18003,
                    "prompt_tokens_details": {"cached_tokens": 17817},
                },
            },
            ("2.50", "10.00", "1.25", None),
            (17903, 100, 17817, None),
            "0.02348625",
        ),
    ],
)
def test_cached_tokens_are_counted_and_priced_once(
    path: str,
    reported: dict[str, Json],
    declared: tuple[str, str, str, str | None],
    tokens: tuple[int, int, int, int | None],
    cost: str,
) -> None:
    each = [None if text is None else Decimal(text) for text in declared]
    assert each[0] is not None
    assert each[1] is not None
    mine = Price(model="m", input=each[0], output=each[1], cache_read=each[2], cache_write=each[3])
    turn = raw_turn(1, path, {"messages": [HI]}, reported | {"model": "m"})
    made = derive([turn], Prices([mine], table=False))
    for row in (made.sessions[0], made.traces[0]):
        assert (
            row.total_input_tokens,
            row.total_output_tokens,
            row.cache_read_tokens,
            row.cache_creation_tokens,
        ) == tokens
        assert row.total_cost_usd == Decimal(cost)
    assert made.sessions[0].total_tokens == tokens[0] + tokens[1]
    assert made.spans[1].cost_usd == Decimal(cost)


def test_a_call_without_a_price_is_counted_beside_the_sum() -> None:
    made = session(
        chat(1, [HI], "a", model="gpt-test"),
        chat(2, [said("user", "b")], "b", model="acme-local-7b", tokens=(1000, 50)),
    )
    assert (made.total_cost_usd, made.unpriced_calls) == (Decimal("0.12"), 1)
    assert (made.total_input_tokens, made.total_output_tokens) == (1100, 60)
    alone = session(chat(1, [HI], "b", model="acme-local-7b", tokens=(1000, 50)))
    assert (alone.total_cost_usd, alone.unpriced_calls) == (None, 1)


def test_a_declared_zero_is_a_price() -> None:
    free = Prices([Price(model="acme-local-7b", input=Decimal(0), output=Decimal(0))])
    made = session(chat(1, [HI], "b", model="acme-local-7b"), prices=free)
    assert (made.total_cost_usd, made.unpriced_calls) == (Decimal(0), 0)


def test_absent_usage_is_unknown_not_zero() -> None:
    made = session(chat(1, [HI], "a", tokens=None))
    assert (made.total_input_tokens, made.total_cost_usd) == (None, None)
    assert (made.uncounted_calls, made.unpriced_calls) == (1, 1)
    assert made.total_tokens is None
    both = session(chat(1, [HI], "a", tokens=None), chat(2, [said("user", "b")], "b"))
    assert (both.total_input_tokens, both.uncounted_calls) == (100, 1)


def test_a_call_that_was_refused_or_failed_counts_nothing_and_lacks_no_price() -> None:
    failed = raw_turn(1, "/v1/chat/completions", {"messages": [HI]}, {"error": "x"}, status=429)
    made = session(failed, chat(2, [HI], "a"))
    assert (made.failed_calls, made.uncounted_calls, made.unpriced_calls) == (1, 0, 0)
    assert made.total_cost_usd == Decimal("0.12")


def test_what_came_from_a_tape_cost_nothing_and_saved_its_price() -> None:
    live = chat(1, [HI], "a", outcome=Outcome.RECORDED)
    replayed = chat(2, [said("user", "b")], "b", outcome=Outcome.REPLAYED)
    made = session(live, replayed)
    assert (made.total_cost_usd, made.saved_cost_usd) == (Decimal("0.12"), Decimal("0.12"))
    assert (made.llm_calls, made.replayed_calls, made.unpriced_calls) == (2, 1, 0)
    alone = session(replayed)
    assert (alone.total_cost_usd, alone.saved_cost_usd) == (Decimal(0), Decimal("0.12"))
    unpriced = session(replayed, chat(3, [HI], "c", model="acme-local-7b"))
    assert (unpriced.total_cost_usd, unpriced.unpriced_calls) == (None, 1)


def test_each_model_is_told_apart_the_dearest_first() -> None:
    made = session(
        chat(1, [HI], "a", model="acme-local-7b"),
        chat(2, [said("user", "b")], "b", model="gpt-test"),
        chat(3, [said("user", "c")], "c", model="gpt-test"),
    )
    assert made.model_usage == (
        ModelUsage("gpt-test", 2, 200, 20, Decimal("0.24")),
        ModelUsage("acme-local-7b", 1, 100, 10, None, 1),
    )
    assert made.derived_model == "gpt-test"


# --- sub-agents -------------------------------------------------------------------------------


def test_a_sub_agents_calls_are_counted_once_and_its_own_claim_is_not_added() -> None:
    task, ask = "count the files", user("how many files?")
    spawn = assistant(call("t1", "Agent", prompt=task))
    claim = result("t1", "three files\n<usage>input_tokens: 150 output_tokens: 15</usage>")
    steps = [user(task)]
    turns = [messages(1, [ask], spawn, tokens=(100, 10))]
    for number in range(2, 5):
        answer = assistant(f"step {number}")
        turns.append(
            messages(number, steps, answer, tokens=(50, 5), thread="a", begins=10 + number)
        )
        steps = [*steps, answer, user(f"go on {number}")]
    turns.append(messages(5, [ask, spawn, user(claim)], assistant("3"), tokens=(200, 20)))
    made = derive(turns, price)
    totals = made.sessions[0]
    assert (totals.total_input_tokens, totals.total_output_tokens) == (450, 45)
    tool = next(s for s in made.spans if s.span_id == "t1")
    assert "input_tokens: 150" in tool.output[0]["tool_output"]


def test_main_tokens_leave_out_side_calls() -> None:
    title = messages(
        2, [user("t")], assistant('{"title":"T"}'), tools=False, system='{"title"', tokens=(7, 1)
    )
    (trace,) = derive([messages(1, [user("x")], assistant("y")), title]).traces
    assert (trace.total_input_tokens, trace.total_output_tokens) == (107, 11)
    assert (trace.main_input_tokens, trace.main_output_tokens) == (100, 10)


# --- titles, tasks, statuses ------------------------------------------------------------------


def test_a_title_may_come_without_json_from_a_generator_of_titles() -> None:
    how: dict[str, Any] = {"tools": False, "system": "You are a title generator."}
    title = messages(2, [user("x")], assistant("Say\nhello"), harness="opencode", **how)
    made = session(messages(1, [user("do it")], assistant("done"), harness="opencode"), title)
    assert made.derived_title == "Say hello"


def test_the_last_title_that_was_made_is_the_title() -> None:
    titles = [
        messages(n, [user("x")], assistant(f'{{"title": "{text}"}}'), tools=False)
        for n, text in ((2, "First"), (3, "Second"))
    ]
    made = session(messages(1, [user("do it")], assistant("done")), *titles)
    assert (made.derived_title, made.preview) == ("Second", "do it")


def tasks(*done: tuple[str, Json, str]) -> tuple[Task, ...]:
    """The tasks of an agent that made these calls, one after the other."""
    history, turns = [user("go")], list[RawTurn]()
    for number, (name, given, output) in enumerate(done, 1):
        asks = assistant(call(f"t{number}", name, **given))
        turns.append(messages(number, history, asks))
        history = [*history, asks, user(result(f"t{number}", output))]
    turns.append(messages(len(done) + 1, history, assistant("done")))
    return session(*turns).tasks


def test_tasks_stand_as_they_were_left() -> None:
    assert tasks(
        ("TaskCreate", {"subject": "a", "description": "aa"}, "Task #1 created"),
        ("TaskCreate", {"subject": "b"}, "Task #2 created"),
        ("TaskCreate", {"subject": "c"}, "Task #3 created"),
        ("TaskUpdate", {"taskId": "1", "status": "in_progress"}, "ok"),
        ("TaskUpdate", {"taskId": "1", "status": "completed", "subject": "A"}, "ok"),
        ("TaskUpdate", {"taskId": "3", "status": "deleted"}, "ok"),
        ("TaskUpdate", {"taskId": "9", "status": "completed"}, "no such task"),
    ) == (Task("1", "A", "aa", "completed", 2), Task("2", "b"))


GIT = call("t1", "Bash", command="git commit -m x")


def failing(count: int, total: int) -> list[RawTurn]:
    ids = [f"t{n}" for n in range(total)]
    asks = assistant(*(call(i, "Read", file_path=i) for i in ids))
    back = user(*(result(i, "x", failed=n < count) for n, i in enumerate(ids)))
    start = user("go")
    return [
        messages(1, [start], asks),
        messages(2, [start, asks, back], assistant("done")),
    ]


def ended(reason: str) -> RawTurn:
    answered = {"choices": [{"message": {"content": "x"}, "finish_reason": reason}]}
    return raw_turn(1, "/v1/chat/completions", {"messages": [HI]}, answered)


def git(name: str, **given: Json) -> list[RawTurn]:
    start, asks = user("go"), assistant(call("t1", name, **given))
    return [messages(1, [start], asks)]


@pytest.mark.parametrize(
    ("turns", "status"),
    [
        ([ended("stop")], "completed"),
        ([ended("tool_calls")], "completed"),
        ([ended("length")], "failed"),
        ([ended("content_filter")], "failed"),
        ([ended("some_error")], "failed"),
        ([ended("odd")], "unknown"),
        (failing(2, 3), "failed"),
        (failing(1, 3), "completed"),
        (failing(1, 2), "completed"),
        (git("Bash", command="git push"), "completed"),
        ([messages(1, [user("x")], assistant("y"), thread="a")], "unknown"),
    ],
)
def test_a_sessions_status_is_that_of_its_last_main_call(turns: list[RawTurn], status: str) -> None:
    assert session(*turns).derived_status == status


def test_a_session_that_broke_or_was_left_says_so() -> None:
    asked = {"messages": [HI], "stream": True}
    cut = b'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'
    for state, status in (
        (State.ABORTED_BY_CLIENT, "abandoned"),
        (State.UPSTREAM_ERROR, "failed"),
    ):
        turn = raw_turn(1, "/v1/chat/completions", asked, None, stream=cut, state=state)
        assert session(turn).derived_status == status


@pytest.mark.parametrize(
    ("name", "given", "committed"),
    [
        ("Bash", {"command": "cd x && git commit -m y"}, True),
        ("shell", {"command": ["bash", "-lc", "git push"]}, True),
        ("exec_command", {"cmd": "git commit"}, True),
        ("Bash", {"command": "git status"}, False),
        ("Write", {"command": "git commit"}, False),
    ],
)
def test_commits_are_seen_in_every_harnesss_shell(
    name: str, given: dict[str, Json], committed: bool
) -> None:
    assert session(*git(name, **given)).has_git_activity is committed


def test_results_errors_and_kinds_are_counted() -> None:
    made = session(*failing(1, 3))
    assert (made.tool_result_count, made.tool_error_count) == (3, 1)
    assert made.kind_counts == (("main", 2),)


def test_a_long_prompt_is_cut_between_characters() -> None:
    long = "ü" * 200
    made = derive([chat(1, [said("user", long)], long)])
    assert made.traces[0].user_prompt == made.traces[0].response_preview == "ü" * 140
    assert made.sessions[0].preview == "ü" * 120


def test_a_prompt_shows_the_users_own_words() -> None:
    prompt = user(
        "<system-reminder>x</system-reminder>", "Run it.", "<command-args>now</command-args>"
    )
    (trace,) = derive([messages(1, [prompt], assistant("ok"))]).traces
    assert trace.user_prompt == "Run it.\nnow"
