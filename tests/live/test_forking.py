"""An agent is captured, forked after one of its calls, and goes on live from there."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import Ended, typed
from tests.live.conftest import Provider

AGENT = """
import sys
import openai

messages = []
client = openai.OpenAI(max_retries=0, default_headers={"x-tapes-harness-session-id": "trip"})
for text in ("What is the capital of Norway?", "capital, once more", sys.argv[1]):
    messages.append({"role": "user", "content": text})
    answer = client.chat.completions.create(model="gpt-4o", messages=messages)
    print(answer.choices[0].message.content)
    messages.append({"role": "assistant", "content": answer.choices[0].message.content})
"""
Run = Callable[..., Ended]


@pytest.fixture
def run(provider: Provider, tmp_path: Path) -> Run:
    (tmp_path / "agent.py").write_text(AGENT)
    env = {"OPENAI_BASE_URL": f"{provider.url}/v1", "OPENAI_API_KEY": "sk-0123456789abcdefghijklmn"}

    def run(text: str, *flags: str) -> Ended:
        agent = (sys.executable, "agent.py", text)
        return typed("run", *flags, "--", *agent, cwd=tmp_path, env=env)

    return run


def told(folder: Path, *args: str) -> Any:
    ended = typed(*args, "--json", cwd=folder)
    assert ended.status == 0, ended.err
    return json.loads(ended.out)


def captured(folder: Path) -> str:
    """The one session of the log."""
    assert typed("derive", cwd=folder).status == 0
    (session,) = told(folder, "sessions", "list")["sessions"]
    assert session["rollup"]["llm_calls"] == 3
    return str(session["id"])


def test_an_agent_replays_to_the_fork_and_only_then_goes_live(
    run: Run, provider: Provider, tmp_path: Path
) -> None:
    first = run("What is the capital of Norway, at last?", "--mode", "pass")
    assert first.status == 0, first.err
    session_id = captured(tmp_path)
    fork = ("freeze", session_id, "--until", "2", "-o", "forks/trip.jsonl", "--no-test")
    assert told(tmp_path, *fork)["added"] == 2
    asked = provider.requests
    how = ("--tape", "forks/trip.jsonl", "--mode", "record", "--budget", "1")
    again = run("And the capital of Norway, said otherwise?", *how)
    assert again.status == 0, again.err
    assert again.out.splitlines()[:2] == first.out.splitlines()[:2]
    assert "2 served, 1 live, 0 refused" in again.err
    assert provider.requests == asked + 1


def test_a_fork_in_replay_ends_where_it_was_cut(
    run: Run, provider: Provider, tmp_path: Path
) -> None:
    assert run("What is the capital of Norway, at last?", "--mode", "pass").status == 0
    session_id = captured(tmp_path)
    told(tmp_path, "freeze", session_id, "--until", "2", "-o", "trip.jsonl", "--no-test")
    asked = provider.requests
    again = run("What is the capital of Norway, at last?", "--tape", "trip.jsonl")
    assert again.status != 0
    assert len(again.out.splitlines()) == 2
    assert provider.requests == asked
