"""What users declare to vary."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tapes.errors import BadRule
from tapes.project import declared_for
from tapes.varying import Rule, vary_json, vary_text
from tests.strategies import JSON, TEXT


def vary(value: Any, *declared: dict[str, str]) -> Any:
    return vary_json(value, [Rule.of(entry) for entry in declared])[0]


@pytest.mark.row("N12")
@pytest.mark.parametrize(
    ("value", "rule", "expected"),
    [
        ({"a": 1, "b": 2}, {"at": "/a"}, {"a": "VARIES", "b": 2}),
        ({"a": 1}, {"at": "/a", "as": "N"}, {"a": "N"}),
        ({"a": [1, 2]}, {"at": "/a/1"}, {"a": [1, "VARIES"]}),
        ({"a": [{"t": 1}, {"t": 2}]}, {"at": "/a/*/t"}, {"a": [{"t": "VARIES"}, {"t": "VARIES"}]}),
        (
            {"a": {"id": 1, "b": {"id": 2}}},
            {"at": "/**/id"},
            {"a": {"id": "VARIES", "b": {"id": "VARIES"}}},
        ),
        ({"id": 1}, {"at": "/**/id"}, {"id": "VARIES"}),
        ({"a/b": {"c~d": 1}}, {"at": "/a~1b/c~0d"}, {"a/b": {"c~d": "VARIES"}}),
        ({"": 1}, {"at": "/"}, {"": "VARIES"}),
        ({"a": {"b": 1}}, {"at": "/a"}, {"a": "VARIES"}),
        ({"t": "at 12:30 and 1:05"}, {"pattern": r"\d+:\d+"}, {"t": "at VARIES and VARIES"}),
        ({"t": ["x1"], "n": 1}, {"pattern": r"\d"}, {"t": ["xVARIES"], "n": 1}),
        ({"t": "a1", "u": "b2"}, {"at": "/t", "pattern": r"\d"}, {"t": "aVARIES", "u": "b2"}),
        ({"t": {"u": ["a1"]}}, {"at": "/t", "pattern": r"\d"}, {"t": {"u": ["aVARIES"]}}),
        ({"t": {"u": "a1"}}, {"at": "/**", "pattern": r"\d", "as": "11"}, {"t": {"u": "a11"}}),
        ({"t": "a1"}, {"pattern": r"(\d)", "as": r"\1"}, {"t": r"a\1"}),
    ],
)
def test_a_rule_takes_out_what_it_says(value: Any, rule: dict[str, str], expected: Any) -> None:
    assert vary(value, rule) == expected


@pytest.mark.parametrize("rule", [{"at": "/x"}, {"at": "/a/9"}, {"at": "/a/0/b"}, {"pattern": "z"}])
def test_a_rule_that_meets_nothing_leaves_the_same_object(rule: dict[str, str]) -> None:
    value = {"a": ["text", 1, None]}
    varied, used = vary_json(value, [Rule.of(rule)])
    assert varied is value
    assert used == ()


@given(JSON, TEXT.filter(bool))
def test_the_value_itself_is_never_changed(value: Any, text: str) -> None:
    before = repr(value)
    vary_json(value, [Rule.of({"pattern": re.escape(text)}), Rule.of({"at": "/**/a"})])
    assert repr(value) == before


@given(JSON, st.sampled_from(["/a", "/*", "/**/a", "/*/0"]))
def test_rules_without_a_pattern_change_nothing_the_second_time(value: Any, at: str) -> None:
    rules = [Rule.of({"at": at})]
    once, _ = vary_json(value, rules)
    assert vary_json(once, rules)[0] == once


def test_rules_apply_in_their_order_and_say_which_of_them_were_used() -> None:
    rules = [Rule.of({"pattern": r"\d+", "as": "N"}), Rule.of({"pattern": "N", "as": "M"})]
    unused = Rule.of({"at": "/nowhere"})
    varied, used = vary_json({"t": "7"}, [*rules, unused])
    assert varied == {"t": "M"}
    assert used == tuple(rules)
    assert vary_text("7 z", [*rules, unused]) == ("M z", tuple(rules))


def test_a_rule_with_a_place_says_nothing_about_text() -> None:
    assert vary_text("a1", [Rule.of({"at": "/a", "pattern": r"\d"})]) == ("a1", ())


def test_header_and_query_rules_say_nothing_about_bodies() -> None:
    rules = [Rule.of({"header": "X-Run"}), Rule.of({"query": "session"})]
    assert vary_json({"session": 1}, rules) == ({"session": 1}, ())


@pytest.mark.parametrize(
    "declared",
    [
        {"at": "/a", "pattern": "x", "as": "W"},
        {"at": "/a"},
        {"pattern": "x"},
        {"header": "x-run"},
        {"query": "q"},
    ],
)
def test_a_declaration_comes_back_as_it_was_written(declared: dict[str, str]) -> None:
    assert Rule.of(declared).declaration() == declared


def test_a_rule_may_say_what_it_is_about() -> None:
    assert Rule.of({"at": "/a", "about": "changes daily"}) == Rule.of({"at": "/a"})


@pytest.mark.parametrize(
    ("declared", "what"),
    [
        ({}, "a rule says one of"),
        ({"as": "x"}, "a rule says one of"),
        ({"at": "/a", "header": "x"}, "a rule says one of"),
        ({"header": "x", "query": "y"}, "a rule says one of"),
        ({"at": "a"}, "does not begin with /"),
        ({"at": "/a/**"}, "would take out everything"),
        ({"at": 3}, "is a text"),
        ({"colour": "red"}, "unknown colour"),
        ({"pattern": "("}, "pattern '\\('"),
        ({"at": "/a", "pattern": ""}, "pattern is empty"),
    ],
)
def test_a_rule_that_cannot_be_read_is_named(declared: dict[str, Any], what: str) -> None:
    with pytest.raises(BadRule, match=rf"tapes\.toml: \[\[vary\]\] 1.*{what}") as caught:
        Rule.of(declared, "tapes.toml: [[vary]] 1")
    assert caught.value.remedy


# --- what the page on `tapes run` declares for agents -------------------------------------------

CLAUDE = """# Memory
You have a memory at `{home}/.claude/projects/{folder}/memory/`. It is kept.
# Environment
 - Primary working directory: {folder}
 - Is a git repository: {git}
 - Platform: {system}
 - OS Version: {system} 6
 - You are powered by one model.

