"""Requests that are answered from a tape, or refused: decided once, played as recorded."""

import json
import multiprocessing
import select
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tapes.cassette import Cassette
from tapes.exchange import Request
from tapes.permit import Permit
from tapes.tape.jsonl import JsonlTape
from tests.making import stretch
from tests.proxies import Answered, Raw, chat, proxying, report_of, request, wait_until
from tests.servers import Received, Server, Wire, answer, chunks, serving

EVENTS = (b'data: {"a":1}\n\n', b": ping\n\n", b"data: [DONE]\n\n")


def counting(_: Received, wire: Wire) -> None:
    """Answers each request with the number of those that came before."""
    body = json.dumps({"n": next(numbers)}).encode()
    answer(body)(_, wire)


numbers = iter(range(10**9))


def recorded(tape: Path, *bodies: bytes, lines: tuple[str, ...] = ()) -> list[Answered]:
    """Record these requests, and give the answers that came."""
    with (
        serving(counting) as upstream,
        proxying(upstream.url, tape, "record") as proxy,
        Raw(proxy) as raw,
    ):
        return [raw.ask(body, "/v1/chat/completions", *lines) for body in bodies]


@pytest.mark.row("F10", "N10", "A5")
def test_what_was_recorded_is_replayed_to_the_byte_and_nothing_is_sent(tmp_path: Path) -> None:
    body = '{"t":"\\ud83d", "n":1.10,"a":1,"a":2, "u":"\u2028é"}\n'.encode()
    headers = [("X-Request-Id", "abc"), ("x-tag", "1"), ("x-tag", "2")]
    with serving(answer(body, headers=headers, reason="Fine")) as upstream:
        with proxying(upstream.url, tmp_path / "t.jsonl", "record") as proxy, Raw(proxy) as raw:
            first = raw.ask(chat("x"))
        with proxying(upstream.url, tmp_path / "t.jsonl") as proxy, Raw(proxy) as raw:
            again = [raw.ask(chat("x")) for _ in range(2)]
        assert len(upstream.requests) == 1
    for answered in again:
        assert answered.body == first.body == body
        assert answered.head == first.head


@pytest.mark.row("N06", "N07")
def test_a_stream_is_replayed_in_the_pieces_in_which_it_came(tmp_path: Path) -> None:
    with (
        serving(chunks(*EVENTS)) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", "record") as proxy,
        Raw(proxy) as raw,
    ):
        raw.ask(chat("x", stream=True))
    with proxying(None, tmp_path / "t.jsonl") as proxy, Raw(proxy) as raw:
        assert raw.ask(chat("x", stream=True)).chunks == list(EVENTS)


@pytest.mark.row("N06")
def test_a_stream_can_be_played_as_recorded_scaled_or_at_once(tmp_path: Path) -> None:
    def script(_: Received, wire: Wire) -> None:
        wire.head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])
        for number in range(5):
            if number:
                time.sleep(0.1)  # the recorded time is what this test is about
            wire.chunk(b"data: %d\n\n" % number if number < 4 else b"data: [DONE]\n\n")
        wire.last_chunk()

    tape = tmp_path / "t.jsonl"
    with (
        serving(script) as upstream,
        proxying(upstream.url, tape, "record") as proxy,
        Raw(proxy) as raw,
    ):
        raw.ask(chat("x"))
    with proxying(None, tape, pace=1.0) as proxy, Raw(proxy) as raw:
        assert _took(raw) >= 0.39
    stretch(tape, 60)  # more than anybody waits
    with proxying(None, tape, pace=1.0) as proxy, Raw(proxy) as raw:
        assert _took(raw, "x-tapes-pace: 0.001") >= 0.29
        _took(raw, "x-tapes-pace: 0")


def _took(raw: Raw, *lines: str) -> float:
    begun = time.monotonic()
    assert len(raw.ask(chat("x"), "/v1/chat/completions", *lines).chunks) == 5
    return time.monotonic() - begun


