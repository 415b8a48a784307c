"""Every row is proved by a test, or says what it waits for."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.requirements import REQUIREMENTS

TESTS = Path(__file__).parent
ROWS = {requirement.row: requirement for requirement in REQUIREMENTS}


@cache
def proved() -> dict[str, list[str]]:
    """The rows that tests name, each with the places that name it."""
    places: dict[str, list[str]] = {}
    for file in sorted(TESTS.rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            for row in _rows_of(node):
                places.setdefault(row, []).append(f"{file.relative_to(TESTS)}:{node.lineno}")  # type: ignore[attr-defined]  # a call has a line
    return places


def _rows_of(node: ast.AST) -> Iterator[str]:
    match node:
        # Written out only where it may be one: that takes longer than all the rest.
        case ast.Call(func=ast.Attribute(attr="row") as func, args=arguments) if (
            ast.unparse(func) == "pytest.mark.row"
        ):
            for argument in arguments:
                assert isinstance(argument, ast.Constant), ast.unparse(node)
                yield str(argument.value)


def test_every_row_has_a_test_or_says_what_it_waits_for() -> None:
    missing = {r.row for r in REQUIREMENTS if not r.later} - proved().keys()
    assert sorted(missing) == []


def test_no_test_proves_a_row_that_is_not_there() -> None:
    unknown = {row: places for row, places in proved().items() if row not in ROWS}
    assert unknown == {}


def test_what_is_proved_waits_for_nothing() -> None:
    waiting = {row: places for row, places in proved().items() if row in ROWS and ROWS[row].later}
    assert waiting == {}


def test_no_row_is_there_twice() -> None:
    assert len(ROWS) == len(REQUIREMENTS)
    assert all(requirement.what.endswith(".") for requirement in REQUIREMENTS)
