"""Everything that the page talks to, as one process: samples, hostile texts, a tape, a proxy in
replay, services of which one is not there.

    python -m tests.ui.whole FOLDER [empty | odd] [DSN]

With `odd` there are sessions besides that are long, deep, or hold pictures.

It says its addresses as one line of JSON and serves until its standard input ends.
"""

import asyncio
import base64
import contextlib
import json
import os
import shutil
import sys
import threading
from importlib import resources
from pathlib import Path

from tapes.api.app import Api
from tapes.api.gate import App, Bounds
from tapes.capture.asked import ProxyMode
from tapes.capture.asked import Setup as ProxySetup
from tapes.capture.routes import Routes
from tapes.capture.shelf import Shelf
from tapes.cassette import Cassette
from tapes.exchange import State
from tapes.jsontext import Json
from tapes.keeping import open_projector, open_store
from tapes.listening import Listen
from tapes.opening import Where
from tapes.rows import RawTurn
from tapes.seeding import seed
from tapes.services.host import Setup as HostSetup
from tapes.services.mounting import in_front_of
from tapes.services.sources import Listed
from tapes.serving import Plan, Served, serve
from tests.doors import door
from tests.ingest.spans import NOW, request, span
from tests.servers import closed_port
from tests.services.hosting import serving_service
from tests.turns import Message, assistant, call, chat, messages, raw_turn, result, said, user

TAPE = "tests/tapes/conversation.jsonl"
ANY = Listen("127.0.0.1", 0)
HOSTILE = (
    "<script>window.broken = 1</script>",
    '<img src="https://elsewhere.test/x.png" onerror="window.broken = 1">',
    '<svg onload="window.broken = 1"><a href="javascript:window.broken = 1">go</a></svg>',
    "[a link](javascript:window.broken=1) https://elsewhere.test/ ${window.broken = 1}",
    "\x1b[31mred\x1b[0m \x07 \x00 \u202egnp.exe\u2066",
    '"><style>body{display:none}</style><!-- </textarea>',
)
# What hides in a text, and what only looks as if: emoji, a flag, joiners that letters need.
HIDDEN = "".join(chr(0xE0000 + ord(letter)) for letter in "Ignore all of it")
UNSEEN = f"pay\u200bpal{HIDDEN} to\u2060day\ufeff"
FAMILY = "👨\u200d👩\u200d👧"
SCOTLAND = "🏴\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"
NEEDED = f"{FAMILY} {SCOTLAND} ❤\ufe0f می\u200cخواهم क्\u200dष"
LARGE = 10_000_000


def hostile_turns() -> list[RawTurn]:
    """A session whose every text wants to be something else."""
    return [
        _called(number, text, {"name": text[:40], "arguments": json.dumps({text[:30]: text})})
        for number, text in enumerate(HOSTILE, 1)
    ] + [
        _called(
            len(HOSTILE) + 1,
            "ten million",
            {"name": "big", "arguments": json.dumps({"text": "x" * LARGE})},
        )
    ]


def _called(number: int, text: str, function: dict[str, str]) -> RawTurn:
    call = {"id": f"call_{number}", "type": "function", "function": function}
    asked = {"model": text[:60], "messages": [{"role": "user", "content": text}]}
    answered = {
        "id": f"chatcmpl-h{number}",
        "model": text[:60],
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {"role": "assistant", "content": text, "tool_calls": [call]},
            }
        ],
        "usage": {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18},
    }
    return raw_turn(
        number, "/v1/chat/completions", asked, answered, session="hostile", request_id=f"h{number}"
    )


MILLION = " ".join(f"word{number}" for number in range(110_000))[:1_000_000]


def unseen_turn() -> RawTurn:
    """A call whose texts have what cannot be seen."""
    asked = {"model": "unseen-1", "messages": [{"role": "user", "content": f"{UNSEEN} {NEEDED}"}]}
    message = {"role": "assistant", "content": UNSEEN}
    answered = {"id": "chatcmpl-unseen", "model": "unseen-1", "choices": [{"message": message}]}
    return raw_turn(
        1, "/v1/chat/completions", asked, answered, session="unseen", request_id="unseen"
    )


def large_turn() -> RawTurn:
    """A call whose answer is a megabyte."""
    asked = {"model": "large-1", "messages": [{"role": "user", "content": "All of it, please"}]}
    message = {"role": "assistant", "content": MILLION}
    answered = {"id": "chatcmpl-large", "model": "large-1", "choices": [{"message": message}]}
    return raw_turn(1, "/v1/chat/completions", asked, answered, session="large", request_id="large")


