"""Every deliberate failure: its classes, its texts, and what can stop it."""

import ast
import pickle
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from tapes import errors
from tapes.errors import (
    BudgetExhausted,
    CassetteError,
    CassetteMiss,
    LatchClosed,
    TapesError,
    UnreadableTape,
    as_typed,
)

CLASSES = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, CassetteError | TapesError)
]
REFUSALS = [kind for kind in CLASSES if issubclass(kind, CassetteError)]


@pytest.mark.row("A6")
@pytest.mark.parametrize("kind", REFUSALS)
def test_no_except_exception_swallows_a_refusal(kind: type[CassetteError]) -> None:
    def agent() -> None:
        try:
            raise kind("what", "remedy")
        except Exception:  # noqa: BLE001  # what an agent's retry does
            pytest.fail("swallowed")

    with pytest.raises(kind):
        agent()


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_refusal_ends_the_process_with_its_text(kind: type[CassetteError]) -> None:
    error = kind("what happened", "what to type")
    assert isinstance(error, SystemExit)
    assert error.code == "what happened\nwhat to type"
    assert error.exit_status != 0


@pytest.mark.row("B4")
def test_a_spent_budget_is_also_a_runtime_error_and_so_is_a_miss() -> None:
    with pytest.raises(RuntimeError):
        raise BudgetExhausted("spent")
    with pytest.raises(RuntimeError):
        raise CassetteMiss("missing")
    assert not issubclass(LatchClosed, RuntimeError)


@pytest.mark.parametrize("kind", CLASSES)
def test_an_error_survives_the_way_to_another_process(
    kind: type[CassetteError] | type[TapesError],
) -> None:
    copied = pickle.loads(pickle.dumps(kind("what", remedy="remedy")))
    assert type(copied) is kind
    assert (copied.message, copied.remedy) == ("what", "remedy")


@pytest.mark.parametrize("kind", CLASSES)
def test_every_error_says_its_statuses(kind: type[CassetteError] | type[TapesError]) -> None:
    assert 0 < kind.exit_status < 126
    assert 400 <= kind.http_status < 600
    assert kind.__doc__


def test_no_two_errors_share_a_slug() -> None:
    slugs = [kind.slug for kind in CLASSES]
    assert len(set(slugs)) == len(slugs)


def test_texts_have_the_remedy_on_a_line_of_its_own_where_there_is_one() -> None:
    assert str(UnreadableTape("broken", "mend it")) == "broken\nmend it"
    assert str(UnreadableTape("broken")) == "broken"
    assert CassetteMiss("gone").code == "gone"


@pytest.mark.parametrize(
    "path", ["a b.jsonl", "test_rain[nb].jsonl", "it's.db", "$HOME/ü.db", "t.jsonl"]
)
def test_a_path_in_a_command_is_what_a_shell_takes_for_it(path: str) -> None:
    assert shlex.split(f"tapes tape ls {as_typed(path)}")[-1] == path
    assert as_typed(Path("t.jsonl")) == "t.jsonl"
    assert as_typed("-a b.jsonl") == "'./-a b.jsonl'"


COMMAND = re.compile(
    r"(?:^|[\s:=])(?:(?:tapes|pytest|ls|rm|cp|mv|sqlite3)(?: [a-z]+)*|\$\{EDITOR:-vi\})"
    r"(?: (?:--?\S+|X))* $"
)
# No paths, but what is typed as it is.
SAFE = {"key", "session_id[:8]", "COMMAND"}


def commands_without_quotes(tree: ast.AST) -> Iterator[str]:
    for text in ast.walk(tree):
        before = ""
        for part in text.values if isinstance(text, ast.JoinedStr) else ():
            if isinstance(part, ast.Constant):
                before += str(part.value)
            elif isinstance(part, ast.FormattedValue):
                value = ast.unparse(part.value)
                is_typed = re.match(r"(as_typed|quote|shlex\.quote|shlex\.join)\(", value)
                if COMMAND.search(before) and not is_typed and value not in SAFE:
                    yield f"{before}{{{value}}}"
                before += "X"


def test_every_command_that_is_told_has_its_paths_in_quotes_where_they_need_them() -> None:
    sources = Path(errors.__file__).parent.rglob("*.py")
    found = [
        f"{source.name}: {command}"
        for source in sources
        for command in commands_without_quotes(ast.parse(source.read_text("utf-8")))
    ]
    assert [one for one in found if "no tapes below" not in one] == []
