"""Which upstream a request is for, by name, header or shape; and nothing of its target is lost."""

import pytest

from tapes.capture.routes import Dialect, Routes, Upstream, prefix_of
from tapes.doors import Door
from tapes.errors import BadSetting
from tapes.listening import Listen


@pytest.mark.row("F10", "D1")
@pytest.mark.parametrize(
    ("target", "host", "path", "dialect"),
    [
        ("/v1/chat/completions", "api.openai.com", "/v1/chat/completions", Dialect.OPENAI),
        ("/v1/responses?stream=1", "api.openai.com", "/v1/responses?stream=1", Dialect.OPENAI),
        ("/v1/completions", "api.openai.com", "/v1/completions", Dialect.OPENAI),
        ("/v1/embeddings", "api.openai.com", "/v1/embeddings", Dialect.OPENAI),
        ("/v1/audio/speech", "api.openai.com", "/v1/audio/speech", Dialect.OPENAI),
        ("/v1/messages?beta=1", "api.anthropic.com", "/v1/messages?beta=1", Dialect.ANTHROPIC),
        ("/v1/messages/batches", "api.anthropic.com", "/v1/messages/batches", Dialect.ANTHROPIC),
        ("/v1beta/models/m:generateContent?key=K", "generativelanguage.googleapis.com",
         "/v1beta/models/m:generateContent?key=K", Dialect.GEMINI),
        ("/v1/models/m:generateContent", "generativelanguage.googleapis.com",
         "/v1/models/m:generateContent", Dialect.GEMINI),
        ("/api/chat", "localhost", "/api/chat", Dialect.OLLAMA),
        ("/groq/openai/v1/models", "api.groq.com", "/openai/v1/models", Dialect.OPENAI),
        ("/cohere/v2/chat", "api.cohere.com", "/v2/chat", Dialect.COHERE),
        ("/cohere/compatibility/v1/chat/completions", "api.cohere.com",
         "/compatibility/v1/chat/completions", Dialect.OPENAI),
        ("/openrouter/api/v1/chat/completions", "openrouter.ai", "/api/v1/chat/completions",
         Dialect.OPENROUTER),
        ("/openrouter/api/v1/messages", "openrouter.ai", "/api/v1/messages", Dialect.ANTHROPIC),
        ("/deepseek/chat/completions", "api.deepseek.com", "/chat/completions", Dialect.OPENAI),
        ("/mistral/v1/chat/completions", "api.mistral.ai", "/v1/chat/completions", Dialect.OPENAI),
        ("/ollama/v1/chat/completions", "localhost", "/v1/chat/completions", Dialect.OPENAI),
        ("/anthropic", "api.anthropic.com", "/", Dialect.ANTHROPIC),
        ("/anthropic/messages", "api.anthropic.com", "/v1/messages", Dialect.ANTHROPIC),
        ("/anthropic/messages/count_tokens?x", "api.anthropic.com", "/v1/messages/count_tokens?x",
         Dialect.ANTHROPIC),
        ("/anthropic/messagesx", "api.anthropic.com", "/messagesx", Dialect.ANTHROPIC),
        ("/openai?x=/1", "api.openai.com", "/?x=/1", Dialect.OPENAI),
        ("/openai/v1/models?limit=2", "api.openai.com", "/v1/models?limit=2", Dialect.OPENAI),
        ("/anthropic/v1/models", "api.anthropic.com", "/v1/models", Dialect.ANTHROPIC),
    ],
)  # fmt: skip
def test_a_path_leads_to_its_upstream(target: str, host: str, path: str, dialect: Dialect) -> None:
    route = Routes.of().find(target)
    assert (route.upstream.host, route.target, route.dialect) == (host, path, dialect)


def test_a_header_names_the_upstream_before_the_path_does() -> None:
    routes = Routes.of({"vllm": "http://10.0.0.7:8000/base/"})
    route = routes.find("/v1/chat/completions", "vllm")
    assert (route.upstream.host, route.target) == ("10.0.0.7", "/base/v1/chat/completions")


def test_a_default_upstream_takes_what_names_none() -> None:
    routes = Routes.of({}, "http://127.0.0.1:9999")
    assert routes.find("/v1/messages").upstream.port == 9999
    assert routes.find("/anything").upstream.port == 9999
    assert routes.find("/groq/v1/x").upstream.host == "api.groq.com"


def test_the_default_can_be_the_name_of_an_upstream() -> None:
    assert Routes.of({}, "mistral").find("/v1/ocr").upstream.host == "api.mistral.ai"


@pytest.mark.parametrize(
    ("names", "host"),
    [([b"anthropic-version"], "api.anthropic.com"), ([b"accept"], "api.openai.com")],
)
def test_a_header_of_one_providers_sdks_decides_where_the_path_does_not(
    names: list[bytes], host: str
) -> None:
    assert Routes.of().find("/v1/models", None, names).upstream.host == host