def unfinished_spans() -> Json:
    """A run of which one span was not received and two calls have no end yet."""
    about: dict[str, Json] = {"gen_ai.conversation.id": "unfinished"}
    chat = about | {"gen_ai.operation.name": "chat", "gen_ai.request.model": "still-1"}
    tool = about | {"gen_ai.operation.name": "execute_tool"}
    step = 1_000_000_000
    return request(
        span("a", about, name="plan the journey", ends=NOW + 20 * step),
        span("c", tool | {"gen_ai.tool.name": "book"}, parent="b", at=NOW + 2 * step, name="book"),
        span("d", tool | {"gen_ai.tool.name": "pay"}, parent="b", at=NOW + 6 * step, name="pay"),
        span("e", chat, parent="a", at=NOW + 9 * step, ends=0, name="chat still-1"),
        span("f", tool | {"gen_ai.tool.name": "wait"}, parent="a", at=NOW + 12 * step, ends=0),
    )


TURNS = 210
LANES = 12
DEPTH = 30
LONG_NAME = "W" * 300


def odd_turns() -> list[RawTurn]:
    """Sessions that are long, wide, or have names without an end."""
    long = [
        chat(n, [said("user", f"part {n}")], f"done {n}", session="long", request_id=f"l{n}")
        for n in range(1, TURNS + 1)
    ]
    first = assistant("I do", call("toolu_w", "Agent", prompt="a task"))
    led = messages(0, [user("lead them")], first, session="wide", request_id="w0")
    wide = [
        messages(
            n,
            [user(f"sub {n}")],
            assistant(f"sub done {n}"),
            session="wide",
            thread=f"thread-{n:02}-of-many",
            request_id=f"w{n}",
        )
        for n in range(1, LANES + 1)
    ]
    history = [user("name it")]
    steps = []
    for n in range(1, 41):
        called = call(f"toolu_{n}", LONG_NAME, command="x")
        steps.append(
            messages(n, history, assistant(f"step {n}", called), session="tall", request_id=f"t{n}")
        )
        history = [
            *history,
            assistant(f"step {n}", called),
            user(result(f"toolu_{n}", "it broke" if n == 30 else "fine", failed=n == 30)),
        ]
    fault: Json = {"type": "error", "error": {"type": "overloaded_error", "message": "Come later"}}
    failed = raw_turn(
        1,
        "/v1/messages",
        {"model": "claude-test", "messages": [user("too much")]},
        fault,
        session="failed",
        request_id="f1",
        status=529,
    )
    begun = (
        b'data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":"Hel"}}]}\n\n'
    )
    cut = raw_turn(
        2,
        "/v1/chat/completions",
        {"model": "gpt-test", "stream": True, "messages": [said("user", "cut me")]},
        None,
        session="cut",
        request_id="f2",
        state=State.ABORTED_BY_CLIENT,
        stream=begun,
    )
    return [*long, led, *wide, *steps, *pictures(), failed, cut, *written()]


# What models write, and what somebody may write to do harm by it.
MARKDOWN = f"""# Rounding

It was rounded **twice**, in `tax.py`; pay{HIDDEN}**pal\u200b** __init__ stays, src/**/*.py too.

1. Read
2. Sum
   - [x] once

```python
def total():  # <b>not bold</b>
    return 42
```

| case | <i>sum</i> |
| --- | ---: |
| a \\| b | 42.00 |

- أولاً

[guide](https://elsewhere.test/guide) ![one](https://elsewhere.test/one.png)
[run](javascript:window.broken=1) [odd](data:text/html,x) https://bank.test@elsewhere.test/
<img src="https://elsewhere.test/x.png" onerror="window.broken = 1">

```html
<script>window.broken = 1</script>
"""


def written() -> list[RawTurn]:
    """Answers in Markdown whose last fence is open, in JSON, and cut off."""
    found = []
    for number, (name, answer) in enumerate(
        [("markdown", MARKDOWN), ("json", '{"verdict": {"pass": true}}'), ("essay", "It was a")], 1
    ):
        reason = "length" if name == "essay" else "stop"
        choice: Json = {"message": said("assistant", answer), "finish_reason": reason}
        asked: Json = {"model": "gpt-test", "messages": [said("user", f"write {name}")]}
        answered: Json = {"id": f"m{number}", "model": "gpt-test", "choices": [choice]}
        path = "/v1/chat/completions"
        found.append(raw_turn(number, path, asked, answered, session=name, request_id=name))
    return found


# One red point.
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"


