"""From the wire to sessions: real clients, a recorded agent, and servers that are killed."""

import contextlib
import json
import signal
import threading
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

from tapes.capture.log import Log
from tapes.capture.noticed import Noticed
from tapes.capture.spool import Spool
from tapes.capture.watched import LogWatcher
from tapes.exchange import Request, Response
from tapes.keeping import open_projector, open_store
from tapes.opening import Where
from tapes.prices import Price, Prices
from tapes.projector import Projector
from tapes.rows import SpanKind
from tapes.store.base import Ask
from tests.commands import serving_proxy, typed
from tests.conftest import OpenStore
from tests.live.conftest import Provider
from tests.live.test_sdks_through_proxy import CLIENTS, called
from tests.noticing import answered
from tests.proxies import Broken, Raw, chat, proxying
from tests.servers import answer, serving
from tests.turns import recording

SONNET = Price(
    model="claude-sonnet-4.6",
    input=Decimal(3),
    output=Decimal(15),
    cache_read=Decimal("0.30"),
    cache_write=Decimal("3.75"),
)


def seen_again(folder: Path) -> list[Noticed]:
    """The recorded calls, as the proxy would have noticed them."""
    found = []
    for turn in recording(folder):
        assert turn.exchange is not None
        assert isinstance(turn.exchange.request, Request)
        assert isinstance(turn.exchange.response, Response)
        assert turn.started_at is not None
        assert turn.ended_at is not None
        found.append(
            Noticed(
                request=turn.exchange.request,
                response=turn.exchange.response,
                started_at=turn.started_at,
                ended_at=turn.ended_at,
                lane="proxy",
            )
        )
    return found


@pytest.mark.row("D2", "D3", "D7")
def test_a_recorded_agent_becomes_the_session_that_was_counted(
    open_store: OpenStore, reference_data: Path, tmp_path: Path
) -> None:
    folder = reference_data / "tapes-fixtures/recordings/claude-20260727-019fa57e"
    derived = json.loads((folder / "expected.json").read_text())["derived"]
    calls = seen_again(folder)
    log = Log(open_store, Spool(tmp_path / "spool"))
    for call in calls:
        log.notice(call)
    log.close()
    store = open_store()
    projector = Projector(store, Prices([SONNET], table=False))
    projector.drain()
    project = store.project()
    (listed,) = project.sessions().items
    rows = project.rows_of_session(listed.session.id)
    session, (trace,) = listed.session, rows.traces
    assert session.harness_id == "claude"
    assert (trace.user_prompt, session.derived_title) == (
        derived["user_prompt"],
        derived["derived_title"],
    )
    assert Counter(span.kind.value for span in rows.spans) == derived["span_kinds"]
    assert dict(session.kind_counts) == derived["call_kinds"]
    assert (session.tool_result_count, session.tool_error_count) == (
        derived["tool_results"],
        derived["tool_errors"],
    )
    usage = derived["usage"]
    assert session.total_cost_usd == Decimal(str(usage["cost_usd"]))
    assert (session.total_input_tokens, session.total_output_tokens) == (
        usage["input_tokens"],
        usage["output_tokens"],
    )
    assert (trace.main_input_tokens, trace.main_output_tokens) == (
        derived["main_usage"]["input_tokens"],
        derived["main_usage"]["output_tokens"],
    )
    assert list(projector.check()) == []
    kept = [turn.exchange for turn in project.stream_turns()]
    for exchange, call in zip(kept, calls, strict=True):
        assert exchange is not None
        assert isinstance(call.request, Request)
        assert exchange.request.body == call.request.body
        assert exchange.response.body == call.response.body


MODEL_CALLS = [
    "openai chat",
    "openai chat, streamed",
    "openai chat with a tool",
    "openai responses",
    "openai responses, streamed",
    "anthropic message",
    "anthropic message, streamed",
    "gemini content",
    "gemini content, streamed",
    "ollama chat",
    "ollama chat, streamed",
]
PROMPTS = {"openai chat with a tool": "weather"}


@pytest.mark.row("F09", "D1", "D7")
def test_what_real_clients_ask_becomes_sessions(
    open_store: OpenStore, provider: Provider, tmp_path: Path
) -> None:
    log = Log(open_store, Spool(tmp_path / "spool"))
    upstreams = dict.fromkeys(CLIENTS, provider.url)
    try:
        with proxying(None, None, "pass", upstreams=upstreams, watcher=LogWatcher(log)) as proxy:
            for name in MODEL_CALLS:
                called(name, proxy.address)
            called("openai embeddings", proxy.address)
    finally:
        log.close()
    store = open_store()
    projector = Projector(store)
    projector.drain()
    sessions = store.project().sessions(Ask(sort="started_at", descending=False)).items
    prompts = [listed.session.preview for listed in sessions]
    assert prompts == [PROMPTS.get(name, "capital, fjord") for name in MODEL_CALLS]
    for listed, name in zip(sessions, MODEL_CALLS, strict=True):
        spans = store.project().rows_of_session(listed.session.id).spans
        (call,) = (span for span in spans if span.kind is SpanKind.LLM)
        assert call.output, name
        assert (call.error_type, call.fidelity) == ("", "raw"), name
        assert listed.session.derived_status == "completed", name
    assert store.counts()["drops"] == {"non_turn_request": 1}
    assert list(projector.check()) == []


@pytest.mark.row("D2", "D3", "D7")
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_server_that_is_killed_under_load_loses_nothing_that_it_had(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    env = {}
    where = Where(str(tmp_path / ".tapes" / "tapes.db"))
    if kind == "postgres":
        where = Where.of(request.getfixturevalue("database"))
        env["TAPES_STORAGE_POSTGRES_DSN"] = str(where.dsn)
    stop = threading.Event()

    def ask(port: int, client: int) -> None:
        with contextlib.suppress(OSError, Broken), Raw(port) as raw:
            number = 0
            while not stop.is_set():
                text = f"{client} asks {number}"
                raw.ask(chat(text), "/v1/chat/completions", f"x-session-id: s{number % 40}")
                number += 1

    had = 0
    with serving(answer(answered("yes"))) as upstream:
        for _ in range(2):  # the second takes in what the first one left
            flags = ("--mode", "pass", "--upstream", upstream.url)
            with serving_proxy(*flags, cwd=tmp_path, env=env) as proxy:
                clients = [threading.Thread(target=ask, args=(proxy.port, n)) for n in range(4)]
                for client in clients:
                    client.start()
                wanted = had + 100
                seen = 0
                while seen < wanted - had:
                    with Raw(proxy.port) as raw:
                        counts = raw.ask(b"", "/_tapes/report", method="GET").json()["log"]
                    seen = counts.get("kept new", 0)
                had += seen
                proxy.process.send_signal(signal.SIGKILL)
                stop.set()
                for client in clients:
                    client.join()
                stop.clear()
    store = open_store(where)
    assert len(list(store.project().stream_turns())) >= had
    assert store.check() == ()
    projector = open_projector(store)
    projector.drain()
    assert list(projector.check()) == []
    store.close()
    checked = typed("derive", "--check", cwd=tmp_path, env=env)
    assert checked.status == 0, checked.out + checked.err
