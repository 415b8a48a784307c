"""What every covered client has to keep, with real libraries against a real server."""

import gzip
import json
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import brotli
import pytest
import zstandard

import tapes
from tapes import BudgetExhausted, Cassette, CassetteMiss, LatchClosed, TapesError, UnusedRecordings
from tapes.budget import Limits
from tapes.errors import IncompleteRecording, TapeFailed
from tapes.exchange import Exchange, Request, State
from tapes.project import Declared
from tapes.tape.kinds import open_tape
from tests.clients import CLIENTS, ON_UVLOOP, Call, Client
from tests.making import stretch
from tests.servers import (
    Acknowledged,
    Received,
    Script,
    Wire,
    answer,
    chunks,
    closed_port,
    serving,
)

EVENTS = tuple(b'data: {"n": %d}\n\n' % number for number in range(5))
CODINGS = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.compress,
}
# Those whose session makes its calls one after another.
ONE_BY_ONE = [c for c in CLIENTS if "async" not in c.name and "aiohttp" not in c.name]
FRAMINGS = {
    "comment and CRLF": b": ping\n\ndata: a\r\n\r\n",
    "CR": b"data: one\rdata: two\r\r",
    "trailing space": b"data: x  \n\n\n",
    "unknown event": b"event: new_kind\ndata: {}\n\n",
    "NDJSON": b'{"a":1}\n{"b":2}\r\n\n{"c":3}',
    "binary events": bytes(range(256)) + b"\r\n\r\n\x00\x00\x00\x10",
}
BODIES = {
    "every byte": bytes(range(256)),
    "invalid UTF-8": b"caf\xe9",
    "BOM": b"\xef\xbb\xbf{}",
    "NUL": b"a\x00b",
    "empty": b"",
    "lone surrogate": b'{"t":"\\ud83d"}',
    "numbers": b'{"n":123456789012345678901234567890,"f":1.10,"e":1e2}',
    "twice": b'{"a":1,"a":2}',
    "spaces": b'{ "b" : 1 }\n',
    "line separators": "a\u2028b\u0085c".encode(),
}


@pytest.fixture(params=CLIENTS, ids=lambda client: client.name)
def client(request: pytest.FixtureRequest) -> Client:
    chosen: Client = request.param
    return chosen


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    return tmp_path / "tape.jsonl"


def recording(tape: Path, **options: object) -> tapes.use:
    return tapes.use(tape, "record", latch=True, **options)  # type: ignore[arg-type]  # any option


def on(tape: Path) -> list[Exchange]:
    opened = open_tape(tape)
    try:
        return list(opened.exchanges())
    finally:
        opened.close()


# --- record once, replay for ever -------------------------------------------------------------


@pytest.mark.row("N03")
def test_the_first_call_is_live_and_every_later_one_is_not(client: Client, tape: Path) -> None:
    with serving(answer(b'{"n":1}'), answer(b'{"n":2}')) as server:
        with recording(tape):
            assert client.ask(Call(server.url)).body == b'{"n":1}'
            assert client.ask(Call(server.url)).body == b'{"n":1}'
        with tapes.use(tape) as cassette:
            assert client.ask(Call(server.url)).body == b'{"n":1}'
        assert (len(server.requests), cassette.report.as_dict()["served"]) == (1, 1)


def test_replay_opens_no_connection(client: Client, tape: Path) -> None:
    with serving(answer(b"[]")) as server, recording(tape):
        got = client.ask(Call(server.url))
    with tapes.use(tape, latch=True):
        assert client.ask(Call(f"http://127.0.0.1:{closed_port()}")) == got


@pytest.mark.row("N01")
def test_a_changed_prompt_is_a_miss_that_no_handler_swallows(client: Client, tape: Path) -> None:
    with serving(answer()) as server:
        with recording(tape):
            client.ask(Call(server.url, body=b'{"messages":["one"]}'))
        with (
            tapes.use(tape),
            pytest.raises(CassetteMiss, match=r"differs at messages\[0\]") as miss,
        ):
            client.ask(Call(server.url, body=b'{"messages":["two"]}'))
        assert Exception not in type(miss.value).__mro__
        assert len(server.requests) == 1


