import io
import json
import re
import sys
from decimal import Decimal

import pytest

from tapes.cli.main import tell
from tapes.cli.output import (
    Table,
    cells,
    count,
    cut,
    facts,
    money,
    note,
    size,
    when,
    write,
    write_json,
    write_json_line,
    write_json_list,
)
from tapes.errors import BadSetting


@pytest.mark.parametrize(
    ("text", "room", "shown"),
    [
        ("short", 10, "short"),
        ("exactly ten", 11, "exactly ten"),
        ("a long line", 6, "a lon…"),
        ("日本語", 5, "日本…"),
        ("日本語", 6, "日本語"),
        ("", 3, ""),
    ],
)
def test_a_text_is_cut_to_the_columns_that_it_takes(text: str, room: int, shown: str) -> None:
    assert cut(text, room) == shown
    assert cells(cut(text, room)) <= room


@pytest.mark.parametrize(
    ("number", "shown"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (1_234_567, "1.2 MB"), (5e12, "5000.0 GB")],
)
def test_bytes_in_the_unit_of_a_person(number: int, shown: str) -> None:
    assert size(number) == shown


@pytest.mark.parametrize(
    ("usd", "shown"),
    [
        (None, "unknown"),
        (Decimal(0), "$0.00"),
        (Decimal("12.345"), "$12.35"),
        (Decimal("0.000123"), "$0.000123"),
        (Decimal("0.5"), "$0.5"),
    ],
)
def test_money_keeps_the_digits_of_small_amounts(usd: Decimal | None, shown: str) -> None:
    assert money(usd) in (shown, shown.replace("12.35", "12.34"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("2026-03-04T05:06:07.123+02:00", "2026-03-04 03:06"),
        ("2026-03-04T05:06:07", "2026-03-04 05:06"),
        ("long ago, nobody knows", "long ago, nobody"),
        (None, "-"),
    ],
)
def test_times_in_utc(text: str | None, shown: str) -> None:
    assert when(text) == shown


def test_one_and_many() -> None:
    assert [count(1, "row"), count(2000, "row"), count(2, "body", "bodies")] == [
        "1 row", "2,000 rows", "2 bodies",
    ]  # fmt: skip


def test_a_table_shows_its_heads_before_the_first_row(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table(name=6, number=-6, about=0)
    assert capsys.readouterr().out == ""
    table.row("a", 1, "first")
    table.row("日本", None, "")
    assert capsys.readouterr().out == ("NAME    NUMBER  ABOUT\na            1  first\n日本\n")


def test_facts_leave_out_what_is_not_known(capsys: pytest.CaptureFixture[str]) -> None:
    facts(("one", 1), ("second", None), ("the third", "x"))
    assert capsys.readouterr().out == "one        1\nthe third  x\n"


def test_json_keeps_money_exact_and_text_readable(capsys: pytest.CaptureFixture[str]) -> None:
    write_json({"usd": Decimal("0.10"), "text": "ü", "keys": {"b", "a"}})
    out = capsys.readouterr().out
    assert "ü" in out
    assert json.loads(out) == {"usd": "0.10", "text": "ü", "keys": ["a", "b"]}


def test_a_list_of_any_length_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    write_json_list({"tape": "t"}, "rows", ({"n": n} for n in range(3)))
    found = json.loads(capsys.readouterr().out)
    assert found == {"tape": "t", "rows": [{"n": 0}, {"n": 1}, {"n": 2}]}


def test_a_list_that_breaks_in_the_middle_shows_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def rows() -> object:
        yield {"n": 0}
        raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        write_json_list({}, "rows", rows())  # type: ignore[arg-type]  # a generator it is
    assert capsys.readouterr().out == ""


def test_colours_fall_away_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    write("\x1b[31mred\x1b[0m")
    assert capsys.readouterr().out == "red\n"


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00"])
def test_a_time_that_is_none_in_utc_is_shown_as_it_stands(text: str) -> None:
    assert when(text) == text[:16]


def test_what_was_recorded_gives_a_terminal_no_orders(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An answer may hold anything: it sets no title, moves no cursor, fills no clipboard."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    for order in ("\x1b]0;title\x07", "\x1b[2J", "\x1b]52;c;aGk=\x1b\\", "\x9b2J", "a\rb", "\x08"):
        facts(("said", f"one{order}two"))
        shown = capsys.readouterr().out
        assert "one" in shown
        assert "two" in shown
        assert not set("\x07\x08\r\x9b") & set(shown)
        assert "\x1b]" not in shown
        assert "\x1b[2J" not in shown
    write("\x1b[31mred\x1b[0m\tand\r\nmore")
    assert capsys.readouterr().out == "\x1b[31mred\x1b[0m\tand\r\nmore\n"


@pytest.mark.parametrize("room", [0, -3])
def test_a_text_is_cut_to_one_column_where_there_is_room_for_none(room: int) -> None:
    assert cut("words", room) == "…"


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
def test_json_is_json_whatever_standard_output_can_show(
    monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    said = {"text": "日本語 é \U0001f600 \ud800"}
    for told in (
        lambda: write_json(said),
        lambda: write_json_line(said),
        lambda: write_json_list({}, "items", [said]),
    ):
        raw = io.BytesIO()
        monkeypatch.setattr("sys.stdout", io.TextIOWrapper(raw, encoding=encoding))
        told()
        sys.stdout.flush()
        found = json.loads(raw.getvalue().decode(encoding))
        assert found in (said, {"items": [said]})


class Screen(io.StringIO):
    """A terminal that remembers."""

    def isatty(self) -> bool:
        return True


def test_no_word_on_standard_error_commands_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Screen()
    monkeypatch.setattr("sys.stderr", screen)
    note("a \x1b]0;title\x07 and \x9b2J", color="red")
    tell(BadSetting("no \x1b[2J such thing", "type \x1b]52;c;AAAA\x07 this"))
    shown = screen.getvalue()
    assert shown.startswith("\x1b[31ma ")
    assert not re.search(r"[\x00-\x08\x0b-\x1a\x1c-\x1f\x7f-\x9f]|\x1b(?!\[\d*m)", shown)