@pytest.mark.row("N15", "A6")
def test_a_miss_is_an_answer_with_its_diagnosis_and_is_listed(tmp_path: Path) -> None:
    tape = tmp_path / "t.jsonl"
    recorded(tape, chat("What is the weather?"))
    with proxying(None, tape) as proxy, Raw(proxy) as raw:
        got = raw.ask(chat("What is the time?"))
        misses = raw.ask(b"", "/_tapes/misses", method="GET").json()["misses"]
        assert report_of(proxy)["tapes"][0]["refused"] == 1
    message = got.json()["error"]["message"]
    assert got.status == 400
    assert got.header("x-should-retry") == "false"
    assert got.header("x-tapes-error") == "miss"
    assert str(tape) in message
    assert "messages[0].content" in message
    assert "CASSETTE_MODE=record" in message
    (miss,) = misses
    assert (miss["slug"], miss["path"]) == ("miss", "/v1/chat/completions")
    assert "messages[0].content" in miss["remedy"]


@pytest.mark.row("N08")
def test_a_miss_says_that_the_only_recording_was_cut_off(tmp_path: Path) -> None:
    tape = tmp_path / "t.jsonl"
    with (
        serving(chunks(b'data: {"choices":[{"delta":{}}]}\n\n')) as upstream,
        proxying(upstream.url, tape, "record") as proxy,
        Raw(proxy) as raw,
    ):
        raw.ask(chat("x"))
    with proxying(None, tape) as proxy, Raw(proxy) as raw:
        got = raw.ask(chat("x"))
    assert got.header("x-tapes-error") == "incomplete"


@pytest.mark.row("A5", "F02")
def test_a_closed_latch_refuses_and_sends_nothing(tmp_path: Path) -> None:
    with (
        serving(answer()) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", "record", latch=False) as proxy,
        Raw(proxy) as raw,
    ):
        assert raw.ask(chat("x")).header("x-tapes-error") == "latch-closed"
        assert upstream.requests == []


@pytest.mark.row("A5")
def test_record_reuses_what_is_there_and_live_always_asks(tmp_path: Path) -> None:
    tape = tmp_path / "t.jsonl"
    with serving(counting) as upstream:
        for mode, calls in (("record", 1), ("live", 4)):
            with proxying(upstream.url, tape, mode) as proxy, Raw(proxy) as raw:
                for _ in range(3):
                    raw.ask(chat("x"))
            assert len(upstream.requests) == calls
    assert len(list(JsonlTape(tape).exchanges())) == 4


@pytest.mark.row("N03")
def test_a_request_can_have_several_answers_by_number_and_by_order(tmp_path: Path) -> None:
    tape = tmp_path / "t.jsonl"
    first = recorded(tape, *[chat("x")] * 3, lines=("x-tapes-group: one",))
    with proxying(None, tape) as proxy, Raw(proxy) as raw:

        def asked(*lines: str) -> bytes:
            return raw.ask(chat("x"), "/v1/chat/completions", *lines).body

        assert [asked("x-tapes-group: two") for _ in range(3)] == [a.body for a in first]
        assert [asked(f"x-tapes-sample: {n}") for n in (2, 0, 1)] == [
            first[n].body for n in (2, 0, 1)
        ]
        assert [asked() for _ in range(2)] == [first[0].body] * 2
        assert asked("x-tapes-sample: 3") != first[0].body


@pytest.mark.row("N03")
def test_the_calls_of_a_whole_run_can_be_ordered(tmp_path: Path) -> None:
    tape = tmp_path / "t.jsonl"
    with (
        serving(counting) as upstream,
        proxying(upstream.url, tape, "record", repeated="ordered") as proxy,
        Raw(proxy) as raw,
    ):
        first = [raw.ask(chat("x")).body for _ in range(3)]
    with proxying(None, tape, repeated="ordered") as proxy, Raw(proxy) as raw:
        assert [raw.ask(chat("x")).body for _ in range(3)] == first


# --- several at once --------------------------------------------------------------------------