def test_recording_without_permission_is_refused(client: Client, tape: Path) -> None:
    with serving(answer()) as server, tapes.use(tape, "record", latch=False):
        with pytest.raises(LatchClosed):
            client.ask(Call(server.url))
        assert server.connections == 0


def test_live_mode_asks_again_each_time(client: Client, tape: Path) -> None:
    with serving(answer(b"1"), answer(b"2")) as server, tapes.use(tape, "live"):
        assert [client.ask(Call(server.url)).body for _ in range(2)] == [b"1", b"2"]


@pytest.mark.row("N02")
def test_whatever_can_change_the_answer_is_told_apart(client: Client, tape: Path) -> None:
    said = {"messages": [{"role": "user", "content": "hello world"}]}
    variants: list[dict[str, object]] = [
        {"system": "A"}, {"system": "B"}, {}, {"tools": ["t"]},
        {"temperature": 0}, {"temperature": 1}, {"x_new": 1}, {"x_new": 2},
    ]  # fmt: skip
    bodies = [json.dumps(said | variant).encode() for variant in variants]

    def echo(received: Received, wire: Wire) -> None:
        answer(b"answer to " + received.body)(received, wire)

    with serving(echo) as server:
        with recording(tape):
            client.ask_all([Call(server.url, body=body) for body in bodies])
        with tapes.use(tape):
            got = client.ask_all([Call(server.url, body=body) for body in reversed(bodies)])
    assert [answered.body for answered in reversed(got)] == [b"answer to " + b for b in bodies]


@pytest.mark.row("F07")
def test_objects_handed_out_are_independent(client: Client, tape: Path) -> None:
    with serving(answer(b"{}", headers=[("X-One", "1")])) as server, recording(tape):
        client.ask(Call(server.url)).headers.clear()
        assert client.ask(Call(server.url)).all("x-one") == ["1"]


# --- several answers to one request -----------------------------------------------------------


@pytest.mark.row("N03")
def test_samples_and_ordered_groups_keep_every_answer(client: Client, tape: Path) -> None:
    with serving(*(answer(b"%d" % number) for number in (1, 2, 3))) as server:
        with recording(tape):
            for number in range(3):
                with tapes.sample(number):
                    client.ask(Call(server.url))
        with tapes.use(tape), tapes.ordered():
            assert [client.ask(Call(server.url)).body for _ in range(3)] == [b"1", b"2", b"3"]
        with tapes.use(tape, repeated="ordered"):
            assert [client.ask(Call(server.url)).body for _ in range(3)] == [b"1", b"2", b"3"]


@pytest.mark.row("N03")
def test_a_header_asks_for_a_sample_and_is_not_sent(client: Client, tape: Path) -> None:
    with serving(answer(b"1"), answer(b"2")) as server:
        headers = (("Content-Type", "application/json"), ("X-Tapes-Sample", "1"))
        with recording(tape):
            client.ask(Call(server.url))
            client.ask(Call(server.url, headers=headers))
        with tapes.use(tape):
            assert client.ask(Call(server.url, headers=headers)).body == b"2"
            assert client.ask(Call(server.url)).body == b"1"
        assert [received.header("x-tapes-sample") for received in server.requests] == [None, None]


def test_a_sample_that_is_no_number_is_refused(client: Client, tape: Path) -> None:
    with tapes.use(tape), pytest.raises(TapeFailed, match="x-tapes-sample"):
        client.ask(Call("http://127.0.0.1:9", headers=(("x-tapes-sample", "first"),)))


# --- streams ----------------------------------------------------------------------------------


