"""The documentation says what is there, and what it shows runs."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tapes import errors
from tapes.errors import CassetteError, TapesError
from tapes.project import Declared, declared_for
from tests.running import ROOT, run

DOCS = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CHANGELOG.md"])
TEXTS = {file: file.read_text(encoding="utf-8") for file in DOCS}
ALL_TEXT = "\n".join(TEXTS.values())
KINDS = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, CassetteError | TapesError)
]


class Block(NamedTuple):
    """A block of code in a page."""

    file: Path
    line: int
    words: str
    code: str


def blocks() -> Iterator[Block]:
    for file, text in TEXTS.items():
        for match in re.finditer(r"^```([^\n]*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text.count("\n", 0, match.start()) + 1
            yield Block(file, line, match[1].strip(), match[2])


BLOCKS = list(blocks())


def marked(words: str) -> list[Any]:
    return [
        pytest.param(block, id=f"{block.file.name}:{block.line}")
        for block in BLOCKS
        if block.words == words
    ]


# --- errors


def rows_of_errors() -> dict[str, list[str]]:
    table = TEXTS[ROOT / "docs" / "errors.md"]
    rows = re.findall(r"^\| `([a-z-]+)` \|(.*)\|$", table, re.MULTILINE)
    return {slug: [cell.strip() for cell in re.split(r"(?<!\\)\|", rest)] for slug, rest in rows}


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.slug)
def test_every_error_is_documented_with_its_statuses_and_a_remedy(
    kind: type[CassetteError] | type[TapesError],
) -> None:
    exit_status, http_status, what, remedy = rows_of_errors()[kind.slug]
    assert (exit_status, http_status) == (str(kind.exit_status), str(kind.http_status))
    assert what.endswith(".")
    assert remedy


def test_no_error_is_documented_that_is_not_there() -> None:
    assert rows_of_errors().keys() - {kind.slug for kind in KINDS} == set()


# --- settings


@cache
def variables() -> set[str]:
    """Every environment variable that the sources name."""
    return {
        node.value
        for file in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.fullmatch(r"(CASSETTE|TAPES|DEMO)_[A-Z_]+", node.value)
    }


def test_every_environment_variable_is_documented() -> None:
    assert len(variables()) >= 6
    assert {name for name in variables() if f"`{name}`" not in ALL_TEXT} == set()


# --- links


def anchors(text: str) -> set[str]:
    """The places of a page that a link can lead to."""
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("file", DOCS, ids=lambda file: file.name)
def test_links_lead_somewhere(file: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", TEXTS[file]):
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        page = (file.parent / name).resolve() if name else file
        assert page.exists(), target
        if anchor:
            assert anchor in anchors(page.read_text(encoding="utf-8")), target


# --- examples


@pytest.mark.parametrize("block", marked("python run"))
def test_an_example_runs(block: Block, tmp_path: Path) -> None:
    result = run(block.code, tmp_path)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("block", marked("toml tapes.toml"))
def test_a_declaration_can_be_read(block: Block, tmp_path: Path) -> None:
    (tmp_path / "tapes.toml").write_text(block.code, encoding="utf-8")
    declared = declared_for(tmp_path / "tests" / "tapes" / "weather.jsonl")
    assert declared != Declared(source=declared.source)


def test_the_pages_have_examples_that_run() -> None:
    assert len(marked("python run")) >= 4
    assert len(marked("toml tapes.toml")) >= 3


def test_every_page_begins_with_a_title() -> None:
    assert [file.name for file, text in TEXTS.items() if not text.startswith("# ")] == []
