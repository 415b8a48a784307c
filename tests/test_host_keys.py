"""Which credential goes where, and what is never sent."""

import re
from pathlib import Path

import pytest

from tapes.errors import BadRule, NotSendable
from tapes.exchange import Request
from tapes.host_keys import Credential, with_credentials
from tapes.project import declared_for

OPENAI = {"OPENAI_API_KEY": "sk-own"}


def post(url: str, body: bytes = b"{}", *headers: tuple[str, str]) -> Request:
    return Request("POST", url, (("content-type", "application/json"), *headers), body)


def added(request: Request, environ: dict[str, str], *declared: Credential) -> dict[str, str]:
    sent = with_credentials(request, environ, declared)
    return dict(sent.headers[len(request.headers) :])


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/chat/completions", {"authorization": "Bearer sk-own"}),
        ("/v1/messages", {"x-api-key": "sk-ant"}),
        ("/v1/messages/count_tokens", {"x-api-key": "sk-ant"}),
        ("/v1beta/models/gemini-2.0-flash:generateContent", {"x-goog-api-key": "AIza"}),
        ("/v1/models", {"authorization": "Bearer sk-own"}),
    ],
)
def test_behind_one_gateway_each_request_has_the_key_of_its_provider(
    path: str, expected: dict[str, str]
) -> None:
    gateway = "https://gateway.example"
    environ = {
        **OPENAI, "ANTHROPIC_API_KEY": "sk-ant", "GEMINI_API_KEY": "AIza",
        "OPENAI_BASE_URL": f"{gateway}/v1", "ANTHROPIC_BASE_URL": gateway,
        "GOOGLE_GEMINI_BASE_URL": gateway,
    }  # fmt: skip
    assert added(post(f"{gateway}{path}"), environ) == expected


@pytest.mark.parametrize(
    ("url", "environ", "expected"),
    [
        ("https://api.openai.com/v1/x", OPENAI, {"authorization": "Bearer sk-own"}),
        ("https://eu.api.openai.com/v1/x", OPENAI, {"authorization": "Bearer sk-own"}),
        (
            "https://api.openai.com/v1/x",
            {**OPENAI, "OPENAI_ORG_ID": "org-1"},
            {"authorization": "Bearer sk-own", "openai-organization": "org-1"},
        ),
        ("https://api.anthropic.com/v1/messages", {"ANTHROPIC_API_KEY": "k"}, {"x-api-key": "k"}),
        (
            "https://generativelanguage.googleapis.com/v1beta/models/g:generateContent",
            {"GOOGLE_API_KEY": "k"},
            {"x-goog-api-key": "k"},
        ),
        (
            "https://me.openai.azure.com/openai/x?api-version=1",
            {"AZURE_OPENAI_API_KEY": "k"},
            {"api-key": "k"},
        ),
        (
            "https://bedrock-runtime.eu-west-1.amazonaws.com/model/m/converse",
            {"AWS_BEARER_TOKEN_BEDROCK": "k"},
            {"authorization": "Bearer k"},
        ),
        ("https://api.cohere.com/v2/chat", {"COHERE_API_KEY": "k"}, {"authorization": "Bearer k"}),
        ("http://127.0.0.1:11434/api/chat", OPENAI, {}),
        (
            "http://127.0.0.1:9/v1/x",
            {**OPENAI, "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"},
            {"authorization": "Bearer sk-own"},
        ),
        (
            "https://gateway.example/v1/x",
            {**OPENAI, "OPENAI_BASE_URL": "https://gateway.example/v1"},
            {"authorization": "Bearer sk-own"},
        ),
    ],
)
def test_a_provider_gets_its_own_credential(
    url: str, environ: dict[str, str], expected: dict[str, str]
) -> None:
    assert added(post(url), environ) == expected