@pytest.mark.row("N06")
def test_a_piece_reaches_the_client_before_the_next_is_sent(client: Client, tape: Path) -> None:
    script = Acknowledged(EVENTS)
    with serving(script) as server, recording(tape):
        assert client.pieces(Call(server.url), lambda _: script.got()) == list(EVENTS)
    assert not script.was_kept_waiting


@pytest.mark.row("N06")
@pytest.mark.parametrize("coding", CODINGS)
def test_replay_splits_a_stream_at_the_same_places(client: Client, tape: Path, coding: str) -> None:
    coded = CODINGS[coding](b"".join(EVENTS))
    script = Acknowledged(tuple(coded[at : at + 7] for at in range(0, len(coded), 7)))
    with serving(script) as server:
        with recording(tape):
            live = client.pieces(Call(server.url), lambda _: script.got())
        with tapes.use(tape):
            assert client.pieces(Call(server.url)) == live == list(script.pieces)


@pytest.mark.row("N07")
@pytest.mark.parametrize("body", FRAMINGS.values(), ids=FRAMINGS)
def test_framing_arrives_as_it_was_sent(client: Client, tape: Path, body: bytes) -> None:
    with serving(chunks(body)) as server:
        with recording(tape):
            assert b"".join(client.pieces(Call(server.url))) == body
        with tapes.use(tape):
            assert b"".join(client.pieces(Call(server.url))) == body


@pytest.mark.row("N06")
@pytest.mark.parametrize(("pace", "at_least"), [("as recorded", 0.15), (0.5, 0.075), (2.0, 0.3)])
def test_replay_takes_the_recorded_time_by_choice(
    client: Client, tape: Path, pace: str | float, at_least: float
) -> None:
    with serving(chunks(*EVENTS)) as server, recording(tape):
        client.pieces(Call(server.url))
    stretch(tape, 0.03)
    started = time.monotonic()
    with tapes.use(tape, pace=pace):
        assert client.pieces(Call("http://127.0.0.1:9")) == list(EVENTS)
    assert time.monotonic() - started >= at_least


@pytest.mark.row("N08")
def test_a_stream_that_the_client_left_never_answers(client: Client, tape: Path) -> None:
    script = Acknowledged(EVENTS)

    def two_of_them(piece: bytes) -> bool:
        script.got()
        return piece != EVENTS[1]

    with serving(script) as server:
        with recording(tape):
            assert client.pieces(Call(server.url), two_of_them) == list(EVENTS[:2])
        with tapes.use(tape), pytest.raises(IncompleteRecording, match="left incomplete"):
            client.ask(Call(server.url))
    assert [exchange.state for exchange in on(tape)] == [State.ABORTED_BY_CLIENT]


def truncated(_: Received, wire: Wire) -> None:
    wire.head(200, [("Content-Type", "text/event-stream"), ("Transfer-Encoding", "chunked")])
    wire.chunk(EVENTS[0])
    wire.close()


def too_short(_: Received, wire: Wire) -> None:
    wire.head(200, [("Content-Type", "application/json"), ("Content-Length", "10")])
    wire.send(b"{}")
    wire.close()


def broken_off(_: Received, wire: Wire) -> None:
    wire.head(200, [("Content-Type", "application/json"), ("Content-Length", "10")])
    wire.send(b"{}")
    wire.reset()


@pytest.mark.row("N08", "B8")
@pytest.mark.parametrize("script", [truncated, too_short, broken_off])
def test_a_stream_that_the_provider_broke_never_answers(
    client: Client, tape: Path, script: Script
) -> None:
    with serving(script) as server:
        with recording(tape), pytest.raises(Exception, match=r"(?s).*") as failed:
            client.ask(Call(server.url))
        assert not isinstance(failed.value, TapesError)
        with tapes.use(tape), pytest.raises(IncompleteRecording):
            client.ask(Call(server.url))
    assert [exchange.state for exchange in on(tape)] == [State.UPSTREAM_ERROR]


