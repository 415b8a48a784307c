"""Clients are pointed at the proxy by the variables that they read; their paths stay."""

import pytest

from tapes.listening import Listen
from tapes.pointing import MADE_UP_KEY, command_for, pointed_at, upstreams_set_in, variables_of

PROXY = "http://127.0.0.1:5000"
OWN = Listen("127.0.0.1", 5000)


@pytest.mark.row("F10")
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OPENAI_BASE_URL", f"{PROXY}/openai/v1"),
        ("ANTHROPIC_BASE_URL", f"{PROXY}/anthropic"),
        ("GOOGLE_GEMINI_BASE_URL", f"{PROXY}/gemini"),
        ("OLLAMA_HOST", f"{PROXY}/ollama"),
        ("MISTRAL_API_BASE", f"{PROXY}/mistral/v1"),
        ("MISTRAL_AZURE_API_BASE", f"{PROXY}/mistral/v1"),
        ("GROQ_API_BASE", f"{PROXY}/groq/openai/v1"),
    ],
)
def test_each_variable_leads_to_the_proxy_with_its_usual_path(name: str, value: str) -> None:
    assert pointed_at(PROXY, {}, replays=True)[name] == value
    assert variables_of(PROXY)[name] == value


@pytest.mark.parametrize(
    ("given", "origin", "value"),
    [
        ("http://vllm:8000/v1", "http://vllm:8000", f"{PROXY}/openai/v1"),
        ("https://acme.example/m/v1/", "https://acme.example", f"{PROXY}/openai/m/v1"),
        ("http://[::1]:8000", "http://[::1]:8000", f"{PROXY}/openai"),
    ],
)
def test_a_base_url_of_the_user_is_where_the_proxy_sends_on(
    given: str, origin: str, value: str
) -> None:
    environ = {"OPENAI_BASE_URL": given}
    assert upstreams_set_in(environ, {}, OWN) == {"openai": origin}
    assert pointed_at(PROXY, environ, replays=False)["OPENAI_BASE_URL"] == value


@pytest.mark.parametrize(
    ("given", "origin"),
    [
        ("10.0.0.7", "http://10.0.0.7:11434"),
        ("0.0.0.0:11500", "http://127.0.0.1:11500"),
        ("http://gpu.example", "http://gpu.example"),
    ],
)
def test_the_host_of_ollama_may_be_short(given: str, origin: str) -> None:
    assert upstreams_set_in({"OLLAMA_HOST": given}, {}, OWN) == {"ollama": origin}


def test_what_is_declared_is_not_taken_from_the_environment() -> None:
    declared = {"openai": "http://other"}
    assert upstreams_set_in({"OPENAI_BASE_URL": "http://vllm:8000/v1"}, declared, OWN) == {}


@pytest.mark.parametrize(
    ("listen", "given", "is_own"),
    [
        ("127.0.0.1:5000", "http://127.0.0.1:5000/openai/v1", True),
        ("127.0.0.1:5000", "http://localhost:5000/openai/v1", True),
        ("0.0.0.0:5000", "http://127.0.0.1:5000", True),
        ("10.0.0.7:5000", "http://10.0.0.7:5000/v1", True),
        ("10.0.0.7:5000", "http://127.0.0.1:5000/v1", False),
        ("127.0.0.1:5000", "http://127.0.0.1:5001/v1", False),
        ("127.0.0.1:443", "https://api.example/v1", False),
        ("0", "http://127.0.0.1:8080/v1", False),
    ],
)
def test_a_base_url_that_leads_to_the_proxy_itself_is_no_upstream(
    listen: str, given: str, is_own: bool
) -> None:
    found = upstreams_set_in({"OPENAI_BASE_URL": given}, {}, Listen.of(listen))
    assert (found == {}) is is_own


def test_a_base_url_that_is_none_is_left_alone() -> None:
    assert upstreams_set_in({"OPENAI_BASE_URL": "http://h:port", "OLLAMA_HOST": ""}, {}, OWN) == {}


def test_keys_are_made_up_only_where_nothing_can_be_sent_on() -> None:
    assert "OPENAI_API_KEY" not in pointed_at(PROXY, {}, replays=False)
    environ = {"OPENAI_API_KEY": "real", "ANTHROPIC_AUTH_TOKEN": "real", "GOOGLE_API_KEY": "real"}
    replayed = pointed_at(PROXY, environ, replays=True)
    assert not {"OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY"} & replayed.keys()
    assert replayed["MISTRAL_API_KEY"] == MADE_UP_KEY


def test_a_proxy_of_the_users_network_is_not_asked_for_this_machine() -> None:
    assert pointed_at(PROXY, {}, replays=True)["NO_PROXY"] == "127.0.0.1"
    assert pointed_at(PROXY, {"NO_PROXY": "a.example"}, replays=True)["NO_PROXY"] == (
        "a.example,127.0.0.1"
    )
    assert pointed_at(PROXY, {"NO_PROXY": "*"}, replays=True)["NO_PROXY"] == "*"


def test_hosts_without_a_proxy_stay_without_whichever_name_says_so() -> None:
    for name in ("NO_PROXY", "no_proxy"):
        variables = pointed_at(PROXY, {name: "internal.example"}, replays=False)
        assert variables["NO_PROXY"] == variables["no_proxy"] == "internal.example,127.0.0.1"
        variables = pointed_at(PROXY, {name: "*"}, replays=False)
        assert variables["NO_PROXY"] == variables["no_proxy"] == "*"


@pytest.mark.parametrize(
    ("said", "is_own"),
    [
        (["exec", "What is a model_provider?"], False),
        (["exec", "set model_provider to x"], False),
        (["-c", 'model_provider="mine"'], True),
        (["-c", 'model_providers.mine.base_url="http://x"'], True),
        (["--config=model_provider=mine"], True),
        (["-cmodel_provider=mine"], True),
    ],
)
def test_codex_keeps_a_provider_that_an_option_names(said: list[str], is_own: bool) -> None:
    command = command_for(["codex", *said], PROXY, {}, by_login=lambda: False)
    assert (command == ["codex", *said]) is is_own


def test_codex_gets_a_provider_by_options() -> None:
    key = {"OPENAI_API_KEY": "k"}
    with_key = command_for(["/usr/bin/codex", "exec", "hi"], PROXY, key, by_login=lambda: False)
    assert with_key[:3] == ["/usr/bin/codex", "-c", 'model_provider="tapes"']
    assert f'base_url="{PROXY}/openai/v1"' in with_key[4]
    assert "supports_websockets=false" in with_key[4]
    assert with_key[5:] == ["exec", "hi"]
    logged_in = command_for(["codex"], PROXY, {}, by_login=lambda: True)
    assert f'base_url="{PROXY}/chatgpt/backend-api/codex"' in logged_in[4]
    assert "requires_openai_auth=true" in logged_in[4]
    replayed = command_for(["codex"], PROXY, key, by_login=lambda: True)
    assert 'env_key="OPENAI_API_KEY"' in replayed[4]
    own = ["codex", "-c", 'model_provider="mine"']
    assert command_for(own, PROXY, {}, by_login=lambda: False) == own


def test_other_commands_stay_as_they_are() -> None:
    command = ["python", "agent.py"]
    assert command_for(command, PROXY, {}, by_login=lambda: False) == command
