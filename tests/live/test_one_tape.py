"""One tape for all: what the proxy recorded replays in process, and the other way round."""

import gzip
import json
from pathlib import Path

import pytest

import tapes
from tests.clients import CLIENTS, Call, Client, Got
from tests.proxies import Raw, proxying
from tests.servers import Script, answer, chunks, serving

PATH = "/v1/chat/completions"
PIECES = (
    b'data: {"choices":[{"delta":{"content":"caf\xc3\xa9"}}]}\n\n',
    b": ping\r\n\r\n",
    b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\n',
    b"data: [DONE]\n\n",
)
ODD = b'{ "b" : 1.10, "n":123456789012345678901234567890, "a":1,"a":2 }\n\xff\x00'
SCRIPTS: dict[str, Script] = {
    "json": answer(ODD, headers=[("X-Request-Id", "r1"), ("Set-Thing", "1"), ("Set-Thing", "2")]),
    "gzip": answer(gzip.compress(ODD), headers=[("Content-Encoding", "gzip")]),
    "stream": chunks(*PIECES),
    "binary": answer(bytes(range(256)) * 300, content_type="audio/mpeg"),
    "empty": answer(b"", content_type="text/plain"),
}
clients = pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
scripts = pytest.mark.parametrize("script", SCRIPTS.values(), ids=SCRIPTS)


def call(base: str) -> Call:
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "ü"}]}).encode()
    return Call(base + PATH, body=body)


def both(client: Client, base: str) -> tuple[Got, bytes]:
    """What the client's caller reads, and the bytes that came before they were decoded."""
    return client.ask(call(base)), b"".join(client.pieces(call(base)))


def without_framing(got: Got) -> list[tuple[str, str]]:
    """A client that replays in process needs no framing; all else is as it was."""
    return [pair for pair in got.headers if pair[0] not in ("transfer-encoding", "content-length")]


@pytest.mark.row("F11", "A12-http", "N09", "N10")
@scripts
@clients
def test_what_the_proxy_recorded_replays_in_every_client(
    client: Client, script: Script, tmp_path: Path
) -> None:
    tape = tmp_path / "t.jsonl"
    with serving(script) as upstream, proxying(upstream.url, tape, "record") as proxy:
        live = both(client, proxy.address)
        assert len(upstream.requests) == 1
    with tapes.use(tape):
        replayed = both(client, upstream.url)
    assert replayed[1] == live[1]
    assert (replayed[0].status, replayed[0].body) == (live[0].status, live[0].body)
    assert without_framing(replayed[0]) == without_framing(live[0])


@pytest.mark.row("F11", "N06")
@scripts
@clients
def test_what_a_client_recorded_in_process_replays_through_the_proxy(
    client: Client, script: Script, tmp_path: Path
) -> None:
    tape = tmp_path / "t.jsonl"
    with serving(script) as upstream, tapes.use(tape, "record", latch=True):
        live = both(client, upstream.url)
        assert len(upstream.requests) == 1
    with proxying(upstream.url, tape) as proxy:
        replayed = both(client, proxy.address)
    assert replayed[1] == live[1]
    assert (replayed[0].status, replayed[0].body) == (live[0].status, live[0].body)
    assert without_framing(replayed[0]) == without_framing(live[0])


@pytest.mark.row("F11", "F10")
def test_every_client_and_the_proxy_are_answered_by_one_recording(tmp_path: Path) -> None:
    tape = tmp_path / "t.jsonl"
    with serving(answer(ODD)) as upstream, proxying(upstream.url, tape, "record") as proxy:
        for client in CLIENTS:
            assert client.ask(call(proxy.address)).body == ODD
        assert len(upstream.requests) == 1
    with tapes.use(tape):
        assert {client.ask(call(upstream.url)).body for client in CLIENTS} == {ODD}


@pytest.mark.row("N06", "F11")
def test_the_pieces_of_a_stream_stay_as_they_were_on_either_way(tmp_path: Path) -> None:
    tape = tmp_path / "t.jsonl"
    with serving(chunks(*PIECES)) as upstream, tapes.use(tape, "record", latch=True):
        CLIENTS[0].pieces(call(upstream.url))
    with proxying(upstream.url, tape) as proxy, Raw(proxy) as raw:
        body = call("").body or b""
        assert raw.ask(body, PATH).chunks == list(PIECES)


@pytest.mark.row("N17", "B5")
def test_one_budget_holds_over_the_proxy_and_programs_in_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CASSETTE_LIVE_BUDGET", "3")
    tape, client = tmp_path / "t.jsonl", CLIENTS[0]

    def asked(base: str, text: str) -> Call:
        return Call(base + PATH, body=json.dumps({"prompt": text}).encode())

    with serving(answer(b'{"ok":1}')) as upstream:
        with proxying(upstream.url, tape, "record") as proxy:
            statuses = [client.ask(asked(proxy.address, text)).status for text in "ab"]
        with tapes.use(tape, "record"):
            statuses.append(client.ask(asked(upstream.url, "c")).status)
            with pytest.raises(tapes.BudgetExhausted):
                client.ask(asked(upstream.url, "d"))
        with proxying(upstream.url, tape, "record") as proxy:
            refused = client.ask(asked(proxy.address, "e"))
        assert len(upstream.requests) == 3
    assert statuses == [200, 200, 200]
    assert (refused.status, b"budget exhausted" in refused.body) == (400, True)