def test_a_stream_without_its_last_word_never_answers(client: Client, tape: Path) -> None:
    start = b'event: message_start\ndata: {"type":"message_start"}\n\n'
    with serving(chunks(start)) as server:
        with recording(tape):
            assert client.pieces(Call(server.url)) == [start]
        with tapes.use(tape), pytest.raises(IncompleteRecording):
            client.ask(Call(server.url))


def test_a_stream_left_after_its_last_word_is_whole(client: Client, tape: Path) -> None:
    script = Acknowledged((*EVENTS, b"data: [DONE]\n\n"))

    def until_done(piece: bytes) -> bool:
        if b"[DONE]" in piece:
            return False  # without a word to the server: it has nothing more to send
        script.got()
        return True

    with serving(script) as server:
        with recording(tape):
            client.pieces(Call(server.url), until_done)
        with tapes.use(tape):
            assert client.pieces(Call(server.url)) == list(script.pieces)


# --- bytes ------------------------------------------------------------------------------------


@pytest.mark.row("N09")
@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_compressed_answers_are_decoded_once(
    client: Client, tape: Path, coding: str, framing: str
) -> None:
    said = b'{"msg":"hello"}'
    coded, headers = CODINGS[coding](said), [("Content-Encoding", coding)]
    script = (
        answer(coded, headers=headers)
        if framing == "length"
        else chunks(coded[:5], coded[5:], content_type="application/json", headers=headers)
    )
    with serving(script) as server:
        with recording(tape):
            live = client.ask(Call(server.url))
        with tapes.use(tape):
            replayed = client.ask(Call(server.url))
    assert live.body == replayed.body == said
    assert replayed.headers == live.headers


@pytest.mark.row("N10")
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_the_bytes_are_the_providers(client: Client, tape: Path, body: bytes, framing: str) -> None:
    parts = (body,) if body else ()
    script = answer(body) if framing == "length" else chunks(*parts, content_type="text/plain")
    with serving(script) as server:
        with recording(tape):
            live = client.ask(Call(server.url))
        with tapes.use(tape):
            assert client.ask(Call(server.url)) == client.ask(Call(server.url)) == live
    assert live.body == body


def until_close(_: Received, wire: Wire) -> None:
    wire.head(200, [("Content-Type", "text/plain"), ("Connection", "close")])
    wire.send(b"all there is")
    wire.close()


def test_a_body_that_ends_with_the_connection_is_whole(client: Client, tape: Path) -> None:
    with serving(until_close) as server:
        with recording(tape):
            live = client.ask(Call(server.url))
        with tapes.use(tape):
            assert client.ask(Call(server.url)) == live
    assert live.body == b"all there is"


@pytest.mark.parametrize("status", [204, 304])
def test_an_answer_that_has_no_body(client: Client, tape: Path, status: int) -> None:
    def script(_: Received, wire: Wire) -> None:
        wire.head(status, [("ETag", '"1"')], "Nothing")

    with serving(script) as server:
        with recording(tape):
            live = client.ask(Call(server.url, "GET", body=None))
        with tapes.use(tape):
            assert client.ask(Call(server.url, "GET", body=None)) == live
    assert (live.status, live.reason, live.body) == (status, "Nothing", b"")


def test_an_answer_to_head_has_a_length_and_no_body(client: Client, tape: Path) -> None:
    with serving(answer(b"0123456789")) as server:
        with recording(tape):
            live = client.ask(Call(server.url, "HEAD", body=None))
        with tapes.use(tape):
            assert client.ask(Call(server.url, "HEAD", body=None)) == live
    assert (live.all("content-length"), live.body) == (["10"], b"")


def test_a_large_answer_in_one_chunk(client: Client, tape: Path) -> None:
    body = bytes(range(256)) * 8192
    with serving(chunks(body, content_type="application/octet-stream")) as server:
        with recording(tape):
            assert client.ask(Call(server.url)).body == body
        with tapes.use(tape):
            assert client.ask(Call(server.url)).body == body


