"""Real SDKs through the proxy: recorded once, replayed without the provider, refused in words."""

import contextlib
import gc
import io
import subprocess
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.commands import environment
from tests.live.conftest import Provider
from tests.live.sdks import (
    anthropic,
    forget_clients,
    genai,
    litellm_chat,
    mistralai,
    ollama,
    openai,
)
from tests.proxies import proxying

KEY = "sk-0123456789abcdefghijklmnopq"
NOBODY = "http://127.0.0.1:1"


CLIENTS: dict[str, Callable[[str], Any]] = {
    "openai": lambda base: openai.OpenAI(base_url=f"{base}/openai/v1", api_key=KEY),
    "anthropic": lambda base: anthropic.Anthropic(base_url=f"{base}/anthropic", api_key=KEY),
    "gemini": lambda base: genai.Client(
        api_key=KEY,
        http_options=genai.types.HttpOptions(base_url=f"{base}/gemini", api_version="v1beta"),
    ),
    "ollama": lambda base: ollama.Client(f"{base}/ollama"),
}
TOOL: Any = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {}}},
}


def messages(text: str) -> Any:
    return [{"role": "user", "content": text}]


# What is called, on a client of that SDK, with a text of ours.
Call = Callable[[Any, str], Any]
CALLS: dict[str, Call] = {
    "openai chat": lambda c, t: c.chat.completions.create(model="gpt-4o", messages=messages(t)),
    "openai chat, streamed": lambda c, t: list(
        c.chat.completions.create(model="gpt-4o", messages=messages(t), stream=True)
    ),
    "openai chat with a tool": lambda c, _: c.chat.completions.create(
        model="gpt-4o", messages=messages("weather"), tools=[TOOL]
    ),
    "openai responses": lambda c, t: c.responses.create(model="gpt-4o", input=t),
    "openai responses, streamed": lambda c, t: list(
        c.responses.create(model="gpt-4o", input=t, stream=True)
    ),
    "openai embeddings": lambda c, t: c.embeddings.create(
        model="text-embedding-3-small", input=t, encoding_format="float"
    ),
    "openai models": lambda c, _: list(c.models.list()),
    "openai files": lambda c, t: c.files.create(
        file=("b.jsonl", io.BytesIO(b'{"custom_id":"1"}\n')), purpose="batch"
    ),
    "openai image": lambda c, t: c.images.generate(model="gpt-image-1", prompt=t),
    "openai speech": lambda c, t: c.audio.speech.create(
        model="tts-1", voice="alloy", input=t
    ).content.hex(),
    "anthropic message": lambda c, t: c.messages.create(
        model="claude-sonnet-5", max_tokens=99, messages=messages(t)
    ),
    "anthropic message, streamed": lambda c, t: list(
        c.messages.create(model="claude-sonnet-5", max_tokens=99, messages=messages(t), stream=True)
    ),
    "gemini content": lambda c, t: c.models.generate_content(model="gemini-2.0-flash", contents=t),
    "gemini content, streamed": lambda c, t: list(
        c.models.generate_content_stream(model="gemini-2.0-flash", contents=t)
    ),
    "ollama chat": lambda c, t: c.chat(model="llama3", messages=messages(t)),
    "ollama chat, streamed": lambda c, t: list(
        c.chat(model="llama3", messages=messages(t), stream=True)
    ),
}


def called(name: str, base: str, text: str = "capital, fjord") -> Any:
    """What an SDK makes of the answer, as plain data, so that two can be compared."""
    with contextlib.closing(CLIENTS[name.split()[0]](base)) as client:
        return plain(CALLS[name](client, text))


def plain(value: Any) -> Any:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


@pytest.mark.row("F09", "F10", "F12", "D1")
@pytest.mark.parametrize("name", CALLS)
def test_what_an_sdk_got_live_it_gets_again_without_the_provider(
    name: str, provider: Provider, tmp_path: Path
) -> None:
    tape = tmp_path / "t.jsonl"
    with proxying(None, tape, "record", upstreams=dict.fromkeys(CLIENTS, provider.url)) as proxy:
        live = called(name, proxy.address)
        assert proxy.desk.requests == 1
    with proxying(None, tape, upstreams=dict.fromkeys(CLIENTS, NOBODY)) as proxy:
        assert [called(name, proxy.address) for _ in range(2)] == [live, live]
        assert proxy.desk.refused == 0


PLACES = {
    "openai chat": "messages[0].content",
    "openai chat, streamed": "messages[0].content",
    "openai responses": "input",
    "openai embeddings": "input",
    "anthropic message": "messages[0].content",
    "anthropic message, streamed": "messages[0].content",
    "gemini content": "contents[0].parts[0].text",
    "gemini content, streamed": "contents[0].parts[0].text",
    "ollama chat": "messages[0].content",
    "ollama chat, streamed": "messages[0].content",
}