@pytest.mark.row("N13")
@pytest.mark.parametrize(
    ("url", "environ", "reason"),
    [
        ("https://api.openai.com/v1/x", {}, "OPENAI_API_KEY is not set"),
        ("https://evil.example/v1/x", OPENAI, "no credential is known for evil.example"),
        ("https://api.openai.com.evil.example/v1", OPENAI, "no credential is known"),
        ("https://api.openai.com@evil.example/v1", OPENAI, "no credential is known"),
        (
            "https://gateway.example:444/v1/x",
            {**OPENAI, "OPENAI_BASE_URL": "https://gateway.example/v1"},
            "no credential is known",
        ),
        ("http://api.openai.com/v1/x", OPENAI, "over a plain connection"),
    ],
)
def test_no_credential_goes_anywhere_else(url: str, environ: dict[str, str], reason: str) -> None:
    with pytest.raises(NotSendable, match=reason):
        with_credentials(post(url), environ)


def test_a_credential_in_the_query_is_filled_in_its_place() -> None:
    url = "https://generativelanguage.googleapis.com/v1beta/m:x?key=REDACTED.key&alt=sse"
    sent = with_credentials(post(url), {"GEMINI_API_KEY": "a/b"})
    assert sent.url.endswith("?key=a%2Fb&alt=sse")
    assert sent.headers == post(url).headers


@pytest.mark.parametrize(
    ("request_", "place"),
    [
        (post("http://127.0.0.1/x?sig=REDACTED.sig"), "its URL"),
        (post("http://127.0.0.1/", b'{"a":"REDACTED.openai_key.12345678"}'), "its body"),
        (post("http://127.0.0.1/", b"{}", ("accept", "REDACTED.jwt.1")), "its header accept"),
    ],
)
def test_a_request_with_a_placeholder_is_never_sendable(request_: Request, place: str) -> None:
    with pytest.raises(NotSendable, match=f"{place} held a secret") as caught:
        with_credentials(request_, OPENAI)
    assert "CASSETTE_MODE=live" in caught.value.remedy


def test_a_project_says_what_its_own_hosts_ask_for() -> None:
    own = Credential.of(
        {"host": "*.internal", "header": "x-key", "value": "Key ${LLM_KEY}!"}, "tapes.toml"
    )
    assert added(post("https://a.internal/x"), {"LLM_KEY": "k"}, own) == {"x-key": "Key k!"}
    with pytest.raises(NotSendable, match="LLM_KEY is not set"):
        with_credentials(post("https://a.internal/x"), {}, [own])


def test_a_project_may_say_that_a_host_asks_for_nothing() -> None:
    nothing = Credential.of({"host": "llm.lan:8000"}, "tapes.toml")
    assert added(post("http://llm.lan:8000/v1"), {}, nothing) == {}
    with pytest.raises(NotSendable):
        with_credentials(post("http://llm.lan:9000/v1"), {}, [nothing])


@pytest.mark.parametrize(
    "table",
    [
        {"header": "a", "value": "$B"},
        {"host": "h", "header": "a"},
        {"host": "h", "header": "a", "value": "sk-secret"},
        {"host": "h", "more": "a"},
        {"host": 1},
    ],
)
def test_a_credential_that_cannot_be_meant_is_refused(table: dict[str, object]) -> None:
    with pytest.raises(BadRule, match="here"):
        Credential.of(table, "here")


def test_what_the_page_declares_can_be_declared(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "refreshing.md").read_text()
    blocks = re.findall(r"^```toml tapes.toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "tapes.toml").write_text("\n".join(reversed(blocks)))
    found = declared_for(tmp_path / "t.jsonl")
    assert [credential.host for credential in found.credentials] == ["llm.internal", "llm.lan:8000"]
    assert found.max_age is not None


@pytest.mark.parametrize("host", ["127.example.com", "127.0.0.1.example.com"])
def test_a_name_that_looks_like_this_machine_is_another_one(host: str) -> None:
    own = Credential.of({"host": host, "header": "x-key", "value": "$KEY"}, "tapes.toml")
    with pytest.raises(NotSendable, match="no credential is known"):
        with_credentials(post(f"http://{host}/v1"), {})
    with pytest.raises(NotSendable, match="plain connection"):
        with_credentials(post(f"http://{host}/v1"), {"KEY": "k"}, [own])