def test_status_reason_and_repeated_headers_are_the_providers(client: Client, tape: Path) -> None:
    headers = [("X-Request-Id", "req-1"), ("X-Part", "b"), ("X-Part", "a")]
    with serving(answer(b"no", status=404, reason="Not Here", headers=headers)) as server:
        with recording(tape):
            live = client.ask(Call(server.url))
        with tapes.use(tape):
            assert client.ask(Call(server.url)) == live
    assert (live.status, live.reason, live.all("x-part")) == (404, "Not Here", ["b", "a"])


def test_the_request_is_sent_as_the_client_made_it(client: Client, tape: Path) -> None:
    headers = (("X-B", "2"), ("Content-Type", "application/json"), ("X-A", "1"))
    call = Call("", body=b'{ "b" : 1 }', headers=headers)
    with serving(answer()) as server:
        call = Call(server.url + "/v1/x?b=1&a=%2F", call.method, call.body, call.headers)
        client.ask(call)
        with recording(tape):
            client.ask(call)
        plain, recorded = server.requests
    assert recorded == plain
    assert [name for name, _ in recorded.headers if name in ("X-B", "X-A")] == ["X-B", "X-A"]


@pytest.mark.parametrize("one_by_one", ONE_BY_ONE, ids=lambda client: client.name)
def test_one_session_uses_one_connection_while_recording(one_by_one: Client, tape: Path) -> None:
    with serving(chunks(b"[1]", content_type="application/json")) as server:
        with recording(tape):
            one_by_one.ask_all([Call(server.url, body=b"%d" % n) for n in range(3)])
        assert (len(server.requests), server.connections) == (3, 1)


# --- errors of the provider -------------------------------------------------------------------


def test_an_answer_that_says_later_is_shown_and_not_stored(client: Client, tape: Path) -> None:
    busy = answer(b"later", status=429, headers=[("Retry-After", "30")])
    with serving(busy, answer(b"now")) as server:
        with recording(tape):
            live = client.ask(Call(server.url))
            assert (live.status, live.body, live.all("retry-after")) == (429, b"later", ["30"])
            assert client.ask(Call(server.url)).body == b"now"
        with tapes.use(tape):
            assert client.ask(Call(server.url)).body == b"now"


def test_a_stored_answer_that_says_later_does_not_cost_the_wait(client: Client, tape: Path) -> None:
    with serving(answer(b"later", status=429, headers=[("Retry-After", "30")])) as server:
        with recording(tape, declared=Declared(errors="store")):
            client.ask(Call(server.url))
        with tapes.use(tape):
            assert client.ask(Call(server.url)).all("retry-after") == ["0"]
        with tapes.use(tape, declared=Declared(retry_after="recorded")):
            assert client.ask(Call(server.url)).all("retry-after") == ["30"]


@pytest.mark.row("N17")
def test_a_call_that_reached_nobody_costs_nothing(client: Client, tape: Path) -> None:
    limits = Limits(calls=1)
    with tapes.use(tape, "record", limits=limits):
        with pytest.raises(Exception, match=r"(?s).*") as failed:
            client.ask(Call(f"http://127.0.0.1:{closed_port()}"))
        assert not isinstance(failed.value, TapesError)
        with serving(answer(b"1")) as server:
            assert client.ask(Call(server.url)).body == b"1"
            with pytest.raises(BudgetExhausted):
                client.ask(Call(server.url, body=b"[2]"))
            assert len(server.requests) == 1


@pytest.mark.row("N17")
def test_a_call_whose_server_hung_up_costs_nothing(client: Client, tape: Path) -> None:
    def hang_up(_: Received, wire: Wire) -> None:
        wire.close()

    limits = Limits(calls=1)
    with serving(hang_up, answer(b"1")) as server, tapes.use(tape, "record", limits=limits):
        with pytest.raises(Exception, match=r"(?s).*"):
            client.ask(Call(server.url))
        assert client.ask(Call(server.url)).body == b"1"


