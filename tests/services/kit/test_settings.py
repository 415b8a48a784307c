import json
from datetime import timedelta

import pytest

from tapes.errors import BadSetting
from tapes.services.kit.service import setting
from tapes.services.kit.settings import Secret, Settings

DECLARED = [
    setting("llm.model", enum=("small", "large"), default="small"),
    setting("batch", "int", min=1, max=10, default=5),
    setting("quick", "bool", default=False),
    setting("patience", "duration", default="1m30s"),
    setting("extra", "json", default='{"a": [1]}'),
    setting("key", secret=True),
]


@pytest.mark.row("C11", "C14")
def test_values_have_their_types_and_defaults() -> None:
    found = Settings(DECLARED, {})
    assert dict(found) == {
        "llm.model": "small",
        "batch": 5,
        "quick": False,
        "patience": timedelta(seconds=90),
        "extra": {"a": [1]},
        "key": None,
    }


@pytest.mark.row("C11", "C14")
def test_values_come_from_the_environment() -> None:
    environ = {
        "CASSETTE_LLM_MODEL": "large", "CASSETTE_BATCH": "7", "CASSETTE_QUICK": "true",
        "CASSETTE_PATIENCE": "250ms", "CASSETTE_EXTRA": "null", "CASSETTE_KEY": "sk-1",
    }  # fmt: skip
    found = Settings(DECLARED, environ)
    assert (found["llm.model"], found["batch"], found["quick"]) == ("large", 7, True)
    assert (found["patience"], found["extra"]) == (timedelta(milliseconds=250), None)
    assert found["key"].reveal() == "sk-1"


@pytest.mark.row("C11")
def test_a_secret_is_never_shown() -> None:
    found = Settings(DECLARED, {"CASSETTE_KEY": "sk-very-secret"})
    for text in (repr(found), str(found["key"]), f"{found['key']}", repr(dict(found))):
        assert "sk-very" not in text
    with pytest.raises(TypeError):
        json.dumps(found["key"])
    assert found["key"] == Secret("sk-very-secret")
    assert len({found["key"], Secret("sk-very-secret")}) == 1


@pytest.mark.row("C11")
def test_every_problem_is_told_at_once_by_its_variable_and_no_secret_value() -> None:
    declared = [
        *DECLARED,
        setting("must", required=True, description="Needed."),
        setting("pin", "int", secret=True),
    ]
    environ = {
        "CASSETTE_LLM_MODEL": "huge", "CASSETTE_BATCH": "11", "CASSETTE_QUICK": "yes",
        "CASSETTE_PATIENCE": "5 min", "CASSETTE_EXTRA": "{", "CASSETTE_PIN": "sk-secret",
    }  # fmt: skip
    with pytest.raises(BadSetting) as caught:
        Settings(declared, environ)
    text = str(caught.value)
    for name in (*environ, "CASSETTE_MUST"):
        assert name in text
    assert "must be at most 10" in text
    assert "is missing (Needed.)" in text
    assert "sk-secret" not in text
