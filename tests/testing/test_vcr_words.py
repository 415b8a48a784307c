"""vcrpy's options, in the words of this project."""

from typing import Any

import pytest

from tapes.errors import BadSetting
from tapes.testing.vcr_words import hosts_of, translated


def said(may_record: bool = False, **config: Any) -> Any:
    return translated(config, may_record=may_record)


def test_each_interaction_plays_once_unless_repeats_are_allowed() -> None:
    assert said().options["repeated"] == "ordered"
    assert said(allow_playback_repeats=True).options["repeated"] == "reuse"


def test_ignored_hosts_pass_by() -> None:
    assert said(ignore_hosts=["a.b"], ignore_localhost=True).options["allow"][:2] == [
        "a.b",
        "localhost",
    ]


def test_a_filtered_header_that_counts_may_vary_and_others_never_counted() -> None:
    rules = said(filter_headers=["authorization", ("anthropic-version", "x")]).rules
    assert [rule.declaration() for rule in rules] == [{"header": "anthropic-version"}]


def test_filtered_parameters_may_vary() -> None:
    rules = said(filter_query_parameters=["user"], filter_post_data_parameters=["a/b"]).rules
    assert [rule.declaration() for rule in rules] == [{"query": "user"}, {"at": "/a~1b"}]


@pytest.mark.parametrize(
    "config",
    [
        {"filter_query_parameters": ["user"]},
        {"filter_post_data_parameters": ["user"]},
        {"before_record_request": lambda request: request},
    ],
    ids=lambda config: next(iter(config)),
)
def test_what_would_come_to_rest_all_the_same_is_an_error_while_recording(
    config: dict[str, Any],
) -> None:
    assert translated(config, may_record=False).options
    with pytest.raises(BadSetting, match=r"\[\[secret\]\]"):
        translated(config, may_record=True)


def test_a_credential_is_taken_out_without_being_named() -> None:
    assert said(may_record=True, filter_query_parameters=["api_key"]).rules == []


def test_matching_by_less_is_noted_and_a_function_refused() -> None:
    assert "the whole request counts" in said(match_on=["method", "uri"]).notes[0]
    assert said(match_on=["method", "uri", "body"]).notes == []
    with pytest.raises(BadSetting, match="match_on names mine"):
        said(match_on=["method", "mine"])


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(BadSetting, match="colour has no counterpart"):
        said(colour="red")


def test_modes_come_as_text_and_as_vcrpys_own_values() -> None:
    import vcr

    assert said(record_mode="once").options["mode"] == "once"
    assert said(record_mode=vcr.mode.NEW_EPISODES).options["mode"] == "new_episodes"


@pytest.mark.parametrize(
    ("entries", "hosts"),
    [
        ("a.example, 127.0.0.1:80", ["a.example", "127.0.0.1:80"]),
        ([r"^a\.example$"], ["a.example"]),
        ([], []),
    ],
)
def test_hosts_may_be_written_as_the_expressions_that_they_were(
    entries: str | list[str], hosts: list[str]
) -> None:
    assert hosts_of(entries) == hosts


@pytest.mark.parametrize("entry", [".*", r".*\.example", "a|b"])
def test_an_expression_that_names_no_host_is_an_error(entry: str) -> None:
    with pytest.raises(BadSetting, match="does not name a host"):
        hosts_of([entry])
