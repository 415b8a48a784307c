import pytest

from tapes.services.spelling import Number, Unreadable
from tapes.services.toml import float_text, lines_of, read


@pytest.mark.parametrize(
    ("spelled", "meant"),
    [
        ("9999.0", 9999),
        ("1e3", 1000),
        ("-0.0", Number("-0")),
        ("1_000", 1000),
        ("0xff", 255),
        ("2.50", Number("2.5")),
        ("1e21", Number("1e+21")),
        ("1.5e-7", Number("1.5e-7")),
        ("1979-05-27T07:32:00Z", "1979-05-27T07:32:00Z"),
        ("1979-05-27T00:32:00.500-07:00", "1979-05-27T00:32:00.5-07:00"),
        ('"\\x41\\e"', "A\x1b"),
    ],
)
def test_values_become_the_json_that_they_stand_for(spelled: str, meant: object) -> None:
    assert read(f"a = {spelled}") == {"a": meant}


@pytest.mark.parametrize(
    "spelled", ["inf", "-nan", "9223372036854775808", "1979-05-27", "07:32:00"]
)
def test_what_has_no_json_form_is_refused(spelled: str) -> None:
    with pytest.raises(Unreadable) as caught:
        read(f"a = {spelled}")
    assert caught.value.code == "no_json_form"


@pytest.mark.parametrize(
    ("text", "line"),
    [("a = 1\na = 2\n", 2), ("[t]\n[t]\n", 2), ("a = 1\n\nb = \n", 3), ('{"a": 1}', 1), ("\0", 1)],
    ids=["repeated-key", "repeated-table", "no-value", "json", "nul"],
)
def test_what_is_not_toml_is_refused_with_its_line(text: str, line: int) -> None:
    with pytest.raises(Unreadable) as caught:
        read(text)
    assert (caught.value.code, caught.value.line) == ("not_toml", line)


def test_nesting_and_size_are_bounded() -> None:
    for text in (
        "a" + ".a" * 200 + " = 1",
        "a = " + "[" * 20_000,
        "# " + "x" * 2_000_000,
        "a" + ".a" * 20_000 + " = 1",
    ):
        with pytest.raises(Unreadable):
            read(text)


def test_a_byte_order_mark_multi_line_inline_tables_and_any_line_ends_are_read() -> None:
    assert read("\ufeffa = {\r\n b = 1,\r\n}\r\n") == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("value", "text"),
    [(1e21, "1e+21"), (1e20, "100000000000000000000"), (1e-6, "0.000001"), (1e-7, "1e-7")],
)
def test_floats_take_an_exponent_only_where_json_numbers_usually_do(
    value: float, text: str
) -> None:
    assert float_text(value) == text


TEXT = '''\
# a comment
kind = "x"

[cassette]
name = "a"
description = """
[not.a.table]
name = "no"
"""

[[config]]
key = "one"
enum = [
  "a",  # ]
  "b",
]

[[config]]
key = "two"
[config.more]
deep.er = 1
[depends]
views = ["a", "b"]
'''


def test_every_member_has_the_line_of_its_statement() -> None:
    lines = lines_of(TEXT)
    wanted: dict[tuple[str | int, ...], int] = {
        ("kind",): 2,
        ("cassette",): 4,
        ("cassette", "name"): 5,
        ("cassette", "description"): 6,
        ("config", 0): 11,
        ("config", 0, "key"): 12,
        ("config", 0, "enum"): 13,
        ("config", 0, "enum", 1): 13,
        ("config", 1): 18,
        ("config", 1, "key"): 19,
        ("config", 1, "more"): 20,
        ("config", 1, "more", "deep", "er"): 21,
        ("depends", "views", 1): 23,
    }
    assert {path: lines.get(path) for path in wanted} == wanted


def test_every_member_that_is_read_has_a_line() -> None:
    tree, lines = read(TEXT), lines_of(TEXT)

    def check(value: object, path: tuple[str | int, ...]) -> None:
        assert path in lines
        pairs = value.items() if isinstance(value, dict) else ()
        for key, member in enumerate(value) if isinstance(value, list) else pairs:
            check(member, (*path, key))

    check(tree, ())


def test_a_statement_of_very_many_lines_ends_the_search_for_lines() -> None:
    text = 'a = 1\nb = """' + "\n" * 500_000 + '"""\nc = 1\n'
    assert lines_of(text) == {(): 1, ("a",): 1}
    assert read(text)["c"] == 1