def test_a_tape_that_cannot_be_written_fails_the_call(client: Client, tmp_path: Path) -> None:
    cassette = Cassette(tmp_path / "tape.jsonl", "record", latch=True)
    with serving(answer()) as server, tapes.use(cassette):
        cassette.tape.close()
        with pytest.raises(TapeFailed):
            client.ask(Call(server.url))
    cassette.close()


# --- secrets ----------------------------------------------------------------------------------


@pytest.mark.row("N13")
def test_nothing_secret_comes_to_rest(client: Client, tape: Path) -> None:
    secrets = ["bearer-value-0123456789abcdef", "query-key-0123456789", "cookie-value-0123456789",
               "org-0123456789abcdef"]  # fmt: skip
    bearer, key, cookie, organisation = secrets
    headers = [("Set-Cookie", f"session={cookie}"), ("OpenAI-Organization", organisation)]
    with serving(answer(b'{"ok":true}', headers=headers)) as server, recording(tape):
        got = client.ask(
            Call(f"{server.url}/v1?key={key}", headers=(("Authorization", f"Bearer {bearer}"),))
        )
    assert got.all("set-cookie") == [f"session={cookie}"]
    kept = b"".join(path.read_bytes() for path in tape.parent.rglob("*") if path.is_file())
    assert tape.exists()
    assert [secret for secret in secrets if secret.encode() in kept] == []


@pytest.mark.row("N14")
def test_a_tape_replays_with_another_key_or_none(client: Client, tape: Path) -> None:
    with serving(answer(b"[1]")) as server:
        with recording(tape):
            client.ask(Call(f"{server.url}/v1?key=AAA-0123456789"))
        with tapes.use(tape):
            assert client.ask(Call(f"{server.url}/v1?key=BBB")).body == b"[1]"
            assert client.ask(Call(f"{server.url}/v1")).body == b"[1]"


@pytest.mark.row("N14")
def test_a_token_that_an_answer_gave_works_and_stays_off_the_disk(
    client: Client, tape: Path
) -> None:
    token = "tok-fedcba9876543210fedcba"
    given = answer(json.dumps({"access_token": token}).encode())

    def go(url: str) -> bytes:
        value = json.loads(client.ask(Call(url + "/token")).body)["access_token"]
        return client.ask(Call(url + "/use", body=json.dumps({"with": value}).encode())).body

    with serving(given, answer(b"used")) as server:
        with recording(tape):
            assert go(server.url) == b"used"
        assert token.encode() in server.requests[1].body
        with tapes.use(tape):
            assert go(server.url) == b"used"
    assert all(token.encode() not in p.read_bytes() for p in tape.parent.rglob("*") if p.is_file())


# --- many at once -----------------------------------------------------------------------------


def echo(received: Received, wire: Wire) -> None:
    answer(b'{"asked":%b}' % received.body)(received, wire)


@pytest.mark.row("N04")
def test_forty_calls_at_once_lose_nothing(client: Client, tape: Path) -> None:
    bodies = [b'{"number":%d}' % number for number in range(40)]
    with serving(echo) as server:
        with recording(tape):
            client.ask_all([Call(server.url, body=body) for body in bodies])
        with tapes.use(tape):
            got = client.ask_all([Call(server.url, body=body) for body in reversed(bodies)])
        assert len(server.requests) == 40
    assert [answered.body for answered in reversed(got)] == [b'{"asked":%b}' % b for b in bodies]
    assert len({exchange.key for exchange in on(tape)}) == 40


@pytest.mark.row("N04")
@pytest.mark.parametrize("workers", [8, 3])
def test_threads_get_their_own_answers(client: Client, tape: Path, workers: int) -> None:
    bodies = [b'{"number":%d}' % number for number in range(40)]
    with serving(echo) as server:
        url = server.url
        with recording(tape), ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda body: client.ask(Call(url, body=body)), bodies))
        with tapes.use(tape), ThreadPoolExecutor(workers) as pool:
            got = list(pool.map(lambda body: client.ask(Call(url, body=body)).body, bodies))
        assert len(server.requests) == 40
    assert got == [b'{"asked":%b}' % body for body in bodies]


