"""The plugin with the real SDKs against a real provider: recorded, replayed, and missed."""

import pytest

from tests.live.conftest import Provider
from tests.servers import closed_port
from tests.suites import RECORDING, Suite

pytestmark = pytest.mark.timeout(400)  # each test runs several suites of its own

TESTS = """
import os, pytest, openai, anthropic

URL = os.environ["MODEL_URL"]
PROMPT = os.environ.get("PROMPT", "What is the capital of Norway?")
SAID = [{"role": "user", "content": PROMPT}]

def test_openai(tape):
    client = openai.OpenAI(base_url=f"{URL}/v1", api_key="sk-none")
    answer = client.chat.completions.create(model="gpt-4o", messages=SAID)
    assert "Oslo" in answer.choices[0].message.content

@pytest.mark.tape
def test_openai_stream():
    client = openai.OpenAI(base_url=f"{URL}/v1", api_key="sk-none")
    stream = client.chat.completions.create(model="gpt-4o", messages=SAID, stream=True)
    parts = [chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices]
    assert "Oslo" in "".join(parts)

@pytest.mark.tape("anthropic")
@pytest.mark.anyio
async def test_anthropic(anyio_backend):
    async with anthropic.AsyncAnthropic(base_url=URL, api_key="sk-none") as client:
        answer = await client.messages.create(
            model="claude-sonnet-4-5", max_tokens=64, messages=SAID
        )
        assert "Oslo" in answer.content[0].text

@pytest.mark.tape("anthropic")
def test_swallows():
    client = anthropic.Anthropic(base_url=URL, api_key="sk-none")
    try:
        client.messages.create(model="claude-sonnet-4-5", max_tokens=64, messages=SAID)
    except BaseException:
        pass

@pytest.fixture
def anyio_backend(): return "asyncio"
"""


@pytest.mark.long
@pytest.mark.row("N01", "N15", "F20")
def test_sdks_are_recorded_replay_offline_and_their_misses_fail_once(
    provider: Provider, suite: Suite
) -> None:
    suite.write("test_agent.py", TESTS)
    asked = provider.requests
    live = suite.run("-p", "anyio", "--tape-mode=record", MODEL_URL=provider.url, **RECORDING)
    live.assert_outcomes(passed=4)
    assert provider.requests == asked + 3
    nowhere = f"http://127.0.0.1:{closed_port()}"
    replayed = suite.run("-p", "anyio", MODEL_URL=nowhere)
    replayed.assert_outcomes(passed=4)
    replayed.stdout.fnmatch_lines(
        ["3 tapes (replay): 4 served (*), 0 live, 0 refused", "not spent: *tokens*"]
    )
    missed = suite.run(
        "-p", "anyio", MODEL_URL=provider.url, PROMPT="What is the capital of Sweden?"
    )
    missed.assert_outcomes(failed=4)
    missed.stdout.fnmatch_lines(
        [
            "*messages[[]0[]].content: What is the capital of [[]-Norway-]{+Sweden+}?",
            "3 tapes (replay): 0 served (*), 0 live, 4 refused",
        ]
    )
    assert provider.requests == asked + 3
