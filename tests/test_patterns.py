"""Forms of keys that are secrets wherever they stand."""

import base64
import random
from typing import Any

import pytest

from tapes.errors import BadRule
from tapes.patterns import (
    PRIVATE_KEY,
    RUN_LENGTH,
    SECRET_PATTERNS,
    runs_of,
    suspects_in,
    user_patterns,
)
from tests.planted import A36, BY_PATTERN, KEY


def found_in(text: str) -> set[str]:
    suspects = suspects_in(text)
    return {
        text[start:end]
        for pattern in (*SECRET_PATTERNS, PRIVATE_KEY)
        for start, end in pattern.find(text, suspects)
    }


@pytest.mark.row("N13")
@pytest.mark.parametrize("secret", BY_PATTERN.values(), ids=BY_PATTERN)
@pytest.mark.parametrize("around", ["{}", "key: {}, and more", "'{}'", "é{}—", "\n{}\n"])
def test_a_key_is_found_whatever_is_around_it(secret: str, around: str) -> None:
    assert secret in found_in(around.format(secret))


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_what_follows_bearer_is_a_key(scheme: str) -> None:
    assert found_in(f"curl -H 'Authorization: {scheme} {A36}'") == {A36}


@pytest.mark.parametrize(
    "text",
    [
        "a task-list-with-many-words-in-it-and-more",
        "risk-averse-and-well-understood-by-everybody",
        "the bearer of this letter is unquestionably trustworthy-and-kind",
        "https://api.openai.com/v1/chat/completions?alt=sse",
        "max_completion_tokens additionalProperties 2026-01-01T00:00:00.000+00:00",
        "chatcmpl-7c46abd3-2ac8-45d5-991f-87f070fe1c61",
        "toolu_01A09q90qw90lq917835lq9 msg_01XFDUDYJgAACzvnptvVoYEL",
        "org-mode-is-an-editor-mode hf_transfer npm_config_registry",
        "x" + KEY,
    ],
)
def test_ordinary_text_holds_no_key(text: str) -> None:
    assert found_in(text) == set()


def test_a_long_run_without_a_dot_is_data() -> None:
    data = base64.urlsafe_b64encode(random.Random(7).randbytes(2000)).decode()
    assert found_in(data[:900] + "-" + KEY + data[900:]) == set()
    assert found_in(f"{data} {KEY}") == {KEY}


def test_runs_are_where_a_key_could_be() -> None:
    text = "short " + "a" * RUN_LENGTH + ' "' + "b" * (RUN_LENGTH - 1) + '" ü' + "c" * 40
    assert [text[a:b] for a, b in runs_of(text)] == ["a" * RUN_LENGTH, "c" * 40]


# --- what users declare


def test_a_users_pattern_is_found() -> None:
    (pattern,) = user_patterns([{"name": "acme", "pattern": r"acme_[a-z]+"}], "f")
    assert list(pattern.find("an acme_key here", ())) == [(3, 11)]


def test_of_a_pattern_with_a_group_the_group_is_the_secret() -> None:
    (pattern,) = user_patterns([{"name": "pin", "pattern": r"PIN (\d+)|x", "hash": False}], "f")
    assert list(pattern.find("my PIN 1234 x", ())) == [(7, 11)]
    assert not pattern.hashed


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ({"name": "a"}, "a name and a pattern"),
        ({"pattern": "a"}, "a name and a pattern"),
        ({"name": "a", "pattern": 3}, "a name and a pattern"),
        ({"name": "a", "pattern": "a", "colour": "red"}, "a name and a pattern"),
        ({"name": "Ä", "pattern": "a"}, "not made of a-z"),
        ({"name": "a", "pattern": "("}, "pattern '\\('"),
        ({"name": "a", "pattern": "a", "hash": "no"}, "not true or false"),
    ],
)
def test_a_pattern_that_cannot_be_read_is_named(entry: dict[str, Any], what: str) -> None:
    with pytest.raises(BadRule, match=rf"tapes\.toml: \[\[secret\]\] 2.*{what}"):
        user_patterns([{"name": "ok", "pattern": "ok"}, entry], "tapes.toml")