gitStatus: This is the git status at the start of the conversation.

Recent commits:
{commit}"""
CODEX = """<environment_context>
  <cwd>{folder}</cwd>
  <current_date>{day}</current_date>
  <timezone>{zone}</timezone>
</environment_context>"""


def of_agents(**told: str) -> list[dict[str, object]]:
    """What both agents put around one prompt, each in its place."""
    reminder = (
        f"Contents of {told['folder']}/CLAUDE.md (instructions)\nToday's date is {told['day']}."
    )
    search = f"Searches. The current month is {told['month']} - use this."
    claude: dict[str, object] = {
        "system": [{"type": "text", "text": CLAUDE.format(**told)}],
        "messages": [{"role": "user", "content": [{"type": "text", "text": reminder}]}],
        "tools": [{"name": "WebSearch", "description": search}],
        "metadata": {"user_id": told["commit"]},
    }
    skills = f"- `r0` = `{told['home']}/skills`\n- one skill"
    codex: dict[str, object] = {
        "input": [
            {"role": "developer", "content": [{"type": "input_text", "text": skills}]},
            {"role": "user", "content": [{"type": "input_text", "text": CODEX.format(**told)}]},
        ],
        "prompt_cache_key": told["commit"],
    }
    return [claude, codex]


def test_agents_ask_the_same_on_another_day_and_machine_with_the_rules_of_the_page(
    tmp_path: Path,
) -> None:
    page = (Path(__file__).parents[1] / "docs" / "run.md").read_text()
    blocks = re.findall(r"^```toml tapes.toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "tapes.toml").write_text("\n".join(blocks))
    rules = declared_for(tmp_path / "t.jsonl").rules
    here = of_agents(
        home="/home/me", folder="/home/me/shop", git="true", system="linux", zone="Etc/UTC",
        day="2026-11-30", month="November 2026", commit="a1 One",
    )  # fmt: skip
    there = of_agents(
        home="/Users/ci", folder="/builds/7", git="false", system="darwin", zone="Europe/Oslo",
        day="2027-05-01", month="May 2027", commit="b2 Two",
    )  # fmt: skip
    for one, other in zip(here, there, strict=True):
        assert one != other
        assert vary_json(one, rules)[0] == vary_json(other, rules)[0]
        kept = json.dumps(vary_json(one, rules)[0])
        assert all(words in kept for words in ("one model", "Searches")) or "one skill" in kept