class Gate:
    """An upstream that answers when the test says so."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.arrived = threading.Semaphore(0)

    def __call__(self, received: Received, wire: Wire) -> None:
        self.arrived.release()
        self.open.wait(10)
        counting(received, wire)


def asked_at_once(proxies: list[int], bodies: list[bytes], gate: Gate) -> list[bytes]:
    def ask(number: int) -> bytes:
        with Raw(proxies[number % len(proxies)]) as raw:
            return raw.ask(bodies[number]).body

    with ThreadPoolExecutor(len(bodies)) as pool:
        asking = [pool.submit(ask, number) for number in range(len(bodies))]
        assert gate.arrived.acquire(timeout=10)
        gate.open.set()
        return [future.result(20) for future in asking]


@pytest.mark.parametrize("size", [10, 100_000], ids=["small", "large"])
def test_the_same_call_of_many_clients_at_once_is_made_once(size: int, tmp_path: Path) -> None:
    gate, body = Gate(), chat("x" * size)
    with (
        serving(gate) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", "record") as proxy,
    ):
        port = int(proxy.address.rpartition(":")[2])
        answers = asked_at_once([port], [body] * 8, gate)
        assert len(upstream.requests) == 1
    assert len(set(answers)) == 1


def test_the_same_call_through_two_proxies_of_one_tape_is_made_once(tmp_path: Path) -> None:
    gate, tape = Gate(), tmp_path / "t.jsonl"
    with (
        serving(gate) as upstream,
        proxying(upstream.url, tape, "record") as one,
        proxying(upstream.url, JsonlTape(tape), "record") as two,
    ):
        ports = [int(proxy.address.rpartition(":")[2]) for proxy in (one, two)]
        answers = asked_at_once(ports, [chat("x")] * 6, gate)
        assert len(upstream.requests) == 1
        # Nor is anything of those kept that waited for a call which never ended there.
        wait_until(lambda: (one.desk.waiting, two.desk.waiting) == (0, 0))
    assert len(set(answers)) == 1


@pytest.mark.row("N17", "B5")
def test_a_limit_of_live_calls_holds_exactly(tmp_path: Path) -> None:
    gate = Gate()
    bodies = [chat(f"question {n}") for n in range(8)]
    environ = {"CASSETTE_LIVE_BUDGET": "3"}
    with (
        serving(gate) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", "record", environ=environ) as proxy,
    ):
        port = int(proxy.address.rpartition(":")[2])
        answers = asked_at_once([port], bodies, gate)
        assert len(upstream.requests) == 3
    assert sum(b"budget exhausted" in answer for answer in answers) == 5


@pytest.mark.row("N17")
def test_a_call_that_gets_no_answer_costs_no_unit(tmp_path: Path) -> None:
    def refuse(_: Received, wire: Wire) -> None:
        wire.reset()

    environ = {"CASSETTE_LIVE_BUDGET": "1"}
    with (
        serving(refuse, counting) as upstream,
        proxying(upstream.url, tmp_path / "t.jsonl", "record", environ=environ) as proxy,
        Raw(proxy) as raw,
    ):
        assert raw.ask(chat("x")).status == 502
        with Raw(proxy) as raw2:
            assert raw2.ask(chat("x")).status == 200


@pytest.mark.row("N04", "N05")
def test_parallel_calls_each_get_and_keep_their_own_answer(tmp_path: Path) -> None:
    tape = tmp_path / "t.jsonl"

    def echo(received: Received, wire: Wire) -> None:
        answer(received.body)(received, wire)

    bodies = [chat(f"question {n}") for n in range(40)]

    def ask(port: int, body: bytes) -> bytes:
        with Raw(port) as raw:
            return raw.ask(body).body

    for mode, live in (("record", 40), ("replay", 0)):
        with serving(echo) as upstream, proxying(upstream.url, tape, mode) as proxy:
            port = int(proxy.address.rpartition(":")[2])
            with ThreadPoolExecutor(8) as pool:
                order = bodies if mode == "record" else bodies[::-1]
                assert list(pool.map(ask, [port] * 40, order)) == order
            assert len(upstream.requests) == live
    assert len(JsonlTape(tape).keys()) == 40


# --- what was given before --------------------------------------------------------------------


def _append(tape: Path, text: str) -> None:
    """Another process that asks again and keeps another answer."""
    cassette = Cassette(tape, "live", latch=True)
    headers = (("Content-Type", "application/json"),)
    permit = cassette.decide(Request("POST", "https://h/v1/chat/completions", headers, chat("x")))
    permit.answered(200, (("Content-Type", "application/json"),))  # type: ignore[union-attr]
    permit.feed(text.encode())  # type: ignore[union-attr]
    permit.finish()  # type: ignore[union-attr]
    cassette.close()


@pytest.mark.row("A1")
def test_an_answer_that_another_process_recorded_later_wins(tmp_path: Path) -> None:
    """Also over one that was given before and is remembered."""
    tape = tmp_path / "t.jsonl"
    (first,) = recorded(tape, chat("x"))
    with proxying(None, tape) as proxy, Raw(proxy) as raw:
        assert [raw.ask(chat("x")).body for _ in range(3)] == [first.body] * 3
        other = multiprocessing.get_context("spawn").Process(
            target=_append, args=(tape, '{"later":1}')
        )
        other.start()
        other.join(30)
        wait_until(lambda: raw.ask(chat("x")).body == b'{"later":1}', 5)


def test_every_answer_counts_in_the_report_whether_it_was_decided_or_remembered(
    tmp_path: Path,
) -> None:
    tape = tmp_path / "t.jsonl"
    recorded(tape, chat("x"), chat("y"))
    with proxying(None, tape) as proxy, Raw(proxy) as raw:
        for _ in range(5):
            raw.ask(chat("x"))
        (report,) = report_of(proxy)["tapes"]
    assert (report["served"], report["reused"], report["unused"]) == (5, 4, 1)


@pytest.mark.row("N01", "N02")
def test_requests_that_differ_in_their_head_are_not_taken_for_each_other(tmp_path: Path) -> None:
    tape = tmp_path / "t.jsonl"
    recorded(tape, chat("x"), lines=("anthropic-beta: a",))
    with proxying(None, tape) as proxy, Raw(proxy) as raw:
        path = "/v1/chat/completions"
        assert raw.ask(chat("x"), path, "anthropic-beta: a").status == 200
        assert raw.ask(chat("x"), path, "anthropic-beta: b").status == 400
        assert raw.ask(chat("x"), f"{path}?v=2", "anthropic-beta: a").status == 400


# --- bad bodies -------------------------------------------------------------------------------


@pytest.mark.row("F12", "N12")
@pytest.mark.parametrize(
    "body",
    [
        b"this is no JSON",
        b'{"a":1,"a":2}',
        b'{"a":',
        b"\xff\xfe",
        b"[" * 100_000,
        b'"\\ud83d"',
        b"",
    ],
    ids=["text", "a name twice", "cut", "bytes", "deep", "lone surrogate", "empty"],
)
def test_a_body_that_is_no_plain_json_is_one_like_any_other(body: bytes, tmp_path: Path) -> None:
    tape = tmp_path / "t.jsonl"
    (first,) = recorded(tape, body)
    with proxying(None, tape) as proxy, Raw(proxy) as raw:
        assert raw.ask(body).body == first.body
        assert raw.ask(body + b" x").status == 400


def test_a_large_body_is_decided_without_holding_up_others(tmp_path: Path) -> None:
    tape = tmp_path / "t.jsonl"
    recorded(tape, chat("x"))
    large = b'{"file":"' + b"x" * (16 * 1024 * 1024) + b'"}'
    with proxying(None, tape) as proxy, Raw(proxy) as slow, Raw(proxy) as quick:
        slow.send(request(large))
        answered = 0
        while not select.select([slow.sock], [], [], 0)[0]:
            assert quick.ask(chat("x")).status == 200
            answered += 1
        assert slow.answer().header("x-tapes-error") == "miss"
    assert answered > 1


@pytest.mark.slow
def test_a_body_of_100_megabytes_is_recorded_and_replayed(tmp_path: Path) -> None:
    body, tape = bytes(range(256)) * 400_000, tmp_path / "t.jsonl"
    with serving(answer(b'{"ok":1}')) as upstream:
        for mode in ("record", "replay"):
            with proxying(upstream.url, tape, mode) as proxy, Raw(proxy) as raw:
                raw.sock.settimeout(60)
                assert raw.ask(body).body == b'{"ok":1}'
        (received,) = upstream.requests
    assert received.body == body


def test_a_body_beyond_the_limit_is_refused_before_it_has_come(tmp_path: Path) -> None:
    with proxying(None, tmp_path / "t.jsonl", body_limit=1000) as proxy:
        with Raw(proxy) as raw:
            raw.send(request(b"x" * 2000)[:500])
            assert raw.answer().status == 413
        with Raw(proxy) as raw:  # whose length is not known before
            head = request(b"", "/v1/x", "Transfer-Encoding: chunked").replace(
                b"Content-Length: 0\r\n", b""
            )
            raw.send(head + b"800\r\n" + b"x" * 2048 + b"\r\n")
            assert raw.answer().status == 413
        with Raw(proxy) as raw:  # and whose framing is what is large
            raw.send(head + b"1;%b\r\nx\r\n" % (b"a" * 4000) * 3)
            assert raw.answer().status == 413


def test_a_tape_that_is_damaged_refuses_and_names_the_place(tmp_path: Path) -> None:
    tape = tmp_path / "t.jsonl"
    recorded(tape, chat("x"))
    with proxying(None, tape) as proxy, Raw(proxy) as raw:
        line = tape.read_bytes()
        tape.write_bytes(line[:-40] + b"#" * 39 + b"\n")
        got = raw.ask(chat("x"))
    assert got.header("x-tapes-error") == "tape-failed"
    assert "line 1" in got.json()["error"]["message"]


def test_a_client_that_leaves_while_its_request_is_decided_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    gate, tape = Gate(), tmp_path / "t.jsonl"
    with serving(gate, counting) as upstream, proxying(upstream.url, tape, "record") as proxy:
        first = Raw(proxy)
        first.send(request(chat("x")))
        assert gate.arrived.acquire(timeout=10)
        with Raw(proxy) as waiting:  # for the call of the first
            waiting.send(request(chat("x")))
            wait_until(lambda: proxy.desk.waiting == 1)
        wait_until(lambda: proxy.desk.waiting == 0)
        first.sock.close()
        gate.open.set()
        with Raw(proxy) as third:
            assert third.ask(chat("x")).status == 200
    assert isinstance(upstream, Server)


def test_who_waited_for_a_call_of_somebody_else_is_not_kept_for_ever(tmp_path: Path) -> None:
    tape, body = tmp_path / "t.jsonl", chat("x")
    with serving(answer()) as upstream, proxying(upstream.url, tape, "record") as proxy:
        url = f"{upstream.url}/v1/chat/completions"
        asked = Request("POST", url, (("Content-Type", "application/json"),), body)
        elsewhere = Cassette(JsonlTape(tape), "record", latch=True)
        permit = elsewhere.decide(asked, owner="somebody else")
        assert isinstance(permit, Permit)
        with Raw(proxy) as raw, Raw(proxy) as impatient:
            for client in (raw, impatient):
                client.send(request(body, "/v1/chat/completions"))
            wait_until(lambda: len(proxy.desk._waiting) == 1 and proxy.desk.requests == 2)
            impatient.sock.close()
            permit.answered(200, (("Content-Type", "application/json"),))
            permit.feed(b"{}")
            permit.finish()
            assert raw.answer().body == b"{}"
        wait_until(lambda: not proxy.desk._waiting)
        assert not upstream.requests
        elsewhere.close()