@pytest.mark.row("N04")
def test_the_same_call_at_once_is_made_once(client: Client, tape: Path) -> None:
    with serving(answer(b"1"), answer(b"2")) as server, recording(tape):
        url = server.url
        with ThreadPoolExecutor(8) as pool:
            got = list(pool.map(lambda _: client.ask(Call(url)).body, range(8)))
        assert (got, len(server.requests)) == ([b"1"] * 8, 1)


@pytest.mark.row("N04")
def test_the_same_call_on_one_session_is_made_once(client: Client, tape: Path) -> None:
    with serving(answer(b"1"), answer(b"2")) as server, recording(tape):
        got = client.ask_all([Call(server.url)] * 8)
        assert ([g.body for g in got], len(server.requests)) == ([b"1"] * 8, 1)


# --- across clients ---------------------------------------------------------------------------


@pytest.mark.parametrize("other", CLIENTS, ids=lambda client: f"replayed-by-{client.name}")
def test_one_tape_serves_every_client(client: Client, other: Client, tape: Path) -> None:
    coded = gzip.compress(b"".join(EVENTS))
    script = chunks(coded[:9], coded[9:], headers=[("Content-Encoding", "gzip"), ("X-A", "1")])
    with serving(script) as server:
        with recording(tape):
            live = client.ask(Call(server.url + "/v1/x?b=%20c"))
        with tapes.use(tape):
            assert other.ask(Call(server.url + "/v1/x?b=%20c")) == live
            assert other.pieces(Call(server.url + "/v1/x?b=%20c")) == [coded[:9], coded[9:]]


# --- another event loop -----------------------------------------------------------------------


@pytest.mark.parametrize("loop_client", ON_UVLOOP, ids=lambda client: client.name)
def test_uvloop_changes_nothing(loop_client: Client, tape: Path) -> None:
    script = Acknowledged(EVENTS)
    with serving(script) as server:
        with recording(tape):
            loop_client.pieces(Call(server.url), lambda _: script.got())
        with tapes.use(tape):
            assert loop_client.pieces(Call(server.url)) == list(EVENTS)
        assert len(server.requests) == 1


# --- hosts, and what nobody asked for ---------------------------------------------------------


def test_an_allowed_host_is_neither_recorded_nor_refused(client: Client, tape: Path) -> None:
    with serving(answer(b"1"), answer(b"2")) as server:
        with tapes.use(tape, allow=[f"127.0.0.1:{server.port}"]) as cassette:
            assert [client.ask(Call(server.url)).body for _ in range(2)] == [b"1", b"2"]
        assert cassette.report.as_dict()["served"] == 0
    assert on(tape) == []


@pytest.mark.row("N18")
def test_recordings_that_nobody_asked_for_are_told_by_choice(client: Client, tape: Path) -> None:
    calls = [Call("http://127.0.0.1:9", body=b"%d" % number) for number in range(3)]
    with serving(echo) as server, recording(tape):
        client.ask_all([Call(server.url, body=call.body) for call in calls])
    with (
        pytest.raises(UnusedRecordings, match="1 of the recordings"),
        tapes.use(tape, unused="fail"),
    ):
        client.ask_all(calls[:2])
    with (
        pytest.warns(UserWarning, match="1 of the recordings"),
        tapes.use(tape, unused="warn"),
    ):
        client.ask_all(calls[1:])


def test_the_tape_keeps_the_request_and_no_host_of_its_own(client: Client, tape: Path) -> None:
    with serving(answer()) as server, recording(tape):
        client.ask(Call(f"{server.url}/v1/x?a=1", body=b'{"a":1}'))
        url = server.url
    (exchange,) = on(tape)
    request = exchange.request
    assert isinstance(request, Request)
    assert (request.method, request.url, request.body) == ("POST", f"{url}/v1/x?a=1", b'{"a":1}')
