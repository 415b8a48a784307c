"""Makes the sample sessions of `tapes seed`: written by us, in the providers' own wire forms.

Usage: python tools/make_samples.py

One session is the conversation of `tapes demo`, with a real model server. The others are stories:
a coding agent with a sub-agent, an assistant with tools and its replay, a call that was limited and
one that was broken off, and texts in other scripts on a model that has no price. The same sources
give the same file to the byte.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tapes.canonical import HTTP_1, key_of_exchange_request
from tapes.envelope import Envelope
from tapes.exchange import Exchange, Piece, Request, Response, State
from tapes.rows import Outcome, RawTurn
from tapes.tape.jsonl import JsonlTape
from tapes.turnlines import line_of

SOURCES = Path(__file__).parents[1] / "src" / "tapes"
FILE = SOURCES / "samples" / "turns.jsonl"
SECOND = 1_000_000_000
START = 1_795_900_000 * SECOND

Block = dict[str, Any]


class Story:
    """One session, told call by call."""

    def __init__(self, name: str, begins: float, envelope: Envelope, agent: str = "") -> None:
        self.name, self.at, self.envelope, self.agent = name, begins, envelope, agent
        self.turns: list[RawTurn] = []

    def call(
        self,
        path: str,
        asked: Any,
        pieces: Sequence[tuple[float, bytes]],
        *,
        host: str,
        kind: str = "text/event-stream; charset=utf-8",
        status: int = 200,
        thread: str = "",
        pause: float = 1.5,
        state: State = State.COMPLETE,
        outcome: Outcome = Outcome.LIVE,
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        """A call, made a moment after the one before."""
        body = json.dumps(asked, ensure_ascii=False, separators=(",", ":")).encode()
        request = Request(
            "POST", f"https://{host}{path}", (("content-type", "application/json"),), body
        )
        said = (("content-type", kind), *headers)
        response = Response(status, said, tuple(Piece(round(at, 4), data) for at, data in pieces))
        takes = pieces[-1][0] if pieces else 0.2
        exchange = Exchange("", HTTP_1, request, response, state=state)
        exchange = replace(exchange, key=key_of_exchange_request(HTTP_1, request))
        began = START + round(self.at * SECOND)
        ended = began + round(takes * SECOND)
        self.turns.append(
            RawTurn(
                request_id=f"sample-{self.name}-{len(self.turns) + 1}",
                envelope=self.envelope,
                session_by="header",
                agent_name=self.agent,
                thread_id=thread,
                exchange=exchange,
                outcome=outcome,
                started_at=began,
                ended_at=ended,
                received_at=ended,
            )
        )
        self.at += takes + pause


# --- the Messages API -------------------------------------------------------------------------


def text(said: str) -> Block:
    return {"type": "text", "text": said}


def think(said: str) -> Block:
    return {"type": "thinking", "thinking": said, "signature": "c2FtcGxl"}


def use(call: str, name: str, **given: Any) -> Block:
    return {"type": "tool_use", "id": call, "name": name, "input": given}


def result(call: str, output: str, *, failed: bool = False) -> Block:
    block: Block = {"type": "tool_result", "tool_use_id": call, "content": output}
    return block | ({"is_error": True} if failed else {})


def message(role: str, *blocks: Block) -> Block:
    return {"role": role, "content": list(blocks)}


def _event(name: str, **said: Any) -> bytes:
    body = json.dumps({"type": name, **said}, ensure_ascii=False, separators=(",", ":"))
    return f"event: {name}\ndata: {body}\n\n".encode()


_STARTS = {"text": {"text": ""}, "thinking": {"thinking": ""}}


def _deltas(block: Block) -> Iterator[Block]:
    if block["type"] == "text":
        for start in range(0, len(block["text"]), 24):
            yield {"type": "text_delta", "text": block["text"][start : start + 24]}
    elif block["type"] == "thinking":
        yield {"type": "thinking_delta", "thinking": block["thinking"]}
        yield {"type": "signature_delta", "signature": block["signature"]}
    else:
        given = json.dumps(block["input"], ensure_ascii=False)
        for start in range(0, len(given), 40):
            yield {"type": "input_json_delta", "partial_json": given[start : start + 40]}


def stream(
    number: str, model: str, blocks: Sequence[Block], usage: tuple[int, int, int, int]
) -> list[tuple[float, bytes]]:
    """The events of an answer: usage is uncached, read, written, output."""
    plain, read, written, output = usage
    counted = {
        "input_tokens": plain,
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": 1,
    }
    begun = {
        "id": f"msg_{number}", "type": "message", "role": "assistant", "model": model,
        "content": [], "stop_reason": None, "stop_sequence": None, "usage": counted,
    }  # fmt: skip
    at, pieces = 0.62, [(0.62, _event("message_start", message=begun))]
    for index, block in enumerate(blocks):
        start = {"type": block["type"], **_STARTS.get(block["type"], {})}
        if block["type"] == "tool_use":
            start |= {"id": block["id"], "name": block["name"], "input": {}}
        pieces.append((at, _event("content_block_start", index=index, content_block=start)))
        for delta in _deltas(block):
            at += 0.045
            pieces.append((at, _event("content_block_delta", index=index, delta=delta)))
        pieces.append((at, _event("content_block_stop", index=index)))
    reason = "tool_use" if any(b["type"] == "tool_use" for b in blocks) else "end_turn"
    delta = {"stop_reason": reason, "stop_sequence": None}
    pieces.append((at, _event("message_delta", delta=delta, usage={"output_tokens": output})))
    pieces.append((at + 0.003, _event("message_stop")))
    return pieces


TOOLS = [
    {"name": name, "description": about, "input_schema": {"type": "object", "properties": {}}}
    for name, about in (
        ("Bash", "Run a command."),
        ("Read", "Read a file."),
        ("Edit", "Change a file."),
        ("Agent", "Have a sub-agent do a task."),
        ("TodoWrite", "Keep the list of tasks."),
    )
]
MODEL = "claude-sonnet-4-5"


def coding_agent() -> list[RawTurn]:
    """A coding agent mends the rounding of invoices; a sub-agent looks where else it is wrong."""
    story = Story(
        "coding",
        3300,  # the latest: the one that a newcomer sees first
        Envelope(
            harness_id="claude",
            harness_session_id="5a3c9f1e-7d42-4c08-9b6a-2f8e1d0c7b35",
            harness_version="2.1.0",
            cwd="/home/ada/shop",
            name="",
            harness_metadata={"kind": "interactive", "team": "checkout"},
        ),
        "claude-code",
    )
    history: list[Block] = []
    cached = 0

    def turn(said: Block, *blocks: Block, usage: tuple[int, int], pause: float = 2.0) -> None:
        nonlocal cached
        history.append(said)
        asked = {
            "model": MODEL, "max_tokens": 8000, "stream": True, "tools": TOOLS,
            "system": "You are a coding agent in a shop's repository.", "messages": list(history),
        }  # fmt: skip
        number = f"coding{len(story.turns)}"
        answer = stream(number, MODEL, blocks, (usage[0], cached, 420, usage[1]))
        story.call("/v1/messages", asked, answer, host="api.anthropic.com", pause=pause)
        history.append(message("assistant", *blocks))
        cached += 420 + usage[0]

    def helper(
        said: list[Block], *blocks: Block, usage: tuple[int, int], pause: float = 1.0
    ) -> None:
        asked = {
            "model": "claude-haiku-4-5", "max_tokens": 4000, "stream": True, "tools": TOOLS[:2],
            "system": "You look things up in a repository.", "messages": said,
        }  # fmt: skip
        number = f"helper{len(story.turns)}"
        answer = stream(number, "claude-haiku-4-5", blocks, (usage[0], 0, 0, usage[1]))
        story.call(
            "/v1/messages",
            asked,
            answer,
            host="api.anthropic.com",
            thread="agent-7f3a",
            pause=pause,
        )

    turn(
        message("user", text("The invoice test fails: it expects 42.00 and gets 41.99. Mend it.")),
        think("A cent is lost: something rounds twice, or is a float. Run the test first."),
        text("I run the test and look at the sum."),
        use("toolu_01", "Bash", command="pytest -q tests/test_invoice.py"),
        use("toolu_02", "Read", path="shop/invoice.py"),
        usage=(812, 118),
    )
    turn(
        message(
            "user",
            result("toolu_01", "E  assert 41.99 == 42.00\n1 failed", failed=True),
            result(
                "toolu_02",
                "def total(lines):\n    return sum(round(l.net * 1.19, 2) for l in lines)\n",
            ),
        ),
        text("Each line is rounded before the sum. I have the other places looked for meanwhile."),
        use(
            "toolu_03", "Agent", description="Find roundings",
            prompt="Find every place in shop/ that rounds money before adding it up.",
        ),
        usage=(390, 96),
    )  # fmt: skip
    task = message("user", text("Find every place in shop/ that rounds money before adding it up."))
    look = message("assistant", use("toolu_11", "Bash", command="grep -rn 'round(' shop/"))
    helper([task], *look["content"], usage=(240, 35))
    found = message(
        "user",
        result("toolu_11", "shop/invoice.py:2: round(l.net * 1.19, 2)\nshop/tax.py:9: round(t, 2)"),
    )
    told = (
        "Two places: shop/invoice.py line 2 and shop/tax.py line 9. Only the first adds up after."
    )
    helper([task, look, found], text(told), usage=(330, 41))
    turn(
        message("user", result("toolu_03", told)),
        text("Only the invoice is wrong. I round the sum instead of its parts."),
        use(
            "toolu_04", "Edit", path="shop/invoice.py",
            old="sum(round(l.net * 1.19, 2) for l in lines)",
            new="round(sum(l.net * Decimal('1.19') for l in lines), 2)",
        ),
        usage=(205, 128),
    )  # fmt: skip
    turn(
        message("user", result("toolu_04", "1 replacement")),
        use(
            "toolu_05", "Bash", command="pytest -q && git commit -am 'Round the sum, not its parts'"
        ),
        usage=(96, 64),
    )
    turn(
        message(
            "user", result("toolu_05", "48 passed\n[main 3f1c2ab] Round the sum, not its parts")
        ),
        text(
            "Mended: the sum is rounded once, with Decimal. All 48 tests pass, and it is committed."
        ),
        usage=(118, 44),
        pause=140,
    )
    turn(
        message("user", text("Thanks. Does the tax report have the same trouble?")),
        text(
            "No. shop/tax.py rounds each tax once and never adds the rounded values up: the report"
            " sums the exact amounts first. There is a test for it in tests/test_tax.py."
        ),
        usage=(64, 58),
    )
    return story.turns


# --- chat completions -------------------------------------------------------------------------


def chunks(
    number: str,
    model: str,
    said: str = "",
    *,
    calls: Sequence[Block] = (),
    usage: tuple[int, int] | None = None,
    step: float = 0.06,
) -> list[tuple[float, bytes]]:
    """The chunks of an answer of chat completions."""
    pieces: list[tuple[float, bytes]] = []
    at = 0.35

    def add(choices: list[Block], **more: Any) -> None:
        body = {
            "id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1795900000,
            "model": model, "choices": choices, **more,
        }  # fmt: skip
        line = json.dumps(body, ensure_ascii=False, separators=(",", ":"))
        pieces.append((at, f"data: {line}\n\n".encode()))

    def delta(reason: str | None = None, **what: Any) -> list[Block]:
        return [{"index": 0, "delta": what, "finish_reason": reason}]

    add(delta(role="assistant", content="" if said else None))
    for start in range(0, len(said), 12):
        at += step
        add(delta(content=said[start : start + 12]))
    for index, call in enumerate(calls):
        at += step
        add(delta(tool_calls=[{"index": index, **call}]))
    add(delta("tool_calls" if calls else "stop"))
    if usage is not None:
        counted = {"prompt_tokens": usage[0], "completion_tokens": usage[1]}
        add([], usage=counted | {"total_tokens": sum(usage)})
    at += 0.002
    pieces.append((at, b"data: [DONE]\n\n"))
    return pieces


def assistant_with_tools() -> list[RawTurn]:
    """An assistant asks for the weather; then the same again, answered from a tape."""
    turns: list[RawTurn] = []
    for part, outcome in (("live", Outcome.RECORDED), ("replay", Outcome.REPLAYED)):
        story = Story(
            f"weather-{part}",
            400 if part == "live" else 900,
            Envelope(
                harness_id="weather-app", harness_session_id=f"weather-{part}-2026-11-29",
                name="Packing for Lisbon", auth_subject="ada@example.com",
            ),
            "packer",
        )  # fmt: skip
        ask = [{"role": "user", "content": "I fly to Lisbon tomorrow. Do I need an umbrella?"}]
        call = {
            "id": "call_w1", "type": "function",
            "function": {"name": "get_weather", "arguments": '{"city":"Lisbon","day":"tomorrow"}'},
        }  # fmt: skip
        more = {"stream": True, "stream_options": {"include_usage": True}, "model": "gpt-4o-mini"}
        schema = {"type": "object", "properties": {"city": {"type": "string"}}}
        tools = [{"type": "function", "function": {"name": "get_weather", "parameters": schema}}]
        step = 0.06 if part == "live" else 0.0
        story.call(
            "/v1/chat/completions", {**more, "tools": tools, "messages": ask},
            chunks("w1", "gpt-4o-mini", calls=[call], usage=(86, 19), step=step),
            host="api.openai.com", outcome=outcome,
        )  # fmt: skip
        ask += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_w1", "content": '{"rain_mm":7,"high_c":16}'},
        ]
        said = "Yes: 7 mm of rain are expected, at 16 °C. Take an umbrella and a light jacket."
        story.call(
            "/v1/chat/completions", {**more, "tools": tools, "messages": ask},
            chunks("w2", "gpt-4o-mini", said, usage=(131, 24), step=step),
            host="api.openai.com", outcome=outcome,
        )  # fmt: skip
        turns += story.turns
    return turns


def trouble() -> list[RawTurn]:
    """A call that is limited, its second try, and a stream that the client breaks off."""
    story = Story(
        "trouble",
        1400,
        Envelope(harness_id="report-bot", harness_session_id="nightly-report-0412"),
        "reporter",
    )
    ask = {
        "model": "gpt-4o", "stream": True,
        "messages": [{"role": "user", "content": "Write the nightly report of the build farm."}],
    }  # fmt: skip
    limited = (
        b'{"error":{"message":"Rate limit reached","type":"tokens","code":"rate_limit_exceeded"}}'
    )
    story.call(
        "/v1/chat/completions", ask, [(0.08, limited)], host="api.openai.com", status=429,
        kind="application/json", headers=[("retry-after", "12")], pause=12,
    )  # fmt: skip
    said = "The farm built 212 packages; 3 failed, all for the same missing header."
    story.call("/v1/chat/completions", ask, chunks("n1", "gpt-4o", said), host="api.openai.com")
    ask["messages"] += [
        {"role": "assistant", "content": said},
        {"role": "user", "content": "List every package with its log."},
    ]
    long = chunks("n2", "gpt-4o", "1. zlib-ng: built in 41 s. 2. libpng: built in 63 s. 3. freety")
    story.call(
        "/v1/chat/completions", ask, long[:5], host="api.openai.com",
        state=State.ABORTED_BY_CLIENT,
    )  # fmt: skip
    return story.turns


def scripts() -> list[RawTurn]:
    """Texts in other scripts, on a model that has no price."""
    story = Story(
        "scripts", 2100, Envelope(harness_id="translator", harness_session_id="phrasebook")
    )
    history: list[Block] = []
    for asked, answered, usage in (
        ("Hello world, in Arabic?", "مرحبا بالعالم", (14, 6)),
        ("The weather is fine today, in Japanese?", "今日は天気がいい", (31, 9)),
        ("And a naive café, in French?", "Un naïve café, s'il vous plaît.", (52, 12)),
    ):
        history.append({"role": "user", "content": asked})
        body = {"model": "acme-local-7b", "messages": list(history)}
        answer = {
            "id": f"chatcmpl-s{len(history)}", "object": "chat.completion", "created": 1795900000,
            "model": "acme-local-7b",
            "choices": [
                {
                    "index": 0, "message": {"role": "assistant", "content": answered},
                    "finish_reason": "stop",
                }
            ],
            "usage": {"prompt_tokens": usage[0], "completion_tokens": usage[1]},
        }  # fmt: skip
        data = json.dumps(answer, ensure_ascii=False).encode()
        story.call(
            "/v1/chat/completions", body, [(0.9, data)], host="models.acme.test",
            kind="application/json", pause=8,
        )  # fmt: skip
        history.append({"role": "assistant", "content": answered})
    return story.turns


def real_conversation() -> list[RawTurn]:
    """The conversation of `tapes demo`, as it was recorded."""
    story = Story("demo", 2600, Envelope(harness_id="demo", harness_session_id="conversation"))
    tape = JsonlTape(str(SOURCES / "demo" / "conversation.jsonl"))
    for exchange in tape.exchanges():
        request, response = exchange.request, exchange.response
        assert isinstance(request, Request)
        assert isinstance(response, Response)
        began = START + round(story.at * SECOND)
        ended = began + round(response.pieces[-1].at * SECOND)
        story.turns.append(
            RawTurn(
                request_id=f"sample-demo-{len(story.turns) + 1}",
                envelope=story.envelope,
                session_by="header",
                exchange=exchange,
                outcome=Outcome.RECORDED,
                started_at=began,
                ended_at=ended,
                received_at=ended,
            )
        )
        story.at += response.pieces[-1].at + 4
    tape.close()
    return story.turns


def main() -> None:
    turns = [*coding_agent(), *assistant_with_tools(), *trouble(), *scripts(), *real_conversation()]
    FILE.write_text("".join(f"{line_of(turn)}\n" for turn in turns), encoding="utf-8")
    print(f"{FILE}: {len(turns)} turns")


if __name__ == "__main__":
    main()
