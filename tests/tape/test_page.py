"""The page about tapes says what is so."""

import json
import re
from pathlib import Path

from tapes import errors
from tapes.canonical import key_of_exchange_request
from tapes.tape.base import blob_hash
from tapes.tape.jsonl import JsonlTape
from tapes.tape.kinds import kind_of

PAGE = Path(__file__).parents[2] / "docs" / "tapes.md"


def test_the_rows_on_the_page_are_rows(tmp_path: Path) -> None:
    rows = re.findall(r"```jsonl\n(.*?)```", PAGE.read_text(), re.DOTALL)[0]
    (tmp_path / "t.jsonl").write_text(rows)
    found = list(JsonlTape(tmp_path / "t.jsonl").exchanges())
    assert len(found) == 2
    for exchange in found:
        assert key_of_exchange_request(exchange.canonicalizer, exchange.request) == exchange.key
    body = json.loads(rows.splitlines()[2])
    assert body["hash"] == blob_hash(body["response"]["text"].encode())


def test_the_names_on_the_page_have_the_kinds_that_it_says() -> None:
    table = {"JSONL file": "jsonl", "directory": "directory", "SQLite database": "sqlite"}
    for home, kind in table.items():
        (names,) = re.findall(rf"^\| {home} \| (.*?) \|", PAGE.read_text(), re.MULTILINE)
        assert {kind_of(name) for name in re.findall("`(.*?)`", names)} == {kind}


def test_slugs_and_exit_statuses_on_the_page_are_those_of_the_errors() -> None:
    known = {
        (error.slug, str(error.exit_status))
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, errors.TapesError)
    }
    said = set(re.findall(r"\| `([a-z-]+)`, (\d) \|", PAGE.read_text()))
    assert said <= known
    assert len(said) == 6
