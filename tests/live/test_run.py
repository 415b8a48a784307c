"""`tapes run` around a program of Node: recorded, replayed without a provider, refused in words."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.commands import PATIENCE_S, Ended, typed
from tests.live.conftest import Provider

SCRIPT = """
import OpenAI from "openai";
import Anthropic from "@anthropic-ai/sdk";
const messages = [{ role: "user", content: process.argv[2] }];
try {
  const one = await new OpenAI().chat.completions.create({ model: "gpt-4o", messages });
  const asked = { model: "claude-sonnet-5", max_tokens: 99, messages };
  const two = await new Anthropic().messages.create(asked);
  console.log(one.choices[0].message.content, two.content[0].text);
} catch (error) {
  console.log("swallowed");
}
"""
ANSWER = "The capital of Norway is Oslo, which has a fjord of its own."
Run = Callable[..., Ended]


@pytest.fixture
def run(node_modules: Path, tmp_path: Path) -> Iterator[Run]:
    script = node_modules.parent / f".run-{tmp_path.name}.mjs"
    script.write_text(SCRIPT)

    def run(text: str, *flags: str, env: dict[str, str] | None = None) -> Ended:
        return typed("run", *flags, "--", "node", str(script), text, cwd=tmp_path, env=env)

    try:
        yield run
    finally:
        script.unlink()


@pytest.mark.row("F10", "F28")
def test_a_program_of_node_is_recorded_once_and_replayed_without_key_or_provider(
    run: Run, provider: Provider
) -> None:
    env = {
        "OPENAI_BASE_URL": f"{provider.url}/v1", "OPENAI_API_KEY": "sk-0123456789abcdefghijklmn",
        "ANTHROPIC_BASE_URL": provider.url, "ANTHROPIC_API_KEY": "sk-ant-0123456789abcdefghij",
    }  # fmt: skip
    first = run("capital", "--mode", "record", "--budget", "2", env=env)
    assert (first.status, first.out) == (0, f"{ANSWER} {ANSWER}\n"), first.err
    asked = provider.requests
    again = run("capital")
    assert (again.status, again.out) == (0, first.out), again.err
    assert "2 served, 0 live, 0 refused, 0 unused" in again.err
    assert provider.requests == asked


@pytest.mark.row("N15")
def test_a_miss_that_a_program_of_node_swallowed_makes_the_run_fail(run: Run) -> None:
    ended = run("goodbye")
    assert ended.out == "swallowed\n"
    assert ended.status == 1
    assert ended.err.count("tapes: refused POST") == 1


LITELLM = """
import litellm
litellm.suppress_debug_info = True
for model in ("gpt-4o", "mistral/mistral-large", "anthropic/claude-sonnet-5"):
    try:
        litellm.completion(model=model, messages=[{"role": "user", "content": "Oslo?"}])
    except litellm.BadRequestError as error:
        print("cassette miss" in str(error))
"""


@pytest.mark.row("N15", "F09")
def test_a_program_with_litellm_runs_as_it_is_and_asks_the_proxy_alone(tmp_path: Path) -> None:
    """Its import fetches nothing, so that the guard has nothing to refuse."""
    # Litellm itself may take half a minute to begin, where the machine has other work.
    ended = typed("run", "--", sys.executable, "-c", LITELLM, cwd=tmp_path, timeout=4 * PATIENCE_S)
    assert ended.out == "True\nTrue\nTrue\n", ended.err
    assert ended.err.count("tapes: refused POST") == 3
    assert "network blocked" not in ended.err