@pytest.mark.row("N15")
@pytest.mark.parametrize("name", PLACES)
def test_an_sdk_shows_the_diagnosis_of_a_miss_and_asks_once(
    name: str, provider: Provider, tmp_path: Path
) -> None:
    tape = tmp_path / "t.jsonl"
    with proxying(None, tape, "record", upstreams=dict.fromkeys(CLIENTS, provider.url)) as proxy:
        called(name, proxy.address)
    errors = (openai.APIError, anthropic.APIError, genai.errors.APIError, ollama.ResponseError)
    with proxying(None, tape, upstreams=dict.fromkeys(CLIENTS, NOBODY)) as proxy:
        with pytest.raises(errors) as caught:
            called(name, proxy.address, "goodbye")
        assert proxy.desk.requests == 1
    message = str(caught.value)
    assert str(tape) in message
    assert f"differs at {PLACES[name]}" in message
    assert "CASSETTE_MODE=record" in message


def mistral_chat(base: str) -> None:
    with mistralai.Mistral(api_key="k" * 32, server_url=f"{base}/mistral") as client:
        client.chat.complete(model="m", messages=messages("hello"))


def openai_at(base: str) -> None:
    with openai.OpenAI(base_url=base, api_key=KEY, max_retries=3) as client:
        client.chat.completions.create(model="m", messages=messages("hello"))


OTHERS: dict[str, Callable[[str], Any]] = {
    "mistral": mistral_chat,
    "groq": lambda base: openai_at(f"{base}/groq/openai/v1"),
    "deepseek": lambda base: openai_at(f"{base}/deepseek"),
    "openrouter": lambda base: openai_at(f"{base}/openrouter/api/v1"),
    "cohere": lambda base: openai_at(f"{base}/cohere/compatibility/v1"),
    "litellm": lambda base: litellm_chat(f"{base}/openai", "hello"),
}


@pytest.fixture
def _forgotten() -> Iterator[None]:
    """Collect what an SDK left open here, where nobody minds, and not in somebody else's test."""
    yield
    forget_clients()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


@pytest.mark.row("N15", "F09")
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::UserWarning"
)
@pytest.mark.usefixtures("_forgotten")
@pytest.mark.parametrize("name", OTHERS)
def test_other_libraries_show_the_diagnosis_and_ask_once(name: str, tmp_path: Path) -> None:
    tape = tmp_path / "t.jsonl"
    with proxying(None, tape, upstreams=dict.fromkeys([*CLIENTS, *OTHERS], NOBODY)) as proxy:
        with pytest.raises(Exception, match="cassette miss") as caught:
            OTHERS[name](proxy.address)
        assert proxy.desk.requests == 1
    assert str(tape) in str(caught.value)


NODE_CALLS = {
    "openai": """
import OpenAI from "openai";
const client = new OpenAI({ maxRetries: 3 });
const messages = [{ role: "user", content: process.argv[2] }];
const whole = await client.chat.completions.create({ model: "gpt-4o", messages });
const pieces = [];
const stream = await client.chat.completions.create({ model: "gpt-4o", messages, stream: true });
for await (const chunk of stream) pieces.push(chunk);
console.log(JSON.stringify([whole, pieces]));
""",
    "anthropic": """
import Anthropic from "@anthropic-ai/sdk";
const client = new Anthropic({ maxRetries: 3 });
const messages = [{ role: "user", content: process.argv[2] }];
const asked = { model: "claude-sonnet-5", max_tokens: 99, messages };
const whole = await client.messages.create(asked);
const pieces = [];
for await (const event of await client.messages.create({ ...asked, stream: true }))
  pieces.push(event);
console.log(JSON.stringify([whole, pieces]));
""",
}


@pytest.mark.row("F10", "N15")
@pytest.mark.parametrize("sdk", NODE_CALLS)
def test_sdks_of_node_are_recorded_replayed_and_refused(
    sdk: str, provider: Provider, node_modules: Path, tmp_path: Path
) -> None:
    script = node_modules.parent / f".{sdk}.mjs"
    script.write_text(NODE_CALLS[sdk])
    tape = tmp_path / "t.jsonl"

    def node(base: str, text: str) -> "subprocess.CompletedProcess[str]":
        env = environment(
            {
                "OPENAI_BASE_URL": f"{base}/openai/v1", "OPENAI_API_KEY": KEY,
                "ANTHROPIC_BASE_URL": f"{base}/anthropic", "ANTHROPIC_API_KEY": KEY,
            }
        )  # fmt: skip
        return subprocess.run(
            ["node", str(script), text], env=env, capture_output=True, text=True, timeout=60
        )

    try:
        upstreams = dict.fromkeys(CLIENTS, provider.url)
        with proxying(None, tape, "record", upstreams=upstreams) as proxy:
            live = node(proxy.address, "capital")
            assert live.returncode == 0, live.stderr
        with proxying(None, tape, upstreams=dict.fromkeys(CLIENTS, NOBODY)) as proxy:
            assert node(proxy.address, "capital").stdout == live.stdout
            asked = proxy.desk.requests
            missed = node(proxy.address, "goodbye")
            assert proxy.desk.requests == asked + 1
        assert "differs at messages[0].content" in missed.stderr
    finally:
        script.unlink()