@pytest.mark.parametrize(
    ("target", "remedy"),
    [
        ("/unknown", "--upstream"),
        ("/chat/completions", "/v1"),
        ("/v1/v1/messages", "take /v1 off"),
        ("*", "--upstream"),
    ],
)
def test_a_path_that_is_for_nobody_says_what_to_do(target: str, remedy: str) -> None:
    with pytest.raises(BadSetting) as caught:
        Routes.of().find(target)
    assert remedy in caught.value.remedy


def test_the_query_of_a_path_that_is_for_nobody_is_not_repeated() -> None:
    with pytest.raises(BadSetting) as caught:
        Routes.of().find("/unknown?key=SECRET")
    assert "SECRET" not in str(caught.value)


def test_a_base_url_in_the_header_needs_permission() -> None:
    assert Routes.of(any_url=True).find("/x", "http://h:1").upstream.port == 1
    with pytest.raises(BadSetting, match="no upstream is named"):
        Routes.of().find("/x", "http://h:1")


@pytest.mark.parametrize(
    "url",
    ["", "api.openai.com", "ftp://h", "http://", "http://u:p@h", "http://h?x=1", "http://h#f",
     "http://h:99999", "http://h:x", "http://[::"],
)  # fmt: skip
def test_what_is_no_base_url_is_refused_by_name(url: str) -> None:
    with pytest.raises(BadSetting, match="vllm"):
        Upstream.of("vllm", url)


@pytest.mark.parametrize(
    ("target", "token", "tape", "rest"),
    [
        ("/v1/x?a=b", None, None, "/v1/x?a=b"),
        ("/~T/v1/x", "T", None, "/v1/x"),
        ("/@demo/v1/x?a=/b", None, "demo", "/v1/x?a=/b"),
        ("/~T/@demo/openai/v1/x", "T", "demo", "/openai/v1/x"),
        ("/~T", "T", None, "/"),
        ("/@demo?x=/1", None, "demo", "/?x=/1"),
    ],
)
def test_token_and_tape_can_stand_before_the_path(
    target: str, token: str | None, tape: str | None, rest: str
) -> None:
    prefix = prefix_of(target)
    assert (prefix.token, prefix.tape, prefix.target) == (token, tape, rest)


def test_a_request_is_not_sent_on_to_the_proxy_itself() -> None:
    routes = Routes.of(any_url=True, own=Listen("127.0.0.1", 8080))
    assert routes.find("/v1/models", "http://127.0.0.1:8081").upstream.port == 8081
    with pytest.raises(BadSetting, match="where this proxy listens"):
        routes.find("/v1/models", "http://localhost:8080")


@pytest.mark.parametrize("path", ["/v1/ingest", "/v1/ingest/batch", "/v1/traces", "/v1/logs"])
def test_what_is_for_the_ingest_is_sent_to_no_provider_that_was_only_guessed(path: str) -> None:
    with pytest.raises(BadSetting, match="is for the ingest") as refused:
        Routes.of().find(f"{path}?key=SECRET")
    assert f"http://127.0.0.1:8082{path}" in refused.value.remedy
    assert "SECRET" not in str(refused.value)
    assert Routes.of({}, "http://127.0.0.1:9999").find(path).target == path
    assert Routes.of().find("/v1/traces/ingest").upstream.name == "openai"


@pytest.mark.parametrize("path", ["/v1/sessions", "/v1/sessions/x/traces", "/v1/stats", "/v1/mcp"])
def test_what_is_for_the_read_api_is_sent_to_no_provider_that_was_only_guessed(path: str) -> None:
    with pytest.raises(BadSetting, match="is for the read API") as refused:
        Routes.of().find(f"{path}?q=SECRET")
    assert f"http://127.0.0.1:8081{path} if" in refused.value.remedy
    assert "SECRET" not in str(refused.value)
    assert Routes.of({}, "http://127.0.0.1:9999").find(path).target == path
    assert Routes.of().find(f"/anthropic{path}").upstream.name == "anthropic"
    signed = Routes.of().find(path, header_names=[b"anthropic-version"])
    assert signed.upstream.name == "anthropic"


def test_servers_beside_are_named_where_they_listen() -> None:
    routes = Routes.of()
    routes.beside = {Door.INGEST: "http://127.0.0.1:9182"}
    with pytest.raises(BadSetting) as refused:
        routes.find("/v1/ingest")
    assert refused.value.remedy == "send it there: http://127.0.0.1:9182/v1/ingest"


@pytest.mark.row("N13")
def test_a_password_in_a_base_url_is_not_shown() -> None:
    for url in ("https://me:pass-word@h/v1", "https://h/v1?key=pass-word", "me:pass-word@h"):
        with pytest.raises(BadSetting) as caught:
            Upstream.of("mine", url)
        assert "pass-word" not in str(caught.value)
        routes = Routes.of(any_url=False)
        with pytest.raises(BadSetting) as unknown:
            routes.find("/v1/x", url)
        assert "pass-word" not in str(unknown.value)


def test_a_gateway_whose_base_url_has_the_version_gets_none_twice() -> None:
    routes = Routes.of({"anthropic": "https://gateway.example/v1"})
    assert routes.find("/anthropic/messages").target == "/v1/messages"
