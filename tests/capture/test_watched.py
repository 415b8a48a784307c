"""The proxy's exchanges in the log: whole, cut, failed, refused, replayed."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tapes.capture.log import Log
from tapes.capture.spool import Spool
from tapes.capture.watched import LogWatcher
from tapes.exchange import State
from tapes.rows import Outcome, RawTurn
from tapes.server import ProxyServer
from tapes.store.sqlite import open_sqlite
from tests.noticing import answered
from tests.proxies import Broken, Raw, chat, proxying, report_of, request, wait_until
from tests.servers import Script, Server, Wire, answer, chunks, closed_port, serving

KEY = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"


@contextmanager
def watched(
    folder: Path, *scripts: Script, mode: str = "pass", upstream: str | None = None
) -> Iterator[tuple[ProxyServer, Log, Server]]:
    """A proxy that keeps a log, before an upstream that does what scripts say."""
    log = Log(lambda: open_sqlite(folder / "tapes.db"), Spool(folder / "spool"))
    tape = None if mode == "pass" else folder / "t.jsonl"
    try:
        with (
            serving(*scripts) as server,
            proxying(upstream or server.url, tape, mode, watcher=LogWatcher(log)) as proxy,
        ):
            yield proxy, log, server
    finally:
        log.close()


def turns_of(folder: Path, log: Log, count: int) -> list[RawTurn]:
    wait_until(lambda: log.counts().get("noticed", 0) >= count and log.is_idle)
    store = open_sqlite(folder / "tapes.db")
    try:
        return list(store.project().stream_turns())
    finally:
        store.close()


@pytest.mark.row("D1", "D2")
def test_a_stream_is_kept_to_the_byte_with_the_time_of_each_piece(tmp_path: Path) -> None:
    pieces = [
        b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"%d"}}]}\n\n' % n
        for n in range(3)
    ]
    script = chunks(*pieces, b"data: [DONE]\n\n")
    with watched(tmp_path, script) as (proxy, log, _):
        began = time.time_ns()
        with Raw(proxy) as raw:
            got = raw.ask(chat("hi", stream=True))
        (turn,) = turns_of(tmp_path, log, 1)
    assert turn.exchange is not None
    assert turn.exchange.request.body == chat("hi", stream=True)
    assert turn.exchange.response.body == got.body
    times = [piece.at for piece in turn.exchange.response.pieces]
    assert times == sorted(times)
    assert turn.started_at is not None
    assert turn.ended_at is not None
    assert began <= turn.started_at <= turn.ended_at <= time.time_ns()
    assert (turn.outcome, turn.exchange.state) == (Outcome.LIVE, State.COMPLETE)


def test_a_request_that_comes_in_pieces_is_kept_whole(tmp_path: Path) -> None:
    body = chat("long " * 50_000)
    with watched(tmp_path, answer(answered("yes"))) as (proxy, log, _):
        with Raw(proxy) as raw:
            assert raw.ask(body).status == 200
        (turn,) = turns_of(tmp_path, log, 1)
    assert turn.exchange is not None
    assert turn.exchange.request.body == body


def test_a_client_that_leaves_is_told_apart_from_an_upstream_that_breaks_off(
    tmp_path: Path,
) -> None:
    def begun(wire: Wire) -> None:
        wire.head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])
        for text in ("Hel", "lo"):
            delta = {"index": 0, "delta": {"content": text}}
            wire.chunk(b"data: %b\n\n" % json.dumps({"id": "c", "choices": [delta]}).encode())

    def waits(_: object, wire: Wire) -> None:
        begun(wire)
        wire.until_left()

    def breaks(_: object, wire: Wire) -> None:
        begun(wire)
        wire.close()

    with watched(tmp_path, waits, breaks) as (proxy, log, _):
        with Raw(proxy) as raw:
            raw.send(request(chat("one", stream=True)))
            raw.until(b'"lo"')
        with Raw(proxy) as raw, pytest.raises((Broken, ConnectionError)):
            raw.ask(chat("two", stream=True))
        left, broken = turns_of(tmp_path, log, 2)
    for turn, state in ((left, State.ABORTED_BY_CLIENT), (broken, State.UPSTREAM_ERROR)):
        assert turn.exchange is not None
        assert turn.exchange.state is state
        assert turn.reduced["message"]["content"] == [{"type": "text", "text": "Hello"}]
        assert "usage" not in turn.reduced


def test_what_no_upstream_answered_is_a_turn_and_no_secret_of_it_rests(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secrets = ("TEST-QUERY-0123456789", "test-bearer-abcdef", "test-header-0001", KEY)
    path = f"/v1beta/models/m:generateContent?key={secrets[0]}"
    body = json.dumps({"contents": [{"parts": [{"text": f"keep {KEY}"}]}]}).encode()
    with watched(tmp_path, upstream=f"http://127.0.0.1:{closed_port()}") as (proxy, log, _):
        with Raw(proxy) as raw:
            lines = (f"Authorization: Bearer {secrets[1]}", f"x-api-key: {secrets[2]}")
            got = raw.ask(body, path, *lines)
            assert got.status == 502
        (turn,) = turns_of(tmp_path, log, 1)
        counts = log.counts()
    assert turn.exchange is not None
    assert (turn.exchange.response, turn.exchange.state) == (None, State.UPSTREAM_ERROR)
    assert counts["drop upstream_no_response"] == 1
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    at_rest = b"".join(file.read_bytes() for file in files) + got.head + got.body
    for secret in secrets:
        assert secret.encode() not in at_rest
        assert secret not in caplog.text + repr(turn)


def test_what_is_no_model_call_is_counted_and_passed_on(tmp_path: Path) -> None:
    with watched(tmp_path, answer(b'{"data":[]}')) as (proxy, log, _):
        with Raw(proxy) as raw:
            assert raw.ask(b"", "/v1/models", method="GET").status == 200
            assert raw.ask(chat("hi")).status == 200
        assert len(turns_of(tmp_path, log, 1)) == 1
        told = report_of(proxy)["log"]
    assert (told["noticed"], told["drop non_turn_request"]) == (1, 1)


@pytest.mark.row("F10")
def test_recorded_replayed_and_refused_calls_are_told_apart(tmp_path: Path) -> None:
    script = answer(answered("yes"), headers=[("x-request-id", "req_1")])
    with watched(tmp_path, script, mode="record") as (proxy, log, server):
        with Raw(proxy) as raw:
            for _ in range(2):
                assert raw.ask(chat("one")).status == 200
        recorded, replayed = turns_of(tmp_path, log, 2)
        assert len(server.requests) == 1
    with watched(tmp_path, script, mode="replay") as (proxy, log, _):
        with Raw(proxy) as raw:
            assert raw.ask(chat("another")).status == 400
        refused = turns_of(tmp_path, log, 1)[-1]
    outcomes = [turn.outcome for turn in (recorded, replayed, refused)]
    assert outcomes == [Outcome.RECORDED, Outcome.REPLAYED, Outcome.REFUSED]
    assert refused.meta["refused"] == "miss"
    assert recorded.request_id != replayed.request_id
    assert recorded.exchange is not None
    assert replayed.exchange is not None
    assert recorded.exchange.key == replayed.exchange.key != ""
    assert recorded.exchange.response.body == replayed.exchange.response.body