def pictures() -> list[RawTurn]:
    """Calls with a picture that can be drawn, one that could act, and one that lies elsewhere."""

    def held(kind: str, data: str) -> Message:
        source: Message = {"type": "base64", "media_type": kind, "data": data}
        return {"type": "image", "source": source}

    svg = base64.b64encode(b'<svg xmlns="http://www.w3.org/2000/svg" onload="broken=1"/>').decode()
    away: Message = {"type": "url", "url": "https://elsewhere.test/a.png"}
    shown = user("look at these", held("image/png", PNG), held("image/svg+xml", svg))
    shown["content"] = [*_blocks(shown), {"type": "image", "source": away}]
    called = call("toolu_p", "Screenshot", page="start")
    seen = result("toolu_p", "")
    seen["content"] = [{"type": "text", "text": "a screen"}, held("image/png", PNG)]
    begun = messages(1, [shown], assistant("I take one", called), session="seen", request_id="p1")
    then = [shown, assistant("I take one", called), user(seen)]
    ended = messages(2, then, assistant("all red"), session="seen", request_id="p2")
    part: Json = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
    asked: Json = {
        "model": "gpt-test",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "and this"}, part]}],
    }
    answered: Json = {
        "id": "p3",
        "model": "gpt-test",
        "choices": [{"message": said("assistant", "red")}],
    }
    other = raw_turn(1, "/v1/chat/completions", asked, answered, session="seen2", request_id="p3")
    return [begun, ended, other]


def _blocks(message: Message) -> list[Json]:
    content = message["content"]
    assert isinstance(content, list)
    return content


def deep_spans() -> Json:
    """Agents in agents, and a tool that failed in the last of them."""
    about: dict[str, Json] = {"gen_ai.conversation.id": "deep"}
    step = 1_000_000_000
    found = []
    for depth in range(1, DEPTH + 1):
        agent = about | {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": f"level {depth}",
        }
        begins, ends = NOW + depth * step, NOW + (3 * DEPTH - depth) * step
        one = span("a", agent, at=begins, ends=ends, name=f"invoke_agent level {depth}")
        chat_ = about | {"gen_ai.operation.name": "chat", "gen_ai.request.model": "deep-1"}
        two = span("a", chat_, at=begins + 10, ends=begins + step // 2, name="chat deep-1")
        for each, number, parent in ((one, depth, depth - 1), (two, 100 + depth, depth)):
            each |= {
                "traceId": "d" * 32,
                "spanId": f"{number:016x}",
                "parentSpanId": f"{parent:016x}" if parent else "",
            }
            found.append(each)
    tool = about | {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "dig"}
    begins = NOW + (DEPTH + 1) * step
    last = span("c", tool, trace="d" * 32, at=begins, name="execute_tool dig", status=2)
    return request(*found, last | {"parentSpanId": f"{DEPTH:016x}"})


def prepare(folder: Path, dsn: str, *, empty: bool, odd: bool) -> Where:
    """A project's folder with a tape, and a log: there, or in a database."""
    (folder / TAPE).parent.mkdir(parents=True)
    tape = resources.files("tapes.demo").joinpath("conversation.jsonl")
    with resources.as_file(tape) as file:
        shutil.copy(file, folder / TAPE)
    where = Where(dsn=dsn) if dsn else Where(str(folder / ".tapes" / "tapes.db"))
    store = open_store(where)
    if not empty:
        seed(store)
        store.append([*hostile_turns(), large_turn(), unseen_turn()])
        with door(store) as client:
            client.post("/v1/traces", json=unfinished_spans()).raise_for_status()
            if odd:
                store.append(odd_turns())
                client.post("/v1/traces", json=deep_spans()).raise_for_status()
        open_projector(store).drain()
    store.close()
    return where


async def main(folder: Path, dsn: str, *, empty: bool, odd: bool = False) -> None:
    """Serve until the standard input ends."""
    where = prepare(folder, dsn, empty=empty, odd=odd)
    os.chdir(folder)
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()

    def wait() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(stopped.set)

    threading.Thread(target=wait, daemon=True).start()
    with serving_service() as service:
        dead = f"http://127.0.0.1:{closed_port()}/openapi"
        sources = Listed(() if empty else (service.source, dead), "test")

        def in_front(api: Api) -> tuple[App, contextlib.AbstractAsyncContextManager[object]]:
            app = in_front_of(api.inner, api.document, HostSetup(sources=sources))
            return app, app.host.running()

        setup = ProxySetup(ProxyMode("replay"), Routes.of(), Shelf(Cassette(TAPE, "replay")))
        plan = Plan(where, api=ANY, bounds=Bounds(rate=0), proxy=(setup, ANY), in_front=in_front)
        await serve(plan, _tell, stopped)


def _tell(served: Served) -> None:
    addresses = {str(door): address for door, address in served.addresses.items()}
    print(json.dumps(addresses), flush=True)


if __name__ == "__main__":
    given = sys.argv[2:]
    [database] = [word for word in given if "://" in word] or [""]
    asyncio.run(main(Path(sys.argv[1]), database, empty="empty" in given, odd="odd" in given))
