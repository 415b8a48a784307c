"""An agent's loop over a directory of answers: each question is paid for once.

CASSETTE_MODE=record CASSETTE_LIVE_BUDGET=200 python loop.py
ls cassettes | wc -l          # so many answers
CASSETTE_MODE=replay CASSETTE_LIVE_BUDGET=0 python loop.py
ls cassettes | wc -l          # as many as before: nothing was asked again
"""

import os
from typing import Any

from tapes import resolve

QUESTIONS = os.environ.get("QUESTIONS", "what broke?|who wrote it?|how is it mended?").split("|")
spent: list[int] = []  # mirrors the count of live calls; the budget that decides is shared


def call_upstream(payload: dict[str, Any]) -> dict[str, Any]:
    """Stands for your own client."""
    question = payload["messages"][-1]["content"]
    return {"role": "assistant", "content": f"STAND-IN: {question}"}


def main() -> None:
    """Ask one question after another, each with the conversation so far."""
    messages: list[dict[str, Any]] = []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        payload = {"model": "stand-in", "messages": messages, "temperature": 0}
        reply = resolve(payload, call_upstream, spent)
        messages.append(reply)
        print(reply["content"])
    print(f"live calls: {spent[0] if spent else 0}")


if __name__ == "__main__":
    main()
